"""Trials as a policy would see them, made by hand: those that contracts are tried on."""

from __future__ import annotations

from hermesd.policy.check import (
    costing,
    curve,
    finished,
    losses,
    mixed_bag,
    on_device,
    trained,
    trial,
    view,
)

__all__ = [
    "costing",
    "curve",
    "finished",
    "losses",
    "mixed_bag",
    "on_device",
    "trained",
    "trial",
    "view",
]
