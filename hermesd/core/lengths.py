"""Which hyper-parameters say how long a trial is to train.

Only their names can tell, since nothing else is known before the program runs. A name counts if one
of its words is a part of a training, and all its other words say how many: `epochs`, `max_steps`
and `num_train_epochs` do, `steps_per_epoch` and `warmup_steps` do not.
"""

from __future__ import annotations

import re

_PARTS = {
    "epoch", "epochs", "generation", "generations", "iter", "iteration", "iterations", "iters",
    "pass", "passes", "round", "rounds", "step", "steps", "timesteps", "updates",
}  # fmt: skip
_HOW_MANY = {
    "boost", "boosting", "max", "maximum", "n", "nb", "no", "num", "number", "of", "total", "train",
    "training", "trainer",
}  # fmt: skip
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def is_length(name: str) -> bool:
    """Whether a hyper-parameter of this name says how long to train."""
    words = [word.lower() for word in _WORD.findall(name)]
    parts = [word for word in words if word in _PARTS]
    return len(parts) == 1 and all(word in _HOW_MANY for word in words if word not in parts)
