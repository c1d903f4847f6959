"""The hosts of one daemon's trials: started, asked, listened to, taken over and buried.

Decides nothing: the node's machine does. Facts reach it through `say`, in order, and are
acknowledged to their host only when the head has what they led to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from hermesd.core.history import NOT_FETCHED
from hermesd.core.model import RunId, Time, TrialId
from hermesd.core.node_actions import (
    AskReport,
    Demote,
    Discard,
    End,
    Extend,
    Fence,
    Forget,
    Halt,
    LetGo,
    Rebuild,
    Resume,
    Save,
    Spawn,
)
from hermesd.core.node_messages import (
    Assignment,
    Begun,
    Failed,
    Found,
    Gone,
    HostFact,
    Input,
    Saved,
)
from hermesd.sim.agenda import Deed
from hermesd.sim.box import Box, Site
from hermesd.sim.disk import Folder
from hermesd.sim.host import Host

LOCAL_SECONDS = 0.005


class Trainers:
    """All that a daemon has to do with hosts. `say` gives the number of the last message."""

    def __init__(
        self,
        box: Box,
        site: Site,
        say: Callable[[Input], int],
        lease: Callable[[], Time],
        later: Callable[[float, Deed], None],
    ) -> None:
        self._box = box
        self._site = site
        self._say = say
        self._lease = lease
        self._later = later
        self._seen: dict[TrialId, int] = {}
        self._marks: dict[TrialId, deque[tuple[int, int]]] = {}
        self._rebuilt: dict[TrialId, RunId] = {}

    def carry_out(
        self,
        action: Spawn
        | Rebuild
        | Discard
        | LetGo
        | Resume
        | Halt
        | AskReport
        | Save
        | Demote
        | End
        | Fence
        | Forget
        | Extend,
    ) -> None:
        """Do what the machine says, a moment later; leases at once."""
        match action:
            case Resume():
                raise AssertionError("a simulated program has no limit of its own")
            case Extend(expires):
                for host in list(self._box.hosts.values()):
                    host.extend(expires)
            case Forget(trial):
                self._later(LOCAL_SECONDS, lambda: self._forget(trial))
            case Spawn():
                self._later(LOCAL_SECONDS, lambda: self._spawn(action))
            case Rebuild():
                self._later(LOCAL_SECONDS, lambda: self._rebuild(action))
            case Discard(trial):
                self._later(LOCAL_SECONDS, lambda: self._discard(trial))
            case Fence(run):
                self._later(LOCAL_SECONDS, lambda: self._bury(run.trial))
            case _:
                self._later(LOCAL_SECONDS, lambda: self._ask(action))

    def adopt(self) -> None:
        """Take over every run that the head may not know the end of; what was rebuilt for a run
        that was not asked for yet ends."""
        for trial, folder in list(self._box.folders.items()):
            if folder.run is not None:
                self._adopt(trial, folder, folder.run)
            else:
                self._box.dismiss(trial)

    def acknowledged(self, sequence: int) -> None:
        """The head has everything up to this number safe: hosts may forget their part."""
        for trial, marks in self._marks.items():
            done = 0
            while marks and marks[0][0] <= sequence:
                done = marks.popleft()[1]
            host = self._box.hosts.get(trial)
            if done and host is not None:
                host.voice.ack(done)

    def settle(self, trial: TrialId) -> None:
        """The head has the outcome of the newest run safe."""
        self._box.dismiss(trial)
        self._box.folder(trial).run = None

    def host_died(self, trial: TrialId) -> None:
        """The connection to a host ended."""
        self._later(LOCAL_SECONDS, lambda: self._report_death(trial))

    # -- orders ------------------------------------------------------------------------------------

    def _ask(self, action: LetGo | Halt | AskReport | Save | Demote | End) -> None:
        """Pass an action on to its host, if there is one."""
        run = action.assignment.run if isinstance(action, LetGo) else action.run
        if isinstance(action, LetGo):
            self._rebuilt.pop(run.trial, None)
            self._box.folder(run.trial).begin(action.assignment)
        host = self._box.hosts.get(run.trial)
        if host is None:
            return
        match action:
            case LetGo(assignment):
                host.resume(run, assignment.launch.devices)
            case Halt(_, tier, seconds):
                host.suspend(run, tier, seconds)
            case AskReport(_, None):
                host.report(run)
            case AskReport():
                pass  # a simulated program reports when it would anyway
            case Save(_, name):
                host.save(run, name)
            case Demote(_, name):
                host.demote(run, name)
            case End():
                host.kill(run)

    def _spawn(self, order: Spawn) -> None:
        run = order.assignment.run
        self._box.dismiss(run.trial)
        self._rebuilt.pop(run.trial, None)
        folder = self._box.folder(run.trial)
        if folder.last is not None and folder.last.run.attempt >= run.attempt:
            raise AssertionError(f"{run} was started here before")
        folder.begin(order.assignment)
        if self._site.chance.happens(self._site.chance.faults.not_started):
            self._say(Failed(run, "not_started", "the disk is full"))
            return
        wanted, sources = order.checkpoint, order.assignment.sources
        if wanted is not None and sources and not self._site.fetch(wanted, sources, folder):
            self._say(Failed(run, NOT_FETCHED, f"{wanted.id} could not be had"))
            return
        host = self._new_host(folder)
        self._say(Begun(run))
        host.start(run, order.assignment.launch.devices, folder.restorable(order.checkpoint))

    def _new_host(self, folder: Folder) -> Host:
        work = self._site.work[folder.trial]
        host = Host(
            self._site.agenda,
            self._site.ground,
            folder,
            work.recording,
            work.fidelity,
            self._box.grace_seconds,
        )
        self._box.hosts[folder.trial] = host
        self._listen(host, 0)
        host.extend(self._lease())
        return host

    def _rebuild(self, order: Rebuild) -> None:
        run = order.assignment.run
        self.settle(run.trial)
        if self._site.chance.happens(self._site.chance.faults.not_started):
            self._say(Failed(run, "not_started", "the disk is full"))
            return
        self._rebuilt[run.trial] = run
        folder = self._box.folder(run.trial)
        self._new_host(folder).rebuild(run, folder.restorable(order.checkpoint))

    def _discard(self, trial: TrialId) -> None:
        if self._rebuilt.pop(trial, None) is not None:
            self.settle(trial)

    def _adopt(self, trial: TrialId, folder: Folder, assignment: Assignment) -> None:
        run, host = assignment.run, self._box.hosts.get(trial)
        if host is None:
            self._say(Found(assignment, "parked" if folder.parked else "ended", 0))
            self._report_death(trial)
            return
        parked = assignment.launch.parked
        if host.run == run:
            words = {"running": "running" if host.step else "starting", "parked": "parked"}
            self._say(Found(assignment, words.get(host.phase, "ended"), host.step))
            self._say_standing(host)
        elif host.phase == "parked" and parked == host.run:
            before = replace(assignment.launch, run=parked, parked=None)
            self._say(Found(replace(assignment, launch=before), "parked", host.step))
            self._say_standing(host)
            self._say(assignment)
        else:
            self._say(Found(assignment, "ended", 0))
            self._say(Gone(run, "the daemon ended before it had started the run"))
        self._listen(host, 0)

    def _say_standing(self, host: Host) -> None:
        for fact in host.standing():
            self._say(fact)

    def _listen(self, host: Host, after: int) -> None:
        trial = host.folder.trial
        self._seen[trial] = after
        self._marks[trial] = deque()

        def heard(seq: int, fact: HostFact) -> None:
            self._later(LOCAL_SECONDS, lambda: self._heard(host, seq, fact))

        host.voice.attach(heard, after)

    def _heard(self, host: Host, seq: int, fact: HostFact) -> None:
        trial = host.folder.trial
        if self._box.hosts.get(trial) is not host or seq <= self._seen[trial]:
            return
        if host.phase == "parked":
            host.folder.parked = True
        self._seen[trial] = seq
        self._marks[trial].append((self._say(fact), seq))

    def _report_death(self, trial: TrialId) -> None:
        folder = self._box.folder(trial)
        if trial in self._box.hosts:
            return
        if (rebuilt := self._rebuilt.pop(trial, None)) is not None:
            self._say(Gone(rebuilt, "the trial's host is gone"))
        if folder.run is None:
            return
        run = folder.run.run
        outcome = folder.outcomes.get(run.attempt)
        if outcome is not None:
            self._say(outcome)
            return
        if folder.newest is not None:
            self._say(Saved(run, folder.newest))
        self._say(Gone(run, "the trial's host is gone"))

    def _bury(self, trial: TrialId) -> None:
        """End a host and all that it has by force, and say so."""
        if self._box.dismiss(trial):
            self._report_death(trial)

    def _forget(self, trial: TrialId) -> None:
        self._box.dismiss(trial)
        self._box.folders.pop(trial, None)
