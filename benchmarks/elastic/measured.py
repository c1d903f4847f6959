"""Speeds of trainings with parameter servers that were measured, from a file of them.

An author of the Optimus paper has published such a file with a later system (`config_speed.txt` of
the repository pengyanghua/DL2): of eight models, most of them the paper's, trained synchronously
with up to 23 servers and 12 or more workers. A line is a tuple, as Python writes it: the model, how
its workers exchange gradients, the global batch, how many servers and workers there were, and the
samples a second of each worker; what follows is not read.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hermesd.policy.elastic.speed import Exchange
from hermesd.refusal import FieldError, Refused


class Measured:
    """Steps a second of a training: linear between the numbers of workers and servers of which they
    are known, and beyond the last of these as there."""

    exchange = Exchange.SYNCHRONOUS

    def __init__(self, speeds: Mapping[tuple[int, int], float]) -> None:
        """`speeds` are by the number of servers and that of workers."""
        self._servers = sorted({servers for servers, _ in speeds})
        self._rows: list[tuple[list[int], list[float]]] = []
        for servers in self._servers:
            row = sorted((w, speed) for (p, w), speed in speeds.items() if p == servers)
            self._rows.append(([w for w, _ in row], [speed for _, speed in row]))

    def __call__(self, workers: int, servers: int) -> float:
        row = [float(np.interp(workers, counts, speeds)) for counts, speeds in self._rows]
        return float(np.interp(servers, self._servers, row))


def read(path: Path) -> dict[str, Measured]:
    """The speeds of each model. Raises OSError, and Refused for what is no such file."""
    found: dict[str, dict[tuple[int, int], float]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            model, _, batch, servers, workers, samples, *_ = literal_eval(line)
            speed = sum(samples) / batch
            if speed > 0:  # else the run failed
                found.setdefault(str(model), {})[int(servers), int(workers)] = speed
        except (ValueError, TypeError, SyntaxError, ZeroDivisionError):
            expected = "('model', 'dist_sync', batch, servers, workers, [samples a second, ...])"
            raise Refused(FieldError(f"{path}: line {number}", line[:80], expected)) from None
    return {model: Measured(speeds) for model, speeds in found.items()}
