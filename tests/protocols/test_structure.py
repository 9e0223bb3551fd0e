"""A corrupted schedule is refused, with the rule that it breaks and where, before anything is trained on it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, tasks
from gcjax.protocols.conformance.structure import check_shapes, check_structure
from tests.parameters import one_in, some
from tests.protocols import table
from tests.protocols.table import CASES, random_durations, random_links, schedule

SHAPE = (6, 3)
GOOD = {
    "ssp": protocols.ssp(staleness=1),
    "bsp": protocols.bsp(),
    "local": protocols.local_sgd(num_local_steps=2),
    "single steps": protocols.d_psgd(),
    "coded": protocols.coded(codes.fractional_repetition(3, num_stragglers=0)),
}


@pytest.fixture(scope="module")
def good():
    d = random_durations(0, SHAPE).astype(np.float32)
    return {
        name: jax.tree.map(np.asarray, jax.jit(p.schedule)(d, protocols.base.Network())) for name, p in GOOD.items()
    }


def at(values, place, value):
    """With another value at one place."""
    values = values.copy()
    values[place] = value
    return values


def field(name, place, value):
    """With another value at one place; a version is what was read for the first unit."""

    def change(s):
        if name == "version":
            e, c = place if isinstance(place, tuple) else (place, 0)
            return s._replace(read=at(s.read, (s.unit[e, c], s.worker[e, c]), value))
        return s._replace(**{name: at(getattr(s, name), place, value)})

    return change


def twice(s):
    """Commit 3 uses the unit of commit 2 again."""
    return s._replace(**{n: at(getattr(s, n), 3, getattr(s, n)[2]) for n in ("worker", "unit")})


# name -> (protocol, what is done to its schedule, the sentence)
SHAPES = {
    "float workers": (
        "ssp",
        lambda s: s._replace(worker=s.worker * 1.0),
        r"worker .* must be int32\[E, C\].*; got float",
    ),
    "flat weights": (
        "ssp",
        lambda s: s._replace(weight=s.weight[:, 0]),
        r"weight .* float\[E, C\] with E=18, C=1 .*\[18\]",
    ),
    "flat workers": (
        "ssp",
        lambda s: s._replace(worker=s.worker[:, 0]),
        r"worker .* one row a commit; got int32\[18\]",
    ),
    "versions of others": (
        "bsp",
        lambda s: s._replace(read=s.read[:, :1]),
        r"read .*T=6, W=3 .*; got int32\[6, 1\]",
    ),
    "times of fewer": (
        "bsp",
        lambda s: s._replace(time=s.time[:-1]),
        r"time .* float\[E\] with E=6.*; got float32\[5\]",
    ),
    "whole times": ("bsp", lambda s: s._replace(time=s.time.astype(int)), r"time .* float\[E\].*; got int"),
    "transposed units": ("bsp", lambda s: s._replace(finish=s.finish.T), r"finish .*T=6, W=3 .*; got float32\[3, 6\]"),
    "several horizons": ("bsp", lambda s: s._replace(horizon=s.time), r"horizon .* must be float\[\]"),
    "none": ("bsp", lambda s: tuple(s), "must make a gcjax.protocols.Schedule; this one made tuple"),
}
VALUES = {
    "a worker beyond W": (
        "ssp",
        field("worker", 4, 3),
        "workers must be 0, .*, 2, .*; commit 4, contribution 0 has worker 3",
    ),
    "a worker below -1": ("ssp", field("worker", 4, -2), "commit 4, contribution 0 has worker -2"),
    "a unit beyond T": (
        "bsp",
        field("unit", (2, 1), 6),
        "units must be among .*, 5; commit 2, contribution 1 has unit 6",
    ),
    "the end beyond T": ("local", field("unit", (2, 1), 5), "last unit .* among the 6 .*; commit 2, contribution 1"),
    "a version after its commit": (
        "bsp",
        field("version", (2, 0), 3),
        "made later; .* 0 to e; commit 2, contribution 0 has v",
    ),
    "a negative version": ("bsp", field("version", (2, 0), -1), "commit 2, contribution 0 has version -1"),
    "no work": ("bsp", field("work", (1, 2), 0), "1 units of work or more .*; commit 1, contribution 2 has work 0"),
    "two units in a single step": (
        "single steps",
        field("work", (1, 2), 2),
        r"one unit if the protocol says LocalWork.single_steps; commit 1, contribution 2 has work 2",
    ),
    "negative progress": ("coded", field("work", (1, 2), -1), "0 units of work or more .*; commit 1, contribution 2"),
    "progress beyond the load": (
        "coded",
        field("work", (1, 2), 2),
        "no worker can finish more .*; commit 1, contribution 2",
    ),
    "an endless weight": (
        "bsp",
        field("weight", (1, 2), np.inf),
        "weights must be finite .*; commit 1, contribution 2 has weight inf",
    ),
    "no number as weight": (
        "bsp",
        field("weight", (0, 0), np.nan),
        "weights must be finite .*; commit 0, .* has weight nan",
    ),
    "a negative weight": ("bsp", field("weight", (0, 1), -0.5), "at least 0; commit 0, contribution 1 has weight -0.5"),
    "weights of nine": ("bsp", field("weight", 3, 3.0), r"must add up to 1 at most, .*max_weight.*; commit 3 has 9\."),
    "a weight of nine": ("ssp", field("weight", 3, 9.0), r"must add up to 1 at most.*; commit 3 has 9\."),
    "a code's weights": (
        "coded",
        field("weight", (2, 1), 1.0),
        "at most 1 / 3 .*; commit 2, contribution 1 has weight 1",
    ),
    "commits too early": (
        "ssp",
        lambda s: s._replace(time=s.time * np.float32(0.1)),
        "not come before what it uses; commit 0",
    ),
    "rounds too early": (
        "bsp",
        lambda s: s._replace(time=s.time * np.float32(0.1)),
        "not come before what it uses; commit 0",
    ),
    "coded rounds too early": (
        "coded",
        lambda s: s._replace(time=s.time * np.float32(0.1)),
        "than have ended .*; commit 0",
    ),
    "decreasing times": (
        "ssp",
        lambda s: s._replace(time=s.time[::-1].copy()),
        "commits must be in order of time; commit",
    ),
    "no number as time": ("ssp", field("time", 2, np.nan), "at least 0 seconds, .*; commit 2 has nan"),
    "a negative time": ("ssp", field("time", 0, -1.0), "at least 0 seconds, .*; commit 0 has -1"),
    "after the horizon": ("bsp", lambda s: s._replace(horizon=s.time[0]), "must not happen after the horizon"),
    "work in what does not happen": (
        "bsp",
        field("time", -1, np.inf),
        r"has no contributions \(-1\); commit 5, contribution 0",
    ),
    "a unit used twice": (
        "ssp",
        twice,
        "a unit can be used once only; commit 3, contribution 0 has unit . of worker .",
    ),
    "a unit of two rounds": (
        "local",
        field("unit", (1, 1), 1),
        "once only; commit 1, contribution 1 has unit 1 of worker 1",
    ),
    "a start before 0": ("bsp", field("start", (0, 1), -1.0), "start must be at least 0 .*; unit 0 of worker 1 has -1"),
    "computing before the start": (
        "bsp",
        field("compute_start", (1, 1), 0.0),
        "start must not come after compute_start; unit 1 of",
    ),
    "the end before the start": (
        "bsp",
        field("compute_end", (1, 0), 0.0),
        "compute_start must not come after compute_end; unit 1",
    ),
    "an end of what never began": (
        "bsp",
        field("compute_start", (1, 0), np.inf),
        "compute_start must not come after compute_end; unit 1",
    ),
    "arrival before the end": (
        "bsp",
        field("finish", (3, 2), 0.0),
        "compute_end must not come after finish; unit 3 of worker 2",
    ),
    "sending before the end": (
        "bsp",
        field("send_start", (3, 2), 0.0),
        "compute_end must not come after send_start; unit 3",
    ),
    "arrival before sending": (
        "bsp",
        field("send_start", (3, 2), 1e6),
        "send_start must not come after finish; unit 3 of worker 2",
    ),
}
ALONE = {
    "no work",
    "weights of nine",
    "a weight of nine",
    "a code's weights",
    "a unit of two rounds",
    "the end beyond T",
}
"""What cannot be known without the protocol."""


@pytest.mark.slow("float workers")
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_types_are_checked_also_under_jit(name, good):
    which, corrupt, message = SHAPES[name]
    broken = GOOD[which].replace(schedule=lambda d, n: corrupt(good[which]))
    with pytest.raises(ValueError, match=message):
        broken(np.ones(SHAPE, np.float32))
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda d: broken(d), jax.ShapeDtypeStruct(SHAPE, jnp.float32))


@pytest.mark.parametrize("name", VALUES)
def test_values_are_checked_with_the_protocol_and_most_without(name, good):
    which, corrupt, message = VALUES[name]
    bad = corrupt(good[which])
    broken = GOOD[which].replace(schedule=lambda d, n: bad)
    with pytest.raises(ValueError, match=message):
        broken(np.ones(SHAPE, np.float32))
    batch = jax.tree.map(lambda *x: np.stack(x), good[which], bad)
    with pytest.raises(ValueError, match=message):
        check_structure(batch, GOOD[which])
    if name in ALONE:
        check_structure(bad)
        return
    with pytest.raises(ValueError):
        check_structure(bad)


def test_good_schedules_are_not_refused(good):
    for name, s in good.items():
        check_shapes(s, SHAPE)
        check_structure(s, GOOD[name])
        check_structure(s)


def test_rules_hold_behind_the_first_block(good):
    """Commits are looked at in blocks; a padded one among them."""
    size = 40_000
    d = np.ones((size, 1), np.float32)
    s = jax.tree.map(np.asarray, jax.jit(protocols.asp().schedule)(d, protocols.base.Network()))
    check_structure(s, protocols.asp())
    for name, value in (("worker", 1), ("version", size), ("weight", np.nan), ("unit", size - 2)):
        with pytest.raises(ValueError, match=f"commit {size - 1}, contribution 0"):
            check_structure(field(name, size - 1, value)(s), protocols.asp())
    padded = s._replace(
        **{n: np.c_[np.full(size, -1, x.dtype), x] for n, x in zip(s._fields[1:5], s[1:5], strict=True)}
    )
    check_structure(padded, protocols.asp())
    with pytest.raises(ValueError, match=f"commit {size - 1}, contribution 1 has version {size}"):
        check_structure(field("version", (size - 1, 1), size)(padded), protocols.asp())


@pytest.mark.slow(
    "async_local_sgd", "delay_adaptive", "eager_sgd majority", "halos servers", "k_sync", "staleness_aware"
)
@pytest.mark.parametrize("name", one_in(6, CASES))
def test_no_protocol_breaks_a_rule_in_32_bits(name):
    """With rounding errors, failures and messages."""
    for seed in range(4):
        links = random_links(seed) if seed % 2 else None
        d = random_durations(seed, table.shape_of(name), 0.1 * (seed >= 2)).astype(np.float32)
        s = schedule(name, d, links)
        check_structure(s, table.protocol(name))
        check_structure(s)


@pytest.mark.parametrize("steps", some([3, 32], [1, 31, 33, 50]))
def test_contributions_of_many_units(steps):
    """Each unit of them counts, the first and the last."""
    made, d = protocols.local_sgd(num_local_steps=steps), np.ones((2 * steps, 2), np.float32)
    s = jax.tree.map(np.asarray, jax.jit(made.schedule)(d, protocols.base.Network()))
    check_structure(s, made)
    with pytest.raises(ValueError, match=f"once only; commit 1, contribution 0 has unit {steps - 1} of worker 0"):
        check_structure(field("unit", (1, 0), steps - 1)(s), made)
    for unit in {0, steps // 2} - {steps - 1}:  # carried by the message behind the last one
        for seconds in (steps + 0.5, np.inf):
            with pytest.raises(
                ValueError, match=f"commit 0, contribution 1 has .* unit {unit} of worker 1 has arrived"
            ):
                check_structure(field("finish", (unit, 1), seconds)(s), made)
    mixed = field("work", (0, 1), 1)(s)
    check_structure(mixed, made)


def test_max_weight_is_said_by_those_who_want_more():
    heavy = protocols.Protocol(lambda d, n: protocols.bsp().schedule(d, n)._replace(weight=jnp.ones(SHAPE)))
    with pytest.raises(ValueError, match="commit 0 has 3"):
        heavy(np.ones(SHAPE, np.float32))
    heavy.replace(max_weight=3.0)(np.ones(SHAPE, np.float32))
    heavy.replace(max_weight=None)(np.ones(SHAPE, np.float32))
    protocols.asp(weight=5.0)(np.ones(SHAPE, np.float32))


def test_a_run_refuses_and_under_jit_check_does(good):
    task = tasks.linear_regression(num_chunks=3, num_examples=9, num_features=2)
    d, bad = np.ones(SHAPE, np.float32), VALUES["weights of nine"][1](good["bsp"])
    heavy = GOOD["bsp"].replace(schedule=lambda d, n: jax.tree.map(jnp.asarray, bad))
    arguments = {"optimizer": optax.sgd(0.1), "durations": d, "rng_key": jax.random.key(0)}
    with pytest.raises(ValueError, match="must add up to 1 at most.*commit 3 has 9"):
        engine.run(task, heavy, **arguments)
    flat = GOOD["bsp"].replace(schedule=lambda d, n: bad._replace(weight=jnp.ones(6)))
    with pytest.raises(ValueError, match=r"weight .* must be float\[E, C\]"):
        jax.eval_shape(lambda key: engine.run(task, flat, **{**arguments, "rng_key": key}), arguments["rng_key"])
    run = jax.jit(lambda key: engine.run(task, heavy, **{**arguments, "rng_key": key}))(arguments["rng_key"])
    with pytest.raises(ValueError, match="must add up to 1 at most.*commit 3 has 9"):
        engine.check(run, heavy)
    early = run._replace(schedule=VALUES["rounds too early"][1](good["bsp"]))
    with pytest.raises(ValueError, match="than have ended by then"):
        engine.check(early)


@pytest.mark.slow("<lambda>-shape3")
@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda d: protocols.coded(codes.uncoded(4))(d), (4, 7)),
        (lambda d: protocols.grouped(groups=[[0, 1], [2, 3]])(d), (4, 7)),
        (lambda d: protocols.sr_sgc(4, burst=1, window=2, max_slow=0)(d), (4, 7)),
        (lambda d: protocols.k_batch_sync(num_contributions=40)(d), (4, 7)),
    ],
)
def test_transposed_durations_are_said_to_look_so(call, shape):
    with pytest.raises(
        ValueError, match=r"Durations are \[T, W\]: these are 4 units of 7 workers.* pass them transposed"
    ):
        call(np.ones(shape, np.float32))
    with pytest.raises(ValueError, match=r"\.$") as error:
        call(np.ones((2, 2), np.float32))
    assert "transposed" not in str(error.value)
