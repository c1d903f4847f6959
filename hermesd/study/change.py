"""Changes a study while it runs: its stop rule, how many trials it has, and the bounds from which
they are drawn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from hermesd.core.model import Study, TrialId, TrialSpec
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.pieces import Pieces
from hermesd.refusal import FieldError, Refused, nearest, one_of
from hermesd.study import argv, sharing, space
from hermesd.study.addition import addition
from hermesd.study.spec import StudySection, leaves, plain, read
from hermesd.study.submission import TRIALS_LIMIT, given, spec_of, staged


@dataclass(frozen=True, slots=True)
class StudyChange:
    """The study file from now on; trials at other points, further ones, those too many, and those
    that were so and are no longer."""

    source: bytes
    redrawn: tuple[TrialSpec, ...] = ()
    added: tuple[TrialSpec, ...] = ()
    surplus: tuple[TrialId, ...] = ()
    resumed: tuple[TrialId, ...] = ()


def change(
    study: Study,
    trials: Sequence[TrialSpec],
    begun: Collection[TrialId],
    stop: pb.Stop,
    run_cap: int | None,
    axes: Sequence[pb.Parameter],
    cut: Collection[TrialId] = (),
) -> Pieces[StudyChange]:
    """What follows from other stop rules, another number of trials and other settings of axes.

    What is not set stays as it is. A trial that has `begun` keeps its point, and so does one whose
    point was given by hand; the others are drawn again by their number. More trials are those that
    a study of that `run_cap` would have had: first those that a smaller one had `cut`. Raises
    Refused.
    """
    spec = spec_of(study)
    before = read(spec)
    if stop.ByteSize():
        _overwrite(spec.stop, stop)
    if run_cap is not None:
        if study.searcher is not None:
            expected = f"nothing: {study.searcher.name} proposes its trials (study add --trials N)"
            raise Refused(FieldError("run_cap", str(run_cap), expected))
        if not 1 <= run_cap <= TRIALS_LIMIT:
            raise Refused(FieldError("run_cap", str(run_cap), f"1 to {TRIALS_LIMIT}"))
        spec.run_cap = run_cap
    _set_axes(spec, before, axes)
    after = read(spec)
    changed = replace(study, source=spec.SerializeToString(deterministic=True))
    cap = len(trials) if run_cap is None else run_cap
    wanted, beyond = trials[:cap], trials[cap:]
    surplus = tuple(each.id for each in beyond if each.id not in begun and each.id not in cut)
    resumed = tuple(each.id for each in wanted if each.id in cut) if run_cap is not None else ()
    if run_cap is not None and not surplus and not resumed and cap <= len(trials):
        why = f"no trial after the first {cap} is still to begin" if beyond else "it has that many"
        raise Refused(
            FieldError("run_cap", str(cap), f"another number, as this changes nothing: {why}")
        )
    fresh = [trial for trial in trials if trial.id not in begun] if axes else []
    redrawn = yield from _redrawn(study, before, after, fresh)
    added: tuple[TrialSpec, ...] = ()
    if (more := cap - len(trials)) > 0:
        added = (yield from addition(changed, trials, (), count=more)).trials
    return StudyChange(changed.source, tuple(redrawn), added, surplus, resumed)


def with_values(source: bytes, values: Sequence[pb.NamedValue]) -> bytes:
    """The study file once all trials have these values: a parameter that had one for all has the
    new one, and what their program takes besides is a parameter now. Lists and bounds stay, as they
    say which points there are."""
    spec = pb.StudySpec.FromString(source)
    known = leaves(spec)
    for each in values:
        if each.name not in known:
            spec.parameters.add(name=each.name, value=each.value)
        elif known[each.name].HasField("value"):
            known[each.name].value.CopyFrom(each.value)
    return spec.SerializeToString(deterministic=True)


def _overwrite(message: pb.Stop | pb.Parameter, given: pb.Stop | pb.Parameter) -> None:
    """Set what is given; lists are not joined."""
    for field, _ in given.ListFields():
        message.ClearField(field.name)
    message.MergeFrom(given)  # type: ignore[arg-type]


def _set_axes(spec: pb.StudySpec, section: StudySection, axes: Sequence[pb.Parameter]) -> None:
    if not axes:
        return
    plain(pb.StudySpec(parameters=axes))  # raises for a name that is there twice
    if section.method == "grid":
        names = ", ".join(f"parameters.{axis.name}" for axis in axes)
        expected = "a random search; `study add` gives a grid more points"
        raise Refused(FieldError(names, "", expected))
    known = leaves(spec)
    if errors := [
        FieldError(f"parameters.{axis.name}", "", one_of(known), nearest(axis.name, known))
        for axis in axes
        if axis.name not in known
    ]:
        raise Refused(*errors)
    for axis in axes:
        own = known[axis.name]
        name = own.name
        _overwrite(own, axis)
        own.name = name


def _redrawn(
    study: Study, before: StudySection, after: StudySection, trials: Sequence[TrialSpec]
) -> Pieces[list[TrialSpec]]:
    """Those of the trials whose draw is another one now, at that."""
    old, new = (space.axes(each.parameters, each.where) for each in (before, after))
    space.see_that_it_fits(new, len(trials))
    environment = dict(study.program.environment)
    numbers = [trial.number for trial in trials]
    points = (space.drawn_for(axes, before.seed, numbers) for axes in (old, new))
    found = []
    for trial, drawn, point in zip(trials, *points, strict=True):
        (was,), _ = staged(before, [drawn])
        (now,), shape = staged(after, [point])
        if trial.stages == was != now:
            line = argv.build(after, environment, next(iter(given((now,), shape))))
            other = replace(trial, stages=now, argv=line, shape=shape)
            found.append(sharing.rooted(study, other))
        yield
    return found
