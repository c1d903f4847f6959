"""Whether this head's state is an older copy, so that nodes have heard of more than it knows.

Each lease says how far the journal is. If a node has heard an earlier head speak of more than this
one began with, there were launches that this one does not know. Those may go on until every lease
is over, and until then none of the known trials is launched. Only such evidence has this effect,
and only once. Checkpoints that this head does not know are not used, since the curve would have a
gap before them; each of them is named.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NamedTuple

from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.model import NodeId, StudyId, Time, TrialId
from hermesd.core.state import State
from hermesd.head.statedir import expecting, seconds
from hermesd.logs import get_logger
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.security.enrollment import write_private

NAMED = 8

log = get_logger()


class Unused(NamedTuple):
    """The furthest checkpoint of a trial that a node has, and the head never heard of."""

    node: NodeId
    step: int


class StaleState:
    """What this head knows of those before it. `begun` is the number of the last entry at its
    start, `silent_until` when the last run has ended that may then have been under way; `path` is
    a file in which that outlives a restart."""

    def __init__(
        self, path: Path, scheduler: Scheduler, begun: int, silent_until: Time, now: Time
    ) -> None:
        self.head = secrets.token_hex(8)
        self._path = path
        self._scheduler = scheduler
        self._begun = begun
        self._silent_until = silent_until
        self._noted = False
        self._unused: dict[TrialId, Unused] = {}
        if path.exists():
            remedy = "remove it once no run of the restored head's predecessor can be under way"
            with expecting(path, "when the last such run has ended, in Unix seconds", remedy):
                until = seconds(path)
            if until > now:
                self._hold(until)

    def note(self, hello: pb.Hello) -> None:
        """See what the node has heard before, ere anything is decided for it."""
        heard = hello.heard_journal_sequence
        if self._noted or hello.heard_head == self.head or heard <= self._begun:
            return
        write_private(self._path, str(self._silent_until).encode())
        self._hold(self._silent_until)
        log.warning(
            "this head was restored from an older copy: the trials that it knows are launched once"
            " all leases of the earlier head are over",
            node=hello.node,
            journal=self._begun,
            heard=heard,
        )

    def held(self, node: NodeId, holdings: pb.Holdings) -> None:
        """See which of the checkpoints that a node has are further than what is known here."""
        state = self._scheduler.state
        for each in holdings.trials:
            found = Unused(node, each.checkpoint_step)
            if not _is_lost(state, each.trial, found) or _goes_on(state, node, each):
                continue
            if state.studies[state.trials[each.trial].spec.study].identity != each.identity:
                continue
            known = self._unused.get(each.trial)
            if known is not None and known.step >= found.step:
                continue
            self._unused[each.trial] = found
            if self._noted:
                log.warning(
                    "a checkpoint is not used: what was reported up to it is not in this journal",
                    trial=each.trial,
                    node=node,
                    step=found.step,
                    known=state.trials[each.trial].step,
                )

    def notices(self, study: StudyId) -> list[str]:
        """What was trained of a study and is trained again, in a line; none if nothing is."""
        active = self._scheduler.state.active[study]
        found = [(trial, self.lost(trial)) for trial in self._unused if trial in active]
        told = [f"{trial} at step {lost.step} on {lost.node}" for trial, lost in found if lost]
        if not told:
            return []
        more = f" and {len(told) - NAMED} more" if len(told) > NAMED else ""
        return [
            "the head's state is an older copy, and checkpoints that it does not know are not used"
            f" ({', '.join(told[:NAMED])}{more}): what was reported up to them is lost"
        ]

    def why(self, trial: TrialId) -> str:
        """What to say of a trial that has such a checkpoint."""
        lost = self.lost(trial)
        if lost is None:
            return ""
        return (
            "; the head's state is an older copy: a checkpoint of step"
            f" {lost.step} on {lost.node} is not used, since what was reported up to it is lost"
        )

    def lost(self, trial: TrialId) -> Unused | None:
        """The checkpoint of a trial that is not used, while the trial has not got as far again."""
        found = self._unused.get(trial) if self._noted else None
        return found if found and _is_lost(self._scheduler.state, trial, found) else None

    def _hold(self, until: Time) -> None:
        self._noted = True
        self._scheduler.hold(until)


def _is_lost(state: State, trial_id: TrialId, found: Unused) -> bool:
    """Whether the trial is known, is to go on, and was further than is known of it."""
    trial = state.trials.get(trial_id)
    if trial is None or trial.phase.final:
        return False
    saved = trial.checkpoint.step if trial.checkpoint else 0
    return max(trial.step, saved) < found.step


def _goes_on(state: State, node: NodeId, held: pb.Holding) -> bool:
    """Whether the run that took the checkpoint, or one after it, is there and is known here: it
    tells by itself how far it is."""
    trial = state.trials[held.trial]
    run = trial.run.id if trial.run is not None and trial.run.started else None
    run = trial.kept.run if run is None and trial.kept is not None else run
    there = state.node_of(trial) == node
    return there and run is not None and run.attempt >= held.checkpoint_attempt
