"""What the server has to lose: the parameters, the pushes that are in no commit yet, and the record.

Letters: W workers, E commits.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gcjax.parameter_server import coded_record, saved_log, turn_log, wire
from gcjax.parameter_server.coded_rounds import CodedRounds
from gcjax.parameter_server.recovery import Checkpoints, Parameters, SavedCheckpoints, recovered
from gcjax.parameter_server.run_end import RunEnd
from gcjax.parameter_server.saved_log import SavedLog
from gcjax.parameter_server.setups import VERSION_NAMES, Setup, fingerprint
from gcjax.parameter_server.turn_log import TurnLog
from gcjax.parameter_server.updates import Contribution, Updates
from gcjax.parameter_server.written_log import GO_ON_SECONDS, WrittenLog
from gcjax.protocols.schedule import Schedule
from gcjax.protocols.simulation.rules import View


class Commits:
    """The commits of a run.

    Attributes:
      log: what happened.
      updates: the parameters.
      coded_rounds: the rounds of the code; None for a protocol without one.
    """

    def __init__(self, setup: Setup) -> None:
        """Before the first push; nothing is written to a folder before `recover`."""
        self._setup, self._rule = setup, setup.rule()
        self.updates = Updates(setup.protocol, setup.optimizer, self._rule, setup.num_workers, setup.initial_params())
        code = setup.protocol.code
        self.coded_rounds = None if code is None else CodedRounds(code, setup.num_workers, self.updates.params)
        self.log = TurnLog(setup.num_workers)
        self._pending: list[Contribution] = []
        self._checkpoints: Checkpoints | None = None
        # By version, the parameters that somebody computes on, for checkpoints.
        self._versions: dict[int, Any] = {}

    @property
    def count(self) -> int:
        """E, so far."""
        return len(self.log.commit_times)

    @property
    def push_sizes(self) -> range:
        """The numbers of bytes that a push may have; only one where it is no messages of a code."""
        if self.coded_rounds is not None:
            return self.coded_rounds.push_sizes
        return range(self.updates.layout.num_bytes, self.updates.layout.num_bytes + 1)

    def pushed_tree(self, worker: int, body: np.ndarray | None) -> Any:
        """What the bytes `body uint8[n]` of a push are: a gradient, a change, or the messages of a code.

        None if they are not the messages of a code that the worker was asked for.
        """
        if self.coded_rounds is not None:
            return self.coded_rounds.messages(worker, body)
        return wire.from_bytes(body, self.updates.layout)

    @property
    def parameters(self) -> Parameters:
        """After the last commit."""
        return Parameters(self.updates.params, self.updates.opt_state)

    def warm_up(self) -> None:
        """Compiles what a commit takes."""
        self.updates.warm_up()
        if self.coded_rounds is not None:
            self.coded_rounds.warm_up(self.updates.params)

    def recover(
        self,
        folder: Path,
        fingerprint: dict[str, str],
        view: Callable[[], View],
        *,
        checkpoint_every: int,
        sync_seconds: float,
    ) -> float:
        """Takes over what a folder has, and writes there from now on.

        Args:
          folder: with the log and the checkpoints, or for them.
          fingerprint: by name, what of the setup must be the same as in the folder.
          view: `() -> View`, what the rule knows now.
          checkpoint_every: commits between two checkpoints.
          sync_seconds: the first commit this long after the log was forced onto the disk does so again.

        Returns:
          Seconds at which the run goes on, after the last event in the log.

        Raises:
          ValueError: if the folder is of another setup, or another server writes to it.
        """
        file, has_code = folder / saved_log.FILE_NAME, self.coded_rounds is not None
        self.log = log = WrittenLog(
            file, self._setup.num_workers, fingerprint, view, sync_seconds=sync_seconds, has_code=has_code
        )
        try:
            self._checkpoints = Checkpoints(folder, checkpoint_every)
        except BaseException:
            log.close()  # else it stays locked
            raise
        self._checkpoints.delete_after(self.count)  # of commits that a log which has lost its end does not have
        self._restore_parameters(self._checkpoints)
        self._keep_newest_version()
        return log.last_time + GO_ON_SECONDS

    def load(self, folder: Path) -> RunEnd:
        """Takes over what a folder has, and leaves that as it is: another server may write there.

        Returns:
          How the run has ended; if it has not, the last event in the log, and nothing besides.

        Raises:
          ValueError: if the folder is that of no server, or of another setup.
        """
        file = folder / saved_log.FILE_NAME
        try:
            lines = saved_log.complete_lines(file)
        except OSError as error:
            raise ValueError(
                f"the folder must be that of a run, Server(..., checkpoints=FOLDER); {file} cannot be read: "
                f"{error.strerror}."
            ) from error
        self.log = log = SavedLog(self._setup.num_workers, has_code=self.coded_rounds is not None)
        log.read(file, lines, fingerprint(self._setup), ignored_names=VERSION_NAMES, here="here")
        if log.end is None:
            log.take_back_unwritten_commit()
        self._restore_parameters(SavedCheckpoints(folder))
        return log.end or RunEnd(log.last_time, service_seconds=np.zeros(0), measured_from=log.last_time)

    def _restore_parameters(self, checkpoints: SavedCheckpoints) -> None:
        """Computes the parameters after the last commit of the log, from a checkpoint if there is one."""
        log = self.log
        if log.commit_times:
            record = self.schedule(log.commit_times[-1])
            parameters = recovered(self._setup, checkpoints, record, self.parameters, log.memberships)
            self.updates.params, self.updates.opt_state = parameters

    def add_push(self, worker: int, loss: float, tree: Any) -> None:
        """Takes the push of the worker's last turn, which waits for its commit.

        Args:
          worker: who has pushed.
          loss: the mean over the turn's units.
          tree: the gradient, or the change of the parameters, in the shapes of these; for a code, its messages.
        """
        turn, turn_number = self.log.turns[worker][-1], self.log.last_turn_number(worker)
        num_units = len(turn.unit_ends)
        self._pending.append(
            Contribution(worker=worker, turn=turn_number, version=turn.version, work=num_units, loss=loss, tree=tree)
        )

    def ignore_push(self, worker: int) -> None:
        """Drops the push of the worker's last turn, the last that was added: it is to be in no commit."""
        self._pending.pop()
        self.log.update_last_turn(worker, is_ignored=True)

    def commit(self, is_committed: np.ndarray, now: float) -> None:
        """Commits the pending pushes of the workers `is_committed bool[W]`, at `now` seconds.

        The number of the commit is `count`, the commits so far; that grows as the log gets the commit.
        """
        contributions = [contribution for contribution in self._pending if is_committed[contribution.worker]]
        self._pending = [contribution for contribution in self._pending if not is_committed[contribution.worker]]
        messages = [(contribution.worker, contribution.turn) for contribution in contributions]
        if self.coded_rounds is not None:
            # The log knows a round's turns by their version, the newest: it must not have the commit yet.
            self.log.end_round(self.coded_rounds.plan.progress, now)
            contributions = [self.coded_rounds.decoded(contributions, self.updates.params)]  # one, of all pushes
        loss = self.updates.commit(contributions, self.count)
        self.log.add_commit(self.count, messages, loss, now)
        if self._checkpoints is not None:  # nobody else needs the parameters of earlier versions
            self._keep_newest_version()
            self.save()

    def drop_pending(self) -> None:
        """Drops the pushes that are in no commit, as if they had been neither sent nor received."""
        for contribution in self._pending:
            self.log.update_last_turn(contribution.worker, send_start=math.inf, arrive=math.inf)
        self._pending = []

    def save(self, *, is_last: bool = False) -> None:
        """Writes a checkpoint, if there are to be any and it is time for one."""
        if self._checkpoints is not None:
            # The newest version is not one of these: its parameters are in each checkpoint.
            versions = {version: params for version, params in self._versions.items() if version < self.count}
            self._checkpoints.save(self.count, self.parameters, versions, is_last=is_last)

    def _keep_newest_version(self) -> None:
        """Notes the parameters of the newest version for checkpoints, and forgets those of versions no longer needed.

        Needed are those that a turn under way computes on, or a push that is in no commit was computed on. Only where
        gradients are pushed: with local work or a code, checkpoints have no versions besides their own.
        """
        protocol = self._setup.protocol
        if protocol.local is None and protocol.code is None:
            last_turns = [turns_of_worker[-1] for turns_of_worker in self.log.turns if turns_of_worker]
            versions_under_way = {turn.version for turn in last_turns if math.isinf(turn.compute_end)}
            needed_versions = {contribution.version for contribution in self._pending} | versions_under_way
            self._versions = {
                version: params for version, params in self._versions.items() if version in needed_versions
            }
            self._versions[self.count] = self.updates.params

    def schedule(self, end: float) -> Schedule:
        """The record of the run, which has ended at `end` seconds, or with its last commit if that is later."""
        code = self._setup.protocol.code
        if code is None:
            return turn_log.schedule_of(self.log, self._rule, end)
        return coded_record.schedule_of(self.log, code.assignment, self._rule.weight, end)
