"""Streams that go on by themselves: the journal's events and a trial's output.

After a break, the stream is requested again from the last thing seen, so nothing is missed and
nothing comes twice. Only a head that stays away for `reconnect_seconds` ends it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeAlias

from hermesctl.errors import Unreachable
from hermesctl.sdk.connection import Backoff, Connection
from hermesctl.sdk.events import Event, EventKind
from hermesctl.sdk.from_wire import record
from hermesctl.sdk.requests import asked
from hermesd.pb.hermes.v1 import control_pb2 as pb

# As long as a lease: until then the trials themselves go on without the head.
RECONNECT_SECONDS = 600.0
# The last lines of a log are looked for in its end, then in so much before that; no further, since
# a progress bar may have printed for days without ending a line.
_WINDOWS_BYTES = (64 << 10, 960 << 10, 15 << 20)

OnGap: TypeAlias = Callable[[Unreachable], None]


async def watch(
    connection: Connection,
    *,
    study: str = "",
    after: int = 0,
    reports: bool = False,
    once: bool = False,
    reconnect_seconds: float = RECONNECT_SECONDS,
    on_gap: OnGap | None = None,
) -> AsyncGenerator[tuple[Event, ...], None]:
    """Public events after the sequence number `after`; without `once` it never ends.

    They come as the head sends them: all events of one journal entry, which share its number,
    together. `on_gap` is told of each break, once until the head has answered. Raises Unreachable
    when no head was ever there, or stays away for `reconnect_seconds`.
    """
    known = connection.has_answered
    backoff = Backoff(reconnect_seconds if known else connection.patience_seconds)
    while True:
        request = asked(
            pb.WatchJournalRequest, after_sequence=after, study=study, reports=reports, once=once
        )
        try:
            async with aclosing(
                connection.stream(connection.stub.WatchJournal, request)
            ) as responses:
                async for response in responses:
                    backoff = Backoff(reconnect_seconds)
                    if response.events:
                        after = response.events[-1].sequence
                        yield tuple(record(Event, each) for each in response.events)
            if once:
                return
        except Unreachable as error:
            await _over_gap(backoff, error, on_gap)


async def follow_study(
    connection: Connection,
    study: str,
    *,
    after: int = 0,
    reports: bool = True,
    reconnect_seconds: float = RECONNECT_SECONDS,
    on_gap: OnGap | None = None,
) -> AsyncGenerator[Event, None]:
    """A study's events until it has finished (or was removed) and all of them were seen."""
    once = await _finished(connection, study, reconnect_seconds, on_gap)
    while True:
        batches = watch(
            connection,
            study=study,
            after=after,
            reports=reports,
            once=once,
            reconnect_seconds=reconnect_seconds,
            on_gap=on_gap,
        )
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    yield event
                after = batch[-1].sequence
                if any(e.kind is EventKind.REMOVED for e in batch):
                    return
                # A study that was extended has finished before; only the last time counts.
                if not once and any(e.kind is EventKind.STUDY_FINISHED for e in batch):
                    break
        if once:
            return
        once = await _finished(connection, study, reconnect_seconds, on_gap)


async def follow_logs(
    connection: Connection,
    trial: str,
    *,
    offset: int = 0,
    follow: bool = False,
    rank: int = 0,
    reconnect_seconds: float = RECONNECT_SECONDS,
    on_gap: OnGap | None = None,
) -> AsyncGenerator[bytes, None]:
    """What a trial's process of a rank printed, from the byte `offset` on (negative: counted from
    the end)."""
    chunks = _log(connection, trial, offset, follow, rank, reconnect_seconds, on_gap)
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk.data


async def _log(
    connection: Connection,
    trial: str,
    offset: int,
    follow: bool,
    rank: int,
    reconnect_seconds: float,
    on_gap: OnGap | None,
) -> AsyncGenerator[pb.TailLogsResponse, None]:
    backoff = Backoff(connection.patience_seconds)
    while True:
        request = asked(pb.TailLogsRequest, trial=trial, offset=offset, follow=follow, rank=rank)
        try:
            async with aclosing(connection.stream(connection.stub.TailLogs, request)) as chunks:
                async for chunk in chunks:
                    backoff = Backoff(reconnect_seconds)
                    offset = chunk.offset + len(chunk.data)
                    yield chunk
            return
        except Unreachable as error:
            await _over_gap(backoff, error, on_gap)


async def begin_of_lines(
    connection: Connection,
    trial: str,
    lines: int,
    *,
    rank: int = 0,
    on_gap: OnGap | None = None,
) -> int:
    """The byte at which the last so many lines of what a trial printed begin, if that is within
    its last 16 MiB; else where those begin."""
    begin, end = 0, None
    for room in _WINDOWS_BYTES:
        offset = -room if end is None else max(0, end - room)
        data, begin = bytearray(), 0
        chunks = _log(connection, trial, offset, False, rank, RECONNECT_SECONDS, on_gap)
        async with aclosing(chunks):
            async for chunk in chunks:
                begin = begin if data else chunk.offset
                data += chunk.data
                if end is not None and begin + len(data) >= end:
                    break
        if end is not None:
            del data[max(0, end - begin) :]
        elif not lines:
            return begin + len(data)
        # What ends the log's last line is not the beginning of another.
        at = len(data) - (end is None and data.endswith(b"\n"))
        while lines and (at := data.rfind(b"\n", 0, at)) >= 0:
            lines -= 1
        if not lines:
            return begin + at + 1
        if begin == 0:
            break
        end = begin
    return begin


async def _finished(
    connection: Connection, study: str, reconnect_seconds: float, on_gap: OnGap | None
) -> bool:
    known = connection.has_answered
    backoff = Backoff(reconnect_seconds if known else connection.patience_seconds)
    request = asked(pb.GetStudyRequest, study=study)
    while True:
        try:
            response = await connection.call(
                connection.stub.GetStudy, request, patience_seconds=0.0
            )
            return response.study.finished
        except Unreachable as error:
            await _over_gap(backoff, error, on_gap)


async def _over_gap(backoff: Backoff, error: Unreachable, on_gap: OnGap | None) -> None:
    """Wait for the next try; raises the error once it is no use."""
    if on_gap is not None and not backoff.begun:
        on_gap(error)
    if not await backoff.wait():
        raise error
