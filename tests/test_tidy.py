"""Every file says what it is for; functions fit a reader; every link leads somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["hermesd", "hermesctl", "trainer_shim", "protos", "examples", "benchmarks", "tests"]
GENERATED = ROOT / "hermesd" / "pb" / "hermes"

FUNCTION_LINES = 75
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


def test_source_files_are_tidy() -> None:
    faults = [fault for path in SOURCES for fault in source_faults(path)]
    assert not faults, "\n".join(faults)


def source_faults(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield f"{name(path)}: no docstring; a module says what it is for"
    if path.stem in BANNED_NAMES:
        yield f"{name(path)}: a name says what is inside"
    for function in functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES:
            yield f"{name(path)}: {function.name} has {length} lines, more than {FUNCTION_LINES}"
    for number, line in enumerate(text.splitlines(), 1):
        if "# tidy:" not in line and UNFINISHED.search(line):
            yield f"{name(path)}:{number}: unfinished"


def test_documents_are_finished_and_their_links_lead_somewhere() -> None:
    faults = [fault for path in DOCUMENTS for fault in document_faults(path)]
    assert not faults, "\n".join(faults)


def document_faults(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if UNFINISHED.search(text):
        yield f"{name(path)}: unfinished"
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        if not linked.exists():
            yield f"{name(path)}: {target} leads nowhere"
        elif anchor and anchor not in headings(linked.read_text(encoding="utf-8")):
            yield f"{name(path)}: no heading {target}"


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
