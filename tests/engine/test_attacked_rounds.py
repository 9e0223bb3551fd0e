"""Runs in which some workers send wrong messages: against rounds in plain Python that count equal messages."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, compression, engine, protocols, tasks
from gcjax.engine import wrong_messages as wrong
from gcjax.engine.gradients import RoundInputs, chunk_batch
from tests import devices
from tests.parameters import some

KEY = jax.random.key(4)
ROUNDS, RATE = 4, 0.05
MAJORITY = codes.majority(6, num_wrong=1, num_stragglers=0)
SENDERS = {
    "one": wrong.wrong_senders(wrong.constant_message(), num_wrong=1),
    "three, reversed": wrong.wrong_senders(wrong.reversed_gradient(2.0), num_wrong=3),
    "two, the same": wrong.wrong_senders(wrong.constant_message(3.0), num_wrong=2, persistent=True),
    "all": wrong.wrong_senders(wrong.constant_message(1.0), num_wrong=6),
}


def task_of(code):
    num_chunks = code.assignment.num_chunks
    return tasks.linear_regression(num_chunks=num_chunks, num_examples=24, num_features=3, batch_size=4)


def trained(code, senders, durations=None, **options):
    if durations is None:
        durations = jnp.ones((ROUNDS * code.assignment.load, code.assignment.num_workers))
    stop = options.pop("stop", None)
    return engine.run(
        task_of(code),
        protocols.coded(code, stop=stop),
        optax.sgd(RATE),
        durations,
        rng_key=KEY,
        wrong_senders=senders,
        **options,
    )


def majority_of(messages):
    """What more than half of the messages are, to the last bit; zeros if there is nothing."""
    for one in messages:
        if 2 * sum(np.array_equal(one, other) for other in messages) > len(messages):
            return one
    return np.zeros_like(messages[0])


def by_definition(code, senders, combine, arrived=None):
    """The parameters after all rounds; `combine(messages of the group)` is what the server takes of each group."""
    task, (init_key, batch_key) = task_of(code), jax.random.split(KEY)
    x, num_workers, size = np.array(task.init(init_key)), code.assignment.num_workers, code.assignment.load
    gradient_of = jax.jit(
        lambda x, chunk, number: jax.grad(task.loss)(
            x, *chunk_batch(task, RoundInputs(task.data, batch_key, number), chunk)
        )
    )
    for round_number in range(ROUNDS):
        gradients = [
            np.array(gradient_of(jnp.asarray(x), jnp.int32(c), jnp.int32(round_number)))
            for c in range(code.assignment.num_chunks)
        ]
        is_wrong = np.asarray(senders.is_wrong_in_round(batch_key, jnp.int32(round_number), num_workers))
        total = np.zeros_like(x)
        for first in range(0, num_workers, size):
            right = sum(gradients[first : first + size])
            false = np.asarray(senders.attack(right[None]))[0]
            members = [w for w in range(first, first + size) if arrived is None or arrived[w]]
            total += combine([false if is_wrong[w] else right for w in members])
        x = x - RATE * total / code.assignment.num_chunks
    return x


@pytest.mark.slow("one")
@pytest.mark.parametrize("name", some(["one", "two, the same"], ["three, reversed", "all"]))
def test_the_server_takes_what_most_have_sent(x64, name):
    run = trained(MAJORITY, SENDERS[name])
    np.testing.assert_allclose(run.params, by_definition(MAJORITY, SENDERS[name], majority_of), rtol=1e-9)


@pytest.mark.slow
def test_as_many_as_a_group_bears_change_nothing(x64):
    right = trained(MAJORITY, None)
    np.testing.assert_allclose(trained(MAJORITY, SENDERS["one"]).params, right.params, rtol=1e-12)
    assert np.abs(trained(MAJORITY, SENDERS["all"]).params - right.params).max() > 0.01


FEW = {
    "two, the same": SENDERS["two, the same"],
    "two, infinite": wrong.wrong_senders(wrong.constant_message(float("inf")), num_wrong=2),
}


@pytest.mark.slow("two, infinite")
@pytest.mark.parametrize("name", FEW)
def test_wrong_messages_are_found_wherever_they_are(name, x64):
    """Seven workers, of which any two may be wrong; with three the parameters are others."""
    code = codes.error_correcting(7, num_wrong=2, num_stragglers=0)
    right = trained(code, None)
    np.testing.assert_allclose(trained(code, FEW[name]).params, right.params, rtol=1e-9)
    assert np.abs(trained(code, SENDERS["three, reversed"]).params - right.params).max() > 0.01


@pytest.mark.slow
def test_a_code_that_only_adds_up_takes_what_is_wrong(x64):
    """Fractional repetition: the first of each group, whatever it has sent; the loss is that of right messages."""
    code = codes.fractional_repetition(6, num_stragglers=2)
    run = trained(code, SENDERS["three, reversed"])
    expected = by_definition(code, SENDERS["three, reversed"], lambda messages: messages[0])
    np.testing.assert_allclose(run.params, expected, rtol=1e-9)
    np.testing.assert_allclose(run.info.loss[0], trained(code, None).info.loss[0], rtol=1e-9)


@pytest.mark.slow
def test_stragglers_besides(x64):
    """Groups of four: workers 1 and 6 are too late in every round, and have no vote."""
    code = codes.majority(8, num_wrong=1, num_stragglers=1)
    durations = jnp.ones((ROUNDS * 4, 8)).at[:, jnp.array([1, 6], jnp.int32)].set(5.0)
    arrived = np.array([1, 0, 1, 1, 1, 1, 0, 1], bool)
    for senders in (SENDERS["one"], SENDERS["three, reversed"]):
        run = trained(code, senders, durations)
        np.testing.assert_allclose(run.params, by_definition(code, senders, majority_of, arrived), rtol=1e-9)


@pytest.mark.slow
def test_infinities_of_others_are_not_added():
    senders = wrong.wrong_senders(wrong.constant_message(float("inf")), num_wrong=1)
    np.testing.assert_allclose(trained(MAJORITY, senders).params, trained(MAJORITY, None).params, rtol=1e-5)


@pytest.mark.slow
def test_several_messages_of_blocks_are_all_wrong(x64):
    """By linearity, with all messages times -2."""
    code = codes.partial(codes.assignments.cyclic(4, load=2), num_blocks=2, rows="harmonic")
    senders = wrong.wrong_senders(wrong.reversed_gradient(2.0), num_wrong=4)
    run, right = trained(code, senders, num_commits=1), trained(code, None, num_commits=1)
    start = task_of(code).init(jax.random.split(KEY)[0])
    np.testing.assert_allclose(run.params - start, -2 * (right.params - start), rtol=1e-9)


@pytest.mark.slow
def test_meshes_and_replays_agree(x64):
    whole = trained(MAJORITY, SENDERS["three, reversed"])
    two_devices = devices.mesh(2)
    np.testing.assert_allclose(
        trained(MAJORITY, SENDERS["three, reversed"], mesh=two_devices).params, whole.params, rtol=1e-9
    )
    again = engine.replay(
        task_of(MAJORITY), protocols.coded(MAJORITY), optax.sgd(RATE), whole.schedule, rng_key=KEY,
        wrong_senders=SENDERS["three, reversed"],
    )  # fmt: skip
    np.testing.assert_array_equal(again.params, whole.params)


def test_who_is_wrong():
    senders = wrong.wrong_senders(wrong.constant_message(), num_wrong=2)
    rounds = np.array([senders.is_wrong_in_round(KEY, jnp.int32(r), 5) for r in range(40)])
    assert (rounds.sum(axis=1) == 2).all() and rounds.any(axis=0).all() and not (rounds == rounds[:1]).all()
    same = senders._replace(persistent=True)
    assert all(
        (same.is_wrong_in_round(KEY, jnp.int32(r), 5) == same.is_wrong_in_round(KEY, jnp.int32(0), 5)).all()
        for r in range(5)
    )
    assert senders == wrong.wrong_senders(wrong.constant_message(), num_wrong=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wrong.wrong_senders(3, num_wrong=1), "attack must be a function"),
        (
            lambda: wrong.wrong_senders(wrong.constant_message(), num_wrong=-1),
            "num_wrong must be a whole number at least 0",
        ),
        (
            lambda: trained(MAJORITY, "one"),
            r"wrong_senders must be gcjax.engine.wrong_messages.wrong_senders\(...\); got 'one'",
        ),
        (
            lambda: trained(MAJORITY, wrong.wrong_senders(wrong.constant_message(), num_wrong=7)),
            "at most the number of workers, 6; got 7",
        ),
        (
            lambda: trained(MAJORITY, SENDERS["one"], compression=compression.sign()),
            "wrong messages are not compressed",
        ),
        (
            lambda: engine.run(
                task_of(MAJORITY),
                protocols.bsp(),
                optax.sgd(0.1),
                jnp.ones((4, 6)),
                rng_key=KEY,
                wrong_senders=SENDERS["one"],
            ),
            "this protocol has no code",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
