"""What a tool's diary comes to, by hand; and that every tool gets the trials that Hermes gets.

The programs of a framework are not run here: each tool's run of them in the benchmark says how far
its losses are from the loop's.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import COLUMNS, KINDS, Run, Search, rows, validation
from benchmarks.peers.race import Note, race_of, read_diary, truth_of
from benchmarks.peers.training import MODELS, ON_GPU, Diary, points
from hermesctl.study_file.submission import from_data
from hermesd.study.submission import Submission, draft

# Four trials of two epochs; the third is good and best, in the loop one after the other.
LOSSES = {0: (1.0, 0.9), 1: (0.8, 0.7), 2: (0.5, 0.2), 3: (0.9, 0.3)}
LOOP = [
    Note(trial, epoch, loss, 2.0 * trial + epoch)
    for trial, losses in LOSSES.items()
    for epoch, loss in enumerate(losses, 1)
]


def test_the_loop_says_what_is_good() -> None:
    truth = truth_of(LOOP)
    assert (truth.theta, truth.good, truth.best) == (0.2, (2,), 2)
    assert truth.losses[3] == (0.9, 0.3)


def test_the_loop_itself_finds_everything() -> None:
    race = race_of(LOOP, truth_of(LOOP), 8.5)
    assert (race.first_good, race.mean_good, race.found, race.best) == (6.0, 6.0, 1, 6.0)
    assert (race.total, race.regret, race.trained, race.killed_good) == (8.5, 0.0, 4, 0)
    assert (race.epochs, race.differs) == (8, 0.0)


def test_a_tool_that_kills_the_best_trial_regrets_it() -> None:
    notes = [note for note in LOOP if note.trial != 2 or note.epoch == 1]
    race = race_of(notes, truth_of(LOOP), 7.0)
    assert (race.first_good, race.mean_good, race.found, race.best) == (None, None, 0, None)
    assert race.regret == pytest.approx(0.1)
    assert (race.trained, race.killed_good, race.epochs) == (3, 1, 7)


def test_a_tool_that_finishes_nothing_has_no_regret_to_tell() -> None:
    race = race_of([note for note in LOOP if note.epoch == 1], truth_of(LOOP), 4.0)
    assert (race.regret, race.trained, race.killed_good) == (None, 0, 1)


def test_other_losses_than_the_loops_are_told() -> None:
    race = race_of([Note(1, 1, 0.85, 1.0), *LOOP], truth_of(LOOP), 9.0)
    assert race.differs == pytest.approx(0.05)


def test_a_diary_is_read_as_it_was_written(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary")
    diary.note(3, 1, 0.5)
    diary.note(3, 2, 0.25)
    first, second = read_diary(tmp_path / "diary", begun=0.0)
    assert (first.trial, first.epoch, first.val_loss) == (3, 1, 0.5)
    assert (second.epoch, second.val_loss) == (2, 0.25)
    assert 0 < first.seconds <= second.seconds


def test_the_validation_losses_of_an_export_are_by_trial_and_step(tmp_path: Path) -> None:
    def line(metric: str, steps: list[int], values: list[float]) -> str:
        piece = {"type": "points", "trial": "s/1", "attempt": 1, "metric": metric}
        return json.dumps({**piece, "steps": steps, "values": values})

    lines = [
        line("val_loss", [90], [0.5]),
        line("loss", [1], [2.0]),
        line("val_loss", [180], [0.4]),
    ]
    (tmp_path / "export").write_text("\n".join(lines))
    assert validation(tmp_path / "export") == {"s/1": {90: 0.5, 180: 0.4}}


def test_a_median_with_a_tool_that_never_finds_anything_is_never() -> None:
    killed = [note for note in LOOP if note.trial != 2]
    run = Run(LOOP, 8.0, load=0.5, switches=4, overhead=0.01)
    found = race_of(LOOP, truth_of(LOOP), 8.0)
    never = race_of(killed, truth_of(LOOP), 6.0)
    slow = run._replace(load=2.0)
    columns = ["first_good", "total", "load", "switches"]
    for races, told in [
        ([(run, found), (slow, never)], ["never", 7.0, 2.0, 4]),
        ([(run, found), (slow, never), (run, found)], [6.0, 8.0, 2.0, 4]),
    ]:
        (row,) = rows({("cnn", "loop"): races})
        named = dict(zip(COLUMNS, row, strict=True))
        assert (named["model"], named["tool"], named["orders"]) == ("cnn", "loop", len(races))
        assert [named[column] for column in columns] == told


@pytest.mark.parametrize("model", MODELS)
def test_every_tool_gets_the_trials_that_hermes_makes_of_the_study(model: str) -> None:
    wanted = Search(model, order=3, epochs=5).wanted("best_first")
    spec = from_data(wanted.study(), wanted.directory).spec
    study, trials = draft(Submission(spec)).accepted("s", "ann", 0.0)
    made = [dict(trial.parameters) for trial in trials]
    assert made == [{**point, "epochs": 5} for point in points(model, 3)]
    assert len(made) == 16
    assert study.metric == "val_loss"


@pytest.mark.parametrize("model", KINDS)
def test_an_earlier_study_is_of_another_kind_with_other_points(model: str) -> None:
    earlier = Search(model, 0, 12).before()
    assert earlier.model in KINDS
    assert earlier.model != model
    ours, theirs = points(model, 0), points(earlier.model, earlier.order)
    assert not [point for point in theirs if point in ours]
    assert [list(point) for point in theirs] == [list(point) for point in ours]


def test_orders_have_other_trials_but_on_a_gpu() -> None:
    assert points("cnn", 0) != points("cnn", 1)
    assert points(ON_GPU, 0) == points(ON_GPU, 1)
