"""What a run computed, and where two runs differ.

Numbers are compared as they were reported, to the last bit, except those whose names say that they
are times. A final state is compared by the content of its files; if a framework keeps its arrays
apart, these alone decide. Of what the program printed and of the files that it left, everything
counts that two undisturbed runs have in common, so times do not. `contents` says what a file holds;
of a text that differs between two undisturbed runs, their common lines count. Files that have other
names in each run, such as those in a folder named after the time, are matched by their names
without numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeVar

from hermesd.verify.contents import is_timed

ARRAYS = ".arrays"
# What a checkpoint holds beside the program's state.
_BESIDE = (".hermes-files.json", "manifest.json")  # the latter of a process beside the first
_NUMBERS = re.compile(r"\d+")
# With the line of source below it.
_WARNING = re.compile(r"^\S+:\d+: \w*Warning: .*\n(?:  .*\n)?", re.MULTILINE)
# Colors and cursor movements of a terminal.
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# A bar of tqdm that shows no value: how far it has come when another pushes it up a line is a
# matter of the clock.
_BAR = re.compile(r"\d+%\|[^|]*\| \d+/\d+ \[[^,\]]*,[^,\]]*\]")
_BACKSPACES = re.compile(r"[^\n]*\x08")
# Such as 3ms/step, 12.5 it/s, 500 images/sec, 1 min 3 s, 00:41, 2026-01-02 03:04:05,678, time: 3.1.
# Where nothing is known yet, tqdm shows a question mark, and rich dashes.
_UNIT = (
    r"(?:h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|us|µs)(?:/\w+)?|\w+/(?:s|sec|second)"
)
_TIME = re.compile(
    rf"(?<![\w.:])(?:\d+(?:\.\d+)?\s?(?:{_UNIT})"
    r"|(?:\d{4}-\d\d-\d\d[ T])?\d+(?::\d\d)+(?:[.,]\d+)?|\d{4}-\d\d-\d\d"
    r"|\?\w+/s|(?<=<)\?(?=,)|-(?::--)+)(?![\w:])"
)
_NAMED_TIME = re.compile(
    r"\b(time|elapsed|took|duration|eta|runtime)([\"']?(?:\s?[:=]\s*|\s))\d+(?:\.\d+)?(?![\w.])",
    re.IGNORECASE,
)

Key = tuple[int, str]
K = TypeVar("K")


@dataclass(slots=True)
class TrialOutput:
    """What was heard of one run."""

    #: Of each step and metric, as they were said; more than one if a step was reported again with
    #: something else.
    values: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    level: str = "park-only"
    reason: str = "no boundaries seen yet"
    step: int = 0
    ended: bool = False
    state: dict[str, str] | None = None
    #: The state was saved as an image: of what is in a process addresses and times are never the
    #: same.
    is_imaged: bool = False
    is_thinned: bool = False
    passes: list[int] = field(default_factory=list)  # after which steps passes over the data began
    output: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # sums of them, and of their parts
    texts: dict[str, list[str]] = field(default_factory=dict)
    signal: str = "loss"
    #: Metrics, in lower case, whose step is up to the clock, such as those from files: files are
    #: compared as such.
    sampled: set[str] = field(default_factory=set)

    def hear(self, report: Mapping[str, Any]) -> None:
        """Keep the points of a report."""
        self.passes += report.get("passes", ())
        self.sampled.update(report.get("sampled", ()))
        self.is_thinned |= len(report["points"]) < int(report["count"])
        for step, metrics in report["points"]:
            for name, value in metrics.items():
                if is_timed(name) and name != self.signal:
                    continue
                text = value if isinstance(value, str) else repr(float(value))
                said = self.values.setdefault((int(step), name), (text,))
                if text not in said:
                    self.values[int(step), name] = (*said, text)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two runs part: a metric of a step, or a file of the final state."""

    step: int | None
    name: str
    before: str
    after: str

    def __str__(self) -> str:
        where = "final state" if self.step is None else f"step {self.step}"
        return f"{where}: {self.name}: {self.before} undisturbed, {self.after} suspended"


def state_of(files: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The sums that stand for a final state, from the `files` of a checkpoint's manifest."""
    arrays = [name for name in files if name.endswith(ARRAYS)]
    chosen = arrays or [name for name in files if name.rpartition("/")[2] not in _BESIDE]
    return {name: f"sha256 {files[name]['sha256'][:16]}" for name in sorted(chosen)}


def shown(text: str) -> list[str]:
    """The lines of an output as they stay on a screen: without progress bars (but with what is
    printed beside them) and what they overwrite, colors, padding and Python's warnings, which each
    process prints once, and with a tilde for each time, which is the same in two runs by chance
    alone."""
    plain = _BACKSPACES.sub("", _ESCAPE.sub("", text))
    printed = _WARNING.sub("", plain).split("\n")
    lines = [_BAR.sub("", line.rstrip("\r").rpartition("\r")[2]).strip() for line in printed]
    return [" ".join(_timeless(line).split()) for line in lines if line]


def _timeless(line: str) -> str:
    return _NAMED_TIME.sub(r"\1\2~", _TIME.sub("~", line))


def common(before: TrialOutput, after: TrialOutput) -> int:
    """How many values of both runs are compared."""
    return len(_exact(before, after).keys() & _exact(after, before).keys())


def _exact(run: TrialOutput, beside: TrialOutput) -> dict[Key, tuple[str, ...]]:
    """The values of a run whose steps are no matter of the clock, in either run."""
    sampled = run.sampled | beside.sampled
    return {key: value for key, value in run.values.items() if key[1].lower() not in sampled}


def first_difference(before: TrialOutput, after: TrialOutput) -> Difference | None:
    """Where the runs part first; None if nowhere."""
    one, other = _exact(before, after), _exact(after, before)
    keys = one.keys() & other.keys()
    if not (before.is_thinned or after.is_thinned):
        keys = one.keys() | other.keys()
    found = _differing(one, other, sorted(keys))
    if found is not None:
        (step, name), value, another = found
        return Difference(step, name, value, another)
    if before.step != after.step:
        return Difference(None, "steps", str(before.step), str(after.step))
    if before.is_imaged or after.is_imaged:
        return None
    if before.state is None or after.state is None:
        said, also = ("not saved" if run.state is None else "saved" for run in (before, after))
        return None if said == also else Difference(None, "all of it", said, also)
    files = sorted(before.state.keys() | after.state.keys())
    sums = {name: (value,) for name, value in before.state.items()}
    others = {name: (value,) for name, value in after.state.items()}
    differing = _differing(sums, others, files)
    return None if differing is None else Difference(None, *differing)


def first_shown(before: TrialOutput, again: TrialOutput, after: TrialOutput) -> Difference | None:
    """Where what the suspended run has printed, or left in its folder, parts from what both of the
    undisturbed ones have."""
    found = _first_line("output", before.output, again.output, after.output)
    if found is not None:
        return found
    files, files_again, files_after = (_files(run) for run in (before, again, after))
    for name, sums in sorted(files.items()):
        if files_again.get(name) == sums != files_after.get(name):
            return Difference(None, f"file {name}", sums, files_after.get(name, "nothing"))
    for name in sorted(before.texts.keys() & again.texts.keys()):
        if files.get(name) != files_again.get(name):
            lines = (run.texts.get(name, []) for run in (before, again, after))
            found = _first_line(f"file {name}", *lines)
            if found is not None:
                return found
    same = before.files.keys() & again.files.keys()
    first_sums, second_sums, sums_after = (_unnumbered(run, same) for run in (before, again, after))
    if {name: len(sums) for name, sums in first_sums.items()} != {
        name: len(sums) for name, sums in second_sums.items()
    }:
        return None  # who knows how many it would have left
    for name in sorted(first_sums.keys() | sums_after.keys()):
        one_sums, other_sums = first_sums.get(name, []), sums_after.get(name, [])
        is_repeated = one_sums == second_sums.get(name, [])
        if len(one_sums) != len(other_sums) or (is_repeated and one_sums != other_sums):
            return Difference(None, f"file {name}", _listed(one_sums), _listed(other_sums))
    return None


def _first_line(
    what: str, before: list[str], again: list[str], after: list[str]
) -> Difference | None:
    known = set(before) & set(again)
    first, second, other = (
        [line for line in lines if line in known] for lines in (before, again, after)
    )
    if first != second or first == other:
        return None
    pairs = enumerate(zip_longest(first, other, fillvalue="nothing"), 1)
    number, one, two = next((n, one, two) for n, (one, two) in pairs if one != two)
    return Difference(None, f"{what}, line {number} of those that do not change", one, two)


def _files(run: TrialOutput) -> dict[str, str]:
    """The sums of a run's files. Of the graph that TensorFlow 1 writes beside a checkpoint only
    that it is there: its maps come in another order now and then, by chance."""
    graphs = {
        f"{name.removesuffix('.index')}.meta" for name in run.files if name.endswith(".index")
    }
    return {name: "a graph" if name in graphs else sums for name, sums in run.files.items()}


def _unnumbered(run: TrialOutput, but: Collection[str]) -> dict[str, list[str]]:
    """The sums of a run's other files, by their names with a tilde for each number."""
    found: dict[str, list[str]] = {}
    files = _files(run)
    for name in sorted(files.keys() - set(but)):
        found.setdefault(_NUMBERS.sub("~", name), []).append(files[name])
    return {name: sorted(sums) for name, sums in found.items()}


def _listed(sums: list[str]) -> str:
    return ", ".join(sums) or "nothing"


def _differing(
    one: Mapping[K, tuple[str, ...]], other: Mapping[K, tuple[str, ...]], keys: Iterable[K]
) -> tuple[K, str, str] | None:
    for key in keys:
        if one.get(key) != other.get(key):
            return key, _words(one.get(key)), _words(other.get(key))
    return None


def _words(values: tuple[str, ...] | None) -> str:
    return "nothing" if values is None else " then ".join(values)
