"""What the keys of `top` do.

A key changes only what is shown, and at most asks the head for more; it changes nothing in a study.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from hermesctl.render.views import LiveView, Panel

_PAGE = 10
_HELP = """
↑ ↓ j k   choose a trial, as the mouse's wheel does; PgUp, PgDn, Home, End
l Enter   the end of what it printed
w         why it runs or waits, and who goes next
/         only trials with these words: name, state, device, tags, parameters
f         only those on a device, or all
s ← →     sort: running first, by rank, by number, by step
m         let clicks choose a trial, and open it; to mark text press Shift then
p Space   pause the display, or let it go on
Esc       go back, and show all trials again
q         leave; the study goes on
? h       hide these lines"""
# The row of the screen where the mouse was pressed stands behind it.
CLICK = "click "


class Keyboard:
    """What keys do to a live picture.

    `trial_at` is the trial that a row of the screen shows, or empty.
    """

    def __init__(self, live: LiveView, trial_at: Callable[[int], str] = lambda _: "") -> None:
        #: Set once the picture is to end.
        self.left = asyncio.Event()
        #: Whether the mouse is ours; else it is the terminal's, which marks text by it.
        self.takes_clicks = False
        self._trial_at = trial_at
        self._awake = asyncio.Event()
        self._held = False
        self._live = live
        self._helps = False
        self._types = False

    async def rest(self, seconds: float) -> None:
        """Wait so long, and while the picture is to stand still; not once a key needs the head."""
        while True:
            try:
                # Not by `wait_for`, which forgets that it was cancelled if a key comes with that.
                async with asyncio.timeout(None if self._held else seconds):
                    await self._awake.wait()
            except TimeoutError:
                if self._held:
                    continue
                return
            self._awake.clear()
            return

    def press(self, key: str) -> None:
        """Do what a key is for; nothing for one that is for nothing."""
        if key.startswith(CLICK):
            self._click(int(key.removeprefix(CLICK)))
        elif self._types:
            self._type(key)
        elif self._live.panel is None or not self._in_panel(key):
            self._choose(key)
        self.tell()

    def _click(self, row: int) -> None:
        """Choose what is shown there; open it if it is chosen; leave what is open."""
        live = self._live
        if live.panel is not None:
            live.panel = None
        elif trial := self._trial_at(row):
            chosen = live.look.on(live.detail.trials)
            if chosen is not None and chosen.id == trial:
                self._open("output")
            live.look = replace(live.look, trial=trial)

    def _type(self, key: str) -> None:
        """A key while words are given."""
        look = self._live.look
        words = look.words
        match key:
            case "enter":
                self._types = False
            case "escape":
                self._types, words = False, ""
            case "backspace":
                words = words[:-1]
            case _ if len(key) == 1 and key.isprintable():
                words += key
        self._live.look = replace(look, words=words)

    def _in_panel(self, key: str) -> bool:
        """Whether the key is for the panel."""
        live = self._live
        assert live.panel is not None
        match key.lower():
            case "q" | "escape" | "enter" | "left":
                live.panel = None
            case "l" | "w" if live.panel.kind == _KINDS[key.lower()]:
                live.panel = None
            case "s" | "f" | "/" | "right":
                pass
            case "up" | "down" | "j" | "k" | "l" | "w":
                kind = _KINDS.get(key.lower(), live.panel.kind)
                if key.lower() not in _KINDS:
                    self._choose(key)
                self._open(kind)
            case _:
                return False
        return True

    def _choose(self, key: str) -> None:
        live = self._live
        look, trials = live.look, live.detail.trials
        match key.lower():
            case "q":
                self.left.set()
            case "s" | "right":
                live.look = look.sorted_otherwise(1)
            case "left":
                live.look = look.sorted_otherwise(-1)
            case "up" | "k":
                live.look = look.moved(-1, trials)
            case "down" | "j":
                live.look = look.moved(1, trials)
            case "page up":
                live.look = look.moved(-_PAGE, trials)
            case "page down":
                live.look = look.moved(_PAGE, trials)
            case "home":
                live.look = look.moved(-len(trials), trials)
            case "end":
                live.look = look.moved(len(trials), trials)
            case "f":
                live.look = replace(look, only_on_device=not look.only_on_device)
            case "/":
                self._types = True
            case "escape":
                live.look = replace(look, words="", only_on_device=False)
            case "l" | "enter":
                self._open("output")
            case "w":
                self._open("why")
            case "m":
                self.takes_clicks = not self.takes_clicks
            case "p" | " ":
                self._held = not self._held
                self._awake.set()
            case "?" | "h":
                self._helps = not self._helps
            case _:
                pass

    def _open(self, kind: str) -> None:
        live = self._live
        trial = live.look.on(live.detail.trials)
        if trial is not None:
            live.panel = Panel(kind, trial.id)
            self._awake.set()

    def tell(self) -> None:
        """Have the picture say what keys there are."""
        live, look = self._live, self._live.look
        live.is_chosen_from = True
        if self._types:
            live.keys = (f"filter: {look.words}▏", "Enter keep it", "Esc show all")
            return
        going = "p go on (held)" if self._held else "p hold still"
        if live.panel is not None:
            live.keys = ("Esc back", "↑↓ other trials", "l output", "w why", going)
            return
        live.keys = (
            "q leave",
            "l output",
            "w why",
            f"/ filter: {look.words}" if look.words else "/ filter",
            f"s sort: {look.order_name}",
            "f all trials" if look.only_on_device else "f running only",
            going,
            "m mouse off" if self.takes_clicks else "m mouse",
            "? help",
        )
        live.help = _HELP.strip("\n") if self._helps else ""


_KINDS = {"l": "output", "w": "why"}
