"""What a program gives to TensorBoard, Weights & Biases, MLflow or a progress bar.

The library does its work first; then the value is recorded at the trial's current step, since the
step that the program gives the logger may count anything.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Mapping
from typing import Any, Callable

from trainer_shim import current_agent
from trainer_shim.metrics import lines
from trainer_shim.side_metrics import logged

# Of a call, with the receiver if it is a method's: what was logged.
_Reads = Callable[..., Mapping[Any, Any]]


def _scalar(_: Any, tag: Any, scalar_value: Any, *__: Any, **___: Any) -> Mapping[Any, Any]:
    return {tag: scalar_value}


def _scalars(
    _: Any, main_tag: Any, tag_scalar_dict: Any, *__: Any, **___: Any
) -> Mapping[Any, Any]:
    return {f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}


def _tensorflow_scalar(name: Any, data: Any, *_: Any, **__: Any) -> Mapping[Any, Any]:
    return {name: data}


def _run_log(_: Any, data: Any, *__: Any, **___: Any) -> Mapping[Any, Any]:
    return dict(data)


def _log_metric(key: Any, value: Any, *_: Any, **__: Any) -> Mapping[Any, Any]:
    return {key: value}


def _log_metrics(metrics: Any, *_: Any, **__: Any) -> Mapping[Any, Any]:
    return dict(metrics)


def _postfix(
    _: Any, ordered_dict: Any = None, refresh: Any = True, **named: Any
) -> Mapping[Any, Any]:
    shown = {**(ordered_dict or {}), **named}.items()
    numbers = ((k, lines.number_in(v) if isinstance(v, str) else v) for k, v in shown)
    return {name: value for name, value in numbers if lines.is_metric(str(name))}


def _postfix_text(_: Any, s: str = "", *__: Any, **___: Any) -> Mapping[Any, Any]:
    return {name: value for name, value in lines.pairs(s).items() if lines.is_metric(name)}


# By the module that defines them, so that whoever imports them from there has them so.
_CALLS: dict[str, dict[str, _Reads]] = {
    "torch.utils.tensorboard.writer": {
        "SummaryWriter.add_scalar": _scalar,
        "SummaryWriter.add_scalars": _scalars,
    },
    "tensorboardX.writer": {
        "SummaryWriter.add_scalar": _scalar,
        "SummaryWriter.add_scalars": _scalars,
    },
    "tensorboard.plugins.scalar.summary_v2": {"scalar": _tensorflow_scalar},
    "wandb.sdk.wandb_run": {"Run.log": _run_log},
    "mlflow.tracking.fluent": {"log_metric": _log_metric, "log_metrics": _log_metrics},
    "tqdm.std": {"tqdm.set_postfix": _postfix, "tqdm.set_postfix_str": _postfix_text},
}
MODULES = tuple(_CALLS)


def install(module: str) -> None:
    """Hook a module that has just been imported; what it does not have is left out."""
    for path, reads in _CALLS[module].items():
        owner: Any = sys.modules[module]
        *classes, name = path.split(".")
        for each in classes:
            owner = getattr(owner, each, None)
        original = getattr(owner, name, None)
        if original is not None:
            setattr(owner, name, _told_after(original, reads))


def _told_after(original: Callable[..., Any], reads: _Reads) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        with contextlib.suppress(Exception):  # whatever a program logs that is none of ours
            agent = current_agent.current()
            if agent is not None:
                agent.note(logged(reads(*args, **kwargs)))
        return result

    return call
