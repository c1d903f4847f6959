"""Writes the blocking client, client.py, from the asyncio one, or says that it is stale.

`python -m hermesctl.sdk.generate` writes, `--check` compares and changes nothing. Each public
method of AsyncClient becomes one of the same name, arguments and documentation: a coroutine's
answer is waited for, an asynchronous generator becomes an iterator.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCE, MADE = HERE / "async_client.py", HERE / "client.py"

HEAD = '''"""The SDK for scripts and notebooks: the same calls as AsyncClient, blocking.

Made by generate.py of async_client.py; do not edit. Its calls run on an event loop in another
thread, so it works inside a running loop as well; nothing is decided here.
"""

from __future__ import annotations

{imports}
from types import TracebackType
from typing import Any, TypeVar
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

from hermesctl.sdk.async_client import {names}
from hermesctl.sdk.loop_thread import LoopThread

Answer = TypeVar("Answer")


class Client:
    """A blocking client of one head; use it as a context manager or call `close`.

    `head`, `local` and `patience_seconds` are AsyncClient's; with `local` the embedded head is
    started here if it does not run. Functions that are passed, such as `on_gap` and `on_progress`,
    are called in the client's thread.
    """

    def __init__({init}) -> None:
        self._client = AsyncClient({given})
        self._thread = LoopThread(self._client.close)
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every call and stream and close the connection; closing twice is fine, and so is
        leaving it to the end of the script."""
        self._thread.close()

    def __repr__(self) -> str:
        return f"<{{type(self).__name__}} of {{self._client.connection.address}}>"

    def _run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return self._thread.run(coroutine)

    def _iterate(self, start: Callable[[], AsyncGenerator[Answer, None]]) -> Iterator[Answer]:
        return self._thread.iterate(start)
'''

METHOD = '''
    def {name}({arguments}) -> {answer}:
        """{words}"""
        return {call}
'''


def made() -> str:
    """The blocking client's source. Raises CalledProcessError if ruff can't format it."""
    tree = ast.parse(SOURCE.read_text())
    (client,) = (
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "AsyncClient"
    )
    methods = {
        node.name: node
        for node in client.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    init = methods.pop("__init__")
    del methods["close"]
    parts = [_method(node) for name, node in methods.items() if not name.startswith("_")]
    own = {
        name
        for node in tree.body
        for name in ([node.name] if isinstance(node, ast.ClassDef) else _assigned(node))
    }
    used = _used([init, *methods.values()])
    whole = HEAD.format(
        imports="\n".join(_imports(tree, used)),
        names=", ".join(sorted({"AsyncClient", *(used & own)})),
        init=ast.unparse(init.args),
        given=_given(init.args),
    )
    return _formatted(whole + "".join(parts))


def stale() -> bool:
    """Whether client.py is not what async_client.py makes of it."""
    return not MADE.exists() or MADE.read_text() != made()


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    assert node.returns is not None
    call = f"self._client.{node.name}({_given(node.args)})"
    answer = ast.unparse(node.returns)
    if answer.startswith("AsyncGenerator["):
        answer = f"Iterator[{answer.removeprefix('AsyncGenerator[').removesuffix(', None]')}]"
        call = f"self._iterate(lambda: {call})"
    else:
        call = f"self._run({call})"
    words = (
        (ast.get_docstring(node) or "").replace("\n", "\n        ").replace(" " * 8 + "\n", "\n")
    )
    if "\n" in words:
        words += "\n        "
    return METHOD.format(
        name=node.name, arguments=ast.unparse(node.args), answer=answer, words=words, call=call
    )


def _given(arguments: ast.arguments) -> str:
    """The arguments of a method, passed on as they came."""
    given = [each.arg for each in arguments.args if each.arg != "self"]
    if arguments.vararg is not None:
        given.append(f"*{arguments.vararg.arg}")
    given += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    return ", ".join(given)


def _assigned(node: ast.stmt) -> list[str]:
    """The names that a statement of the module gives to values."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _used(methods: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> set[str]:
    """The names in the signatures of the public ones."""
    signatures = [
        part
        for node in methods
        if node.name == "__init__" or not node.name.startswith("_")
        for part in (node.args, node.returns)
        if part is not None
    ]
    return {node.id for part in signatures for node in ast.walk(part) if isinstance(node, ast.Name)}


def _imports(tree: ast.Module, used: set[str]) -> list[str]:
    """The statements that bring these names into the module."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and node.names[0].name != "annotations":
            node.names = [each for each in node.names if (each.asname or each.name) in used]
            found += [ast.unparse(node)] if node.names else []
    return found


def _formatted(source: str) -> str:
    for words in (["check", "--select", "I,F401", "--fix"], ["format"]):
        command = [sys.executable, "-m", "ruff", *words, "--quiet", "--stdin-filename", str(MADE)]
        done = subprocess.run(
            [*command, "-"], input=source, capture_output=True, text=True, check=True
        )
        source = done.stdout
    return source


def main() -> int:
    """Entry point; exit code 1 when --check finds the client stale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare only, change nothing")
    if not parser.parse_args().check:
        MADE.write_text(made())
    elif stale():
        print("stale: hermesctl/sdk/client.py (make client)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
