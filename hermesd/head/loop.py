"""The one task that owns the scheduler: a batch comes in, one decision, one transaction, then act.

Everything that changes the state comes through the inbox. A batch is folded and decided without
giving up control, so nobody sees half of it; callers are answered, and commands leave, only when
the journal has it on disk. If anything but a refusal goes wrong here, the head ends, and a restart
reads the journal again.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from hermesd.core.commands import Command
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    Event,
    Extended,
    NodeSilent,
    Reported,
    RunCompleted,
    RunFailed,
    RunSuspended,
)
from hermesd.core.fold.studies import besides
from hermesd.core.model import Time, TrialId, UserId
from hermesd.core.state import AboutMany, Rejected, State
from hermesd.core.tables import Ahead
from hermesd.head.clock import Clock, boottime
from hermesd.head.counters import Counters
from hermesd.head.journal import outcomes
from hermesd.head.journal.points import Block, read_as
from hermesd.head.journal.replay import Snapshots
from hermesd.head.journal.store import Journal, JournalBroken
from hermesd.head.reader import SMALL, Reader, still
from hermesd.head.usage import kept
from hermesd.logs import get_logger
from hermesd.pieces import Pieces, in_one, whole
from hermesd.record import Entry, encode_in_pieces

log = get_logger()

INBOX_LIMIT = 4_096
CHECK_SECONDS = 60.0
# Reports alone wait so long for others: a commit costs as much as several of them.
GATHER_SECONDS = 0.05
# A change of a trial frees about as many values as it makes. The garbage collector counts what is
# made less what is freed, so it would leave the new values of very many trials for later, and then
# nobody had the interpreter for 0.1 s. It is called whenever so many trials have changed.
COLLECTED_TRIALS = 1_000
# So many new trials are decided about at once, and then all others have this long before more are.
AT_ONCE = 1_000
ARRIVING_SECONDS = 0.01

Said = TypeVar("Said")


class PreparedEvent(NamedTuple):
    """An event about very many trials of which all was made beside the loop that can be."""

    #: When: it is folded and journaled as of that time.
    at: Time
    event: AboutMany
    ahead: Ahead
    #: See `record.encode`.
    encoded: tuple[str, str]
    #: The trials that it ends; see `outcomes.write`.
    ended: str


def prepared(event: AboutMany, state: State, at: Time) -> Pieces[Event | PreparedEvent]:
    """An event, to be folded as of that time; just the event if it is illegal. `state` is a copy,
    which is spoilt by it."""
    unfinished = outcomes.unfinished(state, event)
    yield
    try:
        ahead = yield from state.found_ahead(event, at)
    except Rejected:
        return event
    yield
    held = (
        each for each in outcomes.ended_trials(state, unfinished) if each.subject in ahead.names
    )
    ended = outcomes.write(tuple(held))
    yield
    return PreparedEvent(at, event, ahead, (yield from encode_in_pieces(event)), ended)


Compose: TypeAlias = Callable[[State, Time], Event | PreparedEvent]
# The trials that it is about, or why it has no effect.
Answer: TypeAlias = tuple[TrialId, ...] | Exception
# Hears that, and what was decided with it, when that is on the disk and before it is carried out.
Answered: TypeAlias = Callable[[Answer, Sequence[Command]], None]
# What a call writes beside the change that it makes: begun as that is folded in, so that they are
# one transaction.
beside: ContextVar[Callable[[], object] | None] = ContextVar("beside", default=None)
# Hears how many bytes a change that a call makes takes in the journal.
Paying: TypeAlias = Callable[[int], object]
paying: ContextVar[Paying | None] = ContextVar("paying", default=None)


class ReadOnly(Exception):
    """The state contradicts itself or its journal: it may be looked at, nothing more."""


class Stopping(Exception):
    """The head ends before it came to this: ask again when it is back."""


class _Item(NamedTuple):
    compose: Compose
    answered: Answered
    request_id: str = ""
    points: Block | None = None
    beside: Callable[[], object] | None = None
    paying: Paying | None = None


@dataclass(slots=True)
class _Batch:
    """What one transaction will hold, and who waits for it."""

    now: Time
    lines: list[tuple[Time, Entry, str]] = field(default_factory=list)
    points: list[Block] = field(default_factory=list)
    # The lines that were encoded before, by their place.
    encoded: dict[int, tuple[str, str]] = field(default_factory=dict)
    # Who hears what they take, likewise.
    paying: dict[int, Paying] = field(default_factory=dict)
    answers: list[tuple[_Item, Answer]] = field(default_factory=list)


class Head:
    """The state, its scheduler and the journal, with one door: `post` and `change`."""

    def __init__(
        self,
        scheduler: Scheduler,
        journal: Journal,
        clock: Clock,
        carry_out: Callable[[Command], None],
        fault: str = "",
        snapshot_seq: int = 0,
    ) -> None:
        self.scheduler = scheduler
        self.journal = journal
        self.clock = clock
        self.fault = fault
        self.counters = Counters()
        self.committed = journal.last
        self.reader = Reader()
        self._carry_out = carry_out
        self._inbox: deque[_Item] = deque()
        self._room = asyncio.Event()
        self._wake = asyncio.Event()
        self._gathering: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._snapshots = Snapshots(journal, snapshot_seq)
        self._checked = clock()
        self._uncollected = 0

    @property
    def state(self) -> State:
        """To be read; changed only by this loop."""
        return self.scheduler.state

    async def read(self, user: UserId, trials: int, begin: Callable[[State], Pieces[Said]]) -> Said:
        """What is to be said of so many trials, of the state as it is when `begin` is called on the
        loop: at once if they are few, else when the user's turn has come, in the reader's thread.
        """
        if trials <= SMALL:
            return whole(begin(self.state))
        return await self.reader.do(user, lambda: begin(still(self.state)))

    async def prepare(self, user: UserId, event: AboutMany) -> Event | PreparedEvent:
        """An event about very many trials as it is to be folded, made in the reader's thread when
        the user's turn has come."""
        return await self.reader.do(user, lambda: prepared(event, still(self.state), self.clock()))

    # The door.

    async def tell(
        self,
        event: Event,
        committed: Callable[[Sequence[Command]], None] | None = None,
    ) -> None:
        """Report what happened; returns when it is safe.

        `committed` is called with the commands of the batch. Raises Rejected if the event is
        illegal, ReadOnly.
        """
        future, resolve = _future()

        def answered(answer: Answer, commands: Sequence[Command]) -> None:
            resolve(answer, commands)
            if committed is not None and not isinstance(answer, Exception):
                committed(commands)

        await self.post(event, answered)
        await future

    async def post(self, event: Event, answered: Answered, points: Block | None = None) -> None:
        """Report what happened; waits for room in the inbox alone. Raises ReadOnly.

        Events are taken, and answered, in the order in which they are posted.
        """

        def compose(state: State, now: Time) -> Event:
            trial = state.trials.get(event.run.trial) if isinstance(event, Reported) else None
            study = state.studies[trial.spec.study] if trial is not None else None
            if points is None or trial is None or study is None or not study.signal_chosen:
                return event
            assert isinstance(event, Reported)
            return read_as(event, points, study, trial.step)

        await self._put(_Item(compose, answered, "", points))
        if isinstance(event, Reported):
            self._gather_more()
        else:
            self._wake.set()

    def push(self, event: Event) -> None:
        """Report what happened without waiting for anything: for ends of streams alone."""
        if not self.fault:
            self._inbox.append(_Item(lambda state, now: event, lambda answer, commands: None))
            self._wake.set()

    async def change(self, request_id: str, compose: Compose) -> tuple[TrialId, ...]:
        """Carry out a person's request once; the trials that it is about.

        `compose` makes the event from the state as it is then, or raises why not. A request that
        was carried out before has no second effect and gets the same answer.
        """
        future, resolve = _future()
        with self.reader.paused():
            item = _Item(compose, resolve, request_id, beside=beside.get(), paying=paying.get())
            await self._put(item)
            self._wake.set()
            return await future

    async def _put(self, item: _Item) -> None:
        if self.fault:
            raise ReadOnly(self.fault)
        while len(self._inbox) >= INBOX_LIMIT:
            self._room.clear()
            await self._room.wait()
        self._inbox.append(item)

    def _gather_more(self) -> None:
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_SECONDS, self._wake.set)

    async def beyond(self, seq: int) -> int:
        """Wait until entries behind number `seq` are on the disk; the last one's number."""
        while self.committed <= seq:
            await self._news.wait()
        return self.committed

    # The loop.

    async def run(self) -> None:
        """Work until cancelled. Whatever it raises ends the head."""
        if self.fault:
            await asyncio.Event().wait()
        try:
            await self._run()
        finally:
            while self._inbox:
                self._inbox.popleft().answered(Stopping("the head is stopping"), ())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            batch = _Batch(self.clock())
            for node in [node for node in self.state.nodes.values() if node.connected]:
                self._observe(NodeSilent(node.id, "the head was restarted"), batch)
            await self._finish(batch)
            while True:
                await self._something_to_do()
                if self.clock() - self._checked >= CHECK_SECONDS:
                    self._checked = self.clock()
                    tasks.create_task(self._check())
                await self._finish(self._gather())
                if self._uncollected >= COLLECTED_TRIALS:
                    self._uncollected = 0
                    gc.collect(1)
                if self._snapshots.due(self.committed):
                    saving = tasks.create_task(self._snapshots.take(self.state, self.committed))
                    saving.add_done_callback(lambda done: self._wake.set())

    async def _check(self) -> None:
        """See that the state does not contradict itself. Raises InvariantBroken."""
        await self.read("", len(self.state.trials), lambda state: in_one(state.check))

    async def _something_to_do(self) -> None:
        times = [self._checked + CHECK_SECONDS]
        if self.scheduler.deadline is not None:
            times.append(self.scheduler.deadline)
        if self.scheduler.is_behind:
            times.append(self.clock() + ARRIVING_SECONDS)
        try:
            async with asyncio.timeout(max(0.0, min(times) - self.clock())):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _gather(self) -> _Batch:
        """Fold in everything that waits, and what is due."""
        batch = _Batch(self.clock())
        self._wake.clear()
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        for event in self.scheduler.due(batch.now):
            self._observe(event, batch)
        while self._inbox:
            self._take(self._inbox.popleft(), batch)
        self._room.set()
        return batch

    def _take(self, item: _Item, batch: _Batch) -> None:
        before = self.state.requests.get(item.request_id)
        if before is not None:
            batch.answers.append((item, before))
            return
        try:
            composed = item.compose(self.state, batch.now)
        except Exception as reason:  # composing changes nothing: only the caller is concerned
            batch.answers.append((item, reason))
            return
        try:
            self._observe(composed, batch)
        except Rejected as reason:
            self.counters.rejected += 1
            batch.answers.append((item, reason))
            return
        if item.beside is not None:
            item.beside()
        if item.paying is not None:
            batch.paying[len(batch.lines) - 1] = item.paying
        if item.points is not None:
            batch.points.append(kept(self.state, item.points))
        batch.answers.append((item, self.state.requests.get(item.request_id, ())))

    def _observe(self, composed: Event | PreparedEvent, batch: _Batch) -> None:
        if isinstance(composed, PreparedEvent):
            self._observe_prepared(composed, batch)
            return
        touched = outcomes.touched(self.state, composed)
        unfinished = outcomes.unfinished(self.state, composed)
        self.scheduler.observe(composed, batch.now)
        ended = outcomes.ended(self.state, composed, unfinished)
        batch.lines.append((batch.now, composed, outcomes.write((*touched, *ended))))

    def _observe_prepared(self, made: PreparedEvent, batch: _Batch) -> None:
        ahead = self.state.holding(made.ahead)
        rest: Event = made.event
        is_found = ahead is made.ahead and ahead.is_free
        if is_found and isinstance(rest, Extended):
            rest = besides(rest, ahead)
        unfinished = outcomes.unfinished(self.state, rest)
        self.scheduler.observe(made.event, made.at, ahead)
        studies = [ahead.study] if is_found and ahead.ended else []
        ended = outcomes.ended(self.state, rest, unfinished, studies)
        outcome = outcomes.write(ended, made.ended if is_found else "")
        self.reader.empty(list(made.ahead.before.values()))
        made.ahead.before.clear()
        batch.encoded[len(batch.lines)] = made.encoded
        batch.lines.append((made.at, made.event, outcome))

    async def _finish(self, batch: _Batch) -> None:
        """Decide, write, answer, act: in this order."""
        began = boottime()
        commands = self.scheduler.decide(batch.now)
        self.counters.deciding.add(boottime() - began)
        failures = self.scheduler.take_failures()
        for event, error in failures:
            words = "a policy raised: its study goes on under fifo"
            log.error(words, study=event.study, exc_info=error)
        decided: list[Entry] = [*(failure.event for failure in failures), *commands]
        batch.lines += [(batch.now, entry, "") for entry in decided]
        if batch.lines:
            began = boottime()
            self.committed = await self._append(batch)
            self.counters.committing.add(boottime() - began)
            self.counters.batches += 1
            self.counters.entries += len(batch.lines)
        for _, entry, _ in batch.lines:
            self.counters.note(entry)
            if isinstance(entry, RunSuspended | RunCompleted | RunFailed):
                self.journal.close_run(entry.run)
        for item, answer in batch.answers:
            item.answered(answer, commands)
            self._uncollected += len(answer) if isinstance(answer, tuple) else 0
        for command in commands:
            self._carry_out(command)
        if batch.lines:
            self._news.set()
            self._news = asyncio.Event()

    async def _append(self, batch: _Batch) -> int:
        try:
            return await self.journal.append(batch.lines, batch.points, batch.encoded, batch.paying)
        except JournalBroken as broken:
            # Nobody knows whether it is there: the callers ask again, under the same ids.
            for item, _ in batch.answers:
                item.answered(broken, ())
            raise


def _future() -> tuple[asyncio.Future[tuple[TrialId, ...]], Answered]:
    """A future, and what resolves it; nobody may be waiting for it any more."""
    future: asyncio.Future[tuple[TrialId, ...]] = asyncio.get_running_loop().create_future()

    def resolve(answer: Answer, commands: Sequence[Command]) -> None:
        if future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return future, resolve
