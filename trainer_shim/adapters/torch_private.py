"""What the adapter relies on that no public interface of PyTorch or Python promises.

Rule: all of it is listed here. With a name missing nothing is hooked, and with an untested
version nothing is saved; either way the reason names it.
"""

from __future__ import annotations

import platform

from trainer_shim.adapters.private_names import find as find
from trainer_shim.adapters.private_names import first_missing, first_untested

TESTED = {"torch": ("2.13",), "python": ("3.11",)}

LOADER = "torch.utils.data.dataloader"
SCHEDULERS = "torch.optim.lr_scheduler"

NAMES = (
    # Every iterator over a DataLoader goes through these.
    (LOADER, "_BaseDataLoaderIter.__next__"),
    (LOADER, "_BaseDataLoaderIter._next_index"),
    (LOADER, "_SingleProcessDataLoaderIter._next_data"),
    (LOADER, "DataLoader.__iter__"),
    # Called by copy.deepcopy, which makes a module without calling its __init__.
    ("torch.nn", "Module.__setstate__"),
    # Where `Tensor.backward` looks its function up at each call.
    ("torch.autograd", "backward"),
    (SCHEDULERS, "LRScheduler.__init__"),
    ("torch.amp", "GradScaler.step"),
    ("torch.optim.optimizer", "register_optimizer_step_post_hook"),
)
# Of Python itself, besides: that a `for` statement calls `__next__` from the instruction
# FOR_ITER, that the index of an enumerate follows its object header (checked against its
# `__reduce__` each time), and PyFrame_LocalsToFast, which debuggers use to set local variables.


def missing() -> str | None:
    """Why this PyTorch cannot be hooked at all; None when it can."""
    return first_missing(NAMES, framework())


def untested() -> str | None:
    """The version in use that resuming was never tested with; None when all were."""
    import torch

    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return first_untested(TESTED, versions)


def framework() -> str:
    """The framework and its version, as a checkpoint names it."""
    import torch

    return f"torch {torch.__version__}"
