"""The policies to compare, each with its placement, as `policy_line` reads them."""

from __future__ import annotations

from dataclasses import dataclass

from hermesd.config.policy_line import listed, spelled
from hermesd.core.model import Plugin

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


def _contender(label: str) -> Contender:
    meant = spelled(label)
    return Contender(label, meant.policy, meant.placement or ANYWHERE)
