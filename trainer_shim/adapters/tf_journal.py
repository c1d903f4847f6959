"""What a program has learnt from its framework, in order, so that it can be told again.

Rule: run again from its first line, a program asks the same questions in the same order; an
answer is what a step returned, or a value that the program read between two steps. An answer
costs four bytes and its values; nothing is kept that the program was not given.
"""

from __future__ import annotations

import array
from collections.abc import Iterable, Sequence
from typing import Any

from trainer_shim.adapters import tf_store as store
from trainer_shim.adapters.tf_store import Kind, OtherProgram

LIMIT_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20
# Tensors are kept as they come, and looked at when so many wait: no step waits for its results.
_WAITING, _WAITING_BYTES = 256, 16 << 20

# What was asked (a step's name, a variable), the exception if one was the answer, else the kinds.
Row = tuple[str, str, tuple[Kind, ...]]


class Answer:
    """What the program was given: values, or an exception called `error`."""

    __slots__ = ("error", "values")

    def __init__(self, error: str, values: list[Any]) -> None:
        self.error = error
        self.values = values


class Journal:
    """Answers in order: first those of before the checkpoint are told again."""

    def __init__(self, rows: Any = None, codes: bytes = b"", values: bytes = b"") -> None:
        self._rows: dict[Row, int] = {}
        self._listed: list[Row] = []
        self._codes = array.array("I")
        self._sizes = array.array("I")  # in bytes, of the answers of this process
        self._values = [values]
        self._tail = bytearray()
        self._waiting: list[tuple[str, Sequence[Any]]] = []
        self._waiting_bytes = 0
        self._past = memoryview(values)
        self._told = 0
        self._told_bytes = 0
        self.bytes = len(codes) + len(values)
        for asked, error, kinds in rows or ():
            self._code((asked, error, tuple((name, tuple(shape)) for name, shape in kinds)))
        self._codes.frombytes(codes)
        self._again = len(self._codes)

    # -- telling again ---------------------------------------------------------------------------

    @property
    def is_telling(self) -> bool:
        """Whether there are answers of before the checkpoint left."""
        return self._told < self._again

    @property
    def next_asked(self) -> str:
        """What the next answer is to."""
        return self._listed[self._codes[self._told]][0]

    def tell(self, asked: str) -> Answer:
        """The next answer. Raises OtherProgram if it was to another question."""
        then, error, kinds = self._listed[self._codes[self._told]]
        if then != asked:
            place = f"answer {self._told + 1} of {self._again}"
            raise OtherProgram(f"the program asked for {asked}, before for {then} ({place})")
        self._told += 1
        values = []
        for kind in kinds:
            value, size = store.from_bytes(kind, self._past[self._told_bytes :])
            values.append(value)
            self._told_bytes += size
        return Answer(error, values)

    # -- keeping ---------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many answers the program has been given."""
        return self._told + len(self._sizes) + len(self._waiting)

    def answered(self, asked: str, values: Sequence[Any], size: int = 0) -> None:
        """The program was given these values, arrays or tensors, of about `size` bytes."""
        self._waiting.append((asked, values))
        self._waiting_bytes += size
        if len(self._waiting) >= _WAITING or self._waiting_bytes >= _WAITING_BYTES:
            self.settle()

    def raised(self, asked: str, error: str) -> None:
        """The program was given an exception."""
        self.settle()
        self._keep((asked, error, ()), ())

    def settle(self) -> None:
        """Turn into bytes what came in since the last time."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for asked, values in waiting:
            pairs = [store.kind_and_bytes(value) for value in values]
            self._keep((asked, "", tuple([kind for kind, _ in pairs])), [one for _, one in pairs])

    def copy(self, count: int) -> tuple[list[Row], bytes, bytes]:
        """What makes this journal again, less what came after the first `count` answers."""
        self.settle()
        if self._tail:
            self._values.append(bytes(self._tail))
            self._tail.clear()
        self._values = [b"".join(self._values)]
        values, later = self._values[0], sum(self._sizes[count - self._again :])
        return list(self._listed), self._codes[:count].tobytes(), values[: len(values) - later]

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
