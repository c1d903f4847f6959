"""A program in another language than Python is seen by what it prints, and writes to its files."""

from __future__ import annotations

import os
import sys

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.driving import Trial
from tests.trainer_shim.test_bad_moments import is_there
from tests.trainer_shim.test_side_metrics import points
from trainer_shim.channel.frames import Message
from trainer_shim.host.agentless_metrics import AgentlessMetrics
from trainer_shim.host.event_log import boottime
from trainer_shim.host.output import Output
from trainer_shim.spec import Spec

PRINTED = r"""
echo "rate=0.5 before"
for step in 1 2 3; do
    echo "step $step loss=$((4 - step)).5"
    printf 'val_acc: 0.%s\nhits %s\n' $step $step >&2
done
"""


def shell(make_trial: MakeTrial, script: str, **fields: object) -> Trial:
    return make_trial("", argv=["/bin/sh", "-c", script], **fields).launch()


def test_what_it_prints_is_its_metrics(make_trial: MakeTrial) -> None:
    """Its own hyper-parameters are none of them; what the study has patterns for is."""
    told = {"parameters": {"rate": 0.5}, "metrics": {"hits": r"hits (\d+)"}}
    trial = shell(make_trial, PRINTED, **told)
    trial.start()
    ended = trial.until("completed")
    assert points(trial) == {
        1: {"loss": 3.5, "val_acc": 0.1, "hits": 1.0},
        2: {"loss": 2.5, "val_acc": 0.2, "hits": 2.0},
        3: {"loss": 1.5, "val_acc": 0.3, "hits": 3.0},
    }
    assert (ended["step"], ended["metrics"]["loss"]) == (3, 1.5)


def test_its_length_is_told_by_the_epochs_that_it_counts(make_trial: MakeTrial) -> None:
    trial = shell(make_trial, "for epoch in 1 2 3; do echo epoch $epoch of 9: loss=0.$epoch; done")
    trial.start()
    trial.until("completed")
    kinds = [event["kind"] for event in trial.events]
    assert kinds.index("planned") < kinds.index("reported"), "the report is of a known length"
    assert trial.events[kinds.index("planned")]["steps"] == 9


def parked_once(make_trial: MakeTrial, script: str, file: str) -> Trial:
    """A script that has been parked once it had made a file, and goes on from its gate. What it
    is to have written by then it writes before: a shell makes a file and then writes to it."""
    trial = make_trial("", argv=["/bin/sh", "-c", script])
    work = trial.directory / "work"
    os.mkfifo(work / "gate")
    trial.launch()
    trial.start()
    is_there(work / file)
    trial.suspend("park")
    trial.until("parked")
    trial.resume()
    (work / "gate").write_text("go\n")
    return trial


def test_rows_that_it_adds_to_a_file_are_its_metrics(make_trial: MakeTrial) -> None:
    script = """
    echo '{"loss": 0.5}' > log.jsonl; : > written
    read line < gate
    echo '{"loss": 0.25}' >> log.jsonl
    """
    trial = parked_once(make_trial, script, "written")
    trial.until("completed")
    assert points(trial) == {1: {"loss": 0.5}, 2: {"loss": 0.25}}


def test_rows_of_its_first_seconds_count_though_nothing_is_reported_yet(
    make_trial: MakeTrial,
) -> None:
    """A file is a log if it was seen to grow, which a short program's would never be."""
    spec = Spec.load(str(make_trial("").spec))
    told: list[Message] = []
    output = Output(spec.output, spec.output_limit_bytes)
    unseen = AgentlessMetrics(spec, output, boottime(), 0, told.append, lambda steps: None)
    with open(f"{spec.cwd}/log.csv", "a", buffering=1) as log:
        log.write("epoch,acc\n")
        for epoch in range(1, 21):
            log.write(f"{epoch},{epoch / 32}\n")
            if epoch == 1:
                assert unseen.due <= boottime()
                unseen.tick()
                assert not told
    unseen.look()
    assert told[-1]["points"] == [[1, {"acc": 1 / 32}], [2, {"acc": 20 / 32}]]
    output.close()


def test_what_it_prints_and_writes_to_a_file_as_well_is_one_step(make_trial: MakeTrial) -> None:
    script = """
    echo loss=0.5; echo '{"loss": 0.51, "acc": 0.25}' > log.jsonl; : > written
    read line < gate
    echo loss=0.25; echo '{"loss": 0.26, "acc": 0.75}' >> log.jsonl
    """
    trial = parked_once(make_trial, script, "written")
    assert trial.until("completed")["step"] == 2
    assert points(trial) == {1: {"loss": 0.5, "acc": 0.25}, 2: {"loss": 0.25, "acc": 0.75}}


def test_parked_it_has_told_all_that_it_printed_and_nothing_twice(make_trial: MakeTrial) -> None:
    script = "echo loss=3.5; echo loss=2.5; : > printed; read line < gate; echo loss=1.5"
    trial = make_trial("", argv=["/bin/sh", "-c", script])
    work = trial.directory / "work"
    os.mkfifo(work / "gate")
    trial.launch()
    trial.start()
    is_there(work / "printed")
    for _ in range(2):
        trial.suspend("park")
        assert trial.until("parked")["step"] == 2
        trial.resume()
    (work / "gate").write_text("go\n")
    assert trial.until("completed")["step"] == 3
    told = [point for event in trial.events for point in event.get("points", ())]
    assert told == [[1, {"loss": 3.5}], [2, {"loss": 2.5}], [3, {"loss": 1.5}]]


EXPLICIT = """
import trainer_shim
trial = trainer_shim.attach()
for step in range(1, 4):
    print(f"loss={step}.25")
    trial.report(step, loss=step + 0.5)
"""


def test_once_an_agent_speaks_nothing_else_counts(make_trial: MakeTrial) -> None:
    """What the shell has printed before was none of the training's."""
    script = f"echo loss=9.5; exec {sys.executable} train.py"
    trial = make_trial(EXPLICIT, argv=["/bin/sh", "-c", script]).launch()
    trial.start()
    trial.until("completed")
    assert points(trial) == {step: {"loss": step + 0.5} for step in (1, 2, 3)}


def test_no_file_and_no_line_that_cannot_be_read_ends_it(make_trial: MakeTrial) -> None:
    script = """
    printf 'epoch,val\\rloss\\n' > log.csv; : > written
    read line < gate
    echo '1,0.5' >> log.csv
    deep() { head -c $1 /dev/zero | tr '\\0' "$2"; }
    echo "{\\"a\\":$(deep 30000 '[')$(deep 30000 ']')}" > log.jsonl
    echo "{\\"a\\":$(deep 1900 '[')$(deep 1900 ']')}"
    echo loss=0.5
    """
    trial = parked_once(make_trial, script, "written")
    trial.until("completed")
    assert points(trial) == {1: {"loss": 0.5}}


def test_a_long_flood_of_bytes_that_are_no_text_is_read_on(make_trial: MakeTrial) -> None:
    script = "head -c 3000000 /dev/urandom; echo; echo loss=0.5"
    trial = shell(make_trial, script)
    trial.start()
    trial.until("completed")
    assert points(trial)[max(points(trial))]["loss"] == 0.5


def test_of_a_flood_of_steps_each_counts_and_few_are_kept(make_trial: MakeTrial) -> None:
    trial = shell(make_trial, "seq 25000 | sed 's/$/.5/; s/^/loss=/'")
    trial.start()
    ended = trial.until("completed")
    assert (ended["step"], ended["metrics"]["loss"]) == (25_000, 25_000.5)
    reports = [event for event in trial.events if event.get("points")]
    assert len(reports) >= 3
    assert sum(event["signal"]["count"] for event in reports) == 25_000
    assert max(len(event["points"]) for event in reports) <= 256
