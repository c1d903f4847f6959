"""A tensor's values as a checkpoint holds them: shared with nothing, and restored as they were."""

from __future__ import annotations

import ctypes
from typing import Any


class Unplain(Exception):
    """A value that cannot be packed, or not be put back where it was; the message names it."""


class Raw:
    """A tensor's values: in the processor's memory, one after the other, nobody else's.

    `stride` and `device` are how the program had them.
    """

    __slots__ = ("data", "device", "stride")

    def __init__(self, data: Any, stride: list[int], device: str) -> None:
        self.data = data
        self.stride = stride
        self.device = device

    @classmethod
    def of(cls, tensor: Any) -> Raw:
        """Copy a tensor. Raises Unplain as `check` does."""
        import torch

        check(tensor)
        data = torch.empty(tensor.shape, dtype=tensor.dtype)
        data.copy_(tensor.detach())
        return cls(data, list(tensor.stride()), str(tensor.device))

    @classmethod
    def of_bytes(cls, content: bytes) -> Raw:
        """Bytes, as a tensor of them."""
        import torch

        data = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else None
        return cls(torch.empty(0, dtype=torch.uint8) if data is None else data, [1], "cpu")

    def bytes(self) -> bytes:
        """What `of_bytes` was given."""
        return ctypes.string_at(self.data.data_ptr(), self.data.numel())

    def __eq__(self, other: object) -> bool:
        import torch

        if not isinstance(other, Raw) or self.data.dtype != other.data.dtype:
            return False
        alike = (self.stride, self.device) == (other.stride, other.device)
        return alike and torch.equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]

    def tensor(self) -> Any:
        """A new tensor that is like the one that was copied."""
        import torch

        shape = self.data.shape
        made = torch.empty(shape, dtype=self.data.dtype, device=self.device)
        if self.stride != list(made.stride()) and _is_dense(list(shape), self.stride):
            made = torch.empty_strided(
                tuple(shape), tuple(self.stride), dtype=self.data.dtype, device=self.device
            )
        return made.copy_(self.data)


def check(tensor: Any) -> None:
    """Raise Unplain for a tensor that is more, or less, than values in memory."""
    import torch

    kind = type(tensor)
    if kind not in (torch.Tensor, torch.nn.Parameter):
        raise Unplain(f"a tensor of type {kind.__name__}")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise Unplain(f"a tensor of {tensor.dtype}, {tensor.layout}, on {tensor.device}")


def _is_dense(shape: list[int], stride: list[int]) -> bool:
    """Whether the strides address each element once and leave no gap."""
    expected = 1
    for step, size in sorted(zip(stride, shape)):
        if size > 1:
            if step != expected:
                return False
            expected *= size
    return True
