"""Training loops of a program's own whose step is a `tf.function`: suspended and resumed.

A program that seeds itself computes, bit for bit, what it computes without Hermes. When it is
restored, it runs from its first line: its own code, its data pipelines and its operations run
again, but what its traced functions did to its variables is not computed again. Their results are
read from a journal until the boundary of the checkpoint, where the variables get their values back.
So a replay takes time in proportion to the steps, but without their computation. The boundary is
always that of the last training step, even if the program has ended, since more steps would go on
from there.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from trainer_shim.adapters.tensorflow import function_graph, loadable, private, store
from trainer_shim.adapters.tensorflow.data import DatasetIterators
from trainer_shim.adapters.tensorflow.fidelity import LoopFidelity
from trainer_shim.adapters.tensorflow.function_graph import Definition
from trainer_shim.adapters.tensorflow.journal import (
    LIMIT_BYTES,
    STEP,
    Answer,
    ReplayJournal,
    Scalars,
)
from trainer_shim.adapters.tensorflow.random import RandomPositions
from trainer_shim.adapters.tensorflow.store import Kind
from trainer_shim.adapters.tensorflow.traces import Traces
from trainer_shim.adapters.tensorflow.variables import Variables
from trainer_shim.agent import Agent, CannotCapture, CannotCaptureNow, refused
from trainer_shim.checkpoint_dir import Builder
from trainer_shim.saver import OtherProgram

# A traced function as the loop that calls it needs to know it.
#
# What is looked up here costs a step as little as it can; it is worked out once, and again
# only when the function is given other resources, or a variable became stale or fresh.


class TracedPlan:
    """What is known of one traced function."""

    def __init__(
        self,
        name: bytes,
        definition: Definition,
        optionals: dict[int, Any],
        given: int | None,
        scalars: tuple[Kind, ...] | None,
    ) -> None:
        self.name = name
        self.optionals = optionals
        self.label = _label(name)
        self._scalars = scalars
        self.definition = definition
        self.trains = False
        self.is_known_as(False)
        self.is_skipped = False  # run again, the program is only told what it returned
        self.written: set[int] = set()  # numbers of variables
        self.taken: list[tuple[Any, int]] = []  # iterators, and how many elements of each
        self.changes = -1  # of the variables, when this was looked at last
        self.ran = 0  # how many steps were done when it was called last
        self.outdated = -1  # and when what it writes was last said to be stale
        # Resources that may be others the next time: what a trace captures stays.
        every = definition.resources
        self.given = [one for one in every if given is None or one < given]
        self._given = given
        self._last: list[Any] = []

    def is_known_as(self, trains: bool) -> None:
        """It is a training step, or only looks at what those have come to."""
        self.trains = trains
        self.asked = STEP + self.label if trains else self.label
        # What an answer of its is journaled as, and its bytes, where that is always the same.
        self.answer: str | Scalars = self.asked
        if self._scalars is not None:
            self.answer = Scalars(self.asked, self._scalars, store.size_of(self._scalars))

    def tell(self, journal: ReplayJournal) -> Answer | None:
        """What it returned before; None for a look that was not taken then.

        Raises OtherProgram.
        """
        return journal.tell_step(self.asked) if self.trains else journal.tell_look(self.asked)

    def is_given_others(self, inputs: Sequence[Any]) -> bool:
        """Whether these are other resources than the last time."""
        return any(inputs[at] is not one for at, one in zip(self.given, self._last))

    def remember(self, inputs: Sequence[Any]) -> None:
        """These are the resources that were looked at."""
        self._last = [inputs[at] for at in self.given]

    def size(self, values: Sequence[Any]) -> int:
        """About how many bytes it returned."""
        return sum(value.shape.num_elements() * value.dtype.size for value in values)

    def examples(self, inputs: Sequence[Any]) -> int:
        """The size of the batch, as far as the step is given one."""
        # Not `shape`, whose objects take as long to make as all else here.
        shape: Sequence[int] = inputs[0]._shape_tuple() if inputs else ()
        return shape[0] if shape else 0

    def part(self, inputs: Sequence[Any]) -> int:
        """This process's part of a batch: how many examples all arrays have that the step is given;
        0 if they differ in that, or there are none, as where it takes its data from an iterator."""
        resources = set(self.definition.resources)
        given = enumerate(inputs[: self._given])
        shapes = [value._shape_tuple() for at, value in given if at not in resources]
        sizes = {shape[0] for shape in shapes if shape}
        return sizes.pop() if len(sizes) == 1 else 0

    def checksum(self, inputs: Sequence[Any]) -> int:
        """Of the data that the function was given."""
        resources, whole = set(self.definition.resources), 0
        for position, value in enumerate(inputs):
            if position not in resources and value.dtype.is_numpy_compatible:
                whole = zlib.crc32(store.to_bytes(store.as_array(value)), whole)
        return whole


def _label(name: bytes) -> str:
    """A function's name without what differs from one process to the next."""
    return re.sub(r"^__(inference|forward|backward)_|_\d+$", "", name.decode())


def check_batch(then: tuple[int, int], now: tuple[int, int]) -> None:
    """Raises OtherProgram if so many processes, with such a part each, no longer take as many
    examples to a step together as they did, or nobody knows."""
    before, after = then[0] * then[1], now[0] * now[1]
    if before != after or not before:
        raise OtherProgram(
            f"a batch of {after} in {now[0]} processes, it was {before} in {then[0]}: "
            f"divide the batch by WORLD_SIZE"
        )


# Variables that no step has written for so many steps may go, when another function comes.
_HELD_STEPS = 1000
_OFF_BEAT = "when the program looks at its variables differs from run to run"
_EXACT = "answers of its steps are told again, on the CPU or with deterministic operations"


class Loop:
    """The steps of this process, and the way back to a checkpoint of them."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.steps = 0
        self.is_off = False
        self.standing = LoopFidelity(agent, self._capture, self._end, _EXACT)
        self.journal = ReplayJournal()
        self._known = 0  # answers that the program had at the last boundary
        self._position: store.State | None = None
        self._arrays: list[bytes] = []
        self._thread = threading.get_ident()
        self.variables = Variables(self._reached)
        self.iterators = DatasetIterators(self.standing)
        self.traces = Traces(agent.signal, self.variables.peek)
        self.counters = RandomPositions()
        self._plans: dict[bytes, TracedPlan] = {}
        self._held: dict[TracedPlan, list[Any]] = {}  # variables that live to the program's end
        self._last: tuple[TracedPlan, Sequence[Any]] | None = None
        self._op_error: Any = None
        self._named: dict[str, Any] = {}  # what holds the trained variables
        self._call: Any = None  # TensorFlow's own, of a context's function
        self._world = int(os.environ.get("WORLD_SIZE", "1"))
        self._are_replicas = agent.several  # all that is trained, as far as is known
        self._part = 0  # the largest of a batch that a step was given, while all are replicas
        if agent.restore is not None:
            with self.standing.restoring():
                self._begin_again(agent.restore)

    def hook(self) -> None:
        """Watch what the program does from here on."""
        import tensorflow as tf

        self._op_error = tf.errors.OpError
        self.variables.hook()
        self.iterators.hook(self.is_on)
        self.traces.hook(self.is_on, self._eager_gradient)
        self.counters.hook(self._is_tracing_a_step)
        owner = private.find(private.CONTEXT, "Context")
        self._call = original = owner.call_function
        # What every call meets is written out here and below: a step may take microseconds.
        plans, variables = self._plans, self.variables

        @functools.wraps(original)
        def call_function(context: Any, name: bytes, inputs: Any, count: int) -> Any:
            if self.is_off or threading.get_ident() != self._thread:
                return original(context, name, inputs, count)
            plan = plans.get(name)
            if plan is None:
                plan = plans[name] = self._planned(context, name)
            others = plan.given and plan.is_given_others(inputs)
            if others or plan.changes != variables.changes:
                self._look_at(plan, inputs)
            if not plan.is_skipped:
                return original(context, name, inputs, count)
            return self._step(plan, context, inputs, count)

        owner.call_function = call_function

    def is_on(self) -> bool:
        """Whether what this thread does is to be seen."""
        return not self.is_off and threading.get_ident() == self._thread

    def _is_tracing_a_step(self) -> bool:
        is_in_a_step = self.traces.is_in_a_step and not self.iterators.are_being_built
        return is_in_a_step and self.is_on()

    # Functions.

    def _planned(self, context: Any, name: bytes) -> TracedPlan:
        try:
            definition = function_graph.study(context, name)
        except Exception as error:  # whatever the framework raises: the program trains on
            definition = function_graph.Definition()
            self.standing.obstacle(f"a function cannot be looked into: {error}")
        traces = self.traces
        optionals, scalars = traces.optionals.get(name, {}), traces.scalars.get(name)
        return TracedPlan(name, definition, optionals, traces.given(name), scalars)

    def _look_at(self, plan: TracedPlan, inputs: Sequence[Any]) -> None:
        """Find out which variables are meant, and whether the call will be run again."""
        definition = plan.definition
        plan.remember(inputs)
        plan.written.clear()
        plan.taken.clear()
        touched, unknown = set(), []
        for position in definition.resources:
            resource = inputs[position]
            number = self.variables.number(resource)
            if number is not None:
                touched.add(number)
                if position in definition.written:
                    plan.written.add(number)
            elif position in definition.written:
                unknown.append(definition.writers[position])
            elif position in definition.iterated and self.iterators.knows(resource):
                plan.taken.append((resource, definition.iterated[position]))
        trains = definition.takes_gradient and any(map(self._is_trainable, plan.written))
        if trains != plan.trains:
            plan.is_known_as(trains)
            if trains:
                self._named.update(self._named_objects(plan.written))
                self._tell_replicas(plan, inputs)
                self.agent.result = self._result
        plan.is_skipped = plan.trains or not touched.isdisjoint(self.variables.stale)
        plan.changes = self.variables.changes
        if not plan.is_skipped:
            return
        self._hold(plan)
        for operation in (*definition.stateful, *unknown):
            self.standing.obstacle(f"a step runs {operation}, whose state cannot be saved")
        if definition.reads_datasets:
            self.standing.obstacle(f"{plan.label} reads a dataset by itself")
        if definition.opaque - plan.optionals.keys():
            self.standing.obstacle(f"{plan.label} returns neither numbers nor strings")
        if any(count == function_graph.UNKNOWN for _, count in plan.taken):
            self.standing.obstacle("how many elements a step takes from an iterator is not known")

    def _named_objects(self, written: set[int]) -> dict[str, Any]:
        caller = sys._getframe()
        return loadable.named_objects(caller, lambda one: self.variables.holds(one, written))

    def _tell_replicas(self, plan: TracedPlan, inputs: Sequence[Any]) -> None:
        """Say whether the checkpoints are of any number of processes, by all that was trained."""
        # What exchanges values between the processes writes only a token that keeps their order.
        writers = plan.definition.writers.items()
        written = [inputs[at] for at, one in writers if not one.startswith("Collective")]
        numbers = plan.written.intersection(map(self.variables.number, written))
        trained = [self.variables.get(number) for number in numbers if self._is_trainable(number)]
        self._are_replicas = self._are_replicas and all(map(self._is_replica, trained))
        self._measure_part(plan, inputs)

    def _measure_part(self, plan: TracedPlan, inputs: Sequence[Any]) -> None:
        """Of a step whose batch cannot be told, another number of processes could not be either."""
        part = plan.part(inputs) if self._are_replicas else 0
        self._part = max(self._part, part)
        self._are_replicas = part > 0
        self.standing.replicates(self._are_replicas)

    def _is_replica(self, variable: Any) -> bool:
        """Whether TensorFlow keeps a variable the same in each of the processes."""
        import tensorflow as tf

        strategy = vars(variable).get("_distribute_strategy")
        is_of_all = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        return is_of_all and strategy.num_replicas_in_sync == self._world

    def _hold(self, plan: TracedPlan) -> None:
        """Keep what it writes, though the function of the program that made it may return."""
        if plan not in self._held:
            recent = self.steps - _HELD_STEPS
            self._held = {one: held for one, held in self._held.items() if one.ran >= recent}
        self._held[plan] = [self.variables.get(number) for number in plan.written]

    def _is_trainable(self, number: int) -> bool:
        variable = self.variables.get(number)
        return variable is not None and bool(variable.trainable)

    def _step(self, plan: TracedPlan, context: Any, inputs: Sequence[Any], count: int) -> Any:
        """A call that is not run again: run it now, or tell what it returned."""
        plan.ran = self.steps
        if self.journal.is_telling:
            with self.standing.restoring():
                answer = plan.tell(self.journal)
            if answer is None:
                return self._look_in_vain(plan, context, inputs, count)
            outputs = self._told(plan, answer)
        else:
            if not plan.trains:
                for number in plan.written:
                    self.variables.keep(number)
            elif not self.standing.has_begun:
                self._begin()
            try:
                outputs = self._call(context, plan.name, inputs, count)
            except self._op_error as error:
                self.journal.raised(plan.asked, type(error).__name__)
                self._outdate(plan)
                raise
            if not self.standing.is_obstructed:
                self._journal(plan, outputs or ())
        if plan.outdated != self.variables.changes:
            self._outdate(plan)
        if plan.trains:
            self._trained(plan, inputs, outputs)
        if self._position is not None:
            self.look_whether_all_is_told()
        return outputs

    def _journal(self, plan: TracedPlan, values: Sequence[Any]) -> None:
        if plan.answer is not plan.asked:
            self.journal.answered(plan.answer, values)
            return
        if plan.optionals:
            values = function_graph.take_apart(values, plan.optionals)
        self.journal.answered(plan.asked, values, plan.size(values))

    def _look_in_vain(
        self, plan: TracedPlan, context: Any, inputs: Sequence[Any], count: int
    ) -> Any:
        """A call that there was not before, on the way back: it must change nothing."""
        found = (self.variables.get(number) for number in plan.written)
        values = [
            (one, store.as_array(self.variables.peek(one))) for one in found if one is not None
        ]
        try:
            return self._call(context, plan.name, inputs, count)
        finally:
            for variable, value in values:
                self.variables.write(variable, value)

    def _told(self, plan: TracedPlan, answer: Answer) -> Any:
        import tensorflow as tf

        for resource, count in plan.taken:
            self.iterators.drain(resource, count)
        if answer.error:
            self._outdate(plan)
            self.look_whether_all_is_told()
            raise getattr(tf.errors, answer.error)(None, None, "as before the checkpoint")
        return function_graph.put_together(iter(answer.values), plan.optionals) or None

    def _outdate(self, plan: TracedPlan) -> None:
        self.variables.outdate(plan.written)
        plan.outdated = self.variables.changes

    def _trained(self, plan: TracedPlan, inputs: Sequence[Any], outputs: Any) -> None:
        self._last = (plan, inputs)
        self.steps += 1
        if self._position is not None:
            self.agent.passes_training()
        self._known = self.journal.count
        self.variables.boundary()
        if self._are_replicas:
            self._measure_part(plan, inputs)
        if self._position is None:
            self._boundary(self.traces.loss_of(plan.name, outputs), plan.examples(inputs))

    def _boundary(self, loss: Any, examples: int = 0) -> None:
        """Between two steps, not on the way back."""
        if loss is None:
            self.agent.record(self.steps, {}, examples)
        else:
            self.agent.record_signal(self.steps, loss, examples)
        if self.journal.bytes > LIMIT_BYTES and not self.standing.is_obstructed:
            size = self.journal.bytes >> 20
            self.standing.obstacle(f"what its steps returned takes {size} MiB in each checkpoint")
            self.journal = ReplayJournal()
        self.agent.boundary(self.steps)

    def _begin(self) -> None:
        self.steps = self.agent.page.step
        if self.agent.seed is None and not _is_seeded():
            self.standing.obstacle("neither the program nor the trial has a seed")
        self.standing.begin(self.steps)

    def _eager_gradient(self, target: Any, sources: Any) -> None:
        """A step whose gradient is taken outside of a traced function."""
        import tensorflow as tf

        if not any(isinstance(one, tf.Variable) or hasattr(one, "assign_sub")
                   for one in tf.nest.flatten(sources)):  # fmt: skip
            return
        self.standing.obstacle(
            "gradients are taken outside of a tf.function: what a step computes is not seen"
        )
        if not self.standing.has_begun:
            self._begin()
        self.steps += 1
        scalar = tf.is_tensor(target) and target.shape.rank == 0
        self.agent.record(self.steps, {self.agent.signal: target} if scalar else {})
        self.agent.boundary(self.steps)

    def _reached(self, variable: Any) -> None:
        """The program looks at a variable that a step has written."""
        if self.is_off:
            return
        if not self.journal.is_telling:
            self.variables.keep(self.variables.number_of(variable))
        self.variables.refreshed(variable)
        asked = self.variables.name(variable)
        if self.journal.is_telling:
            # A look that was not taken then sees what was told last.
            answer = self.journal.tell_look(asked)
            if answer is not None:
                with self.standing.restoring():
                    self.variables.write(variable, answer.values[0])
            self.look_whether_all_is_told()
        elif not self.standing.is_obstructed:
            self.journal.answered(asked, [self.variables.peek(variable)])

    # Checkpoints.

    def _capture(self) -> store.LoopSnapshot:
        try:
            label, data = self._last_step()
            kinds, arrays = self._copy_variables()
            rows, codes, values = self.journal.copy(self._known)
        except CannotCapture:
            raise
        except Exception as error:  # whatever the framework raises: this run trains on
            found = refused(error)
            if not isinstance(found, CannotCaptureNow):
                self.standing.obstacle(str(found))
            raise found from error
        state = {"steps": self.steps, "step": label, "data": data}
        state |= {"world": self._world, "examples": self._part, "rows": rows, "variables": kinds}
        return store.LoopSnapshot(state, [codes, values, *arrays], beside=2)

    def _end(self) -> tuple[int, store.LoopSnapshot]:
        snapshot = self._capture()
        self.is_off = True  # the program is over: what saves it is none of its own
        if self._named:
            snapshot.state["objects"] = [*self._named]
            snapshot.loadable = self._write_loadable
        return self.steps, snapshot

    def _result(self) -> store.LoopSnapshot | None:
        self.is_off = True
        state = {"objects": [*self._named]}
        if not self._named:
            return None
        return store.LoopSnapshot(state, loadable=self._write_loadable)

    def _write_loadable(self, builder: Builder) -> None:
        why = None
        try:
            loadable.write(self._named, builder)
        except Exception as error:  # of objects that TensorFlow cannot save; the training is well
            why = f"{type(error).__name__}: {error}".splitlines()[0]
        self.agent.lacks(f"there is no {loadable.NAME}", why)

    def _last_step(self) -> tuple[str, int | None]:
        assert self._last is not None
        plan, inputs = self._last
        repeats = self.standing.repeats and not self._is_elsewhere
        return plan.label, plan.checksum(inputs) if repeats else None

    def _begin_again(self, folder: str) -> None:
        saved = store.load(folder)
        if saved is None:
            self.is_off = True  # another adapter brings this program back
            return
        self.agent.is_returning = True
        self._position, self._arrays = saved.state, saved.arrays
        self.journal = ReplayJournal(self._position["rows"], *self._arrays[:2])
        self.agent.hello(private.framework())

    def look_whether_all_is_told(self) -> None:
        """Go on by itself from where the checkpoint was taken, if that is here."""
        if self._position is not None and not self.journal.is_telling:
            with self.standing.restoring():
                self._go_on(self._position)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether it is run again in another number of processes, each with another part of the
        data."""
        then = (self._position or {}).get("world", self._world)  # earlier ones do not say
        return bool(then != self._world)

    def _go_on(self, position: store.State) -> None:
        if self._is_elsewhere:
            now = self._part if self._are_replicas else 0
            check_batch((position["world"], position["examples"]), (self._world, now))
        label, data = self._last_step()
        here, then = (self.steps, label), (position["steps"], position["step"])
        if here != then:
            raise OtherProgram(f"this is step {here}, the checkpoint is of {then}")
        if None not in (data, position["data"]) and data != position["data"]:
            raise OtherProgram("the data of the last step differ from those before")
        self._put_back(position["variables"], iter(self._arrays[2:]))
        self._position, self._arrays = None, []
        self.agent.page.step = self.steps
        self.agent.restored()
        self.standing.begin(self.steps)

    def _copy_variables(self) -> tuple[list[Any], list[Any]]:
        kinds, arrays = [], []
        for number, value in self.variables.at_boundary().items():
            array = store.as_array(value)
            kinds.append([number, *store.kind_of(array)])
            arrays.append(store.to_bytes(array))
        return kinds, arrays

    def _put_back(self, kinds: list[Any], arrays: Iterator[bytes]) -> None:
        numbers: set[int] = set()
        for number, name, shape in kinds:
            value, _ = store.from_bytes((name, tuple(shape)), memoryview(next(arrays)))
            variable = self.variables.get(number)
            if variable is not None:
                self.variables.write(variable, value)
                numbers.add(number)
        # Looks at other moments than then may have left others stale.
        self.variables.outdate(numbers)
        self.variables.boundary()
        if self.journal.is_off_beat:
            self.standing.lower("exact-if-deterministic", _OFF_BEAT)


def _is_seeded() -> bool:
    """Whether the program has given TensorFlow a seed."""
    return private.find(private.CONTEXT, "global_seed")() is not None
