"""What the agent takes of each step of a loop around a `tf.function`, its reports among it.

A step is traced and run by TensorFlow, hooked as in a trial; then it is called again and again with
TensorFlow's own part replaced by results that were made before, so that what is left is the
agent's: the call that it sees, the journal, the boundary, the loss made a number, the reports.
`python -m benchmarks.loop_step [--calls N] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import threading
import time
from typing import Any

from benchmarks.report import median, publish
from benchmarks.slowdown import AGENT_BUDGET_US
from trainer_shim.adapters import tf_private as private
from trainer_shim.adapters.tf_function import Loop
from trainer_shim.agent import Agent
from trainer_shim.page import Page
from trainer_shim.wire import receive

RESULTS = 8_192  # different ones, so that they are no more in the processor's caches than others


class Step:
    """A training step with a loss and a metric; `call` is what a program's call of it comes to."""

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


def per_step(calls: int, rounds: int) -> list[tuple[float, float]]:
    """CPU and wall microseconds that the agent takes of one step, of each round."""
    ours, hosts = socket.socketpair()

    def drain() -> None:
        while receive(hosts) is not None:
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    page = Page.create()
    agent = Agent(ours, page, trial="bench/0", attempt=1, checkpoints=os.devnull, seed=1)
    step = Step(agent)
    found = []
    for _ in range(rounds):
        pairs = zip(step.seconds(calls, True), step.seconds(calls, False), strict=True)
        cpu, wall = ((mine - theirs) / calls * 1e6 for mine, theirs in pairs)
        found.append((cpu, wall))
    assert page.step > calls * rounds, "the agent has not seen the steps"
    ours.close()
    reader.join()
    hosts.close()
    page.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=500_000, help="steps of a round (500,000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (5)")
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    steps = per_step(options.calls, options.rounds)
    rows: list[list[str | float]] = [
        [f"agent's own {kind} time, us a step of a tf.function ({options.calls} steps a round)",
         len(steps), median(values), min(values), max(values), AGENT_BUDGET_US]
        for kind, values in zip(("CPU", "wall"), zip(*steps, strict=True), strict=True)
    ]  # fmt: skip
    publish("loop_step", ["what", "rounds", "median", "low", "high", "budget"], rows)


if __name__ == "__main__":
    main()
