"""Results for programs: what `-o json`, `yaml` and `csv` contain beyond the records themselves.

As in output.py, a key keeps its name and meaning as long as the version is 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from hermesctl.render.output import plain, row
from hermesctl.sdk.records import Leaderboard, Study, StudyDetail, Submission, Trial, TrialState
from hermesctl.yaml_text import Data


def submission_document(submission: Submission) -> dict[str, Data]:
    """What a submit led to."""
    return {
        "study": submission.study,
        "identical_to": submission.identical_to,
        "trials": [trial.id for trial in submission.trials],
        "notes": plain(submission.notes),
    }


def ending_document(detail: StudyDetail, best: Sequence[Trial]) -> dict[str, Data]:
    """How a study ended that was waited for, beside the keys of its submission."""
    failed = [trial for trial in detail.trials if trial.state is TrialState.FAILED]
    return {
        "ended": study_document(detail),
        "best": [best_row(trial) for trial in best],
        "failed": [{"id": trial.id, "reason": trial.reason} for trial in failed],
    }


def study_document(detail: StudyDetail) -> dict[str, Data]:
    """A study for programs."""
    study = detail.study
    data = row(study)
    data.update(
        devices=[{"device": t.device, "trial": t.id} for t in detail.trials if t.device],
        trials=study.trial_count,
        progress=detail.progress,
        overhead_share=study.overhead_share,
        next_up=list(detail.next_up),
        journal_sequence=detail.journal_sequence,
    )
    return data


def best_document(study: Study, trials: Leaderboard) -> dict[str, Data]:
    """The leaderboard for programs; others build on its keys. `mode` is which value of the metric
    counts: last, best, or smoothed."""
    return {
        "study": study.id,
        "metric": trials.metric,
        "goal": trials.metric_goal,
        "mode": trials.metric_mode,
        **(
            {"objectives": trials.objectives, "front": sorted(trials.front)} if trials.front else {}
        ),
        "trials": [best_row(trial) for trial in trials],
    }


def best_row(trial: Trial) -> dict[str, Data]:
    """One trial of the leaderboard for programs."""
    return {
        "id": trial.id,
        "rank": trial.rank,
        "metric": plain(trial.metric),
        "step": trial.step,
        "params": plain(trial.params),
        "state": str(trial.state),
        "fidelity": trial.fidelity,
        "preemptions": trial.preemptions,
        "overhead_share": plain(trial.overhead_share),
        "checkpoint": trial.checkpoint.id if trial.checkpoint else None,
    }


def best_columns(trial: Trial, board: Leaderboard) -> dict[str, Data]:
    """One row of the leaderboard as CSV: its value stands under the metric's own name, unless
    another column has that name. `mode` says which value that is, as in `best_document`. With
    several objectives, those follow, and whether it is on their Pareto front: under other names,
    too, where theirs are taken."""
    row = {**best_row(trial), "mode": board.metric_mode}
    name = board.metric if board.metric not in row else "metric"
    found = {(name if key == "metric" else key): value for key, value in row.items()}
    if board.front:
        last = {each.name: each.last for each in trial.metrics}
        for each in board.objectives:
            if each != board.metric:
                found[f"metrics.{each}" if each in found else each] = plain(last.get(each))
        found["pareto_front" if "front" in found else "front"] = trial.id in board.front
    return found
