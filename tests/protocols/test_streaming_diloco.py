"""Streaming DiLoCo: which parts of the parameters are in which fragment, how large messages are, and who waits."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import analysis, protocols
from gcjax.protocols import check
from gcjax.protocols.fragments import by_fragments, fragments_of
from gcjax.stragglers.network import Network
from tests.protocols import table
from tests.protocols.event_queue import TIMES, Links
from tests.protocols.streaming_reference import streaming

W = 3
LAYERS = {f"layer {i}": {"w": jnp.zeros((i + 1, 2)), "b": jnp.zeros(2)} for i in range(5)}


def labels(number, pattern, params=LAYERS):
    return fragments_of(number, pattern, 0.5).labels(params)


def of_layers(number, pattern):
    found = labels(number, pattern)
    assert all(len({int(x) for x in layer.values()}) == 1 for layer in found.values())
    return [int(layer["w"]) for layer in found.values()]


def test_layers_are_dealt_out_in_their_order():
    assert of_layers(2, "strided") == [0, 1, 0, 1, 0]
    assert of_layers(3, "strided") == [0, 1, 2, 0, 1]
    assert of_layers(2, "sequential") == [0, 0, 0, 1, 1]
    assert of_layers(5, "sequential") == of_layers(5, "strided") == [0, 1, 2, 3, 4]


def test_where_layers_are_too_few_arrays_are_dealt_out_and_then_numbers():
    arrays = [int(x) for layer in labels(6, "strided").values() for x in (layer["b"], layer["w"])]
    assert arrays == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    two = {"a": jnp.zeros((2, 2)), "b": jnp.zeros(3)}
    found = labels(3, "strided", two)
    np.testing.assert_array_equal(found["a"], [[0, 1], [2, 0]])
    np.testing.assert_array_equal(found["b"], [1, 2, 0])
    np.testing.assert_array_equal(labels(3, "sequential", two)["a"], [[0, 0], [0, 1]])
    np.testing.assert_array_equal(labels(3, "sequential", two)["b"], [1, 2, 2])


@pytest.mark.parametrize("pattern", ["sequential", "strided"])
def test_every_fragment_has_some_and_shares_add_up_to_1(pattern):
    for number in range(1, 40):
        shares = fragments_of(number, pattern, 0.5).shares(LAYERS)
        assert shares.shape == (number,) and (shares > 0).all()
        np.testing.assert_allclose(shares.sum(), 1)


def test_shares_are_those_of_bytes():
    params = {"a": jnp.zeros(6, jnp.float32), "b": jnp.zeros((2, 3), jnp.float16)}
    fragments = fragments_of(2, {"a": 0, "b": np.array([[1], [0]])}, 0.5)
    np.testing.assert_allclose(fragments.shares(params), [(24 + 6) / 36, 6 / 36])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"a": 0}, "fragments must have a label for each array of the parameters"),
        ({"a": 0, "b": 2}, "labels of fragments must be integers from 0 to 1; got array"),
        ({"a": 0, "b": -1}, "labels of fragments must be integers from 0 to 1"),
        ({"a": 0, "b": 0.5}, "labels of fragments must be integers"),
        ({"a": 0, "b": np.array([0, 1])}, r"labels of an array of shape \(3,\) must broadcast to it; got shape \(2,\)"),
        ({"a": 0, "b": np.zeros((1, 3), int)}, r"must broadcast to it; got shape \(1, 3\)"),
        ({"a": 1, "b": 1}, r"each of 2 fragments must have some of the parameters; \[0\] have none"),
        (lambda params: {"a": 0, "b": 0}, r"\[1\] have none"),
    ],
)
def test_labels_that_do_not_belong_to_the_parameters(given, match):
    params = {"a": jnp.zeros(2), "b": jnp.zeros(3)}
    with pytest.raises(ValueError, match=match):
        fragments_of(2, given, 0.5).labels(params)


def test_a_function_deals_out_shapes_inside_jit_as_outside():
    def by_size(shapes):
        assert all(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(shapes))
        return jax.tree.map(lambda x: jnp.arange(x.shape[0]) % 2 if x.dtype == jnp.float32 else 1, shapes)

    params = {"a": jnp.ones(3), "b": jnp.ones(2, jnp.float16)}
    fragments = fragments_of(2, by_size, 0.5)
    first = jax.jit(fragments.masked)(jnp.int32(0), params)
    np.testing.assert_array_equal(first["a"], [1, 0, 1])
    np.testing.assert_array_equal(first["b"], [0, 0])


def test_more_fragments_than_numbers_are_refused():
    with pytest.raises(ValueError, match=r"each of 4 fragments must have some .*; \[3\] have none"):
        fragments_of(4, "strided", 0.5).labels(jnp.zeros(3))


def test_what_is_new_in_a_version_is_merged_and_nothing_else(x64):
    """Against a loop over the commits between two versions."""
    fragments = fragments_of(3, "strided", 0.25)
    own, new = jnp.arange(6.0), 10 * jnp.ones(6)
    merge = jax.jit(fragments.merged)
    for before in range(-1, 8):
        for version in range(max(before, 0), 9):
            changed = {e % 3 for e in range(max(before, 0), version)}
            wanted = [0.25 * x + 7.5 if i % 3 in changed else x for i, x in enumerate(np.arange(6.0))]
            np.testing.assert_allclose(merge(own, new, jnp.int32(before), jnp.int32(version)), wanted)


@pytest.mark.parametrize("share", [0.5, np.float32(0.5), np.float64(0.5), jnp.float32(0.5)], ids=repr)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_a_share_of_any_type_leaves_parameters_their_type(share, dtype, x64):
    made = protocols.streaming_diloco(num_local_steps=2, num_fragments=2, local_share=share)
    merged = made.local.fragments.merged(jnp.ones(2, dtype), jnp.zeros(2, dtype), jnp.int32(0), jnp.int32(1))
    assert merged.dtype == dtype and merged.tolist() == [0.5, 1.0] and hash(made) == hash(made)


@pytest.mark.promotes  # optax.adam does
def test_an_optimizer_by_fragments_is_one_for_each(x64):
    """Steps that are counted, and a norm that is clipped, are those of the fragment."""
    own = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
    tree = {"a": jnp.arange(3.0), "b": {"c": jnp.ones((2, 2))}}
    whole = by_fragments(own, fragments_of(2, {"a": np.array([0, 1, 1]), "b": {"c": 0}}, 0.5))
    state, update_whole, update_part = whole.init(tree), jax.jit(whole.update), jax.jit(own.update)
    pick = [lambda t: [t["a"][:1], t["b"]["c"]], lambda t: [t["a"][1:]]]
    states, parts, found = [own.init(p(tree)) for p in pick], [p(tree) for p in pick], tree
    for step in range(7):
        gradient = jax.tree.map(lambda x, step=step: jnp.cos(x + step) * 3, found)
        updates, state = update_whole(gradient, state, found)
        found = optax.apply_updates(found, updates)
        n = step % 2
        changes, states[n] = update_part(pick[n](gradient), states[n], parts[n])
        parts[n] = optax.apply_updates(parts[n], changes)
        for p, part in zip(pick, parts, strict=True):
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), p(found), part)


@functools.cache
def compiled(num_steps, num_fragments, overlap):
    made = protocols.streaming_diloco(num_local_steps=num_steps, num_fragments=num_fragments, overlap_steps=overlap)
    return made, jax.jit(made.schedule, compiler_options=table.quick())


@pytest.mark.promotes  # states are of 32 bits
@pytest.mark.parametrize("sizes", [(6, 3, 5), (4, 2, 2)])
def test_messages_have_the_size_of_their_fragments(sizes, x64):
    """With links so slow that messages of one worker queue, against the reference; all promises are kept."""
    made, schedule = compiled(*sizes)
    shares = [0.5, 0.25, 0.25] if sizes[1] == 3 else [0.75, 0.25]
    for seed in range(4):
        durations = table.tied_durations(seed, (14, W))
        links = Links([0.25, 0.5, 1.0], [3.0, 8.0, 0.5], [6.0, 1.0, 0.25])
        network = Network(*map(np.asarray, links[:3]), fragments=np.asarray(shares))
        found = jax.tree.map(np.asarray, schedule(durations, network))
        reference = streaming(*sizes, durations, links, shares)
        times = found.time[np.isfinite(found.time)]
        np.testing.assert_allclose(times, [time for time, _ in reference.commits])
        assert len(times) >= 3
        for name in TIMES:
            np.testing.assert_allclose(getattr(found, name), reference.times[name], err_msg=name)
        kept = check(found, made.specification(W))
        assert kept, kept


def test_nobody_waits_for_messages_that_take_no_longer_than_the_overlap():
    """Equal steps of a second, three of overlap: fragments that go and come in three seconds in all, and in four."""
    _, schedule = compiled(8, 4, 3)
    durations = jnp.ones((24, W))
    for seconds, wait in ((3.0, 0.0), (4.0, 1.0)):
        found = schedule(durations, Network(*map(jnp.asarray, (0.0, 2 * seconds, 2 * seconds))))
        waited = found.compute_start[1:] - found.compute_end[:-1]
        merges = (np.arange(1, 24) >= 5) & (np.arange(1, 24) % 2 == 1)  # 2 + 3, 4 + 3, ...
        np.testing.assert_allclose(waited[merges][0], wait, atol=1e-5)
        np.testing.assert_allclose(waited[~merges], 0, atol=1e-5)
        if not wait:
            np.testing.assert_allclose(waited, 0, atol=1e-5)


def test_p_messages_of_fragments_are_one_of_all_parameters():
    """After a whole number of turns as much is sent as under DiLoCo, and each message takes 1/P of the link's time."""
    durations, network = jnp.ones((34, W)), Network(upload=4.0, download=4.0)
    spent = {}
    for name, made in {
        "all at once": protocols.diloco(num_local_steps=8),
        "streamed": protocols.streaming_diloco(num_local_steps=8, num_fragments=4, overlap_steps=7),
    }.items():
        found = made(durations, network)
        number = made.local.fragments.num_fragments if made.local.fragments else 1
        end = np.array([float(found.horizon)])
        spent[name] = analysis.costs(found, np.asarray(durations), end, num_fragments=number)
        busy = np.where(np.isfinite(found.send_start), found.finish - found.send_start, 0)
        np.testing.assert_allclose(busy.max(), 4 / number)
    assert float(spent["all at once"].messages[0]) == float(spent["streamed"].messages[0]) == 4
    assert spent["streamed"].computing[0] > 0.85 > spent["all at once"].computing[0]


@pytest.mark.parametrize("server", [0.0, 0.5])
@pytest.mark.parametrize("latency", [[0.0, math.inf], [math.inf, math.inf]], ids=["of one", "of all"])
def test_messages_that_never_arrive_are_in_no_commit(latency, server):
    protocol = protocols.streaming_diloco(num_local_steps=2, num_fragments=2, overlap_steps=1)
    schedule = protocol(jnp.ones((8, 2)), Network(latency=jnp.array(latency), server=server))
    assert math.isinf(schedule.horizon) and not jnp.isfinite(schedule.time).any()
    assert not any(jnp.isnan(times).any() for times in schedule)


def test_a_server_that_takes_time_delays_each_message():
    found = protocols.streaming_diloco(num_local_steps=2, num_fragments=1, overlap_steps=1)(
        jnp.ones((6, W)), Network(service=0.5)
    )
    np.testing.assert_allclose(found.time[:2], [2.5, 4.5])


@pytest.mark.slow("1")
@pytest.mark.promotes
@pytest.mark.parametrize("overlap", [1, 3])
def test_a_worker_that_does_not_wait_for_what_it_merges_is_caught(overlap, x64):
    """A push merged a step later than is promised; a commit without one of somebody's steps; an older version."""
    made, schedule = compiled(4, 2, overlap)
    durations = np.ones((14, W))
    durations[:, 0] = 3.0
    found = jax.tree.map(np.asarray, schedule(durations, Network(*[np.zeros(W)] * 3, fragments=np.full(2, 0.5))))
    promised = made.specification(W)
    assert check(found, promised) and np.isfinite(found.time).sum() > 3
    sooner = protocols.streaming_diloco(num_local_steps=4, num_fragments=2, overlap_steps=overlap - 1)
    assert check(found, sooner.specification(W)).violated == "guarantee"
    for e in range(int(np.isfinite(found.time).sum())):
        work = found.work.copy()
        work[e, np.flatnonzero(found.worker[e] >= 0)[0]] -= 1
        assert not check(found._replace(work=work), promised)
    read = np.where(found.read > 0, found.read - 1, found.read)
    assert check(found._replace(read=read), promised).violated == "guarantee"
