"""What of a directory does not travel: a built-in list and a `.hermesignore`, like `.gitignore`.

Rule: the last pattern that matches decides; `!` takes back; a pattern with a slash in it counts
from the top, one that ends in a slash means directories. `*`, `?`, `[...]` stay within a name,
`**` crosses directories.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hermesctl.errors import SnapshotError
from hermesctl.regular_files import open_regular
from hermesctl.text import printable

BUILT_IN = (
    *(".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "node_modules/"),
    *(".ipynb_checkpoints/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".DS_Store"),
)


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    takes_back: bool
    folders_only: bool


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Patterns in the order in which they count."""

    rules: tuple[_Rule, ...]

    @classmethod
    def of(cls, lines: tuple[str, ...]) -> IgnoreRules:
        """The built-in patterns, then `lines`."""
        stripped = (line.strip() for line in (*BUILT_IN, *lines))
        return cls(tuple(_rule(line) for line in stripped if line and not line.startswith("#")))

    @classmethod
    def read(cls, path: Path) -> IgnoreRules:
        """The built-in patterns, then those of the file, if it is there.

        Raises SnapshotError when it can't be read as text.
        """
        try:
            with open_regular(path) as stream:
                return cls.of(tuple(stream.read().decode("utf-8").splitlines()))
        except FileNotFoundError:
            return cls.of(())
        except (OSError, UnicodeDecodeError) as error:
            raise SnapshotError(f"{printable(str(path))}: not readable: {error}") from None

    def ignores(self, name: str, is_folder: bool) -> bool:
        """Whether the entry `name`, relative and with slashes, stays behind."""
        verdict = False
        for rule in self.rules:
            if (is_folder or not rule.folders_only) and rule.pattern.match(name):
                verdict = not rule.takes_back
        return verdict


def _rule(line: str) -> _Rule:
    takes_back = line.startswith("!")
    glob = line.removeprefix("!")
    folders_only = glob.endswith("/")
    glob = glob.rstrip("/")
    anchored = "/" in glob
    start = "" if anchored else "(?:.*/)?"
    try:
        pattern = re.compile(start + _regex(glob.lstrip("/")) + r"\Z")
    except re.error:
        raise SnapshotError(f"{printable(line)}: expected a pattern like those of git") from None
    return _Rule(pattern, takes_back, folders_only)


def _regex(glob: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(glob):
        if glob.startswith("**/", position):
            parts.append("(?:.*/)?")
            position += 3
        elif glob.startswith("**", position):
            parts.append(".*")
            position += 2
        elif glob[position] == "[" and (end := glob.find("]", position + 2)) > 0:
            inner = glob[position + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            negated = inner.startswith(("!", "^"))
            parts.append(f"[{'^' if negated else ''}{inner[1:] if negated else inner}]")
            position = end + 1
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(glob[position], re.escape(glob[position])))
            position += 1
    return "".join(parts)
