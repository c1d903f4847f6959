"""What becomes of the trials of a study whose file is changed while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from hermesd import study
from hermesd.core.fast_replace import replace
from hermesd.core.model import Study, TrialSpec
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.pieces import whole
from hermesd.refusal import Refused
from tests.study_specs import parameter, spec
from tests.test_addition import DRAWN, RANDOM, add, made

Known = tuple[Study, tuple[TrialSpec, ...]]


def change(
    known: Known,
    begun: int = 0,
    cap: int | None = None,
    stop: pb.Stop | None = None,
    cut: tuple[str, ...] = (),
    **axes: Any,
) -> study.StudyChange:
    """The first `begun` trials have begun; a smaller cap had `cut` some of the others."""
    ids = {trial.id for trial in known[1][:begun]}
    given = [parameter(name, axis) for name, axis in axes.items()]
    return whole(study.change(*known, ids, stop or pb.Stop(), cap, given, cut))


def drawn(cap: int, **changes: Any) -> Known:
    return made({**DRAWN, **changes}, method=RANDOM, run_cap=cap, seed=3)


def test_trials_that_have_not_begun_are_those_of_a_study_with_the_new_bounds() -> None:
    narrow = {"min": 0.0, "max": 0.1}
    changed = change(drawn(6), 2, lr={"max": 0.1})
    assert changed.redrawn == drawn(6, lr=narrow)[1][2:]
    assert (changed.added, changed.surplus) == ((), ())
    assert study.spec_of(replace(drawn(6)[0], source=changed.source)) == spec(
        {**DRAWN, "lr": narrow}, method=RANDOM, run_cap=6, seed=3
    )


def test_more_trials_are_drawn_between_the_new_bounds() -> None:
    wider = drawn(6, n={"min": 1, "max": 90})
    changed = change(drawn(3), 3, cap=6, n={"max": 90})
    assert (changed.redrawn, changed.added) == ((), wider[1][3:])


def test_a_point_that_was_given_by_hand_stays() -> None:
    known = drawn(2)
    by_hand = add(known, lr={"value": 3.0}, n={"value": 3}).trials
    changed = change((known[0], (*known[1], *by_hand)), lr={"max": 0.1})
    assert [trial.number for trial in changed.redrawn] == [1, 2]


def test_of_fewer_trials_those_that_have_not_begun_are_too_many() -> None:
    assert change(drawn(6), 3, cap=2).surplus == ("d/4", "d/5", "d/6")
    assert change(made(), 1, cap=3).surplus == ("d/4",)


def test_a_larger_cap_takes_up_what_a_smaller_one_had_cut_before_it_adds() -> None:
    cut = ("d/4", "d/5", "d/6")
    assert change(drawn(6), 3, cap=5, cut=cut).resumed == ("d/4", "d/5")
    assert change(drawn(6), 3, cap=6, cut=cut).resumed == cut
    grown = change(drawn(6), 3, cap=7, cut=cut)
    assert (grown.resumed, grown.added, grown.surplus) == (cut, drawn(7)[1][6:], ())
    assert study.spec_of(replace(drawn(6)[0], source=grown.source)).run_cap == 7
    assert change(drawn(6), 2, cap=2, cut=cut).surplus == ("d/3",)


def test_trials_that_a_smaller_cap_has_cut_are_drawn_again_as_well() -> None:
    narrow = drawn(6, lr={"min": 0.0, "max": 0.1})
    changed = change(drawn(6), 3, cut=("d/5", "d/6"), lr={"max": 0.1})
    assert (changed.redrawn, changed.resumed) == (narrow[1][3:], ())


def test_a_grid_that_was_cut_short_grows_by_its_cap() -> None:
    changed = change(made(run_cap=1), 1, cap=3)
    assert [dict(trial.parameters) for trial in changed.added] == [
        {"lr": 0.1, "batch": 32},
        {"lr": 0.01, "batch": 16},
    ]


def test_the_file_says_what_holds_now() -> None:
    known = made(stop=pb.Stop(max_steps=9, target=0.5))
    source = change(known, stop=pb.Stop(max_steps=20)).source
    assert pb.StudySpec.FromString(source).stop == pb.Stop(max_steps=20, target=0.5)


@pytest.mark.parametrize(
    ("known", "cap", "axes", "words"),
    [
        (drawn(2), None, {"lrr": {"max": 1.0}}, r"parameters\.lrr: expected .*mean lr\?"),
        (drawn(2), None, {"lr": {"max": -1.0}}, r"parameters\.lr.*min < max"),
        (drawn(2), None, {"epochs": {"max": 9}}, r"parameters\.epochs"),
        (
            made(),
            None,
            {"lr": {"max": 1.0}},
            "a random search; `study add` gives a grid",
        ),
        (drawn(2), 2, {}, "run_cap = 2: expected another number.* it has that many"),
        (drawn(2), 0, {}, "run_cap = 0: expected 1 to 100000"),
        (drawn(2), 200_000, {}, "run_cap = 200000: expected 1 to 100000"),
        (made(), 9, {}, "a point that no trial of the study has"),
    ],
)
def test_what_will_not_do_is_refused_whole(
    known: Known, cap: int | None, axes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        change(known, cap=cap, **axes)


def test_a_cap_that_would_end_nothing_is_refused() -> None:
    words = "run_cap = 3: expected another number.* no trial after the first 3 is still to begin"
    with pytest.raises(Refused, match=words):
        change(drawn(4), 4, cap=3)
    with pytest.raises(Refused, match=words):
        change(drawn(4), 3, cap=3, cut=("d/4",))
