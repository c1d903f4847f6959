"""What every test session shares: tests that cannot run here are counted aloud at the end."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import settings

# How long an example takes says something of the machine, nothing of what is tested.
settings.register_profile("hermes", deadline=None)
settings.load_profile("hermes")


def _have(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) for package in packages)


_MISSING = {
    "tensorflow": lambda: importlib.util.find_spec("tensorflow") is None,
    "jax": lambda: importlib.util.find_spec("jax") is None,
    "torch": lambda: importlib.util.find_spec("torch") is None,
    "lightning": lambda: not _have("lightning", "pytorch_lightning"),
    "transformers": lambda: not _have("transformers", "accelerate"),
    "gpu": lambda: shutil.which("nvidia-smi") is None,
    "root": lambda: os.geteuid() != 0,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a framework, a GPU or root that this machine does not have."""
    absent = {name for name, missing in _MISSING.items() if missing()}
    for item in items:
        for name in sorted(absent & {mark.name for mark in item.iter_markers()}):
            item.add_marker(pytest.mark.skip(reason=f"no {name} here"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """After all else: how many tests were skipped, and for want of what."""
    yield
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "unknown"
        reasons[reason.removeprefix("Skipped: ")] += 1
    detail = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    terminalreporter.write_line(f"skipped: {reasons.total()}{f' ({detail})' if detail else ''}")
