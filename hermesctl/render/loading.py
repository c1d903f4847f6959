"""How what a checkpoint holds is loaded without Hermes."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

KERAS, TORCH, LIGHTNING = "model.keras", "model.pt", "model.ckpt"
PRETRAINED = "pretrained"


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
            f"model = Model.load_from_checkpoint({at(LIGHTNING)})  # Model: your LightningModule,"
            " with its arguments if it does not save_hyperparameters()"
        ]
    found = [name for name in sorted(names) if "/" not in name and name.endswith(".pt")]
    if TORCH not in found:
        return []
    lines = ["import torch"]
    for name in found:
        kind, _, number = name.removesuffix(".pt").partition("-")
        if kind in ("model", "optimizer"):  # which the script makes as it did
            made = f"{kind}{number and f'_{number}'}"
            lines.append(f"{made}.load_state_dict(torch.load({at(name)}, weights_only=True))")
    return lines


def _architecture(folder: Path) -> str:
    """The class of the model that `save_pretrained` wrote; empty if the folder doesn't say."""
    try:
        said = json.loads((folder / "config.json").read_bytes())["architectures"][0]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return said if isinstance(said, str) and said.isidentifier() else ""
