"""Every file says what it is for; functions fit a reader; every link leads somewhere."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from trainer_shim.program.source_files import syntax_tree

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["hermesd", "hermesctl", "trainer_shim", "protos", "examples", "benchmarks", "tests"]
GENERATED = ROOT / "hermesd" / "pb" / "hermes"

FUNCTION_LINES = 75
# Names that say nothing collect everything.
BANNED_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
BANNER = re.compile(r"\s*#.*[-=#*]{4,}\s*$")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")  # tidy: the words themselves

SOURCES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if GENERATED not in path.parents
)
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PRODUCT = ("hermesd", "hermesctl", "trainer_shim")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    """A source file's tree, which most tests here look at."""
    return syntax_tree(path.read_text(encoding="utf-8"))


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
    tree = parsed(path)
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
        if BANNER.match(line):
            yield f"{name(path)}:{number}: a banner; a comment says why"


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


# What people outside of the project call.
OUTSIDE = [
    *(f"hermesctl/sdk/{each}.py" for each in ("async_client", "records", "comparison", "events")),
    "hermesctl/searches.py",
    "trainer_shim/api.py",
    "trainer_shim/__init__.py",
]
# Called by the project alone, though they lie there.
INSIDE = {"compared", "share", "ranked_by", "tells", "traced"}


def test_what_others_call_says_what_it_takes() -> None:
    faults = [fault for path in OUTSIDE for fault in undocumented(parsed(ROOT / path))]
    assert not faults, "\n".join(faults)


def undocumented(tree: ast.Module) -> Iterator[str]:
    """The public functions and methods of a file that don't say what they take, return or raise."""
    public = [each for each in tree.body if not getattr(each, "name", "_").startswith("_")]
    classes = [each for each in public if isinstance(each, ast.ClassDef)]
    for function in (*public, *(each for one in classes for each in one.body)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if function.name.startswith("_") or function.name in INSIDE:
            continue
        said = ast.get_docstring(function) or ""
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        if {each.arg for each in arguments} - {"self", "cls"} and "Args:" not in said:
            yield f"{function.name}: its arguments are not documented"
        if re.search(r"\bRaises [A-Z]", said):
            yield f"{function.name}: what it raises is not below `Raises:`"


def test_an_attribute_is_documented_where_it_is_declared() -> None:
    """Not in its class's docstring, which says what the class is and takes."""
    faults = [
        f"{name(path)}: {kind.name}: expected `#:` above {attribute}, instead of in its docstring"
        for path in SOURCES
        if name(path).split("/")[0] in (*PRODUCT, "benchmarks")
        for lines in [path.read_text(encoding="utf-8").splitlines()]
        for kind in ast.walk(parsed(path))
        if isinstance(kind, ast.ClassDef)
        for attribute in named_attributes(kind, lines)
    ]
    assert not faults, "\n".join(faults)


def named_attributes(kind: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """The attributes that a docstring names, and that are neither arguments nor have a `#:`."""
    made = [one for one in kind.body if getattr(one, "name", "") == "__init__"]
    arguments = {node.arg for one in made for node in ast.walk(one) if isinstance(node, ast.arg)}
    declared: dict[str, int] = {}
    for node in [*kind.body, *(node for one in made for node in ast.walk(one))]:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and node in kind.body:
                declared.setdefault(target.id, target.lineno)
            elif isinstance(target, ast.Attribute) and is_self(target.value):
                declared.setdefault(target.attr, target.lineno)
    for attribute in re.findall(r"`(\w+)`", ast.get_docstring(kind) or ""):
        line = declared.get(attribute, 0) - 2
        if line >= 0 and attribute not in arguments and not re.match(r"\s*#:", lines[line]):
            yield attribute


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


# British spellings. (A call is `cancelled`, as in asyncio and gRPC.)
BRITISH = re.compile(
    r"\b(?!(?:adver|exper|prac|trea)tis)"
    r"[a-z]+(?:[ael]r|al|g?n|im|or|nom|t|tom)is(?:e[ds]?|ing|ations?)\b"
    r"|\b(?:behavi|col|fav|neighb)our|enrol(?!l)|(?:acknowledg|judg)ement"
    r"|(?:label|model|signal|travel)l(?:ed|ing)"
    r"|\b(?:afterwards|towards|whilst|centre|grey|learnt|spelt|licence|analyse[ds]?)\b",
    re.IGNORECASE,
)


def test_what_people_read_is_spelled_in_the_american_way() -> None:
    texts = [path for path in SOURCES if name(path).split("/")[0] in (*PRODUCT, "benchmarks")]
    texts += [*DOCUMENTS, *(ROOT / "protos").rglob("*.proto"), ROOT / "Makefile"]
    british = {
        f"{name(path)}: {found[0]}"
        for path in texts
        for found in BRITISH.finditer(path.read_text(encoding="utf-8"))
    }
    assert british == set()


def test_cited_decisions_exist() -> None:
    known = {f"D{int(path.name[:4])}" for path in DECISIONS}
    assert known
    for path in SOURCES:
        for cited in re.findall(r"\bdecision (D\d+)\b|`(D\d+)`", path.read_text()):
            assert set(cited) - {""} <= known, f"{name(path)} cites {cited}"


def test_every_decision_is_one_page_and_listed() -> None:
    listed = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for path in DECISIONS:
        assert name(path) in listed
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, name(path)


def test_the_page_of_the_architecture_names_what_there_is() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    paths = {f"/{name(path)}" for path in SOURCES}
    named = re.findall(r"`([\w/]+\.py)`", page)
    assert len(named) > 30, "they are found"
    assert [one for one in named if not any(path.endswith(f"/{one}") for path in paths)] == []
    rooms = {path.parent for path in SOURCES if path.stem == "__init__"}
    product = {room for room in rooms if name(room).split("/")[0] in PRODUCT}
    missing = {name(room) for room in product if not re.search(rf"[`/]{room.name}/?`", page)}
    assert missing - {"hermesd/pb/hermes", "hermesd/pb/hermes/v1"} == set()


def test_the_first_pages_are_short() -> None:
    for page, most in ("README.md", 150), ("ARCHITECTURE.md", 250):
        assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= most, page
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in changes if len(line) > 120] == []


def test_a_room_is_seen_at_a_glance() -> None:
    rooms = Counter(path.parent for path in SOURCES if path.stem != "__init__")
    product = {room: count for room, count in rooms.items() if name(room).split("/")[0] in PRODUCT}
    assert {name(room): count for room, count in product.items() if count > 25} == {}


# Where a file is one command or one policy; what is imported only where a framework is; and what
# the simulators of the tests need as well.
SHORT_ROOMS = {"commands", "entry", "policy", "published"}
SHORT = {
    "trainer_shim.adapters.tensorflow.hooks",
    "trainer_shim.adapters.torch.trainers",
    "hermesd.core.routing",
    "hermesd.sim.agenda",
}
SHORT_LINES = 60


def imported(path: Path) -> Iterator[str]:
    """The modules that a file may import, packages included."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_what_one_file_alone_needs_is_in_it() -> None:
    product = [path for path in SOURCES if name(path).split("/")[0] in PRODUCT]
    modules = {name(path).removesuffix(".py").replace("/", "."): path for path in product}
    importers = Counter(each for path in product for each in set(imported(path)))
    short = {
        module
        for module, path in modules.items()
        if importers[module] == 1
        and not path.stem.startswith("__")
        and path.parent.name not in SHORT_ROOMS
        and len(path.read_text(encoding="utf-8").splitlines()) < SHORT_LINES
    }
    assert short - SHORT == set()


# The SDK's records and errors bear the names of what they tell of, and so do a program's own trial
# and its Resume; frames are written once for each side of the border that trainer_shim is.
MIRRORS = {"hermesctl.sdk.records", "hermesctl.errors", "trainer_shim.api"}
TWICE = {"FrameError"}


def test_no_two_classes_have_one_name() -> None:
    named: dict[str, list[str]] = {}
    for path in SOURCES:
        module = name(path).removesuffix(".py").replace("/", ".")
        if module.split(".")[0] in PRODUCT and module not in MIRRORS:
            for node in parsed(path).body:
                if isinstance(node, ast.ClassDef):
                    named.setdefault(node.name, []).append(module)
    assert {one: of for one, of in named.items() if len(of) > 1 and one not in TWICE} == {}


# Raised through us by the libraries that we call.
OTHERS_ERRORS = {"AioRpcError", "CalledProcessError", "PicklingError", "ValidationError"}
RAISED = re.compile(r"\bRaises:?\s+((?:[A-Z]\w+)(?:(?:, and|,| and| or)\s+[A-Z]\w+)*)")


def test_what_a_docstring_says_is_raised_exists() -> None:
    product = [parsed(path) for path in SOURCES
               if name(path).split("/")[0] in PRODUCT]  # fmt: skip
    nodes = [node for tree in product for node in ast.walk(tree)]
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    known = classes | OTHERS_ERRORS | set(dir(builtins))
    documented = [
        ast.get_docstring(node) or ""
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    raised = {
        error
        for text in documented
        for listed in RAISED.findall(text)
        for error in re.findall(r"[A-Z]\w+", listed)
    }
    assert len(raised) > 50, "they are found"
    assert raised - known == set()


def test_what_catches_everything_and_goes_on_says_why() -> None:
    silent = [
        f"{name(path)}:{number}"
        for path in SOURCES
        if name(path).split("/")[0] in PRODUCT
        for number in unexplained(path.read_text(encoding="utf-8"))
    ]
    assert silent == []


def test_a_mark_for_a_tool_and_a_word_for_another_place_are_no_reason() -> None:
    def seen(line: str, body: str = "pass") -> bool:
        before = "" if line.startswith("with") else "try:\n    x = 1\n"
        return bool(unexplained(f"{before}{line}\n    {body}\n"))

    assert seen("except Exception:")
    assert seen("except Exception:  # noqa: BLE001")
    assert seen("except Exception:  # as above")
    assert seen("except (OSError, Exception):")
    assert seen("except:")
    assert seen("with open('x'), contextlib.suppress(ValueError, BaseException):")
    assert seen("with suppress(Exception):  # type: ignore[misc]")
    assert not seen("except Exception:  # a plug-in's")
    assert not seen("except Exception:  # noqa: BLE001 - a plug-in's")
    assert not seen("with suppress(Exception):  # a plug-in's")
    assert not seen("except Exception:", "raise")
    assert not seen("except (OSError, ValueError):")
    assert not seen("with suppress(OSError):")


# Of a comment: something else than a mark for a tool, or a word for another place.
REASON = re.compile(r"#\s*(?:noqa[^-]*-\s*)?(?!noqa|type:|as above)\w")


def unexplained(text: str) -> list[int]:
    """The lines where any error whatever is kept from whoever called, and no reason is given."""
    lines = text.splitlines()
    return [
        caught.lineno
        for caught in ast.walk(syntax_tree(text))
        if isinstance(caught, ast.ExceptHandler | ast.Call) and catches_everything(caught)
        if not REASON.search(lines[caught.lineno - 1])
    ]


def catches_everything(caught: ast.ExceptHandler | ast.Call) -> bool:
    """Whether it keeps any error whatever from whoever called."""
    if isinstance(caught, ast.Call):
        called = caught.func.attr if isinstance(caught.func, ast.Attribute) else caught.func
        is_suppress = called == "suppress" or getattr(called, "id", "") == "suppress"
        return is_suppress and any(map(is_broad, caught.args))
    is_raised = isinstance(caught.body[-1], ast.Raise) and not caught.body[-1].exc
    return not is_raised and (caught.type is None or is_broad(caught.type))


def is_broad(kind: ast.expr) -> bool:
    """Whether errors of all kinds are of this, or of one of these."""
    if isinstance(kind, ast.Tuple):
        return any(map(is_broad, kind.elts))
    return isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"}


# What a newcomer may call a thing, and what it is called here ("Words" in ARCHITECTURE.md).
SYNONYMS = {
    "assignee": "run", "campaign": "study", "controller": "head", "evict": "suspend",
    "experiment": "study", "freezer": "park", "gpu": "device", "hyperopt": "study",
    "master": "head", "migration": "relocation", "optimization": "study", "preempt": "suspend",
    "savepoint": "checkpoint", "server": "head or node", "slave": "node", "slice": "quantum",
    "sweep": "study", "task": "trial or run", "timeslice": "quantum", "unpause": "resume",
}  # fmt: skip
# The paper's, gRPC's or the system's own words: a GPU as a kind of device, a server of gRPC.
FIELD_WORDS = {"Gpus", "server", "ServerInfo", "Unpaused"}


def words_of(identifier: str) -> set[str]:
    """The words of a name, in either spelling, plurals as singulars."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)
    return {part.lower() for part in parts} | {part.lower().removesuffix("s") for part in parts}


def test_names_use_the_words_of_the_glossary() -> None:
    names = {path.stem for path in SOURCES if name(path).split("/")[0] in PRODUCT}
    for path in SOURCES:
        if name(path).split("/")[0] in PRODUCT:
            tree = parsed(path)
            names |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    other = {
        one: f"say {SYNONYMS[word]}"
        for one in names - FIELD_WORDS
        for word in words_of(one) & SYNONYMS.keys()
    }
    assert other == {}
