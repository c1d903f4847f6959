"""What a trial printed, made fit for a terminal: its text and line ends, no escape sequences."""

from __future__ import annotations

import codecs
import re

from hermesctl.text import printable

# Colours and cursor movements (CSI), titles and links (OSC), and the two-character rest.
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
