"""Policies of other packages: found by entry point, checked, and refused in one clear error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from hermesd.cli import REFUSED, app
from hermesd.core.commands import Launch
from hermesd.core.decide.queue import LEVELS_EACH, StudyQueue
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import NodeJoined, PolicyFailed, Submitted
from hermesd.core.model import (
    Device,
    Goal,
    MetricMode,
    Plugin,
    Program,
    Quantum,
    StopRule,
    Study,
    TrialSpec,
)
from hermesd.core.placement import Free, make_placement
from hermesd.core.policy import BadSetting, Claim, Facts, Field, Following, Planning, Score, View
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.policy import SHIPPED, make_policy
from hermesd.policy.best_first import BestFirst, TrainingOn
from hermesd.policy.check import faults
from hermesd.policy.fifo import Fifo
from hermesd.policy.plugin import GROUP, BrokenPromise, Registry, guarded
from hermesd.policy.published.asha import Asha
from tests.core.playbook import play
from tests.installed_policies import lucky_policies
from tests.policy.trials import mixed_bag, trained, trial, view


@dataclass(frozen=True)
class Newest:
    """The trial that was submitted last goes first: what a user would write."""

    name: ClassVar[str] = "newest"
    quantum_seconds: float = 5.0

    def __post_init__(self) -> None:
        if self.quantum_seconds > 100:
            raise ValueError("nobody waits that long")

    def score(self, trial: Trial) -> Score:
        return (-trial.submitted, -float(trial.spec.number))

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return Quantum(self.quantum_seconds)

    def words(self, trial: Trial) -> str:
        return f"number {trial.spec.number}"


class Exits(Newest):
    def score(self, trial: Trial) -> Score:
        sys.exit("enough")


class Loud(Newest):
    def score(self, trial: Trial) -> Score:
        raise RuntimeError("two\nlines")


class Moody(Newest):
    asked: ClassVar[list[int]] = []

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        self.asked.append(1)
        return Quantum(float(len(self.asked)))


class Meddler(Newest):
    def words(self, trial: Trial) -> str:
        trial.metrics["mine"] = None  # type: ignore[assignment]
        return "meddled"


@dataclass(frozen=True)
class Sits:
    """Plans nothing, ever."""

    name: ClassVar[str] = "sits"

    def plan(self, view: View) -> list[Claim]:
        return []

    def words(self, trial: Trial) -> str:
        return "sits"


@dataclass(frozen=True)
class Greedy(Sits):
    """Claims what runs already, and its first trial twice."""

    def plan(self, view: View) -> list[Claim]:
        return [Claim(each.id, Quantum(1.0), "mine") for each in (*view.trials, *view.trials)]


@dataclass(frozen=True)
class Forgetful(Sits):
    """Never claims a device for one of its trials."""

    def plan(self, view: View) -> list[Claim]:
        known = [each for each in view.trials if each.candidate and each.id != "s/5"]
        return [Claim(each.id, Quantum(1.0), "known") for each in known]


def answering(**answers: Any) -> Newest:
    """`Newest`, but for the answers given."""
    methods = {name: lambda *_, answer=answer: answer for name, answer in answers.items()}
    policy: Newest = type("Answering", (Newest,), methods)()
    return policy


NOT_FROZEN = type("NotFrozen", (), {"name": "not_frozen"})
FORMLESS = dataclass(frozen=True)(type("Formless", (), {"name": "formless"}))


def offer(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


HERE = f"{__name__}:"


def registry(*offers: EntryPoint) -> Registry:
    return Registry(SHIPPED, lambda: offers)


@pytest.fixture
def newest() -> Registry:
    return registry(offer("newest", HERE + "Newest"))


def test_a_policy_of_a_package_is_used_by_its_name_with_its_settings(newest: Registry) -> None:
    policy = make_policy(Plugin("newest", (("quantum_seconds", 7),)), newest)
    assert isinstance(policy, Newest)
    assert policy.quantum(trial(), Facts()) == Quantum(7.0)
    assert "newest" in newest
    assert list(newest)[-1] == "newest"
    assert len(newest) == len(SHIPPED) + 1
    assert faults(policy) == []


def test_its_unknown_setting_names_those_it_has(newest: Registry) -> None:
    with pytest.raises(BadSetting, match="did you mean quantum_seconds"):
        make_policy(Plugin("newest", (("quantum_second", 7),)), newest)


def test_its_own_refusal_of_a_value_is_quoted(newest: Registry) -> None:
    with pytest.raises(BadSetting, match="nobody waits that long"):
        make_policy(Plugin("newest", (("quantum_seconds", 101.0),)), newest)


def test_a_policy_that_ships_keeps_its_name() -> None:
    known = registry(offer("fifo", HERE + "Newest"))
    assert known["fifo"] is Fifo
    assert len(known) == len(SHIPPED)


def test_nothing_is_imported_before_its_name_is_asked_for() -> None:
    known = registry(offer("absent", "no_such_package:Policy"))
    assert "absent" in known
    assert "absent" in list(known)
    assert make_policy(Plugin("fifo"), known) == Fifo()


def test_a_misspelled_name_is_answered_with_those_that_work_and_who_cannot_be_used() -> None:
    known = registry(offer("absent", "no_such_package:Policy"), offer("newest", HERE + "Newest"))
    with pytest.raises(BadSetting) as refusal:
        make_policy(Plugin("newst"), known)
    assert refusal.value.nearest == "newest"
    names, _, broken = refusal.value.expected.partition("; ")
    assert names == f"one of {', '.join(sorted(each for each in known if each != 'absent'))}"
    # In a few words: the error of one of them, however long, is none of this study's business.
    assert broken == "absent cannot be used: `hermesd policy check absent` says why"
    with pytest.raises(BadSetting) as refusal:
        make_policy(Plugin("absnt"), known)
    assert refusal.value.nearest != "absent"


def test_a_policy_that_was_installed_since_asks_for_a_restart() -> None:
    late = offer("newest", HERE + "Newest")
    known = Registry(SHIPPED, lambda: (), lambda: (late,))
    with pytest.raises(BadSetting, match="was installed: restart hermesd"):
        make_policy(Plugin("newest"), known)


def test_what_a_policy_raises_is_one_line() -> None:
    class Talkative(Newest):
        def __post_init__(self) -> None:
            raise RuntimeError("two\nlines")

    known = {"newest": Talkative}
    with pytest.raises(BadSetting) as refusal:
        make_policy(Plugin("newest"), Registry(known.values()))
    assert "it raised RuntimeError: two lines" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("absent", "no_such_package:Policy", "cannot be imported: ModuleNotFoundError"),
        ("absent", HERE + "Absent", "cannot be imported: AttributeError"),
        ("other", HERE + "Newest", "its `name` is 'newest', not 'other'"),
        ("not_frozen", HERE + "NOT_FROZEN", "not a frozen dataclass"),
        ("formless", HERE + "FORMLESS", "either score, quantum and words, or plan and words"),
        ("offer", HERE + "offer", "it is function, not a class"),
    ],
)
def test_a_policy_that_cannot_be_used_is_one_clear_error(name: str, value: str, words: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        make_policy(Plugin(name), registry(offer(name, value)))
    assert words in str(refusal.value)
    assert refusal.value.field == "policy"


def test_two_packages_with_one_name_are_refused() -> None:
    known = registry(offer("newest", HERE + "Newest"), offer("newest", "elsewhere:Newest"))
    with pytest.raises(BadSetting, match="one package that offers it, not"):
        make_policy(Plugin("newest"), known)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"score": 1.0}, "score is 1.0: expected a tuple of numbers"),
        ({"score": (float("nan"),)}, "expected no NaN"),
        ({"words": ""}, "words is '': expected some text"),
        ({"words": 7}, "words is 7"),
        ({"quantum": 3.0}, "quantum is 3.0: expected a Quantum"),
        ({"quantum": Quantum(0.01)}, "quantum.seconds is 0.01"),
        ({"quantum": Quantum(float("inf"))}, "quantum.seconds is inf"),
        ({"quantum": Quantum("ten")}, "quantum.seconds is 'ten'"),  # type: ignore[arg-type]
        ({"quantum": Quantum(until_step=0)}, "a step after the trial's own, which is 0"),
        ({"quantum": Quantum(until_step=9.5)}, "quantum.until_step is 9.5"),  # type: ignore[arg-type]
        ({"quantum": Quantum(loss=float("nan"))}, "quantum.loss is nan"),
        ({"quantum": Quantum(exact=1)}, "quantum.exact is 1"),  # type: ignore[arg-type]
        ({"quantum": Quantum(milestones=[])}, "quantum.milestones is []"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_answer_is_found_by_the_check_and_stopped_at_run_time(
    answers: dict[str, Any], words: str
) -> None:
    broken = answering(**answers)
    assert any(words in fault for fault in faults(broken))
    (name,) = answers
    checked = guarded(type(broken))()
    asked = [trial(), Facts()] if name == "quantum" else [trial()]
    with pytest.raises(BrokenPromise) as broke:
        getattr(checked, name)(*asked)
    assert words in str(broke.value)


def test_a_bool_in_a_score_is_the_number_that_it_is_in_python() -> None:
    class Unseen(Newest):
        def score(self, trial: Trial) -> Score:
            return (trial.loss is not None, 1)

    assert faults(Unseen()) == []
    for each, score in ((trial(), (0.0, 1.0)), (trained(1, [2.0]), (1.0, 1.0))):
        told = guarded(Unseen)().score(each)  # type: ignore[union-attr]
        assert (told, [type(part) for part in told]) == (score, [float, float])


def test_a_kind_of_fault_is_told_once_with_its_line_in_the_code() -> None:
    class Careless(Newest):
        def score(self, trial: Trial) -> Score:
            return (trial.loss,)  # type: ignore[return-value]

        def words(self, trial: Trial) -> str:
            raise RuntimeError(f"boom:\n{trial.loss}")

    words, missing, nan = faults(Careless())
    assert re.search(
        r"^words of trial 0: .*: RuntimeError: boom: None \(.*/test_installed\.py:\d+\) "
        r"\(likewise for \d+ other trials\)$",
        words,
    )
    assert "score is (None,): expected a tuple of numbers (likewise for 7 other trials)" in missing
    assert nan.endswith("score is (nan,): expected no NaN: it has no place in an order")


def test_a_kind_of_fault_is_not_taken_for_another_of_the_same_answer() -> None:
    class Twofold(Newest):
        def quantum(self, trial: Trial, facts: Facts) -> Quantum:
            return Quantum(until_step=trial.step) if trial.step > 30 else Quantum(0.01)

    assert len(faults(Twofold())) == 2


def test_an_adaptive_policy_of_a_package_decides_as_it_would_here() -> None:
    book = play(trials=3 * LEVELS_EACH, devices=None)
    for number in range(2 * LEVELS_EACH):
        seen = trained(number, [9.0 - number / 99] * 30)
        book.state.put(replace(seen, spec=book.trial(seen.id).spec))

    def order(policy: Any) -> list[str]:
        return StudyQueue(book.state, "s", policy, Free()).order(9, (), lambda _: True, 0.0)

    assert order(guarded(BestFirst)()) == order(BestFirst())
    assert faults(BestFirst()) == []


def test_a_front_that_is_no_score_is_found_and_stopped() -> None:
    class Crooked(BestFirst):
        def adapted(self, field: Field) -> Any:
            return replace(TrainingOn(self, None, field, self), adapted=Astray())

    class Astray:
        fronts = ("first",)

        def facing(self, first: Trial) -> Any:
            return BestFirst()

    words = "score is 'first': expected a tuple of numbers"
    assert any(words in fault for fault in faults(Crooked()))
    adapted: Any = guarded(Crooked)().adapted(Field(trained(0, [1.0]), ()))
    with pytest.raises(BrokenPromise, match=words):
        _ = adapted.fronts


def test_an_exit_is_a_broken_promise() -> None:
    checked = guarded(Exits)()
    with pytest.raises(BrokenPromise, match="tried to end the process"):
        checked.score(trial())  # type: ignore[union-attr]
    assert any("SystemExit: enough" in fault for fault in faults(Exits()))


def test_scores_of_different_lengths_are_found() -> None:
    class Uneven(Newest):
        def score(self, trial: Trial) -> Score:
            return (0.0,) * (1 + trial.spec.number % 2)

    assert "score: tuples of different lengths" in faults(Uneven())


def test_memory_is_found() -> None:
    assert any("keeps no memory" in fault for fault in faults(Moody()))


def test_a_change_of_what_was_shown_is_found() -> None:
    assert "it changed the trials that it was shown" in faults(Meddler())


def test_a_plan_that_leaves_devices_idle_is_found() -> None:
    assert "plan: it is empty though trials wait and nothing runs" in faults(Sits())


def test_a_claim_of_what_is_no_candidate_is_found_and_stopped() -> None:
    assert any("expected candidates of the view, each once" in each for each in faults(Greedy()))
    with pytest.raises(BrokenPromise, match="candidates of the view"):
        guarded(Greedy)().plan(view(*mixed_bag()))  # type: ignore[union-attr]


def test_a_trial_that_never_ends_is_found() -> None:
    (found,) = faults(Forgetful())
    assert "TimeoutError: s/5 did not end" in found


def test_a_check_leaves_good_answers_as_they_are() -> None:
    checked, each = guarded(Newest)(), trained(3, [1.0] * 5, submitted=2.0)
    assert checked.score(each) == Newest().score(each)  # type: ignore[union-attr]
    assert checked.words(each) == "number 3"
    assert repr(checked) == repr(Newest())


@pytest.mark.parametrize(
    ("broken", "name", "words"),
    [
        ("Exits", "newest", "BrokenPromise: it tried to end the process"),
        ("Greedy", "sits", "BrokenPromise: plan is 's/0': expected candidates of the view, each o"),
        ("Loud", "newest", "RuntimeError: two lines"),
    ],
)
def test_a_study_whose_policy_breaks_its_promise_goes_on_first_in_first_out(
    broken: str, name: str, words: str
) -> None:
    known = registry(offer(name, HERE + broken))
    scheduler = Scheduler(State(), lambda plugin: make_policy(plugin, known), make_placement)
    members = tuple(TrialSpec(f"s/{n}", "s", n, (), (), 0) for n in range(3))
    program = Program(("python", "train.py"), "python", "", "")
    study = Study(
        id="s", owner="me", pool="default", metric="loss", goal=Goal.MINIMIZE,
        mode=MetricMode.LAST, signal="loss", signal_goal=Goal.MINIMIZE, policy=Plugin(name),
        placement=Plugin("free"), program=program, stop=StopRule(), submitted=0.0, fingerprint="",
        source=b"",
    )  # fmt: skip
    devices = tuple(Device(f"n/{i}", "n", "cpu", 1 << 30) for i in range(2))
    scheduler.observe(Submitted(study, members, "request"), 0.0)
    scheduler.observe(NodeJoined("n", "boot", devices, ()), 0.0)
    launched = [each.run for each in scheduler.decide(0.0) if isinstance(each, Launch)]
    assert [str(run) for run in launched] == ["s/0#1", "s/1#1"]
    (failure,) = scheduler.take_failures()
    assert isinstance(failure.event, PolicyFailed)
    assert failure.event.detail.startswith(words)


@pytest.fixture
def _package(tmp_path: Path) -> Iterator[None]:
    with lucky_policies(tmp_path):
        yield


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("best_first", 0, "best_first keeps the contract"),
        ("lucky", 0, "lucky keeps the contract"),
        ("unlucky", REFUSED, "unlucky: score of trial 0: waiting at step 0 of an unknown length"),
        ("gone", REFUSED, "a policy from lucky-policies that works: it cannot be imported"),
        ("luky", REFUSED, "did you mean lucky?"),
        ("luky", REFUSED, "gone cannot be used: `hermesd policy check gone` says why"),
        ("asha:eta=2,min_rung=1/27", 0, "asha:eta=2,min_rung=1/27 keeps the contract"),
        ("asha:eta=1", REFUSED, "eta = 1: expected 2 or more"),
        ("fifo,unlucky", REFUSED, "unlucky: score of trial 0"),
    ],
)
def test_the_command_says_whether_a_policy_keeps_the_contract(
    name: str, code: int, words: str
) -> None:
    result = CliRunner().invoke(app, ["policy", "check", name], catch_exceptions=False)
    assert (result.exit_code, words in result.output) == (code, True)


def test_a_policy_of_a_package_is_asked_for_whole_plans_that_are_checked() -> None:
    assert isinstance(Asha(), Following)
    checked = guarded(Asha)()
    assert isinstance(checked, Planning)
    assert not isinstance(checked, Following)
