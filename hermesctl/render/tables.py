"""Tables of records. Pure; every cell is made safe for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from hermesctl.invocation import command
from hermesctl.render.grid import PARAMETERS, Grid
from hermesctl.sdk.records import (
    Checkpoint,
    Explanation,
    Params,
    Study,
    Trial,
    TrialState,
    ranked_by,
)
from hermesctl.text import cut, duration, number, one_line, percent, printable, size
from hermesctl.yaml_text import Data

STATE_STYLES = {
    TrialState.WAITING: "dim",
    TrialState.STARTING: "cyan",
    TrialState.RUNNING: "green",
    TrialState.SUSPENDING: "cyan",
    TrialState.COMPLETED: "bold green",
    TrialState.FAILED: "bold red",
    TrialState.STOPPED: "yellow",
    TrialState.CANCELLED: "yellow",
}
_VALUE_LENGTH = 24
_ID_LENGTH = 16
# How much of a policy's order is shown of a study of many trials.
RUNNERS_UP = 10


def grid(
    *headers: str, spared: Sequence[str] = (), silently: bool = False, wide: bool = False
) -> Grid:
    """An unboxed table, as `Grid` has it.

    A header that begins with `>` is set to the right, with `=` names a hyper-parameter, with `|`
    has cells that are never shortened, with `~` prose.
    """
    return Grid(headers, spared, silently=silently, wide=wide)


def cell(text: str, style: str = "") -> Text:
    """A harmless cell."""
    return Text(printable(text), style=style)


def state_cell(trial: Trial) -> Text:
    """Its state, `paused` where a person holds it back, `replaced` where another goes on in its
    place, and how it is kept meanwhile; `stalled` if its program comes to no further step."""
    held = "replaced" if trial.replaced_by else "paused"
    words = held if trial.paused and not trial.state.final else str(trial.state)
    if trial.state is TrialState.WAITING and trial.kept_tier:
        words += f" ({trial.kept_tier})"
    if trial.stalled_since_unix_seconds is not None:
        return Text("stalled", style="bold red")
    return Text(words, style=STATE_STYLES[trial.state])


def step_text(trial: Trial) -> str:
    """`120/800` as planned, `120/~800` where a limit or other trials tell, and fewer; or the step
    alone while nobody knows."""
    planned, expected = trial.planned_steps, trial.expected_steps
    if planned and not 0 < expected < planned:
        return f"{trial.step}/{planned}"
    return f"{trial.step}/~{expected}" if expected else str(trial.step)


def left_text(trial: Trial) -> str:
    """How long it has still to train; a dash where nobody knows."""
    return "-" if trial.remaining_seconds is None else duration(trial.remaining_seconds)


def value_text(value: Data) -> str:
    """A hyper-parameter's value, short."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return cut("[" + ", ".join(value_text(v) for v in value) + "]", _VALUE_LENGTH)
    return cut(str(value), _VALUE_LENGTH)


def param_text(trial: Trial, name: str) -> str:
    """A hyper-parameter's value, short; a dash where the trial has none of that name: others may
    have got it when they were extended."""
    return value_text(trial.params[name]) if name in trial.params else "-"


def params_text(params: Params, names: Sequence[str] | None = None) -> str:
    """`learning_rate=0.001 optimizer=adam`, of those named or of all."""
    shown = params if names is None else {n: params[n] for n in names if n in params}
    return " ".join(f"{name}={value_text(value)}" for name, value in shown.items())


def varying(trials: Sequence[Trial]) -> list[str]:
    """The hyper-parameters in which these trials differ; all of a single trial's."""
    names = dict.fromkeys(name for trial in trials for name in trial.params)
    if len(trials) < 2:
        return list(names)
    return [n for n in names if len({repr(t.params.get(n)) for t in trials}) > 1]


def trials_table(trials: Sequence[Trial], metric: str, wide: bool) -> Grid:
    """Trials in the given order."""
    more = ("fidelity", ">preempted", ">busy", ">left", ">overhead", ">memory", "~reason")
    extra = more if wide else ()
    names = varying(trials)
    tagged = ("tags",) if any(trial.tags for trial in trials) else ()
    headers = (_id_header(trials), "|state", "device", ">step", f">{metric}", ">signal")
    parameters = [f"={name}" for name in names]
    spared = ("signal", "device", PARAMETERS)
    table = grid(*headers, *parameters, *tagged, *extra, spared=spared, wide=wide)
    for trial in trials:
        cells = [
            cell(trial.id),
            state_cell(trial),
            cell(trial.device or "-"),
            cell(step_text(trial)),
            cell(number(trial.metric)),
            cell(number(trial.signal)),
            *(cell(param_text(trial, name)) for name in names),
            *(cell(" ".join(trial.tags) or "-") for _ in tagged),
        ]
        if wide:
            cells += [
                cell(trial.fidelity or "-"),
                cell(str(trial.preemptions)),
                cell(duration(trial.busy_seconds)),
                cell(left_text(trial)),
                cell(percent(trial.overhead_share)),
                cell(size(trial.memory_bytes)),
                cell(cut(one_line(trial.reason), 60)),
            ]
        table.add_row(*cells)
    return table


def _id_header(trials: Sequence[Trial]) -> str:
    """Of their column: short names of trials are not made shorter, as people type them."""
    return "|trial" if all(len(trial.id) <= _ID_LENGTH for trial in trials) else "trial"


def leaderboard(
    trials: Sequence[Trial],
    metric: str,
    wide: bool,
    further: Sequence[str] = (),
    front: Collection[str] = (),
) -> Grid:
    """The best trials, best first, with `further` objectives; those on the `front` are marked."""
    names = varying(trials)
    extra = ("fidelity", *(("checkpoint",) if wide else ()))
    mark = ("front",) if front else ()
    others = [f">{name}" for name in further]
    head = (">rank", _id_header(trials), f">{metric}", *others, *mark, ">step", "|state")
    parameters = [f"={name}" for name in names]
    spared = ("fidelity", "overhead", "preempted", "state", PARAMETERS, "step")
    table = grid(*head, *parameters, ">preempted", ">overhead", *extra, spared=spared, wide=wide)
    for trial in trials:
        cells = [
            cell(str(trial.rank or "-")),
            cell(trial.id, "bold" if trial.rank == 1 else ""),
            cell(number(trial.metric)),
            *(cell(number(_last(trial, name))) for name in further),
            *(cell("*" if trial.id in front else "") for _ in mark),
            cell(step_text(trial)),
            state_cell(trial),
            *(cell(param_text(trial, name)) for name in names),
            cell(str(trial.preemptions)),
            cell(percent(trial.overhead_share)),
            cell(trial.fidelity or "-"),
        ]
        if wide:
            cells.append(cell(trial.checkpoint.id if trial.checkpoint else "-"))
        table.add_row(*cells)
    return table


def _last(trial: Trial, metric: str) -> float | None:
    return next((each.last for each in trial.metrics if each.name == metric), None)


def studies_table(studies: Sequence[Study], wide: bool) -> Grid:
    """Studies in the given order."""
    owned = wide or len({study.owner for study in studies}) > 1
    extra = ("pool", ">preempted", ">overhead", ">checkpoints") if wide else ()
    owner = ("owner",) if owned else ()
    headers = ("study", "submitted", "trials", "best", "best trial", "policy", *owner, *extra)
    table = grid(*headers, spared=("best trial", "submitted", "policy"), wide=wide)
    for study in studies:
        cells = [
            cell(study.id),
            cell(moment(study.submitted_unix_seconds)),
            cell(counts_text(study)),
            cell(best_value(study)),
            cell(study.best_trial or "-"),
            cell(policy_text(study.policy_label or study.policy, study.deciding)),
        ]
        if owned:
            cells.append(cell(study.owner or "-"))
        if wide:
            cells += [
                cell(study.pool),
                cell(str(study.preemptions)),
                cell(percent(study.overhead_share)),
                cell(size(study.checkpoint_bytes)),
            ]
        table.add_row(*cells)
    return table


def ranking_text(metric: str, goal: str, mode: str) -> str:
    """`val_accuracy, the highest first`, and which value counts if it is not the last."""
    order = {"minimize": "the lowest first", "maximize": "the highest first"}.get(goal, "")
    value = "by the best value of each trial" if mode == "best" else ""
    return ", ".join(filter(None, (printable(ranked_by(metric, mode)), order, value)))


def policy_text(policy: str, deciding: str) -> str:
    """What decides, and which policy should if it has failed: `fifo (asha failed)`."""
    return f"{deciding} ({policy} failed)" if deciding else policy or "-"


def reads_text(study: Study) -> str:
    """What policies read, where it is not what ranks, and how to have them read that; else
    empty. Nothing of a study that is over."""
    if study.finished or study.signal in ("", study.metric):
        return ""
    words = f"{study.signal}{' (the training loss)' * (study.signal == 'loss')}"
    stop = study.spec.get("stop")
    has_target = isinstance(stop, Mapping) and "target" in stop
    if study.metric not in study.reported or has_target:
        return words
    goal = " --goal maximize" if study.metric_goal == "maximize" else ""
    how = command(f"study signal {study.id} {study.metric}{goal}")
    return f"{words}; {how} has them read {study.metric}"


def best_value(study: Study) -> str:
    """`val_loss 0.25`; a dash while nothing was measured."""
    return "-" if study.best_metric is None else f"{study.ranked_by} {number(study.best_metric)}"


def checkpoints_table(saved: Sequence[tuple[str, Checkpoint]]) -> Grid:
    """Checkpoints with their trials, in the given order."""
    table = grid("trial", "checkpoint", ">step", ">size", "on")
    for trial, checkpoint in saved:
        table.add_row(
            cell(trial),
            cell(checkpoint.id),
            cell(str(checkpoint.step)),
            cell(size(checkpoint.size_bytes)),
            cell(", ".join(checkpoint.nodes)),
        )
    return table


def counts_text(study: Study) -> str:
    """`16: 2 running, 14 waiting`, and whether a person holds it back."""
    parts = [f"{study.counts[s]} {_held(study, s)}" for s in TrialState if study.counts.get(s)]
    words = f"{study.trial_count}: {', '.join(parts)}" if parts else "0"
    # The last of them may be on its way from its device.
    waits = study.counts.get(TrialState.WAITING)
    return f"{words} (paused)" if study.paused and not waits else words


def _held(study: Study, state: TrialState) -> str:
    return "paused" if study.paused and state is TrialState.WAITING else str(state)


def ranking_table(explanation: Explanation, wide: bool) -> Grid:
    """The policy's present order, with the trial asked about marked: who goes first and the
    runners-up, or all of them if `wide`."""
    table = grid("", "trial", "state", "~why" if wide else "why")
    for place, ranked in enumerate(explanation.ranking, start=1):
        mine = "bold" if ranked.trial == explanation.trial else ""
        if place > RUNNERS_UP and not wide and not mine:
            continue
        style = STATE_STYLES[ranked.state]
        table.add_row(
            cell(str(place)),
            cell(ranked.trial, mine),
            cell(ranked.state, style),
            cell(ranked.words),
        )
    return table


def facts_table(facts: Sequence[tuple[str, str]]) -> Table:
    """Names and what they are, one a line."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in facts:
        table.add_row(cell(name), cell(words))
    return table


def moment(unix_seconds: float | None) -> str:
    """A time in UTC to the second; a dash for none."""
    if not unix_seconds:
        return "-"
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def params_table(trial: Trial) -> Table:
    """Its hyper-parameters, one a line."""
    return facts_table([(f"  {name}", value_text(v)) for name, v in trial.params.items()])
