"""How exact a resume of a PyTorch program is, as far as is known by now.

It is never exact. If something makes a resume impossible, the first such finding is the reason.
"""

from __future__ import annotations

import ast
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from trainer_shim.adapters import seeds_private
from trainer_shim.adapters.torch import private
from trainer_shim.adapters.torch.frame_locals import of_program
from trainer_shim.agent import Agent, CannotCapture, CannotCaptureNow
from trainer_shim.program.source_files import is_programs_own, syntax_tree
from trainer_shim.saver import OtherProgram

# What a program keeps where no checkpoint of a PyTorch loop looks for it.
#
# Found in the source of the program's own modules, by how it is assigned: a variable of a
# closure whose function is not being executed, an attribute of a class or a function, and a
# global variable of a module other than the script. What a module assigns outside of loops it
# assigns again when it is imported.

_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Loop = (ast.For, ast.AsyncFor, ast.While)
Running = set[tuple[str, str, int]]  # functions being executed: file, name, first line


def obstacle(frame: types.FrameType | None) -> str | None:
    """Why the program that executes `frame` only parks; None if nothing of the kind is found."""
    running = {
        (os.path.realpath(code.co_filename), code.co_name, code.co_firstlineno)
        for code in (own.f_code for own in of_program(frame))
    }
    main = os.path.realpath(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    trees = _trees(os.path.dirname(main) + os.sep)
    defined = {
        node.name for _, tree in trees for node in ast.walk(tree) if isinstance(node, _Definition)
    }
    for file, tree in trees:
        found = next(_Search(file, file == main, running, defined).look(tree, ()), None)
        if found is not None:
            name = os.path.basename(file)
            return (
                f"{found} ({name}) changes while the program trains and would not be brought back"
            )
    return None


def _trees(folder: str) -> list[tuple[str, ast.Module]]:
    """The modules beside and below the script that are imported by now: file and syntax tree."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    found = []
    own = {os.path.realpath(one) for one in files if one and is_programs_own(one)}
    for file in sorted(one for one in own if one.startswith(folder)):
        try:
            with open(file, "rb") as source:
                found.append((file, syntax_tree(source.read())))
        except (OSError, SyntaxError, ValueError):  # such as an extension written in C
            continue
    return found


class _Search:
    """A search of one module."""

    def __init__(self, file: str, is_main: bool, running: Running, defined: set[str]) -> None:
        self._file = file
        self._is_main = is_main
        self._running = running
        self._defined = defined

    def look(self, node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[str]:
        """What is found in and below `node`, in words; `around` is what it lies in."""
        if isinstance(node, ast.Nonlocal):
            names = (name for name in node.names if not self._is_executed(name, around))
            yield from (f"the variable '{name}' of a closure" for name in names)
        elif isinstance(node, ast.Global) and not self._is_main:
            names = (name for name in node.names if _is_read_and_set(name, around[-1]))
            yield from (f"the global variable '{name}'" for name in names)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = self._owner(node.value)
            if owner and any(isinstance(one, (*_Function, *_Loop)) for one in around):
                yield f"the attribute '{owner}.{node.attr}'"
        inside = (*around, node)
        for child in ast.iter_child_nodes(node):
            yield from self.look(child, inside)

    def _owner(self, value: ast.expr) -> str | None:
        """The class or function that an attribute is assigned to, None if it is another object."""
        if isinstance(value, ast.Name):
            return value.id if value.id == "cls" or value.id in self._defined else None
        words = ast.unparse(value)
        return words if words in ("self.__class__", "type(self)") else None

    def _is_executed(self, name: str, around: tuple[ast.AST, ...]) -> bool:
        """Whether the function whose variable it is, is being executed: then it is brought back."""
        for function in reversed(around[:-1]):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and _binds(
                function, name
            ):
                lines = [one.lineno for one in (*function.decorator_list, function)]
                return (self._file, function.name, min(lines)) in self._running
        return False


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What a function consists of, without the functions and classes in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, (*_Function, ast.ClassDef)):
            yield from _own_nodes(child)


def _binds(function: ast.AST, name: str) -> bool:
    nodes = list(_own_nodes(function))
    if any(isinstance(node, ast.Nonlocal) and name in node.names for node in nodes):
        return False
    args = getattr(function, "args", None)
    given = (
        [] if args is None else [node.arg for node in ast.walk(args) if isinstance(node, ast.arg)]
    )
    return name in given or any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in nodes
    )


def _is_read_and_set(name: str, function: ast.AST) -> bool:
    """Whether a function goes on from the value that a global variable has: one that only sets it
    does so again."""
    nodes = list(_own_nodes(function))
    used = [node.ctx for node in nodes if isinstance(node, ast.Name) and node.id == name]
    added = any(
        isinstance(node, ast.AugAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == name
        for node in nodes
    )
    return added or {type(one) for one in used} >= {ast.Load, ast.Store}


_PROMISE = (
    "parameters, optimizers, schedulers, random numbers, the loaders' positions and plain "
    "variables are brought back; other objects that the loop keeps in Python are not: "
    "trainer_shim.attach() and report(step, loss=..., save=...) would save them too"
)
_DRIVEN = (
    "parameters, optimizers, schedulers, random numbers, the place in the data, and what {} and "
    "its callbacks count and log are brought back; other objects that the program keeps in Python "
    "are not: trainer_shim.attach() and report(step, loss=..., save=...) would save them too"
)
# Said with what is in the way of Hermes, and not of the program's own say.
_WAY_OUT = "trainer_shim.attach() and report(step, loss=..., save=...) let it say what to save"


class TorchFidelity:
    """What a resume of this process promises."""

    def __init__(
        self, agent: Agent, capture: Callable[[], Any], end: Callable[[], tuple[int, Any]]
    ) -> None:
        import torch

        self._agent = agent
        self._capture = capture
        self._end = end
        self._first_seed = torch.initial_seed()
        reasons = (private.untested(), seeds_private.missing())
        self._obstacles = [reason for reason in reasons if reason is not None]
        self._promise = _PROMISE

    def driven(self, framework: str, untested: str | None) -> None:
        """The program trains by this framework's own loop."""
        self._promise = _DRIVEN.format(framework)
        if untested is not None:
            self._keep_parked(untested)

    def obstacle(self, reason: str) -> None:
        """From here on this program can only be parked."""
        self._keep_parked(f"{reason}; {_WAY_OUT}")

    def _keep_parked(self, reason: str) -> None:
        if reason not in self._obstacles:
            self._obstacles.append(reason)
        self.judge()

    def other_trained(self, reason: str) -> None:
        """Another adapter has looked after what was trained: for loops after it there is none."""
        if reason not in self._obstacles:
            self._obstacles.append(reason)

    def look(self) -> None:
        """Look at what is known once the program trains, and tell it."""
        import torch

        if self._agent.seed is None and torch.initial_seed() == self._first_seed:
            self._keep_parked("neither the program nor the trial has a seed: set one of them")
        joined = torch.distributed.is_available() and torch.distributed.is_initialized()
        if joined and not self._agent.several:
            self._keep_parked("torch.distributed: the processes would have to be saved together")
        counter = obstacle(sys._getframe())
        if counter is not None:
            self.obstacle(counter)
        self.judge()

    def judge(self) -> None:
        """Tell the host what a resume promises by what is known now."""
        agent = self._agent
        if self._obstacles:
            agent.capture = agent.end = None
            agent.fidelity("park-only", self._obstacles[0])
        else:
            agent.capture, agent.end = self._take, self._end
            agent.fidelity("parameters-exact", self._promise)

    def _take(self) -> Any:
        return self.taken(self._capture)

    def taken(self, take: Callable[[], Any]) -> Any:
        """What `take` copies; what keeps it from that, but for the moment, is an obstacle."""
        try:
            return take()
        except CannotCaptureNow:
            raise
        except CannotCapture as error:
            self.obstacle(str(error))
            raise


@contextmanager
def refusing(agent: Agent) -> Iterator[None]:
    """End the process if the checkpoint turns out not to be this program's."""
    try:
        yield
    except OtherProgram as error:
        agent.failed("restore", str(error), f"OtherProgram: {error}")
        os._exit(1)
