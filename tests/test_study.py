"""A submission becomes a study and its trials, or a list of everything that is wrong with it."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd import study
from hermesd.core.lengths import is_length
from hermesd.core.model import (
    Goal,
    MetricMode,
    OnSameFailure,
    OnThirdFailure,
    Plugin,
    RetryAction,
    RetryRule,
    StopRule,
    Tier,
)
from hermesd.core.policy import Policy
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.pieces import AT_ONCE, whole
from hermesd.policy import make_policy
from hermesd.policy.fifo import Fifo
from hermesd.policy.published.asha import Asha
from hermesd.policy.published.hermes import Hermes
from hermesd.refusal import Refused
from hermesd.study import argv, space
from tests.study_specs import parameter, plugin, spec, value

NO_RETRY = pb.RETRY_ACTION_NO_RETRY


def draft(message: pb.StudySpec, **fields: Any) -> study.Draft:
    return study.draft(study.Submission(message, **fields))


def points(made: study.Draft) -> list[dict[str, Any]]:
    """The hyper-parameters that each trial begins with."""
    return [dict(stages[0].values) for stages in made.stages]


def test_a_grid_has_its_last_axis_fastest_and_trials_count_from_one() -> None:
    accepted, trials = draft(spec(), code_sha256="c0de").accepted("digits", "ada", 5.0)
    assert (accepted.id, accepted.owner, accepted.submitted) == ("digits", "ada", 5.0)
    assert [trial.id for trial in trials] == [f"digits/{n}" for n in (1, 2, 3, 4)]
    assert [dict(trial.parameters) for trial in trials] == [
        {"lr": 0.1, "batch": 16},
        {"lr": 0.1, "batch": 32},
        {"lr": 0.01, "batch": 16},
        {"lr": 0.01, "batch": 32},
    ]
    assert trials[0].argv == ("python", "train.py", "--lr=0.1", "--batch=16")
    assert len({trial.seed for trial in trials}) == 4


def test_what_is_not_said_has_the_defaults() -> None:
    plain = draft(pb.StudySpec(program="train.py")).study
    assert (plain.policy, plain.placement) == (Plugin("best_first"), Plugin("free"))
    assert (plain.metric, plain.goal, plain.mode) == ("loss", Goal.MINIMIZE, MetricMode.LAST)
    assert plain.on_same_failure is OnSameFailure.STUDY
    assert (plain.signal, plain.signal_goal) == ("loss", Goal.MINIMIZE)
    assert plain.stop == StopRule()
    assert (plain.tier, plain.durability_seconds, plain.max_failures) == (None, 60.0, 3)
    assert plain.replicas == 1
    assert points(draft(pb.StudySpec(program="train.py"))) == [{}]


def test_no_copies_is_another_wish_than_none_said() -> None:
    assert draft(spec(suspend=pb.Suspend(replicas=0))).study.replicas == 0
    assert draft(spec(suspend=pb.Suspend(durability_seconds=30))).study.replicas == 1


def test_only_the_signal_is_smoothed() -> None:
    smoothed = pb.Metric(name="loss", mode=pb.METRIC_MODE_SMOOTHED)
    assert draft(spec(metric=smoothed)).study.mode is MetricMode.SMOOTHED
    smoothed.name = "val_loss"
    with pytest.raises(Refused, match=r"metric.*only the signal \(loss\) is smoothed"):
        draft(spec(metric=smoothed))
    signal = pb.Signal(name="val_loss")
    assert draft(spec(metric=smoothed, signal=signal)).study.mode is MetricMode.SMOOTHED


def test_every_section_reaches_the_study() -> None:
    message = spec(
        metric=pb.Metric(name="acc", goal=pb.GOAL_MAXIMIZE, mode=pb.METRIC_MODE_BEST),
        signal=pb.Signal(name="val_loss", goal=pb.GOAL_MINIMIZE),
        schedule=pb.Schedule(policy=plugin("round_robin"), placement=plugin("homes", G_thres=2)),
        resources=pb.Resources(device_kind="cpu", memory_bytes=7),
        priority=-7,
        suspend=pb.Suspend(
            tier=pb.TIER_CHECKPOINT, durability_seconds=30, deadline_seconds=20, replicas=2
        ),
        retry=pb.Retry(
            max_failures=5,
            hung_seconds=7_200,
            on_third_failure=pb.ON_THIRD_FAILURE_STUDY,
            on_same_failure=pb.ON_SAME_FAILURE_GO_ON,
            rules=[pb.RetryRule(match="CUDA out of memory", do=pb.RETRY_ACTION_NOT_HERE)],
        ),
        stop=pb.Stop(max_steps=100, max_seconds=9.5, target=0.5, on_nan=False),
        data=["data", "/srv/sets"],
        python="/usr/bin/python3",
    )
    made = draft(message, code_sha256="c0", submit_directory="/home/ada").study
    assert (made.metric, made.goal, made.mode) == ("acc", Goal.MAXIMIZE, MetricMode.BEST)
    assert made.signal == "val_loss"
    assert made.policy.name == "round_robin"
    assert made.placement == Plugin("homes", (("G_thres", 2),))
    assert (made.device_kind, made.memory_bytes, made.priority) == ("cpu", 7, -7)
    assert (made.tier, made.durability_seconds, made.replicas) == (Tier.CHECKPOINT, 30, 2)
    assert (made.suspend_deadline_seconds, made.max_failures) == (20, 5)
    assert made.hung_seconds == 7_200
    assert made.on_third_failure is OnThirdFailure.STUDY
    assert made.on_same_failure is OnSameFailure.GO_ON
    assert made.retry_rules == (RetryRule("CUDA out of memory", RetryAction.NOT_HERE),)
    assert made.stop == StopRule(100, 9.5, 0.5, False)
    assert made.program.data == ("data", "/srv/sets")
    assert (made.program.python, made.program.code_sha256) == ("/usr/bin/python3", "c0")
    assert study.spec_of(made) == message


def test_a_run_cap_takes_the_first_points_of_a_grid() -> None:
    assert len(draft(spec(run_cap=3)).stages) == 3
    assert len(draft(spec(run_cap=99)).stages) == 4


def test_a_point_of_a_random_search_depends_on_its_number_alone() -> None:
    axes = {"lr": {"min": 0.0, "max": 1.0}, "n": {"min": 1, "max": 9}}
    few = draft(spec(axes, method=pb.SEARCH_METHOD_RANDOM, run_cap=5, seed=3))
    many = draft(spec(axes, method=pb.SEARCH_METHOD_RANDOM, run_cap=50, seed=3))
    other = draft(spec(axes, method=pb.SEARCH_METHOD_RANDOM, run_cap=5, seed=4))
    assert many.stages[:5] == few.stages
    assert other.stages != few.stages
    assert len(set(many.stages)) == 50


@pytest.mark.parametrize(
    ("fields", "trials"),
    [
        ({"method": pb.SEARCH_METHOD_RANDOM, "run_cap": 1_000}, 1_000),
        ({"method": pb.SEARCH_METHOD_RANDOM, "run_cap": 100, "where": ["n > 3"]}, 100),
        ({"parameters": {"n": {"min": 1, "max": 2_000}}, "where": ["n > 1000"]}, 1_000),
    ],
    ids=["random", "with conditions", "grid with conditions"],
)
def test_who_makes_a_draft_may_pause_after_some_trials(fields: Any, trials: int) -> None:
    axes = fields.pop("parameters", {"lr": {"min": 0.0, "max": 1.0}, "n": {"min": 1, "max": 9}})
    submission = study.Submission(spec(axes, **fields))
    made = len(study.draft(submission).stages)
    pauses = sum(1 for _ in study.draft_in_pieces(submission))
    assert made == trials
    # For the stages and the command lines, beside those of the points.
    assert pauses > 2 * trials / AT_ONCE


@pytest.mark.parametrize(
    ("axes", "trials"),
    [
        ({f"p{n}": {"min": 0.0, "max": 1.0} for n in range(1000)}, 100_000),
        ({"lr": {"min": 0.0, "max": 1.0}, "words": {"value": "x" * 30_000}}, 50_000),
        ({"lr": {"min": 0.0, "max": 1.0}, "sizes": {"value": [*range(1000)]}}, 50_000),
        ({"lr": {"values": [0.1, 0.2]}, "words": {"values": ["a", "x" * 30_000]}}, 50_000),
    ],
)
def test_a_study_that_would_come_to_too_much_is_refused_before_anything_is_drawn(
    axes: Any, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*_: Any) -> Any:
        raise AssertionError("something was drawn")

    monkeypatch.setattr(space, "drawn", drawn)
    with pytest.raises(Refused, match=r"a study has at most 1,000,000 values in all"):
        draft(spec(axes, method=pb.SEARCH_METHOD_RANDOM, run_cap=trials))


def test_a_grid_that_would_come_to_too_much_is_refused() -> None:
    wide = {f"p{n}": {"value": n} for n in range(500)}
    with pytest.raises(Refused, match="at most 1996 trials of these parameters"):
        draft(spec({"n": {"min": 1, "max": 2500}, **wide}))
    assert len(draft(spec({"n": {"min": 1, "max": 1996}, **wide})).stages) == 1996


def test_command_lines_that_come_to_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argv, "COMMANDS_LIMIT", 2**20)
    long = ["python", "train.py", "x" * 60_000]
    with pytest.raises(Refused, match="fewer trials, or shorter command lines"):
        draft(spec({"n": {"min": 1, "max": 20}}, command=long))


def test_a_value_with_probabilities_is_drawn_as_numpy_draws_it() -> None:
    chances = (0.1, 0.25, 0.05, 0.6)
    axis = space.Categorical(values=(1, 2, 3, 4), probabilities=chances)
    for number in range(200):
        plain = np.random.default_rng([3, number]).choice(4, p=chances)
        assert axis.draw(np.random.default_rng([3, number])) == plain + 1


def test_the_fingerprint_tells_studies_apart_and_not_what_they_inherit() -> None:
    one = study.fingerprint(study.Submission(spec(), "c0"))
    same = study.Submission(spec(), "c0", "/elsewhere", (("TERM", "vt100"),))
    assert study.fingerprint(same) == one
    assert study.fingerprint(study.Submission(spec(), "c1")) != one
    assert study.fingerprint(study.Submission(spec(run_cap=2), "c0")) != one
    given = [study.Submission(spec(), "c0", given=(("FOO", value),)) for value in ("1", "2", "1")]
    first, second, third = map(study.fingerprint, given)
    assert first == third
    assert len({one, first, second}) == 3


@pytest.mark.parametrize(
    ("name", "program", "wanted"),
    [
        ("My Sweep!", "train.py", "my-sweep"),
        ("", "src/train.py", "train"),
        ("", "", "study"),
        ("日本", "x.py", "study"),
        ("Übung é", "", "ubung-e"),
        ("a" * 60, "", "a" * 40),
        ("../../etc", "", "etc"),
    ],
)
def test_a_study_is_called_after_its_name_or_program(name: str, program: str, wanted: str) -> None:
    assert study.proposed_id(pb.StudySpec(name=name, program=program)) == wanted


# Distributions.


def drawn_values(count: int = 300, **axis: Any) -> list[Any]:
    message = spec({"x": axis}, method=pb.SEARCH_METHOD_RANDOM, run_cap=count, seed=1)
    return [point["x"] for point in points(draft(message))]


def test_constants_and_choices() -> None:
    assert set(drawn_values(value="adam")) == {"adam"}
    assert {repr(x) for x in drawn_values(values=["a", 1, 1.5, True])} == {
        "'a'",
        "1",
        "1.5",
        "True",
    }
    drawn = drawn_values(values=["often", "never", "rarely"], probabilities=[0.9, 0, 0.1])
    assert drawn.count("often") > 200
    assert "never" not in drawn
    assert "rarely" in drawn


@pytest.mark.parametrize(
    ("axis", "kind", "low", "high"),
    [
        ({"min": 1, "max": 3}, int, 1, 3),
        ({"min": 1, "max": 3, "distribution": "uniform"}, float, 1, 3),
        ({"min": 0.5, "max": 3}, float, 0.5, 3),
        ({"min": 1.0, "max": 3.0, "distribution": "int_uniform"}, int, 1, 3),
        ({"min": 0.1, "max": 1.0, "q": 0.3}, float, 0.3, 0.9),
        ({"min": 10, "max": 100, "q": 10.0, "distribution": "q_uniform"}, int, 10, 100),
        ({"min": -3, "max": -1, "distribution": "log_uniform"}, float, math.exp(-3), math.exp(-1)),
        ({"min": 1e-5, "max": 0.1, "distribution": "log_uniform_values"}, float, 1e-5, 0.1),
        ({"min": 1, "max": 64, "q": 4, "distribution": "q_log_uniform_values"}, int, 0, 64),
        ({"distribution": "normal"}, float, -6, 6),
        ({"mu": 5, "sigma": 0.1, "distribution": "normal"}, float, 4, 6),
        ({"mu": 5, "sigma": 2, "q": 0.25, "distribution": "q_normal"}, float, -7, 17),
        ({"mu": 0, "sigma": 1, "distribution": "log_normal"}, float, 0, 1000),
        ({"min": 0, "max": 5, "q": 4, "distribution": "q_log_uniform"}, int, 0, 148),
        ({"min": 1, "max": 3, "distribution": "inv_log_uniform"}, float, math.exp(-3), 1 / math.e),
        ({"min": 1e-5, "max": 0.1, "distribution": "inv_log_uniform_values"}, float, 1e-5, 0.1),
        ({"mu": 3, "q": 0.5, "distribution": "q_log_normal"}, float, 0, 20000),
    ],
)
def test_draws_stay_within_their_bounds(
    axis: dict[str, Any], kind: type, low: float, high: float
) -> None:
    drawn = drawn_values(**axis)
    assert {type(x) for x in drawn} == {kind}
    assert all(low <= x <= high for x in drawn)
    assert len(set(drawn)) > 2


def test_multiples_of_q_carry_no_dust() -> None:
    drawn = set(drawn_values(min=0.1, max=1.0, q=0.1))
    assert drawn == {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}


@pytest.mark.parametrize(
    "axis",
    [
        {"mu": 1e300, "q": 1e-300, "distribution": "q_normal"},
        {"min": 1e-300, "max": 1e300, "q": 1e-9, "distribution": "q_log_uniform_values"},
        {"min": 0.0, "max": 1e300, "q": 1e299},
    ],
)
def test_multiples_that_are_no_whole_numbers_of_64_bits_are_drawn_all_the_same(
    axis: dict[str, Any],
) -> None:
    for drawn in drawn_values(**axis):
        assert isinstance(drawn, float) or abs(drawn) < 2**63
        assert math.isfinite(drawn)


def test_log_uniform_values_are_as_likely_in_each_decade() -> None:
    drawn = drawn_values(900, min=1e-4, max=1e-1, distribution="log_uniform_values")
    decades = [sum(10.0**e <= x < 10.0 ** (e + 1) for x in drawn) for e in (-4, -3, -2)]
    assert min(decades) > 230


def test_a_grid_takes_whole_ranges_and_multiples() -> None:
    grid = draft(spec({"n": {"min": 1, "max": 3}, "p": {"min": 0.0, "max": 0.5, "q": 0.25}}))
    assert points(grid)[:4] == [
        {"n": 1, "p": 0.0},
        {"n": 1, "p": 0.25},
        {"n": 1, "p": 0.5},
        {"n": 2, "p": 0.0},
    ]
    assert len(grid.stages) == 9


# The command line.

AXES = {"lr": {"value": 1e-05}, "wide": {"value": True}, "deep": {"value": False}}


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ([], "python train.py --lr=1e-05 --wide=True --deep=False"),
        (["${env}", "${interpreter}", "${program}", "${args}"], None),
        (["${env}", "A=1", "${program}"], "/usr/bin/env A=1 train.py"),
        (["sh", "${program}", "${args_no_boolean_flags}"], "sh train.py --lr=1e-05 --wide"),
        (["x", "${args_no_hyphens}"], "x lr=1e-05 wide=True deep=False"),
        (["x", "a${args}b", "${HOME}x"], "x a${args}b ${HOME}x"),
        (["x", "${envvar:DATA}"], "x /srv"),
    ],
)
def test_macros(command: list[str], line: str | None) -> None:
    made = draft(spec(AXES, command=command), environment=(("DATA", "/srv"),))
    wanted = line or "python train.py --lr=1e-05 --wide=True --deep=False"
    assert " ".join(made.argvs[0]) == wanted


def test_args_json_is_one_argument() -> None:
    line = draft(spec(AXES, command=["x", "${args_json}"])).argvs[0]
    assert json.loads(line[1]) == {"lr": 1e-05, "wide": True, "deep": False}


def test_the_interpreter_of_the_study_is_used() -> None:
    assert draft(spec(python="/opt/py/bin/python")).argvs[0][0] == "/opt/py/bin/python"


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1))
def test_numbers_read_back_equal_from_the_command_line(number: float) -> None:
    line = draft(spec({"x": {"value": number}})).argvs[0][-1]
    assert type(number)(line.removeprefix("--x=")) == number


def test_what_hermes_sets_itself_is_not_taken_from_the_submitter() -> None:
    given = (("CUDA_VISIBLE_DEVICES", "0"), ("HERMES_TRIAL", "x"), ("PATH", "/bin"))
    made = draft(spec(), environment=given)
    assert made.study.program.environment == (("PATH", "/bin"),)
    assert "CUDA_VISIBLE_DEVICES is set by Hermes for each trial" in made.notes


# W&B's early_terminate.


@pytest.mark.parametrize(
    ("policy", "placement", "meant", "placed"),
    [
        (plugin("asha:eta=2,min_rung=1/27"), None, Asha(2, 1 / 27), Plugin("free")),
        (plugin("asha", eta=2, min_rung="1/27"), None, Asha(2, 1 / 27), Plugin("free")),
        (plugin("asha:eta=2", eta=4), None, Asha(4), Plugin("free")),
        (
            plugin("hermes:placement=homes,g_thres=4,milestones=25:50"),
            None,
            Hermes(milestones=(25.0, 50.0)),
            Plugin("homes", (("G_thres", 4),)),
        ),
        (plugin("fifo:placement=homes"), plugin("swap"), Fifo(), Plugin("swap")),
    ],
)
def test_a_policy_may_have_its_settings_in_its_name(
    policy: pb.Plugin, placement: pb.Plugin | None, meant: Policy, placed: Plugin
) -> None:
    study = draft(spec(schedule=pb.Schedule(policy=policy, placement=placement))).study
    assert (make_policy(study.policy), study.placement) == (meant, placed)


def test_early_terminate_is_asha_unless_a_policy_is_given() -> None:
    early = pb.EarlyTerminate(type="hyperband", min_iter=3, max_iter=27, eta=3)
    made = draft(spec(early_terminate=early))
    assert made.study.policy.name == "asha"
    assert dict(made.study.policy.settings) == {"eta": 3, "min_rung": 3 / 27}
    assert any("ends none" in note for note in made.notes)
    both = draft(spec(early_terminate=early, schedule=pb.Schedule(policy=plugin("fifo"))))
    assert both.study.policy == Plugin("fifo")
    assert any("not used" in note for note in both.notes)


def test_a_command_that_leaves_the_parameters_out_is_noted() -> None:
    bare = draft(spec(command=["python", "train.py"]))
    assert any("command has no ${args}" in note for note in bare.notes)
    for macro in ("${args}", "${args_no_hyphens}", "${args_no_boolean_flags}", "${args_json}"):
        assert not draft(spec(command=["python", "train.py", macro])).notes
    assert not draft(spec()).notes
    assert not draft(spec({}, command=["python", "train.py"])).notes


def test_what_is_rarely_meant_as_it_is_written_is_noted() -> None:
    def noted(**fields: Any) -> str:
        return " ".join(draft(spec(**fields)).notes)

    for name, is_odd in (("val_acc", True), ("AUC", True), ("eval/f1", True), ("place", False)):
        assert (f"the lowest {name} ranks first" in noted(metric=pb.Metric(name=name))) is is_odd
    highest = pb.Metric(name="val_acc", goal=pb.GOAL_MAXIMIZE)
    assert "ranks first" not in noted(metric=highest)
    exponents = {"distribution": "log_uniform", "min": 1e-4, "max": 0.1}
    for axis, is_odd in (
        (exponents, True),
        ({**exponents, "min": -9.2, "max": -2.3}, False),
        ({**exponents, "distribution": "log_uniform_values"}, False),
    ):
        said = noted(parameters={"lr": axis}, method=pb.SEARCH_METHOD_RANDOM, run_cap=2)
        assert ("lr is drawn from 1 to 1.105, since" in said) is is_odd


def test_rungs_of_hyperband_by_s() -> None:
    early = pb.EarlyTerminate(type="hyperband", max_iter=27, s=2)
    assert dict(draft(spec(early_terminate=early)).study.policy.settings)["min_rung"] == 1 / 9


# Extensions.


def test_an_extension_changes_what_is_given_and_the_command_line() -> None:
    made, trials = draft(spec(stop=pb.Stop(max_steps=10, target=0.5))).accepted("d", "me", 0.0)
    epochs = pb.NamedValue(name="epochs", value=value(20))
    rule, changed, lines = study.extension(made, trials, pb.Stop(max_steps=20), [], [epochs])
    assert rule == StopRule(max_steps=20, target=0.5)
    assert changed == (("epochs", 20),)
    assert lines[0] == ("python", "train.py", "--lr=0.1", "--batch=16", "--epochs=20")
    assert len(lines) == 4


def test_an_extension_needs_something_to_change() -> None:
    made, trials = draft(spec()).accepted("d", "me", 0.0)
    with pytest.raises(Refused, match="a limit to raise, or a parameter to set"):
        study.extension(made, trials, pb.Stop(), [])
    with pytest.raises(Refused, match=r"stop\.max_steps = 0: expected 1 or more"):
        study.extension(made, trials, pb.Stop(max_steps=0), [])
    with pytest.raises(Refused, match=r"parameters\.x\.value = None: expected text"):
        study.extension(made, trials, pb.Stop(), [pb.NamedValue(name="x")])


def test_an_extension_takes_a_name_that_it_does_not_know_only_as_a_new_one() -> None:
    made, trials = draft(spec()).accepted("d", "me", 0.0)
    slip = [pb.NamedValue(name="lrr", value=value(0.5))]
    words = (
        r"parameters\.lrr = 0\.5: expected one of batch, lr; .*--new lrr=VALUE \(did you mean lr\?"
    )
    with pytest.raises(Refused, match=words):
        study.extension(made, trials, pb.Stop(), slip)
    assert study.extension(made, trials, pb.Stop(), [], slip)[1] == (("lrr", 0.5),)


def test_an_argument_of_the_command_itself_is_known() -> None:
    command = ["python", "train.py", "--epochs", "5", "${args}"]
    made, trials = draft(spec(command=command)).accepted("d", "me", 0.0)
    longer = [pb.NamedValue(name="epochs", value=value(9))]
    assert study.extension(made, trials, pb.Stop(), longer)[1] == (("epochs", 9),)


def test_an_extension_keeps_what_was_searched_and_shortens_nothing() -> None:
    axes = {"lr": {"values": [0.1, 0.2]}, "epochs": {"value": 4}}
    made, trials = draft(spec(axes)).accepted("d", "me", 0.0)
    for name, wanted, words in (
        ("lr", 0.5, r"parameters\.lr = 0\.5: expected a parameter that is not searched"),
        ("epochs", 2, r"parameters\.epochs = 2: expected at least 4"),
        ("epoch", 9, r"parameters\.epoch = 9: expected .* \(did you mean epochs\?\)"),
    ):
        with pytest.raises(Refused, match=words):
            study.extension(
                made, trials, pb.Stop(), [pb.NamedValue(name=name, value=value(wanted))]
            )


def test_only_lengths_may_not_become_less() -> None:
    axes = {"learning_rate": {"value": 0.001}, "warmup_steps": {"value": 50}}
    made, trials = draft(spec(axes)).accepted("d", "me", 0.0)
    lower = [
        pb.NamedValue(name="learning_rate", value=value(0.0001)),
        pb.NamedValue(name="warmup_steps", value=value(20)),
    ]
    _, changed, lines = study.extension(made, trials, pb.Stop(), lower)
    assert changed == (("learning_rate", 0.0001), ("warmup_steps", 20))
    assert lines[0][2:] == ("--learning_rate=0.0001", "--warmup_steps=20")


@pytest.mark.parametrize(
    "name",
    ["epochs", "n_epochs", "num_train_epochs", "max-steps", "maxSteps", "trainer.max_epochs",
     "total_timesteps", "n_iter", "num_boost_round", "NUM_EPOCHS"],
)  # fmt: skip
def test_a_name_of_a_length(name: str) -> None:
    assert is_length(name)


@pytest.mark.parametrize(
    "name",
    ["learning_rate", "steps_per_epoch", "warmup_steps", "step_size", "lr_step", "eval_steps",
     "gradient_accumulation_steps", "batch_size", "momentum", "early_stopping_rounds", "max_depth",
     "n"],
)  # fmt: skip
def test_a_name_of_no_length(name: str) -> None:
    assert not is_length(name)


# What is refused.

HUGE = {str(n): {"values": list(range(10))} for n in range(12)}
RANDOM = pb.SEARCH_METHOD_RANDOM
BAD = [
    (spec(program=""), r"^program: expected the script to run"),
    (spec(program="../up.py"), r"^program = \.\./up\.py: expected a path below"),
    (spec(name="a\x1b[2Jb"), r"^name = a\\x1b\[2Jb: expected text without control"),
    (spec(name="x" * 300), r"^name = x+…: expected at most 200"),
    (spec(run_cap=0), r"^run_cap = 0: expected 1 or more"),
    (spec(seed=-1), r"^seed = -1"),
    (spec(pool="a\nb"), r"^pool = a.nb: expected text without control characters"),
    (spec(data=["../x"]), r"^data\.0 = \.\./x"),
    (spec(data=[""]), r"^data\.0: expected a path"),
    *(
        (spec(keep=["*.csv", name]), r"^keep\.1.*: expected a path or pattern below the working")
        for name in ("", ".", "..", "a/../b", "a//b", "/out/best.pt")
    ),
    (spec(method=RANDOM), r"^run_cap: expected .*the line `run_cap: 20` .*, or --trials 20"),
    (spec(method=RANDOM, run_cap=10**6), r"^run_cap = 1000000: expected at most 100000"),
    (spec(HUGE), r"^parameters = a grid of 1000000000000 points: expected at most 100000"),
    (spec({"x": {"min": -(2**63), "max": 2**63 - 1}}), r"^parameters\.x = 184\d+ values: "),
    (spec({"x": {}}), r"^parameters\.x\.value: expected text, a finite number"),
    (spec({"x": {"values": []}}), r"^parameters\.x"),
    (spec({"x": {"values": [1, 1]}}), r"^parameters\.x: expected values that differ"),
    (spec({"x": {"values": [1, [[2]]]}}), r"^parameters\.x\.values\[1\] = \[\[?2\]?\]: expec"),
    (spec({"x": {"values": [math.nan]}}), r"^parameters\.x\.values\[0\] = nan: expected text"),
    (spec({"x": {"value": math.inf}}), r"^parameters\.x\.value = inf"),
    (spec({"x": {"min": 2.0, "max": 1.0}}), r"^parameters\.x: expected min < max, not 2 and 1"),
    (spec({"x": {"min": 1, "max": 1}}), r"expected min < max, not 1 and 1"),
    (spec({"x": {"min": 1}}), r"^parameters\.x\.max: expected a value"),
    (spec({"x": {"min": "a", "max": "b"}}), r"^parameters\.x\.min = a: expected a valid number"),
    (spec({"x": {"min": 0.0, "max": 1.0}}), r"x\.distribution = uniform: .*method: random"),
    (spec({"x": {"min": 0.4, "max": 0.6, "q": 1.0}}), r"a multiple of q = 1 between"),
    (spec({"x": {"min": 0.1, "max": 1e300, "q": 1e-300}}), r"^parameters\.x: expected a q of more"),
    (spec({"x": {"min": -1.0, "max": 1.0, "q": 1e-19}}), r"^parameters\.x: expected a q of more"),
    (
        spec({"x": {"min": -1e308, "max": 1.7e308}}),
        r"^parameters\.x: expected min and max closer together",
    ),
    (
        spec({"x": {"value": 1, "values": [1, 2]}}),
        r"^parameters\.x\.value = unknown key: expected one of probabilities, values, when \(did",
    ),
    (
        spec({"x": {"values": [[[1]], [[2]]]}}),
        r"^[^\n]*\[0\] = \[\[1\]\]: [^\n]*\n[^\n]*\[1\][^\n]*$",
    ),
    (
        spec({"x": {"values": list(range(10_001))}}),
        r"^parameters\.x\.values = .*: expected at most 10000 items$",
    ),
    (spec({"x": {"min": 1, "max": 2, "q": 0.0}}), r"^parameters\.x\.q = 0\.0: expected above 0"),
    (
        spec({"x": {"min": 0.0, "max": 1.0, "distribution": "log_uniform_values"}}),
        r"^parameters\.x\.min = 0\.0: expected above 0",
    ),
    (
        spec({"x": {"values": [1], "min": 3, "distribution": "categorical"}}),
        r"^parameters\.x\.min = unknown key: expected one of probabilities, values",
    ),
    (spec({"x": {"values": [1, 2], "probabilities": [0.5]}}), r"as many probabilities as values"),
    (spec({"x": {"values": [1, 2], "probabilities": [0.5, 0.6]}}), r"that add up to 1"),
    (spec({"x": {"sigma": -1.0, "distribution": "normal"}}), r"^parameters\.x\.sigma = -1\.0"),
    (spec({"-x": {"value": 1}}), r"^parameters\.-x"),
    (spec({"a b": {"value": 1}}), r"^parameters\.a b"),
    (spec({"": {"value": 1}}), r"^parameters\."),
    (spec(command=["${arg}"]), r"^command\[0\] = \$\{arg\}: .*did you mean \$\{args\}"),
    (spec(command=["${args}"]), r"^command\[0\] = \$\{args\}: expected a program to run"),
    (spec(command=["x", "a\0b"]), r"^command\[1\] = a\\x00b: expected text without NUL"),
    (spec({"x": {"value": "a\0"}}), r"^parameters\.x\.value = a\\x00: expected text without NUL"),
    (spec({"x": {"values": [1, "\0"]}}), r"^parameters\.x\.values\[1\] = \\x00: expected text"),
    (spec({"x\0": {"value": 1}}), r"^parameters\.x\\x00 = x\\x00: expected a name without NUL"),
    (spec(requirements="a\0"), r"^requirements = a\\x00: expected text without NUL"),
    (spec(program="/etc/"), r"^program = /etc/: expected a file, not a directory"),
    (spec(program="lib/."), r"^program = lib/\.: expected a file, not a directory"),
    (spec(command=["x", "${envvar:HOMEE}"]), r"= HOMEE: .*did you mean HOME\?"),
    (spec({"x": {"value": "y" * 200_000}}), r"^command = \d+ bytes: expected at most"),
    (spec({"x": {"value": "y" * 2_000_000}}), r"^study = \d+ bytes: expected at most"),
    (spec(metric=pb.Metric(name="")), None),
    (spec(metric=pb.Metric(goal=pb.GOAL_MAXIMIZE)), r"^metric: expected a `name` beside goal$"),
    (spec(signal=pb.Signal(goal=pb.GOAL_MAXIMIZE)), r"^signal: expected a `name` beside goal$"),
    (spec(metric=pb.Metric(name="x", goal=7)), r"^metric\.goal = 7: expected 'minimize' or"),
    (spec(schedule=pb.Schedule(policy=plugin("fifi"))), r"^schedule\.policy = fifi: .*fifo\?"),
    (spec(schedule=pb.Schedule(policy=plugin("fifi:a=1"))), r"^schedule\.policy = fifi: .*fifo\?"),
    (
        spec(schedule=pb.Schedule(policy=plugin("asha:etta=3"))),
        r"^schedule\.policy\.etta = unknown setting: .*did you mean eta\?",
    ),
    (
        spec(schedule=pb.Schedule(policy=plugin("asha:eta"))),
        r"^schedule\.policy\.asha:eta = eta: expected setting=value",
    ),
    (
        spec(schedule=pb.Schedule(policy=plugin("fifo", G_thres=3))),
        r"^schedule\.policy\.G_thres = .*did you mean G_thres of schedule\.placement homes\?",
    ),
    (
        spec(schedule=pb.Schedule(placement=plugin("free", G_thres=3))),
        r"^schedule\.placement\.G_thres = .*did you mean G_thres of schedule\.placement homes\?",
    ),
    (
        spec(schedule=pb.Schedule(policy=plugin("asha", etta=3))),
        r"^schedule\.policy\.etta = unknown setting: .*did you mean eta\?",
    ),
    (
        spec(schedule=pb.Schedule(policy=plugin("asha", eta="x"))),
        r"^schedule\.policy\.eta = x: expected a whole number",
    ),
    (spec(schedule=pb.Schedule(placement=plugin("home"))), r"^schedule\.placement = home: .*homes"),
    (spec(stop=pb.Stop(max_steps=-1)), r"^stop\.max_steps = -1"),
    (spec(stop=pb.Stop(target=math.nan)), r"^stop\.target = nan: expected a finite number"),
    (spec(suspend=pb.Suspend(durability_seconds=0)), r"^suspend\.durability_seconds = 0\.0"),
    (
        spec(suspend=pb.Suspend(deadline_seconds=1e9)),
        r"^suspend\.deadline_seconds = 1000000000\.0: expected .*86400",
    ),
    (spec(suspend=pb.Suspend(replicas=4)), r"^suspend\.replicas = 4"),
    (spec(conda="envs/vision"), r"^conda = envs/vision: expected the name of an environment"),
    (spec(conda="vision", python="/usr/bin/python3"), r"^conda = vision: expected no `python`"),
    (spec(conda="vision", requirements="x\n"), r"^conda = vision: expected no `requirements`"),
    (spec(requires=pb.Requires(paths=["data"])), r"^requires\.paths\.0 = data: expected an abs"),
    (spec(requires=pb.Requires(paths=["/a/../b"])), r"^requires\.paths\.0 = /a/\.\./b"),
    (spec(suspend=pb.Suspend(tier=9)), r"^suspend\.tier = 9: expected 'park', 'checkpoint' or"),
    (spec(retry=pb.Retry(max_failures=0)), r"^retry\.max_failures = 0"),
    (spec(retry=pb.Retry(hung_seconds=5)), r"^retry\.hung_seconds = 5"),
    (spec(retry=pb.Retry(rules=[pb.RetryRule(match="x")])), r"^retry\.rules.*do"),
    (spec(retry=pb.Retry(rules=[pb.RetryRule(do=NO_RETRY)])), r"^retry\.rules.*match"),
    (
        spec(retry=pb.Retry(rules=[pb.RetryRule(match="* *", do=NO_RETRY)])),
        "some text of the error",
    ),
    (
        spec(retry=pb.Retry(rules=[pb.RetryRule(match=m, do=NO_RETRY) for m in ("Oom", "oom")])),
        "each match once, not 'oom' twice",
    ),
    (
        spec(metrics=[pb.MetricPattern(name="acc", pattern="acc=(")]),
        r"^metrics\.acc = acc=\(: expected a regular .*unterm",
    ),
    (
        spec(metrics=[pb.MetricPattern(name="acc", pattern="acc=.*")]),
        r"^metrics\.acc.*with a group for the value",
    ),
    *(
        (
            spec(metrics=[pb.MetricPattern(name="acc", pattern=pattern)]),
            r"^metrics\.acc.*take forever",
        )
        for pattern in (r"(a+)+$", r"acc=(?:\d+\.?)*(x)", r"(?:ab|a)*(b)", r"((?:x{1,99})*)y")
    ),
    (spec(metrics=[pb.MetricPattern(name="acc")]), r"^metrics\.acc: expected a regular"),
    (spec(priority=101), r"^priority = 101: expected 100 or less"),
    (spec(priority=-101), r"^priority = -101"),
    (spec(resources=pb.Resources(memory_bytes=-5)), r"^resources\.memory_bytes = -5"),
    (spec(early_terminate=pb.EarlyTerminate(type="envelope")), r"^early_terminate\.type = env"),
    (
        spec(early_terminate=pb.EarlyTerminate(type="hyperband", eta=2.5)),
        r"^early_terminate\.eta = 2\.5: expected a multiple of 1",
    ),
]


@pytest.mark.parametrize(("message", "words"), BAD)
def test_what_is_wrong_is_named_by_its_path(message: pb.StudySpec, words: str | None) -> None:
    if words is None:
        assert draft(message).study.metric == "loss"
        return
    with pytest.raises(Refused, match=words) as caught:
        draft(message, environment=(("HOME", "/root"),))
    assert all(len(error.value) <= 80 for error in caught.value.errors)


def test_a_parameter_given_twice_is_refused() -> None:
    message = spec({"x": {"value": 1}})
    message.parameters.add(name="x").value.int_value = 2
    with pytest.raises(Refused, match=r"parameters\.x = given twice"):
        draft(message)


def test_all_errors_come_at_once() -> None:
    message = spec(
        {"x": {"min": 2.0, "max": 1.0}, "y": {"values": [1, 1]}},
        command=["${arg}", "${program}"],
        schedule=pb.Schedule(policy=plugin("best")),
    )
    with pytest.raises(Refused) as caught:
        draft(message)
    paths = [error.field_path for error in caught.value.errors]
    assert paths == ["command[0]", "parameters.x", "parameters.y", "schedule.policy"]


def test_what_is_wrong_in_one_section_hides_no_other_and_one_setting_hides_no_other() -> None:
    message = spec({"x": {"min": 2.0, "max": 1.0}}, run_cap=-3)
    with pytest.raises(Refused) as caught:
        draft(message)
    assert [error.field_path for error in caught.value.errors] == ["run_cap", "parameters.x"]
    stop, schedule = pb.Stop(max_steps=-1), pb.Schedule(policy=plugin("asah"))
    axes, method = {"x": {"min": 2.0, "max": 1.0}}, pb.SEARCH_METHOD_RANDOM
    with pytest.raises(Refused) as caught:
        draft(spec(axes, method=method, stop=stop, schedule=schedule))
    paths = [error.field_path for error in caught.value.errors]
    assert paths == ["stop.max_steps", "parameters.x", "run_cap", "schedule.policy"]
    policy = plugin("asha", etta=3, min_rung="x", eta="y")
    with pytest.raises(Refused) as caught:
        draft(spec(schedule=pb.Schedule(policy=policy)))
    paths = [error.field_path for error in caught.value.errors]
    assert sorted(paths) == [f"schedule.policy.{name}" for name in ("eta", "etta", "min_rung")]


@pytest.mark.parametrize(
    "variable", [("", "x"), ("A=B", "x"), ("A", "x\0"), ("BIG", "x" * 300_000)]
)
def test_an_environment_that_no_program_can_have_is_refused(variable: tuple[str, str]) -> None:
    with pytest.raises(Refused, match=r"^environment"):
        draft(spec(), environment=(variable,))


@pytest.mark.parametrize(
    "pattern",
    [
        r"val_acc[ =:]+(?P<value>[0-9.]+)",
        r"(?:\d{1,3},){1,4}(\d+)",
        r"(?:[ab]|c)(\d+)",
        r"(a|b)+?c",
    ],
)
def test_patterns_of_metrics_that_cannot_take_long_are_taken(pattern: str) -> None:
    assert draft(spec(metrics=[pb.MetricPattern(name="acc", pattern=pattern)])).stages


# Lists, and parameters inside of parameters.


def nested() -> pb.StudySpec:
    """lr and layers of an optimizer and a model, and a seed."""
    message = spec({"seed": {"value": 7}}, command=["python", "train.py", "${args}"])
    optimizer, model = (
        message.parameters.add(name="optimizer"),
        message.parameters.add(name="model"),
    )
    optimizer.parameters.append(parameter("lr", {"values": [0.1, 0.2]}))
    model.parameters.append(parameter("layers", {"values": [[64, 64], [128]]}))
    return message


def test_parameters_inside_of_others_are_axes_with_dots_in_their_names() -> None:
    made = draft(nested())
    assert points(made)[0] == {"seed": 7, "optimizer.lr": 0.1, "model.layers": (64, 64)}
    assert made.argvs[1][2:] == ("--seed=7", "--optimizer.lr=0.1", "--model.layers=[128]")
    message = nested()
    message.command[:] = ["train", "${args_no_hyphens}"]
    assert draft(message).argvs[0][2:] == ("optimizer.lr=0.1", "model.layers=[64, 64]")


def test_as_json_they_are_as_they_are_written() -> None:
    message = nested()
    message.parameters.append(parameter("a.b", {"value": "flat"}))
    message.command[:] = ["train", "${args_json}"]
    assert json.loads(draft(message).argvs[0][1]) == {
        "seed": 7,
        "optimizer": {"lr": 0.1},
        "model": {"layers": [64, 64]},
        "a.b": "flat",
    }


def test_a_parameter_inside_of_another_is_changed_by_its_name_with_dots() -> None:
    known = draft(nested()).accepted("d", "me", 0.0)
    layers = parameter("model.layers", {"value": [32]})
    added = whole(study.addition(*known, [layers])).trials
    assert [dict(trial.parameters)["model.layers"] for trial in added] == [(32,), (32,)]
    slip = parameter("model.layer", {"value": 3})
    with pytest.raises(Refused, match=r"one of model\.layers, optimizer\.lr, seed.*mean model"):
        whole(study.addition(*known, [slip]))


def test_what_is_inside_of_others_is_refused_by_its_whole_name() -> None:
    message = nested()
    message.parameters[1].value.CopyFrom(value(3))
    message.parameters.append(parameter("model.layers", {"value": 3}))
    with pytest.raises(Refused) as caught:
        draft(message)
    assert [error.field_path for error in caught.value.errors] == [
        "parameters.optimizer",
        "parameters.model.layers",
    ]
    message = nested()
    message.parameters[1].parameters[0].values.append(value([1, [[2]]]))
    with pytest.raises(Refused, match=r"optimizer\.lr\.values\[2\].*or a list of these"):
        draft(message)


@given(st.lists(st.one_of(st.integers(-9, 9), st.booleans(), st.text(max_size=4)), max_size=3))
def test_a_list_is_one_value_that_programs_read_back(items: list[Any]) -> None:
    texts = [item.replace("\0", "") if isinstance(item, str) else item for item in items]
    made = draft(spec({"units": {"value": texts}}))
    (line,) = made.argvs
    assert json.loads(line[2].removeprefix("--units=")) == texts


CONDITIONAL = {
    "optimizer": {"values": ["sgd", "adam"]},
    "momentum": {"values": [0.0, 0.9], "when": {"optimizer": ["sgd"]}},
    "nesterov": {"values": [True, False], "when": {"optimizer": ["sgd"], "momentum": [0.9]}},
    "rate": {"values": [1, 2]},
}
LAYERS = {"layers": {"values": [[64, 64], [128]]}}


def test_a_condition_may_be_that_a_list_is_a_certain_one() -> None:
    width = {"values": [1, 2], "when": {"layers": [[64, 64]]}}
    assert points(draft(spec({**LAYERS, "width": width}))) == [
        {"layers": (64, 64), "width": 1}, {"layers": (64, 64), "width": 2}, {"layers": (128,)},
    ]  # fmt: skip


def test_a_grid_has_each_point_once_without_the_parameters_that_are_not_there() -> None:
    found = points(draft(spec(CONDITIONAL)))
    assert len(found) == 2 * (1 + 2 + 1)
    assert {"optimizer": "adam", "rate": 2} in found
    assert {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "rate": 1} in found
    assert {"optimizer": "sgd", "momentum": 0.0, "rate": 1} in found
    few = draft(spec(CONDITIONAL, run_cap=3))
    assert points(few) == found[:3]
    assert few.argvs[0][-2:] != few.argvs[2][-2:]


def test_draws_have_a_parameter_where_its_condition_is_met() -> None:
    free = {
        name: {k: v for k, v in axis.items() if k != "when"} for name, axis in CONDITIONAL.items()
    }
    drawn, whole = (
        points(draft(spec(axes, method=RANDOM, run_cap=40))) for axes in (CONDITIONAL, free)
    )
    for point, full in zip(drawn, whole, strict=True):
        assert ("momentum" in point) is (point["optimizer"] == "sgd")
        assert ("nesterov" in point) is (point.get("momentum") == 0.9)
        assert point.items() <= full.items(), "a condition moves no other value"


@pytest.mark.parametrize(
    ("when", "error"),
    [
        (
            {"optimizr": ["sgd"]},
            "when.optimizr: expected a parameter that is written above it (did you mean opt",
        ),
        ({"rate": [1]}, "when.rate: expected a parameter that is written above it"),
        (
            {"optimizer": ["sdg"]},
            "when.optimizer = sdg: expected one of adam, sgd (did you mean sgd?)",
        ),
        (
            {"layers": [[64, 65]]},
            "when.layers = [64, 65]: expected one of [128], [64, 64] (did you mean [64, 64]?)",
        ),
    ],
)
def test_a_condition_that_is_never_met_is_refused(when: Any, error: str) -> None:
    axes = {**LAYERS, **CONDITIONAL, "momentum": {"value": 0.9, "when": when}}
    with pytest.raises(Refused) as refused:
        draft(spec(axes))
    assert error in str(refused.value)
