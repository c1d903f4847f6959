"""PyTorch: boundaries, losses and checkpoints of training loops, script unchanged.

Rule: a program that seeds itself computes, bit for bit, what it computes without Hermes.
Restored, it runs from its first line; passes over its loaders that had ended are empty, and
the one under way goes on after its last batch with the parameters, optimizers, schedulers and
random numbers of then. What a loop keeps in Python objects is not known to be complete, so a
resume is never called exact; what cannot be rebuilt at all is found out, and only parks.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Callable, Protocol

from trainer_shim.adapters import changes as changed
from trainer_shim.adapters import torch_generators
from trainer_shim.adapters import torch_private as private
from trainer_shim.adapters import torch_statement as statements
from trainer_shim.adapters import torch_whole as whole
from trainer_shim.adapters.ends import End
from trainer_shim.adapters.torch_beside import Beside
from trainer_shim.adapters.torch_between import Between
from trainer_shim.adapters.torch_iteration import Iteration
from trainer_shim.adapters.torch_left import Left
from trainer_shim.adapters.torch_loaders import begin_again
from trainer_shim.adapters.torch_loop import LEFT_UNSEEN, Ended, Pass, expected
from trainer_shim.adapters.torch_objects import ALL, Objects
from trainer_shim.adapters.torch_program import place
from trainer_shim.adapters.torch_standing import Standing, refusing
from trainer_shim.adapters.torch_state import Snapshot, State, load
from trainer_shim.adapters.torch_unpack import Unpacker
from trainer_shim.agent import Agent, CannotCapture

_MOST_PASSES = 10_000
_MADE_INSIDE = "a model, optimizer or scheduler was made inside of a loop over a DataLoader"
_AFTER_RUN = "the program trains on by a loop of its own, after a framework's"

_session: Session | None = None


def session() -> Session | None:
    """That of this process, if PyTorch is hooked."""
    return _session


def open_session(agent: Agent) -> Session:
    """Begin that of this process."""
    global _session
    _session = Session(agent)
    return _session


class OtherLoop(Protocol):
    """A framework's own training loop under way: see `torch_run`."""

    stepped: bool

    @property
    def has_begun(self) -> bool:
        """Whether it has asked for its first batch."""

    def open(self, loader: Any, make: Any) -> Any:
        """An iterator over `loader`, where `make` would make one."""

    def examples(self) -> int:
        """How many examples the latest iteration trained on."""

    def copy(self, with_gradients: bool) -> Snapshot:
        """The whole program, at a boundary. Raises CannotCapture."""


class Session:
    """The passes over loaders of this process: those that have ended, and those under way."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.objects = Objects()
        self.iteration = Iteration()
        self.next_batch: Any = None
        self.other_way: str | None = None
        self.steps = 0
        self.is_returning = False
        self.run: OtherLoop | None = None  # a framework trains, by a loop of its own
        self.in_fit: Callable[[str], None] | None = None  # Keras trains; is told why it only parks
        self.ran = False
        self._records: list[State] = []
        self._inside: list[Pass] = []
        self._is_opening = False
        self._end = End()
        self.standing = Standing(agent, self._capture, self._end.newest)
        self.obstacle = self.standing.obstacle
        self.left = Left(self.objects.large)
        self.between = Between(self.objects, self.obstacle)
        self.beside = Beside(self.objects, lambda one: self.next_batch(one), self.obstacle)
        self.objects.beside = self.beside
        self._at: tuple[Pass, types.FrameType] | None = None
        self._past: State = {"records": [], "parameters": {}}
        if agent.restore is not None:
            with self.restoring():
                past = load(agent.restore)
                if past is not None:
                    self._past = self.left.load(past)
                    self.between.load(self._past["records"])
                    self.is_returning = agent.is_returning = True

    @property
    def is_aside(self) -> bool:
        """Whether another adapter or the program itself speaks for it, or it is a child that nobody
        asked."""
        agent = self.agent
        return agent.is_aside or self.in_fit is not None or agent.framework == "explicit"

    # -- passes

    def is_in_a_pass(self) -> bool:
        """Whether the body of a loop over a loader is run now."""
        return bool(self._inside)

    def is_left_out(self) -> bool:
        """Whether what is done now is left out when the program is run again."""
        return self.is_in_a_pass() or self._is_opening or bool(self.run and self.run.has_begun)

    def open(self, loader: Any, make: Any, frame: types.FrameType) -> Any:
        """An iterator over `loader`, where `make` would make one."""
        since = statements.collections()
        if self.is_aside:
            return make(loader)
        if self.run is not None:
            return self.run.open(loader, make)
        whole.note(frame, self.objects, is_outermost=not self._inside)
        self.between.begins()
        number, past = len(self._records), None
        site = f"{place(frame)} over loader {self.objects.number(loader)}"
        if self.is_returning and self.past_run is None:
            with self.restoring():
                past = expected(self._past["records"], number, site)
            if past["kind"] == "ended":
                self.agent.passes_training()
                self._records.append(past)
                return Ended(self, loader, number, past)
        if past is not None and past["kind"] == "under way":
            begin_again(loader, past["before"])
        else:
            past = None
        opened = Pass(self, loader, number, past, since)
        self._is_opening = True
        try:
            iterator = make(loader)  # workers are given their first batches here
        finally:
            self._is_opening = False
        opened.watch(iterator)
        self.beside.add(iterator, opened)
        self._records.append({"kind": "other", "site": site})
        return iterator

    @property
    def past_run(self) -> State | None:
        """Where a framework's loop was, if it is that which goes on from the checkpoint."""
        run: State | None = self._past.get("run")
        return run

    def enter(self, opened: Pass, where: types.FrameType) -> None:
        """A `for` statement begins with this pass, inside of those it is in."""
        while self._inside and not self._inside[-1].encloses(where):
            self.over(self._inside[-1], LEFT_UNSEEN)
        opened.made_before = self.objects.made
        self._inside.append(opened)

    def is_inside(self, asking: Pass) -> bool:
        """Whether this pass is under way; those inside of it are over and forgotten then."""
        if asking not in self._inside:
            return False
        del self._inside[self._inside.index(asking) + 1 :]
        del self._records[asking.number + 1 :]
        return True

    def is_last(self, number: int) -> bool:
        """Whether the checkpoint was taken in this pass, the last one there was."""
        return number == len(self._past["records"]) - 1

    def over(self, ended: Pass, left: State | str) -> None:
        """A pass is over; with the reason where it is not known what it left."""
        self._inside.remove(ended)
        if isinstance(left, str):
            self.obstacle(left)
            return
        site = self._records[ended.number]["site"]
        self.left.keep(site, left["variables"])
        record = self._records[ended.number] = {"kind": "ended", "site": site, "left": left}
        if self._inside:
            return
        self.between.over(record, ended.trained)
        if len(self._records) > _MOST_PASSES:
            self.obstacle(f"more than {_MOST_PASSES} passes would have to be gone over again")
        if ended.trained:
            self.agent.loop(False)
        if self.objects.made_since(ended.made_before):
            self.obstacle(_MADE_INSIDE)

    # -- what the program does

    def made(self, kind: str, one: Any) -> None:
        """The program has made a module, optimizer, scheduler, scaler or loader."""
        import torch

        self.objects.add(kind, one)
        if kind == "loader" and self.is_left_out():
            self.objects.inside.add(one)
        if kind == "optimizer" and not (self.agent.trains or self.is_left_out()):
            self.agent.hello(private.framework())
        if kind == "module" and isinstance(one, torch.nn.modules.lazy.LazyModuleMixin):
            self.obstacle(f"{type(one).__name__} has no parameters before its first batch")

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has changed its parameters (or a GradScaler has skipped that)."""
        if self.in_fit is not None:
            self.in_fit("an optimizer of PyTorch's own steps in Keras' fit")
        if self.is_aside or self.is_returning:
            return
        agent, run = self.agent, self.run
        current = self._inside[-1] if self._inside and run is None else None
        self.iteration.stepped(optimizer)
        if run is None and self.ran:
            self.obstacle(_AFTER_RUN)
        elif run is None and current is None:
            self.obstacle(self.other_way or "training is not in a for statement over a DataLoader")
        for one in self._inside:
            if one.obstacle is not None:
                self.obstacle(one.obstacle)
        if not (current and current.trained) and not agent.page.looping:
            self.standing.look()
            agent.page.step = self.steps
            agent.loop(True)
        if run is not None:
            run.stepped = True
        elif current is not None:
            current.stepped = current.trained = True
        elif self.iteration.is_counted_by(optimizer):
            self.count(None)
            agent.boundary(self.steps)

    # -- boundaries

    def count(self, current: Pass | OtherLoop | None) -> None:
        """An iteration is done."""
        self.steps += 1
        if self.beside.new:
            self.beside.look()
        examples = 0 if current is None else current.examples()
        self.iteration.tell(self.agent, self.steps, examples)

    def boundary(self, current: Pass, frame: types.FrameType) -> None:
        """Between two iterations of a pass."""
        self.count(current)
        self._at = (current, frame)
        try:
            self.agent.boundary(self.steps)
        finally:
            self._at = None
        self.iteration.done()

    def may_end(self, current: Pass, frame: types.FrameType) -> None:
        """The program trains no further than this, unless it begins another pass."""
        self._at = (current, frame)
        try:
            self.keep_end(lambda: self._copy(self.iteration.leaves_gradients))
        finally:
            self._at = None

    def keep_end(self, take: Callable[[], Snapshot]) -> None:
        """As far as is known the program has come to its end: keep what `take` copies."""
        if self.agent.end is not None and self._end.is_due:
            self._end.keep(self.steps, take)

    def _capture(self) -> Snapshot:
        gradients = self.iteration.needs_gradients
        return self._copy(gradients) if self.run is None else self.run.copy(gradients)

    def _copy(self, with_gradients: bool) -> Snapshot:
        if self._at is None:
            raise CannotCapture("the program is not between two batches of a DataLoader")
        _, frame = self._at
        if any(self.objects.made_since(one.made_before) for one in self._inside[:1]):
            raise CannotCapture(_MADE_INSIDE)
        lost = torch_generators.lost(frame)
        if lost is not None:
            raise whole.CannotEver(lost)
        records = list(self._records)
        for one in self._inside:
            site = records[one.number]["site"]
            under_way = {"taken": one.taken, "before": one.before, "loaders": one.loaders}
            records[one.number] = {"kind": "under way", "site": site, **under_way}
        return self.snapshot(
            frame,
            lambda found, _: {**self.left.dump(records), "objects": found.copy(with_gradients)},
        )

    def snapshot(
        self, frame: types.FrameType, more: Callable[..., State], until: int = ALL
    ) -> Snapshot:
        """The whole program, with what `more` copies; see `torch_whole.copy`."""
        said = {"steps": self.steps, "parameters": self.agent.parameters}
        return whole.copy(frame, self.objects, lambda *given: {**said, **more(*given)}, until)

    # -- restoring

    def go_on(self, frame: types.FrameType, put: whole.Put | None = None, until: int = ALL) -> None:
        """The loop under way has been moved to its batch: put everything back."""
        past = self._past
        made = [dict(group) for group in self._groups(until)]
        whole.put_back(frame, self.objects, past, self.unpacker, put, until)
        self._put_into_effect(made, until)
        self.steps = self.agent.page.step = past["steps"]
        self.is_returning = False
        self._past = {"records": [], "parameters": {}}
        self.standing.look()
        self.agent.restored()
        self.agent.loop(True)

    def _groups(self, until: int) -> Iterator[dict[str, Any]]:
        for optimizer in self.objects.alive("optimizer", until=until):
            yield from optimizer.param_groups

    def _put_into_effect(self, made: list[dict[str, Any]], until: int) -> None:
        """Have the optimizers train with what the program was given anew since the checkpoint,
        where they were `made` with it."""
        for change in list(self.agent.changes.values()):
            is_set = False
            for group, values in zip(self._groups(until), made):
                plain = {name: value for name, value in values.items() if name != "params"}
                for name in changed.found(change, plain, None):
                    group[name] = values[name]
                    is_set = True
            if is_set:
                del self.agent.changes[change.name]

    def unpacker(self, tensors: list[Any]) -> Unpacker:
        """What puts values of the checkpoint back, less the parameters that were changed since."""
        then, now = self._past["parameters"], self.agent.parameters
        raised = [(then[name], now[name]) for name in then if name in now]
        others = [(one, other) for one, other in raised if one != other]
        return Unpacker(tensors, others, self.beside)

    def restoring(self) -> AbstractContextManager[None]:
        """End the process if the checkpoint turns out not to be this program's."""
        return refusing(self.agent)
