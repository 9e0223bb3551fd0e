"""Rounds of several gradient codes, of which each round uses the one that would have been fastest in the last ones.

Which code, with how many blocks L and in which order of the chunks, is best depends on who is slow: Ramamoorthy, Meng,
Girimaji, NeurIPS 2024 (arXiv 2405.19509), whose codes the candidates may be, choose them before the run. To choose
anew in every round, from the chunk times of the last rounds, is our own; the rule stands in
`gcjax.protocols.observed_rounds`.

Letters: P candidates, W workers, K chunks a worker holds at most, N chunks, L blocks.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.codes.alternatives import alternatives
from gcjax.codes.base import GradientCode
from gcjax.codes.stopping import StoppingRule, decodable
from gcjax.equality import comparable
from gcjax.protocols.adaptive_coded_rule import adaptive_coded_rule
from gcjax.protocols.base import Protocol
from gcjax.protocols.coded import (
    CodedRound,
    check_code_and_rule,
    check_durations,
    check_num_workers,
    coded_round,
    decodable_progress,
)
from gcjax.protocols.observed_rounds import (
    Candidate,
    Estimates,
    ObservedRound,
    Window,
    chosen_candidate,
    empty_window,
    least_mean_seconds,
    with_round,
)
from gcjax.protocols.schedule import Schedule, record
from gcjax.protocols.simulation.rules import Rule
from gcjax.protocols.simulation.stopped_rounds import read_by_unit, stopped_rounds, units_of_rounds
from gcjax.stragglers.network import Network


@comparable
def adaptive_coded(
    candidates: Mapping[str, GradientCode | tuple[GradientCode, StoppingRule]],
    *,
    window: int = 10,
    choose: Callable[[Estimates], jax.Array] = least_mean_seconds,
) -> Protocol:
    """Coded rounds that switch among codes: each round uses the one that did best in the last `window` rounds.

    A round is one of `coded`, with the code and the stopping rule that its number's choice names. The first round
    has the first candidate. Round r chooses from what was seen of the rounds r - window, ..., r - 1, whichever
    codes they had: for each of them and each candidate, how long it would have taken. What was not seen, because a
    worker was cut off or had nothing left to do, is filled in (see `gcjax.protocols.observed_rounds`), so no code
    has to be tried out for its chunks. The times of messages, which depend on L, are those of the network; a server
    on the real clock measures them. All of this happens inside of the program of the schedule: a choice compiles
    nothing.

    Round r of worker w takes the units r·K, ..., r·K + K-1, with the largest load K of all candidates: the units that
    its code does not need are skipped. E = T // K, and C = P·W: column p·W + w of a commit is worker w under candidate
    p, and a commit has contributions in the columns of its candidate only, which `used_candidate` reads.

    Args:
      candidates: name -> code, or (code, stopping rule); when the sum is decodable if there is no rule. All have the
        same workers and chunks; loads, orders, blocks and messages may differ.
      window: the rounds that a choice looks back.
      choose: pure function `Estimates -> int32[]`, which candidate is next, the nearest one if there is none of this
        number; by default the one with the least mean seconds for a whole gradient.

    Raises:
      ValueError: if there is no candidate, or they have other workers or chunks, or a rule waits for an exact decode
        that its code cannot give; if fewer than K units are sampled.

    Example:
      >>> cyclic = gcjax.codes.assignments.cyclic(4, load=2)
      >>> one, two = gcjax.codes.partial(cyclic), gcjax.codes.partial(cyclic, num_blocks=2, rows="harmonic")
      >>> protocol = gcjax.protocols.adaptive_coded({"L=1": one, "L=2": two})
      >>> slow_messages = gcjax.stragglers.Network(upload=10.0)  # seconds for a whole gradient
      >>> schedule = protocol(jnp.ones((8, 4)), slow_messages)
      >>> [int(candidate) for candidate in gcjax.protocols.used_candidate(schedule)]
      [0, 1, 1, 1]
    """
    checked_candidates = _checked_candidates(candidates)
    window = _validate.integer("window", window, minimum=1)
    if not callable(choose):
        raise ValueError(f"choose must be a function of Estimates that returns which candidate; got {choose!r}.")
    code = alternatives(*(candidate.code for candidate in checked_candidates))
    rounds = _Rounds(
        checked_candidates,
        window,
        choose,
        load=code.assignment.load,
        num_workers=checked_candidates[0].code.assignment.num_workers,
    )

    def specification(num_workers: int) -> specifications.Specification:
        """The specification: no commit before the progress that has arrived is decodable by its round's code."""
        return specifications.adaptive_coded(
            num_workers, decodable=[decodable_progress(candidate.code) for candidate in checked_candidates]
        )

    def real_clock_rule(num_workers: int) -> Rule:
        """The rule on the real clock: each round as in `coded`; a worker has a row of the code that the round uses."""
        check_num_workers(num_workers, rounds.num_workers)
        return adaptive_coded_rule(checked_candidates, window, choose)

    waits_for_exact_sum = all(candidate.stop.waits_for_exact_sum for candidate in checked_candidates)
    return Protocol(
        rounds.schedule,
        code,
        max_staleness=lambda num_workers: 0,
        round_units=code.assignment.load,
        specification=specification if waits_for_exact_sum else None,
        num_workers=rounds.num_workers,
        rule=real_clock_rule,
        waits_for_exact_sum=waits_for_exact_sum,
    )


def used_candidate(schedule: Schedule) -> jax.Array:
    """int32[..., E]: the candidate that each commit of `adaptive_coded` used; -1 where there is no commit.

    A commit has W columns for each candidate; only those of the one that it used have a worker.

    Args:
      schedule: of one run, or of a batch.
    """
    is_used = jnp.asarray(schedule.worker) >= 0
    num_workers = schedule.start.shape[-1]
    return jnp.where(is_used.any(axis=-1), jnp.argmax(is_used, axis=-1) // num_workers, -1).astype(jnp.int32)


class _Rounds(NamedTuple):
    """What the rounds are made with: `candidates` to `choose` as in `adaptive_coded`, `load` K and `num_workers` W."""

    candidates: tuple[Candidate, ...]
    window: int
    choose: Callable[[Estimates], jax.Array]
    load: int
    num_workers: int

    def schedule(self, durations: jax.Array, network: Network) -> Schedule:
        """The schedule of rounds of K = `load` units of every worker; column p W + w is worker w under candidate p.

        `units` are [num_rounds, K, W] seconds; `window` is what is known of the last rounds. `candidate_index` and all
        arrays of `rounds` (see `CodedRound`) have a first axis [num_rounds].
        """
        check_durations(durations, self.num_workers, self.load)
        units = units_of_rounds(durations, self.load)
        num_candidates = len(self.candidates)
        window = empty_window(self.window, num_candidates, self.num_workers, units.dtype)
        _, (candidate_index, rounds) = jax.lax.scan(partial(self.step, network), window, units)
        timeline, round_end = stopped_rounds(*rounds, network, durations.shape[0])
        progress = rounds.is_done.sum(axis=1, dtype=jnp.int32)  # [num_rounds, W]
        all_candidates = jnp.arange(num_candidates, dtype=jnp.int32)
        is_used = candidate_index[:, None, None] == all_candidates[None, :, None]  # [num_rounds, candidates, 1]
        columns = progress.shape[0], num_candidates * self.num_workers
        worker = jnp.where(is_used, jnp.arange(self.num_workers, dtype=jnp.int32)[None, None], -1).reshape(columns)
        round_number = jnp.arange(round_end.size, dtype=jnp.int32)[:, None]
        return record(
            timeline,
            time=round_end,
            worker=worker,
            unit=round_number * self.load,
            work=jnp.where(is_used, progress[:, None], 0).reshape(columns),
            weight=1.0 / self.candidates[0].code.assignment.num_chunks,
            read=read_by_unit(round_number, self.load, durations.shape[0]),
        )

    def step(self, network: Network, window: Window, units: jax.Array) -> tuple[Window, tuple[jax.Array, CodedRound]]:
        """One round, of `units float[K, W]` seconds, for a scan: the window with it, and its code and times.

        The window has the estimates from the last rounds, by which the code is chosen; candidate 0 is the first.
        """
        candidate_index = jnp.where(window.num_rounds > 0, chosen_candidate(self.choose, window.estimates), 0)
        receive_time = network.arrivals_at_workers(jnp.zeros(self.num_workers, units.dtype))
        branches = [partial(coded_round, code, stop, load=self.load) for code, stop in self.candidates]
        this_round = jax.lax.switch(candidate_index, branches, units, receive_time)
        # float[W]: when each worker would have done all its chunks; when it began if it has none.
        load_end = jnp.max(jnp.where(this_round.has_unit, this_round.finish, receive_time[None]), axis=0)
        observed = ObservedRound(
            finish=jnp.where(this_round.is_done, this_round.finish, jnp.inf).T,
            work_begin=receive_time,
            work_end=jnp.maximum(jnp.minimum(load_end, this_round.stop), receive_time),  # who comes after the stop: 0 s
        )
        return with_round(window, observed, candidate_index, self.candidates, network), (candidate_index, this_round)


def _checked_candidates(candidates: Any) -> tuple[Candidate, ...]:
    """The candidates, each given as a code or (code, rule) under its name; `decodable()` is the rule if there is none.

    Raises:
      ValueError: unless they are of the same workers and chunks, and fit for their rules.
    """
    example = "adaptive_coded needs candidates by name, {'L=1': code, 'deadline': (code, deadline(3.0))}"
    if not isinstance(candidates, Mapping) or not candidates:
        raise ValueError(f"{example}; got {candidates!r}.")
    checked_candidates = []
    for name, value in candidates.items():
        is_pair = type(value) is tuple and len(value) == 2
        code, stopping_rule = value if is_pair else (value, decodable())
        try:
            check_code_and_rule(code, stopping_rule)
        except ValueError as error:
            raise ValueError(f"candidate {name!r} cannot be used: {error}") from error
        checked_candidates.append(Candidate(code, stopping_rule))
    sizes = {
        (candidate.code.assignment.num_workers, candidate.code.assignment.num_chunks)
        for candidate in checked_candidates
    }
    if len(sizes) > 1:
        sizes_in_words = " and ".join(f"{workers} workers, {chunks} chunks" for workers, chunks in sorted(sizes))
        raise ValueError(f"candidates must be codes of the same workers and chunks; got {sizes_in_words}.")
    return tuple(checked_candidates)
