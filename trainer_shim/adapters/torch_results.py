"""What `self.log` of Lightning has gathered in the epoch under way.

Rule: it is made as Lightning makes it at the first `log` of each name, and then given the values
of then; a metric that is a module of the model's stands for itself.
"""

from __future__ import annotations

import builtins
from typing import Any

from trainer_shim.adapters import torch_kept as kept
from trainer_shim.adapters import torch_private as private
from trainer_shim.adapters.torch_pack import Packer
from trainer_shim.adapters.torch_state import OtherProgram, State
from trainer_shim.adapters.torch_unpack import Unpacker


def copy(results: Any, packer: Packer) -> list[State]:
    """Each name's settings and values."""
    import torch

    not_kept = {*vars(torch.nn.Module()), "meta"}
    copies = []
    for key, metric in results.items():
        meta, sync = metric.meta, metric.meta.sync
        name = meta.reduce_fx.__name__
        left_out = not_kept if metric.is_tensor else {*not_kept, "value"}
        copies.append(
            {
                "key": key,
                "is_tensor": metric.is_tensor,
                "meta": {field: getattr(meta, field) for field in private.METADATA},
                "reduce_fx": [name, meta.reduce_fx is getattr(builtins, name, None)],
                "sync": {"_should": sync.should, "rank_zero_only": sync.rank_zero_only},
                "values": kept.attributes(metric, packer, left_out),
            }
        )
    return copies


def put_back(
    results: Any, copies: list[State], unpacker: Unpacker, package: str, trainer: Any
) -> None:
    """Set what `copy` copied. Raises OtherProgram."""
    import torch

    module = f"{package}.{private.CONNECTOR}.result"
    metadata, sync_class, metric_class = (
        private.find(module, name) for name in ("_Metadata", "_Sync", "_ResultMetric")
    )
    modules: dict[str, Any] = dict(trainer.lightning_module.named_modules())
    results.clear()
    for copy in copies:
        name, is_pythons = copy["reduce_fx"]
        meta = metadata(reduce_fx=getattr(builtins if is_pythons else torch, name), **copy["meta"])
        meta.sync = sync_class(fn=trainer.strategy.reduce, **copy["sync"])
        metric = metric_class(meta, copy["is_tensor"])
        if copy["is_tensor"]:
            metric.to(trainer.strategy.root_device)
        elif meta.metric_attribute in modules:
            metric.value = modules[meta.metric_attribute]
        else:
            raise OtherProgram(f"the model has no metric {meta.metric_attribute}")
        unpacker.put_some(copy["values"], vars(metric))
        results[copy["key"]] = metric
