"""The agent: what runs inside the training process, between its iterations.

Rule: at a boundary the fast path is one load of the shared page and two comparisons. Values
are kept as they come (a tensor stays one) and turned into numbers when a report is due, at
most once a second and before every hold, so that training is never made to wait for them.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Callable, Protocol

from trainer_shim import snapshot, wire
from trainer_shim.page import Page
from trainer_shim.report import numbers, summarise, thin_keeping_rich
from trainer_shim.wire import Message, number, receive, send

REPORT_SECONDS = 1.0
_HOST_GONE = 75
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Metrics = Mapping[str, Any]


class Capture(Protocol):
    """Progress at a boundary: what changes afterwards is kept by `prepare`, in the program's
    own time; the rest is written while training goes on."""

    def prepare(self, builder: snapshot.Builder) -> None:
        """Copy, or write, what the next iteration would change."""

    def write(self, builder: snapshot.Builder) -> None:
        """Write the files of the checkpoint."""


class CannotCapture(Exception):
    """The program's progress cannot be saved here; the message says why."""


class Agent:
    """One training process's end of the channel to its host."""

    def __init__(
        self,
        channel: socket.socket,
        page: Page,
        trial: str,
        attempt: int,
        checkpoints: str,
        signal: str = "loss",
        parameters: Mapping[str, Any] | None = None,
        seed: int | None = None,
        restore: str | None = None,
    ) -> None:
        self.channel = channel
        self.page = page
        self.trial = trial
        self.attempt = attempt
        self.checkpoints = checkpoints
        self.signal = signal
        self.parameters = dict(parameters or {})
        self.seed = seed
        self.restore = restore
        self.capture: Callable[[], Capture] | None = None
        self.framework = "none"
        self.level, self.reason = "park-only", "no boundaries seen yet"
        self.last_values: dict[str, Any] = {}
        self.last_checkpoint: Message | None = None
        # Run again from its first line, the program has not come to its checkpoint's place yet.
        self.is_returning = False
        self._began = False
        self._mail_read = 0
        self._early: list[Message] = []
        self._words32, self._words64 = page.words32, page.words64
        self._waiting: list[tuple[int, Metrics]] = []
        self._examples = 0
        self._report_due = 0.0
        self._busy_since = time.monotonic()
        self._cpu_then = time.process_time()
        self._sending = threading.Lock()
        self._writer: threading.Thread | None = None

    # -- what adapters call --------------------------------------------------------------------

    def hello(self, framework: str) -> None:
        """Tell the host that this program has boundaries, or will have."""
        self.framework = framework
        self._send({"kind": "hello", "framework": framework})

    def executing(self) -> None:
        """The process is about to become a program that the agent is not in."""
        self._send({"kind": "executing"})

    def fidelity(self, level: str, reason: str) -> None:
        """Say how true a resume from a checkpoint is, when that is new."""
        if (level, reason) != (self.level, self.reason):
            self.level, self.reason = level, reason
            self._send(
                {
                    "kind": "fidelity",
                    "level": level,
                    "reason": reason,
                    "framework": self.framework,
                }
            )

    def planned(self, steps: int) -> None:
        """Tell the planned length of the trial in steps."""
        self._send({"kind": "planned", "steps": steps})

    def restored(self) -> None:
        """The program is where its checkpoint was taken: its output is new from here on."""
        _flush_output()
        self._send({"kind": "restored"})
        # The host answers when it has read what was printed before: only then may more come.
        early = []
        while (message := self._next())["kind"] != "restored":
            early.append(message)
        self._early += early
        self._mail_read -= len(early)

    def loop(self, inside: bool) -> None:
        """Say whether boundaries are to be expected from here on."""
        self.page.looping = inside
        if inside and not self._began:
            self._began = True
            self._busy_since = time.monotonic()
            self._report_due = self._busy_since + REPORT_SECONDS
            self._send({"kind": "begun", "step": self.page.step})

    def record(self, step: int, metrics: Metrics, examples: int = 0) -> None:
        """Keep the values of one iteration (or of an epoch, under its last step)."""
        self._waiting.append((step, metrics))
        self._examples += examples

    def boundary(self, step: int) -> None:
        """Between two iterations: `step` are done. May hold, save and report here."""
        words64 = self._words64
        words64[1] = step
        if self._words32[0] != self._mail_read or step >= words64[2]:
            self._attend(step)
        elif time.monotonic() >= self._report_due:
            self.report()

    def report(self) -> None:
        """Send what has been recorded since the last report."""
        now, cpu = time.monotonic(), time.process_time()
        busy, cpu_spent = now - self._busy_since, cpu - self._cpu_then
        self._busy_since, self._cpu_then = now, cpu
        self._report_due = now + REPORT_SECONDS
        waiting, self._waiting = self._waiting, []
        examples, self._examples = self._examples, 0
        if not waiting:
            return
        points: dict[int, dict[str, float]] = {}
        signal: list[float] = []
        for step, metrics in waiting:
            values = numbers(metrics)
            if self.signal in values:
                signal.append(values[self.signal])
            points.setdefault(step, {}).update(values)
            self.last_values.update(values)
        message = {
            "kind": "reported",
            "first_step": waiting[0][0],
            "last_step": waiting[-1][0],
            "count": len(points),
            "signal": summarise(signal),
            "busy_seconds": busy,
            "examples": examples,
            "memory_bytes": _memory_bytes(),
            "cpu_seconds": cpu_spent,
        }
        listed = [
            [step, {name: number(value) for name, value in found.items()}]
            for step, found in points.items()
        ]
        self._send_points(message, thin_keeping_rich(listed))

    def save_now(self, id: str) -> None:
        """Copy progress here and write it as checkpoint `id` in the background."""
        self._save({"id": id, "wait": False, "output_bytes": 0})

    def completed(self, exit_code: int) -> None:
        """The program ended well: last report, last checkpoint, last values."""
        if self.is_returning:
            detail = "the program ended before it came to where its checkpoint was taken"
            self.failed("restore", detail, detail)
            return
        self.closing()
        self._send(
            {
                "kind": "completed",
                "exit_code": exit_code,
                "checkpoint": self.last_checkpoint,
                "metrics": {name: number(value) for name, value in self.last_values.items()},
            }
        )

    def closing(self) -> None:
        """The program is about to exit, how is not known yet: send what is left."""
        self.page.looping = False
        self.report()
        self._join_writer()

    def failed(self, error_kind: str, detail: str, signature: str) -> None:
        """The program ended badly; before it was restored, that is what failed."""
        if self.is_returning:
            error_kind = "restore"
        self.page.looping = False
        self.report()
        self._send(
            {
                "kind": "failed",
                "error_kind": error_kind,
                "detail": detail[-4000:],
                "error_signature": signature[:500],
            }
        )

    # -- at a boundary with something to do ------------------------------------------------------

    def _attend(self, step: int) -> None:
        """Read what the host has sent; hold if it says so, or if the limit is reached."""
        while self._mail_read != self._words32[0]:
            message = self._next()
            if message["kind"] == "suspend":
                self._hold(step, "request")
            elif message["kind"] == "save":
                self._save(message)
        if step >= self._words64[2]:
            self._hold(step, "limit")

    def _hold(self, step: int, cause: str) -> None:
        """Wait at this boundary until told to go on. The host stops every thread meanwhile."""
        self.report()
        _flush_output()
        self._send({"kind": "at_boundary", "step": step, "cause": cause})
        while True:
            message = self._next()
            if message["kind"] == "resume":
                break
            if message["kind"] == "save":
                self._save(message)
        self.attempt = message["attempt"]
        self._busy_since, self._cpu_then = time.monotonic(), time.process_time()
        self._report_due = self._busy_since + REPORT_SECONDS
        self._send({"kind": "resumed", "step": step})

    def _save(self, request: Message) -> None:
        began = time.monotonic()
        id = request["id"]
        self._join_writer()
        if self.capture is None:
            self._send({"kind": "checkpoint_failed", "id": id, "reason": self.reason})
            return
        try:
            builder = snapshot.Builder(self.checkpoints, id)
            capture = self.capture()
            capture.prepare(builder)
        except (CannotCapture, snapshot.SnapshotError, OSError) as error:
            self._send({"kind": "checkpoint_failed", "id": id, "reason": str(error)})
            return
        fields = {
            "trial": self.trial,
            "attempt": self.attempt,
            "step": self.page.step,
            "framework": self.framework,
            "fidelity": self.level,
            "reason": self.reason,
            "output_bytes": request["output_bytes"],
        }
        stall = time.monotonic() - began
        if request["wait"]:
            self._write(builder, capture, fields, began, None)
        else:
            arguments = (builder, capture, fields, began, stall)
            self._writer = threading.Thread(target=self._write, args=arguments)
            self._writer.start()

    def _write(
        self,
        builder: snapshot.Builder,
        capture: Capture,
        fields: Message,
        began: float,
        stall: float | None,
    ) -> None:
        try:
            capture.write(builder)
            summary = builder.finish(fields)
        except OSError as error:
            reason = f"writing {builder.path}: {error.strerror}"
            self._send({"kind": "checkpoint_failed", "id": builder.id, "reason": reason})
            return
        seconds = time.monotonic() - began
        self.last_checkpoint = summary
        cost = {"seconds": seconds, "stall_seconds": seconds if stall is None else stall}
        self._send({"kind": "checkpointed", **summary, **cost})

    def _join_writer(self) -> None:
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    # -- the channel -----------------------------------------------------------------------------

    def _next(self) -> Message:
        message: Message | None
        try:
            message = self._early.pop(0) if self._early else receive(self.channel)
        except OSError:
            message = None
        if message is None:
            os._exit(_HOST_GONE)  # nobody keeps the lease: training on would be unsupervised
        self._mail_read += 1
        return message

    def _send(self, message: Message) -> None:
        with self._sending:
            try:
                send(self.channel, message)
            except OSError:
                os._exit(_HOST_GONE)

    def _send_points(self, message: Message, points: list[Any]) -> None:
        """Send a report, in several frames if its points do not fit one."""
        whole = {**message, "points": points}
        if wire.fits(whole):
            self._send(whole)
        elif len(points) < 2:
            self._send({**message, "points": []})
        else:
            half = len(points) // 2
            nothing = {"busy_seconds": 0.0, "examples": 0, "cpu_seconds": 0.0, "count": 0}
            later = {**message, **nothing, "signal": summarise([])}
            self._send_points({**message, "last_step": points[half - 1][0]}, points[:half])
            self._send_points({**later, "first_step": points[half][0]}, points[half:])


def _memory_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


_current: Agent | None = None


def install(agent: Agent) -> None:
    """Make `agent` the one of this process."""
    global _current
    _current = agent


def current() -> Agent | None:
    """The agent of this process; None without Hermes."""
    return _current
