"""What is seen of one iteration: its loss, its gradients, and which optimizers stepped.

Rule: the loss of a step is what its gradients are of: the sum over the backward calls since they
were forgotten, or used. So a loss that is divided among several batches, as gradients that
accumulate ask for, has the scale of one over a batch. It stays the tensor it is until a report is
due; nothing here waits for a device.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_shim.agent import Agent

_EVERY = id(None)


class Iteration:
    """The iteration under way."""

    def __init__(self) -> None:
        import torch

        self._tensor = torch.Tensor
        self.loss: Any = float("nan")  # of the backward calls before the last step
        self.needs_gradients = False  # some were added to, not forgotten, before a step
        self.leaves_gradients = True  # the same, once the last iteration of a pass is done
        self.tellings = 0
        self._gathered: Any = None  # by the backward calls of a step to come
        self._scaled: tuple[Any, Any] | None = None
        self._zeroed: set[int] = set()
        self._leader: Any = _nobody
        self._last: Any = _nobody

    def backward(self, tensors: Any) -> None:
        """Gradients of these were computed: a loss, if it is one number."""
        self.leaves_gradients = True
        tensor = tensors if isinstance(tensors, self._tensor) else None
        if self._scaled is not None:
            if self._scaled[0]() is tensor:
                tensor = self._scaled[1]
            self._scaled = None
        if tensor is not None and tensor.numel() == 1 and tensor.is_floating_point():
            self._gather(tensor.detach())

    def _gather(self, loss: Any) -> None:
        """Add to what the next step is of; what is on another device cannot be without a wait."""
        before = self._gathered
        is_one_more = before is not None and before.device == loss.device
        self._gathered = before + loss if is_one_more else loss

    def scaled(self, loss: Any, scaled: Any) -> None:
        """A GradScaler has made `scaled` of the loss."""
        self._scaled = (weakref.ref(scaled), loss.detach())

    def zeroed(self, optimizer: Any, *_: Any) -> None:
        """An optimizer's gradients were forgotten; with None a module's."""
        self._gathered = None
        self._zeroed.add(id(optimizer))

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has used its gradients."""
        self.tellings += 1
        if self._gathered is not None:
            self.loss, self._gathered = self._gathered, None
        if id(optimizer) not in self._zeroed and _EVERY not in self._zeroed:
            self.needs_gradients = True

    def tell(self, agent: Agent, step: int, examples: int) -> None:
        """Have the loss of this step kept for the next report."""
        if agent.signal == "loss":
            agent.record_signal(step, self.loss, examples)
        else:
            agent.record(step, {"loss": self.loss}, examples)

    def done(self) -> None:
        """The next one begins."""
        self._zeroed.clear()
        self._gathered = None  # a resume would not know it
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
