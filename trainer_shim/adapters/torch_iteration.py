"""What is seen of one iteration: its loss, its gradients, and which optimizers stepped.

Rule: the loss stays the tensor it is until a report is due; nothing here waits for a device.
"""

from __future__ import annotations

import weakref
from typing import Any

_EVERY = id(None)


class Iteration:
    """The iteration under way."""

    def __init__(self) -> None:
        self.loss: Any = float("nan")  # of the last backward before the last step
        self.needs_gradients = False  # some were added to, not forgotten, before a step
        self.leaves_gradients = True  # the same, once the last iteration of a pass is done
        self.tellings = 0
        self._newest_loss = self.loss
        self._scaled: tuple[Any, Any] | None = None
        self._zeroed: set[int] = set()
        self._leader: Any = _nobody
        self._last: Any = _nobody

    def backward(self, tensors: Any) -> None:
        """Gradients of these were computed: a loss, if it is one number."""
        import torch

        self.leaves_gradients = True
        tensor = tensors if isinstance(tensors, torch.Tensor) else None
        if self._scaled is not None and self._scaled[0]() is tensor:
            tensor = self._scaled[1]
        if tensor is not None and tensor.numel() == 1 and tensor.is_floating_point():
            self._newest_loss = tensor.detach()
        self._scaled = None

    def scaled(self, loss: Any, scaled: Any) -> None:
        """A GradScaler has made `scaled` of the loss."""
        self._scaled = (weakref.ref(scaled), loss.detach())

    def zeroed(self, optimizer: Any) -> None:
        """An optimizer's gradients were forgotten; with None a module's."""
        self._zeroed.add(id(optimizer))

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has used its gradients."""
        self.tellings += 1
        self.loss = self._newest_loss
        if not self._zeroed & {id(optimizer), _EVERY}:
            self.needs_gradients = True

    def done(self) -> None:
        """The next one begins."""
        self._zeroed.clear()
        self.leaves_gradients, self.needs_gradients = self.needs_gradients, False

    def is_counted_by(self, optimizer: Any) -> bool:
        """Whether a step of this optimizer counts as an iteration, where nothing else tells.

        One of them counts: the first there was, until it is gone or another steps by itself.
        """
        if self._leader() is None or self._last() is optimizer:
            self._leader = weakref.ref(optimizer)
        self._last = weakref.ref(optimizer)
        return self._leader() is optimizer


def _nobody() -> None:
    return None
