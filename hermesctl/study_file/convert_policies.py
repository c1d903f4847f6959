"""What stops trials early elsewhere as policies: their names, and of their settings what a policy
can express.

Rungs are counted there in what a program reports, epochs for example, and are shares of a trial's
length here: one at 1 of at most 100 is one at 1/100. That holds as long as a trial's program trains
for as long as trials may train there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

_POLICIES = {
    "asha": "asha", "asynchyperband": "asha", "adaptiveasha": "asha", "asynchalving": "asha",
    "successivehalving": "asha", "hyperband": "hyperband", "hyperbandforbohb": "hyperband",
    "bohb": "hyperband", "median": "median", "medianstop": "median", "medianstopping": "median",
}  # fmt: skip
# Without what only says that they are one.
_WORDS_OF_KIND = re.compile(r"(sampler|searcher|search|tuner|scheduler|pruner|assessor|rule)$")
# The names of settings: how many times fewer pass each rung, where the first one is and of which
# length, how many there are, and among how many trials one is judged.
_ETA = ("reduction_factor", "eta", "divisor")
_FIRST = ("grace_period", "min_resource", "min_budget")
_LENGTH = ("max_t", "max_resource", "max_budget", "R", "r_l", "max_length", "max_time")
_COUNT = ("max_rungs",)
_ENOUGH = ("min_samples_required", "n_startup_trials", "min_trials_required")
_LARGEST_DENOMINATOR = 10_000
# What each takes where nothing is said, as far as it is not what the policy takes: but for how long
# trials may train, which is seldom what they do.
_USUAL: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "ray": {
        "asha": {"reduction_factor": 4, "grace_period": 1},
        "asynchyperband": {"reduction_factor": 4, "grace_period": 1},
        "hyperband": {"reduction_factor": 3, "grace_period": 1},
        "hyperbandforbohb": {"reduction_factor": 3, "grace_period": 1},
    },
    "optuna": {
        "successivehalving": {"reduction_factor": 4},
        "hyperband": {"reduction_factor": 3, "min_resource": 1},
        "median": {"n_startup_trials": 5},
    },
    "nni": {
        "hyperband": {"eta": 3, "min_resource": 1},
        "bohb": {"eta": 3, "min_budget": 1},
    },
    "katib": {"hyperband": {"eta": 3, "min_resource": 1}},
    "determined": {
        "adaptiveasha": {"divisor": 4, "max_rungs": 5},
        "asynchalving": {"divisor": 4, "max_rungs": 5},
    },
}


def word_of(name: object) -> str:
    """A name elsewhere without what is written in several ways."""
    plain = re.sub(r"[^a-z]", "", str(name or "").lower())
    return _WORDS_OF_KIND.sub("", plain) or plain


def policy_of(
    name: object, tool: str, given: Mapping[str, int | float | None]
) -> tuple[dict[str, Any], list[str]]:
    """The policy of a name elsewhere with its settings, and which of those that are given it has;
    an empty one if none is similar. None: what is given is not known."""
    word = word_of(name)
    if word not in _POLICIES:
        return {}, []
    policy, usual = _POLICIES[word], _USUAL.get(tool, {}).get(word, {})
    said = {key: one for key, one in {**usual, **given}.items() if one is not None}
    made, taken = _enough(said) if policy == "median" else _rungs(said)
    return {"name": policy, **made}, taken


def _key(said: Mapping[str, int | float], names: Sequence[str]) -> str:
    return next((each for each in names if each in said), "")


def _enough(said: Mapping[str, int | float]) -> tuple[dict[str, Any], list[str]]:
    key = _key(said, _ENOUGH)
    return ({"min_trials": int(said[key])}, [key]) if said.get(key, 0) >= 1 else ({}, [])


def _rungs(said: Mapping[str, int | float]) -> tuple[dict[str, Any], list[str]]:
    key, first, length, count = (_key(said, each) for each in (_ETA, _FIRST, _LENGTH, _COUNT))
    if (eta := said.get(key, 0)) < 2 or eta != int(eta):
        return {}, []
    made: dict[str, Any] = {"eta": int(eta)}
    share = Fraction(0)
    if count:
        most = math.log(said[length], eta) + 1 + 1e-9 if said.get(length, 0) >= 1 else math.inf
        share = Fraction(1, int(eta) ** max(0, int(min(said[count], most, 100)) - 1))
    elif said.get(length, 0) > 0:
        share = Fraction(str(said.get(first, 0))) / Fraction(str(said[length]))
    if not 0 < share < 1:
        return made, [key]
    is_short = share.denominator <= _LARGEST_DENOMINATOR
    return {**made, "min_rung": str(share) if is_short else float(share)}, [
        key, *([count] if count else [first]), *([length] if length else []),
    ]  # fmt: skip
