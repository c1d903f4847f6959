"""Follows a study on the terminal: a display that moves, or lines if the terminal can't do that.

Events update what they can (the curves of the signals), and one question per second to the head the
rest. If the head is away for a while, the display says so and goes on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shlex
import signal
import sys
import termios
import tty
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    contextmanager,
    nullcontext,
)

from rich.console import Console
from rich.live import Live as RichLive

from hermesctl.errors import HermesError, Unreachable
from hermesctl.render.event_lines import print_event
from hermesctl.render.failure_views import unexplained
from hermesctl.render.live_table import SPARK_WIDTH
from hermesctl.render.node_views import hindrances
from hermesctl.render.tables import cell
from hermesctl.render.top_keys import CLICK, Keyboard
from hermesctl.render.views import (
    LiveView,
    Panel,
    final_view,
    live_view,
    progress_line,
    top_view,
)
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.beside import beside
from hermesctl.sdk.events import SWITCHES, Event, EventKind, Plain
from hermesctl.sdk.records import Study, StudyDetail
from hermesctl.terminal import asked_to_end, say
from hermesctl.text import count, cut, drawn_lines, last_line, one_line, printable
from hermesctl.waiting import is_live

# Keys pressed while a picture moves: one at a time, without Enter, and never echoed.
#
# The terminal is as it was when we leave, are stopped by Ctrl-Z, or are asked to end;
# Ctrl-C stays what it is. Without a terminal to read from, or in its background, there are no
# keys.

_KEY = re.compile(r"\x1b[\[O]<?[0-9;]*[A-Za-z~]|.", re.DOTALL)
_CLICK = re.compile(r"\x1b\[<([0-9]+);[0-9]+;([0-9]+)M")  # a button is pressed, in a column and row
_BUTTONS = {"0": CLICK, "64": "up", "65": "down"}  # the left one, and the wheel
_SEQUENCES = {
    **{"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"},
    **{"1~": "home", "4~": "end", "5~": "page up", "6~": "page down"},
}
_NAMED = {"\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace"}


@contextmanager
def pressed(tell: Callable[[str], None], leave: Callable[[], None]) -> Iterator[bool]:
    """Call `tell` with each key, `left` or `up` for an arrow, from the running event loop, and
    `leave` when this process is asked to end. Whether there are keys at all is what it yields."""
    if not _is_ours():
        yield False
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not _is_ours():  # reading from the background would stop us
            return
        data = os.read(terminal, 1024)
        if not data:
            loop.remove_reader(terminal)
        for key in keys_of(data.decode(errors="replace")):
            tell(key)

    def back() -> None:
        # After Ctrl-Z: the shell has put the terminal back meanwhile.
        if _is_ours():
            tty.setcbreak(terminal)
        tell("")

    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    loop.add_signal_handler(signal.SIGCONT, back)
    try:
        with asked_to_end(leave):
            yield True
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_reader(terminal)
        if _is_ours():
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def keys_of(text: str) -> list[str]:
    """The keys that a terminal tells of by `text`: characters, and others by their names."""
    return [key for key in map(_named, _KEY.findall(text)) if key]


def _named(key: str) -> str:
    if click := _CLICK.fullmatch(key):
        name = _BUTTONS.get(click[1], "")
        return f"{name}{click[2]}" if name == CLICK else name
    return _SEQUENCES.get(key[2:], "") if len(key) > 1 else _NAMED.get(key, key)


def _is_ours() -> bool:
    """Whether standard input is a terminal that we may read from: one whose foreground we are in,
    or that has none as it controls nobody."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError as error:
        return error.errno == errno.ENOTTY


_WHEEL_ON, _WHEEL_OFF = "\x1b[?1007h", "\x1b[?1007l"
_CLICKS_ON, _CLICKS_OFF = "\x1b[?1000h\x1b[?1006h", "\x1b[?1006l\x1b[?1000l"
_REFRESH_SECONDS = 1.0
# Where lines are printed, they are kept: a night of training should fit a log.
# Soon at first, then more and more seldom.
PROGRESS_SECONDS, _PROGRESS_SECONDS_AT_FIRST = 120.0, 10.0
# What keeps a study waiting is said soon, and once.
HEED_SECONDS = 5.0
# A study that is large asks for less of the head's time.
_REFRESH_SHARE = 5
_TRAILS_FETCHED = 64
LEADERBOARD_LENGTH = 10
# A picture of more is slow to lay out, and `trial ls` lists all.
_LINES_IN_A_PIPE = 1_000
_OUTPUT_BYTES = 32 << 10


async def follow_to_the_end(
    client: AsyncClient, study: str, console: Console, after: int
) -> StudyDetail:
    """Show a study until it has finished, then how it ended.

    Without a terminal to draw on, the events after the sequence number `after` are printed as
    lines.
    """
    if is_live(console):
        await _draw(client, study, console, devices=False)
    else:
        await _print_lines(client, study, console, after)
    return await show_end(client, study, console)


async def show_end(client: AsyncClient, study: str, console: Console) -> StudyDetail:
    """Show how a finished study ended."""
    detail = await client.study(study)
    best = await client.best(detail.study, LEADERBOARD_LENGTH)
    console.print(final_view(detail, best, await said_last(client, detail)))
    return detail


async def said_last(client: AsyncClient, detail: StudyDetail) -> dict[str, str]:
    """The last line printed by each trial that failed, or was not extended, without a word of
    why."""
    said = {}
    for trial in unexplained(detail.trials):
        try:
            said[trial.id] = last_line((await client.trial(trial)).output_tail)
        except HermesError:
            continue  # its exit status is told then
    return said


async def show_top(client: AsyncClient, study: str, console: Console) -> None:
    """Show the devices and a study until it has finished, then how it ended; once, if it can't
    be redrawn."""
    if is_live(console):
        finished = (await client.study(study)).study.finished
        if finished or await _draw(client, study, console, devices=True):
            await show_end(client, study, console)
        else:
            say("the study goes on")
        return
    live = await _asked(client, study, None, devices=True)
    console.print(top_view(live, console.width, _LINES_IN_A_PIPE))


async def _print_lines(client: AsyncClient, study: str, console: Console, after: int) -> None:
    """What `tail` prints but for the switches, and every now and then how far all of it is."""

    async def tell() -> None:
        pause = _PROGRESS_SECONDS_AT_FIRST
        while True:
            await asyncio.sleep(min(pause, PROGRESS_SECONDS))
            pause *= 2
            try:
                line = progress_line(await client.study(study))
            except HermesError:
                continue  # the follower knows what that means
            console.print(line, soft_wrap=True)

    follow = client.follow(study, after=after, reports=False, on_gap=_say_gap)
    plain, ends = Plain(), _Ends(console)
    told = await hindrances(client)  # said already, before the first line
    async with beside(tell()), heeded(client, study, told), aclosing(follow) as events:
        async for event in events:
            if plain.tells(event) and event.kind not in SWITCHES:
                ends.print(event)
        ends.close()


class _Ends:
    """Prints events; those that end one trial after another for the same reason as one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: Event | None = None
        self._further = 0

    def print(self, event: Event) -> None:
        """Print an event, or count it."""
        last = self._last
        if last is not None and (event.kind, event.reason) == (last.kind, last.reason):
            self._further += 1
            return
        self.close()
        self._last = event if event.kind in (EventKind.STOPPED, EventKind.CANCELLED) else None
        print_event(self._console, event)

    def close(self) -> None:
        """Say how many were counted."""
        if self._further:
            assert self._last is not None
            words = f"… and {count(self._further, 'more trial')} {self._last.kind}"
            self._console.print(cell(f"{'':>17}{words} for the same reason", "dim"))
        self._further = 0


def heeded(
    client: AsyncClient, study: str, told: Sequence[str]
) -> AbstractAsyncContextManager[None]:
    """Say beside the body what keeps the study from running and what its author should know, as
    soon as it is other than what was `told` already."""
    return beside(_heed(client, study, told))


async def _heed(client: AsyncClient, study: str, told: Sequence[str]) -> None:
    loop, took = asyncio.get_running_loop(), 0.0
    while True:
        await asyncio.sleep(max(HEED_SECONDS, _REFRESH_SHARE * took))
        began = loop.time()
        try:
            found = await concerns(client, (await client.study(study)).study)
        except HermesError:
            continue
        for reason in found:
            if reason not in told:
                say(f"note: {reason}")
        told, took = found, loop.time() - began


async def concerns(client: AsyncClient, study: Study) -> list[str]:
    """What a study's author should know of it, then what keeps it from running."""
    notices = [*map(one_line, study.notices), *await unread(client, study)]
    return [*notices, *await hindrances(client, study)]


async def unread(client: AsyncClient, study: Study) -> list[str]:
    """That nothing is read of what a study's first trial prints, as soon as that shows."""
    if study.reported or not study.trial_count:
        return []
    try:
        first = await client.trial(f"{study.id}/1")
    except HermesError:
        return []
    note = pattern_note(first.trial.id, first.output_tail)
    return [note] if note else []


# The words that metrics have, before a value that nothing marks as theirs: `name=value` and
# `name: value` are read without a pattern.
_MEASURED = re.compile(
    r"\b(?P<name>(?:\w+_)?(?:loss|acc|accuracy|error|err|ppl|perplexity|mae|mse|rmse|auc|f1|score"
    r"|reward))\b[^\d:=|,]{1,24}?-?\d+\.\d+",
    re.IGNORECASE,
)
_A_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# A line that comes this often, but for its numbers, is no remark.
_OFTEN = 3
_SHOWN_CHARACTERS = 60


def pattern_note(trial: str, output: str) -> str:
    """What to say of a trial that has reported nothing and printed this, with a pattern that reads
    it; empty if no line says a metric in other words."""
    found = [(line, match) for line in output.splitlines() if (match := _MEASURED.search(line))]
    shapes = Counter(_shape(line) for line, _ in found)
    for line, match in reversed(found):
        if shapes[_shape(line)] >= _OFTEN:
            name = match["name"]
            pattern = rf"metrics.{name.lower()}={name}\D*?(-?\d+\.\d+(?:e[-+]\d+)?)"
            said = cut(printable(_shape(line)), _SHOWN_CHARACTERS)
            return (
                f"{printable(trial)} prints `{said}`, which is not read as a metric: submit with"
                f" --set {shlex.quote(pattern)}"
            )
    return ""


def _shape(line: str) -> str:
    """A line without its numbers: said of the next one, it is the same."""
    return _A_NUMBER.sub("…", line.strip())


async def _draw(client: AsyncClient, study: str, console: Console, *, devices: bool) -> bool:
    """Whether the study has finished: with `devices` there are keys, one of which leaves it."""
    live = await _asked(client, study, None, devices)
    await _fetch_trails(client, live)
    keyboard, finished = Keyboard(live, lambda row: _trial_at(console, live, row)), False

    def picture() -> None:
        view = top_view if devices else live_view
        screen.update(view(live, console.width, console.height), refresh=True)

    def gap(error: Unreachable) -> None:
        live.notice = f"reconnecting, the trials go on: {str(error).splitlines()[0]}"
        picture()

    def key(name: str) -> None:
        took_clicks = keyboard.takes_clicks
        keyboard.press(name)
        if keyboard.takes_clicks != took_clicks:
            _write(console, _CLICKS_OFF if took_clicks else _CLICKS_ON)
        picture()

    async def refresh() -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await _asked(client, study, live, devices)
            except Unreachable as error:
                gap(error)
            else:
                picture()
            await keyboard.rest(max(_REFRESH_SECONDS, _REFRESH_SHARE * (loop.time() - began)))

    async def events() -> None:
        after = live.detail.journal_sequence
        async with aclosing(client.follow(study, after=after, on_gap=gap)) as stream:
            async for event in stream:
                if event.kind is EventKind.REPORTED and event.loss is not None:
                    live.reported(event.trial, event.loss)
        nonlocal finished
        finished = True
        keyboard.left.set()

    with (
        pressed(key, keyboard.left.set) if devices else nullcontext(False) as has_keys,
        RichLive(console=console, auto_refresh=False, transient=True, screen=has_keys) as screen,
        _mouse(console) if has_keys else nullcontext(),
        _stoppable(console, keyboard) if has_keys else nullcontext(),
    ):
        if has_keys:
            keyboard.tell()
        picture()
        async with beside(refresh()), beside(events()):
            await keyboard.left.wait()
    return finished


def _trial_at(console: Console, live: LiveView, row: int) -> str:
    """The trial that a row of the screen, counted from 1, shows; empty for none."""
    lines = console.render_lines(top_view(live, console.width, console.height), pad=False)
    shown = "".join(part.text for part in lines[row - 1]) if 1 <= row <= len(lines) else ""
    first = shown.partition(" ")[0]
    trials = live.detail.trials
    return next((each.id for each in trials if first in (each.id, f"/{each.number}")), "")


@contextmanager
def _mouse(console: Console) -> Iterator[None]:
    """On a screen of its own, have the mouse's wheel press the arrows up and down; what is shown
    can still be marked and copied, unless a key has clicks be ours."""
    _write(console, _WHEEL_ON)
    try:
        yield
    finally:
        _write(console, _CLICKS_OFF + _WHEEL_OFF)


@contextmanager
def _stoppable(console: Console, keyboard: Keyboard) -> Iterator[None]:
    """Ctrl-Z gives the shell its own screen back for as long as we are stopped."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        _write(console, _CLICKS_OFF + _WHEEL_OFF)
        console.set_alt_screen(False)
        os.kill(os.getpid(), signal.SIGSTOP)
        console.set_alt_screen(True)
        _write(console, _WHEEL_ON + (_CLICKS_ON if keyboard.takes_clicks else ""))

    loop.add_signal_handler(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTSTP)


def _write(console: Console, sequence: str) -> None:
    console.file.write(sequence)
    console.file.flush()


async def _asked(client: AsyncClient, study: str, live: LiveView | None, devices: bool) -> LiveView:
    detail = await client.study(study)
    if live is None:
        live = LiveView(detail)
    live.detail = detail
    live.nodes = await client.nodes() if devices else ()
    live.notice = next(iter(await concerns(client, detail.study)), "")
    if live.panel is not None:
        await _fill(client, live.panel)
    return live


async def _fill(client: AsyncClient, panel: Panel) -> None:
    """Ask for what the panel shows."""
    try:
        if panel.kind == "why":
            panel.content = await client.why(panel.trial)
            return
        async with aclosing(client.logs(panel.trial, offset=-_OUTPUT_BYTES)) as stream:
            printed = b"".join([data async for data in stream])
    except Unreachable:
        raise
    except HermesError as error:
        panel.content = str(error).splitlines()
    else:
        panel.content = drawn_lines(printed.decode(errors="replace"))


async def _fetch_trails(client: AsyncClient, live: LiveView) -> None:
    """The signals so far, so that the picture does not begin empty."""
    for trial in live.detail.trials[:_TRAILS_FETCHED]:
        if trial.step:
            try:
                curve = await client.curve(trial, max_points=SPARK_WIDTH)
            except HermesError:
                continue  # a picture without this trail is still right
            for value in curve.values:
                live.reported(trial.id, value)


def _say_gap(error: Unreachable) -> None:
    say(f"{str(error).splitlines()[0]}; reconnecting, the trials go on")
