"""CodedReduce: the messages of a coded round go up a tree (Reisizadeh, Prakash, Pedarsani, Avestimehr 2019).

arXiv 1902.01981; the code is `gcjax.codes.tree_code`. Letters: n workers below each node, K chunks of a worker, W
workers, T units sampled per worker.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import specifications
from gcjax.codes.base import GradientCode
from gcjax.codes.tree_code import Tree, code_completion, tree_code
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol
from gcjax.protocols.coded import check_durations, decodable_progress
from gcjax.protocols.not_served import not_served
from gcjax.protocols.schedule import Schedule, record
from gcjax.protocols.simulation.stopped_rounds import begin_times, read_by_unit, timeline_of_rounds, units_of_rounds
from gcjax.stragglers.network import Network

_not_served = not_served(
    "coded_reduce cannot be served: its workers send to each other, up a tree, and a server hears those below it "
    "only. Use coded(tree_code(...)), in which all send to the server."
)


@comparable
def coded_reduce(code: GradientCode, *, num_layers: int) -> Protocol:
    """Rounds of a code at each node of a tree: nobody waits for more than those below it, and only for enough of them.

    Everybody receives the parameters and computes its K chunks. Who has done so, and has what it needs from below to
    decode, sends one message of d numbers upwards. A node takes the messages of those below it one after the other, in
    the order in which they are ready, each in the `upload` seconds of its sender, besides the latency; so communication
    goes on in all parts of the tree at once. What has come in when a node sends is in its message. The round ends when
    the server can decode; then everybody is cut off, and messages under way are dropped. E = T // K, C = W, and
    `work` is K for those whose message was in time for the node above.

    From the paper: the tree, the code at each node, and that a node takes messages one after the other. Ours, where it
    is silent: parameters come to everybody from the server, as in other protocols, and not down the tree. What is
    sent passes no link that all share (`Network.server`), and no server that takes time for a message. Compression
    and wrong senders change what a worker adds itself, and not the sum that it passes on.

    Args:
      code: of each node, for the n workers below it; see `gcjax.codes.tree_code`.
      num_layers: of the tree; W = n + n^2 + ... + n^layers.

    Raises:
      ValueError: if the code is not one for a tree; when called, if fewer than K units are sampled.
    """
    joint_code = tree_code(code, num_layers=num_layers)
    tree, load = Tree(code.assignment.num_workers, num_layers), joint_code.assignment.load

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of rounds of K = `load` units of every worker; all times of a round count from its begin.

        The arrays of `messages` (see `_MessageTimes`) have a first axis [num_rounds]; column w of a commit is worker w.
        """
        check_durations(durations, tree.num_workers, load)
        units = units_of_rounds(durations, load)
        receive_seconds = network.arrivals_at_workers(jnp.zeros(tree.num_workers, units.dtype))
        finish = receive_seconds[None, None] + jnp.cumsum(units, axis=1)  # [num_rounds, K, W]
        messages = jax.vmap(lambda compute_end: _message_times(tree, code, compute_end, network))(finish[:, -1])
        end_time = jnp.cumsum(messages.decode_time)
        is_done = (finish <= messages.decode_time[:, None, None]) & jnp.isfinite(finish)
        timeline = timeline_of_rounds(
            finish, has_unit=jnp.ones_like(is_done), is_done=is_done, stop=messages.decode_time,
            send=messages.send_start, seconds_of_message=messages.send_seconds, network=network,
            num_units=durations.shape[0], begin_time=begin_times(end_time), end_time=end_time,
        )  # fmt: skip
        round_number = jnp.arange(end_time.size, dtype=jnp.int32)[:, None]
        return record(
            timeline,
            time=end_time,
            worker=jnp.broadcast_to(jnp.arange(tree.num_workers), messages.send_start.shape),
            unit=round_number * load,
            work=jnp.where(jnp.isfinite(messages.send_start), load, 0),
            weight=1.0 / joint_code.assignment.num_chunks,
            read=read_by_unit(round_number, load, durations.shape[0]),
        )

    def specification(num_workers: int) -> specifications.Specification:
        """The specification: no commit before what has come in can be decoded up the tree."""
        return specifications.coded_reduce(num_workers, num_layers=num_layers, decodable=decodable_progress(joint_code))

    return Protocol(
        schedule,
        joint_code,
        max_staleness=lambda num_workers: 0,
        round_units=load,
        specification=specification,
        rule=_not_served,
        waits_for_exact_sum=True,
    )


class _MessageTimes(NamedTuple):
    """The messages of a round, all seconds from its begin.

    Attributes:
      send_start: float[W], when the message of each worker begins to be taken; inf if it is not in time.
      send_seconds: float[W], what it takes; 0 if it is not in time.
      decode_time: float[], when the server can decode.
    """

    send_start: jax.Array
    send_seconds: jax.Array
    decode_time: jax.Array


def _message_times(tree: Tree, code: GradientCode, compute_end: jax.Array, network: Network) -> _MessageTimes:
    """How the messages of workers that have computed at `compute_end float[W]` go up the tree.

    Each node, and the server above, decodes what its n children send, from the lowest layer on; arrays [nodes, n] are
    of the workers of a layer, by the node above them. All times are seconds from the round's begin.
    """

    def values_by_layer(seconds: jax.Array | float) -> list[jax.Array]:
        """[nodes, n] of each layer, from a value of the network, which is one number or [W]."""
        return tree.split_by_layer(jnp.broadcast_to(jnp.asarray(seconds, compute_end.dtype), compute_end.shape))

    uploads, latencies = values_by_layer(network.upload), values_by_layer(network.latency)
    *compute_end_above, ready_times = tree.split_by_layer(compute_end)  # the lowest layer is ready when it has computed
    # Of each layer, the one below the server first: of its workers [nodes, n], and of the nodes above these [nodes].
    sends: list[jax.Array] = []
    arrivals: list[jax.Array] = []
    decode_times: list[jax.Array] = []
    for layer in reversed(range(tree.num_layers)):
        send = jax.vmap(_begins_one_by_one)(ready_times, uploads[layer])
        arrival = send + (uploads[layer] + latencies[layer])
        sends.insert(0, send)
        arrivals.insert(0, arrival)
        decode_times.insert(0, jax.vmap(lambda times: code_completion(code, times))(arrival))  # [nodes]
        if layer:
            ready_times = jnp.maximum(
                compute_end_above[layer - 1], decode_times[0].reshape(compute_end_above[layer - 1].shape)
            )
            decode_times[0] = ready_times.reshape(-1)  # a node sends when it has computed, too
    server_decode_time = decode_times[0][0]  # float[]: above the first layer is one node, the server
    # float[W]: when the node above each worker sends, or the server decodes.
    node_sends = tree.join_layers(
        [jnp.broadcast_to(node[:, None], a.shape) for node, a in zip(decode_times, arrivals, strict=True)]
    )
    send, arrival = tree.join_layers(sends), tree.join_layers(arrivals)
    is_in_time = (arrival <= jnp.minimum(node_sends, server_decode_time)) & jnp.isfinite(arrival)
    return _MessageTimes(
        send_start=jnp.where(is_in_time, send, jnp.inf),
        send_seconds=jnp.where(is_in_time, arrival - send, 0),
        decode_time=server_decode_time,
    )


def _begins_one_by_one(ready: jax.Array, seconds: jax.Array) -> jax.Array:
    """float[n]: when each of n messages begins to be taken, by a node that takes one at a time, the first first.

    They are `ready float[n]` then, and take `seconds float[n]`.
    """
    order = jnp.argsort(ready)

    def next_message(free_time: jax.Array, message: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """float[] each: when the node is free after a message, `(ready, seconds)`, and when it begins to take it."""
        message_ready, message_seconds = message
        begin = jnp.maximum(free_time, message_ready)
        return begin + message_seconds, begin

    begins = jax.lax.scan(next_message, jnp.zeros((), ready.dtype), (ready[order], seconds[order]))[1]
    return jnp.zeros_like(ready).at[order].set(begins)
