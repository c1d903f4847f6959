"""A study under other policies, for people. Pure functions of what the simulator said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from hermesctl.render.tables import best_value, cell, grid
from hermesctl.sdk.forecast import Forecast
from hermesctl.sdk.records import Study
from hermesctl.text import count, duration, number, one_line, percent, printable

Said: TypeAlias = Mapping[str, Any]
# A pick that ends so near the best, as a share of the way from the start, is as good as it.
NEAR = 0.02
# A study that lacked its devices for more of their time than this did not have them to itself.
AWAY = 0.1
# How many of the studies that ran meanwhile are named.
_NAMED = 3
# What the figure `near_best` means.
WITHIN = "the best so far is within 2 % of the way from the start of the best of all"


def replay_view(replay: Said, study: Study, wide: bool) -> RenderableType:
    """Times under each policy beside the real ones, and what each would have ended, of a study."""
    parts: list[RenderableType] = [_head(replay, study), Text(), _times(replay)]
    if why := replay["happened"]["unsimulated"]:
        parts.append(cell(f"the study's own policy is not simulated: {one_line(why)}", "yellow"))
    if words := shared(replay):
        parts.append(cell(words, "yellow"))
    if (error := replay["happened"]["error"]) is not None:
        words = f"simulated, a trial ends {percent(error)} off its real end (median)"
        parts.append(cell(words, "dim"))
    for policy in replay["policies"]:
        parts += [Text(), cell(verdict(replay, policy), "bold"), *_ended(replay, policy, wide)]
    return Group(*parts)


def replay_rows(replay: Said) -> list[dict[str, Any]]:
    """Every trial under every policy, a row each."""
    return [
        {"policy": policy["policy"], **trial}
        for policy in replay["policies"]
        for trial in policy["given_up"]["trials"]
    ]


def verdict(replay: Said, policy: Said) -> str:
    """Whom a policy would have ended, and whether it would have been wrong, in a sentence."""
    given_up, name = policy["given_up"], policy["policy"]
    if not given_up["held_back"]:
        return f"{name} holds no trial back: it would have ended none"
    ended = f"{name} would have ended {given_up['held_back']} of {replay['trials']}"
    if given_up["held_back"] == replay["trials"]:
        ended = f"{name} would have let none of {replay['trials']} train to its end"
    if given_up["pick"] == replay["best"]:
        fate = "though not to its end" if given_up["best_held_back"] else "trained to its end"
        return f"{ended}; right: the best, {replay['best']}, stands first, {fate}"
    fate = "is among them" if given_up["best_held_back"] else "does not stand first"
    regret, share = given_up["regret"], given_up["regret_share"]
    judged = "nearly right" if share is not None and share <= NEAR else "wrong"
    worse = "ends without a loss" if regret is None else f"ends {number(regret)} worse"
    way = "" if share is None else f" ({percent(share)} of the way from the start)"
    return (
        f"{ended}; {judged}: the best, {replay['best']}, {fate}, and {given_up['pick']}, which"
        f" then stands first, {worse}{way}"
    )


def shared(replay: Said) -> str:
    """That its devices were not the study's for much of the time; empty if they were."""
    away = replay["happened"]["away_seconds"]
    whole = replay["devices_had"] * replay["happened"]["figures"]["makespan"]
    if away <= AWAY * whole:
        return ""
    with_whom = "other studies had them, or they or the trials were held back"
    if others := replay["meanwhile"]:
        named = ", ".join(others[:_NAMED]) + " …" * (len(others) > _NAMED)
        with_whom = f"meanwhile other studies ran ({named})"
    return (
        f"for {duration(away)} of {duration(whole)} of device time its trials waited for devices:"
        f" {with_whom}; a simulated study has its devices to itself, so compare simulated figures"
        " with each other, not with what happened"
    )


def _head(replay: Said, study: Study) -> RenderableType:
    trials, devices = count(replay["trials"], "trial"), count(replay["devices"], "device")
    best = f"{replay['best']}, {replay['signal']} {number(replay['best_loss'])}, smoothed"
    found = f"{trials} on {devices}; by the signal the best is {best}"
    lines = [cell(f"{replay['study']}: {found}", "bold")]
    if study.best_trial not in ("", replay["best"]):
        words = f"the leaderboard goes by {best_value(study)} of {study.best_trial}; policies and"
        lines.append(cell(f"{words} all that follows, by the signal", "dim"))
    if replay["untrained"]:
        words = f"{count(replay['untrained'], 'trial')} without a loss so far: left out"
        lines.append(cell(words, "yellow"))
    if replay["forks"]:
        words = (
            f"{replay['forks']} of {replay['trials']} forked: these have their parent's past, which"
            " a simulated trial trains anew"
        )
        lines.append(cell(words, "yellow"))
    if replay["partly"]:
        words = (
            f"{replay['partly']} of {replay['trials']} not trained to the end: nobody knows what"
            " these would have shown later"
        )
        lines.append(cell(words, "yellow"))
    return Group(*lines)


def _times(replay: Said) -> RenderableType:
    headers = ("", ">good, mean", ">within 2 %", ">best trained", ">all done", ">switches")
    table = grid(*headers, spared=("switches",))
    happened = replay["happened"]
    rows = [(f"what happened ({happened['policy']})", happened["figures"], happened["switches"])]
    if happened["simulated"] is not None:
        rows.append(
            (f"{happened['own']}, simulated", happened["simulated"], happened["simulated_switches"])
        )
    rows += [(each["policy"], each["figures"], each["switches"]) for each in replay["policies"]]
    for name, figures, switches in rows:
        times = [figures[key] for key in ("time_to_good", "near_best", "time_to_best", "makespan")]
        table.add_row(
            cell(name),
            *(cell(duration(each)) for each in times),
            cell("-" if switches is None else str(switches)),
        )
    goal = f"{replay['signal']} {number(replay['good_loss'])}"
    good = f"the mean time until the good trials, {replay['good']} of {replay['trials']}, come to"
    return Group(
        table,
        cell(f"good, mean: {good} {goal}; within 2 %: when {WITHIN}", "dim"),
    )


def _ended(replay: Said, policy: Said, wide: bool) -> list[RenderableType]:
    """The trials that it would have ended, the best first; all of them if `wide`."""
    given_up = policy["given_up"]
    if not given_up["held_back"]:
        return []
    trials = sorted(given_up["trials"], key=lambda trial: trial["rank"])
    shown = [trial for trial in trials if wide or trial["held_back"]]
    saved = percent(1 - given_up["iterations"] / replay["iterations"])
    after = f"{saved} of the iterations saved, over after {duration(given_up['seconds'])}"
    headers = (">rank", "trial", "", ">at step", ">after", "~in its words", ">then", ">in the end")
    table = grid(*headers, spared=("after", "in its words"), wide=wide)
    for trial in shown:
        table.add_row(
            cell(str(trial["rank"])),
            cell(trial["trial"]),
            cell("ended", "yellow") if trial["held_back"] else cell("trained", "green"),
            cell(f"{trial['step']}/{trial['steps']}"),
            cell(duration(trial["seconds"])),
            cell(printable(trial["words"])),
            cell(number(trial["loss"])),
            cell(number(trial["final_loss"])),
        )
    return [cell(after, "dim"), table]


def forecast_view(forecast: Forecast) -> RenderableType:
    """The forecast for people, or why there is none."""
    expected = forecast.expected
    if expected is None:
        return cell(forecast.reason, "dim")
    devices = count(expected["devices"], "device")
    if not forecast.attached:
        devices += " (none of which is there now)"
    earlier = f"{expected['study']} ({count(expected['trained'], 'trial')}, {forecast.likeness})"
    table = grid("|expected", "~first good", "~best within 2 %", "~best trained", "~all done")
    for policy in expected["policies"]:
        spans = [policy[key] for key in ("first_good", "near_best", "best", "all_done")]
        table.add_row(cell(printable(policy["policy"])), *(cell(_span(span)) for span in spans))
    lines: list[RenderableType] = [cell(f"on {devices}, going by {earlier}:"), table]
    good = f"the {expected['good']} best of {expected['trials']}"
    lines.append(cell(f"first good: when a trial first reaches what only {good} ever reach", "dim"))
    sooner = "sooner than the first good, if trials end close together"
    lines.append(cell(f"within 2 %: when {WITHIN}; {sooner}", "dim"))
    if any(policy["policy"].partition(":")[0] == "pbt" for policy in expected["policies"]):
        unknown = "since nothing is known of what its forks would come to"
        lines.append(cell(f"pbt: as if it replaced no trial, {unknown}", "dim"))
    if forecast.busy:
        unfinished = count(forecast.busy, "unfinished study")
        lines.append(cell(f"later, as {unfinished} will share the devices", "yellow"))
    return Group(*lines)


def _span(span: Mapping[str, float]) -> str:
    """The usual time, and the least and the most where they are others."""
    usual, least, most = (duration(span[key]) for key in ("median", "least", "most"))
    return usual if least == most else f"{usual} ({least} … {most})"
