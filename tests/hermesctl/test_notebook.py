"""Results as a notebook shows them: tables, frames, charts, a bar while a study runs."""

from __future__ import annotations

import sys
from html.parser import HTMLParser

import pytest

from hermesctl import AsyncClient, Client, Curve, UsageError
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import FakeHead, event, trial

COMPLETED = types.TRIAL_STATE_COMPLETED


class _Table(HTMLParser):
    """The cells of a table by its rows; fails on anything but a table."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag in ("table", "caption", "thead", "tbody", "tr", "th", "td")
        assert not attrs
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1][-1] += data


@pytest.fixture
def digits(head: FakeHead) -> FakeHead:
    """Two trials, of which one has measured; a parameter has the name of a column."""
    one = trial(1, state=COMPLETED, step=10, metric=0.25, rank=1)
    one.parameters.add(name="step", value=types.Value(int_value=7))
    one.metrics.add(name="val_acc", last=0.9)
    two = trial(2)
    two.parameters.add(name="step", value=types.Value(string_value="<script>"))
    head.add_study("digits", one, two)
    return head


def test_trials_are_rows_with_a_column_for_each_parameter_and_metric(digits: FakeHead) -> None:
    with Client() as hermes:
        for found in (hermes.study("digits"), hermes.best("digits")):
            frame = found.frame()
            assert list(frame["trial"]) == ["digits/1", "digits/2"]
            assert list(frame["lr"]) == [0.1, 0.05]
            assert list(frame["params.step"]) == [7, "<script>"]
            assert frame.loc[0, ["step", "metric", "val_acc"]].tolist() == [10, 0.25, 0.9]
            assert frame.loc[1, ["metric", "val_acc"]].isna().all()
            names, first, second = _Table(found._repr_html_()).rows
            assert names == list(frame.columns)
            assert "0.9" in first
            assert "<script>" in second
        assert [one.id for one in hermes.study("digits").trials[:1]] == ["digits/1"]


def test_a_curve_is_a_frame_by_step_and_is_drawn_on_the_axes_of_another() -> None:
    import matplotlib as mpl  # not by each worker that only collects

    mpl.use("agg")
    curve = Curve("val_loss", (1, 5, 9), (3.0, 2.0, 1.5), ("val_loss",))
    assert curve.frame()["val_loss"].to_dict() == {1: 3.0, 5: 2.0, 9: 1.5}
    assert len(Curve("loss", (), (), ()).frame()) == 0
    ax = curve.plot(label="digits/1")
    assert curve.plot(ax) is ax
    assert [line.get_xydata().tolist() for line in ax.lines] == 2 * [[[1, 3], [5, 2], [9, 1.5]]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "val_loss")


def test_without_the_library_the_way_to_have_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"frame\(\) needs pandas: pip install pandas"):
        Curve("loss", (1,), (1.0,), ()).frame()


async def test_a_bar_shows_how_far_a_study_is_that_is_waited_for(
    head: FakeHead, capsys: pytest.CaptureFixture[str]
) -> None:
    head.add_study(
        "digits", trial(1, state=COMPLETED), trial(2), finished=True, notices=["nobody has a GPU"]
    )
    head.events = [
        event(1, pb.PUBLIC_EVENT_KIND_COMPLETED),
        event(2, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED),
    ]
    async with AsyncClient() as client:
        assert (await client.wait("digits", progress=True)).study.finished
        shown = capsys.readouterr().err
        assert "digits" in shown
        assert "50%" in shown
        assert shown.count("note: nobody has a GPU") == 1
        await client.wait("digits")
    assert capsys.readouterr().err == ""
