"""Searches over a Python function, from a script or a notebook.

    from hermesctl import grid_search

    def train(learning_rate, dropout):
        ...
        return accuracy

    if __name__ == "__main__":
        grid = {"learning_rate": [0.1, 0.01], "dropout": [0.2, 0.5]}
        results = grid_search(train, grid)
        print(results.best.params)

Each point is a trial like any other: it is suspended, resumed, retried and ranked, and its device
is free for the next as soon as it ends.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from hermesctl.errors import UsageError
from hermesctl.render.tables import leaderboard
from hermesctl.sdk.address import find_head
from hermesctl.sdk.client import Client
from hermesctl.sdk.records import Leaderboard, StudyDetail, Trial
from hermesctl.text import nearest

Function = Callable[..., object]
Axis = Mapping[str, object] | Sequence[object] | float | bool | str
RESULT = "result"
# A live table is shown anew at most so often.
TABLE_SECONDS = 1.0
# How many trials of it are printed.
_ROWS_PRINTED = 20
# Of the reasons why trials failed, the most frequent.
_REASONS = 3


class Results:
    """A search, running or over: `study` is its id, `client` what asks the head about it."""

    def __init__(self, client: Client, study: str) -> None:
        self.client = client
        self.study = study

    def wait(self, *, progress: bool = True) -> StudyDetail:
        """Return once all its trials are over.

        Args:
            progress: show the leaderboard meanwhile in a notebook, and a bar on stderr elsewhere.

        Returns:
            The study with its trials.
        """
        display = _notebook_display() if progress else None
        if display is None:
            return self.client.wait(self.study, progress=progress)
        shown, told = display(self, display_id=True), time.monotonic()
        for _ in self.client.follow(self.study, reports=False):
            if time.monotonic() - told >= TABLE_SECONDS:
                shown.update(self)
                told = time.monotonic()
        shown.update(self)
        return self.client.study(self.study)

    def leaderboard(self, count: int = 1_000_000) -> Leaderboard:
        """Its trials, the best first.

        Args:
            count: how many at the most.

        Returns:
            Those that have no value of the metric come last, without a rank.
        """
        return self.client.best(self.study, count)

    @property
    def best(self) -> Trial:
        """The best trial so far, with its `params` and its `metric`.

        Raises:
            UsageError: none has come to a value of the metric yet.
        """
        board = self.leaderboard(1)
        first = next(iter(board), None)
        if first is None or first.rank is None:
            raise UsageError(
                f"no trial of {self.study} has a value of {board.metric}; `hermesctl best"
                f" {self.study}` shows what became of them"
            )
        return first

    def frame(self) -> Any:
        """The leaderboard as a pandas DataFrame.

        Raises:
            UsageError: pandas is not installed.
        """
        return self.leaderboard().frame()

    def __repr__(self) -> str:
        return f"Results({self.study!r})"

    def __str__(self) -> str:
        """The leaderboard as `hermesctl best` prints it."""
        board = self.leaderboard()
        others = [*board.objectives][1:]
        first = board[:_ROWS_PRINTED]
        width = shutil.get_terminal_size().columns
        page = Console(width=width, color_system=None, force_jupyter=False)
        with page.capture() as table:
            page.print(leaderboard(first, board.ranked_by, False, others, board.front))
        lines = [line.rstrip() for line in table.get().splitlines()]
        more = len(board) - len(first)
        reasons = Counter(trial.reason for trial in board if trial.state == "failed")
        return "\n".join(
            [
                *lines,
                *([f"… and {more} more"] if more else []),
                *(f"{count} failed: {why}" for why, count in reasons.most_common(_REASONS)),
            ]
        )

    def _repr_html_(self) -> str:
        return self.leaderboard()._repr_html_()


def grid_search(
    function: Function,
    parameters: Mapping[str, Axis],
    *,
    metric: str = RESULT,
    goal: str = "maximize",
    wait: bool = True,
    client: Client | None = None,
    **study: Any,
) -> Results:
    """Call a function at each point of a grid, as trials.

    Args:
        function: what trains. It takes the parameters by name and returns a number, a dict of
            numbers or None; inside, `trainer_shim.log(...)` and what a framework reports give
            curves.
        parameters: the values of each argument, or the one that all trials have.
        metric: which of the numbers ranks the trials; one that is returned alone is `result`.
        goal: `maximize` or `minimize`.
        wait: return when all trials are over, and show a bar meanwhile.
        client: of the head to use. By default the one that `hermesctl` would, which may be your
            own local one: it is started if it does not run.
        study: further keys of a study file, such as `name`, `schedule`, `requirements`, `pool`.

    Raises:
        UsageError: the function does not take these arguments, or cannot be sent.
        StudyFileError: a value or a key won't do.
        Refused: the head does not accept it now.
    """
    return search(
        function, parameters, method="grid", metric=metric, goal=goal, wait=wait, client=client,
        **study,
    )  # fmt: skip


def random_search(
    function: Function,
    parameters: Mapping[str, Axis],
    *,
    trials: int,
    metric: str = RESULT,
    goal: str = "maximize",
    wait: bool = True,
    client: Client | None = None,
    **study: Any,
) -> Results:
    """Call a function at points that are drawn, as trials.

    Args:
        parameters: as in `grid_search`, or bounds and a distribution as in a study file:
            `{"min": 1e-5, "max": 0.1, "distribution": "log_uniform_values"}`.
        trials: how many points.
        function, metric, goal, wait, client, study: as in `grid_search`, which also says what is
            raised.
    """
    return search(
        function, parameters, method="random", metric=metric, goal=goal, wait=wait, client=client,
        trials=trials, **study,
    )  # fmt: skip


def search(
    function: Function,
    parameters: Mapping[str, Axis],
    *,
    method: str,
    trials: int | None = None,
    metric: str = RESULT,
    goal: str = "maximize",
    wait: bool = True,
    client: Client | None = None,
    **study: Any,
) -> Results:
    """Call a function at the points of any search that a study file can name.

    Args:
        method: as in a study file: `grid`, `random`, or a searcher such as `tpe`, `genetic` or
            `random_walk`. `hyperband` draws points at random, and schedules them by the policy of
            that name.
        trials: how many in all; the `run_cap` of a study file.
        function, parameters, metric, goal, wait, client, study: as in `random_search`, which also
            says what is raised.
    """
    if "HERMES_PARAMETERS" in os.environ:
        raise UsageError(
            "a search was started inside a trial: if the function is in a script, start it"
            ' below `if __name__ == "__main__":`'
        )
    if method == "hyperband":
        method, study = "random", {"schedule": {"policy": "hyperband"}, **study}
    if trials is not None:
        study = {"run_cap": trials, **study}
    _see_that_it_takes(function, parameters)
    axes = {name: _axis(value) for name, value in parameters.items()}
    with _sent(function) as (directory, target):
        prepared = {
            "name": getattr(function, "__name__", "function").strip("<>"),
            "program": _program(target),
            "python": sys.executable,
            "command": ["${interpreter}", "-m", "trainer_shim.function", target],
            "method": method,
            "metric": {"name": metric, "goal": goal},
            "parameters": axes,
            **study,
        }
        asking = client or Client(local=find_head(None, os.environ).embedded)
        if client is None:
            asking.__enter__()
        submission = asking.submit(prepared, directory=directory, again=True)
    results = Results(asking, submission.study)
    if wait:
        results.wait()
    return results


def _notebook_display() -> Callable[..., Any] | None:
    """What shows something in the notebook that this runs in; None elsewhere."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    if getattr(running, "kernel", None) is None:
        return None
    display: Callable[..., Any] = importlib.import_module("IPython.display").display
    return display


def _see_that_it_takes(function: Function, parameters: Mapping[str, object]) -> None:
    """Raises UsageError, with the nearest argument."""
    if not callable(function):
        raise UsageError(f"function: {function!r}: expected a function, not what it returns")
    if not isinstance(parameters, Mapping):
        told = 'expected a dict of its arguments, such as {"learning_rate": [0.1, 0.01]}'
        raise UsageError(f"parameters: {parameters!r}: {told}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # as of some builtins: the call will show
    try:
        signature.bind(**dict.fromkeys(parameters))
    except TypeError as error:
        takes = [
            name for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD
        ]
        unknown = next((name for name in parameters if name not in takes), "")
        near = nearest(unknown, takes) if unknown else ""
        hint = f"; did you mean {near}?" if near else ""
        name = getattr(function, "__name__", "the function")
        what = f"takes no {unknown}" if unknown else str(error)
        raise UsageError(f"{name}{signature}: {what}{hint}") from None


def _axis(value: Axis) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str) or not isinstance(value, Iterable):
        return {"value": _plain(value)}
    return {"values": [_plain(each) for each in value]}


def _plain(value: object) -> object:
    return value.item() if hasattr(value, "item") else value


@contextmanager
def _sent(function: Function) -> Iterator[tuple[Path, str]]:
    """The folder that travels, and what `trainer_shim.function` finds the function by there.

    A function of a file goes with the file's folder; one of a notebook, or that was made in
    another function, as cloudpickle writes it. Raises UsageError.
    """
    if (found := _in_a_file(function)) is not None:
        yield found
        return
    folder = Path(tempfile.mkdtemp(prefix="hermes-function-"))
    try:
        (folder / "function.pkl").write_bytes(_pickled(function))
        yield folder, "function.pkl"
    finally:
        shutil.rmtree(folder)


def _in_a_file(function: Function) -> tuple[Path, str] | None:
    """The folder of its code and what names the function there, if a file has it by its name.

    The name of a method of an object, or of what was defined anew, is that of another function. Of
    a package that is the folder above it. What is installed is there for the trials as well. What a
    script defines below `if __name__ == "__main__":` is not there when a trial imports it.
    """
    name, module = getattr(function, "__qualname__", "<none>"), inspect.getmodule(function)
    file = Path(getattr(module, "__file__", None) or "<none>").absolute()
    if module is None or "<" in name or not file.is_file() or _is_installed(file):
        return None
    try:
        if operator.attrgetter(name)(module) != function or _is_guarded(function, file):
            return None
    except AttributeError:
        return None
    package = module.__package__ or ""
    if not package:
        return file.parent, f"{file.name}:{name}"
    return file.parents[package.count(".") + 1], f"{package}.{file.stem}:{name}"


def _is_guarded(function: Function, file: Path) -> bool:
    """Whether its file defines a function only where that is run as a script."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False
    conditions = [each for each in ast.parse(file.read_bytes()).body if isinstance(each, ast.If)]
    return any(
        each.lineno <= code.co_firstlineno <= (each.end_lineno or 0)
        for each in conditions
        if "__name__" in ast.unparse(each.test)
    )


def _program(target: str) -> str:
    """The file, below the folder, of what names a function."""
    path = target.partition(":")[0]
    return path if path.endswith((".py", ".pkl")) else f"{path.replace('.', '/')}.py"


def _is_installed(file: Path) -> bool:
    return any(file.is_relative_to(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib"))


def _pickled(function: Function) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        raise UsageError(
            "sending a function from a notebook, or from inside another, takes cloudpickle: pip"
            " install cloudpickle, or move it to a file of its own"
        ) from None
    module = inspect.getmodule(function)
    file = getattr(module, "__file__", None)
    by_value = module is not None and file is not None and not _is_installed(Path(file))
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(function))
    except Exception as error:  # whatever an object's own __reduce__ raises
        raise UsageError(
            f"{getattr(function, '__qualname__', function)} cannot be sent: {error}; create what"
            " it refers to inside it"
        ) from None
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
