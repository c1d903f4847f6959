"""An event loop in a thread of its own, for callers that block.

Whoever waits for a call waits until its task has ended, even after Ctrl-C. Closing ends every call
and every stream first, and happens at the interpreter's exit at the latest. All callers in a
process share one loop and its thread, which last until then: gRPC's one poller would hand the last
events of a closed loop to another one.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeAlias, TypeVar

from hermesctl.errors import UsageError

Answer = TypeVar("Answer")
# Done with its task once that has ended, in whatever way.
_Ended: TypeAlias = "Future[asyncio.Task[Answer]]"


class _Loop:
    """The loop, its thread, and their end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # A thread that is no daemon would be waited for at exit before anything could end it.
        self.thread = threading.Thread(
            target=self.loop.run_forever, name="hermes-client", daemon=True
        )
        self.thread.start()
        atexit.register(self._end)  # after that of each client, which comes to it later

    def _end(self) -> None:
        if not self.thread.is_alive():
            return  # it is a forked process: the thread stayed with the first one
        # What the transport leaves behind would complain when the loop is gone.
        asyncio.run_coroutine_threadsafe(_cancel_the_rest(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


_shared: _Loop | None = None
_shared_lock = threading.Lock()


def _loop_of_this_process() -> _Loop:
    global _shared
    with _shared_lock:
        if _shared is None or not _shared.thread.is_alive():
            _shared = _Loop()
        return _shared


class LoopThread:
    """Runs coroutines for other threads. `release` is what `close` awaits last."""

    def __init__(self, release: Callable[[], Awaitable[None]]) -> None:
        self._release = release
        shared = _loop_of_this_process()
        self._loop, self._thread = shared.loop, shared.thread
        self._calls: dict[_Ended[Any], asyncio.Task[Any]] = {}
        self._streams: set[AsyncGenerator[Any, None]] = set()
        self._closed = False
        # Reentrant, because a stream may be collected as garbage while it is held.
        self._lock = threading.RLock()
        atexit.register(self.close)

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """What the coroutine returns or raises. Raises UsageError where it can't be waited for."""

        def begin(ended: _Ended[Answer]) -> None:
            with self._lock:
                hindrance = self._hindrance()
                if hindrance:
                    raise UsageError(hindrance)
                self._begin(coroutine, ended)

        return self._wait(begin, coroutine)

    def iterate(self, start: Callable[[], AsyncGenerator[Answer, None]]) -> Iterator[Answer]:
        """The items of the stream that `start` makes; leaving early ends it."""
        stream = start()
        self._streams.add(stream)
        try:
            while True:
                try:
                    item = self.run(_next(stream))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            # Else `close` has ended it, or will: the loop's own thread may collect garbage too.
            if not self._hindrance():
                self.run(stream.aclose())
                self._streams.discard(stream)

    def close(self) -> None:
        """End all calls and streams; closing twice is fine, also from two threads."""
        with self._lock:
            if self._closed or not self._thread.is_alive():
                return
            if hindrance := self._hindrance():
                raise UsageError(hindrance)
            self._closed = True
        atexit.unregister(self.close)
        ending = self._end()
        self._wait(lambda ended: self._begin(ending, ended), ending)

    def _hindrance(self) -> str:
        """Why nothing can be waited for; empty if it can."""
        if self._closed:
            return "the client is closed: expected calls before close()"
        if threading.current_thread() is self._thread:
            return "expected no call within on_gap or on_progress: the client waits for their end"
        if not self._thread.is_alive():
            return "expected a client made after the fork: threads stay with the first process"
        return ""

    def _begin(self, coroutine: Coroutine[Any, Any, Answer], ended: _Ended[Answer]) -> None:
        def start() -> None:
            task = self._calls[ended] = self._loop.create_task(coroutine)
            task.add_done_callback(lambda _: self._calls.pop(ended))
            task.add_done_callback(ended.set_result)

        self._loop.call_soon_threadsafe(start)

    def _wait(
        self,
        begin: Callable[[_Ended[Answer]], None],
        coroutine: Coroutine[Any, Any, Answer],
    ) -> Answer:
        ended: _Ended[Answer] = Future()
        try:
            begin(ended)
            task = ended.result()
        except UsageError:
            coroutine.close()  # it was not begun
            raise
        except BaseException as error:
            # Ctrl-C lands here, not in the loop's thread, perhaps before anything was begun. A
            # stream can't be closed before the task that reads it is over.
            self._loop.call_soon_threadsafe(self._cancel, ended)
            wait([ended])
            coroutine.close()
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None  # it broke into Python's own waiting
            raise
        if task.cancelled():
            raise UsageError("the client was closed during the call")
        return task.result()

    def _cancel(self, ended: _Ended[Any]) -> None:
        task = self._calls.get(ended)
        if task is not None:
            task.cancel()
        else:  # it is over, or was never begun
            ended.cancel()

    async def _end(self) -> None:
        await _cancelled(set(self._calls.values()))
        for stream in tuple(self._streams):
            await stream.aclose()
        await self._release()


async def _cancel_the_rest() -> None:
    await _cancelled(asyncio.all_tasks())


async def _cancelled(tasks: set[asyncio.Task[Any]]) -> None:
    others = tasks - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _next(stream: AsyncGenerator[Answer, None]) -> Answer:
    return await anext(stream)
