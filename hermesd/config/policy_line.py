"""A policy as people write it on one line, on a command line or in a study file:
`hermes:placement=homes,g_thres=4`.

The name is followed by settings of the policy and of its placement. Commas separate both the
settings and the policies of a list, since only a setting has a `=`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hermesd.config.labels import label
from hermesd.core.model import Plugin, Setting
from hermesd.core.placement import PLACEMENTS, make_placement
from hermesd.core.policy import BadSetting, read
from hermesd.policy import POLICIES, make_policy
from hermesd.refusal import FieldError, Refused, nearest, one_of, under


@dataclass(frozen=True, slots=True)
class Spelled:
    """A policy and its placement, None where none is named."""

    policy: Plugin
    placement: Plugin | None


def listed(text: str) -> tuple[str, ...]:
    """The policies of a list, each with its settings; one named twice counts once.

    Raises:
        Refused: nothing is listed, or settings without a policy before them.
    """
    found: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "=" in part and ":" not in part.partition("=")[0]:
            if not found:
                raise Refused(
                    FieldError("policy", part, "the name of a policy before its settings")
                )
            found[-1] += ("," if ":" in found[-1] else ":") + part
        else:
            found.append(part)
    if not found:
        raise Refused(_plain("policy", POLICIES.unknown(text)))
    return tuple(dict.fromkeys(found))


def split(text: str) -> Spelled:
    """One policy with its settings, taken apart; what no plug-in knows is left with the policy.

    Raises:
        Refused: something that is no `setting=value`.
    """
    name, _, rest = text.partition(":")
    settings = dict(_pair(text, part) for part in rest.split(",")) if rest else {}
    placed = settings.pop("placement", None)
    of_policy, of_placement = _names(POLICIES, name), _names(PLACEMENTS, placed or "free")
    mine: list[tuple[str, Setting]] = []
    where: list[tuple[str, Setting]] = []
    for key, value in settings.items():
        if key.lower() in of_placement and key.lower() not in of_policy:
            where.append((of_placement[key.lower()], read(value)))
        else:
            mine.append((of_policy.get(key.lower(), key), read(value)))
    placement = Plugin(placed or "free", tuple(where)) if placed or where else None
    return Spelled(Plugin(name, tuple(mine)), placement)


def spelled(text: str) -> Spelled:
    """What one policy with its settings means.

    Raises:
        Refused: a name or a setting that none of ours has, or a value that will not do.
    """
    meant = split(text)
    policy, placement = meant.policy, meant.placement or Plugin("free")
    _check(Plugin(policy.name), Plugin(placement.name))
    of_policy, of_placement = _names(POLICIES, policy.name), _names(PLACEMENTS, placement.name)
    for key, value in policy.settings:
        if key.lower() not in of_policy:
            choices = ["placement", *of_policy.values(), *of_placement.values()]
            near = next((f"placement={n},{s}={value}" for n, s in placements_with(key)), "")
            hint = near or nearest(key, choices)
            raise Refused(FieldError(f"policy.{policy.name}", key, one_of(choices), hint))
    _check(policy, placement)
    return meant


def placements_with(setting: str) -> list[tuple[str, str]]:
    """The placements that have a setting, and what it is called in full."""
    mine = ((name, _names(PLACEMENTS, name).get(setting.lower())) for name in PLACEMENTS)
    return [(name, full) for name, full in mine if full]


def _names(known: Mapping[str, Any], name: str) -> dict[str, str]:
    """A plug-in's settings by their name in small letters; none of one that cannot be used."""
    try:
        return {field.name.lower(): field.name for field in fields(known[name])}
    except (KeyError, BadSetting):
        return {}


def _check(policy: Plugin, placement: Plugin) -> None:
    """Raises Refused for one that cannot be made, by its name: `policy.asha.eta`.

    A placement is part of what is written as the policy: `policy.placement.homes.G_thres`.
    """
    try:
        make_policy(policy)
    except BadSetting as error:
        raise Refused(_plain(f"policy.{policy.name}", error)) from None
    try:
        make_placement(placement)
    except BadSetting as error:
        wrong = _plain(f"placement.{placement.name}", error)
        raise Refused(*under("policy", [wrong])) from None


def _plain(path: str, error: BadSetting) -> FieldError:
    noun = path.partition(".")[0]
    field = noun if error.field == noun else f"{path}.{error.field}"
    return FieldError(field, str(error.value), error.expected, error.nearest)


def _pair(text: str, part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not (key and equals and value):
        raise Refused(FieldError(f"policy.{text}", part, "setting=value"))
    return key, value


def label_of(policy: Plugin, placement: Plugin) -> str:
    """A policy with its settings and its placement, as `listed` and `spelled` read them."""
    named = "" if placement.name == "free" else placement.name
    return label(policy.name, (*policy.settings, *placement.settings), named)
