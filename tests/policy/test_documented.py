"""The page on policies says what the code says: policies, settings, defaults, the example."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from hermesd.core.model import Plugin
from hermesd.core.policy import Policy
from hermesd.policy import SHIPPED, make_policy
from hermesd.policy.check import faults
from hermesd.policy.plugin import GROUP, Registry
from tests.policy.trials import trained, trial

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))


def value(written: str) -> Any:
    """A default as the page writes it: YAML, or a fraction."""
    if re.fullmatch(r"\d+/\d+", written):
        return float(Fraction(written))
    read = yaml.safe_load(written)
    return tuple(read) if isinstance(read, list) else read


def test_every_policy_has_a_section_and_a_place_in_the_guide() -> None:
    names = {policy.name for policy in SHIPPED}
    assert set(SECTIONS) == names
    guide = PAGE[PAGE.index("## Which one") : PAGE.index("## Ours")]
    assert {name for name in names if f"`{name}`" in guide} == names


@pytest.mark.parametrize("policy", SHIPPED, ids=lambda policy: policy.name)
def test_the_settings_and_defaults_are_the_real_ones(policy: type[Policy]) -> None:
    section = SECTIONS[policy.name]
    assert len(re.findall("^- ", section, re.MULTILINE)) == 3
    shown = {name: value(text) for name, text in re.findall(r"`(\w+) = ([^`]+)`", section)}
    real = {field.name: field.default for field in fields(policy)}  # type: ignore[arg-type]
    assert shown == real


def test_the_example_is_a_policy_that_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    entry = re.search(r'entry-points\."(.+)"\]\n(\w+) = "(.+)"', PAGE)
    assert entry is not None
    group, name, target = entry.groups()
    module = ModuleType(target.partition(":")[0])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, "docs/policies.md", "exec"), module.__dict__)
    known = Registry(SHIPPED, lambda: [EntryPoint(name, target, group)])
    policy = make_policy(Plugin(name, (("quantum_seconds", 5),)), known)
    assert group == GROUP
    assert faults(policy) == []
    shown = (trained(0, [each]) for each in (0.25, 0.5, float("nan")))
    scores = [policy.score(each) for each in (trial(), *shown)]  # type: ignore[union-attr]
    assert scores == sorted(scores)
    assert len(set(scores)) == len(scores)
