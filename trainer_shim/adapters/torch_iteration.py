"""What is seen of one iteration: its loss, its gradients, and which optimizers stepped.

Rule: the loss of a step is what its gradients are of: the sum over the backward calls since they
were forgotten, or used. So a loss that is divided among several batches, as gradients that
accumulate ask for, has the scale of one over a batch. It stays the tensor it is until a report is
due; nothing here waits for a device. One that the processor has computed is there: it is made a
number at once, which costs less than to keep it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from trainer_shim.adapters import torch_private as private

if TYPE_CHECKING:
    from trainer_shim.agent import Agent

_EVERY = id(None)


class Iteration:
    """The iteration under way."""

    def __init__(self) -> None:
        import torch

        self._tensor = torch.Tensor
        self._is_compiling = torch.compiler.is_dynamo_compiling
        self._modes = private.find("torch._C", "_len_torch_dispatch_stack")
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
            before, loss = self._gathered, self._kept(tensor)
            self._gathered = loss if before is None else _sum(before, loss, tensor.dtype)

    def _kept(self, tensor: Any) -> Any:
        """Its number if that is there; not where one is traced, or who is told of all that is
        done would be told of this."""
        is_plain = tensor.is_cpu and type(tensor) is self._tensor
        if is_plain and not self._is_compiling() and not self._modes():
            try:
                return float(tensor.item())
            except Exception:  # a layout, or whatever a program makes of tensors
                pass
        return tensor.detach()

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


def _sum(before: Any, loss: Any, kind: Any) -> Any:
    """Both together, as tensors of this dtype add up; of what is in different places the later
    one: a sum would have to wait."""
    import torch

    if isinstance(before, float) and isinstance(loss, float):
        return torch.tensor(before + loss, dtype=kind).item()
    here = torch.device("cpu")
    devices = [here if isinstance(one, float) else one.device for one in (before, loss)]
    return before + loss if devices[0] == devices[1] else loss


def _nobody() -> None:
    return None
