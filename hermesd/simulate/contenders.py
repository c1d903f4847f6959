"""The policies that are compared, each with its placement, as `hermesd.spelling` reads them."""

from __future__ import annotations

from dataclasses import dataclass

from hermesd.core.model import Plugin, Setting
from hermesd.spelling import listed, spelled

ANYWHERE = Plugin("free")


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with its placement, and what it is called in the figures."""

    label: str
    policy: Plugin
    placement: Plugin


FIFO = Contender("fifo", Plugin("fifo"), ANYWHERE)


def contenders(text: str) -> tuple[Contender, ...]:
    """Every policy of a list; one named twice counts once.

    Raises:
        Refused: a name or a setting that none of ours has, or a value that will not do.
    """
    return tuple(_contender(label) for label in listed(text))


def label_of(policy: Plugin, placement: Plugin) -> str:
    """A policy with its settings and its placement, as `contenders` reads them."""
    settings = [
        f"{name}={_worded(value)}" for name, value in (*policy.settings, *placement.settings)
    ]
    if placement.name != ANYWHERE.name:
        settings.append(f"placement={placement.name}")
    return f"{policy.name}:{','.join(settings)}" if settings else policy.name


def _worded(value: Setting) -> str:
    if isinstance(value, tuple):
        return ":".join(map(_worded, value)) + ":" * (len(value) < 2)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _contender(label: str) -> Contender:
    meant = spelled(label)
    return Contender(label, meant.policy, meant.placement or ANYWHERE)
