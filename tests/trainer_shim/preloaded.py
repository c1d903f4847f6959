"""What a zygote of `test_trainers` imports: PyTorch, and the frameworks on it that are there."""

from __future__ import annotations

import contextlib
import importlib
import warnings

warnings.simplefilter("ignore")
for name in ("torch._dynamo", "lightning.pytorch", "pytorch_lightning", "transformers.trainer"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
