"""Which node a command is for: one function for the head and the simulator."""

from __future__ import annotations

from typing import assert_never

from hermesd.core.commands import (
    Bind,
    Command,
    Copy,
    Drop,
    Gather,
    Kill,
    Launch,
    Look,
    Miss,
    Quarantine,
    Release,
    Renew,
    Stop,
    Suspend,
    Trust,
    WriteDown,
)
from hermesd.core.model import NodeId
from hermesd.core.tables import Tables


def addressee(state: Tables, command: Command) -> NodeId | None:
    """The node that carries the command out; None if that is nobody, or its run is over."""
    match command:
        case Bind() | Gather() | Miss() | Quarantine() | Trust():
            return None
        case Copy(target=target):
            return target
        case (
            Drop(node=node)
            | Look(node=node)
            | Kill(node=node)
            | WriteDown(node=node)
            | Release(node=node)
        ):
            return node
        case Launch() | Renew() | Suspend() | Stop():
            trial = state.trials.get(command.run.trial)
            if trial is None or trial.run is None:
                return None
            return state.place(trial.run).node
        case _:
            assert_never(command)
