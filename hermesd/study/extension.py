"""How finished trials are extended: a later end, or other parameters."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from hermesd.core.lengths import is_length
from hermesd.core.model import Setting, StopRule, Study, TrialSpec
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.refusal import FieldError, Refused, nearest, one_of, shown
from hermesd.study import argv, space
from hermesd.study.spec import StopSection, plain, read, read_stop
from hermesd.study.submission import spec_of


def extension(
    study: Study,
    trials: Iterable[TrialSpec],
    stop: pb.Stop,
    parameters: Sequence[pb.NamedValue],
    new: Sequence[pb.NamedValue] = (),
) -> tuple[StopRule, space.Point, tuple[tuple[str, ...], ...]]:
    """The stop rule, the changed parameters and each trial's command line after an extension.

    What `stop` leaves unset stays as it is. A trial has been trained at its point of the search and
    for so long: raises Refused for a parameter that is searched, and for a length that would be
    less. `new` are arguments of the program that the study has left as they are; among `parameters`
    such a name is refused, since it may be a slip. Whether a value other than a length can be put
    into effect shows in the program, where the agent sees to it.
    """
    given = plain(stop)
    if not given and not parameters and not new:
        raise Refused(FieldError("stop", "", "a limit to raise, or a parameter to set"))
    before = {name: getattr(study.stop, name) for name in StopSection.model_fields}
    checked = read_stop(stop)
    rule = StopRule(**{**before, **{name: getattr(checked, name) for name in given}})
    changed = changed_values([*parameters, *new])
    section, trials = read(spec_of(study)), tuple(trials)
    had = {
        name: space.Constant(value=value)
        for trial in trials[:1]
        for name, value in trial.parameters
    }
    new_axes = {name: space.Constant(value=value) for name, value in changed.items()}
    space.see_that_it_fits({**had, **new_axes}, len(trials))
    # What stands in the command itself is the program's argument beyond doubt.
    fixed = {word[2:].partition("=")[0] for word in section.command if word.startswith("--")}
    _check(changed, {value.name for value in new} | fixed, section.parameters, trials)
    environment = dict(study.program.environment)
    points = (tuple({**dict(trial.given), **changed}.items()) for trial in trials)
    lines = tuple(argv.build_all(section, environment, points))
    return rule, tuple(changed.items()), lines


def _check(
    changed: Mapping[str, Setting],
    new: Container[str],
    searched: Mapping[str, Mapping[str, object]],
    trials: Sequence[TrialSpec],
) -> None:
    """Refuse what `changed` would make untrue of what the trials have come to."""
    errors = []
    known = {*searched, *(had for trial in trials for had, _ in trial.parameters)}
    staged = {name for trial in trials for stage in trial.sequences for name, _ in stage.values}
    staged |= {name for trial in trials for name in trial.shape}
    for name, value in changed.items():
        longest = max((had for trial in trials if (had := _number(trial, name))), default=0)
        if name not in known and name not in new:
            error = unknown(name, shown(value), known)
            if not error.nearest and (rule := nearest(name, StopSection.model_fields)):
                error = replace(error, nearest=f"stop.{rule}")
            errors.append(error)
            continue
        if name in staged:
            expected = "a parameter without a sequence: the trials have trained by this one"
        elif "value" not in searched.get(name, {"value": None}):
            expected = "a parameter that is not searched: the figures are those of its values"
        elif is_length(name) and isinstance(value, (int, float)) and value < longest:
            expected = f"at least {longest:g}, which the trials have reached"
        else:
            continue
        errors.append(FieldError(f"parameters.{name}", shown(value), expected))
    if errors:
        raise Refused(*errors)


def unknown(name: str, value: str, known: Collection[str]) -> FieldError:
    """The error for a name that is no parameter of the study, and was not said to be new."""
    ours = one_of(known) if known else "no parameter, as the study has none"
    expected = f"{ours}; any other argument of the program is given by --new {name}=VALUE"
    return FieldError(f"parameters.{name}", value, expected, nearest(name, known))


def _number(trial: TrialSpec, name: str) -> float | None:
    had = dict(trial.parameters).get(name)
    return had if isinstance(had, (int, float)) and not isinstance(had, bool) else None


def changed_values(parameters: Sequence[pb.NamedValue]) -> dict[str, Setting]:
    """Values by name. Raises Refused for one that is none."""
    wanted = plain(pb.Plugin(settings=parameters)).get("settings", {})
    assert isinstance(wanted, dict)
    axes = space.axes({name: {"value": value} for name, value in wanted.items()})
    return {name: axis.grid()[0] for name, axis in axes.items()}
