"""Numpy archives of recorded trainings, in two layouts.

How they are read is fixed, so that figures of different people can be compared; docs/simulate.md
describes it.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hermesd.core.model import Scalar
from hermesd.refusal import FieldError, Refused, nearest
from hermesd.sim.curves import Curves, Floats, Job, Loss, Switch, until_broken

# How an archive begins: it is one of zip.
ZIP = b"PK"
# What reading one that is damaged, or is no archive of numpy's, may raise.
UNREADABLE = (
    OSError, ValueError, EOFError, AttributeError, NotImplementedError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
JOB_ITERATIONS = 1_000
SMOOTHED_ITERATIONS = 20
SMOOTHED_HALF_STEPS = 8
# No (batch, optimizer) pair counts as faster than this share of batch 16 with SGD.
FASTEST = 0.7
FURTHEST_APART = 1e6
# Logged runs: what a run of median speed takes for the whole grid, and how far speeds may spread.
LOGGED_SECONDS, LOGGED_HALF_STEPS = 80.0, 512
LOGGED_SPEEDS = (0.5, 2.5)
SHORTEST_LOGGED = 25


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per 1,000 iterations at batch 16 with SGD, and of a suspend and a resume."""

    thousand: float
    switch: float


# The models of the Hermes paper (Electronics 2021, 10(3), 350) that the curves stand for; the
# switch costs of m1d_mlp and m1d_res are assumed.
PAPER: Mapping[str, Timing] = MappingProxyType(
    {
        "digits_incep": Timing(30.12, 0.67),
        "m1d_mlp": Timing(94.26, 1.40),
        "digits_vgg": Timing(110.49, 1.57),
        "m1d_res": Timing(66.88, 0.95),
    }
)
OTHERWISE = Timing(60.0, 1.0)


def read_archive(path: Path, loss: Loss, iterations: int | None = JOB_ITERATIONS) -> Curves:
    """Every usable training of an archive, of trainings the first so many iterations or all.

    Raises:
        Refused: the file cannot be read, has neither layout, or not the loss that was asked for.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or "it is no numpy archive"
        raise _refused(path, f"an .npz archive of recorded curves ({reason})") from None
    if "sec_per_step" in arrays:
        return _logged_runs(path, arrays, loss)
    if "step_s" in arrays or "cfg" in arrays:
        return _trainings(path, arrays, loss, iterations)
    layouts = "the arrays base, total, step_s and cfg, or loss, length and sec_per_step"
    raise _refused(path, f"{layouts}; it has {', '.join(sorted(arrays)) or 'none'}")


def _refused(path: Path, expected: str, near: str = "") -> Refused:
    return Refused(FieldError("curves", str(path), expected, near))


def _array(path: Path, arrays: Mapping[str, Any], name: str, dimensions: int) -> Floats:
    """One array of the archive as numbers, in the shape that its layout has."""
    if name not in arrays:
        raise _refused(
            path, f"an array {name} beside {', '.join(sorted(arrays))}", nearest(name, arrays)
        )
    array = arrays[name]
    if array.ndim != dimensions or array.dtype.kind not in "fiu":
        kind = f"numbers in {dimensions} dimension{'s' * (dimensions > 1)}"
        raise _refused(path, f"{name} to be {kind}, not {array.dtype} {array.shape}")
    return np.asarray(array, dtype=np.float64)


def _meta(arrays: Mapping[str, Any]) -> Any:
    """What the archive says of itself; nothing if it is not readable."""
    try:
        return json.loads(str(arrays["meta"]))
    except (KeyError, ValueError):
        return {}


def _same_length(path: Path, **arrays: Floats) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise _refused(path, f"as many trials in each array, not {said}")


# Trainings: base, total [N, T], step_s [N], cfg [N, 4].


def _trainings(path: Path, arrays: Mapping[str, Any], loss: Loss, iterations: int | None) -> Curves:
    """Every trial's first iterations, in the seconds of the model it stands for."""
    curves = _array(path, arrays, loss, 2)[:, :iterations]
    measured, settings = _array(path, arrays, "step_s", 1), _array(path, arrays, "cfg", 2)
    _same_length(path, **{loss: curves, "step_s": measured, "cfg": settings})
    if settings.shape[1] != 4:
        raise _refused(path, f"cfg to have 4 columns, not {settings.shape[1]}")
    if not np.isfinite(settings).all():
        raise _refused(path, "cfg to be finite numbers")
    if not curves.shape[1]:
        raise _refused(path, f"{loss} to have an iteration or more")
    if not ((measured > 0) & (measured < np.inf)).all():
        raise _refused(path, "step_s to be seconds above 0")
    meta = _meta(arrays)
    name = str(meta.get("name", "")) if isinstance(meta, dict) else ""
    timing = PAPER.get(name, PAPER.get(path.stem, OTHERWISE))
    opts = meta.get("opts") if isinstance(meta, dict) else None
    optimizers = opts if isinstance(opts, list) else []
    relative = _relative_seconds(measured, settings)
    if relative.max(initial=0) > FURTHEST_APART:
        raise _refused(path, f"no step_s above {FURTHEST_APART:g} times the usual one")
    seconds = relative * timing.thousand / 1_000
    jobs = tuple(
        Job(
            losses := until_broken(curve),
            float(each),
            len(curve),
            SMOOTHED_ITERATIONS,
            _hyper(row, optimizers),
            diverges=len(losses) < len(curve),
        )
        for curve, each, row in zip(curves, seconds, settings, strict=True)
        if np.isfinite(curve[0])
    )
    return Curves(path.stem, jobs, Switch.split(timing.switch))


def _relative_seconds(measured: Floats, settings: Floats) -> Floats:
    """Median seconds of an iteration per (optimizer, batch), relative to SGD at batch 16."""
    pairs = [(float(row[0]), float(row[1])) for row in settings]
    if not pairs:
        return measured
    typical = {
        pair: float(np.median(measured[[other == pair for other in pairs]]))
        for pair in dict.fromkeys(pairs)
    }
    reference = typical.get((0.0, 16.0), float(np.median(measured)))
    return np.array([max(FASTEST, typical[pair] / reference) for pair in pairs])


def _hyper(row: Floats, optimizers: list[Any]) -> tuple[tuple[str, Scalar], ...]:
    index = int(row[0])
    optimizer: Scalar = str(optimizers[index]) if 0 <= index < len(optimizers) else index
    return (
        ("optimizer", optimizer),
        ("batch_size", int(row[1])),
        ("learning_rate", float(row[2])),
        ("weight_decay", float(row[3])),
    )


# Logged runs: loss [N, K] with NaN after the end, length [N], sec_per_step [N].


def _logged_runs(path: Path, arrays: Mapping[str, Any], loss: Loss) -> Curves:
    """Every run of 25 grid points or more and finite losses, interpolated to half grid steps."""
    if loss != "base":
        raise Refused(FieldError("metric_loss", loss, f"base: {path} has logged runs, of one loss"))
    curves, lengths = _array(path, arrays, "loss", 2), _array(path, arrays, "length", 1)
    measured = _array(path, arrays, "sec_per_step", 1)
    _same_length(path, loss=curves, length=lengths, sec_per_step=measured)
    runs = {
        number: points
        for number, points in enumerate(_points(curves, lengths))
        if len(points) >= SHORTEST_LOGGED and np.isfinite(points).all()
    }
    known = [each for each in measured[list(runs)] if 0 < each < np.inf]
    usual = float(np.median(known)) if known else 1.0
    meta = _meta(arrays)
    jobs = []
    for number, points in runs.items():
        half_steps = np.interp(np.arange(2 * len(points)) / 2, np.arange(len(points)), points)
        relative = float(measured[number]) / usual if 0 < measured[number] < np.inf else 1.0
        seconds = min(max(relative, LOGGED_SPEEDS[0]), LOGGED_SPEEDS[1])
        jobs.append(
            Job(
                until_broken(half_steps),
                seconds * LOGGED_SECONDS / LOGGED_HALF_STEPS,
                len(half_steps),
                SMOOTHED_HALF_STEPS,
                _logged_parameters(meta, number, len(curves)),
            )
        )
    return Curves(path.stem, tuple(jobs), Switch.split(OTHERWISE.switch))


def _points(curves: Floats, lengths: Floats) -> list[Floats]:
    """Each run up to its end: as many points as its length says, where lengths count points.

    Where they count steps, some are beyond the grid, and a run ends where only NaN follows.
    """
    if lengths.max(initial=0) <= curves.shape[1]:
        return [curve[: int(length)] for curve, length in zip(curves, lengths, strict=True)]
    ends = [np.flatnonzero(~np.isnan(curve))[-1:] + 1 for curve in curves]
    return [
        curve[: int(end[0]) if len(end) else 0] for curve, end in zip(curves, ends, strict=True)
    ]


def _logged_parameters(meta: Any, number: int, runs: int) -> tuple[tuple[str, Scalar], ...]:
    """The hyper-parameters of a run: `meta` lists one mapping a run, or one list a parameter."""
    listed = list(meta.values()) if isinstance(meta, dict) else [meta]
    for each in listed:
        if isinstance(each, list) and len(each) == runs and isinstance(each[number], dict):
            return _scalars(each[number])
    columns = meta if isinstance(meta, dict) else {}
    return _scalars(
        {k: v[number] for k, v in columns.items() if isinstance(v, list) and len(v) == runs}
    )


def _scalars(values: Mapping[str, Any]) -> tuple[tuple[str, Scalar], ...]:
    return tuple((str(k), v) for k, v in values.items() if isinstance(v, str | int | float | bool))
