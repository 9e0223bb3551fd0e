"""Streaming DiLoCo (Douillard, Donchev, Rush, Kale and others 2025, arXiv 2501.18512)."""

import jax
import optax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule, own_params
from gcjax.protocols.fragments import Pattern, by_fragments, fragments_of
from gcjax.protocols.local_sgd import OUTER, check_units
from gcjax.protocols.not_served import not_served
from gcjax.protocols.simulation.streaming import streaming_commits
from gcjax.stragglers.network import Network

_not_served = not_served(
    "streaming_diloco cannot be served: its workers merge a fragment of the parameters some steps after they have "
    "pushed it, and gcjax.parameter_server sends whole parameters, between two turns. Simulate it, or serve diloco or "
    "decoupled_diloco."
)


@comparable
def streaming_diloco(
    *,
    num_local_steps: int,
    num_fragments: int,
    overlap_steps: int = 0,
    local_share: float = 0.5,
    fragments: Pattern = "strided",
    inner: optax.GradientTransformation | None = None,
    outer: optax.GradientTransformation | None = None,
) -> Protocol:
    """Streaming DiLoCo: one fragment of the parameters after the other is synchronised while workers go on.

    Each of P fragments is pushed every H steps, one of them every H/P steps. Where worker w pushes fragment p after t
    steps, its outer gradient is `Δ_w = θ_p - θ_{w,p}(t)`, θ_p being what the last outer step on it has made of it. An
    outer optimizer with a state for each fragment steps with the mean of all Δ_w. What comes of it is merged τ steps
    later, `θ_{w,p}(t + τ) = α θ_{w,p}(t + τ) + (1 - α) θ_p`, and nobody waits unless it has not come by then (Douillard
    et al. 2025). With L = H/P and `C[e]` the time at which all have sent commit e, a worker begins its unit
    `(e + 1) L + τ` not before `C[e]` and a message more. The staleness in a commit is at most τ/L, rounded up.

    Commit e is an outer step on fragment `e % P`. A message has the share of its fragment in the parameters: the link
    carries as much as under `diloco`, in P messages instead of one. P = 1 with τ = 0 and α = 0 is `diloco`. The paper
    sends outer gradients of 4 bits a number, the `compression` of the run, `gcjax.compression.float4()`.

    Ours: fragments are pushed in order, fragment 0 after H/P steps, so that all but the last are pushed for the first
    time before H steps; P must divide H; a worker that pushes and merges after the same step pushes first.

    It is simulated only: the parameter server sends whole parameters.

    Args:
      num_local_steps: H, a multiple of P.
      num_fragments: P, 1 or more.
      overlap_steps: τ, from 0 to H - 1.
      local_share: α, from 0 (what was done in the meantime is dropped) to 1 (nothing is ever read).
      fragments: "strided" or "sequential", by layers (see `gcjax.protocols.fragments`); or labels, a pytree like the
        parameters, of the number of the fragment of each array, or of integer arrays that broadcast to it; or a pure
        function `shapes -> labels`.
      inner: the optimizer of the steps; the one of the run if None. Its state stays with the worker.
      outer: the optimizer of the server; as in `diloco` if None.

    Raises:
      ValueError: if a number is out of its range, P does not divide H, there is no such pattern, or an optimizer is
        none; in a run, if the labels do not belong to the parameters, or a fragment is empty.

    Example:
      >>> durations = jnp.array([[1.0, 1.5]] * 6)
      >>> protocol = gcjax.protocols.streaming_diloco(num_local_steps=4, num_fragments=2, overlap_steps=1)
      >>> schedule = protocol(durations)  # worker 0 waits before its step 3 for what worker 1 pushes after step 2
      >>> schedule.time.tolist(), schedule.start[:4, 0].tolist()
      ([3.0, 6.0, inf], [0.0, 1.0, 2.0, 3.0])
    """
    num_fragments = _validate.integer("num_fragments", num_fragments, minimum=1)
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    if num_local_steps % num_fragments:
        raise ValueError(
            f"num_local_steps must be a multiple of num_fragments; got {num_local_steps} and {num_fragments}. "
            f"{num_local_steps + -num_local_steps % num_fragments} is one."
        )
    hint = "A fragment must be merged before it is pushed again."
    overlap_steps = _validate.integer("overlap_steps", overlap_steps, maximum=num_local_steps - 1, hint=hint)
    _validate.single_number("local_share", local_share, minimum=0.0, maximum=1.0)
    _validate.optional_optimizers(inner=inner, outer=outer)
    outer = OUTER if outer is None else outer
    parts = fragments_of(num_fragments, fragments, float(local_share))
    num_units = num_local_steps // num_fragments

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of fragments, one pushed every H/P = `num_units` units, and merged `overlap_steps` later."""
        check_units(durations, num_units)
        return streaming_commits(
            durations, network, num_units=num_units, num_fragments=num_fragments, overlap_units=overlap_steps
        )

    merges_within = overlap_steps % num_units > 0
    return Protocol(
        schedule,
        one_version=not merges_within,
        max_staleness=lambda num_workers: -(-overlap_steps // num_units),
        round_units=num_units,
        local=LocalWork(
            optimizer=inner,
            server_optimizer=outer if num_fragments == 1 else by_fragments(outer, parts),
            pull=own_params,
            max_contributions=2 if merges_within else 1,
            fragments=parts,
        ),
        rule=_not_served,
        specification=lambda num_workers: specifications.streaming_diloco(
            num_workers, num_local_steps=num_local_steps, num_fragments=num_fragments, overlap_steps=overlap_steps
        ),
    )
