"""What the terminal shows of one study: its status, the live view, the end.

Pure functions of records and of the room there is, apart from how a command is written.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rich.console import Group, RenderableType
from rich.text import Text

from hermesctl.invocation import command
from hermesctl.render.charts import progress_bar
from hermesctl.render.failure_views import failed_trials
from hermesctl.render.live_table import SPARK_WIDTH, TableLook, live_trials
from hermesctl.render.node_views import devices_table
from hermesctl.render.tables import (
    best_value,
    cell,
    counts_text,
    facts_table,
    grid,
    leaderboard,
    moment,
    params_text,
    policy_text,
    ranking_table,
    reads_text,
    varying,
)
from hermesctl.sdk.records import Explanation, Node, Study, StudyDetail, Trial, TrialState
from hermesctl.text import count, duration, one_line, percent, printable

_NEXT_SHOWN = 5
# A range is told if it is wider than this, and by how many trials it goes if they are fewer.
_MUCH_LONGER, _MEASURED_ENOUGH = 1.5, 4
STATUS_BAR_WIDTH, LINE_BAR_WIDTH = 30, 10


_ROOM_BESIDE_HELP = 11  # lines of a study with its first trials


@dataclass(slots=True)
class Panel:
    """What is shown of one trial instead of the table: its `output`, or `why` it is as it is."""

    kind: str
    trial: str
    content: Sequence[str] | Explanation = ("…",)


@dataclass(slots=True)
class LiveView:
    """What a live view is drawn from."""

    detail: StudyDetail
    nodes: Sequence[Node] = ()
    notice: str = ""
    #: The newest signals of each trial.
    trails: dict[str, deque[float]] = field(default_factory=dict)
    look: TableLook = field(default_factory=TableLook)
    # What keys do, where there are any; what there is to say of them; what one has shown.
    keys: Sequence[str] = ()
    help: str = ""
    panel: Panel | None = None
    is_chosen_from: bool = False

    def reported(self, trial: str, loss: float) -> None:
        """Remember one more value of a trial's signal."""
        self.trails.setdefault(trial, deque(maxlen=SPARK_WIDTH)).append(loss)


def progress_text(done: float | None, width: int) -> str:
    """A bar of so many characters and the share; a dash while it is not known."""
    return "-" if done is None else f"{progress_bar(done, width)} {percent(done)}"


def _shared_text(study: Study) -> str:
    """How many of the steps were trained, where trials have some in common."""
    if study.trained_steps >= study.steps:
        return ""
    return f", {study.trained_steps:,} of {study.steps:,} steps trained (share: tree)"


def status_view(detail: StudyDetail, said: Mapping[str, str]) -> RenderableType:
    """Counts by state, best so far, estimated end, devices, overhead.

    `said` is as in `failed_trials`.
    """
    study, trials = detail.study, detail.trials
    facts = [
        ("study", study.id),
        ("submitted", moment(study.submitted_unix_seconds)),
        ("trials", trials_text(detail)),
        ("progress", progress_text(detail.progress, STATUS_BAR_WIDTH)),
        ("pool", study.pool),
        ("policy", policy_text(study.policy_label, study.deciding)),
        ("ranked by", " · ".join(filter(None, (study.ranked_by, study.metric_reason)))),
        ("policies read", reads_text(study)),
        ("best so far", best_text(study, trials)),
        ("devices", _devices_text(trials)),
        ("device time", f"{duration(study.busy_seconds)} training{_shared_text(study)}"),
        ("overhead", overhead_text(study)),
        ("ended" if study.finished else "ends", ending_text(detail)),
    ]
    failed = failed_trials(trials, said)
    parts = [facts_table([fact for fact in facts if fact[1]]), *notices_view(study.notices)]
    return Group(*parts, *([Text(), *failed[:1]] if failed else []))


def _devices_text(trials: Sequence[Trial]) -> str:
    """Who is on which device, the devices in order: 10 after 9."""
    used = [(t.device, t.id) for t in trials if t.device]
    used.sort(key=lambda each: [p.zfill(9) for p in re.split(r"(\d+)", each[0])])
    return ", ".join(f"{device}: {trial}" for device, trial in used) or "none in use"


def notices_view(notices: Sequence[str]) -> list[RenderableType]:
    """What the author of a study should know, a line each."""
    return [cell(f"note: {one_line(words)}", "yellow") for words in notices]


def others_view(studies: Sequence[Study]) -> RenderableType:
    """Which other studies are not finished, and how each is doing."""
    table = grid("also unfinished", "trials", "|look", spared=("look",))
    for study in studies:
        look = cell(command(f"status {study.id}"), "cyan")
        table.add_row(cell(study.id), cell(counts_text(study)), look)
    return table


def trials_text(detail: StudyDetail) -> str:
    """Its counts by state, and how many trials a person holds back where it is not all of them, or
    others go on in the places of."""
    held = [t for t in detail.trials if t.paused and not t.state.final]
    replaced = sum(bool(t.replaced_by) for t in held)
    words = counts_text(detail.study)
    for number, what in ((len(held) - replaced, "paused"), (replaced, "replaced")):
        if number and not detail.study.paused:
            words += f"; {number} {what}"
    return words


def best_text(study: Study, trials: Sequence[Trial]) -> str:
    """The best trial with its value and what it is made of."""
    if not study.best_trial:
        return "no metric seen yet"
    best = next((t for t in trials if t.id == study.best_trial), None)
    params = f"  {params_text(best.params, varying(trials))}" if best else ""
    return f"{study.best_trial}  {best_value(study)}{params}"


def overhead_text(study: Study) -> str:
    """The share of device time that switching took, and how often it was done."""
    share = percent(study.overhead_share)
    return f"{share} ({count(study.preemptions, 'preemption')})"


def ending_text(detail: StudyDetail) -> str:
    """When it ended, or will at the present rate; a dash where nobody knows.

    How far that is to be trusted is said with it: between which times it is if trials differ much
    in speed, and by how few of them it goes.
    """
    study, trials = detail.study, detail.trials
    if study.finished:
        return moment(study.finished_unix_seconds)
    if study.paused:
        return f"paused; {command(f'study resume {study.id}')}"
    if study.remaining_seconds is None:
        return "-"
    least, most = study.remaining_least_seconds, study.remaining_most_seconds
    words = f"in about {duration(study.remaining_seconds)}"
    if least is not None and most is not None and most > _MUCH_LONGER * least:
        words = f"in {duration(least)} to {duration(most)}"
    measured = sum(bool(trial.steps_per_second) for trial in trials)
    if 0 < measured < min(_MEASURED_ENOUGH, len(trials)):
        words += f", going by {measured} of {count(len(trials), 'trial')}"
    return words


def live_view(live: LiveView, width: int, height: int) -> RenderableType:
    """The live picture, in at most `height` lines where the trials are many."""
    detail = live.detail
    study, trials = detail.study, detail.trials
    head = Text(overflow="ellipsis", no_wrap=True)
    head.append(printable(study.id), style="bold")
    head.append(f"  {trials_text(detail)}", style="dim")
    done = detail.progress
    bar = Text(progress_bar(done or 0.0, max(10, min(40, width - 40))), style="green")
    bar.append(f"  {percent(done)}  {printable(ending_text(detail))}", style="not green")
    lines: list[RenderableType] = [head, bar]
    room = max(3, height - 8)
    lines.append(live_trials(detail, live.trails, width, room, live.look, live.is_chosen_from))
    upcoming = [f"{printable(t)}" for t in detail.next_up[:_NEXT_SHOWN]]
    lines.append(_line("next up", ", ".join(upcoming) or "-"))
    lines.append(_line("best", best_text(study, trials)))
    lines.append(_line("switching", overhead_text(study)))
    if live.notice:
        notice = Text(printable(live.notice), style="bold yellow")
        notice.no_wrap, notice.overflow = True, "ellipsis"
        lines.append(notice)
    return Group(*lines)


def progress_line(detail: StudyDetail) -> Text:
    """How far a study is, in a line among those of its events."""
    line = Text(f"{'':>17}{printable(detail.study.id):<20} ", style="dim")
    parts = (
        progress_text(detail.progress, LINE_BAR_WIDTH),
        trials_text(detail),
        f"best {best_text(detail.study, detail.trials)}",
        f"ends {ending_text(detail)}",
    )
    line.append(f"{'progress':<16} {printable(' · '.join(parts))}", style="not dim")
    return line


def top_view(live: LiveView, width: int, height: int) -> RenderableType:
    """The devices and who is on them, then the study."""
    devices = [device for node in live.nodes for device in node.devices]
    keys = _wrapped(live.keys, width) + live.help.splitlines()
    below = [Text("\n".join(keys), style="dim", no_wrap=True, overflow="ellipsis")] if keys else []
    if live.panel is not None:
        # Above it: what there is no room for is cut at the bottom.
        return Group(*below, _panel_view(live.panel, height - len(keys) - 1))
    rest = height - len(devices) - 2 - len(keys)
    if live.help and rest < _ROOM_BESIDE_HELP:
        return Group(*below)
    study = live_view(live, width, rest)
    return Group(devices_table(devices, live=True), Text(), study, *below)


def _panel_view(panel: Panel, height: int) -> RenderableType:
    """What the trial printed last, or why it is as it is, in so many lines."""
    titles = {"output": "the end of the output of", "why": "why"}
    title = cell(f"{titles[panel.kind]} {panel.trial}", "bold")
    if isinstance(panel.content, Explanation):
        return Group(title, explanation_view(panel.content, wide=False))
    lines = [Text(printable(line), no_wrap=True, overflow="ellipsis") for line in panel.content]
    return Group(title, *lines[-max(1, height - 1) :])


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    """As few lines of these as `width` takes, with two spaces between them."""
    lines: list[str] = []
    for word in map(printable, words):
        if lines and len(lines[-1]) + 2 + len(word) <= width:
            lines[-1] += f"  {word}"
        else:
            lines.append(word)
    return lines


def final_view(
    detail: StudyDetail, best: Sequence[Trial], said: Mapping[str, str]
) -> RenderableType:
    """How a study ended: the leaderboard, the best parameters, the costs, where to look.

    `said` is as in `failed_trials`.
    """
    study = detail.study
    parts: list[RenderableType] = [
        Text(f"{printable(study.id)}: {counts_text(study)}", style="bold"),
        Text(),
        leaderboard(best, study.ranked_by, wide=False),
        *more_trials(study, len(best)),
        *_unmeasured(detail),
        *notices_view(study.notices),
        Text(),
    ]
    parts += failed_trials(detail.trials, said)
    ranked = [trial for trial in best[:1] if trial.rank is not None]
    parts.append(
        facts_table(
            [
                *(("best parameters", _params(trial, _changing(study))) for trial in ranked),
                ("preemptions", str(study.preemptions)),
                ("switch overhead", percent(study.overhead_share)),
                ("device time", duration(study.busy_seconds + study.overhead_seconds)),
            ]
        )
    )
    further = next_commands(study.id, to_look_at(best, detail.trials), ended=True)
    return Group(*parts, Text(), further)


def same_params(study: Study, trials: Sequence[Trial]) -> list[RenderableType]:
    """The hyper-parameters that a leaderboard has no columns for, as these trials do not differ in
    them; nothing if there are none."""
    columns = varying(trials)
    words = _params(trials[0], _changing(study), columns) if trials else ""
    these = " of these" if study.trial_count > len(trials) else ""
    return [cell(f"the same in all{these}: {words}", "dim")] if words else []


def _params(trial: Trial, changing: Sequence[str], left_out: Sequence[str] = ()) -> str:
    """Its hyper-parameters; of those that change while it trains the first value."""
    first = dict.fromkeys(changing, " (then by its sequence)")
    names = [name for name in trial.params if name not in left_out]
    return " ".join(params_text(trial.params, [n]) + first.get(n, "") for n in names)


def _changing(study: Study) -> list[str]:
    """The hyper-parameters that change while a trial trains."""
    axes = study.spec.get("parameters")
    known = axes.items() if isinstance(axes, Mapping) else ()
    return [name for name, axis in known if isinstance(axis, Mapping) and "sequence" in axis]


def more_trials(study: Study, shown: int) -> list[RenderableType]:
    """How many trials a leaderboard of so many leaves out, and how to see them; nothing if none."""
    more = study.trial_count - shown
    if more <= 0:
        return []
    everyone = command(f"best {study.id} -n {study.trial_count}")
    return [cell(f"… {more} more: {everyone}", "dim")]


def _unmeasured(detail: StudyDetail) -> list[RenderableType]:
    """What to do about a study that trained and reported nothing at all; nothing otherwise.

    One that reported other metrics than the one it ranks has a notice of the head's.
    """
    trials = detail.trials
    states = {t.state for t in trials if t.state.final}
    # What failed, and stopped the rest before that trained, is told as such.
    failed = TrialState.FAILED in states and TrialState.COMPLETED not in states
    if not states or failed or any(t.metric is not None or t.metrics for t in trials):
        return []
    words = (
        "no metric was seen: Hermes sees into loops of Keras, TensorFlow and PyTorch, and finds"
        " what any program prints as `name: 0.5`; or report it: trainer_shim.log(loss=...)"
    )
    return [Text(), cell(words, "yellow")]


def explanation_view(explanation: Explanation, wide: bool) -> RenderableType:
    """Why a trial runs or waits, and the policy's order with its words: the first of it and the
    trial, or all of it if `wide`."""
    is_study = "/" not in explanation.trial
    said = explanation.summary if is_study else one_line(explanation.summary)
    lines: list[RenderableType] = [cell(line, "bold") for line in said.splitlines()]
    if explanation.last_decision:
        lines.append(cell(f"last decision: {explanation.last_decision}"))
    lines.append(cell(f"policy: {explanation.policy}", "dim"))
    if explanation.earlier_studies:
        lines.append(cell(f"earlier studies: {explanation.earlier_studies}", "dim"))
    lines += notices_view(explanation.notices)
    for each in explanation.left_out:
        until = f" until {moment(each.until_unix_seconds)}" if each.until_unix_seconds else ""
        lines.append(cell(f"not on {each.place}{until}: {one_line(each.reason)}", "yellow"))
    if explanation.ranking:
        table = ranking_table(explanation, wide)
        more = len(explanation.ranking) - table.row_count
        rest = [cell(f"… and {more} more (-o wide shows all)", "dim")] if more else []
        return Group(*lines, Text(), table, *rest)
    return Group(*lines)


def to_look_at(best: Sequence[Trial], trials: Sequence[Trial]) -> Trial | None:
    """The trial that tells most of a study: its best one, or where none was measured one that was
    started at all."""
    ranked = (trial for trial in best if trial.rank is not None)
    started = (trial for trial in trials if trial.attempt)
    return next(chain(ranked, started, best), None)


def next_commands(study: str, best: Trial | None = None, *, ended: bool = False) -> RenderableType:
    """Where to look further, ready to be copied; `best` is the trial to look at."""
    study, trial = printable(study), printable(best.id if best else f"{study}/1")
    rows = [
        (command(f"best {study}"), "the leaderboard"),
        (command(f"tail {'' if ended else '-f '}{study}"), "what happened"),
        (command(f"trial show {trial}"), "one trial, with its last output"),
    ]
    if best is not None and (best.signal is not None or best.metrics):
        rows += [(command(f"trial curve {trial}"), "its loss")]
    rows += [(command(f"why {trial}"), "why it runs or waits")]
    if best is not None and best.checkpoint is not None:
        rows += [(command(f"checkpoint download {trial}"), "its files")]
    if ended and best is not None and (epochs := _more_epochs(best)):
        longer = command(f"study extend {study} --set epochs={epochs}")
        rows += [(longer, "train on, for more epochs")]
    if ended:
        if best is not None and best.signal is not None:
            replay = command(f"study replay {study}")
            rows += [(replay, "how other policies would have done")]
        everything = command(f"study export {study} --to {study}.jsonl")
        rows += [(everything, "everything, as JSON Lines")]
    else:
        rows += [(command(f"study stop {study}"), "end it; the results stay")]
    table = grid("|look further", "")
    for line, meaning in rows:
        table.add_row(cell(f"  {line}", "cyan"), cell(meaning, "dim"))
    return table


def _more_epochs(trial: Trial) -> int | str:
    """Twice what it had; a letter for a number that is on its command line alone. Empty where it
    has nothing to go on from, or nothing is known of epochs that it takes."""
    if trial.checkpoint is None or not trial.framework.startswith("keras"):
        return ""
    epochs = trial.params.get("epochs")
    if isinstance(epochs, int):
        return 2 * epochs
    return "N" if any(word.partition("=")[0] == "--epochs" for word in trial.argv) else ""


def _line(name: str, words: str) -> Text:
    text = Text(overflow="ellipsis", no_wrap=True)
    text.append(f"{name:<10}", style="dim")
    text.append(printable(words))
    return text
