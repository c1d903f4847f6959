"""Policies as people write them on a command line: `hermes:placement=homes,g_thres=4`.

A name, then settings of the policy and of its placement; commas separate both the settings and the
policies, since only a setting has a `=`. A value is a number, a fraction, true or false, a word, or
several of these with colons between them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from hermesd.core.model import Plugin, Scalar, Setting
from hermesd.core.placement import PLACEMENTS, make_placement
from hermesd.core.policy import BadSetting
from hermesd.policy import POLICIES, make_policy
from hermesd.refusal import FieldError, Refused, nearest, one_of

DEFAULT_PLACEMENT = "free"


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with its placement, and what it is called in the figures."""

    label: str
    policy: Plugin
    placement: Plugin


FIFO = Contender("fifo", Plugin("fifo"), Plugin(DEFAULT_PLACEMENT))


def contenders(text: str) -> tuple[Contender, ...]:
    """Every policy of a list; one named twice counts once.

    Raises:
        Refused: a name or a setting that none of ours has, or a value that will not do.
    """
    listed: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "=" in part and ":" not in part.partition("=")[0]:
            if not listed:
                raise Refused(
                    FieldError("policy", part, "the name of a policy before its settings")
                )
            listed[-1] += ("," if ":" in listed[-1] else ":") + part
        else:
            listed.append(part)
    if not listed:
        raise Refused(FieldError("policy", text, one_of(POLICIES)))
    return tuple(_contender(each) for each in dict.fromkeys(listed))


def label_of(policy: Plugin, placement: Plugin) -> str:
    """A policy with its settings and its placement, as `contenders` reads them."""
    settings = [
        f"{name}={_worded(value)}" for name, value in (*policy.settings, *placement.settings)
    ]
    if placement.name != DEFAULT_PLACEMENT:
        settings.append(f"placement={placement.name}")
    return f"{policy.name}:{','.join(settings)}" if settings else policy.name


def _worded(value: Setting) -> str:
    if isinstance(value, tuple):
        return "".join(f"{_worded(item)}:" for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _contender(label: str) -> Contender:
    name, _, rest = label.partition(":")
    settings = [_pair(label, part) for part in rest.split(",")] if rest else []
    placement = next((str(v) for k, v in settings if k == "placement"), DEFAULT_PLACEMENT)
    theirs = [(key, value) for key, value in settings if key != "placement"]
    try:
        make_policy(Plugin(name))
        make_placement(Plugin(placement))
        of_policy, of_placement = _names(POLICIES[name]), _names(PLACEMENTS[placement])
        split: tuple[list[tuple[str, Setting]], list[tuple[str, Setting]]] = ([], [])
        for key, value in theirs:
            if key.lower() in of_policy:
                split[0].append((of_policy[key.lower()], value))
            elif key.lower() in of_placement:
                split[1].append((of_placement[key.lower()], value))
            else:
                choices = ["placement", *of_policy.values(), *of_placement.values()]
                raise Refused(
                    FieldError(f"policy.{name}", key, one_of(choices), nearest(key, choices))
                )
        contender = Contender(
            label, Plugin(name, tuple(split[0])), Plugin(placement, tuple(split[1]))
        )
        make_policy(contender.policy)
        make_placement(contender.placement)
    except BadSetting as error:
        shown = str(error.value)
        raise Refused(FieldError(error.field, shown, error.expected, error.nearest)) from None
    return contender


def _names(plugin: Any) -> dict[str, str]:
    """A plug-in's settings by their name in small letters."""
    return {field.name.lower(): field.name for field in fields(plugin)}


def _pair(label: str, part: str) -> tuple[str, Setting]:
    key, equals, value = part.partition("=")
    if not (key and equals and value):
        raise Refused(FieldError(f"policy.{label}", part, "setting=value"))
    if ":" in value:
        return key, tuple(_scalar(item) for item in filter(None, value.split(":")))
    return key, _scalar(value)


def _scalar(text: str) -> Scalar:
    if text in ("true", "false"):
        return text == "true"
    upper, slash, lower = text.partition("/")
    try:
        if slash:
            return float(upper) / float(lower)
        return int(text)
    except (ValueError, ZeroDivisionError):
        pass
    try:
        return float(text)
    except ValueError:
        return text
