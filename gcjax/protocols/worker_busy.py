"""Worker-busy synchronous parallel, WBSP (Yang, Hu, Liu, Jin, Yeung, You, Parallel Computing 121, 2024, 103092)."""

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View, all_have_pushed
from gcjax.stragglers.network import Network


@comparable
def worker_busy(*, eager: bool = False, overlap: bool = False, trigger: int | None = None) -> Protocol:
    """Worker-busy synchronous parallel: fast workers go on with local steps until the slowest has made one.

    Every worker takes a local step, pushes what it changed, and takes the next one, without waiting for anybody. With
    u[v] the pushes of worker v that have arrived since the last commit, the server commits when `min_v u[v] >= 1`,
    that is on the push of the slowest; the commit applies the mean over the workers of all they have changed. Then
    everyone reads this version: at once after the push that arrives next. A push that lands between commit and reading
    counts for the next commit. With equal speeds that is `bsp`.

    Args:
      eager: the variant of the released code instead: the server applies each push at once (each is a commit, with
        the factor 1/W), and workers read after one fixed worker has pushed: it reads at once, the others after their
        next push, so that they do not all read the same version.
      overlap: whether communication and computing overlap: workers never stop computing; a thread beside pushes what
        has been changed since its last push, and reads when there is a commit to read. The step that is under way when
        the parameters arrive is applied to these.
      trigger: the fixed worker of the eager variant; the one whose sampled units take longest if None.

    Raises:
      ValueError: if there is a trigger, and the variant is not eager, or it is not a worker; or `eager` or
        `overlap` is no bool.
    """
    _validate.boolean("eager", eager)
    _validate.boolean("overlap", overlap)
    if trigger is not None:
        trigger = _validate.integer("trigger", trigger)
        if not eager:
            raise ValueError(
                f"trigger is for the eager variant; otherwise the slowest push brings the commit. Got {trigger}."
            )

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule: eager, every push is a commit, and those of the trigger let all read anew, the slowest if None.

        Otherwise a commit takes all pushes since the last one.
        """
        num_units, num_workers = durations.shape
        if eager:
            trigger_worker = _trigger_or_slowest(trigger, durations)
            return event_schedule(rule_with_commit_on_push(num_workers, trigger_worker), durations, network)
        return event_schedule(rule_with_commit_on_slowest(num_workers), durations, network, num_commits=num_units)

    def rule_with_commit_on_push(num_workers: int, trigger_worker: jax.Array | int) -> Rule:
        """The eager rule: a push is a commit, of two contributions where it can have steps from before a pull."""
        rule = _eager_rule(trigger_worker)._replace(overlaps=overlap, splits_by_version=overlap)
        return rule._replace(weight=1.0 / num_workers, num_contributions=max_contributions)

    def rule_with_commit_on_slowest(num_workers: int) -> Rule:
        """The rule of the paper: a commit takes all pushes since the last one, of each worker as one contribution."""
        rule = _COMMIT_ON_SLOWEST._replace(overlaps=overlap, one_contribution_per_worker=True)
        return rule._replace(weight=1.0 / num_workers, num_contributions=max_contributions * num_workers)

    def rule(num_workers: int) -> Rule:
        """The rule on the real clock; eager, the trigger, whose pushes let all read anew, must be known before."""
        if not eager:
            return rule_with_commit_on_slowest(num_workers)
        if trigger is None:
            raise ValueError(
                "worker_busy(eager=True) needs the trigger where durations are not known before the run, the worker "
                "that is slowest; got None."
            )
        return rule_with_commit_on_push(num_workers, _checked_trigger(trigger, num_workers))

    # The contributions of a worker to one commit are as many as the versions that its pushes to it can be based on.
    # While a push is on its way to one commit, a worker can at most have read the two versions before it.
    max_contributions = (2 if overlap else 1) if eager else (3 if overlap else 2)
    local = LocalWork(overlaps_pull=overlap, max_contributions=max_contributions, single_steps=eager and not overlap)
    specification = specifications.worker_busy_pushes if eager else specifications.worker_busy
    return Protocol(
        schedule,
        one_version=False,
        local=local,
        rule=rule,
        specification=lambda num_workers: specification(num_workers, overlap=overlap),
    )


def _trigger_or_slowest(trigger: int | None, durations: jax.Array) -> jax.Array:
    """int32[]: the trigger; if None, the worker whose durations `[T, W]` add up to most."""
    if trigger is None:
        return jnp.argmax(durations.sum(axis=0)).astype(jnp.int32)
    return jnp.asarray(_checked_trigger(trigger, durations.shape[1]), jnp.int32)


def _checked_trigger(trigger: int, num_workers: int) -> int:
    """The trigger, if it is one of so many workers."""
    return _validate.integer("trigger", trigger, maximum=num_workers - 1, hint="The trigger is a worker.")


_COMMIT_ON_SLOWEST = Rule(commits=lambda view, worker: all_have_pushed(view), needs_everybody=True)
"""A message brings a commit once everybody has one that is in no commit yet."""


def _eager_rule(trigger: jax.Array | int) -> Rule:
    """The rule by which each message brings a commit, and whoever has read an older version than `memory` reads.

    The memory, int32[], is the version that the last push of the worker `trigger` made.
    """

    def remember(view: View, worker: jax.Array) -> jax.Array:
        """int32[]: the memory after a push of `worker`: the version that it made, if it is the trigger."""
        newest_version, trigger_version = view.num_commits, view.memory
        return jnp.where(worker == trigger, newest_version, trigger_version)

    def pulls(view: View) -> jax.Array:
        """bool[W]: who has read an older version than that of the trigger's last push, the memory."""
        trigger_version = view.memory
        return view.version < trigger_version

    return Rule(pulls=pulls, memory=lambda num_workers, dtype: jnp.zeros((), jnp.int32), remember=remember)
