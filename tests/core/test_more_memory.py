"""A trial that ran out of memory, where its study lets it have more devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermesd.core.commands import Command, Launch, Renew, Suspend, WriteDown
from hermesd.core.decide.gangs import lacks_width, rooms
from hermesd.core.decide.queue import Queues
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    Added,
    Copied,
    Event,
    Extended,
    FidelityKnown,
    NodeDrained,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    Paused,
    QuantumEnded,
    Retried,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    TermsSet,
)
from hermesd.core.model import (
    DeviceId,
    Fidelity,
    Phase,
    Plugin,
    RetryAction,
    RetryRule,
    RunId,
    Stage,
    StopRule,
    Tier,
    TrialId,
)
from hermesd.core.placement import make_placement
from hermesd.core.sharing import Terms
from hermesd.core.state import State
from hermesd.core.trial import RESTORE, Trial
from hermesd.core.widths import pinned
from hermesd.head.journal import outcomes
from hermesd.policy import make_policy
from hermesd.sim.agenda import Agenda
from tests.core.playbook import (
    LEASE,
    Playbook,
    checkpoint,
    checkpointed,
    completed,
    crashed,
    joined,
    quantum_ended,
    reported,
    run,
    started,
    submitted,
    trial_spec,
)
from tests.core.test_widths import Three

GIB = 1 << 30
TURNS = Plugin("round_robin", (("quantum_seconds", 30.0),))
RULES = (RetryRule("out of memory", RetryAction.MORE_MEMORY),)
MORE = "no other device has more memory for it"


def full(name: str, devices: int, step: int = 0) -> RunFailed:
    """As a node tells it that counts devices, or (0) one that does not yet."""
    return RunFailed(
        run(name), "exception", "out of memory", "out of memory", step, devices=devices
    )


def grown(*memory: int, most: int = 4, **changes: Any) -> Playbook:
    """A study whose trial may have from one device to `most`, and a node with such memory."""
    given = {"most_devices": most, "policy": TURNS, "retry_rules": RULES, **changes}
    return Playbook().tell(
        submitted(1, **given), joined(len(memory), memory=[GIB * each for each in memory])
    )


def test_it_goes_on_on_one_device_more_at_a_time_and_is_never_given_fewer() -> None:
    book = grown(1, 1, 1, most=3).expect("launch s/0#1 on n/0 for 30 s")
    book.tell(full("s/0#1", 1)).expect("launch s/0#2 on n/1, n/2 for 30 s")
    book.tell(full("s/0#2", 2)).expect("launch s/0#3 on n/0, n/1, n/2 for 30 s")
    book.tell(submitted(3, "t", policy=TURNS), started("s/0#3"))
    book.at(30).tell(quantum_ended("s/0#3")).heard()
    assert "and ran out of memory on 2" in book.scheduler.explain("s/0", 30).summary
    assert book.state.strikes == {}, "no device is to blame"


def test_it_is_not_resized_for_speed_once_it_has_outgrown_a_device() -> None:
    book = grown(1, 1, 1, 1, most=4)
    book.tell(started("s/0#1"), FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", "explicit"))
    book.tell(full("s/0#1", 1)).heard()
    book.tell(started("s/0#2", planned=100_000), reported("s/0#2", 1, [1.0], busy_seconds=1.0))
    book.tell(reported("s/0#2", 30, [1.0] * 29, busy_seconds=29.0))
    book.at(30).tell(quantum_ended("s/0#2", 0, 30)).expect("renew s/0#2.1 for 30 s")
    book.tell(submitted(3, "t", policy=TURNS, priority=-1)).heard()
    book.at(60).tell(quantum_ended("s/0#2", 1, 60)).expect("renew s/0#2.2 for 30 s")


def test_no_policy_has_it_wait_for_more_than_it_needs() -> None:
    book = Playbook()
    book.scheduler = Scheduler(book.state, lambda plugin: Three(), make_placement, LEASE)
    book.tell(submitted(1, most_devices=4, retry_rules=RULES), joined(2, memory=[GIB]))
    book.tell(started("s/0#1"), FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", "explicit"))
    book.tell(joined(1, "m", memory=[4 * GIB])).heard()
    book.tell(full("s/0#1", 1)).expect("launch s/0#2 on m/0 for 30 s")


def test_a_larger_device_that_is_free_is_as_good_as_several() -> None:
    grown(1, 4).tell(full("s/0#1", 1)).expect(
        "launch s/0#1 on n/0 for 30 s", "launch s/0#2 on n/1 for 30 s"
    )


def test_it_waits_for_no_larger_device_while_several_are_free() -> None:
    book = Playbook().tell(submitted(1, "t", memory_bytes=3 * GIB))
    book.tell(joined(3, memory=[GIB, GIB, 4 * GIB])).tell(started("t/0#1"))
    book.tell(submitted(1, most_devices=2, policy=TURNS, retry_rules=RULES)).heard()
    book.tell(full("s/0#1", 1)).expect("launch s/0#2 on n/0, n/1 for 30 s")


def test_where_it_has_outgrown_larger_devices_it_takes_none_of_the_smaller_alone() -> None:
    book = grown(4, most=2).tell(joined(2, "m", memory=[GIB, GIB])).tell(full("s/0#1", 1))
    book.expect("launch s/0#1 on n/0 for 30 s", "launch s/0#2 on m/0, m/1 for 30 s")


@pytest.mark.parametrize(
    ("memory", "most", "quota", "why"),
    [
        ((1, 1), 2, None, "and of at most 2 devices it may have no more than 2"),
        ((1, 1), 4, None, "and no node has 3 devices of one kind for it"),
        ((1, 1, 1), 4, 2, "and its user may have no more than 2 devices"),
    ],
)
def test_it_fails_with_the_reason_where_there_is_no_more_for_it(
    memory: Sequence[int], most: int, quota: int | None, why: str
) -> None:
    book = Playbook().tell(TermsSet(1e3, (("ann", Terms(1.0, quota)),)))
    book.tell(submitted(1, most_devices=most, policy=TURNS, retry_rules=RULES))
    book.tell(joined(len(memory), memory=[GIB * each for each in memory]))
    book.tell(full("s/0#1", 1)).tell(full("s/0#2", 2))
    assert book.trial().phase is Phase.FAILED
    assert book.trial().reason == f"out of memory ({MORE}, {why})"


def test_why_says_that_its_user_may_not_have_as_many_as_it_needs_any_more() -> None:
    book = grown(1, 1, 1, most=3).tell(full("s/0#1", 1)).tell(full("s/0#2", 2))
    book.tell(started("s/0#3"), TermsSet(1e3, (("ann", Terms(1.0, 2)),)))
    book.at(30).tell(quantum_ended("s/0#3"))
    why = book.scheduler.explain("s/0", book.now).summary
    assert ", and its user may have no more than 2 devices" in why


def test_a_node_that_is_drained_is_not_waited_for() -> None:
    book = grown(1, most=2).tell(joined(2, "m", memory=[GIB])).tell(NodeDrained("m", "r"))
    assert book.tell(full("s/0#1", 1)).trial().phase is Phase.FAILED


def test_the_parts_of_a_batch_stay_equal() -> None:
    book = Playbook()
    event = submitted(1, most_devices=4, policy=TURNS, retry_rules=RULES)
    spec = replace(trial_spec("s/0"), stages=(Stage(None, (("batch_size", 32),)),))
    book.tell(replace(event, trials=(spec,)), joined(4)).tell(full("s/0#1", 1))
    book.tell(full("s/0#2", 2)).expect(
        "launch s/0#1 on n/0 for 30 s",
        "launch s/0#2 on n/1, n/2 for 30 s",
        "launch s/0#3 on n/0, n/1, n/2, n/3 for 30 s",
    )


def trains(book: Playbook, framework: str) -> Playbook:
    """Its first run has a checkpoint of step 3."""
    book.tell(started("s/0#1"), FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", framework))
    saved = replace(checkpointed("s/0#1", 3), checkpoint=checkpoint("s/0#1", 3, 1))
    return book.tell(saved)


def test_it_takes_a_checkpoint_of_any_number_of_devices_along() -> None:
    book = trains(grown(1, 1, most=2), "torch-ddp 2.13.0").tell(full("s/0#1", 1, 4))
    assert book.heard()[-1] == "launch s/0#2 on n/0, n/1 for 30 s from s/0#1@3"


def test_a_checkpoint_of_one_number_of_devices_alone_keeps_it_from_more() -> None:
    book = trains(grown(1, 1, most=2), "torch 2.13.0").tell(full("s/0#1", 1, 4))
    assert book.trial().phase is Phase.FAILED
    assert book.trial().reason.endswith("and its checkpoint is of no use on more devices)")
    larger = trains(grown(1, 4, most=2), "torch 2.13.0").tell(full("s/0#1", 1, 4))
    assert larger.heard()[-1] == "launch s/0#2 on n/1 for 30 s from s/0#1@3"


def test_it_does_not_go_back_and_forth_when_the_larger_number_cannot_be_restored() -> None:
    book = trains(grown(1, 1, most=2), "torch-ddp 2.13.0").tell(full("s/0#1", 1, 4))
    book.tell(RunFailed(run("s/0#2"), RESTORE, "another model", "Other", 3, devices=2))
    assert book.trial().phase is Phase.FAILED
    assert "on as many devices as its checkpoint was made on, it ran out" in book.trial().reason


def test_a_checkpoint_that_is_heard_of_later_does_not_keep_it_from_more_devices() -> None:
    book = grown(1, 1, most=2).tell(started("s/0#1"))
    book.tell(FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", "torch 2.13.0"))
    book.tell(submitted(1, "t", policy=TURNS)).tell(started("t/0#1")).heard()
    book.tell(full("s/0#1", 1, 4)).expect("gather n/0, n/1 for s/0")
    book.tell(replace(checkpointed("s/0#1", 3), checkpoint=checkpoint("s/0#1", 3, 1)))
    book.at(30).tell(completed("t/0#1")).expect("launch s/0#2 on n/0, n/1 for 30 s")


# What is pinned to the number of devices of its checkpoint, and those are not there.


def grown_then_alone(framework: str) -> Playbook:
    """It ran out of memory on one device and has a checkpoint of two; then there is one, large."""
    book = grown(1, 1, 1, most=2).tell(started("s/0#1"))
    book.tell(FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", framework))
    book.tell(full("s/0#1", 1)).tell(started("s/0#2"))
    book.tell(FidelityKnown(run("s/0#2"), Fidelity.EXACT, "", framework))
    book.tell(joined(1, "m", memory=[4 * GIB])).tell(NodeDrained("n", "r")).at(30)
    book.tell(quantum_ended("s/0#2", 0, 90)).heard()
    saved = replace(checkpoint("s/0#2", 90, 2), nodes=("n", "m"))
    return book.tell(RunSuspended(run("s/0#2"), Tier.CHECKPOINT, 90, saved, 0.1))


def failed_alone() -> Playbook:
    """There its checkpoint could not be used."""
    book = grown_then_alone("torch-ddp").expect("launch s/0#3 on m/0 for 30 s from s/0#2@90")
    return book.tell(RunFailed(run("s/0#3"), RESTORE, "reset by peer", "Reset", 90, devices=1))


def test_one_failed_restore_does_not_end_a_trial_whose_devices_are_not_there_just_now() -> None:
    book = failed_alone().expect()
    assert book.trial().phase is Phase.WAITING
    book.at(89).expect().at(90).expect("launch s/0#4 on m/0 for 30 s from s/0#2@90")
    assert book.trial().checkpoint.devices == 2, "on how many it was made is not forgotten"


def test_who_waits_for_a_number_of_devices_is_asked_of_no_nodes_with_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decision takes no longer for each of many nodes, where many trials wait so."""
    book, asked = failed_alone(), Counter[str]()
    fits = Queues.fits
    book.tell(*(joined(1, f"m{number}", memory=[GIB]) for number in range(20)))

    def counted(queues: Queues, trial: Trial, device: DeviceId) -> bool:
        asked[device] += 1
        return fits(queues, trial, device)

    monkeypatch.setattr(Queues, "fits", counted)
    assert book.trial().phase is Phase.WAITING
    roomy = rooms(book.state)
    assert lacks_width(book.state, book.scheduler._queues, book.trial(), roomy)
    assert set(asked) <= {"m/0"}, "which it continues on in the end, and was found first"


def test_what_was_tried_on_fewer_goes_back_to_as_many_as_its_checkpoint_was_made_on() -> None:
    book = failed_alone().at(90).expect("launch s/0#4 on m/0 for 30 s from s/0#2@90")
    book.tell(NodeDrained("m", "r2"), RunFailed(run("s/0#4"), "lost", "gone", "", 90, devices=1))
    book.expect().tell(NodeUndrained("n", "r3"))
    book.expect("launch s/0#5 on n/1, n/2 for 30 s from s/0#2@90")


def test_what_runs_out_of_memory_on_fewer_goes_back_to_as_many() -> None:
    book = failed_alone().at(90).expect("launch s/0#4 on m/0 for 30 s from s/0#2@90")
    book.tell(started("s/0#4", 90)).tell(NodeUndrained("n", "r2")).tell(full("s/0#4", 1, 91))
    assert book.trial().phase is not Phase.FAILED, book.trial().reason


def test_what_nobody_has_tried_on_another_number_begins_anew_in_the_end() -> None:
    book = grown_then_alone("torch 2.13.0").expect()
    told = "its checkpoint is of 2 devices: if within 60 s no node has that many that its user may"
    told += " have, it goes on from the beginning"
    assert told in book.scheduler.explain("s/0", 30).summary
    book.at(89).expect().at(90).expect("launch s/0#3 on m/0 for 30 s", "drop s/0 on n")
    assert (book.trial().step, book.trial().checkpoint) == (0, None)


def waiting_fork() -> Playbook:
    """One of that trial waits for two devices, as the node that has them is drained."""
    book = grown_then_alone("torch 2.13.0")
    saved = book.trial().checkpoint
    book.tell(Added("s", (trial_spec("s/1"),), "fork", (saved,)))
    book.tell(Paused(("s/0",), "r1"), Copied("n", "s/1", saved.id)).heard()
    return book


def test_a_fork_that_cannot_begin_on_another_number_fails_after_that_time() -> None:
    book = waiting_fork().tell(joined(1))
    told = "its checkpoint is of 2 devices: if within 60 s no node has that many that its user may"
    assert f"{told} have, it fails" in book.scheduler.explain("s/1", book.now).summary
    (due,) = book.scheduler.due(book.now + 60)
    assert outcomes.unfinished(book.state, due) == ("s/1",), "so that its end is told"
    book.at(book.now + 60).expect()
    assert book.trial("s/1").phase is Phase.FAILED
    told = "its checkpoint of step 90 is of more devices than it could have"
    assert book.trial("s/1").reason == told
    book.tell(joined(2), NodeUndrained("n", "r3"), Retried(("s/1",), "r4"))
    book.expect("launch s/1#1 on n/0, n/1 for 30 s from s/1@90")


@pytest.mark.parametrize("is_lost", [False, True])
def test_it_does_not_fail_as_the_node_that_has_so_many_is_away(is_lost: bool) -> None:
    book = waiting_fork().at(1_000).tell(NodeUndrained("n", "r2"), NodeSilent("n", "cut"))
    if is_lost:
        book.tell(NodeLost("n"))
    book.at(10_000).heard()
    assert book.trial("s/1").phase is Phase.WAITING
    book.tell(joined(3)).expect("launch s/1#1 on n/0, n/1 for 30 s from s/1@90")


def test_one_that_was_extended_has_its_result_again_after_that_time() -> None:
    book = grown_then_alone("torch 2.13.0")
    saved = book.trial().checkpoint
    book.tell(NodeUndrained("n", "r1")).expect("launch s/0#3 on n/1, n/2 for 30 s from s/0#2@90")
    book.tell(started("s/0#3", 90), RunCompleted(run("s/0#3"), 90, replace(saved, attempt=3)))
    book.tell(joined(1), Extended("s", ("s/0",), StopRule(), (), (("x",),), "r3"))
    told = "that its user may have, it ends with what it came to before"
    assert told in book.scheduler.explain("s/0", book.now).summary
    book.at(book.now + 60).heard()
    assert (book.trial().phase, book.trial().step) == (Phase.COMPLETED, 90)
    assert book.trial().not_extended.endswith("is of more devices than it could have")


def test_the_number_that_a_node_tells_is_not_believed() -> None:
    """One that tells of one device for ever has the trial tried again on two for ever."""
    book = grown(1, 1, most=2).tell(full("s/0#1", 1)).tell(full("s/0#2", 1))
    assert book.trial().phase is Phase.FAILED


def test_a_fork_of_what_has_grown_has_as_many_devices() -> None:
    trial = replace(grown_then_alone("torch 2.13.0").trial(), failures=(), framework="torch 2.13.0")
    study = grown(1, most=2).state.studies["s"]
    assert pinned(trial, study) == 2
    assert pinned(replace(trial, framework="torch-ddp 2.13.0"), study) == 0


def test_a_journal_of_before_devices_were_counted_replays_as_it_was() -> None:
    """There the trial had failed for good, and what came after that was written for it."""
    book = grown(1, 1, most=2).tell(full("s/0#1", 0)).expect("launch s/0#1 on n/0 for 30 s")
    assert (book.trial().phase, book.trial().reason) == (Phase.FAILED, f"out of memory ({MORE})")


def test_a_trial_of_several_devices_is_tried_again_where_it_failed_if_it_has_nowhere_else() -> None:
    """Its other devices alone are too few, and so is a single one of another node."""
    book = Playbook().tell(submitted(1, devices=2), joined(2), joined(1, "m"))
    for attempt in (1, 2, 3):
        book.expect(f"launch s/0#{attempt} on n/0, n/1")
        error = crashed(f"s/0#{attempt}", attempt, f"error {attempt}")
        book.tell(started(f"s/0#{attempt}"), replace(error, devices=2))
    assert book.trial().phase is Phase.FAILED, "nor does it wait for where it cannot run"


# Any cluster.


@dataclass(frozen=True)
class Model:
    """What a trial is like. All in GiB and quanta."""

    memory: int
    quanta: int
    #: After so many it takes its memory.
    takes_after: int
    framework: str
    #: No other number of devices can restore its checkpoint, whatever its framework promises.
    is_stiff: bool

    @property
    def goes_anywhere(self) -> bool:
        return self.framework == "explicit" and not self.is_stiff


class Crowd:
    """Trials of a study that may grow, and others, under the production scheduler."""

    def __init__(
        self,
        nodes: Sequence[Sequence[int]],
        models: Sequence[Model],
        most: int,
        quota: int | None,
        others: int,
        tier: Tier | None,
    ) -> None:
        self.agenda = Agenda()
        self.state = State()
        self.models = {f"s/{number}": model for number, model in enumerate(models)}
        self.done: dict[TrialId, int] = {}
        self.events = 0
        self.scheduler = Scheduler(self.state, make_policy, make_placement, LEASE)
        for place, memory in enumerate(nodes):
            hello = joined(len(memory), f"n{place}", memory=[GIB * each for each in memory])
            self.tell(hello)
        self.tell(TermsSet(1e3, (("ann", Terms(1.0, quota)),)))
        study = submitted(
            len(models), most_devices=most, policy=TURNS, retry_rules=RULES, tier=tier
        )
        self.tell(study)
        self.tell(submitted(others, "t", owner="bob", policy=TURNS))

    def play(self) -> None:
        while self.agenda.step() or self.waits_out():
            assert self.events < 1000, "it goes on and on"
        self.state.check()

    def waits_out(self) -> bool:
        """Whether something was due when nothing else happened any more."""
        if (deadline := self.scheduler.deadline) is None:
            return False
        self.agenda.now = max(self.agenda.now, deadline)
        self.tell(*self.scheduler.due(self.agenda.now))
        return True

    def tell(self, *events: Event) -> None:
        self.events += len(events)
        for event in events:
            self.scheduler.observe(event, self.agenda.now)
        for command in self.scheduler.decide(self.agenda.now):
            self.carry_out(command)

    def carry_out(self, command: Command) -> None:
        match command:
            case Launch(stay, devices, checkpoint=saved):
                self.agenda.after(1.0, lambda: self.starts(stay, len(devices), saved))
            case Renew(stay, grant):
                self.agenda.after(30.0, lambda: self.trains(stay, grant))
            case Suspend(stay, tier):
                self.agenda.after(1.0, lambda: self.suspends(stay, tier))
            case WriteDown(stay):
                self.agenda.after(1.0, lambda: self.suspends(stay, Tier.CHECKPOINT))
            case _:
                pass

    def starts(self, stay: RunId, width: int, saved: str | None) -> None:
        model, trial = self.models.get(stay.trial), self.state.trials[stay.trial]
        made_on = trial.checkpoint.devices if trial.checkpoint and saved else width
        if model is not None and model.is_stiff and made_on != width:
            failed = RunFailed(stay, RESTORE, "of another number", "Other", 0, devices=width)
            return self.tell(failed)
        framework = model.framework if model is not None else "explicit"
        self.tell(
            RunStarted(stay, trial.step, 0.1),
            FidelityKnown(stay, Fidelity.EXACT, "", framework),
        )
        self.done[stay.trial] = trial.step
        return self.agenda.after(30.0, lambda: self.trains(stay, 0))

    def trains(self, stay: RunId, grant: int) -> None:
        trial = self.state.trials[stay.trial]
        if trial.run is None or trial.run.id != stay or trial.phase is not Phase.RUNNING:
            return
        model, width = self.models.get(stay.trial), len(trial.run.devices)
        step = self.done[stay.trial]
        memory = [self.state.slots[each].device.memory_bytes for each in trial.run.devices]
        needed = model.memory * GIB / width if model and step >= model.takes_after else 0
        if needed > min(memory):
            rank, words = memory.index(min(memory)), "out of memory"
            self.tell(RunFailed(stay, "exception", words, words, step, 0, rank, width))
        elif step + 1 >= (model.quanta if model is not None else 3):
            self.tell(RunCompleted(stay, step + 1))
        else:
            self.done[stay.trial] = step + 1
            # Two processes are twice as fast, so that more devices would pay as well.
            report = reported(str(stay), step + 1, [1.0], busy_seconds=30.0 / width)
            self.tell(replace(report, planned_steps=10_000), QuantumEnded(stay, grant, step + 1))

    def suspends(self, stay: RunId, tier: Tier | None) -> None:
        trial = self.state.trials[stay.trial]
        step = self.done[stay.trial]
        if tier is not Tier.CHECKPOINT:
            return self.tell(RunSuspended(stay, Tier.PARK, step, None, 0.1))
        width = len(trial.run.devices) if trial.run else trial.kept.width if trial.kept else 0
        saved = checkpoint(f"{stay.trial}#{stay.attempt}", step, width)
        device = self.state.trials[stay.trial].device_of(stay)
        node = self.state.slots[device].device.node if device else "n0"
        saved = replace(saved, nodes=(node,))
        return self.tell(RunSuspended(stay, Tier.CHECKPOINT, step, saved, 0.1))

    def could_run(self, model: Model, most: int, quota: int | None) -> bool:
        """Whether there are devices on which the trial has enough memory."""
        for width in range(1, most + 1):
            if width > 1 and quota is not None and width > quota:
                continue
            for node in self.state.nodes.values():
                memory = [self.state.slots[each].device.memory_bytes for each in node.devices]
                if sum(each * width >= model.memory * GIB for each in memory) >= width:
                    return True
        return False


@settings(max_examples=150, deadline=None)
@example([[1, 2]], [Model(3, 2, 1, "explicit", True)], 3, None, 2, None)
@given(
    nodes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3),
    models=st.lists(
        st.builds(
            Model,
            st.integers(1, 10),
            st.integers(1, 7),
            st.integers(0, 4),
            st.sampled_from(["explicit", "explicit", "torch", "torch-ddp"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    ),
    most=st.integers(2, 4),
    quota=st.sampled_from([None, None, 1, 2, 3]),
    others=st.integers(1, 4),
    tier=st.sampled_from([None, Tier.CHECKPOINT]),
)
def test_no_trial_waits_for_ever_and_none_fails_that_could_have_had_its_memory(
    nodes: list[list[int]],
    models: list[Model],
    most: int,
    quota: int | None,
    others: int,
    tier: Tier | None,
) -> None:
    crowd = Crowd(nodes, models, most, quota, others, tier)
    crowd.play()
    for trial in crowd.state.trials.values():
        assert trial.phase.final, f"{trial.id} is {trial.phase} for ever"
    for name, model in crowd.models.items():
        trial = crowd.state.trials[name]
        never = model.takes_after >= model.quanta
        could = never or crowd.could_run(model, most, quota)
        if trial.phase is Phase.COMPLETED:
            assert could
        elif model.goes_anywhere:
            assert not could, f"{name} could go on: {trial.reason}"
