"""A directory as the deterministic tar that is sent to the head, named by its sha256.

The same content gives the same bytes: entries are sorted, times and owners left out. What can be
rebuilt (caches, environments), what Hermes itself keeps there (a state directory), what
`.hermesignore` names and what the study links as `data` is left out. A snapshot over the limit is
refused, and its largest entries are named. The study's own file is included, but its comments don't
make it another study.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from hermesctl.errors import SnapshotError
from hermesctl.study_file.regular_files import open_regular
from hermesctl.text import count, printable, size

# What does not travel of any directory; its own `.hermesignore` counts after these.
BUILT_IN = (
    *(".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "node_modules/"),
    *(".ipynb_checkpoints/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".DS_Store"),
)
_CHARACTER_CLASS = re.compile(r"\[:\w*:\]")
# A line without the spaces at its end, but for one after a backslash.
_LINE = re.compile(r"((?:\\.|[^\\]|\\\Z)*?) *")
# The parts of a pattern; `never` is what git takes for no pattern at all.
_PART = re.compile(
    r"(?P<folders>(?:\A|(?<=/))\*\*/)|(?P<inside>(?:\A|(?<=/))\*\*\Z)|(?P<within>\*+)|(?P<one>\?)"
    r"|\[(?P<none>[!^]?)(?P<set>\]?(?:\\.|[^]\\])*)\]|\\(?P<escaped>.)|(?P<never>[\[\\])|(?P<plain>.)",
    re.DOTALL,
)
_MEANING = {
    "folders": "(?:.*/)?",
    "inside": ".+",
    "within": "[^/]*",
    "one": "[^/]",
    "never": "(?!)",
}


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    takes_back: bool
    folders_only: bool


class IgnoreRules:
    """Patterns as git reads them, the built-in ones first: the last one that matches decides.

    Raises SnapshotError for a line that is no pattern.
    """

    def __init__(self, lines: Sequence[str] = ()) -> None:
        self._rules = [
            _rule(line) for line in (*BUILT_IN, *lines) if line and not line.startswith("#")
        ]

    @classmethod
    def read(cls, path: Path) -> IgnoreRules:
        """The built-in patterns, then those of the file, if it is there.

        Raises SnapshotError when it can't be read as text.
        """
        try:
            with open_regular(path) as stream:
                return cls(stream.read().decode("utf-8").splitlines())
        except FileNotFoundError:
            return cls()
        except (OSError, UnicodeDecodeError) as error:
            raise SnapshotError(f"{printable(str(path))}: not readable: {error}") from None

    def ignores(self, name: str, is_folder: bool) -> bool:
        """Whether the entry `name`, relative and with slashes, stays behind; none of the folders
        that it is in does."""
        for rule in reversed(self._rules):
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(name):
                return not rule.takes_back
        return False


def _rule(line: str) -> _Rule:
    if _CHARACTER_CLASS.search(line):
        raise SnapshotError(f"{printable(line)}: expected characters in brackets, such as [a-z]")
    stripped = _LINE.fullmatch(line)
    assert stripped is not None
    glob = stripped[1].removeprefix("!")
    place = glob.removesuffix("/")
    anywhere = "" if "/" in place else "(?:.*/)?"
    try:
        pattern = re.compile(anywhere + _PART.sub(_regex, place.removeprefix("/")), re.DOTALL)
    except re.error:
        raise SnapshotError(f"{printable(line)}: expected a pattern like those of git") from None
    return _Rule(pattern, glob != stripped[1], glob != place)


def _regex(part: re.Match[str]) -> str:
    if part["set"]:
        characters = re.sub(
            r"\\?(.)", lambda c: c[0] if c[0] == "-" else re.escape(c[1]), part["set"]
        )
        return f"(?!/)[{'^' if part['none'] else ''}{characters}]"
    literal = part["escaped"] or part["plain"]
    return re.escape(literal) if literal else _MEANING[part.lastgroup or ""]


SIZE_BYTES_MAX = 256 << 20
FILES_MAX = 20_000
DEPTH_MAX = 200  # directories within each other: a node unpacks no more
IGNORE_FILE = ".hermesignore"
_LARGEST_SHOWN = 5
# What the state directory of a head, of a node, or of both holds.
_STATE_MARKS = ("head.lock", "shim/trainer_shim", "head/head.lock", "node/shim/trainer_shim")
# A virtual environment has this, under whatever name.
_ENVIRONMENT_MARK = "pyvenv.cfg"


@dataclass(frozen=True, slots=True)
class CodeSnapshot:
    """A finished archive of the code, its hash and its size."""

    #: Open, at its start.
    tar: IO[bytes]
    #: Of the archive, in hex.
    sha256: str
    #: The sha256 that it would have without the study's own files.
    identity: str
    size_bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class _Member:
    path: Path
    name: str
    info: os.stat_result
    link: str | None


@contextmanager
def snapshot(
    directory: Path,
    data: tuple[str, ...] = (),
    size_bytes_max: int = SIZE_BYTES_MAX,
    own_files: Collection[Path] = (),
) -> Iterator[CodeSnapshot]:
    """Pack `directory`, without the entries named by `data`, into a temporary file.

    `own_files` say what the study is, and travel without being a part of the code's identity.
    Raises SnapshotError when it can't be read, is too large, is a state directory, or holds a link
    to a directory outside itself.
    """
    if _holds(directory, *_STATE_MARKS):
        raise SnapshotError(
            f"{printable(str(directory))}: expected a directory for the program alone; "
            "Hermes keeps its state in this one"
        )
    members = sorted(_members(directory, data), key=lambda m: m.name)
    _check_limits(directory, members, size_bytes_max)
    with tempfile.TemporaryFile(prefix="hermes-snapshot-") as stream:
        whole = _Hashed(stream)
        _pack(members, whole)
        stream.seek(0)
        own = {os.path.realpath(path) for path in own_files}
        others = [member for member in members if os.path.realpath(member.path) not in own]
        identity = whole
        if len(others) < len(members):
            identity = _Hashed(None)
            _pack(others, identity)
        yield CodeSnapshot(stream, whole.sha256(), identity.sha256(), whole.tell(), len(members))


class _Hashed:
    """A file to write to that knows its hash; it keeps nothing itself."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self._size += len(data)
        if self._stream is not None:
            self._stream.write(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def sha256(self) -> str:
        return self._digest.hexdigest()


def _pack(members: list[_Member], to: _Hashed) -> None:
    # The stubs ask for all of a file, of which writing uses these two.
    with tarfile.open(fileobj=cast(IO[bytes], to), mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            _add(tar, member)


def _members(directory: Path, data: tuple[str, ...]) -> Iterator[_Member]:
    linked = {os.path.normpath(directory / entry) for entry in data}
    rules = IgnoreRules.read(directory / IGNORE_FILE)
    # Bounds the walk itself: a home directory named by mistake is found out early.
    seen = 0
    pending = [""]
    while pending:
        folder = pending.pop()
        for entry in _listed(directory / folder):
            name = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if os.path.normpath(entry.path) in linked or rules.ignores(name, is_folder):
                continue
            if is_folder:
                if not _holds(entry.path, _ENVIRONMENT_MARK, *_STATE_MARKS):
                    _check_depth(name)
                    pending.append(name)
                continue
            member = _member(directory, Path(entry.path), name)
            if member is None:
                continue
            seen += 1
            yield member
            if seen > 10 * FILES_MAX:
                return


def _holds(folder: str | Path, *marks: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, mark)) for mark in marks)


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise _unreadable(folder, error) from None


def _member(root: Path, path: Path, name: str) -> _Member | None:
    info = path.lstat()
    if stat.S_ISREG(info.st_mode):
        return _Member(path, name, info, None)
    if not stat.S_ISLNK(info.st_mode):
        return None  # sockets, pipes, devices
    target = os.readlink(path)
    inside = os.path.normpath(path.parent / target)
    if not os.path.isabs(target) and Path(inside).is_relative_to(os.path.normpath(root)):
        return _Member(path, name, info, target)
    if path.is_dir():
        raise SnapshotError(
            f"{printable(name)}: a link to a directory outside {printable(str(root))}; "
            f"name it under `data:` (it is then linked, not copied) or in {IGNORE_FILE}"
        )
    # What the program would read through the link is what travels.
    return _Member(path, name, path.stat(), None) if path.is_file() else None


def _check_depth(name: str) -> None:
    if name.count("/") >= DEPTH_MAX:
        outermost = printable(name.partition("/")[0] + "/")
        raise SnapshotError(
            f"{outermost} holds more than {DEPTH_MAX} nested directories, expected at most"
            f" {DEPTH_MAX}; name {outermost} in {IGNORE_FILE}, or under `data:` if the program"
            " reads it (it is then linked, not copied)"
        )


def _check_limits(directory: Path, members: list[_Member], size_bytes_max: int) -> None:
    total = sum(m.info.st_size for m in members)
    if total <= size_bytes_max and len(members) <= FILES_MAX:
        return
    weights: dict[str, int] = {}
    for member in members:
        entry, slash, _ = member.name.partition("/")
        weights[entry + slash] = weights.get(entry + slash, 0) + member.info.st_size
    largest = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:_LARGEST_SHOWN]
    listed = ", ".join(f"{printable(name)} ({size(weight)})" for name, weight in largest)
    raise SnapshotError(
        f"{printable(str(directory))} holds {count(len(members), 'file')} of {size(total)}, more "
        f"than {FILES_MAX} files or {size(size_bytes_max)}. Largest: {listed}. Name data sets "
        f"under `data:` (they are then linked, not copied) and the rest in {IGNORE_FILE}"
    )


def _add(tar: tarfile.TarFile, member: _Member) -> None:
    entry = tarfile.TarInfo(member.name)
    executable = member.info.st_mode & stat.S_IXUSR
    entry.mode = 0o755 if executable else 0o644
    if member.link is not None:
        entry.type = tarfile.SYMTYPE
        entry.linkname = member.link
        entry.mode = 0o777
        tar.addfile(entry)
        return
    try:
        with open_regular(member.path) as stream:
            # As long as it is now; it may have grown since it was listed.
            entry.size = os.fstat(stream.fileno()).st_size
            tar.addfile(entry, stream)
    except OSError as error:
        raise _unreadable(member.path, error) from None


def _unreadable(path: Path, error: OSError) -> SnapshotError:
    reason = error.strerror or str(error)
    return SnapshotError(
        f"{printable(str(path))}: {reason}. Make it readable or name it in {IGNORE_FILE}"
    )
