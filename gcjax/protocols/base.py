"""The types of synchronisation: a protocol turns durations into a schedule.

Letters: T units sampled per worker, W workers, E commits (server updates), C contributions to a commit.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import _validate
from gcjax.codes.base import GradientCode
from gcjax.mixing_matrices import MixingMatrix
from gcjax.protocols.compiled_schedules import compiled_schedule
from gcjax.protocols.conformance.runnable import check_commits_happen, check_schedule
from gcjax.protocols.fragments import Fragments
from gcjax.protocols.groups import GroupServers
from gcjax.protocols.queue_simulations import ABSENCES_NEED_A_RULE, AbsenceSimulation, QueueSimulation
from gcjax.protocols.schedule import Schedule
from gcjax.protocols.simulation.rules import Rule
from gcjax.specifications import Specification
from gcjax.stragglers.absences import Absences
from gcjax.stragglers.network import Network


def adopt_version(params: Any, version_params: Any) -> Any:
    """The worker's parameters after reading a version: those of the version."""
    del params
    return version_params


def difference_from_base(params: Any, base: Any, version_params: Any, weight: jax.Array) -> tuple[Any, Any]:
    """What a worker pushes, the change of its parameters since `base`, and its parameters after the push, the same."""
    del version_params, weight
    return jax.tree.map(jnp.subtract, params, base), params


def own_params(params: Any, version_params: Any) -> Any:
    """The worker's own parameters: reading does not change them."""
    del version_params
    return params


class Mixing(NamedTuple):
    """How workers average their parameters with each other's, where there is no server.

    The parameters of the run are then the mean of all workers' own.

    Attributes:
      matrix: pure function `schedule -> (commit int32[] -> MixingMatrix)`, how the workers average in a commit; what
        the first step computes is computed once for all commits.
      copies: pure function `schedule -> float[T, W]`, the copies of the parameters that are sent after each unit.
      neighbour: pure function `schedule -> int32[E]`, with whom the worker of each commit averages, itself if with
        nobody; the matrix is then of these two, [2, 2]. The neighbour may be computing: so gradients are taken at the
        parameters with which a worker began, and its step is added to what averages have made of them. Commits have one
        contribution each, and there is no push-sum. None where all W workers average in each commit.
      push_sum: whether the averaging is also done to a weight of each worker, at first 1, by which its parameters are
        divided where a gradient is taken. It would stay 1 where rows add up to 1.
    """

    matrix: Callable[[Schedule], Callable[[jax.Array], MixingMatrix]]
    copies: Callable[[Schedule], jax.Array]
    neighbour: Callable[[Schedule], jax.Array] | None = None
    push_sum: bool = False


class LocalWork(NamedTuple):
    """What a contribution is where workers take optimizer steps of their own and push what these changed.

    A contribution of `work` units takes a step on each of them, on the worker's own parameters; it begins with reading
    version `version` if that is another one than the worker has read last. The server adds up the weighted changes,
    and its optimizer gets minus this sum as gradient.

    Attributes:
      optimizer: of the steps on the workers; the one of the run if None. Its state stays with the worker.
      server_optimizer: steps with minus the changes; the one of the run if None. `optax.sgd(1.0)` adds them.
      pull: pure function `(params, version_params) -> params`, what reading does to the worker's parameters.
      push: pure function `(params, base, version_params, weight) -> (change, params)`, after the steps;
        `base` is what the parameters were at the last push or pull, `weight` the factor of the contribution.
      gradients_at_version: whether gradients are taken at the version that was read, so that a contribution is a sum
        of gradients of one version, however the local parameters move.
      gradient_table: whether the server keeps the mean gradient of each worker, and steps with the mean of these over
        all workers, also over those without a contribution to the commit. In the mean of its worker a contribution has
        the share `weight * work * W`, and what was there before the rest. With `gradients_at_version`; the local
        parameters are then minus these means.
      overlaps_pull: whether the first gradient after a pull is still taken at the parameters before it; not after the
        first pull, before which there is none under way.
      parameter_owners: pure function `num_workers -> int32[W]`, on whose parameters a worker works; on its own if None.
        The workers of an owner take each step at once, with the weighted mean of their gradients.
      max_contributions: those that a worker can have in one commit. If a commit has max_contributions * W of them,
        contribution c comes from worker c % W.
      mixing: how the workers of a commit average their parameters; None where they push them to a server.
      servers: the servers of groups to which the workers push; None where they push to the central one.
      fragments: which part of the parameters a commit changes; all of them if None. Its outer gradient is the mean over
        all workers of the server's parameters minus their own, and reading a version merges what is new in it.
      message_code: makes a worker's message of the last gradient on each of its K chunks, which it keeps; unit n is on
        its chunk number n % K. A commit decodes the messages of those with a contribution to it, with the weight of
        this contribution. It needs `gradients_at_version`; the local parameters are then the gradients that are kept,
        [W, K, ...]. None where messages are of their own units only.
      single_steps: whether a contribution is one unit, so that a run needs no loop for its steps.
      reads_always: whether each contribution begins with reading, also if its worker has read that version last. A
        worker then has no parameters of its own from one contribution to the next, and a run keeps none: `pull` gets
        None for them. It is not for local work with `gradient_table`, `overlaps_pull`, `mixing`, `servers`,
        `fragments` or `message_code`.
      sums_gradients: whether `optimizer`, `pull` and `push` come to this: what is pushed is minus the sum of the
        gradients of a contribution, so that a run can add these up without local steps. With `gradients_at_version`
        and `reads_always`.
    """

    optimizer: optax.GradientTransformation | None = None
    server_optimizer: optax.GradientTransformation | None = optax.sgd(1.0)
    pull: Callable[[Any, Any], Any] = adopt_version
    push: Callable[[Any, Any, Any, jax.Array], tuple[Any, Any]] = difference_from_base
    gradients_at_version: bool = False
    gradient_table: bool = False
    overlaps_pull: bool = False
    parameter_owners: Callable[[int], np.ndarray] | None = None
    max_contributions: int = 1
    mixing: Mixing | None = None
    servers: GroupServers | None = None
    fragments: Fragments | None = None
    message_code: GradientCode | None = None
    single_steps: bool = False
    reads_always: bool = False
    sums_gradients: bool = False


class Observed(NamedTuple):
    """What a protocol with feedback from the loss sees at the end of a window.

    Attributes:
      window: int32[], the window that has ended, counted from 0.
      end: float[] seconds, when it ended; a commit at this moment is of the next window, and is not seen yet.
      time: float[E] seconds of the commits so far; inf for the others.
      loss: float[E], the training loss of the commits so far; inf for the others.
    """

    window: jax.Array
    end: jax.Array
    time: jax.Array
    loss: jax.Array


class LossFeedback(NamedTuple):
    """How a protocol that looks at the loss chooses: the run goes on window by window.

    The schedule depends on the controls, one entry a window; the entries of later windows must not change what happens
    in earlier ones.

    Attributes:
      initial: pure function `num_windows -> controls`, a pytree of arrays with one entry a window.
      schedule: pure function `(durations, network, controls) -> Schedule`.
      next: pure function `(controls, observed) -> controls`, which sets the entries after the window that has ended.
      seconds: the length of a window.
      num_windows: how many; the last one lasts until the end of the run.
    """

    initial: Callable[[int], Any]
    schedule: Callable[[jax.Array, Network, Any], Schedule]
    next: Callable[[Any, Observed], Any]
    seconds: float
    num_windows: int


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Who waits for whom.

    Calling a protocol with `durations float[T, W]` (seconds; inf is a failed worker) and optionally a `Network`
    checks them and returns the schedule; also under `jit`, as in `jax.jit(protocol)(durations)`, and `vmap`.
    `protocol.replace(rule=None)` is the same protocol with another value of a field.
    Its times have the durations' type: float32 tells 1 s apart up to 1.7e7 s, and a run that is longer than some 10^7
    units needs durations of float64 (`jax_enable_x64`).

    Attributes:
      schedule: pure function `(durations, network) -> Schedule`.
      code: the gradient code whose rounds the commits are; None where a contribution is a plain gradient.
      one_version: whether all contributions to a commit read the same version.
      max_staleness: pure function `num_workers -> int`, the largest staleness that the protocol allows; None if it
        sets no bound.
      round_units: the units of each worker in a round; 1 where a unit is a round or there are none.
      padded: whether commits can have far fewer contributions than C, the padding behind them, so that those that there
        are had better be computed one after the other.
      local: what contributions are where workers take steps of their own; None where they push gradients.
      loss_feedback: how the protocol looks at the loss; None if it does not. `schedule` is then the schedule of a run
        whose loss never makes it change its mind.
      specification: pure function `num_workers -> Specification`, what the protocol promises; None if nobody has said.
      max_weight: the most that the weights of a commit add up to, so that it is a weighted mean; None if there is no
        bound. With a code: the most that each weight can be, times N; with `max_contributions` above 1: as often as
        there are.
      rule: pure function `num_workers -> Rule`, by which a server on the real clock decides; raises a `ValueError` that
        says why where it cannot. None if nobody has said.
      num_workers: W, where the rows of the code are not the workers; None where they are, or any number will do.
      has_group_servers: whether workers send to servers of their groups, and each commit is a message of one of these
        to the central server.
      waits_for_exact_sum: whether a commit waits until messages of `code`, or of `local`'s, decode exactly.
    """

    schedule: Callable[[jax.Array, Network], Schedule]
    code: GradientCode | None = None
    one_version: bool = True
    max_staleness: Callable[[int], int] | None = None
    round_units: int = 1
    padded: bool = False
    local: LocalWork | None = None
    loss_feedback: LossFeedback | None = None
    specification: Callable[[int], Specification] | None = None
    max_weight: float | None = 1.0
    rule: Callable[[int], Rule] | None = None
    num_workers: int | None = None
    has_group_servers: bool = False
    waits_for_exact_sum: bool = False

    def __call__(
        self, durations: jax.Array, network: Network | None = None, absences: Absences | None = None
    ) -> Schedule:
        """Computes the schedule of these durations; the network defaults to an instantaneous one.

        It is compiled once for all equal protocols and arrays of these shapes, unlike `schedule` called by itself.

        Args:
          durations: float[T, W] seconds.
          network: the time of messages.
          absences: when workers are away; never if None.

        Raises:
          ValueError: for bad input, or if the units are used up before the first commit, or none ever happens though
            nothing fails, or nobody does any work for any commit, or times are so late that the durations' type cannot
            tell them apart, or the schedule breaks a rule of schedules (under `jit` and `vmap`: its shapes and types
            only), or there are absences, and the event queue does not simulate the protocol, or messages between
            servers of groups take time, and it would have to.
        """
        durations = _validate.durations(durations)
        network = checked_network(network, durations.shape[1])
        absences = checked_absences(absences, durations)
        simulation, inputs = self.simulation(network, absences), simulation_inputs(durations, network, absences)
        schedule = compiled_schedule(simulation, *inputs)
        try:
            check_schedule(schedule, self, durations)
            if absences is None:
                check_commits_happen(schedule, durations, network)
        except ValueError:
            if _overflowed_buffer(schedule):
                simulation(*inputs)  # not compiled, it raises the error that says what there was no room for
            raise
        return schedule

    def replace(self, **fields: Any) -> Self:
        """The same protocol with other values of these fields."""
        return dataclasses.replace(self, **fields)

    def simulation(self, network: Network, absences: Absences | None = None) -> Callable[..., Schedule]:
        """The pure function `(durations, network) -> Schedule` for a network of this kind.

        It is `schedule`, but a server that takes time for each message is simulated by the event queue if there is a
        rule. With absences it is the event queue, `(durations, network, absences) -> Schedule`.

        Raises:
          ValueError: if there are absences, and the event queue does not simulate the protocol.
        """
        if absences is not None:
            rule, keeps_version = _rule_that_allows_absences(self), self.local is not None
            return cast(Callable[..., Schedule], AbsenceSimulation(rule, keeps_version, self.has_group_servers))
        server_takes_time = network.service is not None
        if not server_takes_time or self.rule is None or self.loss_feedback is not None:
            return self.schedule
        return cast(Callable[..., Schedule], QueueSimulation(self.schedule, self.rule, self.has_group_servers))


def workers_of(protocol: Protocol) -> int | None:
    """W that a protocol is for: its own, or that of its code; None if any number will do."""
    if protocol.num_workers is not None or protocol.code is None:
        return protocol.num_workers
    return protocol.code.assignment.num_workers


def code_of_messages(protocol: Protocol) -> GradientCode | None:
    """What workers make messages by, of the gradients of a round or of those that they keep; None without a code."""
    return protocol.code if protocol.local is None else protocol.local.message_code


def _overflowed_buffer(schedule: Any) -> bool:
    """Whether a compiled simulation had too little room for commits or messages: its horizon is then NaN."""
    has_values = isinstance(schedule, Schedule) and not _validate.is_traced(schedule.horizon)
    return has_values and bool(np.isnan(schedule.horizon).any())


def _rule_that_allows_absences(protocol: Protocol) -> Callable[[int], Rule]:
    """The protocol's `num_workers -> Rule`; a `ValueError` if there is none, or what it does depends on the loss."""
    if protocol.loss_feedback is not None:
        raise ValueError(
            f"{ABSENCES_NEED_A_RULE} This one looks at the loss, window by window. gcjax.parameter_server serves it."
        )
    if protocol.rule is None:
        raise ValueError(f"{ABSENCES_NEED_A_RULE} This one has none. Give it one, Protocol(..., rule=...).")
    return protocol.rule


def simulation_inputs(durations: jax.Array, network: Network, absences: Absences | None) -> tuple[Any, ...]:
    """What the function that `Protocol.simulation` returns is called with."""
    return (durations, network) if absences is None else (durations, network, absences)


def with_absences(protocol: Protocol, absences: Absences | None) -> Protocol:
    """The protocol; where workers are away, one that comes back can read a newer version than others in its commit."""
    return protocol if absences is None else protocol.replace(one_version=False)


def with_known_schedule(protocol: Protocol, schedule: Schedule) -> Protocol:
    """The protocol of a run without absences whose schedule is there already: nothing is simulated, also by no rule."""
    return protocol.replace(schedule=lambda durations, network: schedule, rule=None)


def checked_absences(absences: Absences | None, durations: jax.Array) -> Absences | None:
    """The absences for durations `[T, W]`, if there are any; a `ValueError` if they are none, or of other workers."""
    if absences is None:
        return None
    if not isinstance(absences, Absences):
        raise ValueError(
            f"absences must be Absences; got {absences!r}. Random ones are drawn by "
            "random_absences(...).sample(rng_key, num_workers)."
        )
    return absences.validated(durations.shape[1], durations.dtype)


def checked_network(network: Network | None, num_workers: int) -> Network:
    """The network for so many workers, the default one if None; a `ValueError` if it is none, or of others."""
    if network is not None and not isinstance(network, Network):
        raise ValueError(
            f"network must be a Network; got {network!r}. One of bandwidths becomes one by "
            "links(...).network_for(params)."
        )
    return Network() if network is None else network.validated(num_workers)
