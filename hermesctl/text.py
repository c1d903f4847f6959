"""Text for people: text from outside made safe, numbers with their units.

Whatever a file, a head or a trial said passes through `printable` before a terminal sees it.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterable
from difflib import get_close_matches

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File ".*", line \d+')
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def printable(text: str, keep: str = "") -> str:
    """`text` with every character that is not visible, except those in `keep`, escaped.

    Control characters, half surrogates, and what hides or reorders text are not visible.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def cut(text: str, limit: int = 80) -> str:
    """`text` in at most `limit` characters, with an ellipsis where something is missing."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str) -> str:
    """What a text of several lines comes down to: of a traceback, or the end of one, its error,
    else its first line.

    Words before a traceback and a remark in parentheses after it are kept.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    begins = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    if not begins and lines[1:] and _FRAME.match(lines[0]):
        return one_line(f"{_TRACEBACK}\n{text}")
    if not begins:
        return lines[0].strip() + (" …" if lines[1:] else "") if lines else ""
    before = lines[begins[0]].partition(_TRACEBACK)[0].strip(" +|")
    after = lines[begins[-1] + 1 :]
    error = next((line for line in after if not line.startswith(" ")), after[-1] if after else "")
    remark = after[-1].strip() if after and after[-1].startswith(" (") else ""
    return " ".join(part for part in (before, error.strip() or _TRACEBACK, remark) if part)


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The one of `known` that a misspelled or begun word most likely means, in any case; "" for
    none."""
    by_letters = {each.lower(): each for each in known}
    begun = [each for each in by_letters if word and each.startswith(word.lower())]
    near = begun if len(begun) == 1 else get_close_matches(word.lower(), by_letters, 1, likeness)
    return by_letters[near[0]] if near else ""


def duration(seconds: float) -> str:
    """Two significant units: `840 ms`, `12.5 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for length, unit, small_length, small_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= length:
            rest = whole % length // small_length
            return f"{whole // length} {unit}" + (f" {rest} {small_unit}" if rest else "")
    raise AssertionError(seconds)


def size(size_bytes: float) -> str:
    """A size in binary units, `1.5 GiB`."""
    for unit in _BINARY_UNITS:
        if abs(size_bytes) < 1024 or unit == _BINARY_UNITS[-1]:
            break
        size_bytes /= 1024
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"


def number(value: float | None) -> str:
    """Four significant digits; a dash for what is not known."""
    return "-" if value is None else f"{value:.4g}"


def percent(share: float | None) -> str:
    """A share of one as a percentage with one decimal."""
    return "-" if share is None or not math.isfinite(share) else f"{share * 100:.1f} %"


def count(amount: int, noun: str) -> str:
    """`1 trial`, `2 trials`, `3 studies`."""
    if amount == 1:
        return f"1 {noun}"
    return f"{amount} {noun[:-1]}ies" if noun.endswith("y") else f"{amount} {noun}s"


def changed(trials: int, selected: int, done: str, otherwise: str) -> str:
    """`2 trials paused; 1 was paused or over already`: how many of those selected changed."""
    words = f"{count(trials, 'trial')} {done}"
    rest = selected - trials
    return f"{words}; {rest} {'was' if rest == 1 else 'were'} {otherwise}" if rest > 0 else words


# What a trial printed, made fit for a terminal: its text and line ends, no escape sequences.

# Colors and cursor movements (CSI), titles and links (OSC), and the two-character rest.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?)?\Z")
_HELD_BACK_MAX = 4096


def drawn_lines(output: str) -> list[str]:
    """The lines that a terminal would show of `output` at its end.

    Of a line that was drawn over and over only the last picture counts.
    """
    shown = TerminalFilter().feed(output.encode(errors="replace"))
    return [line.rstrip("\r").rpartition("\r")[2] for line in shown.rstrip().split("\n")]


def last_line(output: str) -> str:
    """The last line that is not blank, without the space around it; empty if there is none."""
    return drawn_lines(output)[-1].strip()


class TerminalFilter:
    """Decodes chunks of UTF-8 and drops escape sequences, also those cut by a chunk's end."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held_back = ""

    def feed(self, chunk: bytes) -> str:
        """The text that can be shown of this chunk and of what was held back before."""
        text = self._held_back + self._decoder.decode(chunk)
        unfinished = _UNFINISHED.search(text)
        cut = unfinished.start() if unfinished else len(text)
        if len(text) - cut > _HELD_BACK_MAX:
            cut = len(text)  # no sequence is that long
        self._held_back = text[cut:]
        return printable(_SEQUENCE.sub("", text[:cut]), keep="\n\r\t")
