"""Gradient codes that ignore as many stragglers as there are (Su, Sukhnandan, Li 2023: IS-GC).

Workers that share a chunk are in conflict. Of the workers that have arrived the server takes a largest set without a
conflict (a maximum independent set of the conflict graph), whose sums make the sum of all their chunks, each once.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.assignments.regular import cyclic, repetition
from gcjax.codes.base import GradientCode
from gcjax.codes.fixed import fixed_code
from gcjax.codes.replication import first_finished_of_groups
from gcjax.equality import comparable


@comparable
def independent_set(num_workers: int, *, load: int, placement: str = "cyclic", average: bool = False) -> GradientCode:
    """The sum of as many chunks as the workers without a conflict have, scaled up to all (IS-GC). N = W, L = M = 1.

    With g workers in the set every one of them has the weight `N / (g K)`. Any number may be missing. The sum is exact
    where g K = N. Decoding takes O(W), with the average O(W²/K).

    Args:
      num_workers: n = W = N.
      load: K.
      placement: "cyclic": worker w holds chunks w, ..., w + K - 1; or "fractional": groups of K workers hold the same
        K chunks.
      average: with cyclic placement there may be several largest sets. One is always taken by default, as from one
        starting point of the released code, so that some chunks may count more often than others; if True, their mean
        over all starting points, which treats all chunks alike.

    Raises:
      ValueError: if the load exceeds the workers, or is that of groups and does not divide them.

    Example:
      >>> code = gcjax.codes.independent_set(5, load=2)
      >>> code.plan([0, 2, 2, 0, 2]).decode[:, 0, 0].tolist()  # workers 1 and 2 share chunk 2
      [0.0, 1.25, 0.0, 0.0, 1.25]
    """
    _validate.choice("placement", placement, ("cyclic", "fractional"))
    is_cyclic = placement == "cyclic"
    assignment = (cyclic if is_cyclic else repetition)(num_workers, load=load)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1], one message and block: N / (g K) for the g workers of the set, or the mean of that over sets.

        0 for all others. N = W, K the load; no two workers of the set have a chunk in common.
        """
        is_finished = progress >= load
        if is_cyclic:
            weights, set_size = _largest_sets(is_finished, load, average=average)
        else:
            weights = first_finished_of_groups(is_finished.reshape(-1, load)).reshape(-1)
            set_size = weights.sum(dtype=jnp.int32)
        scale = num_workers / (load * set_size.clip(1)).astype(encode.dtype)
        return (weights.astype(encode.dtype) * scale)[:, None, None]

    def completion(arrivals: jax.Array) -> jax.Array:
        """float[]: when every group of K workers has its first, from `arrivals float[W, 1]`; K is the load.

        With a cyclic placement: when all of w, w + K, w + 2 K, ... are there, for any w; inf if K does not divide W.
        """
        if not is_cyclic:
            return arrivals.reshape(-1, load).min(axis=1).max()
        if num_workers % load:
            return jnp.full((), jnp.inf, arrivals.dtype)
        return arrivals.reshape(-1, load).max(axis=0).min()

    has_other_exact_sums = average and num_workers % load != 0  # of sets that have as many members each, all around
    return fixed_code(
        assignment, np.ones((num_workers, load)), decode=decode, completion=None if has_other_exact_sums else completion
    )


def _largest_sets(is_finished: jax.Array, load: int, *, average: bool) -> tuple[jax.Array, jax.Array]:
    """Shares float[W] of the workers in a largest set without a conflict, and the size int32[] of such a set.

    From a start on, around the circle, each time the next finished worker that shares nothing with the last one: that
    is a largest set with the start in it. One of the K workers from the first finished one on is in a largest set of
    all. With `average`, the mean over all starts that lead to as many.
    """
    num_workers = is_finished.size
    positions = jnp.arange(2 * num_workers + load, dtype=jnp.int32)  # on the circle, of which they go around twice
    nowhere = 3 * num_workers  # beyond all positions, and too far from any start for a member
    is_finished_at = is_finished[positions % num_workers]
    next_finished = jax.lax.cummin(jnp.where(is_finished_at, positions, nowhere), reverse=True)
    starts = positions[:num_workers] if average else jnp.argmax(is_finished).astype(jnp.int32) + positions[:load]

    def next_members(members: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        """For each start the next member, and this one, int32[starts]; `nowhere` once there is none.

        It is the next finished worker, of `next_finished [positions]`, `load` or more places on: they share nothing.
        """
        return next_finished.at[members + load].get(mode="fill", fill_value=nowhere), members

    first_members = jnp.where(is_finished_at[starts], starts, nowhere)
    _, members = jax.lax.scan(next_members, first_members, None, length=num_workers // load)  # [members, starts]
    is_member = members + load <= starts[None] + num_workers  # the last one must not reach the start
    sizes = is_member.sum(axis=0, dtype=jnp.int32)
    is_best = (sizes == sizes.max()) if average else jnp.arange(load) == jnp.argmax(sizes)
    start_shares = is_best.astype(jnp.result_type(float)) / is_best.sum(dtype=jnp.int32).astype(jnp.result_type(float))
    member_shares = jnp.where(is_member, start_shares[None], 0)
    return jnp.zeros(num_workers, jnp.result_type(float)).at[members % num_workers].add(member_shares), sizes.max()
