"""PyTorch: boundaries, losses and checkpoints of training loops, with the script unchanged.

A program that seeds itself computes, bit for bit, what it computes without Hermes. When it is
restored, it runs from its first line. Passes over its loaders that had ended are empty, and the one
under way goes on after its last batch, with the parameters, optimizers, schedulers and random
numbers of that moment. What a loop keeps in Python objects is not known to be complete, so a resume
is never called exact. A program that cannot be rebuilt at all is recognized, and can only be
parked.
"""

from __future__ import annotations

import gc
import sys
import time
import types
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Callable, NoReturn, Protocol

from trainer_shim.adapters import changes as changed
from trainer_shim.adapters.torch import for_loop_bytecode, private, program_state, random
from trainer_shim.adapters.torch.classes import class_name
from trainer_shim.adapters.torch.fidelity import TorchFidelity, refusing
from trainer_shim.adapters.torch.frame_locals import of_program as program_frames
from trainer_shim.adapters.torch.frame_locals import place
from trainer_shim.adapters.torch.loadable import Trained, Weights
from trainer_shim.adapters.torch.loaders import (
    begin_again,
    begun_with,
    copy_loader,
    obstacle,
    put_back_loader,
    skip,
)
from trainer_shim.adapters.torch.objects import ALL, Objects, tensors_of
from trainer_shim.adapters.torch.other_width import FirstValues, are_replicas
from trainer_shim.adapters.torch.pack import TooLargeToPack, Unpacker
from trainer_shim.adapters.torch.pass_variables import PassVariables
from trainer_shim.adapters.torch.program_state import copy_variables, fit, put_back_variables
from trainer_shim.adapters.torch.random import copy_random, set_random
from trainer_shim.adapters.torch.side_iterators import SideIterators
from trainer_shim.adapters.torch.state import Files, State, TorchSnapshot, load
from trainer_shim.adapters.torch.tensor_bytes import Raw, Unplain
from trainer_shim.agent import Agent, CannotCapture, CannotCaptureNow, CannotPut, Capture
from trainer_shim.program.enclosing_loops import PlannedSteps, turn
from trainer_shim.saver import OtherProgram

# One pass over a DataLoader: where it is, what it leaves behind, and how it goes on.
#
# The boundary of an iteration is the moment the `for` statement asks for the next batch
# (or learns that there is none), after everything its body has done. Of a pass that had ended
# before the checkpoint nothing is run again: its loop is empty and the plain variables that it
# left are put in place. The pass under way is begun with the random numbers it was begun with,
# and moved to its batch without running the body.

LEFT_UNSEEN = "a for statement over a DataLoader was left by return or an exception"


class Pass:
    """The `number`-th pass; `past` is where it was at the checkpoint, None if it is new. When it
    was opened, the collector of garbage had run `since` times.

    It turns out with the first batch whether a `for` statement reads it. A pass read in any
    other way is left alone, and read again from its start when the program is run again.
    """

    def __init__(
        self, session: TorchSession, loader: Any, number: int, past: State | None, since: int
    ) -> None:
        self.number = number
        self.read = session.next_batch  # of an iterator its next one
        self.taken = 0
        self.stepped = False  # an optimizer has stepped since the last boundary
        self.trained = False
        self.moved_to = 0  # as many batches were not trained on here, but before the checkpoint
        self.is_planned = False
        self.is_statement: bool | None = None
        self.other_way: str | None = None
        self.made_before = 0
        self.loaders = 0  # that had been made when a batch was last asked for
        self.before = begun_with(loader, session.objects.large, session.obstacle)
        self.obstacle = obstacle(loader)
        self.batch_size = getattr(loader, "batch_size", None) or 0
        self._counted = 0
        self._session = session
        self.loader = weakref.ref(loader)
        self._past = past
        self._since = since
        self._code: Any = None
        self._at = 0
        self._gone: Any = None

    def watch(self, iterator: Any) -> None:
        """Learn when the iterator is dropped before its data have ended."""

        def gone(_: Any) -> None:
            try:
                frame = sys._getframe(1)
            except ValueError:
                return  # the process ends, and runs nothing any more
            self._dropped(frame)

        self._gone = weakref.ref(iterator, gone)

    def examples(self) -> int:
        """Examples read since this was last asked."""
        count, self._counted = self.taken - self._counted, self.taken
        return count * self.batch_size

    def asked(self, iterator: Any, frame: types.FrameType) -> None:
        """A batch is asked for by `frame`: the one taken before is done with."""
        session = self._session
        self.loaders = session.objects.loaders
        if self.is_statement is None:
            self._begin(iterator, frame)
        if self.other_way is not None and session.is_left_out():
            session.beside.took(iterator, self.other_way)
        if self.is_statement and session.is_inside(self) and self.stepped:
            self.stepped = False
            session.boundary(self, frame)

    def ended(self, iterator: Any, frame: types.FrameType) -> None:
        """There is no batch left."""
        self.loaders = self._session.objects.loaders
        if self.is_statement and self._session.is_inside(self):
            if self.trained:
                self._session.may_end(self, frame)
            self._session.over(self, self._left(frame))

    def encloses(self, frame: types.FrameType) -> bool:
        """Whether `frame` is executing the body of this pass."""
        return for_loop_bytecode.is_inside(frame, self._code, self._at)

    def _begin(self, iterator: Any, frame: types.FrameType) -> None:
        try:
            where, counters = for_loop_bytecode.statement(frame, iterator, self._since)
        except for_loop_bytecode.OtherWay as error:
            self.is_statement = False
            # In words: the error would hold the iterator, by the frames that it came through.
            self._session.other_way = self.other_way = str(error)
            return
        self._code, self._at = where.f_code, where.f_lasti
        self.is_statement = True
        self._session.enter(self, where)
        if self._past is not None:
            with self._session.restoring():
                self._go_on(iterator, counters, frame, self._past)
                self._past = None

    def _go_on(
        self, iterator: Any, counters: list[Any], frame: types.FrameType, past: State
    ) -> None:
        is_last = self._session.is_last(self.number)
        skipped = past["taken"] if is_last else past["taken"] - 1
        for index in range(skipped):
            try:
                skip(iterator, self._session.next_batch)
            except StopIteration:
                raise OtherProgram(f"the data end after {index} batches of {skipped}") from None
        for counter in counters:
            for_loop_bytecode.advance(counter, skipped)
        self.taken = self.moved_to = self._counted = skipped
        self.loaders = self._session.objects.loaders = past["loaders"]
        if is_last:
            self._session.go_on(frame)
            self.trained = True

    def _left(self, frame: types.FrameType) -> State | str:
        """What this pass leaves behind, or why that cannot be known."""
        loader = self.loader()
        session = self._session
        try:
            return {
                "random": copy_random(),
                "loader": {} if loader is None else copy_loader(loader),
                "loaders": session.objects.loaders,
                "weights": None,
                "variables": copy_variables(frame, session.left.packer()),
            }
        except TooLargeToPack as error:
            return f"the checkpoint would have to hold {error}"
        except Exception as error:  # whatever the program's own classes raise: it trains on
            return f"the variables of the program cannot be read: {type(error).__name__}: {error}"

    def _dropped(self, frame: types.FrameType) -> None:
        if not self.is_statement or not self._session.is_inside(self):
            return
        is_break = for_loop_bytecode.is_break(frame, self._code, self._at)
        self._session.over(self, self._left(frame) if is_break else LEFT_UNSEEN)
        if self.stepped and frame.f_code is self._code:
            self._session.boundary(self, frame)
        if self.trained and is_break:
            self._session.may_end(self, frame)


class EndedPass:
    """In place of the iterator of a pass that had ended before the checkpoint."""

    def __init__(self, session: TorchSession, loader: Any, number: int, past: State) -> None:
        self._session = session
        self._loader = loader
        self._number = number
        self._past = past

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> NoReturn:
        with self._session.restoring():
            self._end(sys._getframe(1))
        raise StopIteration

    def _end(self, frame: types.FrameType) -> None:
        session, left, site = self._session, self._past["left"], self._past["site"]
        session.objects.loaders = left["loaders"]
        variables = session.left.of(site, left["variables"])
        if not fit(frame, variables):
            raise OtherProgram(f"other functions run in {site} than at the checkpoint")
        if session.first.is_elsewhere:
            number = session.objects.number(self._loader)
            variables = session.first.variables(frame, variables)
            loader = session.first.loader(number, left["loader"])
            kept = [{**each, "values": {**each["values"]}} for each in variables]
            left = {**left, "variables": session.left.keep(site, kept), "loader": loader}
            self._past["left"] = left
        if session.is_last(self._number):
            session.first.check_batch(session.objects.number(self._loader))
            session.go_on(frame)  # the checkpoint is of the moment this pass was left
            session.between.over(self._past, True)
            return
        session.between.put_back(self._past)
        unpacker = session.unpacker([])
        put_back_variables(frame, variables, unpacker)
        put_back_loader(self._loader, left["loader"], unpacker)
        set_random(left["random"])


def expected(records: list[State], number: int, site: str) -> State:
    """The record of a pass that is begun again in this place. Raises OtherProgram."""
    if number >= len(records):
        raise OtherProgram(f"pass {number + 1} in {site} was not there at the checkpoint")
    if records[number]["site"] != site:
        raise OtherProgram(f"a pass runs in {site}, at the checkpoint in {records[number]['site']}")
    return records[number]


# What is seen of one iteration: its loss, its gradients, and which optimizers stepped.
#
# The loss of a step is what its gradients are of: the sum over the backward calls since
# they were forgotten, or used. So a loss that is divided among several batches, as gradients that
# accumulate ask for, has the scale of one over a batch. It stays the tensor it is until a report
# is due; nothing here waits for a device. One that the processor has computed is there: it is
# made a number at once, which costs less than to keep it.

_EVERY = id(None)


class Iteration:
    """The iteration under way."""

    def __init__(self) -> None:
        import torch

        self._tensor = torch.Tensor
        self._is_compiling = torch.compiler.is_dynamo_compiling
        self._modes = private.find("torch._C", "_len_torch_dispatch_stack")
        self.loss: Any = float("nan")  # of the backward calls before the last step
        self.needs_gradients = False  # some were added to, not forgotten, before a step
        self.leaves_gradients = True  # the same, once the last iteration of a pass is done
        self.tellings = 0
        self._gathered: Any = None  # by the backward calls of a step to come
        self._scaled: tuple[Any, Any] | None = None
        self._zeroed: set[int] = set()
        self._leader: Any = _nobody
        self._last: Any = _nobody

    def backward(self, tensors: Any) -> None:
        """Gradients of these were computed: a loss, if it is one number."""
        self.leaves_gradients = True
        tensor = tensors if isinstance(tensors, self._tensor) else None
        if self._scaled is not None:
            if self._scaled[0]() is tensor:
                tensor = self._scaled[1]
            self._scaled = None
        if tensor is not None and tensor.numel() == 1 and tensor.is_floating_point():
            before, loss = self._gathered, self._kept(tensor)
            self._gathered = loss if before is None else _sum(before, loss, tensor.dtype)

    def _kept(self, tensor: Any) -> Any:
        """Its number if that is there; not where one is traced, or who is told of all that is
        done would be told of this."""
        is_plain = tensor.is_cpu and type(tensor) is self._tensor
        if is_plain and not self._is_compiling() and not self._modes():
            try:
                return float(tensor.item())
            except Exception:  # a layout, or whatever a program makes of tensors
                pass
        return tensor.detach()

    def scaled(self, loss: Any, scaled: Any) -> None:
        """A GradScaler has made `scaled` of the loss."""
        self._scaled = (weakref.ref(scaled), loss.detach())

    def zeroed(self, optimizer: Any, *_: Any) -> None:
        """An optimizer's gradients were forgotten; with None a module's."""
        self._gathered = None
        self._zeroed.add(id(optimizer))

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has used its gradients."""
        self.tellings += 1
        if self._gathered is not None:
            self.loss, self._gathered = self._gathered, None
        if id(optimizer) not in self._zeroed and _EVERY not in self._zeroed:
            self.needs_gradients = True

    def tell(self, agent: Agent, step: int, examples: int) -> None:
        """Have the loss of this step kept for the next report."""
        if agent.signal == "loss":
            agent.record_signal(step, self.loss, examples)
        else:
            agent.record(step, {"loss": self.loss}, examples)

    def done(self) -> None:
        """The next one begins."""
        self._zeroed.clear()
        self._gathered = None  # a resume would not know it
        self.leaves_gradients, self.needs_gradients = self.needs_gradients, False

    def is_counted_by(self, optimizer: Any) -> bool:
        """Whether a step of this optimizer counts as an iteration, where nothing else tells.

        One of them counts: the first there was, until it is gone or another steps by itself.
        """
        if self._leader() is None or self._last() is optimizer:
            self._leader = weakref.ref(optimizer)
        self._last = weakref.ref(optimizer)
        return self._leader() is optimizer


def _sum(before: Any, loss: Any, kind: Any) -> Any:
    """Both together, as tensors of this dtype add up; of what is in different places the later
    one: a sum would have to wait."""
    import torch

    if isinstance(before, float) and isinstance(loss, float):
        return torch.tensor(before + loss, dtype=kind).item()
    here = torch.device("cpu")
    devices = [here if isinstance(one, float) else one.device for one in (before, loss)]
    return before + loss if devices[0] == devices[1] else loss


def _nobody() -> None:
    return None


# The weights that passes left in place, where the program uses a model between two passes.
#
# What it finds out there may decide how it goes on, so a program that is run again finds
# the same weights. They are kept as soon as a model is seen to be called outside of all passes.

_MOST = 256 << 20


class PassWeights:
    """What lies between the passes that train."""

    def __init__(self, objects: Objects, obstacle: Callable[[str], None]) -> None:
        self._objects = objects
        self._obstacle = obstacle
        self._record: State | None = None  # of the last pass that trained
        self._hook: Any = None
        self._is_used = False
        self._bytes = 0

    def over(self, record: State, trained: bool) -> None:
        """A pass is over, and left what this record says."""
        import torch

        for name in self._objects.large.iterators.pass_is_over():
            self._obstacle(f"{name} is a generator, and a pass has taken from it")
        if trained:
            self._record = record
        if self._is_used and trained:
            self._keep()
        elif self._record is not None and not self._is_used and self._hook is None:
            module = torch.nn.modules.module
            self._hook = module.register_module_forward_pre_hook(self._called)

    def begins(self) -> None:
        """Another pass begins."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def load(self, records: list[State]) -> None:
        """Go on from a checkpoint that holds these."""
        kept = [one["left"]["weights"] for one in records if one["kind"] == "ended"]
        self._bytes = sum(_size(weights) for weights in kept if weights is not None)
        self._is_used = self._bytes > 0

    def put_back(self, record: State) -> None:
        """Put in place what a pass left. Raises OtherProgram."""
        weights = record["left"]["weights"]
        if weights is not None:
            _put_back(self._objects, weights)

    def _called(self, *_: Any) -> None:
        self.begins()
        self._is_used = True
        self._keep()

    def _keep(self) -> None:
        assert self._record is not None
        if self._bytes > _MOST:
            return
        try:
            weights = self._record["left"]["weights"] = _copy(self._objects)
        except Unplain as error:
            self._obstacle(f"a model is used between passes, and holds {error}")
            return
        self._bytes += _size(weights)
        if self._bytes > _MOST:
            size = f"{_MOST >> 20} MB"
            self._obstacle(f"a model is used between passes that left more than {size} of weights")


def _copy(objects: Objects) -> list[State]:
    gc.collect()  # as `Inventory` does
    return [
        {"class": class_name(type(one)), "values": [Raw.of(each) for _, each in tensors_of(one)]}
        for one in objects.models()
    ]


def _size(weights: list[State]) -> int:
    raws = [raw.data for model in weights for raw in model["values"]]
    return sum(int(data.numel() * data.element_size()) for data in raws)


def _put_back(objects: Objects, weights: list[State]) -> None:
    import torch

    gc.collect()
    models = objects.models()
    if [class_name(type(one)) for one in models] != [copy["class"] for copy in weights]:
        raise OtherProgram("after a pass, the program has other models than at the checkpoint")
    with torch.no_grad():
        for model, copy in zip(models, weights):
            for (name, tensor), raw in zip(tensors_of(model), copy["values"]):
                if tensor.shape != raw.data.shape:
                    raise OtherProgram(f"{name} is {tuple(tensor.shape)}, it was {raw.data.shape}")
                tensor.copy_(raw.data)


# In what order the gradients of several processes are summed.
#
# A DistributedDataParallel sums them by buckets. It begins with those that the order of the
# parameters gives, and goes on, after its first step, with those of the order in which their
# gradients came. Where a gradient lies decides in what order those of three or more processes are
# summed. So one that is made anew begins with the buckets of the checkpoint. It finds the same
# again after its first step.

_Buckets = list[list[int]]  # of each the numbers of its parameters


class GradientBuckets:
    """Those of each DistributedDataParallel that the program has made."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []
        self._past: list[_Buckets | None] = []

    def made(self, model: Any, parameters: int) -> _Buckets | None:
        """The program makes one over so many parameters: with what it has to begin, if not with
        what PyTorch gives it."""
        self._made.append(weakref.ref(model))
        past = self._of_past(len(self._made) - 1)
        there = sorted(number for bucket in past or () for number in bucket)
        return past if there == list(range(parameters)) else None

    def dump(self) -> State:
        """For a checkpoint."""
        models = [reference() for reference in self._made]
        now = [None if model is None else _rebuilt(model) for model in models]
        found = [one or self._of_past(number) for number, one in enumerate(now)]
        return {"buckets": found} if found else {}

    def load(self, past: State) -> None:
        """Go on from a checkpoint, of as many processes, that holds what `dump` gave."""
        self._past = past.get("buckets", [])

    def _of_past(self, number: int) -> _Buckets | None:
        return self._past[number] if number < len(self._past) else None


def _rebuilt(model: Any) -> _Buckets | None:
    """The buckets of later steps; None if there are none yet, or no others."""
    model.logger.set_runtime_stats_and_log()  # this is noted in the step after, or later
    told = model._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices")
    return [list(map(int, one.split())) for one in told.split(",")] if told else None


# The place from which a program that has ended can train further, when it is asked for more.
#
# Nobody knows for certain which iteration is the last before the program has ended. So a copy is
# made wherever one may be, as long as all copies together take little of the program's time, and
# whatever it takes where the steps that were planned are done; the newest becomes its last
# checkpoint. What was trained after that one is trained again.

# All copies may take this much of the processor's time, and this share of what the program takes.
_ALLOWED_SECONDS = 0.25
_SHARE = 0.01


class TrainingEnd:
    """The newest copy, if there is one."""

    def __init__(self) -> None:
        self._kept: tuple[int, Capture] | None = None
        self._reason = "it has shown no place to go on from"
        self._began = time.process_time()
        self._spent = 0.0

    @property
    def is_due(self) -> bool:
        """Whether another copy costs little enough."""
        return self._spent < _ALLOWED_SECONDS + _SHARE * (time.process_time() - self._began)

    def keep(self, step: int, take: Callable[[], Capture]) -> None:
        """The program may end with `step`: have `take` copy what it has come to."""
        began = time.process_time()
        try:
            self._kept = step, take()
        except CannotCapture as error:
            self._reason = str(error)
        except Exception as error:  # no memory for a copy, say, costs the copy alone
            self._reason = f"{type(error).__name__}: {error}"
        self._spent += time.process_time() - began

    def is_of(self, step: int) -> bool:
        """Whether the newest copy is of this step."""
        return self._kept is not None and self._kept[0] == step

    def newest(self) -> tuple[int, Capture]:
        """The step and the copy. Raises CannotCapture if there is none."""
        if self._kept is None:
            raise CannotCapture(self._reason)
        return self._kept


_MOST_PASSES = 10_000
_MADE_INSIDE = "a model, optimizer or scheduler was made inside of a loop over a DataLoader"
_AFTER_RUN = "the program trains on by a loop of its own, after a framework's"

_session: TorchSession | None = None


def session() -> TorchSession | None:
    """That of this process, if PyTorch is hooked."""
    return _session


def open_session(agent: Agent) -> TorchSession:
    """Begin that of this process."""
    global _session
    _session = TorchSession(agent)
    return _session


class OtherLoop(Protocol):
    """A framework's own training loop under way: see `framework_run`."""

    stepped: bool

    @property
    def has_begun(self) -> bool:
        """Whether it has asked for its first batch."""

    def open(self, loader: Any, make: Any) -> Any:
        """An iterator over `loader`, where `make` would make one."""

    def examples(self) -> int:
        """How many examples the latest iteration trained on."""

    def copy(self, with_gradients: bool) -> TorchSnapshot:
        """The whole program, at a boundary. Raises CannotCapture."""


class TorchSession:
    """The passes over loaders of this process: those that have ended, and those under way."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.objects = Objects()
        self.first = FirstValues(agent.several)
        self.buckets = GradientBuckets()
        self._are_replicas = True  # all that is trained, as far as is known
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
        self._end = TrainingEnd()
        self._planned = PlannedSteps(agent.planned)
        self._trained = Trained(self.objects)
        self.standing = TorchFidelity(agent, self._capture, self._newest_end)
        self.obstacle = self.standing.obstacle
        self.left = PassVariables(self.objects.large)
        self.between = PassWeights(self.objects, self.obstacle)
        self.beside = SideIterators(lambda one: self.next_batch(one), self.obstacle)
        self._at: tuple[Pass, types.FrameType] | None = None
        self._past: State = {"records": [], "parameters": {}}
        self._put_otherwise = agent.put  # of Keras, if that computes with PyTorch
        agent.is_midway, agent.put = self._is_midway, self._put
        if agent.restore is not None:
            with self.restoring():
                past = load(agent.restore)
                if past is not None:
                    self._past = self.left.load(past)
                    self.first.load(past)
                    if not self.first.is_elsewhere:
                        self.buckets.load(past)
                    self.between.load(self._past["records"])
                    self.is_returning = agent.is_returning = True

    @property
    def is_aside(self) -> bool:
        """Whether another adapter or the program itself speaks for it, or it is a child that nobody
        asked."""
        agent = self.agent
        return agent.is_aside or self.in_fit is not None or agent.framework == "explicit"

    def _is_midway(self) -> bool:
        """Whether an optimizer has stepped since the last boundary."""
        under_way = self.run or (self._inside[-1] if self._inside else None)
        return under_way is not None and under_way.stepped

    # -- passes

    def is_in_a_pass(self) -> bool:
        """Whether the body of a loop over a loader is run now."""
        return bool(self._inside)

    def is_left_out(self) -> bool:
        """Whether what is done now is left out when the program is run again."""
        return self.is_in_a_pass() or self._is_opening or bool(self.run and self.run.has_begun)

    def open(self, loader: Any, make: Any, frame: types.FrameType) -> Any:
        """An iterator over `loader`, where `make` would make one."""
        since = for_loop_bytecode.collections()
        if self.is_aside:
            return make(loader)
        if self.run is not None:
            return self.run.open(loader, make)
        program_state.note(frame, self.objects, self.first, is_outermost=not self._inside)
        self.between.begins()
        number, past = len(self._records), None
        at = self.objects.number(loader)
        site = f"{place(frame)} over loader {at}"
        if self.is_returning and self.past_run is None:
            with self.restoring():
                past = expected(self._past["records"], number, site)
            if past["kind"] == "ended":
                self.agent.passes_training()
                self._records.append(past)
                return EndedPass(self, loader, number, past)
        if past is not None and past["kind"] == "under way":
            if self.is_last(number):
                with self.restoring():
                    self.first.check_batch(at)
            before = past["before"]
            begin_again(loader, {**before, "loader": self.first.loader(at, before["loader"])})
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
        if kind == "loader":
            self.first.note_loader(self.objects.number(one), one)
            if self.is_left_out():
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
        self._trained.stepped(optimizer)
        current = self._inside[-1] if self._inside and run is None else None
        self.iteration.stepped(optimizer)
        if run is None and self.ran:
            self.obstacle(_AFTER_RUN)
        elif run is None and current is None:
            self.obstacle(self.other_way or "training is not in a for statement over a DataLoader")
        for one in self._inside:
            if one.obstacle is not None:
                self.obstacle(one.obstacle)
        if current is not None and not current.trained and agent.several:
            self._tell_replicas(current.loader())
        if not (current and current.trained) and not agent.page.looping:
            self.standing.look()
            agent.page.step, agent.result = self.steps, self._result
            agent.loop(True)
        if run is not None:
            run.stepped = True
        elif current is not None:
            current.stepped = current.trained = True
        elif self.iteration.is_counted_by(optimizer):
            self.count(None)
            if self.steps & (self.steps - 1) == 0:  # now and then: it takes as long as a small step
                own = program_frames(sys._getframe(1))
                if own and (now := turn(own)) is not None:
                    self._planned.at(own[0].f_code, now, self.steps - 1, 1)
            agent.boundary(self.steps)

    def _tell_replicas(self, loader: Any) -> None:
        """Say whether the checkpoints are of any number of processes, by all that was trained."""
        before = self._are_replicas
        self._are_replicas = before and are_replicas(self.objects, loader)
        self.agent.framework = private.framework(self._are_replicas)
        if self.agent.page.looping and before != self._are_replicas:
            self.standing.judge()

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
            if not current.is_planned:
                self._plan(current, frame)
            self.agent.boundary(self.steps)
        finally:
            self._at = None
        self.iteration.done()

    def _plan(self, current: Pass, frame: types.FrameType) -> None:
        """See how many steps there will be, at the first boundary of a pass."""
        current.is_planned = True
        loader = current.loader()
        try:
            length = len(loader)  # type: ignore[arg-type]
        except Exception:  # of data that have none, or whatever a program's own sampler raises
            return
        own = program_frames(frame)
        now = turn(own) if own and self._inside == [current] else None
        if now is not None:
            batches = max(1, current.taken - current.moved_to)  # a step
            done = self.steps - current.taken // batches
            where = own[0].f_code, own[0].f_lineno
            self._planned.at(where, now, done, max(1, length // batches))

    def may_end(self, current: Pass, frame: types.FrameType) -> None:
        """The program trains no further than this, unless it begins another pass."""
        self._at = (current, frame)
        try:
            self.keep_end(lambda: self._copy(self.iteration.leaves_gradients))
        finally:
            self._at = None

    def keep_end(self, take: Callable[[], TorchSnapshot]) -> None:
        """As far as is known the program has come to its end: keep what `take` copies."""
        if self.agent.end is None:
            return
        is_new = self._planned.are_done(self.steps) and not self._end.is_of(self.steps)
        if is_new or self._end.is_due:
            self._end.keep(self.steps, lambda: self._last(take))

    def _last(self, take: Callable[[], TorchSnapshot]) -> TorchSnapshot:
        snapshot: TorchSnapshot = self.standing.taken(take)
        snapshot.is_end = True
        self.agent.ends_otherwise = True  # with files that no other checkpoint has
        return snapshot

    def _newest_end(self) -> tuple[int, Capture]:
        """The end to go on from. If that is an earlier step than the last, its files for people
        are of what the program has left; those that a framework writes are not made anew."""
        step, snapshot = self._end.newest()
        if step < self.steps and not self.ran and isinstance(snapshot, TorchSnapshot):
            snapshot.ends_with(self._trained.files)
            self.agent.result_step = self.steps
        return step, snapshot

    def _result(self) -> Capture | None:
        return None if self.is_aside or self.is_returning else self._trained.result()

    def _capture(self) -> TorchSnapshot:
        gradients = self.iteration.needs_gradients
        return self._copy(gradients) if self.run is None else self.run.copy(gradients)

    def _copy(self, with_gradients: bool) -> TorchSnapshot:
        if self._at is None:
            raise CannotCaptureNow("the program is not between two batches of a DataLoader")
        _, frame = self._at
        if any(self.objects.made_since(one.made_before) for one in self._inside[:1]):
            raise CannotCapture(_MADE_INSIDE)
        lost = random.lost(frame)
        if lost is not None:
            raise CannotCapture(lost)
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
        self,
        frame: types.FrameType,
        more: Callable[..., State],
        until: int = ALL,
        files: Callable[[Weights], Files] | None = None,
    ) -> TorchSnapshot:
        """The whole program, with what `more` copies; see `program_state.copy`."""
        said = {"steps": self.steps, "parameters": self.agent.parameters}
        said |= {"are_replicas": self._are_replicas, **self.first.dump(), **self.buckets.dump()}
        return program_state.copy(
            frame, self.objects, lambda *given: {**said, **more(*given)}, until, files
        )

    # -- restoring

    def go_on(
        self, frame: types.FrameType, put: program_state.Put | None = None, until: int = ALL
    ) -> None:
        """The loop under way has been moved to its batch: put everything back."""
        past = self._past
        made = [dict(group) for group in self._groups(until)]
        program_state.put_back(frame, self.objects, self.first, past, self.unpacker, put, until)
        self.first.is_back()
        if self.run is None and self.agent.several:
            self._are_replicas = past.get("are_replicas", False)
            self.agent.framework = private.framework(self._are_replicas)
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

    def _put(self, name: str, value: Any) -> bool:
        """Have every optimizer that was made with such a value train with this one, and whatever
        else of the program takes it. Raises CannotPut."""
        is_set = False
        for group in self._groups(ALL):
            for own in [each for each in group if changed.same_name(each, name)]:
                if own == "lr" and self.objects.alive("scheduler"):
                    raise CannotPut("a schedule of the program's own would set it again")
                group[own] = value
                is_set = True
        put = self._put_otherwise
        return (put is not None and put(name, value)) or is_set

    def unpacker(self, tensors: list[Any]) -> Unpacker:
        """What puts values of the checkpoint back, less the parameters that were changed since."""
        then, now = self._past["parameters"], self.agent.parameters
        raised = [(then[name], now[name]) for name in then if name in now]
        others = [(one, other) for one, other in raised if one != other]
        return Unpacker(tensors, others)

    def restoring(self) -> AbstractContextManager[None]:
        """End the process if the checkpoint turns out not to be this program's."""
        return refusing(self.agent)
