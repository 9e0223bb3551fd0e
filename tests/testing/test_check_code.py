"""`check_code` is red on broken codes, each with its sentence and the smallest case."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments
from gcjax.testing import ContractError, check_code

GOOD = codes.partial(assignments.cyclic(4, load=2))
FRC = codes.fractional_repetition(4, num_stragglers=1)


def plan_with(change, code=GOOD):
    """The code with another plan: `change(progress, coding) -> coding`."""
    return code._replace(plan=lambda progress: change(progress, code.plan(progress)))


def forgetful(progress, coding):
    """Forgets a chunk once worker 0 has finished something."""
    return coding._replace(decode=coding.decode * (progress[0] == 0))


def honest(change):
    """With the residual of what the coefficients have become."""

    def changed(progress, coding):
        coding = change(progress, coding)
        return coding._replace(residual=codes.base.residual(GOOD.assignment, coding.encode, coding.decode))

    return changed


def on_values(progress, coding):
    return coding if progress[0] > 0 else coding._replace(residual=0 * coding.residual)


COUNT = iter(range(1000))

# name -> (code, arguments, the sentence and the case)
BROKEN = {
    "decode three times too large": (
        plan_with(lambda p, c: c._replace(decode=3 * c.decode)),
        {},
        r"residual must be the distance .* it says .* where that is 4\. Smallest case: progress \[2, 2, 2, 2\]",
    ),
    "decodes nothing": (
        plan_with(honest(lambda p, c: c._replace(decode=0 * c.decode))),
        {},
        "something must be decoded; decode is 0 whatever is done",
    ),
    "a residual of its own": (
        plan_with(lambda p, c: c._replace(residual=0 * c.residual)),
        {},
        r"it says 0 where that is 1.* Smallest case: progress \[",
    ),
    "tolerates less": (
        GOOD,
        {"tolerated": 2},
        r"every set of up to 2 stragglers must .* progress \[(0, 0, 2, 2|., ., ., .)\]",
    ),
    "tolerates more": (FRC, {"tolerated": 0}, r"tolerated=0 must be the largest .*; all sets of 1 are"),
    "reads unfinished chunks": (
        plan_with(honest(lambda p, c: c._replace(encode=jnp.ones_like(c.encode), decode=jnp.full_like(c.decode, 0.5)))),
        {},
        "a message must not contain a chunk that is not finished.*progress",
    ),
    "decodes what is not sent": (
        plan_with(lambda p, c: c._replace(decode=jnp.ones_like(c.decode)), GOOD),
        {},
        "residual must be the distance|not sent must have the weight 0",
    ),
    "never sent": (
        GOOD._replace(sent=lambda p: jnp.zeros((4, 1), bool)),
        {},
        "a message that is not sent must have the w",
    ),
    "sent for nothing": (
        GOOD._replace(sent=lambda p: jnp.ones((4, 1), bool)),
        {},
        "finished nothing must send nothing",
    ),
    "sent and withdrawn": (
        GOOD._replace(sent=lambda p: (p[:, None] == 1) | (p.min() == 2), plan=lambda p: _nothing(GOOD.plan(p))),
        {},
        "not sent must have|a message that is sent must stay so",
    ),
    "grows": (
        plan_with(honest(forgetful)),
        {"never_grows": True},
        r"must never grow with progress; it grows from .* progress .* and then",
    ),
    "completes too early": (
        GOOD._replace(completion=lambda f: 0.5 * GOOD.completion(f)),
        {},
        "at the time of completion the sum must be exact; at .* s the residual is",
    ),
    "completes too late": (
        GOOD._replace(completion=lambda f: jnp.where(jnp.isfinite(f).all(), f.max(), GOOD.completion(f))),
        {},
        "completion must be the earliest time",
    ),
    "never completes": (
        GOOD._replace(completion=lambda f: f[0, 0] + jnp.inf),
        {},
        "completion must be a time .*; it is inf",
    ),
    "32 bits": (
        plan_with(lambda p, c: c._replace(decode=c.decode.astype(jnp.float32))),
        {},
        "decode must be float64 with 64-bit types; it is float32",
    ),
    "a flat decode": (
        plan_with(lambda p, c: c._replace(decode=c.decode[:, 0])),
        {},
        r"decode must have the shape \[4, 1, 1\]",
    ),
    "cannot be traced": (plan_with(on_values), {}, "plan must be a pure function .* can be traced"),
    "other random numbers": (
        plan_with(honest(lambda p, c: c._replace(decode=c.decode * (1 + (next(COUNT) > 2))))),
        {},
        "plan must give the same alone and under vmap",
    ),
    "takes any progress": (
        GOOD._replace(plan=lambda p: GOOD.plan(jnp.clip(jnp.resize(p, 4).astype(int), 0, 2))),
        {},
        "plan must refuse progress .* with a ValueError; it took it",
    ),
    "a chunk twice": (
        codes.partial(codes.Assignment(np.array([[0, 0], [1, 1]], np.int32), 2)),
        {},
        "must hold a chunk once only.*worker 0",
    ),
    "no code": (len, {}, "a code must be a gcjax.codes.GradientCode; got builtin_function"),
}


def _nothing(coding):
    zero = jnp.zeros_like(coding.decode)
    return codes.Coding(coding.encode, zero, codes.base.residual(GOOD.assignment, coding.encode, zero))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_codes_are_red(name):
    code, arguments, sentence = BROKEN[name]
    with pytest.raises(ContractError, match=sentence):
        check_code(code, max_masks=16, **arguments)


def test_a_good_code_is_green_with_everything_that_is_asked():
    check_code(GOOD, tolerated=1, never_grows=True, rng_key=jax.random.key(3))
    check_code(
        codes.partial(assignments.cyclic(12, load=3), num_blocks=2, rng_key=jax.random.key(0)), tolerated=1, quick=True
    )
