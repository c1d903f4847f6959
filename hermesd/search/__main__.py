"""The searchers' process: reads questions from standard input and writes answers to standard
output, a line each, until the input ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from hermesd.core.model import Goal
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.search import evolution
from hermesd.search.ask import ASK, REPLY, Ask, Proposal, SearchReply, Standing
from hermesd.study import space
from hermesd.study.coordinates import Coordinates, place
from hermesd.study.searchers import population, startup
from hermesd.study.space import Point, Space
from hermesd.study.spec import StudySection, read

# A search does not wait for one core less than the trials have.
NICE = 10
_ERROR_LENGTH = 500


def answer(ask: Ask) -> SearchReply:
    """What is proposed; or, with nothing, what went wrong."""
    try:
        section = read(pb.StudySpec.FromString(ask.source))
        axes = space.axes(section.parameters, section.where)
        return SearchReply(tuple(_proposals(ask, section, axes)))
    except Exception as error:  # whatever a library raises
        words = " ".join(str(error).split())[:_ERROR_LENGTH]
        return SearchReply((), f"{type(error).__name__}: {words}")


def _proposals(ask: Ask, section: StudySection, axes: Space) -> Iterator[Proposal]:
    seed = int(np.random.SeedSequence([section.seed, ask.number, 1]).generate_state(1)[0])
    if section.method in ("tpe", "gp", "cmaes", "nsgaii"):
        from hermesd.search.samplers import proposals

        yield from proposals(ask, axes, section.method, startup(section), population(section), seed)
        return
    random = np.random.default_rng(seed)
    taken = {_key(known.point) for known in ask.known}
    ranked = _ranked(ask, axes)
    for number in range(ask.number, ask.number + ask.count):
        if section.method == "qmc":
            yield Proposal(evolution.sobol(axes, section.seed, number))
            continue
        for _ in range(evolution.TRIES):
            if section.method == "genetic":
                point = evolution.child(axes, ranked, population(section), random)
            else:
                point = evolution.step(axes, ranked, random)
            if _key(point) not in taken and axes.allows(point):
                break
        if not axes.allows(point):
            point = space.drawn(axes, section.seed, number)
        taken.add(_key(point))
        yield Proposal(point)


def _ranked(ask: Ask, axes: Space) -> list[Point]:
    """The points of the space that have a value, best first: those that break no constraint, then
    by how many others surpass them in all objectives (Fonseca and Fleming 1993)."""
    lies = {name: Coordinates(axis) for name, axis in axes.items()}
    valued = [
        known
        for known in ask.known
        if known.standing is Standing.VALUED and place(axes, lies, known.point) is not None
    ]
    signs = [1 if goal is Goal.MINIMIZE else -1 for goal in ask.goals]
    worth = [
        tuple(sign * value for sign, value in zip(signs, known.values, strict=True))
        for known in valued
    ]

    def standing(index: int) -> tuple[bool, int, float]:
        own = worth[index]
        surpassed = 0
        if len(signs) > 1:
            surpassed = sum(
                other != own and all(a <= b for a, b in zip(other, own, strict=True))
                for other in worth
            )
        return valued[index].breaks, surpassed, own[0]

    return [valued[index].point for index in sorted(range(len(valued)), key=standing)]


def _key(point: Point) -> frozenset[tuple[str, type, object]]:
    return frozenset((name, type(value), value) for name, value in point)


def main() -> None:
    """SearchReply until nobody asks any more."""
    os.nice(NICE)
    # What it takes is up to its user: if memory runs out, this process goes, and not the head.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        answers.write(REPLY.write(answer(ASK.read(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
