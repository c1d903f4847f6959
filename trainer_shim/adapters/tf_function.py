"""Training loops of a program's own whose step is a `tf.function`: suspended and resumed.

Rule: a program that seeds itself computes, bit for bit, what it computes without Hermes.
Restored, it runs from its first line: its own code, its data pipelines and its operations run
again, but what its traced functions did to its variables is not computed again. Their results
are told from a journal until the boundary of the checkpoint, where the variables get their
values back. So a replay takes a time linear in the steps, without their computation.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, Callable

from trainer_shim.adapters import tf_graph, tf_optional
from trainer_shim.adapters import tf_private as private
from trainer_shim.adapters import tf_store as store
from trainer_shim.adapters.tf_data import Iterators
from trainer_shim.adapters.tf_journal import LIMIT_BYTES, Journal
from trainer_shim.adapters.tf_plan import Plan
from trainer_shim.adapters.tf_random import Counters
from trainer_shim.adapters.tf_standing import Standing
from trainer_shim.adapters.tf_traces import Traces
from trainer_shim.adapters.tf_variables import Variables
from trainer_shim.agent import Agent, CannotCapture

_NAME = "tensorflow"
_EXACT = "answers of its steps are told again, on the CPU or with deterministic operations"


class Loop:
    """The steps of this process."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.steps = 0
        self.is_off = False
        self.standing = Standing(agent, self._capture, _EXACT)
        self.variables = Variables(self._reached)
        self.iterators = Iterators(self.standing)
        self.traces = Traces(agent.signal, self.variables.peek)
        self.counters = Counters()
        self.journal = Journal()
        self._plans: dict[bytes, Plan] = {}
        self._position: store.State | None = None
        self._arrays: list[bytes] = []
        self._last: tuple[Plan, Sequence[Any]] | None = None
        self._thread = threading.get_ident()
        self._op_error: Any = None
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
        original = owner.call_function

        @functools.wraps(original)
        def call_function(context: Any, name: bytes, inputs: Any, count: int) -> Any:
            if not self.is_on():
                return original(context, name, inputs, count)
            plan = self._plans.get(name)
            if plan is None:
                plan = self._plans[name] = self._planned(context, name)
            if plan.changes != self.variables.changes or plan.is_given_others(inputs):
                self._look_at(plan, inputs)
            if not plan.is_skipped:
                return original(context, name, inputs, count)
            return self._step(plan, inputs, lambda: original(context, name, inputs, count))

        owner.call_function = call_function

    def is_on(self) -> bool:
        """Whether what this thread does is to be seen."""
        return not self.is_off and threading.get_ident() == self._thread

    def _is_tracing_a_step(self) -> bool:
        is_in_a_step = self.traces.is_in_a_step and not self.iterators.are_being_built
        return is_in_a_step and self.is_on()

    # -- functions -------------------------------------------------------------------------------

    def _planned(self, context: Any, name: bytes) -> Plan:
        try:
            definition = tf_graph.study(context, name)
        except Exception as error:  # whatever the framework raises: the program trains on
            definition = tf_graph.Definition()
            self.standing.obstacle(f"a function cannot be looked into: {error}")
        return Plan(name, definition, self.traces.optionals.get(name, {}), self.traces.given(name))

    def _look_at(self, plan: Plan, inputs: Sequence[Any]) -> None:
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
        plan.trains = definition.takes_gradient and any(map(self._is_trainable, plan.written))
        plan.is_skipped = plan.trains or not touched.isdisjoint(self.variables.stale)
        plan.changes = self.variables.changes
        if not plan.is_skipped:
            return
        for operation in (*definition.stateful, *unknown):
            self.standing.obstacle(f"a step runs {operation}, whose state cannot be saved")
        if definition.reads_datasets:
            self.standing.obstacle(f"{plan.label} reads a dataset by itself")
        if definition.opaque - plan.optionals.keys():
            self.standing.obstacle(f"{plan.label} returns neither numbers nor strings")
        if any(count == tf_graph.UNKNOWN for _, count in plan.taken):
            self.standing.obstacle("how many elements a step takes from an iterator is not known")

    def _is_trainable(self, number: int) -> bool:
        variable = self.variables.get(number)
        return variable is not None and bool(variable.trainable)

    def _step(self, plan: Plan, inputs: Sequence[Any], run: Callable[[], Any]) -> Any:
        """A call that is not run again: run it now, or tell what it returned."""
        if self.journal.is_telling:
            outputs = self._told(plan)
        else:
            if plan.trains and not self.standing.has_begun:
                self._begin()
            try:
                outputs = run()
            except self._op_error as error:
                self.journal.raised(plan.label, type(error).__name__)
                self._outdate(plan)
                raise
            if not self.standing.is_obstructed:
                values = tf_optional.take_apart(outputs or (), plan.optionals)
                self.journal.answered(plan.label, values, plan.size(values))
        self._outdate(plan)
        if plan.trains:
            self._stepped(plan, inputs, outputs)
        self.look_whether_all_is_told()
        return outputs

    def _told(self, plan: Plan) -> Any:
        import tensorflow as tf

        with self.standing.restoring():
            answer = self.journal.tell(plan.label)
        for resource, count in plan.taken:
            self.iterators.drain(resource, count)
        if answer.error:
            self._outdate(plan)
            self.look_whether_all_is_told()
            raise getattr(tf.errors, answer.error)(None, None, "as before the checkpoint")
        return tf_optional.put_together(iter(answer.values), plan.optionals) or None

    def _outdate(self, plan: Plan) -> None:
        if plan.outdated != self.variables.changes:
            self.variables.outdate(plan.written)
            plan.outdated = self.variables.changes

    def _stepped(self, plan: Plan, inputs: Sequence[Any], outputs: Any) -> None:
        """A boundary: a training step is done."""
        self.steps += 1
        self._last = (plan, inputs)
        if self._position is not None:
            return
        loss = self.traces.loss_of(plan.name, outputs)
        metrics = {} if loss is None else {self.agent.signal: loss}
        self.agent.record(self.steps, metrics, plan.examples(inputs))
        self._bound_journal()
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
        self.variables.refreshed(variable)
        asked = self.variables.name(variable)
        if self.journal.is_telling:
            with self.standing.restoring():
                self.variables.write(variable, self.journal.tell(asked).values[0])
            self.look_whether_all_is_told()
        elif not self.standing.is_obstructed:
            self.journal.answered(asked, [self.variables.peek(variable)])

    def _bound_journal(self) -> None:
        if self.journal.bytes > LIMIT_BYTES and not self.standing.is_obstructed:
            size = self.journal.bytes >> 20
            self.standing.obstacle(f"what its steps returned takes {size} MiB in each checkpoint")
            self.journal = Journal()

    # -- checkpoints -----------------------------------------------------------------------------

    def _capture(self) -> store.Snapshot:
        try:
            return self._copy()
        except Exception as error:  # whatever the framework raises: this run trains on
            raise CannotCapture(f"{type(error).__name__}: {error}") from error

    def _copy(self) -> store.Snapshot:
        assert self._last is not None
        rows, codes, values = self.journal.copy()
        arrays: list[Any] = [codes, values]
        state: store.State = {"steps": self.steps, "rows": rows, "variables": []}
        for number in sorted(self.variables.stale):
            variable = self.variables.get(number)
            if variable is not None:
                array = store.as_array(self.variables.peek(variable))
                state["variables"].append([number, *store.kind_of(array)])
                arrays.append(store.to_bytes(array))
        state["step"] = self._last[0].label
        state["data"] = self._last[0].checksum(self._last[1]) if self.standing.repeats else None
        return store.Snapshot(_NAME, state, arrays)

    def _begin_again(self, folder: str) -> None:
        saved = store.load(folder, _NAME)
        if saved is None:
            self.is_off = True  # another adapter brings this program back
            return
        self.agent.is_returning = True
        self._position, self._arrays = saved.state, saved.arrays
        codes, values = self._arrays[:2]
        self.journal = Journal(self._position["rows"], codes, values)
        self.agent.hello(private.framework())

    def look_whether_all_is_told(self) -> None:
        """Go on by itself from where the checkpoint was taken, if that is here."""
        if self._position is not None and not self.journal.is_telling:
            with self.standing.restoring():
                self._go_on(self._position)

    def _go_on(self, position: store.State) -> None:
        assert self._last is not None
        if (self.steps, self._last[0].label) != (position["steps"], position["step"]):
            now, then = (self.steps, self._last[0].label), (position["steps"], position["step"])
            raise store.OtherProgram(f"this is step {now}, the checkpoint is of {then}")
        if position["data"] is not None and position["data"] != self._last[0].checksum(
            self._last[1]
        ):
            raise store.OtherProgram("the data of the last step differ from those before")
        arrays = iter(self._arrays[2:])
        for number, name, shape in position["variables"]:
            value, _ = store.from_bytes((name, tuple(shape)), memoryview(next(arrays)))
            variable = self.variables.get(number)
            if variable is not None:
                self.variables.write(variable, value)
        self._position, self._arrays = None, []
        self.agent.is_returning = False
        self.agent.page.step = self.steps
        self.agent.restored()
        self.standing.begin(self.steps)


def _is_seeded() -> bool:
    """Whether the program has given TensorFlow a seed."""
    return private.find(private.CONTEXT, "global_seed")() is not None
