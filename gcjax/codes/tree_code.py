"""CodedReduce: a gradient code at each node of a tree (Reisizadeh, Prakash, Pedarsani, Avestimehr, arXiv 1902.01981).

The server has n workers below it, each of these has n, and so on, layer by layer. Whoever has workers below it decodes
their messages, adds its own chunks, and sends the sum upwards: so n messages arrive at a node, and not those of all
workers. The data below a node are coded as by a gradient code of n workers, except what the node computes itself; every
worker computes the same share of all data, 1 / (q + q^2 + ... + q^layers) with q = n / (s + 1), the least there is.

Letters: n workers below each node, s stragglers below each node, W = n + n^2 + ... + n^layers workers, N chunks, K
chunks a worker holds.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, memory
from gcjax.codes.base import Assignment, Coding, GradientCode, check_progress, residual
from gcjax.codes.completion import check_decodes_by_plan, joint_code
from gcjax.codes.diagnostics.rounding import max_exact_residual
from gcjax.equality import comparable


class Tree(NamedTuple):
    """A regular tree; its workers are numbered layer by layer, those below one node next to each other.

    Attributes:
      num_children: n, the workers below each node.
      num_layers: at least 1.
    """

    num_children: int
    num_layers: int

    @property
    def num_workers(self) -> int:
        """W."""
        return sum(self.num_children**layer for layer in range(1, self.num_layers + 1))

    def split_by_layer(self, values: Any) -> list[Any]:
        """From [W, ...] the values of each layer, the one below the server first: [nodes, n, ...], by node above."""
        sizes = [self.num_children**layer for layer in range(1, self.num_layers + 1)]
        parts = [values[end - size : end] for size, end in zip(sizes, np.cumsum(sizes).tolist(), strict=True)]
        return [part.reshape(-1, self.num_children, *part.shape[1:]) for part in parts]

    def join_layers(self, layers: list[jax.Array]) -> jax.Array:
        """[W, ...] from the values of each layer, [nodes, n, ...]."""
        return jnp.concatenate([layer.reshape(-1, *layer.shape[2:]) for layer in layers])


@comparable
def tree_code(code: GradientCode, *, num_layers: int) -> GradientCode:
    """The same gradient code at each node of a tree; exact with any s stragglers below each node that is heard.

    Worker w of the code is the w-th below a node. A node that lacks too many below it sends nothing (ours: the paper
    has at most s stragglers below each), and what is below a node that sends nothing is lost. A message is what a
    worker adds of its own chunks; what it passes on is in the weights. L = M = 1. For the time of messages in the tree
    see `gcjax.protocols.coded_reduce`; under `gcjax.protocols.coded` all send to the server.

    Args:
      code: of each node, for example `gcjax.codes.cyclic_repetition(n, num_stragglers=s, rng_key=key)`.
      num_layers: of the tree; with one layer it is the code itself.

    Raises:
      ValueError: if the code has blocks, several messages or uneven loads, or what is sent depends on who is late.

    Example:
      >>> code = gcjax.codes.tree_code(gcjax.codes.fractional_repetition(2, num_stragglers=1), num_layers=2)
      >>> code.assignment.chunks.tolist()  # workers 0 and 1 are below the server, 2 and 3 below 0, 4 and 5 below 1
      [[0, 1], [0, 1], [2, 3], [2, 3], [2, 3], [2, 3]]
      >>> bool(code.plan([2, 0, 0, 2, 0, 0]).residual < 1e-6)
      True
    """
    _check_code(code)
    tree = Tree(code.assignment.num_workers, _validate.integer("num_layers", num_layers, minimum=1))
    _check_fits(tree)
    assignment, factor_indices = _tree_assignment(tree, code.assignment)
    tolerance = max_exact_residual(code.assignment.num_chunks, code.num_blocks)
    full_load = jnp.int32(code.assignment.load)

    def plan(progress: jax.Array) -> Coding:
        """Weights from the server downwards: those of a node times those of the code below it.

        A coefficient float[W, K] is the product over the layers of those of the code, n workers with one message each,
        that `factor_indices int[W, K, layers]` picks: the last of all of them, flat, stands for 1.
        """
        is_finished = check_progress(assignment, progress) >= assignment.load  # bool[W]
        node_encode = code.plan(jnp.full(tree.num_children, full_load)).encode
        coefficients_and_one = jnp.append(node_encode[:, 0, :, 0].reshape(-1), jnp.ones((), node_encode.dtype))
        coefficients = coefficients_and_one[factor_indices].prod(axis=2)  # [W, K]
        encode = jnp.where(is_finished[:, None], coefficients, 0)[:, None, :, None]  # [W, 1, K, 1]
        plans = node_plans_by_layer(is_finished)
        weights = [plans[0].decode[:, :, 0, 0]]  # [nodes, n] of each layer
        for layer_plans in plans[1:]:
            weights.append(weights[-1].reshape(-1, 1) * layer_plans.decode[:, :, 0, 0])
        decode = tree.join_layers(weights)[:, None, None]  # [W, 1, 1]
        return Coding(encode, decode, residual(assignment, encode, decode))

    def node_plans_by_layer(is_finished: jax.Array) -> list[Coding]:
        """The plan of each node for the n workers below it that send, `[nodes, ...]` of each layer, the server's first.

        From the last layer upwards: a worker sends if it has finished, `is_finished bool[W]`, and the plan for those
        below it leaves a residual below `tolerance`.
        """
        *upper_layers, sends_in_last_layer = tree.split_by_layer(is_finished)
        plans = [jax.lax.map(code.plan, jnp.where(sends_in_last_layer, full_load, 0))]
        for is_finished_in_layer in reversed(upper_layers):
            has_enough = (plans[0].residual < tolerance).reshape(is_finished_in_layer.shape)
            plans.insert(0, jax.lax.map(code.plan, jnp.where(is_finished_in_layer & has_enough, full_load, 0)))
        return plans

    def last_part_completion(finish: jax.Array) -> jax.Array:
        """float[]: when the server can decode, if messages take no time, from `finish float[W, K]`."""
        *upper_layers, send_times = tree.split_by_layer(finish[:, -1])  # [nodes, n] of each layer: the whole load
        for finish_of_layer in reversed(upper_layers):
            decode_times = jax.vmap(lambda arrivals: code_completion(code, arrivals))(send_times)
            send_times = jnp.maximum(finish_of_layer, decode_times.reshape(finish_of_layer.shape))
        return code_completion(code, send_times[0])

    return joint_code(
        assignment, 1, 1, plan, last_part_completion=last_part_completion,
        sent=lambda progress: check_progress(assignment, progress)[:, None] >= assignment.load,
        only_whole_loads=True, stays_exact=True,
    )  # fmt: skip


def _check_fits(tree: Tree) -> None:
    """Raises a `ValueError` if a coefficient of each layer for each worker does not fit into memory."""
    num_workers = tree.num_layers if tree.num_children == 1 else 0
    for layer in range(1, tree.num_layers + 1 if tree.num_children > 1 else 1):
        num_workers += tree.num_children**layer
        if num_workers > 2**40:
            break
    num_bytes = np.dtype(np.int32).itemsize * num_workers * tree.num_layers
    description = f"coefficients of {num_workers} or more workers in {tree.num_layers} layers"
    memory.check_fits(description, num_bytes, "Lower num_layers.")


def code_completion(code: GradientCode, arrivals: jax.Array) -> jax.Array:
    """float[]: when a code of whole workers decodes, if their messages arrive at `arrivals float[W]`."""
    return code.completion(jnp.broadcast_to(arrivals[:, None], code.assignment.chunks.shape))


def _check_code(code: GradientCode) -> None:
    """Raises `ValueError` unless all workers of the code have the same load and send one message, of all of it."""
    check_decodes_by_plan(code, "tree_code")
    is_one_message = code.num_blocks == code.num_messages == 1 and code.stays_exact
    if not is_one_message or (code.assignment.loads != code.assignment.load).any() or not _has_fixed_messages(code):
        raise ValueError(
            "tree_code needs a code whose workers have the same load, and send one message of all of it, whatever the "
            f"others have done, and which stays exact; got one with L={code.num_blocks}, M={code.num_messages}, loads "
            f"{code.assignment.loads.tolist()}. Take fractional_repetition or cyclic_repetition."
        )


def _has_fixed_messages(code: GradientCode) -> bool:
    """Whether what workers send is the same if one of the others is missing."""
    num_workers = code.assignment.num_workers
    is_missing = np.concatenate([np.zeros((1, num_workers), bool), np.eye(num_workers, dtype=bool)])  # first nobody
    progress = np.where(is_missing, 0, code.assignment.load).astype(np.int32)
    plans = jax.jit(lambda progress: jax.lax.map(lambda one_progress: code.plan(one_progress).encode, progress))
    # [W + 1, W, M, K, L]; compiled by hand, so that it has values also while something else is traced.
    encode = np.asarray(plans.lower(progress).compile()(progress))
    sent = np.where(is_missing[:, :, None, None, None], encode[:1], encode)
    return bool((sent == encode[:1]).all())


def _tree_assignment(tree: Tree, code: Assignment) -> tuple[Assignment, np.ndarray]:
    """Who computes what, and where its coefficients come from.

    Below each node the chunks are cut into the N of the code; each worker below it takes its K of these, keeps the
    first chunks, and passes the others on. The coefficient of a chunk is the product of those of the layers down to it.

    Returns:
      The assignment; and int32[W, K, layers], which of the n·K coefficients of the code, flat, is a factor for each
      layer: the one behind the last, which is 1, below the worker's own layer.
    """
    chunks_below, load = _chunks_below_and_load(tree, code)
    num_chunks = chunks_below[0] // code.load * code.num_chunks
    index_of_one = code.num_workers * code.load
    chunks_of_worker, factor_indices = [], []
    # Of each node of a layer: the chunks below it, and [chunks, layers], which coefficients each has on its way there.
    to_distribute = [(np.arange(num_chunks), np.full((num_chunks, tree.num_layers), index_of_one))]
    for layer in range(tree.num_layers):
        workers_of_layer = []
        for chunks, factors in to_distribute:
            chunk_parts = chunks.reshape(code.num_chunks, -1)  # [N of the code, chunks of a part]
            factors_of_parts = factors.reshape(code.num_chunks, -1, tree.num_layers)
            for worker, own_parts in enumerate(code.chunks):
                own_factors = factors_of_parts[own_parts].copy()
                own_factors[:, :, layer] = (worker * code.load + np.arange(code.load))[:, None]
                workers_of_layer.append((chunk_parts[own_parts].ravel(), own_factors.reshape(-1, tree.num_layers)))
        chunks_of_worker += [chunks[:load] for chunks, _ in workers_of_layer]
        factor_indices += [factors[:load] for _, factors in workers_of_layer]
        to_distribute = [(chunks[load:], factors[load:]) for chunks, factors in workers_of_layer]
    assignment = Assignment(np.stack(chunks_of_worker).astype(np.int32), num_chunks)
    return assignment, np.stack(factor_indices).astype(np.int32)


def _chunks_below_and_load(tree: Tree, code: Assignment) -> tuple[list[int], int]:
    """The chunks of a worker and of all below it, layer by layer, and those of a worker: as few as come out whole.

    The chunks of a worker and below it are K of the N equal parts of those below the node above, so K must divide them.
    """
    load = 0
    while True:
        load += 1
        chunks_below = [load]
        while len(chunks_below) < tree.num_layers and chunks_below[0] % code.load == 0:
            chunks_below.insert(0, load + chunks_below[0] // code.load * code.num_chunks)
        if len(chunks_below) == tree.num_layers and chunks_below[0] % code.load == 0:
            return chunks_below, load
