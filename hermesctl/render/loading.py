"""The lines of code that load the content of a checkpoint without Hermes."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

KERAS, TORCH, LIGHTNING = "model.keras", "model.pt", "model.ckpt"
PRETRAINED = "pretrained"
TENSORFLOW, TENSORFLOW_STATE = "tf-checkpoint", "tensorflow.json"


def loading_lines(folder: Path, names: Collection[str]) -> list[str]:
    """The lines of Python that load what lies in `folder`; none where nothing of it is meant to be
    loaded by itself."""

    def at(name: str) -> str:
        return repr(str(folder / name))

    if KERAS in names:
        return ["import keras", f"model = keras.models.load_model({at(KERAS)})"]
    if f"{PRETRAINED}/config.json" in names and (model := _architecture(folder / PRETRAINED)):
        return [
            f"from transformers import {model}  # or from your script, if it is a class of that",
            f"model = {model}.from_pretrained({at(PRETRAINED)})",
        ]
    if LIGHTNING in names:  # the class is one of the script's
        return [
            "# Model: your LightningModule; with arguments if it doesn't save_hyperparameters()",
            f"model = Model.load_from_checkpoint({at(LIGHTNING)})",
        ]
    if f"{TENSORFLOW}.index" in names:
        objects = _objects(folder / TENSORFLOW_STATE)
        kept = f"tf.train.Checkpoint({', '.join(f'{name}={name}' for name in objects)})"
        line = f"{kept}.read({at(TENSORFLOW)})  # into objects made as your script makes them"
        return ["import tensorflow as tf", line] if objects else []
    found = [name for name in sorted(names) if "/" not in name and name.endswith(".pt")]
    if TORCH not in found:
        return []
    lines = ["import torch"]
    for name in found:
        kind, _, number = name.removesuffix(".pt").partition("-")
        if kind in ("model", "optimizer"):  # which the script makes as it did
            made = f"{kind}{number and f'_{number}'}"
            saved, without = f"torch.load({at(name)}, weights_only=True)", ""
            if (beside := f"{name.removesuffix('.pt')}.missing.json") in names:
                which = ", ".join(_missing(folder / beside)) or "some of it"
                saved, without = f"{saved}, strict=False", f"  # {which}: it could not be saved"
            lines.append(f"{made}.load_state_dict({saved}){without}")
    return lines


def is_loaded(name: str) -> bool:
    """Whether a file is one of those that `loading_lines` are for."""
    first = name.partition("/")[0]
    return first in (KERAS, LIGHTNING, PRETRAINED) or (
        first.endswith(".pt") or first.startswith(f"{TENSORFLOW}.")
    )


def step_for_people(folder: Path) -> int | None:
    """The step of the files that are meant to be loaded by themselves, which may be a later one
    than that of the checkpoint; None if the folder doesn't say."""
    manifest = folder / "manifest.json"
    found = (_said(manifest, key) for key in ("result_step", "step"))
    return next((step for step in found if isinstance(step, int)), None)


def _architecture(folder: Path) -> str:
    """The class of the model that `save_pretrained` wrote; empty if the folder doesn't say."""
    said = _names(folder / "config.json", "architectures")
    return said[0] if said else ""


def _objects(path: Path) -> list[str]:
    """What the program called the objects in a `tf.train.Checkpoint`; none if that isn't said."""
    return _names(path, "state", "objects")


def _missing(path: Path) -> list[str]:
    """The names in a state_dict that a file of it lacks."""
    found = _said(path)
    names = [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
    return [name for name in names if f"_{name}".replace(".", "").isidentifier()]


def _said(path: Path, *keys: str) -> Any:
    """What a JSON file says at this place; None if it says nothing there."""
    try:
        found = json.loads(path.read_bytes())
        for key in keys:
            found = found[key]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found


def _names(path: Path, *keys: str) -> list[str]:
    """The names that a list in a JSON file holds; none of a file that has no such list."""
    found = _said(path, *keys)
    names = found if isinstance(found, list) else []
    return [name for name in names if isinstance(name, str) and name.isidentifier()]
