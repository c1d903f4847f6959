"""The agent: what runs inside the training process, between its iterations.

At a boundary the fast path is one load from the shared page and two comparisons. Everything else
waits until the host has said something, a limit is reached or a report is due. A process that the
program forks is not the trial, whatever it does: its agent neither speaks, saves nor holds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

from trainer_shim.channel.agent_channel import AgentChannel
from trainer_shim.channel.frames import Message, number
from trainer_shim.channel.page import NO_LIMIT, ControlPage
from trainer_shim.channel.pipes import ByteStream
from trainer_shim.reporting import REPORT_SECONDS, MetricNames, Metrics, Reporter
from trainer_shim.rerun import temporary_paths, wallclock_replay
from trainer_shim.saver import (
    CannotCapture,
    CannotCaptureNow,
    Capture,
    Saver,
    WithRanks,
    refused,
)
from trainer_shim.side_metrics import FOUND, SAMPLED, TOLD, Rounds
from trainer_shim.spec import Spec, Stages

__all__ = [
    "FORK",
    "NOT_FURTHER",
    "NOT_RETURNED",
    "Agent",
    "CannotCapture",
    "CannotCaptureNow",
    "CannotPut",
    "Capture",
    "Change",
    "refused",
]

TOO_MANY = "metrics left out"
NOT_SAVED = "its newest checkpoint could not be written"
NOT_FURTHER = "it cannot be trained further"
NOT_RETURNED = "the program ended before it came to where its checkpoint was taken"


_NOT_IN_EFFECT = (
    "nothing shows that the training would go on with it. What can be set are lengths of a training"
    " (epochs, max_steps) and the values that its optimizer is made with (learning_rate); to train"
    " from the start: hermesctl study clone"
)


_NOT_TAKEN = "no optimizer of the program has it"
_WHAT_IS_SET = (
    ". What Hermes sets by itself are the learning rate of Keras, its optimizer's other settings,"
    " dropout and the batch_size; and what the param_groups of PyTorch have, where the program has"
    " no schedule of its own; for another the program says how:"
    ' trainer_shim.on_change("{}", function)'
)
_NO_BOUNDARY = "the program has no boundary there, as its iterations come several at a time"


#: Why it holds, where a checkpoint is due from which other trials go on.
FORK = "fork"
_FIRST_LOOK_SECONDS = 0.05
# A program that has told metrics for so long, the same again, is not about to train.
_FIRST_BOUNDARY_SECONDS = 30.0
_SHOWS_NONE = "the program has shown no iteration boundaries"


class _Clock(threading.Timer):
    """Calls its function again and again; soon at first, for what a short program does."""

    def run(self) -> None:
        # What the program waits for must reach the thread that waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self.finished.wait(self.interval):
            self.interval = min(2 * self.interval, REPORT_SECONDS)
            self.function()


class CannotPut(Exception):
    """Why a value cannot be put into effect where it seems that it could."""


class Change(NamedTuple):
    """A hyper-parameter that is another one than at the checkpoint."""

    name: str
    #: None of a new one.
    then: Any
    now: Any

    def __str__(self) -> str:
        was = "" if self.then is None else f" (it was {self.then})"
        return f"{self.name} to {self.now}{was}"


class Agent:
    """One training process's end of the channel to its host."""

    #: It is no Python below the program, which may only prepare what another trains.
    is_the_program = False
    _told_since = 0.0  # by the monotonic clock

    def __init__(
        self,
        channel: ByteStream,
        page: ControlPage,
        spec: Spec,
        attempt: int,
        restore: str | None = None,
    ) -> None:
        self.page = page
        self.trial = spec.trial
        self.attempt = attempt
        self.signal = spec.signal
        self.parameters = dict(spec.parameters)
        self.patterns = spec.metrics  # in what it prints, by name
        self.several = bool(spec.ranks)  # processes, which are saved together
        self._lengths = frozenset(spec.lengths)
        # What has become of parameters since the checkpoint, and is not known to be in effect.
        self.changes: dict[str, Change] = {}
        self._stages = Stages(spec.stages, spec.checkpoint_steps)
        # Where the next stage begins, or a checkpoint is due; 0: nothing is known to be in effect.
        self._turn = 0 if spec.stages or spec.checkpoint_steps else NO_LIMIT
        self._in_force: Mapping[str, Any] | None = None
        self._nearest = self._turn  # of the two
        # Puts a value into effect from the next iteration on; whether it is. Raises CannotPut.
        self.put: Callable[[str, Any], bool] | None = None
        # The same by the program itself, by the name of the parameter.
        self.setters: dict[str, Callable[[Any], object]] = {}
        self.seed = spec.seed
        self.restore = restore
        self.restore_step = 0  # of that checkpoint, once it has been verified
        self.capture: Callable[[], Capture] | None = None
        # Done before it waits at a boundary, where others may have its device meanwhile.
        self.before_hold: Callable[[], object] = lambda: None
        # Progress at the program's last step, and which that was, once it has ended well: from
        # there it could be asked for more. Raises CannotCapture.
        self.end: Callable[[], tuple[int, Capture]] | None = None
        self.ends_otherwise = False  # the end is more than its last step, so it is saved anyway
        # What a program has trained that has ended well, for people to load; it can't go on from
        # there. None if there is nothing. Asked where there is no other end.
        self.result: Callable[[], Capture | None] | None = None
        # The step of the files of the end that people load, where it is later than the end's own.
        self.result_step: int | None = None
        self.framework, self.trains = "none", False
        self.level, self.reason = "park-only", "no boundaries seen yet"
        self._named = self.framework  # when its fidelity was last said
        # Run again from its first line, the program has not come to its checkpoint's place yet:
        # the adapter that knows the checkpoint says so.
        self.is_returning = False
        # What is done now belongs to the next step, whose boundary is to come.
        self.is_midway: Callable[[], bool] = bool
        self._is_back = restore is None
        self._began = False
        self._is_blind = False
        self._rounds = Rounds()  # of a program that has shown no boundary
        self._told_length: int | None = None  # of them
        self._late: threading.Timer | None = None  # has what it told last reported
        self._was_copied = restore is not None  # what goes on from a checkpoint has been before
        self._doubt: str | None = None
        self._lacking: dict[str, str | None] = {}
        self._words32, self._words64 = page.words32, page.words64
        self.is_aside = False  # it is a process that the program has forked, and not the trial
        self._mailbox = AgentChannel(channel)
        names = MetricNames(spec.signal, functools.partial(self.lacks, TOO_MANY))
        lacks_checkpoint = functools.partial(self.lacks, NOT_SAVED)
        self.reporter = Reporter(self._mailbox.send, spec.signal, names)
        self._saver = Saver(self._mailbox, spec.checkpoints, lacks_checkpoint)

    # What adapters call.

    def hello(self, framework: str, trains: bool = True) -> None:
        """Tell the host that this program has boundaries, or will have. A framework may have been
        imported for something else than to train (`trains` is False): another may follow it."""
        self.framework, self.trains = framework, trains
        self._mailbox.send({"kind": "hello", "framework": framework})

    def fidelity(self, level: str, reason: str) -> None:
        """Say how true a resume from a checkpoint is, when that is new."""
        if level == "exact" and self._doubt is not None:
            level, reason = "exact-if-deterministic", self._doubt
        if (level, reason, self.framework) != (self.level, self.reason, self._named):
            self.level, self.reason, self._named = level, reason, self.framework
            self._say_fidelity()

    def doubt(self, reason: str) -> None:
        """Whatever else is known of it, a resume is exact under a condition that nobody checks."""
        if self._doubt is None:
            self._doubt = reason
            if self.level == "exact":
                self.fidelity("exact", reason)

    def lacks(self, what: str, why: str | None) -> None:
        """Say beside the fidelity what there will not be, though the trial itself is well; None
        if by now there is."""
        if self._lacking.get(what) != why:
            self._lacking[what] = why
            self._say_fidelity()

    def _say_fidelity(self) -> None:
        lacking = [f"{what}: {why}" for what, why in list(self._lacking.items()) if why is not None]
        reason = "; ".join([self.reason, *lacking])
        said = {"level": self.level, "reason": reason, "framework": self.framework}
        self._mailbox.send({"kind": "fidelity", **said})

    def blind(self, reason: str, is_unseen: bool = False) -> None:
        """The program shows no boundaries: it counts as started, and can only be parked. If it
        `is_unseen`, no agent hears what it prints, either."""
        self._is_blind = True
        self.fidelity("park-only", reason)
        self._mailbox.send({"kind": "blind", "is_unseen": is_unseen})
        if not is_unseen:
            self.goes_on()

    def shows_none(self, reason: str) -> None:
        """Count as blind what may have boundaries, but does not come to them, as it seems."""
        if not (self._is_blind or self._began or self.several or self.is_aside):
            self.blind(reason)

    def planned(self, steps: int) -> None:
        """Tell the planned length of the trial in steps."""
        self._mailbox.send({"kind": "planned", "steps": steps})

    def changed_from(self, then: Mapping[str, Any]) -> None:
        """The parameters at the checkpoint were these.

        Those that say how long to train are the program's own affair. Of the others each has to be
        put into effect by an adapter, which takes it out of `changes`.
        """
        self.changes = {
            name: Change(name, then.get(name), value)
            for name, value in self.parameters.items()
            if name not in self._lengths and (name not in then or then[name] != value)
        }

    def first_values(self) -> dict[str, Any]:
        """What a trial like this one begins with, wherever it is."""
        return {**self.parameters, **self._stages.at(0)}

    def see_changes(self) -> None:
        """End the process if it would train with other values than it is said to."""
        if self.changes:
            told = ", ".join(map(str, self.changes.values()))
            detail = f"an extension cannot set {told}: {_NOT_IN_EFFECT}"
            self.failed("restore", detail, detail)
            os._exit(1)

    def restored(self) -> None:
        """The program is where its checkpoint was taken: its output is new from here on."""
        self.see_changes()
        self.is_returning, self._is_back = False, True
        if self.is_aside:
            return
        if self._turn != NO_LIMIT:
            self._put(self.page.step)
        _flush_output()
        self._mailbox.send({"kind": "restored"})
        # The host answers when it has read what was printed before: only then may more come.
        self._mailbox.wait_for("restored")

    def passes_training(self) -> None:
        """The program trains, or has passed what it had trained before its checkpoint."""

    def loop(self, inside: bool) -> None:
        """Say whether boundaries are to be expected from here on."""
        if inside and self._began and not self.page.looping:
            self.begins_pass()
        self.page.looping = inside
        if inside and not self._began:
            self._began = True
            self._report_no_more()
            self.reporter.side.forget(FOUND)  # in what was printed before it trained
            self.reporter.side.gather(self.page.step)
            self.reporter.restart()
            self.reporter.due = 0.0  # a quantum begins with the first step that is heard of
            self._mailbox.send({"kind": "begun", "step": self.page.step})

    def begins_pass(self) -> None:
        """Another epoch, or pass over the data, begins: what is done between two of them is."""
        self.look_beside(is_last=False)  # what was written after the pass is of its last step
        self.reporter.begins_pass(self.page.step)

    def record(self, step: int, metrics: Metrics, examples: int = 0) -> None:
        """Keep the values of one iteration (or of an epoch, under its last step)."""
        self.reporter.record(step, metrics, examples)

    def record_signal(self, step: int, value: Any, examples: int = 0) -> None:
        """As `record` of one iteration that has no value but the signal's, which is a number."""
        self.reporter.record_signal(step, value, examples)

    def note(
        self,
        values: Mapping[str, float],
        source: int = TOLD,
        counter: tuple[int, int] | None = None,
    ) -> None:
        """Keep metrics that the program tells by itself, wherever it is, maybe beside a counter of
        its steps; see `side_metrics`.

        What it tells again on its way back to a checkpoint was told before.
        """
        if self.is_aside or not self._is_back or not values:
            return
        is_main = threading.current_thread() is threading.main_thread()
        if source == FOUND and not is_main:
            source = SAMPLED
        step = self.page.step + self.is_midway()
        if self._counts_rounds:
            # What it prints and writes to a file as well begins one step, not two.
            if not (values := self.reporter.side.unclaimed(values, source)):
                return
            step = self._round_of(values, counter)
        self.reporter.side.add(step, values, source)
        # Within a loop that comes with the next boundary, before one with the first.
        awaits_boundary = self.page.looping or not (self._began or self._is_blind)
        is_due = not awaits_boundary and time.monotonic() >= self.reporter.due
        if is_due and is_main:
            self.report_if_free()
        elif not awaits_boundary:
            self._report_soon()

    @property
    def _counts_rounds(self) -> bool:
        """Whether it has shown no boundary: its steps are then the rounds of what it tells."""
        is_known = self._is_blind or self.is_the_program
        return is_known and self.restore is None and not self._began

    def _round_of(self, names: Iterable[str], counter: tuple[int, int] | None) -> int:
        """The step of what is told now by a program that has shown no boundary. One that uses a
        framework may still come to its first: it is blind once it has told the same for long."""
        step = self._rounds.step_of(names, counter)
        if not self._is_blind:
            self._told_since = self._told_since or time.monotonic()
            is_long = time.monotonic() - self._told_since >= _FIRST_BOUNDARY_SECONDS
            if is_long and step > 1:
                self.shows_none(_SHOWS_NONE)
        if self._is_blind:
            self.page.step = step
            # Whoever interrupts what is being sent waits for the next one.
            is_new = self._rounds.length != self._told_length
            if is_new and self._rounds.length and not self._mailbox.is_sending:
                self._told_length = self._rounds.length
                self.planned(self._rounds.length)
        return step

    def _report_soon(self) -> None:
        """Report when the next report is due: the program may come to nothing more for long."""
        if self._late is not None and self._late.is_alive():
            return
        if self._is_blind and not self._began:
            late: threading.Timer = _Clock(_FIRST_LOOK_SECONDS, self._look_around)
        else:
            seconds = max(0.0, self.reporter.due - time.monotonic())
            late = threading.Timer(seconds, self._report_late)
        late.daemon = True
        with contextlib.suppress(RuntimeError):  # there are too many, or the interpreter ends
            late.start()
            self._late = late

    def _report_late(self) -> None:
        if not (self.page.looping or self.is_aside):
            self.reporter.report()

    def _look_around(self) -> None:
        with contextlib.suppress(Exception):  # the program goes on without its metrics
            self.look_beside(is_last=False)
            self._report_late()

    def _report_no_more(self) -> bool:
        """Have no thread of ours that is about to report; whether there was one."""
        late, self._late = self._late, None
        if late is None or not late.is_alive():
            return False
        late.cancel()
        late.join()
        return True

    def forks(self) -> None:
        """The program is about to fork: Python warns of that where there are other threads, and
        what they hold at that moment is held for ever in the new process."""
        if self._report_no_more() and not self._mailbox.is_sending:
            self.look_beside(is_last=False)
            self.reporter.report()

    def goes_on(self) -> None:
        """The program begins, or has forked: one that shows no boundaries is looked at by the
        clock, for the rows that it adds to its files."""
        if self._is_blind and not self._began and not self.is_aside:
            self._report_soon()

    def boundary(self, step: int) -> None:
        """Between two iterations: `step` are done. May hold, save and report here."""
        words64 = self._words64
        words64[1] = step
        if self._words32[0] != self._mailbox.read or step >= words64[2] or step >= self._nearest:
            self._attend(step)
        elif time.monotonic() >= self.reporter.due:
            self._rehearse()
            self.look_beside(is_last=False)
            self.reporter.report()

    def report(self, at: int | None = None) -> None:
        """Send what has been recorded since the last report; if it is nothing, `at` which step."""
        self.look_beside()
        self.reporter.report(at)

    def look_beside(self, is_last: bool = True) -> None:
        """Note what metrics the program has written elsewhere by now; where it is not the last time
        before it may go away, in little time."""

    def report_if_free(self) -> None:
        """As `report`, unless this process is amid sending something else: it may have been
        interrupted there, by a signal handler that ends it."""
        if not self._mailbox.is_sending:
            self.report()

    def save_if_cheap(self, id: str) -> bool:
        """Copy progress here and write it as checkpoint `id` in the background, if the newest
        checkpoint is so old that this takes little of the program's time; whether it is."""
        is_cheap = self._saver.is_cheap
        if is_cheap:
            self._save({"id": id, "wait": False})
        return is_cheap

    def step_aside(self) -> None:
        """This process was forked by the program: it goes its own way."""
        page = ControlPage.create()
        page.step, page.looping, page.mail = self.page.step, self.page.looping, self._mailbox.read
        self.page = page
        self._words32, self._words64 = page.words32, page.words64
        self.restore, self.is_aside, self.changes, self._turn = None, True, {}, NO_LIMIT
        self._nearest = NO_LIMIT
        self._mailbox.fall_silent()

    # The end of the program.

    def completed(self, exit_code: int) -> None:
        """The program ended well: last report, last checkpoint, last values."""
        if self.is_returning:
            self.failed("restore", NOT_RETURNED, NOT_RETURNED)
            return
        self.closing(well=True)
        values = self.reporter.last_values
        self._mailbox.send(
            {
                "kind": "completed",
                "exit_code": exit_code,
                "checkpoint": self._saver.last,
                "metrics": {name: number(value) for name, value in values.items()},
            }
        )

    def closing(self, well: bool) -> None:
        """The program is about to exit, as far as it knows well: send and save what is left."""
        self._ends()
        self._saver.join()
        if well:
            self._save_end()

    def _ends(self) -> None:
        """No boundary comes any more: tell what is left."""
        self.page.looping = False
        self._report_no_more()
        if self._counts_rounds and not self.is_aside:
            self._is_blind, self.page.step = True, self._rounds.step
        self.report()

    def _save_end(self) -> None:
        """Save what the last step led to, unless that is done; that it cannot be saved is no
        failure of what was trained. Each of several processes saves its own, and the host makes one
        checkpoint of that."""
        if self.is_aside:
            return
        found = None
        if self.end is not None:
            try:
                found = self.end()
            except CannotCapture as error:
                self.lacks(NOT_FURTHER, str(error))
        if found is None:
            self._save_result()
            return
        step, capture = found
        last, id = self._saver.last, f"end-s{step}"
        is_saved = last is not None and last["step"] == step and not self.ends_otherwise
        if is_saved and not self.several:
            return
        later = {} if self.result_step is None else {"result_step": self.result_step}
        request = {"id": id, "wait": True, "is_part": self.several}
        self._write(request, lambda: capture, step, later)

    def _save_result(self) -> None:
        """Save what people load, if the program can't go on from its end."""
        step, last = self.page.step, self._saver.last
        if self.result is None or (last is not None and last["step"] == step):
            return
        if (result := self.result()) is not None:
            form = {"form": "result"}
            self._write({"id": f"result-s{step}", "wait": True}, lambda: result, step, form)

    def failed(self, error_kind: str, detail: str, signature: str) -> None:
        """The program ended badly; before it was restored, that is what failed."""
        if self.is_returning:
            error_kind = "restore"
        self._ends()
        self._mailbox.send(
            {
                "kind": "failed",
                "error_kind": error_kind,
                "detail": detail[-4000:],
                "error_signature": signature[:500],
                # Of several processes, one fails and the others do for its sake.
                **({"failed_at": time.clock_gettime(time.CLOCK_BOOTTIME)} if self.several else {}),
            }
        )

    # At a boundary with something to do.

    def _attend(self, step: int) -> None:
        """Read what the host has sent; report at a mark, hold if told so or at the limit."""
        self._rehearse()
        # First: a suspend at this boundary would take its place.
        if step >= self._turn and self._stages.forks(self._turn, step):
            self._fork(step)
        while self._mailbox.read != self._words32[0]:
            message = self._mailbox.next()
            if message["kind"] == "suspend":
                self._hold(step, "request")
            elif message["kind"] == "report":
                self.report(at=step)
            elif message["kind"] == "halt":
                self._halt_at(message["at"])
            elif message["kind"] == "save":
                self._save(message)
        if step >= self.page.mark:
            self.page.mark = NO_LIMIT
            self.report(at=step)
        if step >= self.page.limit:
            self._hold(step, "limit")
        elif step >= self.page.halt:
            self._hold(step, "request")
        # Last: what is saved at this boundary is of the stage that ends here, whichever comes next.
        if step >= self._turn:
            self._put(step)

    def _fork(self, step: int) -> None:
        """Have a checkpoint written from which other trials go on. Where it can make none and paths
        part, the host may do better, by an image of this process, which waits for that. And where
        it is one of several processes, it waits for the others: the checkpoint is of all."""
        id = f"a{self.attempt}-fork-s{step}"
        makes_none = self.level == "park-only" or self.capture is None
        if self.several or (makes_none and self._stages.part(step)):
            self._hold(step, FORK, id=id)
        else:
            self._save({"id": id, "wait": True, "is_fork": True})

    def _goes_on_as(self, told: Message) -> None:
        """This process was brought back from an image of it, be it as another trial: one whose
        stages are others from here on, or hyper-parameters that can be put into effect."""
        then, self.parameters = self.parameters, dict(told["parameters"])
        self.trial, self._stages = told["trial"], Stages(told["stages"], told["checkpoint_steps"])
        self._turn = self._nearest = 0
        self.changes = {
            name: Change(name, then.get(name), value)
            for name, value in self.parameters.items()
            if name not in self._stages.names and (name not in then or then[name] != value)
        }
        for name, change in list(self.changes.items()):
            if name in self.setters:
                self.setters[name](change.now)
                del self.changes[name]
            # What the explicit interface is given, the program may have read long before.
            elif self.framework != "explicit" and self._why_not_put(name, change.now) is None:
                del self.changes[name]
        self.see_changes()

    def _put(self, step: int) -> None:
        """Have the next iteration train with the values of its stage, or end the process: no step
        is trained under a value that is not true of it."""
        values = self._stages.at(step)
        missed = self._stages.ended(self._turn, step) if self._turn else None
        if missed is not None and self._stages.at(missed) != self._in_force:
            self.cannot_put(f"{self._stages.names[0]} at step {missed}", _NO_BOUNDARY)
        for name, value in values.items() if values != self._in_force else ():
            if name in self.setters:
                self.setters[name](value)
            elif (why := self._why_not_put(name, value)) is not None:
                why += _WHAT_IS_SET.format(name)
                self.cannot_put(f"{name} to {value} at step {step}", why)
        self._in_force = values
        turn = self._stages.turn(step)
        self._turn = NO_LIMIT if turn is None else turn
        self._nearest = min(self._turn, self.page.halt)

    def put_again(self, step: int) -> None:
        """Another part of the program trains from here on: put into effect what is, if anything."""
        if self._in_force is not None:
            self._in_force = None
            self._put(step)

    def _why_not_put(self, name: str, value: Any) -> str | None:
        """Put a value into effect; why it isn't."""
        try:
            return None if self.put is not None and self.put(name, value) else _NOT_TAKEN
        except CannotPut as error:
            return str(error)

    def cannot_put(self, what: str, why: str) -> None:
        """End the process, which would train on under another value."""
        detail = f"a sequence cannot set {what}: {why}"
        self.failed("exception", detail, f"a sequence cannot be put into effect: {why}")
        os._exit(1)

    def _rehearse(self) -> None:
        """Have progress copied once, at the first boundary: what stands in a checkpoint's way is
        told before anybody counts on one. Adapters lower the fidelity for it."""
        if self._was_copied or self.capture is None or self.is_aside:
            return
        self._was_copied = True
        with contextlib.suppress(Exception):  # whatever is wrong, it trains
            self.capture()

    def _halt_at(self, step: int) -> None:
        self.page.halt = step
        self._nearest = min(self._turn, step)

    def _hold(self, step: int, cause: str, **more: Any) -> None:
        """Wait at this boundary until told to go on, be it for a few steps, to where the other
        processes of the trial can hold as well. The host stops every thread meanwhile."""
        self.report()
        _flush_output()
        self.before_hold()
        self._mailbox.send({"kind": "at_boundary", "step": step, "cause": cause, **more})
        while True:
            message = self._mailbox.next()
            if message["kind"] == "resume":
                break
            # Where others go on from, it waits until the host has had its checkpoint.
            if message["kind"] == "halt" and message["at"] > step and cause != FORK:
                if step < self.page.limit:
                    self._halt_at(message["at"])
                    self.reporter.restart()
                    return
                self._mailbox.send({"kind": "at_boundary", "step": step, "cause": cause})
            if message["kind"] == "save":
                self._save(message)
        self._halt_at(NO_LIMIT)
        self.attempt = message["attempt"]
        if "stages" in message:
            self._goes_on_as(message)
        self.reporter.restart()
        self._mailbox.send({"kind": "resumed", "step": step})

    def _save(self, request: Message) -> None:
        if self.capture is None:
            self._saver.cannot(request["id"], self.reason)
        else:
            is_fork = {"is_fork": True} if request.get("is_fork") else None
            self._write(request, self.capture, self.page.step, is_fork)

    def _write(
        self,
        request: Message,
        take: Callable[[], Capture],
        step: int,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a checkpoint, whose manifest says `more`."""
        if self.is_aside:
            return
        fields = {
            "trial": self.trial,
            "attempt": self.attempt,
            "step": step,
            "framework": self.framework,
            "fidelity": self.level,
            "reason": self.reason,
            "clock": wallclock_replay.given(),
            "temporary": temporary_paths.given(),
            "parameters": self.parameters,
            "metrics": dict(self.reporter.side.sources),
            **(more or {}),
        }
        # What goes on from a checkpoint does not report again what came before it.
        self.report()
        _flush_output()
        self._mailbox.send({"kind": "saving", "id": request["id"]})
        if ranks := request.get("ranks"):
            alone = take
            take = lambda: WithRanks(alone(), ranks)  # noqa: E731
        is_part = bool(request.get("is_part"))
        self._saver.save(request["id"], take, fields, request["wait"], is_part)


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or something of the program's own
            stream.flush()
