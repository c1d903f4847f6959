"""The matrix names tests that exist, and its table counts what they compared."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.trainer_shim import exactness, exactness_table

HERE = Path(__file__).parent


@pytest.mark.parametrize("prefix", exactness.KINDS)
def test_each_kind_has_a_test(prefix: str) -> None:
    file, _, rest = prefix.partition("::")
    name, _, program = rest.partition("[")
    text = (HERE / file).read_text()
    functions = [one.name for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef)]
    assert any(function.startswith(name) for function in functions)
    assert program in text


def test_the_table_counts_boundaries_and_those_that_differ() -> None:
    lines = [
        {"kind": "b", "passed": True, "park": 3, "checkpoint": 4, "wrong": []},
        {"kind": "a", "passed": False, "park": 0, "checkpoint": 8, "wrong": [2, 5]},
        {"kind": "a", "passed": False, "park": 1, "checkpoint": 6, "wrong": []},
        {"kind": None, "passed": True, "park": 1000, "checkpoint": 0, "wrong": []},
    ]
    assert exactness_table.table(lines).splitlines()[2:] == [
        "| a | 2 | 1 | 1 | 14 | 8 |",
        "| b | 1 | 3 | 0 | 4 | 0 |",
        "| **all** | 3 | 4 | 1 | 18 | 8 |",
    ]
