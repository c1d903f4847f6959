"""What the agent takes of each step of a loop of the program's own, its reports among it.

Of TensorFlow a `tf.function` is traced and run, hooked as in a trial; of PyTorch a `for` statement
over a DataLoader. Then steps are done again and again with the framework's own part replaced by
results that were made before, with the agent's hooks and without, so that the difference is the
agent's: the calls that it sees, the journal, the boundary, the loss made a number, the reports.
PyTorch is left out where it is not installed.
`python -m benchmarks.loop_step [--calls N] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context  # noqa: TID251 - only to spawn
from typing import Any, Protocol

from benchmarks.report import median, publish
from benchmarks.slowdown import AGENT_BUDGET_US
from trainer_shim.adapters.tensorflow import private
from trainer_shim.adapters.tensorflow.function import Loop
from trainer_shim.adapters.torch import private as private_torch
from trainer_shim.agent import Agent
from trainer_shim.channel.frames import receive
from trainer_shim.channel.page import ControlPage
from trainer_shim.spec import Spec

RESULTS = 8_192  # different ones, so that they are no more in the processor's caches than others
LOSSES = 64  # few: at the end of a pass what the program's variables hold is copied

Row = list[str | float]


class Step(Protocol):
    """Steps of a framework that does nothing by itself, with the agent's hooks and without."""

    name: str

    def seconds(self, calls: int, with_agent: bool) -> tuple[float, float]:
        """CPU and wall seconds of so many steps."""
        ...


class TensorFlowStep:
    """A training step with a loss and a metric; `call` is what a program's call of it comes to."""

    name = "a tf.function"

    def __init__(self, agent: Agent) -> None:
        import tensorflow as tf

        self.is_replaced = False
        context = private.find(private.CONTEXT, "Context")
        own = context.call_function
        results = itertools.cycle([[tf.constant(float(n))] for n in range(RESULTS)])

        def call_function(*call: Any) -> Any:
            return next(results) if self.is_replaced else own(*call)

        context.call_function = call_function
        self._without = call_function
        loop = Loop(agent)
        loop.hook()
        self._with = context.call_function

        def seen(*call: Any) -> Any:
            self._call = call
            return self._with(*call)

        context.call_function = seen
        self._train()
        context.call_function = self._with
        self.is_replaced = True

    def _train(self) -> None:
        """Trace the step and run it."""
        import tensorflow as tf

        tf.random.set_seed(1)
        weights = tf.Variable(tf.random.normal([64, 8]))
        mean = tf.Variable(0.0, trainable=False)

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weights - y) ** 2)
            weights.assign_sub(0.01 * tape.gradient(loss, weights))
            mean.assign_add(loss)
            return loss

        traced = tf.function(step)
        for _ in range(3):
            traced(tf.ones([32, 64]), tf.ones([32, 8]))

    def seconds(self, calls: int, with_agent: bool) -> tuple[float, float]:
        """CPU and wall seconds of so many calls."""
        function = self._with if with_agent else self._without
        call = self._call
        wall, cpu = time.perf_counter(), time.thread_time()
        for _ in range(calls):
            function(*call)
        return time.thread_time() - cpu, time.perf_counter() - wall


class TorchStep:
    """A `for` statement over a DataLoader, with what a program calls in it."""

    name = "a PyTorch loop"

    def __init__(self, agent: Agent) -> None:
        import torch

        from trainer_shim.adapters.torch import hooks

        self._batches: Iterator[int] = iter(())
        self._steps = private_torch.find("torch.optim.optimizer", "_global_optimizer_post_hooks")
        self._replace()
        self._places: list[tuple[Any, str]] = [
            (torch.utils.data.DataLoader, "__iter__"),
            (private_torch.find(private_torch.LOADER, "_BaseDataLoaderIter"), "__next__"),
            (torch.autograd, "backward"),
            (torch.optim.Optimizer, "zero_grad"),
        ]
        self._without = self._hooks()
        hooks.install(agent)
        self._with = self._hooks()
        self._losses = [torch.tensor(float(n)) for n in range(LOSSES)]
        self._optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), 1e-3)

    def _replace(self) -> None:
        """Leave out what PyTorch itself does."""
        import torch

        def nothing(*given: Any, **named: Any) -> None:
            pass

        def step(*given: Any) -> None:
            for hook in self._steps.values():
                hook(*given, (), {})

        step.hooked = True  # type: ignore[attr-defined]  # PyTorch would wrap it otherwise

        iterators = private_torch.find(private_torch.LOADER, "_BaseDataLoaderIter")
        iterators.__next__ = lambda _: next(self._batches)
        torch.autograd.backward = nothing
        torch.optim.Optimizer.zero_grad = nothing
        torch.optim.SGD.step = step

    def _hooks(self) -> tuple[list[Any], dict[Any, Any]]:
        return [getattr(owner, name) for owner, name in self._places], dict(self._steps)

    def seconds(self, calls: int, with_agent: bool) -> tuple[float, float]:
        import torch

        functions, steps = self._with if with_agent else self._without
        for (owner, name), function in zip(self._places, functions, strict=True):
            setattr(owner, name, function)
        self._steps.clear()
        self._steps.update(steps)
        self._batches = iter(range(calls))
        losses, optimizer = itertools.cycle(self._losses), self._optimizer
        loader = torch.utils.data.DataLoader(range(calls))
        wall, cpu = time.perf_counter(), time.thread_time()
        for _ in loader:
            optimizer.zero_grad()
            torch.autograd.backward(next(losses))
            optimizer.step()
        return time.thread_time() - cpu, time.perf_counter() - wall


def per_step(kind: Callable[[Agent], Step], calls: int, rounds: int) -> list[Row]:
    """Rows: CPU and wall microseconds that the agent takes of one step."""
    ours, hosts = socket.socketpair()

    def drain() -> None:
        while receive(hosts) is not None:
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    page = ControlPage.create()
    spec = Spec("bench/0", [], "", {}, os.devnull, "", "", "", seed=1)
    agent = Agent(ours, page, spec, attempt=1)
    step = kind(agent)
    found = []
    for _ in range(rounds):
        pairs = zip(step.seconds(calls, True), step.seconds(calls, False), strict=True)
        found.append([(mine - theirs) / calls * 1e6 for mine, theirs in pairs])
    assert page.step >= calls * rounds, "the agent has not seen the steps"
    ours.close()
    reader.join()
    hosts.close()
    page.close()
    return [
        [f"agent's own {clock} time, us a step of {step.name} ({calls} steps a round)",
         len(found), median(values), min(values), max(values), AGENT_BUDGET_US]
        for clock, values in zip(("CPU", "wall"), zip(*found, strict=True), strict=True)
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=500_000, help="steps of a round (500,000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (5)")
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    kinds: list[Callable[[Agent], Step]] = [TensorFlowStep]
    if find_spec("torch"):
        kinds.append(TorchStep)
    rows = []
    for kind in kinds:
        # A process for each: two frameworks in one are in each other's way.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            rows += process.submit(per_step, kind, options.calls, options.rounds).result()
    publish("loop_step", ["what", "rounds", "median", "low", "high", "budget"], rows)


if __name__ == "__main__":
    main()
