"""Whether a run reads a variable and updates it in no order.

A graph's operations run as soon as what they depend on is there. A step that fetches a penalty on
the weights, or that computes gradients which an optimizer does not wait for, may read a weight
before or after its update; what it computes then differs from run to run, with all seeds set. The
value of a reference variable is not even copied when it is read: whatever uses it later reads
anew.
Rule: every reader of a variable has to come before each of its updates, or after it, by a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable

_BACK = "NextIteration"  # the edge of a loop in the graph


def unordered(
    ops: Iterable[Any],
    fetches: Iterable[Any],
    writers: Mapping[str, list[Any]],
    variable_of: Callable[[Any], str | None],
) -> str | None:
    """A variable that an operation of `ops` reads and others write, in no order; None if all are
    in order.

    `ops` are all of a run; of those that write, `writers` has the ones of each variable. A fetch
    takes a variable's value whenever it comes to it.
    """
    ops = set(ops)
    for tensor in fetches:
        if (name := variable_of(tensor)) in writers:
            return name
    before = {op: _before(op, ops) for op in ops}
    readers = _readers(ops, writers, variable_of)
    bits: dict[Any, int] = {}
    for op in (*(op for found in writers.values() for op in found), *(op for op, _ in readers)):
        bits.setdefault(op, 1 << len(bits))
    behind = _behind(before, bits)
    for reader, name in readers:
        for writer in writers[name]:
            is_ordered = behind[writer] & bits[reader] or behind[reader] & bits[writer]
            if reader is not writer and not is_ordered:
                return name
    return None


def _before(op: Any, ops: set[Any]) -> list[Any]:
    sources = [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    return [one for one in sources if one in ops and one.type != _BACK]


def _readers(
    ops: set[Any],
    writers: Mapping[str, list[Any]],
    variable_of: Callable[[Any], str | None],
) -> list[tuple[Any, str]]:
    """The operations that look at a variable that is written, and its name."""
    found = []
    for op in ops:
        for tensor in op.inputs:
            name = variable_of(tensor)
            if name is not None and op not in writers.get(name, (op,)):
                found.append((op, name))
    return found


def _behind(before: Mapping[Any, list[Any]], bits: Mapping[Any, int]) -> dict[Any, int]:
    """For each operation the bits of those that it comes after, and its own."""
    behind: dict[Any, int] = {}
    for start in before:
        waiting = [start]
        while waiting:
            op = waiting[-1]
            missing = [one for one in before[op] if one not in behind]
            if op not in behind and missing:
                waiting += missing
                continue
            waiting.pop()
            if op not in behind:
                mask = bits.get(op, 0)
                for one in before[op]:
                    mask |= behind[one]
                behind[op] = mask
    return behind
