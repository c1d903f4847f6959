"""How what a checkpoint holds is loaded without Hermes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

KERAS, TORCH = "model.keras", "model.pt"


def loading_lines(folder: Path, names: Collection[str]) -> list[str]:
    """The lines of Python that load what lies in `folder`; none where nothing of it is meant to be
    loaded by itself."""

    def at(name: str) -> str:
        return repr(str(folder / name))

    if KERAS in names:
        return ["import keras", f"model = keras.models.load_model({at(KERAS)})"]
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
