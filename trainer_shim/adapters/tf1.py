"""TensorFlow 1 programs, by tf.compat.v1: sessions that are suspended and resumed.

Rule: as for loops around a tf.function, the program runs again from its first line. Runs that
set up are run again; of those that train, or look at what training has changed, the results are
told from a journal, and only the operations that draw data or random numbers are run. At the
boundary of the checkpoint the variables get their values back.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from trainer_shim.adapters import tf1_answers, tf1_graph, tf1_variables
from trainer_shim.adapters import tf_private as private
from trainer_shim.adapters import tf_store as store
from trainer_shim.adapters.ends import End
from trainer_shim.adapters.tf1_graph import Run
from trainer_shim.adapters.tf1_losses import Losses
from trainer_shim.adapters.tf_replay import Replay
from trainer_shim.agent import Agent

_EXACT = "results of its session are told again, on the CPU or with deterministic operations"
_RACE = "a step reads {} while it updates it, before or after that"
_NUMBER = "_hermes_number"


class Given(NamedTuple):
    """What a session is asked to run."""

    targets: Sequence[Any]
    fetches: Sequence[Any]
    feeds: Mapping[Any, Any]
    options: Any = None
    metadata: Any = None


class Sessions(Replay):
    """The sessions of this process, and the training steps done in them."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent, "session", _EXACT)
        self.losses = Losses()
        self._made: list[weakref.ref[Any]] = []
        self._runs: dict[Any, tuple[Run, Given]] = {}
        self._stale: set[tuple[int, str]] = set()  # variables: the session's number, the name
        self._last: tuple[Run, Given] | None = None
        self._newest = End()
        self._is_changed = False  # since the last boundary something else has written variables
        self._is_there = threading.Event()
        self._original: Callable[..., Any] = lambda: None
        if self._position is None:
            self._is_there.set()

    def hook(self) -> None:
        """Watch what sessions run from here on."""
        owner = private.find(private.SESSION, "BaseSession")
        original = self._original = owner._do_run
        callables, close = owner._make_callable_from_options, owner.close

        @functools.wraps(original)
        def do_run(session: Any, handle: Any, *given: Any) -> Any:
            if self.is_off:
                return original(session, handle, *given)
            if threading.get_ident() != self._thread:
                self._wait(session, Given(*given))
                return original(session, handle, *given)
            if handle is not None:
                self.standing.obstacle("what Session.partial_run runs is not seen")
                return original(session, handle, *given)
            return self._run(session, Given(*given))

        @functools.wraps(callables)
        def make_callable(session: Any, options: Any) -> Any:
            self.standing.obstacle("what Session.make_callable makes is not seen")
            return callables(session, options)

        @functools.wraps(close)
        def closing(session: Any) -> None:
            if not session._closed and threading.get_ident() == self._thread:
                self._leave_boundary(for_good=True)
            close(session)

        owner._do_run, owner.close = do_run, closing
        owner._make_callable_from_options = make_callable
        self.losses.hook()

    # -- runs ------------------------------------------------------------------------------------

    def _run(self, session: Any, given: Given) -> Any:
        """One run of the main thread: as it is, or told from the journal."""
        run = self._look_at(session, given)
        number = self._number(session)
        written = {(number, name) for name in run.written}
        looked_at = {(number, name) for name in run.read | run.updated}
        if written and not run.trains:
            self._leave_boundary()
        is_told = run.trains or (run.restores and bool(written))
        if not is_told and self._stale.isdisjoint(looked_at):
            results = self._original(session, None, *given)
            self._stale -= written
            return results
        self._stale |= written
        if self.journal.is_telling:
            return self._told(session, run, given)
        return self._really(session, run, given)

    def _really(self, session: Any, run: Run, given: Given) -> Any:
        import tensorflow as tf

        if run.race is not None:
            self.standing.lower("exact-if-deterministic", _RACE.format(run.race))
        if run.trains and not self.standing.has_begun:
            self._begin(session.graph)
        for reason in run.obstacles:
            self.standing.obstacle(reason)
        fetches = self.losses.with_loss(run, given.fetches)
        try:
            results = self._original(session, None, *given._replace(fetches=fetches))
        except tf.errors.OpError as error:
            self.journal.raised(tf1_answers.asked(run), type(error).__name__)
            raise
        loss = self.losses.of(run, fetches, results)
        results = results[: len(given.fetches)]
        if not self.standing.is_obstructed:
            self.journal.answered(tf1_answers.asked(run), results)
        if run.trains:
            self._trained(run, given)
            self._boundary(loss)
        return results

    def _told(self, session: Any, run: Run, given: Given) -> Any:
        import tensorflow as tf

        with self.standing.restoring():
            answer = tf1_answers.tell(self.journal, run, given.feeds)
        if run.sources:
            try:
                self._original(session, None, run.sources, [], given.feeds, None, None)
            except tf.errors.OpError as error:
                with self.standing.restoring():
                    tf1_answers.expect(answer, run, error)  # one as of then is told below
        if answer.error:
            self.look_whether_all_is_told()
            raise getattr(tf.errors, answer.error)(None, None, "as before the checkpoint")
        if run.trains:
            self._trained(run, given)
        self.look_whether_all_is_told()
        return answer.values

    def _look_at(self, session: Any, given: Given) -> Run:
        fed = [reference.deref() for reference in given.feeds]
        parts = (given.targets, given.fetches, sorted(fed, key=id))
        key = (id(session), *(tuple(map(id, part)) for part in parts))
        if key not in self._runs:
            try:
                run = self._understand(session.graph, given, fed)
            except Exception as error:  # whatever the framework raises: the program trains on
                run = Run(given.fetches)
                self.standing.obstacle(f"a run cannot be looked into: {error}")
            # Kept with what it is of: an id means something only as long as that lives.
            self._runs[key] = (run, given._replace(feeds={}, options=parts, metadata=session))
        return self._runs[key][0]

    def _understand(self, graph: Any, given: Given, fed: Sequence[Any]) -> Run:
        trainable = tf1_variables.trainable(graph)
        run = tf1_graph.look_at(given.fetches, given.targets, fed, trainable)
        if run.trains:
            run.loss = self.losses.within(run, graph, fed)
            unset = tf1_variables.obstacle(graph, run.written)
            run.obstacles += [] if unset is None else [unset]
        return run

    def _wait(self, session: Any, given: Given) -> None:
        """Let no other thread look at variables that have not got their values back."""
        if not self._is_there.is_set():
            run = tf1_graph.look_at(given.fetches, given.targets, (), {})
            number = self._number(session)
            if not self._stale.isdisjoint((number, name) for name in run.read):
                self._is_there.wait()

    def _number(self, session: Any) -> int:
        numbered: dict[str, int] = vars(session)
        if _NUMBER not in numbered:
            numbered[_NUMBER] = len(self._made)
            self._made.append(weakref.ref(session))
        return numbered[_NUMBER]

    def _begin(self, graph: Any) -> None:
        self.steps = self.agent.page.step
        if self.agent.seed is None and graph.seed is None:
            self.standing.obstacle("neither the program nor the trial has a seed")
        free = tf1_graph.free_order(graph)
        if free is not None:
            self.standing.lower("parameters-exact", free)
        self.standing.begin(self.steps)

    def _trained(self, run: Run, given: Given) -> None:
        self._last = (run, given)
        self._is_changed = False
        self._stepped()

    # -- checkpoints -----------------------------------------------------------------------------

    def _leave_boundary(self, for_good: bool = False) -> None:
        """Variables are about to change, or to go, though no step is done."""
        if self._is_changed or self.agent.end is None or self.journal.is_telling:
            return
        if for_good or self._newest.is_due:
            self._newest.keep(self.steps, self._capture)
        self._is_changed = True

    def _end(self) -> tuple[int, store.Snapshot]:
        self._leave_boundary(for_good=True)
        step, snapshot = self._newest.newest()
        assert isinstance(snapshot, store.Snapshot)
        return step, snapshot

    def _last_step(self) -> tuple[str, int | None]:
        assert self._last is not None
        run, given = self._last
        return run.label, tf1_answers.checksum(given.feeds)

    def _copy_variables(self) -> tuple[list[Any], list[Any]]:
        every: list[Any] = []
        arrays: list[Any] = []
        for number, reference in enumerate(self._made):
            session = reference()
            names = sorted(name for at, name in self._stale if at == number)
            if session is None or session._closed or not names:
                continue
            found = tf1_variables.read(self._original, session, names)
            kinds = [[name, *store.kind_of(array)] for name, array in zip(names, found)]
            every.append([number, kinds])
            arrays += map(store.to_bytes, found)
        return every, arrays

    def _put_back(self, kinds: list[Any], arrays: Iterator[bytes]) -> None:
        for number, of_session in kinds:
            values = {
                name: store.from_bytes((dtype, tuple(shape)), memoryview(next(arrays)))[0]
                for name, dtype, shape in of_session
            }
            session = self._made[number]() if number < len(self._made) else None
            if session is None:
                raise store.OtherProgram(f"there is no session {number}")
            tf1_variables.write(self._original, session, values)
        self._is_there.set()
