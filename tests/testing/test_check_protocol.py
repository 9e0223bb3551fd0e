"""`check_protocol` is red on broken protocols, each with its sentence and the smallest durations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, protocols
from gcjax.testing import ContractError, check_protocol

BSP, SSP, ASP = protocols.bsp(), protocols.ssp(staleness=1), protocols.asp()
COUNT = iter(range(1, 1000))


def schedule_with(change, base=BSP, **fields):
    """The protocol with another schedule: `change(schedule, durations) -> schedule`."""
    return base.replace(schedule=lambda d, n: change(base.schedule(d, n), d), **fields)


def only(s, name, change):
    """With a field changed where there are contributions."""
    return s._replace(**{name: jnp.where(s.worker >= 0, change(getattr(s, name)), getattr(s, name))})


def without_waiting(s, d):
    """The first worker begins each unit a second early."""
    early = jnp.where(jnp.isfinite(s.start[1:, 0]), (s.start[1:, 0] - 0.25).clip(0), jnp.inf)
    return s._replace(start=s.start.at[1:, 0].set(early))


def on_values(s, d):
    return s if d[0, 0] > 0 else s._replace(weight=0 * s.weight)


# name -> (protocol, the sentence and the case)
BROKEN = {
    "weights of nine": (
        schedule_with(lambda s, d: s._replace(weight=9 * s.weight)),
        r"must add up to 1 at most.*; commit 0 has 9\. Smallest case: durations \[\[1\., 1\.\]\]\.",
    ),
    "no weights": (
        schedule_with(lambda s, d: s._replace(weight=0 * s.weight)),
        "a weight above 0; commit 0 .*durations",
    ),
    "too early": (
        schedule_with(lambda s, d: s._replace(time=0.1 * s.time)),
        r"not come before what it uses; commit 0.* \[\[1",
    ),
    "twice": (
        schedule_with(lambda s, d: only(s, "unit", lambda u: u * 0)),
        r"used once only.* Smallest .*\[\[1\., 1\.\], \[1\., 1\.\]\]",
    ),
    "staler than it says": (
        ASP.replace(max_staleness=lambda w: 0),
        "staleness must not be above .*max_staleness, 0; commit 1",
    ),
    "several versions": (
        schedule_with(lambda s, d: s._replace(read=s.read.at[1, 0].set(0)), max_staleness=None),
        r"read one version .*; commit 1 reads several\. .*\[\[1\., 1\.\], \[1\., 1\.\]\]",
    ),
    "reads what is not there yet": (
        schedule_with(
            lambda s, d: s._replace(
                read=s.read.at[jnp.where(s.worker >= 0, s.unit, len(d))[:, 0], s.worker[:, 0]].set(
                    jnp.arange(len(s.time), dtype=jnp.int32), mode="drop"
                )
            ),
            ASP,
        ),
        "a version must be there when it is read; commit 1, contribution 0 has read version 1",
    ),
    "begins too early": (
        schedule_with(without_waiting),
        "before its worker has computed the one before; unit 1 of worker 0",
    ),
    "messages take no time": (
        BSP.replace(schedule=lambda d, n: BSP.schedule(d, n._replace(upload=0 * n.upload))),
        r"sending a message must take the latency and the upload .*; unit 0 .*\[\[1\., 1\.\]\] with latency=",
    ),
    "parameters are there at once": (
        ASP.replace(schedule=lambda d, n: ASP.schedule(d, n._replace(download=0 * n.download))),
        "receiving parameters must take the latency and the download .*; unit 0 of .* instead of .* with latency=",
    ),
    "other mistakes with fewer units": (
        schedule_with(
            lambda s, d: only(s._replace(time=0.1 * s.time), "unit", lambda u: u + 9 * (len(d) < 3)),
        ),
        r"not come before what it uses; commit 0.* \[\[1\., 1\.\], \[1\., 1\.\], \[1\., 1\.\]\]",
    ),
    "faster than sampled": (
        BSP.replace(schedule=lambda d, n: BSP.schedule(d * 0.5, n)),
        "as long as its duration; unit 0 of .* takes 0.5 s",
    ),
    "slower than sampled": (
        BSP.replace(schedule=lambda d, n: BSP.schedule(d * 2, n)),
        "not take longer than its duration",
    ),
    "32 bits": (
        schedule_with(lambda s, d: s._replace(weight=s.weight.astype(jnp.float32))),
        "weight must be float64 for durations of float64",
    ),
    "wide numbers": (
        schedule_with(lambda s, d: s._replace(unit=s.unit.astype(jnp.int64))),
        "unit must be int32 .* it is int64",
    ),
    "flat weights": (schedule_with(lambda s, d: s._replace(weight=s.weight[:, 0])), r"weight .* must be float\[E, C\]"),
    "never commits": (
        schedule_with(
            lambda s, d: s._replace(
                time=s.time + jnp.inf,
                weight=0 * s.weight,
                **{n: jnp.full_like(s.unit, -1) for n in ("worker", "unit", "work")},
            )
        ),
        "some commit must happen within 8 units",
    ),
    "other random numbers": (
        schedule_with(lambda s, d: s._replace(weight=s.weight / next(COUNT))),
        "must be the same under vmap; weight is not",
    ),
    "breaks its promise": (
        ASP.replace(specification=protocols.ssp(staleness=0).specification),
        "keep to .* specification;",
    ),
    "knows the future": (
        schedule_with(lambda s, d: only(s, "weight", lambda w: w / (1 + d[-1, 0]))),
        r"the same however long units take that have not ended by then; commit 0 at 1 s is not.*\[\[1\., 1\.\],",
    ),
    "depends on how many units are sampled": (
        schedule_with(lambda s, d: only(s, "weight", lambda w: w / len(d))),
        "up to the horizon commits must be the same if more units are sampled; commit 0 at 1 s is not.*4 units of",
    ),
    "has too late a horizon": (
        SSP.replace(schedule=lambda d, n: SSP.schedule(d, n)._replace(horizon=jnp.asarray(jnp.inf, d.dtype))),
        "up to the horizon commits must be the same if more units are sampled; commit",
    ),
    "has another rule": (
        protocols.k_async(num_contributions=2).replace(rule=protocols.k_async(num_contributions=1).rule),
        "must have the commits that the protocol's rule makes in the event queue, all the same; commit 0 at .* is not",
    ),
    "cannot be traced": (schedule_with(on_values), "schedule must be a pure function .* can be traced"),
    "no protocol": (protocols.bsp, "a protocol must be a gcjax.protocols.Protocol"),
}


@pytest.mark.slow("breaks its promise")
@pytest.mark.parametrize("name", BROKEN)
def test_broken_protocols_are_red(name):
    protocol, sentence = BROKEN[name]
    with pytest.raises(ContractError, match=sentence):
        check_protocol(protocol, num_workers=3)


def test_good_protocols_are_green():
    check_protocol(SSP, num_workers=2, num_units=4, num_cases=1, rng_key=jax.random.key(1))
    check_protocol(protocols.coded(codes.uncoded(2, load=2)), num_units=6, num_cases=1, quick=True)


@pytest.mark.slow
def test_who_may_know_all_durations_is_not_asked():
    eager = protocols.worker_busy(eager=True, overlap=True)  # the trigger is the slowest of all units
    with pytest.raises(ContractError, match="the same however long units take that have not ended"):
        check_protocol(eager, num_workers=2, quick=True)
    check_protocol(eager, num_workers=2, quick=True, knows_durations=True)


def test_the_smallest_case_is_smaller_than_what_was_tried():
    """Broken only for a slow worker 1: nothing else is left of the durations."""

    def lazy(s, d):
        is_after_slow_unit = jnp.cumsum(d[:, 1] > 2) > 0  # bool[E]: commit e is of the units e
        return s._replace(weight=jnp.where(is_after_slow_unit[:, None], 9, 1) * s.weight)

    with pytest.raises(ContractError) as error:
        check_protocol(schedule_with(lazy), num_workers=4)
    case = str(error.value).split("durations ")[1].rstrip(".")
    smallest = np.array(eval(case.replace("inf", "np.inf")))
    assert smallest.shape[1] == 2 and (smallest[:, 1] > 2).sum() == 1 and (smallest[smallest <= 2] == 1).all()
