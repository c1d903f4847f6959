"""The form in which a trial's progress is written down, by what each has cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_shim.host.checkpoint_forms import CHECKPOINT, IMAGE, Forms

LITTLE, MUCH = 10_000_000, 10_000_000_000


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms(str(tmp_path))


def test_what_no_checkpoint_keeps_whole_is_kept_as_an_image(forms: Forms) -> None:
    for level in ("park-only", "parameters-exact", "exact-if-deterministic"):
        assert forms.choose(level, MUCH) == (IMAGE, f"its framework's checkpoint is {level}")


def test_what_its_author_saves_is_left_to_the_author(forms: Forms) -> None:
    forms.began(None, 1000.0)
    assert forms.choose("author", LITTLE)[0] == CHECKPOINT


def test_of_two_exact_forms_nothing_is_known_at_first_and_the_checkpoint_goes_anywhere(
    forms: Forms,
) -> None:
    assert forms.choose("exact", LITTLE)[0] == CHECKPOINT


def test_an_image_is_tried_where_the_program_takes_longer_to_begin(forms: Forms) -> None:
    forms.began(None, 5.0)
    assert forms.choose("exact", LITTLE)[0] == IMAGE
    assert forms.choose("exact", MUCH)[0] == CHECKPOINT


def test_what_was_measured_counts_for_more_than_what_was_estimated(forms: Forms) -> None:
    forms.began(None, 5.0)
    forms.went(IMAGE, 3.0)
    forms.began(IMAGE, 3.0)
    form, why = forms.choose("exact", LITTLE)
    assert form == CHECKPOINT
    assert why == "away and back take 5.0 s by a checkpoint, 6.0 s by an image"
    forms.went(CHECKPOINT, 1.0)
    forms.began(CHECKPOINT, 9.0)
    assert forms.choose("exact", LITTLE)[0] == IMAGE


def test_the_next_host_knows_what_this_one_measured(forms: Forms, tmp_path: Path) -> None:
    forms.began(CHECKPOINT, 5.0)
    assert Forms(str(tmp_path)).choose("exact", LITTLE) == forms.choose("exact", LITTLE)
    (tmp_path / "forms.json").write_text("{")
    assert Forms(str(tmp_path)).choose("exact", LITTLE)[0] == CHECKPOINT
