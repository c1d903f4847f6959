"""How much an earlier study can tell about a planned one, by its signal, program and parameters.

Pure. Nothing is called the same without having been compared. Scripts are compared by their
content, since many are called train.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from hermesctl.sdk.records import Study, TrialState
from hermesctl.text import count, printable

# As few curves as these say nothing of a leaderboard.
FEWEST_TRIALS = 3
# How alike parameter names must be where the program is another one. Of another version of the
# program one must be the same.
ALIKE = 0.5
NAMED = 3
NONE_EARLIER = (
    "no forecast: this head has no earlier study with such parameters of which"
    f" {FEWEST_TRIALS} trials were trained"
)


class Signal(NamedTuple):
    """What a study's policy reads, and which way is better."""

    name: str = "loss"
    goal: str = "minimize"

    def __str__(self) -> str:
        return self.name if self.goal == "minimize" else f"{self.name} ({self.goal})"


class Kin(IntEnum):
    """How near another study's program is, the nearest last."""

    OTHER = 0
    NAMESAKE = 1
    VERSION = 2
    SAME = 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """The study that is to come; the hash of its program is empty if that is no file."""

    spec: Mapping[str, Any]
    directory: str
    program_sha256: str


@dataclass(frozen=True, slots=True)
class LikeStudy:
    """The earlier study that tells most, and what both have in common; or why there is none."""

    study: Study | None
    words: str


def nearest(studies: Sequence[Study], wanted: Wanted) -> LikeStudy:
    """The study most like the one to come, among those that read the same signal.

    The program counts most, then how many names of parameters are the same, then where trials
    stop and the constants, then how many were trained, then what is newer.
    """
    best: tuple[tuple[Any, ...], LikeStudy] | None = None
    of_others: dict[str, str] = {}
    silent: list[str] = []
    for study in studies:
        trained = study.counts.get(TrialState.COMPLETED, 0)
        kin, what = program_likeness(study, wanted)
        shared = overlap(study.spec, wanted.spec)
        near = shared >= ALIKE or (kin >= Kin.VERSION and shared > 0)
        if trained < FEWEST_TRIALS or not near:
            continue
        signal = signal_of(study.spec)
        if signal != signal_of(wanted.spec):
            of_others[study.id] = str(signal)
            continue
        if signal.name not in study.reported:
            silent.append(study.id)
            continue
        ends = target(study.spec) == target(wanted.spec)
        command = study.spec.get("command") == wanted.spec.get("command")
        others = -len(constants(study.spec, wanted.spec))
        rank = (kin, command, shared, ends, others, trained, study.submitted_unix_seconds)
        if best is None or rank > best[0]:
            words = [what, _named(shared), *_differences(study, wanted, kin)]
            best = rank, LikeStudy(study, ", ".join(words))
    if best is not None:
        return best[1]
    if of_others:
        return LikeStudy(None, _of_other_signals(of_others, wanted))
    if silent:
        signal = signal_of(wanted.spec)
        never = f"has reported {signal.name}"
        return LikeStudy(None, f"no forecast: no trial of {_listed(silent)} {never}")
    return LikeStudy(None, NONE_EARLIER)


def program_likeness(study: Study, wanted: Wanted) -> tuple[Kin, str]:
    """How near a study's program is to that of the study to come, and that in words."""
    name, mine = program(wanted.spec), program(study.spec)
    theirs, ours = study.program_sha256, wanted.program_sha256
    if ours and theirs == ours:
        return Kin.SAME, "the same script" if name == mine else f"the same script as {mine}"
    if name != mine:
        return Kin.OTHER, "another program"
    file = bool(wanted.spec.get("program"))
    if _place(study.submit_directory, study.spec) != _place(wanted.directory, wanted.spec):
        return (
            Kin.NAMESAKE,
            f"{'a program of the same name' if file else 'the same command'} in another folder",
        )
    if ours and theirs:
        return Kin.VERSION, f"another version of {name}"
    return Kin.VERSION, f"{name} of the same folder" if file else "the same command"


def program(spec: Mapping[str, Any]) -> str:
    """What a study's program is called: the file's name, or the command."""
    if named := spec.get("program"):
        return Path(str(named)).name
    return " ".join(map(str, spec.get("command") or ()))


def overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The share of all names of parameters that both have."""
    mine, theirs = set(one.get("parameters") or ()), set(other.get("parameters") or ())
    return len(mine & theirs) / len(mine | theirs) if mine | theirs else 1.0


def signal_of(spec: Mapping[str, Any]) -> Signal:
    """What a study's policy reads.

    Args:
        spec: The study as it was submitted, `Study.spec`.
    """
    given = spec.get("signal")
    if isinstance(given, Mapping):
        return Signal(str(given.get("name") or "loss"), str(given.get("goal") or "minimize"))
    return Signal(str(given)) if given else Signal()


def target(spec: Mapping[str, Any]) -> float | None:
    """The value of the signal at which its trials stop."""
    stop = spec.get("stop")
    return stop.get("target") if isinstance(stop, Mapping) else None


def constants(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The parameters that have one value in either spec, and not the same: both in words."""
    mine, theirs = one.get("parameters") or {}, other.get("parameters") or {}
    values = {name: (_constant(mine.get(name)), _constant(theirs[name])) for name in theirs}
    return [
        printable(f"{name} {value} instead of {wanted}")
        for name, (value, wanted) in values.items()
        if None not in (value, wanted) and value != wanted
    ]


def _constant(parameter: Any) -> Any:
    """The one value that a parameter has; None if it has several."""
    if not isinstance(parameter, Mapping):
        return None
    values = parameter.get("values") or [parameter.get("value")]
    return values[0] if len(values) == 1 else None


def _place(directory: str, spec: Mapping[str, Any]) -> str:
    return os.path.normpath(os.path.join(directory, str(spec.get("program") or "")))


def _named(shared: float) -> str:
    if shared == 1.0:
        return "the same parameters"
    return f"{100 * shared:.0f} % of the parameters' names"


def _differences(study: Study, wanted: Wanted, kin: Kin) -> list[str]:
    """What else differs and matters for the times."""
    found = []
    if kin is Kin.SAME and study.spec.get("command") != wanted.spec.get("command"):
        found.append("another command")
    if (stopped := target(study.spec)) != target(wanted.spec):
        found.append("no stop.target" if stopped is None else f"stop.target {stopped:g}")
    others = constants(study.spec, wanted.spec)
    if len(others) > NAMED:
        others[NAMED:] = [f"{count(len(others) - NAMED, 'more constant')} differ"]
    return found + others


def _of_other_signals(signals: Mapping[str, str], wanted: Wanted) -> str:
    listed = [f"{study}: {signal}" for study, signal in signals.items()]
    alike = count(len(listed), "study")
    return (
        f"no forecast: the signal is {signal_of(wanted.spec)}, and that of {alike} otherwise alike"
        f" is another one ({_listed(listed)})"
    )


def _listed(found: Sequence[str]) -> str:
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"{', '.join(found[:NAMED])}{more}"


def ran_meanwhile(study: Study, other: Study) -> bool:
    """Whether another study of the pool used devices while this one was not over."""
    if other.id == study.id or other.pool != study.pool or not other.busy_seconds:
        return False
    begun = other.submitted_unix_seconds, study.submitted_unix_seconds
    over = other.finished_unix_seconds or math.inf, study.finished_unix_seconds or math.inf
    return begun[0] < over[1] and begun[1] < over[0]
