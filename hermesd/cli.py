"""`hermesd head | node | local | simulate | ...`: composition root, exit codes of refusals.

2: the settings or the state will not do, and a restart would not help. 4: somebody else is in the
way, which may pass. 130: a simulation was interrupted. Anything else that ends a command is a
traceback and exit code 1.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hermesd.commands import expand, repair_and_backup
from hermesd.expecting import StateAway, StateRefused
from hermesd.misuse import Misuse, OneLineGroup
from hermesd.security.accounts import not_permitted
from hermesd.sim import command

# Each command imports what it needs: a quarter of a second of all imports are the settings'.
if TYPE_CHECKING:
    from hermesd.config.schema import NodeConfig

# As pyproject.toml says.
OLDEST_PYTHON = (3, 11, 4)

PASSING = 1
REFUSED = 2
IN_THE_WAY = 4

# Measured: a head has 22 open and a node 17 before anybody connects; connections and trials come on
# top of that.
DESCRIPTORS_MIN = 64
USUAL_DESCRIPTORS = 1024
# A head starts no programs, and has a connection open to each node.
HEADS_DESCRIPTORS = 65_536


class Commands(OneLineGroup):
    """All of them; a misused one is refused as settings are."""

    def refused(self, misuse: Misuse) -> NoReturn:
        """Say what is wrong with the command line, and leave."""
        from hermesd.refusal import FieldError, shown

        wrong = FieldError(misuse.name, shown(misuse.value), misuse.expected, misuse.nearest)
        _refuse(str(wrong))


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The daemons, and what administrators do with them. For studies, use `hermesctl`.",
)
policies = typer.Typer(
    no_args_is_help=True, help="Check policies, built in or from installed packages."
)
app.add_typer(policies, name="policy")
nodes = typer.Typer()
app.add_typer(nodes, name="node")

Config = Annotated[
    Path | None, typer.Option("--config", envvar="HERMES_CONFIG", help="The TOML file.")
]
State = Annotated[Path | None, typer.Option("--state", help="Overrides state_dir.")]
Embedded = Annotated[
    bool,
    typer.Option(
        "--embedded", help="Single-user mode: only the Unix socket's file mode guards access."
    ),
]
UntilStdinCloses = Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)]


@app.command()
def head(
    config: Config = None,
    state: State = None,
    socket: Annotated[Path | None, typer.Option(help="Overrides socket.")] = None,
    listen: Annotated[str | None, typer.Option(help="Overrides listen: host:port.")] = None,
    embedded: Embedded = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Rebuild the journal from whatever can still be read, then exit."
        ),
    ] = False,
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Run the control daemon.

    Example: hermesd head --config /etc/hermes/hermesd.toml
    """
    _see_descriptors(HEADS_DESCRIPTORS)
    with _importing():
        import hermesd.quiet_grpc  # noqa: F401 - before anything that loads gRPC
        from hermesd.config.sources import ConfigError, load_head
        from hermesd.head.journal.store import JournalBroken
        from hermesd.head.server import serve
        from hermesd.head.statedir import StateBusy

    flags = {"state_dir": state, "socket": socket, "listen": listen, "embedded": embedded or None}
    try:
        settings = load_head(config, os.environ, flags)
    except ConfigError as error:
        _refuse(str(error))
    if repair:
        repair_and_backup.repair(settings)
    else:
        away = (StateAway, JournalBroken)
        daemon = partial(serve, settings)
        _run(daemon, until_stdin_closes, (StateBusy,), (StateRefused,), away)


Name = Annotated[str | None, typer.Option("--name", help="Overrides name.")]
RunAs = Annotated[
    str | None,
    typer.Option("--run-as", help="Overrides run_as: self, users, or numbers 400000-465535."),
]
Slots = Annotated[str | None, typer.Option("--slots", help="Overrides cpu_slots: 3, or 80%,40%.")]


@nodes.callback(invoke_without_command=True)
def node(
    context: typer.Context,
    config: Config = None,
    state: State = None,
    head: Annotated[str | None, typer.Option(help="Overrides head: unix:/path, host:port.")] = None,
    name: Name = None,
    slots: Slots = None,
    run_as: RunAs = None,
    embedded: Embedded = False,
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Run the node daemon, or have this machine join a head first.

    Example: hermesd node --config /etc/hermes/hermesd.toml
    """
    _see_descriptors()
    if context.invoked_subcommand is None:
        settings = _node_settings(
            config, state, name, slots, head=head, run_as=run_as, embedded=embedded or None
        )
        _serve_node(settings, until_stdin_closes)


@nodes.command()
def join(
    head: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the head listens.")],
    token: Annotated[
        str | None,
        typer.Argument(
            metavar="TOKEN", help="What `hermesctl node token` printed.", show_default=False
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file that holds the token; `-` reads standard input.", show_default=False
        ),
    ] = None,
    config: Config = None,
    state: State = None,
    name: Name = None,
    slots: Slots = None,
    run_as: RunAs = None,
    serve: Annotated[
        bool, typer.Option("--serve/--enroll-only", help="Run the node daemon at once.")
    ] = True,
    guest: Annotated[
        bool,
        typer.Option(
            "--guest",
            help="Keep the state in a directory under TMPDIR. On SIGUSR1, or on SIGTERM within 20"
            " s, move everything elsewhere, exit, and be forgotten by the head.",
        ),
    ] = False,
) -> None:
    """Join a head with a token; from then on, `hermesd node` connects to it.

    Example: hermesd node join gpu1.example.org:7411 --token-file - --run-as self
    """
    from hermesd.commands import join as joining
    from hermesd.node.daemon import require_run_as

    stop = "part" if guest else None
    try:
        with joining.guest_folder(state, serve) if guest else nullcontext(state) as folder:
            settings = _node_settings(config, folder, name, slots, at_stop=stop, run_as=run_as)
            if serve:  # before the token is used up
                require_run_as(settings.model_copy(update={"head": head}))
            typer.echo(joining.join(head, token, token_file, settings), err=True)
            if serve:
                joined = _node_settings(
                    config, folder, name, slots, head=head, at_stop=stop, run_as=run_as
                )
                _serve_node(joined, False)
    except (joining.NotEnrolled, StateRefused) as error:
        _refuse(str(error))
    if not serve and (other := _node_settings(config, state, name, slots).head) != head:
        typer.echo(
            f"note: the settings say head = {other}: remove it, so that `hermesd node` connects to"
            f" {head}",
            err=True,
        )


def _node_settings(
    config: Path | None,
    state: Path | None,
    name: str | None,
    slots: str | None,
    **others: object,
) -> NodeConfig:
    from hermesd.config.sources import ConfigError, load_node

    flags = {"state_dir": state, "name": name, "cpu_slots": slots, **others}
    try:
        return load_node(config, os.environ, flags)
    except ConfigError as error:
        _refuse(str(error))
    except StateAway as error:  # of what it came by when it joined
        _refuse(str(error), PASSING)


def _serve_node(settings: NodeConfig, until_stdin_closes: bool) -> None:
    with _importing():
        import hermesd.quiet_grpc  # noqa: F401 - before anything that loads gRPC
        from hermesd.node.daemon import AlreadyRunning, serve
        from hermesd.node.head_link import NameTaken
        from hermesd.node.machine.cpu_quotas import NoQuota
        from hermesd.node.storage.shared_directory import SharedAway

    in_the_way = (AlreadyRunning, NameTaken)
    daemon = partial(serve, settings)
    away = (SharedAway, StateAway)
    _run(daemon, until_stdin_closes, in_the_way, (NoQuota, StateRefused), away)


@app.command()
def local(
    state: Annotated[Path | None, typer.Option(help="Where everything is kept.")] = None,
    slots: Slots = None,
) -> None:
    """Run a head and a node for this user, on a Unix socket.

    Example: hermesd local --slots 4
    """
    _see_descriptors()
    from hermesd import logs
    from hermesd.local import InTheWay, LocalRefused, serve

    if state is None:
        from hermesd.config.schema import state_home

        state = state_home()
    logs.configure()
    try:
        asyncio.run(serve(state.absolute(), slots))
    except InTheWay as error:
        _refuse(str(error), IN_THE_WAY)
    except LocalRefused as error:
        _refuse(str(error))
    except PermissionError as error:
        _refuse(not_permitted(error))
    except OSError as error:
        _refuse(str(error), PASSING)


app.command()(command.simulate)
app.command()(repair_and_backup.backup)
app.command()(command.replay)
app.command()(command.forecast)
app.command(hidden=True)(expand.expand)
policies.command("check")(command.check)


def _run(
    daemon: Callable[[], Coroutine[Any, Any, None]],
    until_stdin_closes: bool,
    in_the_way: tuple[type[Exception], ...],
    refusals: tuple[type[Exception], ...],
    passing: tuple[type[Exception], ...] = (),
) -> None:
    from hermesd import logs

    logs.configure()
    # Of a disk that is full or away: nothing is wrong with what is asked for.
    passing = (*passing, OSError)
    if until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        asyncio.run(daemon())
    except in_the_way as error:
        _refuse(str(error), IN_THE_WAY)
    except PermissionError as error:
        _refuse(not_permitted(error))
    except refusals as error:
        _refuse(str(error))
    except passing as error:
        _refuse(str(error), PASSING)
    except ExceptionGroup as group:
        others = group.split(OSError)[1]
        if others is not None:
            raise others from None
        _refuse(str(group.exceptions[0]), PASSING)


@contextmanager
def _importing() -> Iterator[None]:
    """Nothing that an import makes is garbage: to look for some takes a seventh of its time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _see_descriptors(usual: int = USUAL_DESCRIPTORS) -> None:
    """See that as many files may be open as a daemon needs, before anything is begun for which it
    is too late to fail: gRPC ends the process then, or its threads wait for ever.

    A soft limit that is very low is raised, and no further than to what programs are used to, as
    trials inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = usual if hard == resource.RLIM_INFINITY else min(hard, usual)
    if most < DESCRIPTORS_MIN:
        from hermesd.refusal import FieldError

        expected = (
            f"{DESCRIPTORS_MIN} or more: raise the hard limit of the process that starts this"
        )
        _refuse(str(FieldError("limit of open files (ulimit -n)", str(hard), expected)))
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _end_with_stdin() -> None:
    """Whoever started us holds the other end: when it is gone, we end as if it had asked."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _refuse(message: str, code: int = REFUSED) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"hermesd: {line}", err=True)
    raise typer.Exit(code)


def main() -> None:
    """The command line's entry point."""
    # An installer would have refused, but a folder of sources is run without one: each trial would
    # fail as its code is unpacked.
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        print(
            f"hermesd: {sys.executable} is Python {platform.python_version()}: expected {needed} or"
            " later",
            file=sys.stderr,
        )
        sys.exit(REFUSED)
    # Whoever starts us may block signals, or ignore SIGCHLD, which has no child's exit code told. A
    # Ctrl-C that came while it was blocked was for them: it goes to the whole terminal.
    if signal.SIGINT in signal.sigpending():
        signal.sigwait({signal.SIGINT})
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    app()


if __name__ == "__main__":
    main()
