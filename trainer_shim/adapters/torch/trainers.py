"""The frameworks on PyTorch that have a training loop of their own.

A framework that lacks a name which its adapter relies on is left as it is, and says so once it
trains: a program may import it for something else.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from trainer_shim.adapters.torch import lightning, loop, private, transformers

if TYPE_CHECKING:
    from trainer_shim.adapters.torch.loop import TorchSession


def install(package: str) -> None:
    """Hook the trainer of `package`, which has just been imported."""
    session = loop.session()
    if session is None:
        return
    agent = session.agent
    if not agent.trains:
        agent.hello(private.framework())  # it takes long from here to the first step
    reason = private.missing_of(package)
    if reason is not None:
        _refuse(session, package, reason)
    elif package == private.HF_TRAINER:
        transformers.install(session)
    else:
        lightning.install(session, package)


def _refuse(session: TorchSession, package: str, reason: str) -> None:
    method = "train" if package == private.HF_TRAINER else "fit"
    trainer_class = private.find(package, "Trainer")
    original = getattr(trainer_class, method)

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        session.obstacle(reason)
        return original(self, *args, **kwargs)

    setattr(trainer_class, method, train)
