"""Studies, trials, nodes and slots, with the indexes that decisions need.

Every change of a trial or a slot goes through `put` or `put_slot`, which keep the indexes up to
date.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from operator import is_, itemgetter
from typing import TypeVar, overload

from hermesd.core.fast_replace import replace
from hermesd.core.model import (
    Device,
    DeviceId,
    Node,
    NodeId,
    Phase,
    Place,
    Plugin,
    Pool,
    PoolId,
    RunId,
    Slot,
    Study,
    StudyId,
    Time,
    TrialId,
    UserId,
)
from hermesd.core.policy import FEWEST_EARLIER, HISTORY, SHARED, Earlier, Facts
from hermesd.core.sharing import HALF_LIFE_SECONDS, USUAL, Account, Terms
from hermesd.core.speeds import Evidence, Speeds, differs
from hermesd.core.tree import parting, path_of, turns
from hermesd.core.trial import Exclusion, Quarantined, Run, Strike, Trial, remembered
from hermesd.core.widths import pinned, wider

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)

# Which checkpoints lie on too few nodes, found without looking at every trial.
#
# A checkpoint has as many copies as its study wants if so many nodes that are neither lost
# nor to be emptied have it beside one. What lies only on nodes that go for good is copied in any
# case.

# Their results are of no use to anybody, unless a person wants them to go on.
_GIVEN_UP = (Phase.FAILED, Phase.CANCELLED)
# What these showed says what their parameters come to.
_CAME_TO_END = (Phase.COMPLETED, Phase.STOPPED)
# No more studies are remembered than these.
MOST_EARLIER = 8
# The parameters of a study are those of so many of its trials.
NAMED = 64


@dataclass(slots=True)
class CopyIndex:
    """Which checkpoints are to be copied. All of it follows from the trials and nodes: nothing of
    it is kept anywhere."""

    #: The trials whose newest checkpoint lies on each node.
    lying: dict[NodeId, dict[TrialId, None]] = field(default_factory=dict)
    #: Those that have too few copies, by the node that would give it; who has waited longest comes
    #: first.
    wanting: dict[NodeId, dict[TrialId, None]] = field(default_factory=dict)
    #: Under which node each of these is found.
    givers: dict[TrialId, NodeId] = field(default_factory=dict)
    #: The nodes that give a copy now.
    giving: dict[NodeId, TrialId] = field(default_factory=dict)
    #: The nodes that take one now.
    taking: dict[NodeId, TrialId] = field(default_factory=dict)
    #: The trials that wait for the checkpoint of another, from which they begin.
    forks: dict[TrialId, None] = field(default_factory=dict)


def rebuilt(state: Tables) -> CopyIndex:
    """The index of tables that came without it."""
    state.copies = CopyIndex()
    for trial in state.trials.values():
        note(state, None, trial)
    return state.copies


def note(state: Tables, before: Trial | None, trial: Trial) -> None:
    """A trial has changed: keep the index true."""
    if trial.awaits_fork:
        state.copies.forks[trial.id] = None
    elif (before or trial).forked is not None:
        state.copies.forks.pop(trial.id, None)
    old, new = before.checkpoint if before else None, trial.checkpoint
    flight = before.copying if before else None
    if old is None and new is None and flight is None and trial.copying is None:
        return
    if old is not new:
        for node in old.nodes if old else ():
            _take_out(state.copies.lying, node, trial.id)
        for node in new.nodes if new else ():
            state.copies.lying.setdefault(node, {})[trial.id] = None
    if flight is not trial.copying:
        if flight is not None:
            del state.copies.giving[flight.source], state.copies.taking[flight.target]
        if trial.copying is not None:
            state.copies.giving[trial.copying.source] = trial.id
            state.copies.taking[trial.copying.target] = trial.id
        else:
            # What has had its turn waits behind the others, though it has a newer one by now.
            _forget_wish(state.copies, trial.id)
    _index(state, trial)


def _index(state: Tables, trial: Trial) -> None:
    copies = state.copies
    giver = _giver(state, trial) if wants_copy(state, trial) else None
    known = copies.givers.get(trial.id)
    if giver == known:
        return
    _forget_wish(copies, trial.id)
    if giver is not None:
        copies.givers[trial.id] = giver
        copies.wanting.setdefault(giver, {})[trial.id] = None


def _forget_wish(copies: CopyIndex, trial: TrialId) -> None:
    known = copies.givers.pop(trial, None)
    if known is not None:
        _take_out(copies.wanting, known, trial)


def _take_out(table: dict[Key, dict[TrialId, T]], key: Key, trial: TrialId) -> None:
    trials = table.get(key)
    if trials is not None:
        trials.pop(trial, None)
        if not trials:
            del table[key]


def wants_copy(state: Tables, trial: Trial) -> bool:
    """Whether the trial's newest checkpoint lies on too few nodes that will stay."""
    checkpoint, replicas = trial.checkpoint, state.studies[trial.spec.study].replicas
    if checkpoint is None or trial.phase in _GIVEN_UP:
        return False
    known = [state.nodes[node] for node in checkpoint.nodes if node in state.nodes]
    staying = sum(not (node.lost or node.draining or node.parting) for node in known)
    if replicas:
        return staying <= replicas
    return not staying and any(node.parting for node in known)


def only_leaving(state: Tables, trial: Trial) -> bool:
    """Whether the trial's newest checkpoint is of use, and goes with nodes that go for good."""
    if trial.checkpoint is None or trial.phase in _GIVEN_UP:
        return False
    known = [state.nodes[node] for node in trial.checkpoint.nodes if node in state.nodes]
    return not any(not (node.lost or node.parting) for node in known)


def left_behind(state: Tables, node: NodeId) -> int:
    """How many trials run on a node, or have there alone what they would go on from.

    Asked each second: what is parked there, the node knows by itself.
    """
    slots = (state.slots[device] for device in state.nodes[node].devices)
    there = {slot.run.trial for slot in slots if slot.run is not None}
    lying = state.copies.lying.get(node, ())
    return len(there | {each for each in lying if only_leaving(state, state.trials[each])})


def _giver(state: Tables, trial: Trial) -> NodeId | None:
    """The first node that has the newest checkpoint and is there."""
    nodes = trial.checkpoint.nodes if trial.checkpoint else ()
    there = (node for node in nodes if node in state.nodes and state.nodes[node].connected)
    return next(there, None)


def node_changed(state: Tables, node: NodeId) -> None:
    """A node came, went, or is to be emptied: copies that were under way to or from it are void."""
    copies = state.copies
    under_way = {copies.giving.get(node), copies.taking.get(node)}
    for trial_id in sorted(each for each in under_way if each is not None):
        state.put(replace(state.trials[trial_id], copying=None))
    state.severed = {way: until for way, until in state.severed.items() if node not in way}
    for trial_id in list(copies.lying.get(node, ())):
        _index(state, state.trials[trial_id])


def forget(state: Tables, trial: Trial) -> None:
    """The trial is removed, with all its files wherever they are."""
    note(state, trial, replace(trial, checkpoint=None, copying=None, forked=None))
    if trial.spec.root:
        _forget_riding(state, trial)
        _note_saved(state.riding, trial, None)
    state.copies.forks.pop(trial.id, None)


# Which trials ride on which, found without looking at every trial.


@dataclass(slots=True)
class RidingIndex:
    """Which trials may ride on which. All of it follows from the trials, so none of it is
    stored."""

    #: The trials of each root.
    kin: dict[str, dict[TrialId, None]] = field(default_factory=dict)
    #: What of them may be gone on from, the furthest first: by the root and the mark of the last
    #: turn before it, the step of each below 0, its name, and whose it is.
    saved: dict[tuple[str, int], list[tuple[int, str, TrialId]]] = field(default_factory=dict)
    #: Those of them that have failed by themselves.
    failed: dict[str, dict[TrialId, None]] = field(default_factory=dict)
    #: Those of them that are unfinished and ride on nobody, by the root and the mark of the last of
    #: their `turns`.
    leading: dict[tuple[str, int], dict[TrialId, None]] = field(default_factory=dict)
    #: Those that ride on a trial, each with the step where it parts from that.
    riders: dict[TrialId, dict[TrialId, int | None]] = field(default_factory=dict)
    #: Those that have changed and that nobody has looked at since.
    moved: dict[TrialId, None] = field(default_factory=dict)


def riding_of(state: Tables) -> RidingIndex:
    """The index of tables that came without it."""
    state.riding = RidingIndex()
    for trial in state.trials.values():
        if trial.spec.root:
            _note_riding(state, None, trial)
    state.riding.moved.clear()
    return state.riding


def _note_riding(state: Tables, before: Trial | None, trial: Trial) -> None:
    """A trial that has a root, or had one, has changed: keep the index true."""
    riding, root = state.riding, trial.spec.root
    if before is not None and _way_of(before) != _way_of(trial):
        _forget_riding(state, before)
    _note_saved(riding, before, trial)
    if not root:
        return
    riding.moved[trial.id] = None
    riding.kin.setdefault(root, {})[trial.id] = None
    if trial.phase is Phase.FAILED and trial.failures:
        riding.failed.setdefault(root, {})[trial.id] = None
    else:
        _take_out(riding.failed, root, trial.id)
    if trial.carrier is None and not trial.phase.final:
        riding.leading.setdefault((root, _mark(trial, trial.step)), {})[trial.id] = None
    else:
        _take_out(riding.leading, (root, _mark(trial, trial.step)), trial.id)
    if trial.carrier is not None and trial.id not in riding.riders.get(trial.carrier, ()):
        carrier = state.trials[trial.carrier]
        parts = parting(path_of(carrier.spec), path_of(trial.spec))
        riding.riders.setdefault(trial.carrier, {})[trial.id] = parts


def _way_of(trial: Trial) -> tuple[str, TrialId | None, int]:
    return trial.spec.root, trial.carrier, _mark(trial, trial.step)


def _note_saved(riding: RidingIndex, before: Trial | None, trial: Trial | None) -> None:
    """Keep true what a trial has that may be gone on from; most changes are of something else."""
    if before and trial and _saved_by(before) == _saved_by(trial):
        return
    was, now = _places(before), _places(trial)
    for key, place in was - now:
        saved = riding.saved[key]
        del saved[bisect_left(saved, place)]
        if not saved:
            del riding.saved[key]
    for key, place in now - was:
        insort(riding.saved.setdefault(key, []), place)


def _saved_by(trial: Trial) -> tuple[object, ...]:
    return trial.spec, trial.forked, trial.copying, trial.result, *remembered(trial)


def _places(trial: Trial | None) -> set[tuple[tuple[str, int], tuple[int, str, TrialId]]]:
    """Where the index has the checkpoints of a trial, and as what."""
    if trial is None or not trial.spec.root:
        return set()
    begin = (trial.forked,) if trial.forked else ()
    return {
        ((trial.spec.root, _mark(trial, known.step - 1)), (-known.step, known.id, trial.id))
        for known in (*remembered(trial), *begin)
    }


def _mark(trial: Trial, step: int) -> int:
    """That of the last turn of its path that a trial has come to by a step; 0 before the first."""
    passed = turns(path_of(trial.spec))
    count = bisect_right(passed, step, key=itemgetter(0))
    return passed[count - 1][1] if count else 0


def _forget_riding(state: Tables, trial: Trial) -> None:
    riding = state.riding
    for table in (riding.kin, riding.failed):
        _take_out(table, trial.spec.root, trial.id)
    _take_out(riding.leading, (trial.spec.root, _mark(trial, trial.step)), trial.id)
    if trial.carrier is not None:
        _take_out(riding.riders, trial.carrier, trial.id)
    riding.moved.pop(trial.id, None)


# Which requests are remembered, found by the part of the id that their clients chose.

REQUESTS_KEPT = 10_000


def name_of(request_id: str) -> str:
    """What the client called a request: all before what the head tells like requests apart by."""
    name, _, told_apart = request_id.rpartition(":")
    return name or told_apart


def names_of(requests: Iterable[str]) -> dict[str, str]:
    """The index of requests that came without it."""
    return {name_of(request_id): request_id for request_id in requests}


def in_service_of(state: Tables) -> dict[NodeId, int]:
    """The index of slots in service of tables that came without it."""
    nodes = (s.device.node for s in state.slots.values() if s.run or state.usable(s))
    return dict(Counter(nodes))


class Rejected(Exception):
    """An illegal entry; nothing was changed. The text says why."""


def waits_parked(trial: Trial) -> bool:
    """Whether the trial waits, and its process is what it is kept by."""
    kept = trial.kept
    return kept is not None and kept.tier.in_process and trial.phase is Phase.WAITING


class Members(Sequence[TrialId]):
    """The trials of a study, in the order in which it got them.

    One with more of them is another value, which shares what was there before with it: a study
    that gets its trials one by one copies none.
    """

    __slots__ = ("_all", "_count")

    def __init__(self, trials: Iterable[TrialId] = ()) -> None:
        #: Of which those behind `_count` are of later values.
        self._all = list(trials)
        self._count = len(self._all)

    def with_more(self, trials: Iterable[TrialId]) -> Members:
        """These, and others behind them."""
        longer = Members()
        longer._all = self._all if len(self._all) == self._count else list(self)
        longer._all.extend(trials)
        longer._count = len(longer._all)
        return longer

    def continues(self, other: Members) -> bool:
        """Whether these are the others, and maybe more behind them."""
        known = other._count <= self._count
        return known and (self._all is other._all or self._all[: other._count] == list(other))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> TrialId: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[TrialId, ...]: ...

    def __getitem__(self, place: int | slice) -> TrialId | tuple[TrialId, ...]:
        if isinstance(place, slice):
            places = range(*place.indices(self._count))
            return tuple(map(self._all.__getitem__, places))
        return self._all[range(self._count)[place]]

    def __iter__(self) -> Iterator[TrialId]:
        return islice(self._all, self._count)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Members) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What an event makes of very many trials of a study, found beside the loop."""

    #: Those that were at rest (see `Trial.is_at_rest`) and are, as they are to be.
    trials: dict[TrialId, Trial]
    #: As they were then; None: it was not there.
    before: dict[TrialId, Trial | None]
    study: StudyId = ""
    #: The study as it was then; None: it was not there.
    known: Study | None = None
    #: Whether the event opens no other trials than these, so that it is all the same whether they
    #: come before or behind what else it does.
    is_free: bool = False
    #: All that the event is about.
    effect: tuple[TrialId, ...] = ()
    #: The names of these trials.
    names: dict[TrialId, None] = field(default_factory=dict)
    #: Those of them that are to be unfinished and were not, and those that are to be over.
    opened: dict[TrialId, None] = field(default_factory=dict)
    ended: tuple[TrialId, ...] = ()
    #: Those that an index has beside those of all trials.
    indexed: tuple[TrialId, ...] = ()


NOTHING = Ahead({}, {})


class Tables:
    """Everything the head knows. Scheduler and folds read it alike; `State` alone changes it."""

    def __init__(self) -> None:
        self.now: Time = 0.0
        self.studies: dict[StudyId, Study] = {}
        self.trials: dict[TrialId, Trial] = {}
        #: Of each study another value whenever it gets trials, or those that it has other points.
        self.members: dict[StudyId, Members] = {}
        self.active: dict[StudyId, dict[TrialId, None]] = {}
        #: Those of the configuration, in its order; another dictionary after each change.
        self.pools: dict[PoolId, Pool] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.slots: dict[DeviceId, Slot] = {}
        self.facts: dict[StudyId, Facts] = {}
        self.half_life_seconds = HALF_LIFE_SECONDS
        #: Of the users who have other than the usual ones.
        self.terms: dict[UserId, Terms] = {}
        #: What users have and had.
        self.accounts: dict[UserId, Account] = {}
        #: The trials that each of the last requests of clients was about.
        self.requests: dict[str, tuple[TrialId, ...]] = {}
        #: The last of these of each name.
        self.named_requests: dict[str, str] = {}
        #: The studies whose policy has raised, and how.
        self.fallen: dict[StudyId, str] = {}
        #: When a trial of each study was last given a quantum on each device, the latest last.
        self.served: dict[StudyId, dict[DeviceId, Time]] = {}
        #: How many trials a searcher is to bring each study to that has fewer.
        self.searching: dict[StudyId, int] = {}
        #: Why the searchers of others failed.
        self.unsearched: dict[StudyId, str] = {}
        #: The runs that a node has and should not.
        self.strays: dict[tuple[NodeId, RunId], None] = {}
        #: What nodes may let go of; True: its files too.
        self.releases: dict[tuple[TrialId, NodeId], bool] = {}
        #: What is known of each device beside those of its kind.
        self.paces: dict[DeviceId, Evidence] = {}
        #: The speeds beside their kind's of those that differ from it.
        self.corrections: dict[DeviceId, float] = {}
        #: The ledger of failures by device; another dictionary after each change.
        self.strikes: dict[DeviceId, tuple[Strike, ...]] = {}
        #: Which studies are to have no more of which nodes, and why.
        self.excluded: dict[tuple[StudyId, NodeId], Exclusion] = {}
        #: The places that it is held against.
        self.quarantined: dict[Place, Quarantined] = {}
        #: The ways between two nodes that no copy could go, and until when that is believed.
        self.severed: dict[tuple[NodeId, NodeId], Time] = {}
        #: What nodes have of checkpoints to which nothing refers; True: they were told and have
        #: not answered.
        self.leftover: dict[tuple[TrialId, NodeId], bool] = {}
        #: What each node says of paths and environments.
        self.sights: dict[NodeId, dict[str, str]] = {}
        self.copies = CopyIndex()
        self.riding = RidingIndex()
        #: The trials that have changed since the scheduler last looked.
        self.dirty: dict[TrialId, None] = {}
        #: Others of which that is so, very many: all at rest.
        self.taken: dict[TrialId, None] = {}
        #: The studies of which a trial has ended since then.
        self.ended: dict[StudyId, None] = {}
        #: The slots that could take a run.
        self.free: dict[DeviceId, None] = {}
        #: How many slots of each node have a run, or could take one.
        self.in_service: dict[NodeId, int] = {}
        #: Those whose run has used up its quantum.
        self.expired: dict[DeviceId, None] = {}
        #: The trials that wait and are kept by their process.
        self.parked: dict[TrialId, None] = {}
        #: Those that wait with what maybe no node can use: an image of processes, or a checkpoint
        #: that is of one number of devices alone.
        self.demanding: dict[TrialId, None] = {}
        #: What each of those misses on all nodes, and since when.
        self.missing: dict[tuple[TrialId, str], Time] = {}
        #: The trials that a suspending run makes room for.
        self.reserved: dict[TrialId, DeviceId] = {}
        #: The trials of several devices, with those that are kept for them until all are free.
        self.gathering: dict[TrialId, tuple[DeviceId, ...]] = {}

    def usable(self, slot: Slot) -> bool:
        """Whether a run may be put on the slot now."""
        node = self.nodes.get(slot.device.node)
        return slot.run is None and slot.sound and node is not None and node.open

    def serves(self, device: Device, study: Study) -> bool:
        """Whether the device is of the study's pool."""
        return self.nodes[device.node].pool == study.pool

    def is_over(self, study: StudyId) -> bool:
        """Whether all the study's trials are final, and no searcher is to propose more."""
        return not self.active[study] and study not in self.searching

    def own_policy(self, study: StudyId) -> Plugin:
        """The policy of the study's pool; without one, the study's."""
        pool = self.pools.get(self.studies[study].pool)
        return (pool.policy if pool else None) or self.studies[study].policy

    def policy_of(self, study: StudyId) -> Plugin:
        """The study's policy; first in, first out once its own has raised."""
        return Plugin("fifo") if study in self.fallen else self.own_policy(study)

    def placement_of(self, study: StudyId) -> Plugin:
        """The placement of the study's pool; without one, the study's. A home is one device: trials
        of several have none."""
        if self.studies[study].widest > 1:
            return Plugin("free")
        pool = self.pools.get(self.studies[study].pool)
        return (pool.placement if pool else None) or self.studies[study].placement

    def earlier(self, study_id: StudyId) -> tuple[Earlier, ...]:
        """The studies before this one that have the same parameters, the latest first; of those of
        which enough trials came to an end.

        Those of other users are among them only where both studies have `history: shared`.
        """
        study, names = self.studies[study_id], self._parameters(study_id)
        if not names:
            return ()
        shared = self._shares(study_id)
        before = [
            other
            for other in self.studies.values()
            if other.submitted < study.submitted
            and (other.owner == study.owner or (shared and self._shares(other.id)))
            and self._parameters(other.id) == names
        ]
        before.sort(key=lambda other: (-other.submitted, other.id))
        found = (Earlier(other.id, self._came_to_end(other.id)) for other in before)
        told = (each for each in found if len(each.trials) >= FEWEST_EARLIER)
        return tuple(islice(told, MOST_EARLIER))

    def _came_to_end(self, study: StudyId) -> list[Trial]:
        trials = map(self.trials.__getitem__, self.members[study])
        return [each for each in trials if each.phase in _CAME_TO_END]

    def _parameters(self, study: StudyId) -> frozenset[str]:
        """The names of its trials' parameters, of which each of them may have only some."""
        specs = (self.trials[each].spec for each in self.members[study][:NAMED])
        return frozenset(name for spec in specs if spec.stages for name, _ in spec.parameters)

    def _shares(self, study: StudyId) -> bool:
        """Whether it gives what it comes to to other users' studies, and takes of theirs."""
        return dict(self.own_policy(study).settings).get(HISTORY) == SHARED

    def study(self, study: StudyId) -> Study:
        if study not in self.studies:
            raise Rejected(f"no study {study!r}")
        return self.studies[study]

    def speeds(self, study: StudyId) -> Speeds:
        """How fast devices are, as far as the study may know."""
        return Speeds(self.facts[study].speeds, self.corrections)

    def note_pace(self, device: DeviceId, log_ratio: float) -> None:
        """A device was compared with another of its kind."""
        evidence = self.paces[device] = self.paces.get(device, Evidence()).with_one(log_ratio)
        before = self.corrections.pop(device, None)
        if differs(evidence):
            self.corrections[device] = evidence.correction
        slot = self.slots[device]
        if (before is None) != (device not in self.corrections) and slot.run is not None:
            self.touch_all([slot.run.trial])  # queues have it by the sort of its device

    def forget_paces(self, devices: Iterable[DeviceId]) -> None:
        """These are no more, or other ones by the same names."""
        for device in devices:
            self.paces.pop(device, None)
            self.corrections.pop(device, None)

    def request(self, request_id: str, effect: Iterable[TrialId]) -> None:
        if request_id in self.requests:
            raise Rejected(f"request {request_id!r} was carried out before")
        self.requests[request_id] = tuple(effect)
        self.named_requests[name_of(request_id)] = request_id
        if len(self.requests) > REQUESTS_KEPT:
            oldest = next(iter(self.requests))
            del self.requests[oldest]
            if self.named_requests[name_of(oldest)] == oldest:
                del self.named_requests[name_of(oldest)]

    def is_still(self, study: Study, members: Members) -> bool:
        """Whether the study is as it was when it had these trials: what was drawn for it then would
        be drawn now."""
        return self.studies.get(study.id) is study and self.members.get(study.id) is members

    def trial(self, trial_id: TrialId) -> Trial:
        if trial_id not in self.trials:
            raise Rejected(f"no trial {trial_id!r}")
        return self.trials[trial_id]

    def node(self, node_id: NodeId) -> Node:
        if node_id not in self.nodes:
            raise Rejected(f"no node {node_id!r}")
        return self.nodes[node_id]

    def owner_of(self, trial: Trial) -> UserId:
        """Whose the trial is."""
        return self.studies[trial.spec.study].owner

    def terms_of(self, user: UserId) -> Terms:
        """What the user may have."""
        return self.terms.get(user, USUAL)

    def used_by(self, user: UserId, now: Time) -> float:
        """The user's decayed device seconds."""
        account = self.accounts.get(user)
        return account.used(now, self.half_life_seconds) if account is not None else 0.0

    def devices_of(self, user: UserId) -> int:
        """How many devices the user's trials are on."""
        account = self.accounts.get(user)
        return account.devices if account is not None else 0

    def hold(self, trial: Trial, more: int, now: Time) -> None:
        """Count that the trial's user has so many more devices, or fewer."""
        owner = self.owner_of(trial)
        account = self.accounts.get(owner, Account())
        self.accounts[owner] = account.holding(account.devices + more, now, self.half_life_seconds)

    def parked_on(self, trial: Trial) -> NodeId | None:
        """The node that has the trial's parked process; None if none is parked."""
        kept = trial.kept
        if kept is None or not kept.tier.in_process:
            return None
        return self.slots[kept.device].device.node

    def node_of(self, trial: Trial) -> NodeId | None:
        """The node that the trial is on: it runs there, or is parked. None: it is on none."""
        if trial.run is None:
            return self.parked_on(trial)
        return self.place(trial.run).node

    def made_for(self, trial: Trial) -> int:
        """How many devices what it goes on from is for: parked processes, an image of some, or a
        checkpoint that could not be used on another number; 0: it may have any."""
        kept = trial.kept
        if kept is not None and kept.tier.in_process:
            return kept.width
        return pinned(trial, self.studies[trial.spec.study])

    def fewest(self, trial: Trial, above: int = 0) -> int:
        """How many devices the trial needs, more than `above`, on which it ran out of memory; 0 if
        it may have no more."""
        study = self.studies[trial.spec.study]
        fixed = self.made_for(trial) if study.elastic else study.devices
        if fixed:
            return fixed if fixed > above else 0
        return wider(trial, study, above) if above else study.devices

    def place(self, run: Run) -> Device:
        """The first device of a run, whose node and kind are those of all of its devices."""
        return self.slots[run.devices[0]].device

    def trials_on(self, nodes: Collection[NodeId]) -> list[Trial]:
        """The unfinished trials that are on one of the nodes."""
        unfinished = [self.trials[t] for active in self.active.values() for t in active]
        return [trial for trial in unfinished if self.node_of(trial) in nodes]

    def touch_all(self, trial_ids: Iterable[TrialId]) -> None:
        """Have these looked at again as if they had changed."""
        for trial_id in trial_ids:
            self.put(replace(self.trials[trial_id]))

    def put(self, trial: Trial) -> None:
        trial_id = trial.spec.id
        before = self.trials.get(trial_id)
        self.trials[trial_id] = trial
        if trial.spec.root or (before is not None and before.spec.root):
            _note_riding(self, before, trial)
        self.dirty[trial_id] = None
        active = self.active[trial.spec.study]
        if trial.phase.final:
            if before is not None and not before.phase.final:
                self.ended[trial.spec.study] = None
            active.pop(trial_id, None)
            if (node := self.parked_on(trial)) is not None:
                self.releases.setdefault((trial_id, node), False)
        else:
            active[trial_id] = None
        if waits_parked(trial):
            self.parked[trial_id] = None
        else:
            self.parked.pop(trial_id, None)
        if trial.run is not None:
            for device in trial.run.devices:
                if trial.candidate:
                    self.expired[device] = None
                else:
                    self.expired.pop(device, None)
        self._index_saved(before, trial)

    def _index_saved(self, before: Trial | None, trial: Trial) -> None:
        """Keep the indexes true that have trials with a checkpoint; see `is_indexed`."""
        note(self, before, trial)
        study, saved = self.studies[trial.spec.study], trial.checkpoint
        is_image = saved is not None and saved.image_of != ""
        on_image = trial.before_image is not None or (is_image and not waits_parked(trial))
        demands = on_image or (study.elastic and pinned(trial, study) > 0)
        if demands and trial.phase is Phase.WAITING:
            self.demanding[trial.spec.id] = None
        else:
            self.demanding.pop(trial.spec.id, None)
            for what in ("width", "image") if self.missing else ():
                self.missing.pop((trial.spec.id, what), None)

    def is_indexed(self, before: Trial | None, trial: Trial) -> bool:
        """Whether `_index_saved` has something to do for a trial that was and is at rest."""
        if before is None:
            return trial.checkpoint is not None or trial.before_image is not None
        known, saved = before.checkpoint, trial.checkpoint
        if saved is not known or before.copying is not trial.copying:
            return True
        demands = self.studies[trial.spec.study].elastic or (saved and saved.image_of)
        given_up = (before.phase in _GIVEN_UP) is not (trial.phase in _GIVEN_UP)
        return bool(before.before_image or trial.before_image or (saved and (demands or given_up)))

    def holding(self, ahead: Ahead) -> Ahead:
        """What still is as it was found: of the trials that have not changed since."""
        if self.studies.get(ahead.study) is not ahead.known:
            return NOTHING
        same = list(map(is_, map(self.trials.get, ahead.trials), ahead.before.values()))
        if all(same):
            return ahead
        left = dict(compress(ahead.trials.items(), same))
        opened = dict.fromkeys(filter(left.__contains__, ahead.opened))
        return replace(
            ahead,
            trials=left,
            before=dict(compress(ahead.before.items(), same)),
            is_free=ahead.is_free and len(opened) == len(ahead.opened),
            names=dict.fromkeys(left),
            opened=opened,
            ended=tuple(filter(left.__contains__, ahead.ended)),
            indexed=tuple(filter(left.__contains__, ahead.indexed)),
        )

    def take(self, ahead: Ahead) -> None:
        """What an event makes of trials of which that holds; the same as to put each."""
        if not ahead.trials:
            return
        self.trials.update(ahead.trials)
        self.taken = {**self.taken, **ahead.names}
        active = self.active[ahead.study]
        active.update(ahead.opened)
        for trial_id in ahead.ended:
            del active[trial_id]
        if ahead.ended:
            self.ended[ahead.study] = None
        for trial_id in ahead.indexed:
            self._index_saved(ahead.before[trial_id], ahead.trials[trial_id])

    def put_plain(self, study: StudyId, trials: dict[TrialId, Trial]) -> None:
        """New trials, all plain: no other index has to do with them."""
        self.trials.update(trials)
        self.active[study].update(dict.fromkeys(trials))
        self.dirty.update(dict.fromkeys(trials))

    def put_slot(self, slot: Slot) -> None:
        before = self.slots.get(slot.device.id)
        if before and before.reserved and before.reserved != slot.reserved:
            self.reserved.pop(before.reserved, None)
        if slot.reserved:
            self.reserved[slot.reserved] = slot.device.id
        self.slots[slot.device.id] = slot
        self._index_slot(before, slot)

    def index(self, devices: Iterable[DeviceId]) -> None:
        for device in devices:
            self._index_slot(self.slots[device], self.slots[device])

    def _index_slot(self, before: Slot | None, slot: Slot) -> None:
        device, node = slot.device.id, slot.device.node
        counted = device in self.free or (before is not None and before.run is not None)
        if usable := self.usable(slot):
            self.free[device] = None
        else:
            self.free.pop(device, None)
        counts = usable or slot.run is not None
        if counts != counted:
            self.in_service[node] = self.in_service.get(node, 0) + counts - counted

    def serve(self, trial: Trial, devices: Iterable[DeviceId], now: Time) -> None:
        """Note that the trial is given a quantum on these devices."""
        turns = self.served.setdefault(trial.spec.study, {})
        for device in devices:
            turns.pop(device, None)
            turns[device] = now

    def free_slots(self, trial: Trial, now: Time) -> None:
        assert trial.run is not None
        self.hold(trial, -len(trial.run.devices), now)
        for device in trial.run.devices:
            slot = self.slots[device]
            busy = slot.busy_seconds + max(0.0, now - trial.run.since)
            self.expired.pop(device, None)
            self.put_slot(replace(slot, run=None, busy_seconds=busy))
