"""Which of the metrics that trials report is the one that a study names, or else the training loss,
or the validation loss.

Pure. Only names can tell. Where the study gives none, only usual ones do: whether the parts of a
GAN's loss, a penalty or a score tell good trials from bad ones, nobody knows but the author.
"""

from __future__ import annotations

import re
from collections.abc import Collection

VALIDATION_LOSS = "val_loss"
# In the name of what is measured on other data than those that are trained on.
_APART = frozenset({"val", "valid", "validation", "test", "eval", "dev"})
_USUAL = _APART | {"loss", "train", "training", "epoch", "mean", "avg", "average"}


def reported_as(name: str, names: Collection[str]) -> str:
    """What trials report a metric of this name as: `val_acc` as `Val Acc` or `val-acc`, if not as
    it is written; the name itself if they don't report it."""
    if name in names:
        return name
    return next((each for each in names if _written(each) == _written(name)), name)


def told_loss(names: Collection[str]) -> str:
    """The training loss, or the validation loss if there is no other; empty if several, or an
    unusual one, could be meant."""
    losses = [name for name in names if "loss" in name.lower()]
    return _only([name for name in losses if not _is_apart(name)] or losses)


def validation_loss(names: Collection[str]) -> str:
    """The validation loss; empty if there is none, or several could be meant."""
    if VALIDATION_LOSS in names:
        return VALIDATION_LOSS
    return _only([name for name in names if _is_usual(name) and _is_apart(name)])


def _only(losses: Collection[str]) -> str:
    return next(iter(losses)) if len(losses) == 1 and all(map(_is_usual, losses)) else ""


def _is_usual(name: str) -> bool:
    return "loss" in name.lower() and _words(name) <= _USUAL


def _is_apart(name: str) -> bool:
    return not _words(name).isdisjoint(_APART)


def _written(name: str) -> str:
    # As `trainer_shim.side_metrics` knows the signal: neither package may import the other.
    return name.lower().replace(" ", "_").replace("-", "_")


def _words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[\W_]+", name.lower()))
