"""TensorFlow 1 programs, by tf.compat.v1: sessions that are suspended and resumed.

As for loops around a tf.function, the program runs again from its first line. Runs that
set up are run again; of those that train, or look at what training has changed, the results are
told from a journal, and only the operations that draw data or random numbers are run. At the
boundary of the checkpoint the variables get their values back.
"""

from __future__ import annotations

import functools
import threading
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from trainer_shim.adapters.ends import TrainingEnd
from trainer_shim.adapters.tensorflow import private, store, tf1_graph
from trainer_shim.adapters.tensorflow.journal import Answer, ReplayJournal
from trainer_shim.adapters.tensorflow.replay import ReplayedProgram
from trainer_shim.adapters.tensorflow.tf1_graph import SAVING, SessionRun, look_at
from trainer_shim.agent import Agent
from trainer_shim.saver import OtherProgram

# What a session is asked, as the journal calls it, and what it is told in answer.
#
# Which tensors come along with a run may depend on the clock (a hook that logs every ten
# seconds), and so may a run that saves: a run is known by the variables that it writes, and its
# results by their names. What was not recorded is told as not known: NaN, or an empty string.


def asked(run: SessionRun) -> str:
    """A run, and what it was asked for."""
    return " ".join([run.label, *(tensor.name for tensor in run.fetches)])


def tell(journal: ReplayJournal, run: SessionRun, feeds: Mapping[Any, Any]) -> Answer:
    """The results of a run of before. Raises OtherProgram if another one is due."""
    while journal.is_telling and _label(journal.next_asked) == SAVING != run.label:
        journal.tell(journal.next_asked)
    if not journal.is_telling or (run.label == SAVING != _label(journal.next_asked)):
        return Answer("", [_unknown(tensor) for tensor in run.fetches])
    then = journal.next_asked
    if _label(then) != run.label:
        raise OtherProgram(f"the program ran {asked(run)}, before it ran {then}")
    answer = journal.tell(then)
    if answer.error:
        return answer
    values = dict(zip(then.split(" ")[1:], answer.values))
    found = [values.get(tensor.name) for tensor in run.fetches]
    pairs = zip(found, run.fetches)
    return Answer("", [_unknown(tensor) if one is None else _plain(one) for one, tensor in pairs])


def expect(answer: Answer, run: SessionRun, error: Exception) -> None:
    """Raises OtherProgram if the sources of a run fail now, and the run did not then."""
    if not answer.error:
        reason = str(error).splitlines()[0]
        raise OtherProgram(f"what {asked(run)} draws cannot be drawn again: {reason}")


def checksum(feeds: Mapping[Any, Any]) -> int:
    """Of the data that a run was fed with."""
    whole = 0
    for array in sorted(zlib.crc32(store.to_bytes(store.as_array(one))) for one in feeds.values()):
        whole = zlib.crc32(array.to_bytes(4, "big"), whole)
    return whole


def _label(then: str) -> str:
    return then.split(" ")[0]


def _plain(array: Any) -> Any:
    """As a session returns it: a scalar is none of the arrays."""
    return array[()] if array.shape == () else array


def _unknown(tensor: Any) -> Any:
    import numpy as np
    import tensorflow as tf

    if tensor.dtype.base_dtype == tf.string:
        return b""
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else []
    kind = tensor.dtype.base_dtype.as_numpy_dtype
    empty = np.full([0 if size is None else size for size in shape], 0, kind)
    if tensor.dtype.is_floating:
        empty[...] = float("nan")
    return _plain(empty)


# The loss of a run that trains: the tensor that the graph's gradients are taken of.
#
# A loss that the program fetches is taken from its results. One that it does not is fetched
# along with them; nothing is added to the graph.

_WORDS = ("loss", "cost")


class Losses:
    """What gradients were taken of, in each graph."""

    def __init__(self) -> None:
        self._targets: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    def hook(self) -> None:
        """Watch the gradients that are built from here on."""
        import tensorflow as tf

        module = private.find(private.GRADIENTS, "_GradientsHelper").__globals__
        original = module["_GradientsHelper"]

        @functools.wraps(original)
        def gradients(ys: Any, *args: Any, **kwargs: Any) -> Any:
            for target in tf.nest.flatten(ys):
                if tf.is_tensor(target) and not tf.executing_eagerly():
                    self._targets.setdefault(target.graph, []).append(target)
            return original(ys, *args, **kwargs)

        module["_GradientsHelper"] = gradients

    def within(self, run: SessionRun, graph: Any, fed: Sequence[Any]) -> Any:
        """The loss that this run computes, or could without drawing more; None if there is none."""
        for target in self._targets.get(graph, ()):
            if target.shape.rank in (0, None) and graph.is_fetchable(target):
                alone = look_at([target], [], fed, {})
                if alone.is_fed and not alone.written and set(alone.sources) <= set(run.sources):
                    return target
        for tensor in run.fetches:
            if tensor.shape.rank == 0 and any(word in tensor.name.lower() for word in _WORDS):
                return tensor
        return None

    def with_loss(self, run: SessionRun, fetches: Sequence[Any]) -> Sequence[Any]:
        """What to fetch."""
        wanted = run.loss if run.trains else None
        if wanted is None or any(tensor is wanted for tensor in fetches):
            return fetches
        return [*fetches, wanted]

    def of(self, run: SessionRun, fetches: Sequence[Any], results: Sequence[Any]) -> Any:
        """The loss among the results."""
        for tensor, result in zip(fetches, results):
            if tensor is run.loss:
                return result
        return None


# The variables of a graph, read and set through operations that the graph has.
#
# Nothing is added to a graph: it may be finished already.


def trainable_by_handle(graph: Any) -> dict[str, str]:
    """The variables that are trained, and what initializes each: names of operations."""
    import tensorflow as tf

    listed = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    return {variable.op.name: variable.initializer.name for variable in listed}


def obstacle(graph: Any, names: set[str]) -> str | None:
    """A variable that cannot be read or set, in words."""
    for name in sorted(names):
        op = graph.get_operation_by_name(name)
        if tf1_graph.reader(op) is None or tf1_graph.assigner(op) is None:
            return f"the variable {name} cannot be read and set from outside"
    return None


def read(run: Callable[..., Any], session: Any, names: Sequence[str]) -> list[Any]:
    """Their values, as arrays."""
    readers = [tf1_graph.reader(session.graph.get_operation_by_name(name)) for name in names]
    return [store.as_array(value) for value in run(session, None, [], readers, {}, None, None)]


def write(run: Callable[..., Any], session: Any, values: Mapping[str, Any]) -> None:
    """Set them. Raises OtherProgram for one that is missing, or of another kind."""
    assigners, feeds = [], {}
    for name, value in values.items():
        try:
            op = session.graph.get_operation_by_name(name)
        except KeyError:
            raise OtherProgram(f"there is no variable {name}") from None
        assigner = tf1_graph.assigner(op)
        taken = assigner.inputs[1]
        kind = store.kind_of(value)
        if taken.dtype.base_dtype.name != kind[0] or not taken.shape.is_compatible_with(kind[1]):
            found = f"{taken.dtype.base_dtype.name} of shape {taken.shape}"
            raise OtherProgram(f"{name} is {found}, at the checkpoint {kind[0]} of {kind[1]}")
        assigners.append(assigner)
        feeds[taken.ref()] = value
    run(session, None, assigners, [], feeds, None, None)


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


class Tf1Sessions(ReplayedProgram):
    """The sessions of this process, and the training steps done in them."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent, "session", _EXACT)
        self.losses = Losses()
        self._made: list[weakref.ref[Any]] = []
        self._runs: dict[Any, tuple[SessionRun, Given]] = {}
        self._stale: set[tuple[int, str]] = set()  # variables: the session's number, the name
        self._last: tuple[SessionRun, Given] | None = None
        self._newest = TrainingEnd()
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

    # Runs.

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

    def _really(self, session: Any, run: SessionRun, given: Given) -> Any:
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
            self.journal.raised(asked(run), type(error).__name__)
            raise
        loss = self.losses.of(run, fetches, results)
        results = results[: len(given.fetches)]
        if not self.standing.is_obstructed:
            self.journal.answered(asked(run), results)
        if run.trains:
            self._trained(run, given)
            self._boundary(loss)
        return results

    def _told(self, session: Any, run: SessionRun, given: Given) -> Any:
        import tensorflow as tf

        with self.standing.restoring():
            answer = tell(self.journal, run, given.feeds)
        if run.sources:
            try:
                self._original(session, None, run.sources, [], given.feeds, None, None)
            except tf.errors.OpError as error:
                with self.standing.restoring():
                    expect(answer, run, error)  # one as of then is told below
        if answer.error:
            self.look_whether_all_is_told()
            raise getattr(tf.errors, answer.error)(None, None, "as before the checkpoint")
        if run.trains:
            self._trained(run, given)
        self.look_whether_all_is_told()
        return answer.values

    def _look_at(self, session: Any, given: Given) -> SessionRun:
        fed = [reference.deref() for reference in given.feeds]
        parts = (given.targets, given.fetches, sorted(fed, key=id))
        key = (id(session), *(tuple(map(id, part)) for part in parts))
        if key not in self._runs:
            try:
                run = self._understand(session.graph, given, fed)
            except Exception as error:  # whatever the framework raises: the program trains on
                run = SessionRun(given.fetches)
                self.standing.obstacle(f"a run cannot be looked into: {error}")
            # Kept with what it is of: an id means something only as long as that lives.
            self._runs[key] = (run, given._replace(feeds={}, options=parts, metadata=session))
        return self._runs[key][0]

    def _understand(self, graph: Any, given: Given, fed: Sequence[Any]) -> SessionRun:
        trainable = trainable_by_handle(graph)
        run = tf1_graph.look_at(given.fetches, given.targets, fed, trainable)
        if run.trains:
            run.loss = self.losses.within(run, graph, fed)
            unset = obstacle(graph, run.written)
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

    def _trained(self, run: SessionRun, given: Given) -> None:
        self._last = (run, given)
        self._is_changed = False
        self._stepped()

    # Checkpoints.

    def _leave_boundary(self, for_good: bool = False) -> None:
        """Variables are about to change, or to go, though no step is done."""
        if self._is_changed or self.agent.end is None or self.journal.is_telling:
            return
        if for_good or self._newest.is_due:
            self._newest.keep(self.steps, self._capture)
        self._is_changed = True

    def _end(self) -> tuple[int, store.LoopSnapshot]:
        self._leave_boundary(for_good=True)
        step, snapshot = self._newest.newest()
        assert isinstance(snapshot, store.LoopSnapshot)
        return step, snapshot

    def _last_step(self) -> tuple[str, int | None]:
        assert self._last is not None
        run, given = self._last
        return run.label, checksum(given.feeds)

    def _copy_variables(self) -> tuple[list[Any], list[Any]]:
        every: list[Any] = []
        arrays: list[Any] = []
        for number, reference in enumerate(self._made):
            session = reference()
            names = sorted(name for at, name in self._stale if at == number)
            if session is None or session._closed or not names:
                continue
            found = read(self._original, session, names)
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
                raise OtherProgram(f"there is no session {number}")
            write(self._original, session, values)
        self._is_there.set()
