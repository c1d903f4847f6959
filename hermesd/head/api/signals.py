"""Has policies read another metric, if a person says so, or if no trial reports a `loss`.

Without a signal all trials look alike and run in the order of submission. So if nobody has said
what to read and only one metric can be meant (`notices.meant`), it is chosen once a trial has had a
whole quantum to show what it reports. A person's choice, before or after, is never replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from hermesd.core.events import Event, SignalChosen
from hermesd.core.losses import Chunk
from hermesd.core.model import Goal, Study, StudyId, Time, TrialId, UserId, study_of
from hermesd.core.state import State
from hermesd.core.trial import MetricSummary
from hermesd.head.api.notices import meant
from hermesd.head.api.ranking import reported
from hermesd.head.api.requests import PART, carry_out
from hermesd.head.journal import points
from hermesd.head.loop import Head, PreparedEvent, ReadOnly
from hermesd.head.reader import SMALL
from hermesd.head.refusals import NotNow
from hermesd.logs import get_logger
from hermesd.pieces import Pieces
from hermesd.record import lengthened

log = get_logger()

LOOK_SECONDS = 1.0
# No study of more trials is read anew unasked: that is one entry, folded in one go.
MOST_TRIALS = 2_000
# So often what was reported meanwhile is read as well; where that never ends, the rest is left out.
ROUNDS = 4

# A metric, and which of its values are better.
Signal: TypeAlias = tuple[str, Goal]


class _Behind(Exception):
    """Trials have reported more of the metric than was read."""


async def read_instead(
    head: Head,
    user: UserId,
    study_id: StudyId,
    key: str,
    choose: Callable[[State], Signal],
    reason: str = "",
) -> None:
    """Have policies read the metric that `choose` gives; the curves are made in the reader's
    thread, when it is the user's turn.

    Raises NotNow if it gives another one at last, whatever it raises, and as `carry_out`.
    """
    metric, goal = signal = choose(head.state)
    seen: dict[TrialId, MetricSummary] = {}
    made: Event | PreparedEvent | None = None

    def compose(
        made: Event | PreparedEvent, is_last: bool, state: State, now: Time
    ) -> Event | PreparedEvent:
        if choose(state) != signal:
            raise NotNow(f"the signal of {study_id} was changed meanwhile: try again")
        if not is_last and _behind(state, study_id, metric, seen):
            raise _Behind
        return made

    for left in reversed(range(ROUNDS)):
        behind = _behind(head.state, study_id, metric, seen)
        curves: dict[TrialId, tuple[Chunk, ...]] = {}
        for start in range(0, len(behind), PART):
            part = behind[start : start + PART]
            seen.update(part)
            found = {trial: await head.journal.pieces(trial, metric) for trial, _ in part}
            curves |= await head.reader.do(user, partial(_curves, found, goal))
        try:
            told = tuple((trial, curve) for trial, curve in curves.items() if curve)
            event = SignalChosen(study_id, metric, goal, told, key, reason)
            if made is not None:  # while it was prepared, some of them went on
                made = _with_more(made, event)
            elif len(head.state.members.get(study_id, ())) > SMALL:
                made = await head.prepare(user, event)
            else:
                made = event
            await carry_out(head, key, partial(compose, made, not left))
        except _Behind:
            continue
        return


def _with_more(made: Event | PreparedEvent, more: SignalChosen) -> Event | PreparedEvent:
    """The event with what was reported since: of the curves of a trial the last one counts."""
    known = made.event if isinstance(made, PreparedEvent) else made
    assert isinstance(known, SignalChosen)
    event = replace(known, curves=(*known.curves, *more.curves))
    if not isinstance(made, PreparedEvent):
        return event
    # What was found of these is of what was read before, though they may rest since.
    told = dict.fromkeys(made.ahead.before.keys() & dict(more.curves).keys())
    ahead = replace(made.ahead, before=made.ahead.before | told)
    encoded = lengthened(made.encoded, more, "curves")
    return made._replace(event=event, ahead=ahead, encoded=encoded)


def _behind(
    state: State, study_id: StudyId, metric: str, seen: Mapping[TrialId, MetricSummary]
) -> list[tuple[TrialId, MetricSummary]]:
    """The trials of which the metric is not what was seen of it, and what it is."""
    known = ((t, state.trials[t].metrics.get(metric)) for t in state.members.get(study_id, ()))
    return [(t, now) for t, now in known if now is not None and now is not seen.get(t)]


def _curves(
    found: Mapping[TrialId, Sequence[points.Piece]], goal: Goal
) -> Pieces[dict[TrialId, tuple[Chunk, ...]]]:
    """What trials have reported of a metric, as policies read it."""
    curves: dict[TrialId, tuple[Chunk, ...]] = {}
    for trial, pieces in found.items():
        yield
        curves[trial] = points.losses(points.curve(pieces), goal, 0)
    return curves


@dataclass(slots=True)
class Signals:
    """Looks at the studies whose running trials report something, but not what policies read."""

    head: Head
    # The identities of those to which that is to happen no more.
    _settled: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Work until cancelled."""
        seq = -1
        while True:
            seq = await self.head.beyond(seq)
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Choose for all studies for which that is to be done now."""
        for study in self._silent():
            await self._choose(study)
        self._settled &= {study.identity for study in self.head.state.studies.values()}

    def _silent(self) -> list[Study]:
        state = self.head.state
        runs = (slot.run for slot in state.slots.values() if slot.run is not None)
        trials = (state.trials[run.trial] for run in runs if run.trial in state.trials)
        found = {each.spec.study: None for each in trials if each.metrics and not each.curve}
        studies = [state.studies[each] for each in found]
        return [each for each in studies if each.identity not in self._settled]

    async def _choose(self, study: Study) -> None:
        state, past = self.head.state, set[str]()

        def choose(state: State) -> Signal:
            if (now := state.studies.get(study.id)) is None or now.identity != study.identity:
                raise NotNow("it was removed")
            if (found := unasked(state, now, past)) is None:
                raise NotNow("nothing is to be chosen, or not yet")
            return found

        key, why = f"signal:{study.identity}", f"no trial has reported {study.signal}"
        try:
            choose(state)
            names = await self.head.journal.metrics_of(state.members[study.id])
            past.update(*names.values())
            await read_instead(self.head, study.owner, study.id, key, choose, why)
        except (NotNow, ReadOnly):
            if past:  # what has been reported stays so
                self._settled.add(study.identity)
        except Exception:  # its policy goes on without: no other study is to suffer for its rows
            log.exception("what policies are to read could not be chosen", study=study.id)
            self._settled.add(study.identity)


def unasked(state: State, study: Study, past: Collection[str] = ()) -> Signal | None:
    """What policies are to read of a study though nobody has said so; None: what they read now.

    `past` is what trials have reported before they began anew."""
    members = state.members[study.id]
    if len(members) > MOST_TRIALS:
        return None
    trials = [state.trials[trial] for trial in members]
    tried = any(each.metrics and (each.explored or each.phase.final) for each in trials)
    if not tried or any(each.curve for each in trials):
        return None
    # What a trial has come to is that of its kin as well, whose studies may read the loss.
    kin = (state.riding.kin.get(root, ()) for root in {each.spec.root for each in trials})
    if any(study_of(trial) != study.id for alike in kin for trial in alike):
        return None
    return meant(state, study, {*past, *reported(trials)})
