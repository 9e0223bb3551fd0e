"""CodedReduce: messages up a tree, against a plain simulation; what the engine makes of it; what it promises."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, specifications, stragglers, tasks
from tests.parameters import some
from tests.protocols import rounds_reference as loops
from tests.protocols import table

KEY = jax.random.key(3)
# n, L, how many below a node are needed.
TREES = {"2 of 3": (3, 2, 2), "1 of 2": (2, 3, 1), "all of 3": (3, 2, 3)}


# Two workers below each node, of which one is needed: six workers.
PAIRS = protocols.coded_reduce(codes.fractional_repetition(2, num_stragglers=1), num_layers=2)


def protocol(name):
    num_children, num_layers, num_needed = TREES[name]
    code = codes.cyclic_repetition(num_children, num_stragglers=num_children - num_needed, rng_key=KEY)
    return protocols.coded_reduce(code, num_layers=num_layers)


def network_of(links, dtype=np.float64):
    return stragglers.Network(*(np.asarray(x, dtype) for x in links[:3]))


@pytest.mark.parametrize("seed", some([0, 1], range(2, 8)))
@pytest.mark.parametrize("name", TREES)
def test_rounds_are_those_of_a_plain_simulation(name, seed, x64):
    own, (num_children, num_layers, num_needed) = protocol(name), TREES[name]
    load, num_workers = own.round_units, own.code.assignment.num_workers
    make = table.tied_durations if seed % 2 else table.random_durations
    durations = make(seed, (4 * load, num_workers))
    links = table.random_links(seed, num_workers) if seed else table.no_links(num_workers)
    found = own(jnp.asarray(durations), network_of(links))
    expected = loops.tree(num_children, num_layers, num_needed, load, durations, links)
    commits, _ = table.commits_of(jax.tree.map(np.asarray, found))
    np.testing.assert_allclose([time for time, _ in commits], [time for time, _ in expected.commits], rtol=1e-12)
    assert [rows for _, rows in commits] == [rows for _, rows in expected.commits]


def test_messages_of_all_parts_of_the_tree_go_at_once(x64):
    """If all are ready at once, each layer takes n - s messages; below one server it would be W - s."""
    durations = jnp.full((4, 12), 1e-9)
    network = stragglers.Network(upload=1.0)
    np.testing.assert_allclose(protocol("2 of 3")(durations, network).time, [4.0], rtol=1e-6)
    star = protocols.coded_reduce(codes.cyclic_repetition(12, num_stragglers=1, rng_key=KEY), num_layers=1)
    np.testing.assert_allclose(star(durations[:2], network).time, [11.0], rtol=1e-6)


def test_a_message_that_is_late_for_its_node_is_in_no_commit():
    durations = jnp.ones((4, 12)).at[:, 5].set(3.0)  # worker 5 is below worker 0, as are 3 and 4
    schedule = protocol("2 of 3")(durations)
    np.testing.assert_array_equal(schedule.work[0], [4, 4, 4, 4, 4, 0, 4, 4, 4, 4, 4, 4])
    assert np.isinf(schedule.send_start[:, 5]).all() and float(schedule.time[0]) == 4.0


@pytest.mark.slow
def test_a_run_is_the_uncoded_run(x64):
    task = tasks.linear_regression(num_chunks=4)
    durations = stragglers.sample_durations(stragglers.exponential(mean=1.0), KEY, 6, 6)
    run = engine.run(task, PAIRS, optax.sgd(0.1), durations, rng_key=KEY)
    plain = engine.run(task, protocols.coded(codes.uncoded(4)), optax.sgd(0.1), jnp.ones((3, 4)), rng_key=KEY)
    np.testing.assert_allclose(run.params, plain.params, rtol=1e-8)
    assert (run.info.residual < 1e-9).all()


@pytest.mark.slow
def test_what_it_promises_is_checked():
    """Without the messages below it, a node's message does not help."""
    network = network_of(table.random_links(1, 6), np.float32)
    schedule = PAIRS(jnp.asarray(table.random_durations(1, (8, 6)), jnp.float32), network)
    promise = PAIRS.specification(6)
    assert protocols.check(schedule, promise)
    work = np.array(schedule.work)
    work[1, 2:] = 0  # what is below workers 0 and 1
    assert not protocols.check(schedule._replace(work=work), promise)


@pytest.mark.slow("3-2-1")
@pytest.mark.parametrize(("num_children", "num_layers", "num_stragglers"), [(2, 2, 1), (3, 1, 1), (2, 2, 0), (3, 2, 1)])
def test_the_specification_asks_each_node_for_enough(num_children, num_layers, num_stragglers):
    """What may be missing by default is what the code can do without."""
    code = codes.cyclic_repetition(num_children, num_stragglers=num_stragglers, rng_key=KEY)
    tree = codes.tree_code(code, num_layers=num_layers)
    num_workers = tree.assignment.num_workers
    default = specifications.decodable_rounds._decodable_up_a_tree(num_workers, num_layers, num_stragglers)
    masks = np.random.default_rng(0).random((200, num_workers)) < 0.8
    residuals = jax.jit(jax.vmap(tree.plan))(np.where(masks, tree.assignment.load, 0).astype(np.int32)).residual
    np.testing.assert_array_equal(jax.vmap(default.is_decodable)(masks.astype(np.int32)), residuals < 1e-2)


def test_bad_input():
    with pytest.raises(ValueError, match="a round takes 4 units"):
        protocol("2 of 3")(jnp.ones((3, 12)))
    with pytest.raises(ValueError, match="those of a regular tree of 2 layers"):
        specifications.coded_reduce(7, num_layers=2)
