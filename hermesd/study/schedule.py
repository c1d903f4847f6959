"""Which policy and placement a study asked for, in whichever of the ways that there are for it.

Rule: settings in a policy's name (`hermes:placement=homes,g_thres=4`) are as good as those of a
mapping; what is written beside a name counts before what stands in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermesd.core.model import Plugin, Setting
from hermesd.core.placement import make_placement
from hermesd.core.policy import BadSetting
from hermesd.policy import make_policy
from hermesd.refusal import FieldError, Refused, shown, under
from hermesd.spelling import Spelled, placements_with, split
from hermesd.study.spec import EarlyTerminateSection, PluginSection, StudySection


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
