"""Trials run where the paths are that their study requires; nodes are asked, and say."""

from __future__ import annotations

from typing import Any

from hermesd.core.commands import Look
from hermesd.core.events import Looked, NodeSilent, Paused, PoolsConfigured, Retried, Unpaused
from hermesd.core.model import Node, Plugin, Pool, Program, Venv
from hermesd.core.node.actions import WatchRequirements
from hermesd.core.requirements import PATHS_LIMIT, UNSEEN
from tests.core.node_talk import Told
from tests.core.playbook import (
    Playbook,
    completed,
    joined,
    parked,
    play,
    reported,
    started,
    submitted,
)

DATA = "/data/imagenet"
GONE = "No such file or directory"


def looked(node: str = "n", reason: str = "", path: str = DATA) -> Looked:
    return Looked(node, ((path, reason),))


def searching(trials: int = 1, **changes: Any) -> Playbook:
    return play(trials, required_paths=(DATA,), **changes).expect(f"look on n at {DATA}")


def test_a_trial_runs_once_its_node_has_said_that_the_path_is_there() -> None:
    searching().tell(looked()).expect("launch s/0#1 on n/0")


def test_a_node_that_lacks_it_does_not_fit() -> None:
    book = searching().tell(looked(reason=GONE)).expect()
    book.tell(joined(1, node="m")).expect(f"look on m at {DATA}")
    book.tell(looked("m")).expect("launch s/0#1 on m/0")
    (left,) = book.scheduler.explain("s/0", 0.0).left_out
    assert left.place == "n"
    assert left.reason == f"it lacks what the study requires: {DATA}: {GONE}"


def test_nodes_of_other_pools_are_not_asked() -> None:
    """To make an environment is to run what a user wrote: not on machines of other people's."""
    book = searching().tell(looked(reason=GONE))
    book.tell(PoolsConfigured((Pool("gold", ("m",)),)), joined(1, node="m")).expect()
    assert [each.place for each in book.scheduler.explain("s/0", 0.0).left_out] == ["n"]
    theirs = {"pool": "gold", "required_paths": ("/data/gold",)}
    book.tell(submitted(1, "g", **theirs)).expect("look on m at /data/gold")
    book.tell(PoolsConfigured(())).expect(f"look on m at {DATA}")


def test_what_is_said_of_a_run_has_nobody_go_through_all_nodes() -> None:
    """A thousand nodes say as much each second."""

    class Counted(dict[str, Node]):
        passes = 0

        def values(self) -> Any:
            self.passes += 1
            return super().values()

    book = searching().tell(looked()).tell(started("s/0#1"))
    book.state.nodes = counted = Counted(book.state.nodes)
    book.heard()
    book.tell(joined(1, node="m")).expect(f"look on m at {DATA}")
    before = counted.passes
    book.scheduler.observe(reported("s/0#1", 1, [0.5]), book.now)
    book.scheduler.decide(book.now)
    assert before > 0
    assert counted.passes == before


def test_a_path_that_comes_later_is_noticed() -> None:
    searching().tell(looked(reason=GONE)).tell(looked()).expect("launch s/0#1 on n/0")


def test_another_study_is_not_concerned() -> None:
    book = searching().tell(looked(reason=GONE)).tell(submitted(1, "t"))
    book.expect("launch t/0#1 on n/0")


def test_a_node_that_comes_anew_is_asked_anew() -> None:
    book = searching(2).tell(looked()).tell(started("s/0#1"), completed("s/0#1"))
    book.heard()
    book.tell(NodeSilent("n", "cut")).expect()
    book.tell(joined(boot="b2")).expect(f"look on n at {DATA}")


def test_what_only_studies_that_are_over_require_is_asked_for_when_they_go_on() -> None:
    """A node that comes has better to do than to make the environments of all that ever was."""
    book = searching().tell(looked()).tell(started("s/0#1"), completed("s/0#1"))
    book.heard()
    book.tell(NodeSilent("n", "cut")).tell(joined(boot="b2")).expect()
    book.tell(Retried(("s/0",), "r1")).expect(f"look on n at {DATA}")
    book.tell(looked()).expect("launch s/0#2 on n/0")


def test_homes_are_where_the_path_is() -> None:
    book = searching(placement=Plugin("homes")).tell(joined(1, node="m")).heard()
    assert book == [f"look on m at {DATA}"]


def test_homes_are_given_where_the_path_is() -> None:
    book = searching(placement=Plugin("homes")).tell(joined(1, node="m"))
    book.heard()
    book.tell(looked(reason=GONE)).expect()
    book.tell(looked("m")).expect("bind s/0 to m/0", "launch s/0#1 on m/0")


def test_what_is_parked_there_goes_on_there_though_the_path_is_gone() -> None:
    book = searching().tell(looked()).tell(started("s/0#1"), Paused(("s/0",), "r1"))
    book.tell(parked("s/0#1", 5)).tell(looked(reason=GONE)).heard()
    book.tell(Unpaused(("s/0",), "r2")).expect("launch s/0#2 on n/0 from s/0#1")


def test_of_many_paths_those_are_remembered_that_a_study_requires() -> None:
    many = tuple((f"/{number}", "") for number in range(PATHS_LIMIT))
    book = searching().tell(looked(), Looked("n", many)).tell(looked(path="/other"))
    assert book.state.sights["n"] == {DATA: "", "/other": ""}


def test_a_node_watches_what_it_is_asked_for() -> None:
    assert Told().says(Look("n1", (DATA,))) == [WatchRequirements((DATA,))]


def test_an_environment_is_required_like_a_path() -> None:
    program = Program(("train.py",), "/usr/bin/python3", "c0de", "/", requirements="demo==1\n")
    assert program.venv is not None
    name = program.venv.name
    book = play(program=program)
    (asked,) = (each for each, _ in book.entries if isinstance(each, Look))
    assert (asked.paths, asked.venvs) == (("/usr/bin/python3",), (program.venv,))
    book.heard()
    book.tell(looked(path="/usr/bin/python3")).expect()
    book.tell(looked(reason="it is being made", path=name)).expect()
    book.tell(looked(path=name)).expect("launch s/0#1 on n/0")


def test_an_interpreter_is_required_like_a_path() -> None:
    """It is the submitter's, who may be of another machine."""
    path = "/home/alice/bin/python3"
    book = play(program=Program(("train.py",), path, "c0de", "/")).expect(f"look on n at {path}")
    book.tell(joined(1, node="m")).expect(f"look on m at {path}")
    book.tell(looked(reason=GONE, path=path)).expect()
    (_, left) = book.scheduler.explain("s/0", 0.0).left_out
    assert left.reason == f"it lacks what the study requires: {path}: {GONE}"
    book.tell(looked("m", path=path)).expect("launch s/0#1 on m/0")


def test_a_conda_environment_is_required_like_a_path() -> None:
    book = play(program=Program(("python", "train.py"), "", "c0de", "/", conda="vision"))
    (asked,) = (each for each, _ in book.entries if isinstance(each, Look))
    assert (asked.paths, asked.venvs, asked.condas) == ((), (), ("vision",))
    book.expect("look on n at vision")
    need = "conda environment vision"
    book.tell(looked(reason="it is not here", path=need)).expect()
    (left,) = book.scheduler.explain("s/0", 0.0).left_out
    assert left.reason == f"it lacks what the study requires: {need}: it is not here"
    book.tell(looked(path=need)).expect("launch s/0#1 on n/0")


def test_a_node_looks_for_a_conda_environment_that_it_is_asked_for() -> None:
    asked = Look("n1", (), (), ("vision",))
    assert Told().says(asked) == [WatchRequirements((), (), ("vision",))]


def test_an_environment_is_named_by_all_that_it_is_made_of() -> None:
    one = Venv("/usr/bin/python3", "demo==1\n")
    assert one.name == Venv("/usr/bin/python3", "demo==1\n").name
    assert len({one.name, Venv("/opt/python3", "demo==1\n").name, Venv(one.python, "d").name}) == 3


def test_what_a_node_looks_at_no_more_is_asked_for_again_if_a_study_requires_it() -> None:
    book = searching().tell(looked(path="/preview"))
    assert "/preview" in book.state.sights["n"]
    book.tell(looked(path="/preview", reason=UNSEEN)).expect()
    assert book.state.sights["n"] == {DATA: UNSEEN}
    book.tell(looked()).expect("launch s/0#1 on n/0")
    book.tell(looked(reason=UNSEEN)).expect(f"look on n at {DATA}")
