"""What a session is asked, as the journal calls it, and what it is told in answer.

Rule: which tensors come along with a run may depend on the clock (a hook that logs every ten
seconds), and so may a run that saves: a run is known by the variables that it writes, and its
results by their names. What was not recorded is told as not known: NaN, or an empty string.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from trainer_shim.adapters import tf_store as store
from trainer_shim.adapters.tf1_graph import SAVING, Run
from trainer_shim.adapters.tf_journal import Answer, Journal


def asked(run: Run) -> str:
    """A run, and what it was asked for."""
    return " ".join([run.label, *(tensor.name for tensor in run.fetches)])


def tell(journal: Journal, run: Run, feeds: Mapping[Any, Any]) -> Answer:
    """The results of a run of before. Raises OtherProgram if another one is due."""
    while journal.is_telling and _label(journal.next_asked) == SAVING != run.label:
        journal.tell(journal.next_asked)
    if not journal.is_telling or (run.label == SAVING != _label(journal.next_asked)):
        return Answer("", [_unknown(tensor) for tensor in run.fetches])
    then = journal.next_asked
    if _label(then) != run.label:
        raise store.OtherProgram(f"the program ran {asked(run)}, before it ran {then}")
    answer = journal.tell(then)
    if answer.error:
        return answer
    values = dict(zip(then.split(" ")[1:], answer.values))
    found = [values.get(tensor.name) for tensor in run.fetches]
    pairs = zip(found, run.fetches)
    return Answer("", [_unknown(tensor) if one is None else _plain(one) for one, tensor in pairs])


def expect(answer: Answer, run: Run, error: Exception) -> None:
    """Raises OtherProgram if the sources of a run fail now, and the run did not then."""
    if not answer.error:
        reason = str(error).splitlines()[0]
        raise store.OtherProgram(f"what {asked(run)} draws cannot be drawn again: {reason}")


def checksum(feeds: Mapping[Any, Any]) -> int:
    """Of the data that a run was fed with."""
    whole = 0
    for array in sorted(zlib.crc32(store.to_bytes(store.as_array(one))) for one in feeds.values()):
        whole = zlib.crc32(array.to_bytes(4, "big"), whole)
    return whole


def _label(then: str) -> str:
    return then.split(" ")[0]


def _plain(array: Any) -> Any:
    """As a session returns it: a scalar is none of the arrays."""
    return array[()] if array.shape == () else array


def _unknown(tensor: Any) -> Any:
    import numpy as np
    import tensorflow as tf

    if tensor.dtype.base_dtype == tf.string:
        return b""
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else []
    kind = tensor.dtype.base_dtype.as_numpy_dtype
    empty = np.full([0 if size is None else size for size in shape], 0, kind)
    if tensor.dtype.is_floating:
        empty[...] = float("nan")
    return _plain(empty)
