"""Every file has a docstring and a size that fits a reader; every link leads somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["hermesd", "hermesctl", "trainer_shim", "protos", "examples", "benchmarks", "tests"]
GENERATED = ROOT / "hermesd" / "pb" / "hermes"

# A test file reads as a list of sentences: it may be longer than what it tests.
FILE_LINES = 320
TEST_FILE_LINES = 640
FUNCTION_LINES = 75
# Files that still hold two ideas, with the length they must not outgrow until they are split; one
# that fits again must leave the list.
OVERLONG = {}
# Names that say nothing collect everything.
BANNED_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")  # tidy: the words themselves

SOURCES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if GENERATED not in path.parents
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def headings(text: str) -> set[str]:
    """The anchors that a forge makes of a document's headings."""
    titles = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_source_file_is_tidy(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says what it is for"
    lines = text.count("\n")
    limit = TEST_FILE_LINES if path.is_relative_to(ROOT / "tests") else FILE_LINES
    allowed = OVERLONG.get(name(path), limit)
    assert lines <= allowed, f"{lines} lines: a file holds one idea"
    assert name(path) not in OVERLONG or lines > limit, "it fits: take it off the list"
    assert path.stem not in BANNED_NAMES, "a name says what is inside"
    for function in functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        assert length <= FUNCTION_LINES, f"{function.name} has {length} lines"
    for number, line in enumerate(text.splitlines(), 1):
        assert "# tidy:" in line or not UNFINISHED.search(line), f"line {number} is unfinished"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_a_document_is_finished_and_its_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not UNFINISHED.search(text)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in headings(linked.read_text(encoding="utf-8")), f"no heading {target}"


def test_cited_decisions_exist() -> None:
    known = set(re.findall(r"^### (D\d+) ", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE))
    assert known
    for path in SOURCES:
        for cited in re.findall(r"\bARCHITECTURE\.md (D\d+)\b|`(D\d+)`", path.read_text()):
            assert set(cited) - {""} <= known, f"{name(path)} cites {cited}"


def test_a_decision_is_short() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for decision in re.split(r"^### (?=D\d+ )", text, flags=re.MULTILINE)[1:]:
        lines = decision.rstrip().splitlines()
        assert len(lines) <= 15, f"{lines[0]} has {len(lines)} lines"
