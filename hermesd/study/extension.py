"""What becomes of finished trials when their study is extended: a later end, other parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hermesd.core.model import Scalar, StopRule, Study, TrialSpec
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.refusal import FieldError, Refused
from hermesd.study import argv, space
from hermesd.study.spec import StopSection, plain, read, read_stop
from hermesd.study.submission import spec_of


def extension(
    study: Study,
    trials: Iterable[TrialSpec],
    stop: pb.Stop,
    parameters: Sequence[pb.NamedValue],
) -> tuple[StopRule, space.Point, tuple[tuple[str, ...], ...]]:
    """The stop rule, the changed parameters and each trial's command line after an extension.

    What `stop` leaves unset stays as it is. Raises Refused.
    """
    given = plain(stop)
    if not given and not parameters:
        raise Refused(FieldError("stop", "", "a limit to raise, or a parameter to set"))
    before = {name: getattr(study.stop, name) for name in StopSection.model_fields}
    checked = read_stop(stop)
    rule = StopRule(**{**before, **{name: getattr(checked, name) for name in given}})
    changed = _changed(parameters)
    section = read(spec_of(study))
    environment = dict(study.program.environment)
    lines = tuple(
        argv.build(
            section.command,
            section.program,
            section.python,
            environment,
            tuple({**dict(trial.parameters), **changed}.items()),
        )
        for trial in trials
    )
    return rule, tuple(changed.items()), lines


def _changed(parameters: Sequence[pb.NamedValue]) -> dict[str, Scalar]:
    wanted = plain(pb.Plugin(settings=parameters)).get("settings", {})
    assert isinstance(wanted, dict)
    axes = space.axes({name: {"value": value} for name, value in wanted.items()})
    return {name: axis.grid()[0] for name, axis in axes.items()}
