"""An installed package of policies, for as long as a test needs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermesd.policy import plugin

MODULE = "lucky_policies"
LUCKY = """
from dataclasses import dataclass
from typing import ClassVar
from hermesd.core.model import Quantum

@dataclass(frozen=True)
class Lucky:
    name: ClassVar[str] = "lucky"
    def score(self, trial): return (hash(trial.id) % 7 * 1.0,)
    def quantum(self, trial, facts): return Quantum(2.0)
    def words(self, trial): return "lucky"

@dataclass(frozen=True)
class Unlucky(Lucky):
    name: ClassVar[str] = "unlucky"
    luck: float = 0.0
    def score(self, trial): return (1 / trial.step,)

@dataclass(frozen=True)
class Idle:
    name: ClassVar[str] = "idle"
    def plan(self, view): return []
    def words(self, trial): return "not now"
"""


@contextmanager
def lucky_policies(folder: Path) -> Iterator[None]:
    """A package in `folder` with three policies: one that works, one that raises, and one that
    claims nothing. What it offers as `gone` is not there."""
    (folder / f"{MODULE}.py").write_text(LUCKY)
    info = folder / "lucky_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lucky-policies\nVersion: 1.0\n")
    offers = {"lucky": "Lucky", "unlucky": "Unlucky", "idle": "Idle", "gone": "Gone"}
    lines = [f"{name} = {MODULE}:{kind}" for name, kind in offers.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{plugin.GROUP}]", *lines, ""]))
    sys.path.insert(0, str(folder))
    plugin.offered.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        plugin.offered.cache_clear()
        sys.modules.pop(MODULE, None)
