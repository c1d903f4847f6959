"""How long a program's own loop will take is read off the loop."""

from __future__ import annotations

import argparse
import sys
import types
from pathlib import Path

import pytest

from tests.trainer_shim import torch_programs
from tests.trainer_shim.suspending import Runs, suspend
from trainer_shim.program.enclosing_loops import PlannedSteps, Turn, turn

HEAD = """
def here():
    seen.append(turn(frames_of_program()))

def tqdm(them, **options):
    yield from them

"""


def turns(tmp_path: Path, body: str) -> list[Turn | None]:
    """Where the program says it is each time it calls `here()`."""
    seen: list[Turn | None] = []
    file = str(tmp_path / "program.py")
    Path(file).write_text(HEAD + body)

    def frames_of_program() -> list[types.FrameType]:
        frame, found = sys._getframe(1), []
        while frame is not None and frame.f_code.co_filename == file:
            found.append(frame)
            frame = frame.f_back  # type: ignore[assignment]
        return found

    args = argparse.Namespace(epochs=3)
    given = {"seen": seen, "turn": turn, "frames_of_program": frames_of_program, "args": args}
    exec(compile(HEAD + body, file, "exec"), given)
    return seen


@pytest.mark.parametrize(
    "loop",
    [
        "for epoch in range(3):",
        "for epoch in range(1, args.epochs + 1):",
        "for epoch in tqdm(range(args.epochs), desc='epochs'):",
        "for number, epoch in enumerate(range(0, 2 * args.epochs, 2)):",
        "for epoch in range(config['epochs']):",
        "for epoch in range(int(config['text'])):",
        "for epoch in range(len(names)):",
        "for name in names:",
        "for rate in [0.1, 0.2, 0.4]:",
        "for number, pair in enumerate(names, start=5):",
        "for epoch in range(entries.epochs):",
        "for epoch in range(omega.train['epochs']):",
    ],
)
def test_the_usual_loops_over_epochs(tmp_path: Path, loop: str) -> None:
    body = f"""
class Config:
    def __init__(self, **entries):
        self.__dict__["_content"] = entries
    def __getattr__(self, name):
        found = self._content[name]
        return found._val if isinstance(found, Leaf) else found
    __getitem__ = __getattr__
class Leaf:
    def __init__(self, value):
        self._val = value
config, names = dict(epochs=3, text="3"), ["a", "b", "c"]
entries, omega = Config(epochs=3), Config(train=Config(epochs=Leaf(3)))
{loop}
    here()
"""
    assert turns(tmp_path, body) == [Turn(0, 3), Turn(1, 3), Turn(2, 3)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("epoch = 0\nwhile epoch < 3:\n    here()\n    epoch += 1\n", [3, 2, 1]),
        ("epoch = 0\nwhile epoch < 3:\n    epoch += 1\n    here()\n", [3, 2, 1]),
        (
            "epoch = 1\nwhile args.epochs >= epoch and not done:\n    here()\n    epoch += 1\n",
            [3, 2, 1],
        ),
        ("at = 0\nwhile at < 10:\n    here()\n    at += 4\n", [3, 2, 1]),
    ],
)
def test_a_loop_that_counts_by_itself(tmp_path: Path, body: str, expected: list[int]) -> None:
    found = [one and one.times - one.done for one in turns(tmp_path, "done = False\n" + body)]
    assert found == expected


def test_a_place_lies_in_the_loops_of_all_functions_that_led_there(tmp_path: Path) -> None:
    body = """
def train(times):
    for inner in range(times):
        if inner:
            try:
                pass
            finally:
                here()

for outer in range(2):
    with open(__import__("os").devnull):
        def run():
            train(3)
        run()
"""
    # Of three turns of the inner loop the last two have a look.
    assert turns(tmp_path, body) == [Turn(1, 6), Turn(2, 6), Turn(4, 6), Turn(5, 6)]


@pytest.mark.parametrize(
    "body",
    [
        "while len(seen) < 1:\n    here()\n",
        "at = 0\nwhile at < 1:\n    here()\n    for _ in range(2):\n        at += 1\n",
        "at = 0\nwhile at < 1:\n    here()\n    if seen:\n        at += 1\n",
        "for same in [1, 1][:1]:\n    here()\n",
        "for one in {1: 'a'}.values():\n    here()\n",
        "for epoch in iter([1]):\n    here()\n",
        "for epoch in range(compute()):\n    here()\n",
        "for epoch in range(1):\n    epoch = 'first'\n    here()\n",
        "[here() for _ in range(1)]\n",
        "def run():\n    for epoch in range(1):\n        here()\n        yield\nnext(run())\n",
    ],
)
def test_what_does_not_stand_there_is_not_known(tmp_path: Path, body: str) -> None:
    assert turns(tmp_path, "def compute():\n    return 1\n" + body) == [None]


def test_later_turns_say_better_how_long_each_is() -> None:
    told: list[int] = []
    planned = PlannedSteps(told.append)
    planned.at("train", Turn(0, 10), 0, 100)
    planned.at("train", Turn(1, 10), 50, 100)
    planned.at("another loop in the same epochs", Turn(1, 10), 60, 7)
    planned.at("train", Turn(2, 10), 100, 100)
    assert told == [1000, 500]
    planned.at("a second phase", Turn(0, 2), 500, 20)
    assert told == [1000, 500, 540]


ACCUMULATED = """
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=10)
for epoch in range(4):
    for index, (data, target) in enumerate(loader, 1):
        nn.functional.cross_entropy(model(data), target).backward()
        if index % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
final()
"""
WITHOUT_LOADER = """
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(12):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
final()
"""


COUNTED = """
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=10)
epoch = 0
while epoch < 4:
    for data, target in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()
    epoch += 1
final()
"""


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("body", "steps", "resumes"),
    [
        pytest.param(torch_programs.USUAL, 21, True, id="usual"),
        pytest.param(ACCUMULATED, 8, True, id="accumulated"),
        pytest.param(COUNTED, 20, True, id="counted"),
        pytest.param(WITHOUT_LOADER, 12, False, id="without-loader"),
    ],
)
def test_a_loop_of_pytorch_tells_its_length_at_its_first_step(
    tmp_path: Path, body: str, steps: int, resumes: bool
) -> None:
    runs = Runs(None, tmp_path, torch_programs.program(body, seeded=True))
    with runs.trial("planned") as trial:
        trial.start(limit=1)
        trial.until("parked")
        told = [event["steps"] for event in trial.events if event["kind"] == "planned"]
        assert told == [steps]
        trial.resume(limit=steps - 1)
        trial.until("parked")
        if resumes:
            trial.start(restore=suspend(trial)["checkpoint"]["path"])
        else:
            trial.resume()
        assert trial.until("completed")["step"] == steps
        told = [event["steps"] for event in trial.events if event["kind"] == "planned"]
        assert set(told) == {steps}
