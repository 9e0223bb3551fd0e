"""Steps in which some workers send wrong messages: the gradient of the plain mean for every set that is tolerated."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, engine
from gcjax.engine import wrong_messages
from tests.devices import mesh
from tests.engine.test_coded_step import assert_close, data, each, params, uncoded

KEY = jax.random.key(5)
CODE = codes.majority(6, num_wrong=1, num_stragglers=0)


def chunk_gradients(chunks):
    """float[6, d]: the gradient of each chunk."""
    gradients = [uncoded(params(), jax.tree.map(lambda x, i=i: x[i : i + 1], chunks))[1] for i in range(6)]
    return np.array([jax.flatten_util.ravel_pytree(gradient)[0] for gradient in gradients])


def by_definition(flat, arrived, wrong, attack):
    """The mean gradient, who decides and who is outvoted, by counting equal messages in plain Python."""
    total, decided, outvoted = np.zeros(flat.shape[1]), [], np.zeros(6, bool)
    for group in (range(3), range(3, 6)):
        right = flat[list(group)].sum(axis=0)
        messages = {w: np.asarray(attack(right)) if wrong[w] else right for w in group if arrived[w]}
        most = max((sum(np.array_equal(a, b) for b in messages.values()) for a in messages.values()), default=0)
        decided.append(len(messages) >= 3 and 2 * most > len(messages))
        if decided[-1]:
            winner = next(a for a in messages.values() if sum(np.array_equal(a, b) for b in messages.values()) == most)
            total += winner / 6
            for w, message in messages.items():
                outvoted[w] = not np.array_equal(message, winner)
    return total, decided, outvoted


def test_every_set_of_wrong_workers(x64):
    """Up to one in each group the gradient is exact; with more, the step does what votes say, and no more."""
    on, attack = mesh(4), wrong_messages.constant_message()
    chunks = data(6)
    step = engine.voting_value_and_grad(each, CODE, on, attack=attack)
    batch = engine.shard_chunks(chunks, CODE, on)
    expected, flat = uncoded(params(), chunks), chunk_gradients(chunks)
    for wrong in itertools.product((False, True), repeat=6):
        value, gradient, info = step(params(), batch, CODE.assignment.loads, is_wrong=np.array(wrong))
        total, decided, outvoted = by_definition(flat, [True] * 6, wrong, attack)
        np.testing.assert_allclose(jax.flatten_util.ravel_pytree(gradient)[0], total, rtol=1e-9, atol=1e-9)
        assert info.decided.tolist() == decided and info.outvoted.tolist() == outvoted.tolist()
        if sum(wrong[:3]) <= 1 and sum(wrong[3:]) <= 1:
            assert_close((value, gradient), expected)
            assert info.outvoted.tolist() == list(wrong) and all(decided)


def test_workers_that_share_a_device_round_alike():
    """Entries of a product with an axis of workers would not, in float32, with three workers and four examples."""
    on, rng = mesh(2), np.random.default_rng(0)
    chunks = rng.normal(size=(6, 4, 17)).astype(np.float32), rng.normal(size=(6, 4)).astype(np.float32)
    weights = jnp.asarray(rng.normal(size=17), jnp.float32)

    def loss(weights, chunk):
        inputs, targets = chunk
        return (jnp.tanh(inputs @ weights) - targets) ** 2

    step = engine.voting_value_and_grad(loss, CODE, on)
    info = step(weights, engine.shard_chunks(chunks, CODE, on), CODE.assignment.loads)[2]
    assert info.decided.all() and not info.outvoted.any()


@pytest.mark.slow("1")
@pytest.mark.parametrize("devices", [1, 2])
def test_a_group_with_too_few_is_left_out(x64, devices):
    on, attack = mesh(devices), wrong_messages.reversed_gradient()
    chunks = data(6)
    step = engine.voting_value_and_grad(each, CODE, on, attack=attack)
    batch = engine.shard_chunks(chunks, CODE, on)
    arrived, wrong = np.array([1, 1, 1, 1, 0, 1], bool), np.array([0, 1, 0, 0, 1, 1], bool)
    _, gradient, info = step(params(), batch, arrived, is_wrong=wrong)
    total, decided, outvoted = by_definition(chunk_gradients(chunks), arrived, wrong, attack)
    np.testing.assert_allclose(jax.flatten_util.ravel_pytree(gradient)[0], total, rtol=1e-9, atol=1e-9)
    assert info.decided.tolist() == decided == [True, False]
    assert info.outvoted.tolist() == outvoted.tolist() == [False, True, False, False, False, False]


def test_stragglers_besides_and_not_a_number(x64):
    """Groups of four: one is missing, one sends NaN in one place; and no attack, when nobody is wrong."""
    code, on = codes.majority(8, num_wrong=1, num_stragglers=1), mesh(2)
    chunks = data(8)
    batch = engine.shard_chunks(chunks, code, on)
    arrived, wrong = np.array([0, 1, 1, 1, 1, 1, 1, 1], bool), np.array([0, 0, 0, 1, 0, 1, 0, 0], bool)
    step = engine.voting_value_and_grad(each, code, on, attack=lambda messages: messages.at[:, -1].set(jnp.nan))
    _, gradient, info = step(params(), batch, arrived, is_wrong=wrong)
    assert_close(gradient, uncoded(params(), chunks)[1])
    assert info.decided.all() and info.outvoted.tolist() == wrong.tolist()
    _, gradient, info = engine.voting_value_and_grad(each, code, on)(params(), batch, arrived)
    assert_close(gradient, uncoded(params(), chunks)[1])
    assert not info.outvoted.any()


def test_a_group_that_agrees_on_not_a_number_is_decided(x64):
    code, on = codes.majority(6, num_wrong=1, num_stragglers=0), mesh(2)
    chunks = data(6)
    chunks = jax.tree.map(lambda x: jnp.asarray(x).at[0].set(jnp.nan), chunks)
    step = engine.voting_value_and_grad(each, code, on)
    value, gradient, info = step(params(), engine.shard_chunks(chunks, code, on), np.ones(6, bool))
    assert info.decided.all() and not info.outvoted.any()
    assert np.isnan(value) and any(np.isnan(x).any() for x in jax.tree.leaves(gradient))


def test_who_has_not_arrived_has_no_vote_and_without_a_majority_nothing_is_decided(x64):
    code, on = codes.majority(4, num_wrong=1, num_stragglers=1), mesh(1)
    chunks = data(4)
    batch = engine.shard_chunks(chunks, code, on)
    step = engine.voting_value_and_grad(each, code, on, attack=wrong_messages.constant_message())
    arrived, wrong = np.array([1, 0, 1, 1], bool), np.array([1, 1, 0, 0], bool)
    _, gradient, info = step(params(), batch, arrived, is_wrong=wrong)
    assert_close(gradient, uncoded(params(), chunks)[1])
    assert info.outvoted.tolist() == [True, False, False, False]
    step = engine.voting_value_and_grad(
        each, code, on, attack=lambda messages: messages + jnp.arange(1.0, 5.0)[:, None]
    )
    _, gradient, info = step(params(), batch, np.ones(4, bool), is_wrong=wrong)
    assert not info.decided.any() and not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))


def who_is_wrong(*, num_rounds, num_workers, **options):
    """bool[num_rounds, W]: of each round."""
    senders = wrong_messages.wrong_senders(**options)
    return np.stack([senders.is_wrong_in_round(KEY, number, num_workers) for number in range(num_rounds)])


def test_training_does_not_notice_wrong_workers():
    """Ten steps of gradient descent have the same bits with and without attacks."""
    on, chunks = mesh(2), data(6)
    batch = engine.shard_chunks(chunks, CODE, on)
    wrong = who_is_wrong(num_rounds=10, num_workers=6, num_wrong=1)
    step = engine.voting_value_and_grad(each, CODE, on, attack=wrong_messages.reversed_gradient())
    ends = []
    for rounds in (np.zeros((10, 6), bool), wrong):
        p = params()
        for is_wrong in rounds:
            _, gradient, _ = step(p, batch, CODE.assignment.loads, is_wrong=is_wrong)
            p = jax.tree.map(lambda x, g: x - 0.01 * g, p, gradient)
        ends.append(p)
    jax.tree.map(np.testing.assert_array_equal, *ends)


def test_who_is_wrong():
    rounds = who_is_wrong(num_rounds=600, num_workers=5, num_wrong=2)
    assert rounds.shape == (600, 5) and rounds.dtype == bool and (rounds.sum(axis=1) == 2).all()
    assert np.abs(rounds.mean(axis=0) - 0.4).max() < 0.1
    same = who_is_wrong(num_rounds=20, num_workers=5, num_wrong=2, persistent=True)
    assert same.shape == (20, 5) and (same == same[:1]).all()


def test_bad_input():
    on = mesh(2)
    batch = engine.shard_chunks(data(6), CODE, on)
    step = engine.voting_value_and_grad(each, CODE, on)
    with pytest.raises(ValueError, match="is_wrong needs an attack"):
        step(params(), batch, CODE.assignment.loads, is_wrong=np.zeros(6, bool))
    step = engine.voting_value_and_grad(each, CODE, on, attack=wrong_messages.constant_message())
    with pytest.raises(ValueError, match=r"is_wrong must be bool\[6\]; got bool\[5\]"):
        step(params(), batch, CODE.assignment.loads, is_wrong=np.zeros(5, bool))
    for code in (codes.cyclic_repetition(6, num_stragglers=2, rng_key=KEY), codes.uncoded(4, load=2), None):
        with pytest.raises(ValueError, match="groups that hold the same chunks"):
            engine.voting_value_and_grad(each, code, on)
    with pytest.raises(ValueError, match="num_wrong must be a whole number between 0 and 5; got 6"):
        who_is_wrong(num_rounds=2, num_workers=5, num_wrong=6)
    with pytest.raises(ValueError, match="scale must be above 0"):
        wrong_messages.reversed_gradient(0.0)
    with pytest.raises(ValueError, match="a load that divides the workers"):
        codes.majority(8, num_wrong=1, num_stragglers=0)


def test_one_device_along_the_workers_and_two_along_the_model(x64):
    on = mesh(1, 2)
    chunks = data(6)
    step = engine.voting_value_and_grad(each, CODE, on)
    value, gradient, info = step(params(), engine.shard_chunks(chunks, CODE, on), CODE.assignment.loads)
    assert_close((value, gradient), uncoded(params(), chunks))
    assert info.decided.all() and not info.outvoted.any()
