"""Where PyTorch is hooked.

A hook does what it replaces and tells the session; it costs an iteration microseconds.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

from trainer_shim.adapters.torch import private, random
from trainer_shim.adapters.torch.loop import TorchSession, open_session
from trainer_shim.agent import Agent


def install(agent: Agent) -> None:
    """Hook PyTorch, which has just been imported."""
    import torch

    agent.before_hold = _empty_cache
    reason = private.missing()
    if reason is not None:
        agent.fidelity("park-only", reason)
        return
    if agent.seed is not None:
        torch.manual_seed(agent.seed % 2**63)
    session = open_session(agent)
    _hook_constructors(session)
    _hook_steps(session)
    _hook_losses(session)
    _hook_loaders(session)
    _hook_files(session)
    if agent.several and private.first_missing(private.BUCKET_NAMES, "torch") is None:
        _hook_buckets(session)
    random.install(session.is_in_a_pass)


def _empty_cache() -> None:
    """Give back the memory of a GPU that is only kept for later: it need not be moved."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _after(owner: Any, name: str, tell: Callable[..., None]) -> None:
    """Have `tell(self, result, *arguments)` called after a method."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        tell(self, result, *args)
        return result

    setattr(owner, name, method)


def _hook_constructors(session: TorchSession) -> None:
    import torch

    def made(kind: str) -> Callable[..., None]:
        return lambda one, *_: session.made(kind, one)

    _after(torch.nn.Module, "__init__", made("module"))
    _after(torch.nn.Module, "__setstate__", made("module"))
    _after(torch.optim.Optimizer, "__init__", made("optimizer"))
    _after(torch.amp.GradScaler, "__init__", made("scaler"))
    _after(torch.utils.data.DataLoader, "__init__", made("loader"))
    root = private.find(private.SCHEDULERS, "LRScheduler")
    schedulers = vars(sys.modules[private.SCHEDULERS]).values()
    for kind in {one for one in schedulers if isinstance(one, type) and issubclass(one, root)}:
        if "__init__" in vars(kind):
            _after(kind, "__init__", made("scheduler"))


def _hook_steps(session: TorchSession) -> None:
    import torch

    private.find("torch.optim.optimizer", "register_optimizer_step_post_hook")(session.stepped)
    iteration, step = session.iteration, torch.amp.GradScaler.step

    @functools.wraps(step)
    def scaler_step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        told = iteration.tellings
        result = step(scaler, optimizer, *args, **kwargs)
        if iteration.tellings == told:
            session.stepped(optimizer)  # left out for an overflow: an iteration all the same
        return result

    torch.amp.GradScaler.step = scaler_step
    _after(torch.optim.Optimizer, "zero_grad", iteration.zeroed)
    _after(torch.nn.Module, "zero_grad", lambda *_: iteration.zeroed(None))


def _hook_losses(session: TorchSession) -> None:
    import torch

    original, iteration = torch.autograd.backward, session.iteration

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        original(tensors, *args, **kwargs)
        iteration.backward(tensors)  # after any that it has called itself

    torch.autograd.backward = backward

    def scaled(_: Any, result: Any, outputs: Any) -> None:
        if isinstance(outputs, torch.Tensor):
            iteration.scaled(outputs, result)

    _after(torch.amp.GradScaler, "scale", scaled)


def _hook_loaders(session: TorchSession) -> None:
    import torch

    make = torch.utils.data.DataLoader.__iter__

    @functools.wraps(make)
    def iterator(loader: Any) -> Any:
        return session.open(loader, make, sys._getframe(1))

    torch.utils.data.DataLoader.__iter__ = iterator
    iterators = private.find(private.LOADER, "_BaseDataLoaderIter")
    next_batch = session.next_batch = iterators.__next__
    passes = session.beside.passes

    @functools.wraps(next_batch)
    def following(self: Any) -> Any:
        current = passes.get(id(self))
        if current is None:
            return next_batch(self)
        current.asked(self, sys._getframe(1))
        try:
            batch = current.read(self)
        except StopIteration:
            current.ended(self, sys._getframe(1))
            raise
        current.taken += 1
        return batch

    iterators.__next__ = following


def _hook_buckets(session: TorchSession) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    original = DistributedDataParallel._ddp_init_helper

    @functools.wraps(original)
    def init_helper(model: Any, parameters: list[Any], *args: Any, **kwargs: Any) -> None:
        past = None if session.is_left_out() else session.buckets.made(model, len(parameters))
        assign = dist._compute_bucket_assignment_by_size
        if past is not None:
            buckets = past[::-1]  # it is reversed there

            def assign_as_before(*given: Any) -> tuple[list[list[int]], list[int]]:
                _, limits = assign(*given)
                return buckets, limits[:1] * len(buckets)

            dist._compute_bucket_assignment_by_size = assign_as_before
        try:
            original(model, parameters, *args, **kwargs)
        finally:
            dist._compute_bucket_assignment_by_size = assign

    DistributedDataParallel._ddp_init_helper = init_helper


def _hook_files(session: TorchSession) -> None:
    import torch

    original = torch.save

    @functools.wraps(original)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        # Run again on the way to the checkpoint, the program would save what it has not trained.
        if not (session.is_returning and exists_already(f)):
            original(obj, f, *args, **kwargs)

    torch.save = save


def exists_already(file: Any) -> bool:
    """Whether a file was written by the process that took the checkpoint, or before."""
    return isinstance(file, (str, os.PathLike)) and os.path.exists(file)
