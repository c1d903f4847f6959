"""The rows that a program adds to its files are metrics; what else lies there is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.trainer_shim import torch_programs
from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.suspending import Runs, complete
from tests.trainer_shim.test_bad_moments import is_there
from tests.trainer_shim.test_side_metrics import curve, points
from trainer_shim.metrics.files import GrowingFiles


class Seen:
    """What is told of the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[dict[str, float]] = []
        self.files = GrowingFiles(str(folder), self.told.append)

    def after(self, name: str, text: str) -> list[dict[str, float]]:
        """What is told once `text` was added to a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)
        self.told.clear()
        self.files.look()
        return self.told


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path / "work")


def test_the_last_whole_row_is_told(seen: Seen) -> None:
    assert seen.after("log.csv", "epoch,val_acc,note,seconds\n") == []
    assert seen.after("log.csv", "1,0.5,good,3.5\n") == [{"val_acc": 0.5}]
    assert seen.after("log.csv", "2,0.6,,3.5\n3,0.7,,") == [{"val_acc": 0.6}]
    assert seen.after("log.csv", "3.5\n") == [{"val_acc": 0.7}]
    assert seen.after("log.csv", "") == []
    assert seen.after("runs/1/log.jsonl", '{"step": 3, "val": {"auc": 1}}\n') == [{"val.auc": 1.0}]


def test_a_table_that_is_written_at_once_is_no_log_until_it_grows(seen: Seen) -> None:
    assert seen.after("predictions.csv", "id,label\n1,0\n2,1\n") == []
    assert seen.after("predictions.csv", "3,1\n") == [{"id": 3.0, "label": 1.0}]
    assert seen.after("large.csv", "a,b\n" + "1,2\n" * 20_000) == []
    assert seen.after("plain.csv", "1,2\n3,4\n") == []
    assert seen.after("plain.csv", "5,6\n") == []


def test_a_table_that_counts_epochs_or_steps_is_a_log_at_once(seen: Seen) -> None:
    """As a short script's is, which is over before anybody looks."""
    assert seen.after("log.csv", "Epoch,acc\n1,0.5\n2,0.75\n") == [{"acc": 0.75}]
    rows = '{"acc": 0.5, "global_step": 1}\n{"acc": 0.75, "global_step": 2}\n'
    assert seen.after("log.jsonl", rows) == [{"acc": 0.75}]
    assert seen.after("other.csv", "steps_taken,acc\n1,0.5\n2,0.75\n") == []


def test_a_script_that_is_over_at_once_has_the_last_row_of_its_log(make_trial: MakeTrial) -> None:
    body = """
for epoch in range(1, 21):
    with open("log.csv", "a") as file:
        if epoch == 1:
            print("epoch,acc", file=file)
        print(f"{epoch},{epoch / 32}", file=file)
"""
    trial = make_trial(body).launch()
    trial.start()
    assert trial.until("completed")["metrics"] == {"acc": 20 / 32}


def test_what_was_there_before_is_not_told(seen: Seen) -> None:
    seen.after("log.csv", "epoch,acc\n")
    seen.after("log.csv", "1,0.5\n")
    seen.files.begin()
    assert seen.after("other.txt", "acc,1\n") == []
    assert seen.after("log.csv", "2,0.75\n") == [{"acc": 0.75}]


def test_a_file_that_is_begun_anew_is_another(seen: Seen) -> None:
    seen.after("log.csv", "epoch,acc\n1,0.5\n")
    seen.after("log.csv", "2,0.6\n")
    (seen.folder / "log.csv").unlink()
    assert seen.after("log.csv", "step,f1\n7,0.25\n") == [{"f1": 0.25}]


DEEP = '{"a":' + "[" * 30_000 + "]" * 30_000 + "}"


def test_what_cannot_be_read_is_no_row_and_keeps_no_other_from_being_told(seen: Seen) -> None:
    seen.after("other.csv", "epoch,val_acc\n")
    seen.after("odd.csv", "epoch,val\rloss\n")
    with (seen.folder / "odd.csv").open("a") as file:
        file.write("1,0.5\n")
    assert seen.after("other.csv", "1,0.5\n") == [{"val_acc": 0.5}]
    assert seen.after("log.jsonl", f"{DEEP}\n") == []
    assert seen.after("log.jsonl", '{"val_acc": 0.75}\n') == [{"val_acc": 0.75}]
    (seen.folder / "bytes.jsonl").write_bytes(b'{"f1": "\xff"}\n')
    assert seen.after("bytes.jsonl", "") == []
    assert seen.after("bytes.jsonl", '{"f1": 0.25}\n') == [{"f1": 0.25}]


def test_whatever_goes_wrong_with_a_file_ends_nothing(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []

    def tell(values: dict[str, float]) -> None:
        told.append(values)
        raise RuntimeError("whatever goes wrong")

    files = GrowingFiles(str(tmp_path), tell)
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_text('{"f1": 0.5}\n')
    files.look()
    assert told == [{"f1": 0.5}] * 2


def test_links_and_hidden_folders_are_not_looked_through(seen: Seen, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log.csv").write_text("epoch,acc\n1,0.5\n")
    seen.folder.mkdir()
    (seen.folder / "data").symlink_to(tmp_path / "data")
    assert seen.after(".cache/log.csv", "epoch,acc\n1,0.5\n") == []


ALONE = """
import csv, os
with open("log.csv", "a", newline="", buffering=1) as file:
    rows = csv.DictWriter(file, ["epoch", "acc", "rate"])
    rows.writeheader()
    for epoch in range(1, 21):
        rows.writerow({"epoch": epoch, "acc": epoch / 32, "rate": 0.5})
        if epoch in (1, 10):
            if os.fork() == 0:
                os._exit(0)
            os.wait()
            open(f"wrote-{epoch}", "w").close()
            open(f"gate-{epoch}").close()
"""


def test_a_script_of_no_framework_is_seen_by_its_rows_alone(make_trial: MakeTrial) -> None:
    """It prints nothing, and forks; its rows come while it waits, and the last at its end."""
    trial = make_trial(ALONE, parameters={"rate": 0.5})
    work = trial.directory / "work"
    for epoch in (1, 10):
        # One each: the first may not be shut yet when the program comes to the second.
        os.mkfifo(work / f"gate-{epoch}")
    trial.launch()
    trial.start()
    for epoch in (1, 10):
        is_there(work / f"wrote-{epoch}")
        while epoch / 32 not in curve(trial, "acc").values():
            trial.until("reported")
        (work / f"gate-{epoch}").write_text("")
    assert trial.until("completed")["metrics"] == {"acc": 20 / 32}
    assert list(curve(trial, "acc").values())[-1] == 20 / 32
    assert all(values.keys() == {"acc"} for values in points(trial).values())


LOOP = """
import csv, json, trainer_shim
trial = trainer_shim.attach()
first = int(open(trial.resume.path + "/step").read()) if trial.resume else 0
def save(folder):
    with open(folder + "/step", "w") as file:
        file.write(str(step))
for step in range(first + 1, 7):
    with open("log.jsonl", "a") as file:
        print(json.dumps({"step": step, "val_acc": step / 8, "rate": 0.5}), file=file)
    trial.report(step, loss=1 / step, save=save)
"""


def test_rows_before_a_checkpoint_are_not_told_after_it(make_trial: MakeTrial) -> None:
    """Whatever was done since the checkpoint, the log is again what it was then."""
    trial = make_trial(LOOP, parameters={"rate": 0.5}).launch()
    trial.start(limit=2)
    trial.until("parked")
    trial.send("checkpoint", id="at-2")
    checkpoint = trial.until("checkpointed")["path"]
    trial.resume(limit=4)
    trial.until("parked")
    trial.suspend("kill")
    trial.until("suspended")
    assert curve(trial, "val_acc")[4] == 0.5
    trial.start(restore=checkpoint)
    trial.until("completed")
    assert all(values.keys() <= {"loss", "val_acc"} for values in points(trial).values())
    told = [event for event in trial.events if event["kind"] == "reported"]
    assert {name for event in told for name in event.get("sampled", ())} == {"val_acc"}
    assert all(value == step / 8 for step, value in curve(trial, "val_acc").items())
    assert {2, 4, 6} <= curve(trial, "val_acc").keys()


TORCH = torch_programs.program(
    "import csv\n"
    + torch_programs.USUAL.replace(
        "    scheduler.step()\n",
        "    scheduler.step()\n"
        "    with open('log.csv', 'a', newline='') as file:\n"
        "        writer = csv.DictWriter(file, ['epoch', 'loss', 'val_acc'])\n"
        "        if epoch == 1:\n"
        "            writer.writeheader()\n"
        "        writer.writerow({'epoch': epoch, 'loss': 7.5, 'val_acc': accuracy})\n",
    ),
    seeded=True,
)


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_a_row_after_a_pass_is_of_its_last_step(tmp_path: Path) -> None:
    """As quickly as passes come, and of a program that is run again from a checkpoint, too."""
    runs = Runs(None, tmp_path, TORCH)
    with runs.trial("undisturbed") as trial:
        trial.start()
        trial.until("completed")
        whole = points(trial)
    assert curve(trial, "val_acc").keys() == {7, 14, 21}
    assert all(values["loss"] < 7 for values in whole.values())
    with runs.trial("suspended") as trial:
        complete(trial, 7, 10, 14)
        assert points(trial) == whole
