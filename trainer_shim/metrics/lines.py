"""The metrics in a line of output: `name=value`, `name: value`, nothing but names and numbers,
JSON, and a study's own patterns.

A number is taken for a metric if it stands behind a name that is neither a counter nor a time, and
is written as metrics are: with a point, an exponent or a percent sign. What a study's patterns name
is a metric however it is written. Nothing here takes longer than in proportion to the line.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping

from trainer_shim.side_metrics import FOUND, TOLD, logged

_LONGEST = 4_000  # characters of a line
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x08")
_NUMBER = r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_END = r"(?=[\s,;|)\]}'\"]|\.?(?:\s|$))"
# How a name ends and a value follows: the value, perhaps as so many of so many and their share. How
# far a bar is drawn (`Loading: 40%|###`) is none.
_PAIR = re.compile(
    rf"(?P<gap>(?:\s?\([^()\s]{{1,12}}\))?\s?)['\"]?(?P<sign>[:=])\s?['\"]?(?:tensor\()?"
    rf"(?P<value>{_NUMBER})"
    rf"(?:(?P<percent>\s?%(?!\|))|/(?P<of>\d+)\s?\(\d+(?:\.\d*)?\s?%\))?{_END}",
    re.IGNORECASE,
)
_WORD = r"[A-Za-z_][\w./@-]*"
_MOST_WORDS = 4
# One more than a name has, which tells a sentence: to look for all of it takes long.
_WORDS = re.compile(rf"(?<![\w.%/@?&-])(?:{_WORD} ){{0,{_MOST_WORDS}}}{_WORD}$")
_ON = r"(?:of|on|for|over)"
# What is measured, before what it is measured on: `Accuracy of the network on the 100 images`.
_MEASURED = re.compile(
    rf"\s*({_WORD}(?: {_WORD})?) {_ON} (?:[A-Za-z ]+ {_ON} )?(?:the )?\d[\d,]* \Z"
)
_TRACEBACK = "Traceback (most recent call last):"
# Before a name that is written `val loss=0.3`.
_PARTS = re.compile(r"train|training|val|valid|validation|test|eval|dev|mean|avg|average|best")
# With no sign between, what is a metric by its name, as in `| loss 7.63 | ppl 2063.2 |`.
_BARE_NAME = re.compile(
    r"(?:[a-z]\w*[_/-])?(?:loss|acc|accuracy|ppl|perplexity|mae|mse|rmse|auc|f1|bpc)",
    re.IGNORECASE,
)
# A word that is a number, as it stands or as a count or a time: `0.5`, `[3/60]`, `5:`, `3.2s`.
_FIGURE = re.compile(
    rf"[\[(#]?(?P<value>{_NUMBER})(?:(?P<percent>%)|(?P<other>/\d+|(?<=[\d.])[a-z]{{1,2}}))?[\])]?:?",
    re.IGNORECASE,
)
# Which of how many epochs it is of: `Epoch 3/60`, `epoch: [3 of 60]`, `[3/60]` as it begins.
_COUNTER = re.compile(
    r"(?:(?<![a-z])epochs?[\s:=#]{0,3}[\[(]?|^\s*\[(?=[\d/ ]+\]))"
    r"\s?(\d{1,9})\s?(?:/|(?:out )?of)\s?(\d{1,9})",
    re.IGNORECASE,
)
# Beside these `f1` is the first of several, and no score.
_OTHERS_OF_F1 = re.compile(r"\bf[02-9]\b", re.IGNORECASE)
# The last word of what is counted or measured by a clock.
_NO_METRIC = re.compile(
    r"batch(es)?|epochs?|iter(ations?)?|steps?|num|seed|rank|pid|port|version|flos"
    r"|time(stamp)?|runtime|duration|elapsed|eta|ms|secs?|seconds?|speed|throughput|fps"
)


class LineReader:
    """Reads text as it is printed. `patterns` are a study's, by metric; of the names `left_out`,
    hyper-parameters, none is a metric unless it has a pattern."""

    def __init__(
        self, patterns: Mapping[str, str] | None = None, left_out: Collection[str] = ()
    ) -> None:
        self._patterns = {name: re.compile(text) for name, text in (patterns or {}).items()}
        self._left_out = {name.lower() for name in left_out}
        #: What the line that was read last counts: (3, 60) of `Epoch 3/60`.
        self.counter: tuple[int, int] | None = None
        self._begun = ""
        self._is_in_traceback = False

    def read(self, text: str) -> Iterator[tuple[dict[str, float], int]]:
        """The metrics of each line that ends in `text`, and how sure they are."""
        if text and "\r" in self._begun and text[0] not in "\r\b\n":
            self._begun = ""  # it is printed amid a bar that is to be drawn on
        lines = (self._begun + text).split("\n")
        self._begun = lines.pop()[-_LONGEST:]
        for line in lines:
            with contextlib.suppress(Exception):  # nothing ends for a line that can't be read
                yield from self._read_line(line)

    def _read_line(self, line: str) -> Iterator[tuple[dict[str, float], int]]:
        # Of a line that was drawn several times, the last.
        shown = line.rstrip("\r").rpartition("\r")[2][:_LONGEST]
        plain = _ESCAPES.sub("", shown)
        is_of_traceback = self._is_of_traceback(plain)
        counter = _COUNTER.search(plain)
        self.counter = (int(counter[1]), int(counter[2])) if counter else None
        if not is_of_traceback and (found := self._found(plain)) is not None:
            yield found, FOUND
        if self._patterns and (told := self._told(plain)):
            yield told, TOLD

    def _is_of_traceback(self, line: str) -> bool:
        """Whether it is from a traceback, which shows lines of source: `fit(dropout=0.5)`."""
        was_in_one = self._is_in_traceback
        begins = line.startswith(_TRACEBACK)
        self._is_in_traceback = begins or (was_in_one and line[:1] in (" ", ""))
        return begins or was_in_one

    def _told(self, line: str) -> dict[str, float]:
        values = {}
        for name, pattern in self._patterns.items():
            for match in pattern.finditer(line):
                text = match["value"] if "value" in pattern.groupindex else match[1]
                if (value := number_in(text or "")) is not None:
                    values[name] = value
        return values

    def _found(self, line: str) -> dict[str, float] | None:
        values = from_json(line)
        if values is None:
            values = {**bare(line), **pairs(line)}
        kept = {name: value for name, value in values.items() if self._is_metric(name)}
        return kept or None

    def _is_metric(self, name: str) -> bool:
        return is_metric(name) and name.lower() not in self._left_out


def from_json(line: str) -> dict[str, float] | None:
    """The numbers of a line that is a JSON object; None for another."""
    text = line.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        return logged(json.loads(text))
    except (ValueError, RecursionError):  # the latter if it is nested deeply
        return None


def pairs(line: str) -> dict[str, float]:
    """The numbers of a line with a name before them; what has several words has `_` between."""
    found: dict[str, float] = {}
    end = 0
    for match in _PAIR.finditer(line):
        before, end = line[end : match.start()], match.end()
        name = _name(before, is_tight=match["sign"] == "=" and not match["gap"])
        value = _value(match)
        if name and value is not None:
            found[name] = value
    return found


def bare(line: str) -> dict[str, float]:
    """The metrics of a line that have nothing but spaces between their name and their value."""
    found: dict[str, float] = {}
    for part in re.split("[|,;]", line):
        found |= _named_figures(part)
    if _OTHERS_OF_F1.search(line):
        found = {name: value for name, value in found.items() if not name.lower().endswith("f1")}
    return found


def _named_figures(part: str) -> dict[str, float]:
    """The metrics of what stands between two bars or commas, if that is nothing but names with a
    number behind each, as in `epoch 5 loss 0.15 acc 0.25`; else none: it may be a sentence."""
    found: dict[str, float] = {}
    words: list[str] = []
    is_first = True
    for word in part.split():
        figure = _FIGURE.fullmatch(word)
        if figure is None:
            if words or any(map(str.isalpha, word)):  # no dash or time of day before a name
                words.append(word)
            continue
        is_name = len(words) == 1 or (len(words) == 2 and _PARTS.fullmatch(words[0].lower()))
        if not is_name and (words or not is_first):
            return {}
        name, value = "_".join(words), _value_as_written(figure["value"], bool(figure["percent"]))
        if value is not None and not figure["other"] and _BARE_NAME.fullmatch(name):
            found[name] = value
        words, is_first = [], False
    return {} if words else found


def is_metric(name: str) -> bool:
    """Whether a number of this name may be one, and no counter or time."""
    return _NO_METRIC.fullmatch(re.split(r"[\W_]+", name.lower())[-1]) is None


def number_in(text: str) -> float | None:
    """The number that a text is, also with a percent sign; None if it is none."""
    try:
        return float(text.strip().rstrip("%"))
    except ValueError:
        return None


def _name(before: str, is_tight: bool) -> str:
    match = _WORDS.search(before)
    if match and (measured := _MEASURED.match(before, 0, match.start())):
        return "_".join(measured[1].split(" "))
    words = match[0].split(" ") if match else []
    if is_tight and words:
        has_part = len(words) > 1 and _PARTS.fullmatch(words[-2].lower())
        words = words[-2:] if has_part else words[-1:]
    return "_".join(words) if len(words) <= _MOST_WORDS else ""


def _value(match: re.Match[str]) -> float | None:
    if match["of"]:
        of = float(match["of"])
        return float(match["value"]) / of if of else None
    return _value_as_written(match["value"], bool(match["percent"]))


def _value_as_written(text: str, is_percent: bool) -> float | None:
    value = float(text)
    is_written_as_one = is_percent or not math.isfinite(value) or set(".eE") & set(text)
    return value if is_written_as_one else None
