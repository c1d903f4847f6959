"""What a program has been told by its framework, in order, so that it can be told again.

When it is run again from its first line, a program does the same training steps in the same order.
An answer is what a step returned, or a value that the program read between two steps. When it reads
may depend on the clock, but one read more or less between two steps changes no step. An answer
costs four bytes and its values; nothing is kept that the program was not given.
"""

from __future__ import annotations

import array
import collections
import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from trainer_shim.adapters.tensorflow import store
from trainer_shim.adapters.tensorflow.store import Kind
from trainer_shim.saver import OtherProgram

LIMIT_BYTES = 1 << 30
STEP = "step "  # what a training step is asked as begins so, where looks are told from steps
_CHUNK_BYTES = 1 << 20
# Tensors are kept as they come, and looked at when so many wait: no step waits for its results.
_WAITING, _WAITING_BYTES = 256, 16 << 20

# What was asked (a step's name, a variable), the exception if one was the answer, else the kinds.
Row = tuple[str, str, tuple[Kind, ...]]


class Scalars:
    """What a step that returns single numbers, always of these kinds, is journaled as.

    `size` is theirs in bytes.
    """

    __slots__ = ("row", "size")

    def __init__(self, asked: str, kinds: tuple[Kind, ...], size: int) -> None:
        self.row: Row = (asked, "", kinds)
        self.size = size


class Answer:
    """What the program was given: values, or an exception called `error`."""

    __slots__ = ("error", "values")

    def __init__(self, error: str, values: list[Any]) -> None:
        self.error = error
        self.values = values


class ReplayJournal:
    """Answers in order: first those of before the checkpoint are told again."""

    def __init__(self, rows: Any = None, codes: bytes = b"", values: bytes = b"") -> None:
        self._rows: dict[Row, int] = {}
        self._listed: list[Row] = []
        self._codes = array.array("I")
        self._sizes = array.array("I")  # in bytes, of the answers of this process
        self._values = [values]
        self._tail = bytearray()
        # Not in pairs: whatever is made for a step, Python's collector of garbage looks through.
        self._asked: list[str | Scalars] = []
        self._answers: list[Sequence[Any]] = []
        self._waiting_bytes = 0
        self._past = memoryview(values)
        self._told = 0
        self._told_bytes = 0
        self.bytes = len(codes) + len(values)
        for asked, error, kinds in rows or ():
            self._code((asked, error, tuple((name, tuple(shape)) for name, shape in kinds)))
        self._codes.frombytes(codes)
        self._again = len(self._codes)
        self.is_telling = self._again > 0  # whether there are answers of before the checkpoint left
        self.count = 0  # how many answers the program has been given
        self.is_off_beat = False  # whether the program has looked at other moments than before
        # What was looked at between the last step and the next one, and what is now.
        self._seen: dict[str, collections.deque[Answer]] = {}
        self._order: list[str] = []
        self._looked: list[str] = []

    # Telling again.

    def _tell(self, asked: str) -> Answer:
        """The next answer. Raises OtherProgram if it was to another question."""
        then, error, kinds = self._listed[self._codes[self._told]]
        if then != asked:
            place = f"answer {self._told + 1} of {self._again}"
            raise OtherProgram(f"the program asked for {asked}, at first for {then} ({place})")
        self._told += 1
        self.count += 1
        self.is_telling = self._told < self._again
        values = []
        for kind in kinds:
            value, size = store.from_bytes(kind, self._past[self._told_bytes :])
            values.append(value)
            self._told_bytes += size
        return Answer(error, values)

    def tell_step(self, asked: str) -> Answer:
        """The answer to a training step, whether or not all was looked at that was before it.

        Raises OtherProgram if another step is due.
        """
        self._tell_looks()
        self.is_off_beat |= self._looked != self._order
        self._seen, self._order, self._looked = {}, [], []
        return self._tell(asked)

    def tell_look(self, asked: str) -> Answer | None:
        """What the program saw between these two steps, in turn if it looked more than once; None
        if it did not look at this."""
        self._tell_looks()
        self._looked.append(asked)
        answers = self._seen.get(asked)
        if answers is None:
            return None
        answers.rotate(-1)
        return answers[-1]

    def _tell_looks(self) -> None:
        while self.is_telling:
            asked = self._listed[self._codes[self._told]][0]  # what the next answer is to
            if asked.startswith(STEP):
                break
            self._order.append(asked)
            self._seen.setdefault(asked, collections.deque()).append(self._tell(asked))

    # Keeping.

    def answered(self, asked: str | Scalars, values: Sequence[Any], size: int = 0) -> None:
        """The program was given these values, arrays or tensors, of about `size` bytes."""
        self.count += 1
        self._asked.append(asked)
        self._answers.append(values)
        self._waiting_bytes += size
        if len(self._asked) >= _WAITING or self._waiting_bytes >= _WAITING_BYTES:
            self.settle()

    def raised(self, asked: str, error: str) -> None:
        """The program was given an exception."""
        self.settle()
        self.count += 1
        self._keep((asked, error, ()), ())

    def settle(self) -> None:
        """Turn into bytes what came in since the last time."""
        waiting = zip(self._asked, self._answers)
        self._asked, self._answers, self._waiting_bytes = [], [], 0
        for asked, group in itertools.groupby(waiting, operator.itemgetter(0)):
            if isinstance(asked, Scalars):
                self._keep_scalars(asked, [values for _, values in group])
                continue
            for _, values in group:
                pairs = [store.kind_and_bytes(value) for value in values]
                row = (asked, "", tuple([kind for kind, _ in pairs]))
                self._keep(row, [one for _, one in pairs])

    def copy(self, count: int) -> tuple[list[Row], bytes, bytes]:
        """What makes this journal again, less what came after the first `count` answers."""
        self.settle()
        if self._tail:
            self._values.append(bytes(self._tail))
            self._tail.clear()
        self._values = [b"".join(self._values)]
        values, later = self._values[0], sum(self._sizes[count - self._again :])
        return list(self._listed), self._codes[:count].tobytes(), values[: len(values) - later]

    def _keep_scalars(self, scalars: Scalars, answers: list[Sequence[Any]]) -> None:
        """Keep many answers to one question: the bytes of tensors, taken as they lie there."""
        values = b"".join([value for answer in answers for value in answer])
        count = len(answers)
        self._codes.extend([self._code(scalars.row)] * count)
        self._sizes.extend([scalars.size] * count)
        self._tail += values
        self.bytes += 4 * count + len(values)

    def _keep(self, row: Row, values: Iterable[Any]) -> None:
        self._codes.append(self._code(row))
        size = 0
        for value in values:
            self._tail += value
            size += len(value)
        self._sizes.append(size)
        self.bytes += 4 + size
        if len(self._tail) >= _CHUNK_BYTES:
            self._values.append(bytes(self._tail))
            self._tail.clear()

    def _code(self, row: Row) -> int:
        code = self._rows.setdefault(row, len(self._listed))
        if code == len(self._listed):
            self._listed.append(row)
        return code
