"""From a submission to a study and its trials, or to all reasons why it is invalid.

Pure: the same submission gives the same trials, in the same order, with the same seeds.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hermesd.config.policy_line import Spelled, placements_with, split
from hermesd.core.model import (
    FailureRule,
    OnSameFailure,
    OnThirdFailure,
    Plugin,
    Processes,
    Program,
    RetryRule,
    Setting,
    Share,
    Stage,
    StopRule,
    Study,
    StudyId,
    Time,
    TrialSpec,
)
from hermesd.core.placement import make_placement
from hermesd.core.policy import BadSetting
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.pieces import Pieces, gathered, whole
from hermesd.policy import make_policy
from hermesd.refusal import FieldError, Refused, shown, under
from hermesd.study import argv, populations, searchers, sequences, sharing, space
from hermesd.study.spec import (
    EarlyTerminateSection,
    PluginSection,
    ResourcesSection,
    StopSection,
    StudySection,
    parameters_of,
    read,
)

# Metrics of these names are better the higher they are.
_BETTER_HIGH = re.compile(
    r"(?<![a-z])(acc|accuracy|auc|auroc|bleu|dice|f1|iou|precision|r2|recall|reward)(?![a-z])", re.I
)

# Which policy and placement a study asked for, in whichever of the ways that there are for
# it.
#
# Settings in a policy's name (`hermes:placement=homes,g_thres=4`) are as good as those of a
# mapping; what is written beside a name counts before what stands in it.


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a study asked for, what is wrong with it, and what to say of it."""

    policy: Plugin
    placement: Plugin
    errors: tuple[FieldError, ...] = ()
    notes: tuple[str, ...] = ()


def chosen(section: StudySection) -> Schedule:
    """The policy and the placement of a study, by default those that are best for most."""
    placement = _plugin(section.schedule.placement)
    try:
        given = _spelled(section.schedule.policy)
    except Refused as refused:
        errors = under("schedule", refused.errors)
        return Schedule(Plugin("best_first"), Plugin("free"), errors)
    policy, notes = _policy(section, given.policy if given else None)
    placement = placement or (given and given.placement) or Plugin("free")
    wrong = [*_plugin_errors("policy", policy), *_plugin_errors("placement", placement)]
    return Schedule(policy, placement, tuple(wrong), notes)


def _plugin(section: PluginSection | None) -> Plugin | None:
    if section is None:
        return None
    return Plugin(section.name, tuple(section.settings.items()))


def _spelled(section: PluginSection | None) -> Spelled | None:
    """The policy that is named, with its placement if that is named along. Raises Refused."""
    if section is None:
        return None
    meant = split(section.name)
    settings = {**dict(meant.policy.settings), **section.settings}
    return Spelled(Plugin(meant.policy.name, tuple(settings.items())), meant.placement)


def _policy(section: StudySection, given: Plugin | None) -> tuple[Plugin, tuple[str, ...]]:
    early = section.early_terminate
    if early is None:
        return given or Plugin("best_first"), ()
    if given is not None:
        return given, ("early_terminate was not used: schedule.policy is given",)
    return asha_of(early), (
        "early_terminate is read as schedule.policy asha: it holds trials back and ends none",
        "rungs are shares of a trial's length in iterations; W&B counts logged values",
    )


def asha_of(early: EarlyTerminateSection) -> Plugin:
    """W&B's hyperband as the asha policy.

    W&B's brackets are max_iter / eta^s or min_iter * eta^s logged values; only their ratio to the
    whole length has a meaning here, so without max_iter the policy's own first rung stands.
    """
    settings: dict[str, Setting] = {"eta": int(early.eta)}
    if early.max_iter is not None and early.min_iter is not None:
        settings["min_rung"] = min(1.0, early.min_iter / early.max_iter)
    elif early.s is not None:
        settings["min_rung"] = early.eta**-early.s
    return Plugin("asha", tuple(settings.items()))


def _plugin_errors(noun: str, plugin: Plugin) -> list[FieldError]:
    """Each of its settings that will not do, found by making it without those before."""
    path = f"schedule.{noun}"
    try:
        make_policy(plugin) if noun == "policy" else make_placement(plugin)
    except BadSetting as bad:
        if bad.field == noun:
            return [FieldError(path, shown(bad.value), bad.expected, bad.nearest)]
        unknown = bad.field == f"{noun}.{plugin.name}"
        name = str(bad.value) if unknown else bad.field
        value = "unknown setting" if unknown else shown(bad.value)
        near = _placement_with(name) if unknown else ""
        error = FieldError(f"{path}.{name}", value, bad.expected, near or bad.nearest)
        rest = tuple(each for each in plugin.settings if each[0] != name)
        if len(rest) == len(plugin.settings):
            return [error]
        return [error, *_plugin_errors(noun, Plugin(plugin.name, rest))]
    return []


def _placement_with(setting: str) -> str:
    """Where a setting belongs that a placement has, and not who was given it."""
    return next((f"{full} of schedule.placement {n}" for n, full in placements_with(setting)), "")


TRIALS_LIMIT = 100_000
ENVIRONMENT_LIMIT_BYTES = 256 * 1024
# These are Hermes' own to set, per device and trial.
RESERVED = re.compile(r"HERMES_.*|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Submission:
    """What comes with a spec: where its code is, and what its trials inherit."""

    spec: pb.StudySpec
    code_sha256: str = ""
    submit_directory: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    # Over the inherited variables; unlike these a part of what makes the study.
    given: tuple[tuple[str, str], ...] = ()
    # The code without the study's own file, whose comments make no other study.
    code_identity_sha256: str = ""
    # Of the file that the trials run: what earlier studies have in common with this one.
    program_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A submission that was found good: all but its id, its owner and the time."""

    study: Study
    stages: list[tuple[Stage, ...]]
    shape: tuple[str, ...]
    argvs: list[tuple[str, ...]]
    seed: int
    notes: tuple[str, ...]

    def accepted(
        self, study_id: StudyId, owner: str, now: Time
    ) -> tuple[Study, tuple[TrialSpec, ...]]:
        """The study as it is journaled, and its trials, numbered from 1."""
        study = self.accepted_as(study_id, owner, now)
        return study, tuple(self.trials(study))

    def accepted_as(self, study_id: StudyId, owner: str, now: Time) -> Study:
        """The study as it is journaled."""
        return replace(self.study, id=study_id, owner=owner, submitted=now)

    def trials(self, study: Study) -> Iterator[TrialSpec]:
        """Its trials, one by one."""
        return numbered(study, self.stages, self.shape, self.argvs, self.seed)


def numbered(
    study: Study,
    stages: Iterable[tuple[Stage, ...]],
    shape: tuple[str, ...],
    argvs: Iterable[tuple[str, ...]],
    seed: int,
    first: int = 1,
) -> Iterator[TrialSpec]:
    """The trials of a study with these stages, numbered from `first`.

    Where they share what they can they all have the seed of the first: they would compute the same
    in nothing else.
    """
    for number, (each, line) in enumerate(zip(stages, argvs, strict=True), first):
        spec = TrialSpec(
            id=f"{study.id}/{number}",
            study=study.id,
            number=number,
            stages=each,
            argv=line,
            seed=trial_seed(seed, 1 if study.share is Share.TREE else number),
            shape=shape,
        )
        yield sharing.rooted(study, spec)


def draft(submission: Submission) -> Draft:
    """Check a submission and expand its space. Raises Refused, with every error found."""
    return whole(draft_in_pieces(submission))


def draft_in_pieces(submission: Submission) -> Pieces[Draft]:
    """The same piece by piece."""
    try:
        section = read(submission.spec)
    except Refused as refused:
        found = (*refused.errors, *_axis_errors(submission.spec))
        found += yield from _further(submission, found)
        raise Refused(*dict.fromkeys(found)) from None
    environment, notes = _environment((*submission.environment, *submission.given))
    errors: list[FieldError] = []
    if not section.search.asked or section.program or section.command:
        errors += argv.check(section.command, section.program, environment)
    errors += searchers.errors(section)
    stages: list[tuple[Stage, ...]] = []
    shape: tuple[str, ...] = ()
    try:
        points = yield from _points(section)
        each, shape = staged(section, points)
        stages = yield from gathered(each)
    except Refused as refused:
        errors += refused.errors
    schedule = chosen(section)
    errors += schedule.errors or populations.errors(section, schedule.policy)
    widest = section.resources.max_devices or section.resources.devices
    if widest > 1 and schedule.placement.name != "free":
        expected = f"free: a home is one device, and each trial has up to {widest}"
        errors.append(FieldError("schedule.placement", schedule.placement.name, expected, "free"))
    if errors:
        raise Refused(*errors)
    lines = yield from gathered(argv.build_all(section, environment, given(stages, shape)))
    study = _study(submission, section, schedule, tuple(environment.items()))
    fallen_out = yield from _fallen_out(section)
    notes += (*schedule.notes, *_notes(section, fallen_out))
    notes += tuple(populations.notes(section, schedule.policy, len(stages)))
    drafted = Draft(study, stages, shape, lines, section.seed, notes)
    if section.sequences or section.share is Share.TREE:
        specs = yield from gathered(drafted.trials(study))
        notes += tuple(sharing.notes(section, specs))
    return replace(drafted, notes=notes)


def staged(
    section: StudySection, points: Iterable[space.Point]
) -> tuple[Iterator[tuple[Stage, ...]], tuple[str, ...]]:
    """The stages of trials at these points, made as they are asked for, and the parameters that
    only shape their sequences.

    Raises Refused for a sequence that makes no sense, and for more values than a study may have.
    """
    known = sequences.sequences(section.sequences)

    def stages() -> Iterator[tuple[Stage, ...]]:
        size = 0
        for point in points:
            made = sequences.stages(known, point)
            size += len(known) * len(made)
            if size > space.COST_LIMIT:
                most = f"at most {space.COST_LIMIT:,} values in all"
                expected = f"fewer trials, or fewer changes: {most}"
                raise Refused(FieldError("parameters", f"more than {size:,} values", expected))
            yield made

    return stages(), sequences.shape_of(known, section.parameters)


def given(stages: Iterable[tuple[Stage, ...]], shape: Container[str]) -> Iterator[space.Point]:
    """What the program of each trial is given."""
    for first, *_ in stages:
        yield tuple(each for each in first.values if each[0] not in shape)


def _study(
    submission: Submission,
    section: StudySection,
    schedule: Schedule,
    environment: tuple[tuple[str, str], ...],
) -> Study:
    population = populations.breeder(schedule.policy)
    is_strict = section.retry.rule is FailureRule.HOPS
    return Study(
        id="",
        owner="",
        pool=section.pool or "default",
        metric=section.metric.name,
        goal=section.metric.goal,
        mode=section.metric.mode,
        signal=section.signal.name,
        signal_goal=section.signal.goal,
        policy=schedule.policy,
        placement=schedule.placement,
        program=Program(
            argv=section.command or argv.DEFAULT,
            python=section.python,
            code_sha256=submission.code_sha256,
            submit_directory=submission.submit_directory,
            environment=environment,
            data=section.data,
            requirements=section.requirements,
            conda=section.conda,
            metrics=tuple(section.metrics.items()),
            keep=section.keep,
        ),
        stop=_stop_rule(section.stop),
        submitted=0.0,
        fingerprint=fingerprint(submission),
        source=submission.spec.SerializeToString(deterministic=True),
        tier=section.suspend.tier,
        durability_seconds=section.suspend.durability_seconds,
        suspend_deadline_seconds=section.suspend.deadline_seconds,
        replicas=section.suspend.replicas,
        required_paths=tuple(dict.fromkeys(section.requires.paths)),
        max_failures=section.retry.max_failures,
        on_third_failure=OnThirdFailure.STUDY if is_strict else section.retry.on_third_failure,
        on_same_failure=OnSameFailure.GO_ON if is_strict else section.retry.on_same_failure,
        failure_rule=section.retry.rule,
        hung_seconds=section.retry.hung_seconds,
        stalled=section.retry.stalled,
        retry_rules=tuple(RetryRule(rule.match, rule.do) for rule in section.retry.rules),
        device_kind=section.resources.device_kind,
        memory_bytes=section.resources.memory_bytes,
        devices=section.resources.devices,
        most_devices=section.resources.max_devices or 0,
        processes=_processes(section.resources),
        checkpoint_steps=population.interval_steps if population else 0,
        priority=section.priority,
        share=section.share,
        share_with=section.share_with,
        program_sha256=submission.program_sha256,
        code_identity_sha256=submission.code_identity_sha256,
        searcher=searchers.searcher(section),
        outside=section.search.asked,
    )


def _processes(resources: ResourcesSection) -> Processes | None:
    """What runs on the devices of a trial: of one that may have several later, ranks from the
    first."""
    if resources.processes is None and (resources.max_devices or 1) > resources.devices:
        return Processes.RANKS
    return resources.processes


def fingerprint(submission: Submission) -> str:
    """Equal for submissions of the same study and given variables over the same code."""
    digest = hashlib.sha256(submission.spec.SerializeToString(deterministic=True))
    code = submission.code_identity_sha256 or submission.code_sha256
    digest.update(b"\0" + code.encode())
    for name, value in sorted(dict(submission.given).items()):
        digest.update(f"\0{name}={value}".encode())
    return digest.hexdigest()


def proposed_id(spec: pb.StudySpec) -> StudyId:
    """What the study is to be called if nobody else is: its name, else its program's."""
    name = spec.name or spec.program.rpartition("/")[2].removesuffix(".py")
    name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
    return slug or "study"


def spec_of(study: Study) -> pb.StudySpec:
    """The spec that the study was submitted with."""
    return pb.StudySpec.FromString(study.source)


def trial_seed(seed: int, number: int) -> int:
    """The seed of a trial's own training, 32 bits."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _axis_errors(spec: pb.StudySpec) -> tuple[FieldError, ...]:
    """What is wrong with the parameters of a spec that is wrong elsewhere."""
    try:
        space.axes(parameters_of(spec))
    except Refused as refused:
        return refused.errors
    return ()


# What is looked at once all else of a spec is sound by itself.
_LOOKED_AT_LATER = frozenset({"schedule", "run_cap"})


def _further(submission: Submission, found: Sequence[FieldError]) -> Pieces[tuple[FieldError, ...]]:
    """What else is wrong with a submission, beside the sections in which this was found."""
    rest = pb.StudySpec()
    rest.CopyFrom(submission.spec)
    wrong = {error.field_path.partition(".")[0] for error in found}
    fields = wrong.intersection(rest.DESCRIPTOR.fields_by_name)
    for name in fields:
        rest.ClearField(name)
    if not fields:
        return ()
    try:
        yield from draft_in_pieces(replace(submission, spec=rest))
    except Refused as refused:
        later = _LOOKED_AT_LATER - wrong
        return tuple(each for each in refused.errors if each.field_path.partition(".")[0] in later)
    return ()


def _points(section: StudySection) -> Pieces[list[space.Point]]:
    axes = space.axes(section.parameters, section.where)
    if section.method == "grid":
        return (yield from space.grid(axes, section.run_cap, TRIALS_LIMIT))
    if section.method in searchers.METHODS:
        trials = section.run_cap or searchers.RUN_CAP
        _see_that_it_is_no_more_than_the_limit(trials)
        space.see_that_it_fits(axes, trials)
        return (yield from space.draws(axes, searchers.startup(section), section.seed))
    if section.run_cap is None:
        expected = (
            "how many trials to draw, as random search has no end of its own: the line"
            " `run_cap: 20` in the study file, or --trials 20"
        )
        raise Refused(FieldError("run_cap", "", expected))
    _see_that_it_is_no_more_than_the_limit(section.run_cap)
    return (yield from space.draws(axes, section.run_cap, section.seed))


def _fallen_out(section: StudySection) -> Pieces[str]:
    """How many points the conditions take away, for who submits the study; empty without any."""
    if not section.where:
        return ""
    axes = space.axes(section.parameters, section.where)
    if section.method == "grid":
        fell, points = yield from space.fallen_out(axes)
        return f"where: {fell:,} of the {points:,} points of the grid fall out"
    is_search = section.method in searchers.METHODS
    count = searchers.startup(section) if is_search else section.run_cap or 0
    fell = 0
    for number in range(1, count + 1):
        tried = enumerate(space.attempts(axes, section.seed, number))
        fell += next(n for n, point in tried if axes.allows(point))
        yield
    return f"where: {fell:,} of {count + fell:,} points that were drawn fell out"


def _see_that_it_is_no_more_than_the_limit(run_cap: int) -> None:
    if run_cap > TRIALS_LIMIT:
        raise Refused(FieldError("run_cap", str(run_cap), f"at most {TRIALS_LIMIT}"))


def _stop_rule(section: StopSection) -> StopRule:
    return StopRule(**dict(section))


def _environment(given: Sequence[tuple[str, str]]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables that trials get, and notes on those that they do not."""
    errors = []
    kept: dict[str, str] = {}
    dropped = []
    for name, value in given:
        if not name or "=" in name or "\0" in name or "\0" in value:
            expected = "a name without `=`, and no NUL"
            errors.append(FieldError(f"environment.{shown(name)}", "", expected))
        elif RESERVED.fullmatch(name):
            dropped.append(name)
        else:
            kept[name] = value
    size = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in kept.items())
    if size > ENVIRONMENT_LIMIT_BYTES:
        expected = f"at most {ENVIRONMENT_LIMIT_BYTES} bytes"
        errors.append(FieldError("environment", f"{size} bytes", expected))
    if errors:
        raise Refused(*errors)
    return kept, tuple(f"{name} is set by Hermes for each trial" for name in dropped)


def _taken_for_another(section: StudySection) -> Iterable[str]:
    """What is as it was written, but rarely as it was meant."""
    metric = section.metric
    if "goal" not in metric.model_fields_set and _BETTER_HIGH.search(metric.name):
        yield (
            f"the lowest {metric.name} ranks first, since no goal is given; for the highest:"
            f" --metric {metric.name}:maximize, or metric.goal in the study file"
        )
    for name, axis in space.axes(section.parameters, section.where).items():
        if type(axis) is space.LogUniform and 0 < axis.min < axis.max < 1:
            low, high = math.exp(axis.min), math.exp(axis.max)
            yield (
                f"{name} is drawn from {low:.4g} to {high:.4g}, since log_uniform's min and max are"
                f" exponents; from {axis.min:g} to {axis.max:g}: log_uniform_values"
            )


def _notes(section: StudySection, fallen_out: str) -> Iterable[str]:
    ignored: Mapping[str, str] = {"project": section.project, "entity": section.entity}
    for name, value in ignored.items():
        if value:
            yield f"{name} was kept but has no effect"
    given = {"${args}", "${args_no_boolean_flags}", "${args_no_hyphens}", "${args_json}"}
    if (
        section.command
        and (section.parameters or section.sequences)
        and not given & set(section.command)
    ):
        yield (
            "command has no ${args}: the program gets the parameters only in the variable"
            " HERMES_PARAMETERS"
        )
    if fallen_out:
        yield fallen_out
    yield from _taken_for_another(section)
    yield from searchers.notes(section)
    if section.method == "random" and not section.seed:
        yield "the points are those of seed 0; give another `seed` for others"
