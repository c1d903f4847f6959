"""The metrics of a program without an agent, from what it prints and from the rows that it adds to
its files. Its host reads them as an agent reads those of a Python script without a framework: a
step begins each time that a metric is reported again.

A shell script may still start a Python that has an agent. So nothing is reported in the first
seconds, unless the program is stopped or ends; and once an agent speaks, only that one counts.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Mapping
from typing import Callable

from trainer_shim.channel.frames import Message
from trainer_shim.host.event_log import boottime
from trainer_shim.host.output import Output
from trainer_shim.metrics.files import GrowingFiles
from trainer_shim.metrics.lines import LineReader
from trainer_shim.reporting import REPORT_SECONDS, MetricNames, Reporter
from trainer_shim.side_metrics import SAMPLED, Rounds
from trainer_shim.spec import Spec

_FIRST_SECONDS = 10.0
_LOOK_SECONDS = 0.25  # between two looks at the files, until then
_MOST_STEPS = 10_000  # that are kept until they are reported
# The times of files are of a clock that ticks, some milliseconds behind.
_CLOCK_SECONDS = 0.02


class AgentlessMetrics:
    """What one program has told since `began_at`, in boot-time seconds, when it was at `step`.

    `tell` is given each report, without what the program has used; `plan` how many steps there will
    be, once the program shows that.
    """

    def __init__(
        self,
        spec: Spec,
        output: Output,
        began_at: float,
        step: int,
        tell: Callable[[Message], None],
        plan: Callable[[int], None],
    ) -> None:
        #: When to look again, in boot-time seconds.
        self.due = began = boottime()
        self._first_report_at = began + _FIRST_SECONDS
        self._rounds = Rounds(step)
        self._reported_step = step
        self._plan = plan
        self._planned: int | None = None
        self._output = output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines = _reader(spec)
        self._left_out = {name.lower() for name in spec.parameters}
        self._files = GrowingFiles(spec.cwd, self._row)
        self._files.begin(time.time() - (boottime() - began_at) - _CLOCK_SECONDS)
        names = MetricNames(spec.signal, lambda _: None)
        self._reporter = Reporter(tell, spec.signal, names)
        output.reader = self._printed

    @property
    def step(self) -> int:
        """How many steps it has told of."""
        return self._rounds.step

    def tick(self) -> None:
        """It is due: a file has to be seen to grow, also before anything is reported."""
        if boottime() >= self._first_report_at:
            self.look()
            return
        self._files.look(is_last=False)
        self.due = boottime() + _LOOK_SECONDS

    def look(self) -> None:
        """Report what there is to tell by now."""
        self._files.look()
        if (length := self._rounds.length) and length != self._planned:
            self._planned = length
            self._plan(length)
        self._reporter.report()
        self._reported_step = self.step
        self.due = boottime() + REPORT_SECONDS

    def end(self) -> None:
        """Somebody else speaks for the program: read no more."""
        self._output.reader = None

    def _printed(self, data: bytes) -> None:
        for values, source in self._lines.read(self._decoder.decode(data)):
            self._note(values, source, self._lines.counter)

    def _row(self, values: Mapping[str, float]) -> None:
        self._note({k: v for k, v in values.items() if k.lower() not in self._left_out}, SAMPLED)

    def _note(
        self,
        values: Mapping[str, float],
        source: int,
        counter: tuple[int, int] | None = None,
    ) -> None:
        # What it prints and writes to a file as well begins one step, not two.
        if not (values := self._reporter.side.unclaimed(values, source)):
            return
        if self.step - self._reported_step >= _MOST_STEPS:
            self._reporter.report()
            self._reported_step = self.step
        self._reporter.side.add(self._rounds.step_of(values, counter), values, source)


def _reader(spec: Spec) -> LineReader:
    try:
        return LineReader(spec.metrics, spec.parameters)
    except re.error:  # a pattern of a newer Python than the program's
        return LineReader(left_out=spec.parameters)
