"""Turns a forked child of the host into the user's program.

A Python program of this interpreter runs in this process, as `__main__`, with the agent installed
before its first line. Everything else is exec'd and inherits the channel, so that a Python below it
can be reached. The program sees its own environment, argv and sys.path.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import json
import os
import runpy
import sys
import time
import traceback
import types
from collections.abc import Mapping
from typing import Any, NoReturn

from trainer_shim import child_interpreters, current_agent, signals
from trainer_shim.adapters import registry
from trainer_shim.agent import Agent
from trainer_shim.host.worker import ProgramLaunch
from trainer_shim.metrics import streams
from trainer_shim.program import command_line
from trainer_shim.program.fast_exit import leave, wait_for_threads
from trainer_shim.program.framework_scan import is_blind
from trainer_shim.trainee import Trainee

_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run_program(launch: ProgramLaunch, libraries_set: Mapping[str, str]) -> None:
    """Run the trial's program; returns or exits as the program does. Libraries that are imported
    already have set these variables; the program may have others of these names."""
    _take_environment(launch)
    for name, value in libraries_set.items():
        os.environ.setdefault(name, value)
    take_cores(launch.cores or launch.spec.cores)
    python = python_arguments(launch.spec.argv, os.environ.get("PATH"))
    if python is None:
        _exec(launch)
    else:
        _run_here(launch, python)


def python_arguments(argv: list[str], path: str | None) -> list[str] | None:
    """What follows the interpreter's name, if it is this interpreter and a script or -m.

    None for any other program: one of another interpreter, with options that an interpreter reads
    when it starts, or none.
    """
    found = command_line.interpreter(argv, path)
    if found is None or not _same_interpreter(found[0]):
        return None
    options, program = command_line.split(found[1])
    is_plain = set(options) <= {"-u"} and program and program[0] != "-c"
    return program if is_plain and program != ["-m"] else None


def _same_interpreter(found: str) -> bool:
    """A virtual environment's python links to another's binary, so the folder must agree."""
    ours = os.path.abspath(sys.executable)
    same_folder = os.path.dirname(found) == os.path.dirname(ours)
    return same_folder and os.path.realpath(found) == os.path.realpath(ours)


def _take_environment(launch: ProgramLaunch) -> None:
    spec = launch.spec
    os.environ.clear()
    os.environ.update(spec.env)
    os.environ["HERMES_TRIAL"] = spec.trial
    os.environ["HERMES_ATTEMPT"] = str(launch.attempt)
    os.environ["HERMES_PARAMETERS"] = json.dumps(spec.parameters)
    if spec.seed is not None:
        os.environ["HERMES_SEED"] = str(spec.seed)
    time.tzset()


def take_cores(cores: list[int] | None) -> None:
    """Stay on the slot's cores; frameworks size their thread pools by the affinity."""
    if cores is not None:
        os.sched_setaffinity(0, cores)


def _exec(launch: ProgramLaunch) -> None:
    spec = launch.spec
    channel, page = launch.channel, launch.page.fd
    inherited = child_interpreters.environment(channel, page, spec, launch.restore)
    paths = filter(None, [child_interpreters.ENTRY, spec.env.get("PYTHONPATH"), _HERE])
    environment = {**os.environ, **inherited, "PYTHONPATH": os.pathsep.join(paths)}
    # Sets of strings must iterate in the same order in every process of a trial.
    environment.setdefault("PYTHONHASHSEED", "0")
    for fd in (channel.reads, channel.writes, page):
        os.set_inheritable(fd, True)
    agent = _agent(launch)
    agent.files.clear(launch.restore is None)
    reason = _out_of_reach(spec.argv)
    if launch.restore is None and reason is not None:
        agent.blind(reason, is_unseen=True)
    signals.stop_ignoring()
    try:
        os.execvpe(spec.argv[0], spec.argv, environment)
    except OSError as error:
        detail = f"cannot run {spec.argv[0]}: {error.strerror}"
        agent.failed("exception", detail, detail)
        os._exit(127)


def _out_of_reach(argv: list[str]) -> str | None:
    """Why nothing may be seen of a program that is exec'd; None for a Python within reach."""
    found = command_line.interpreter(argv, os.environ.get("PATH"))
    if found is None:
        return f"{argv[0]} is no Python program: Hermes can see only into a Python that it starts"
    deaf = [
        option for option in command_line.split(found[1]).options if option in command_line.DEAF
    ]
    return f"python {deaf[0]} lets nothing of Hermes into the program" if deaf else None


def _agent(launch: ProgramLaunch) -> Trainee:
    return Trainee(launch.channel, launch.page, launch.spec, launch.attempt, launch.restore)


def _run_here(launch: ProgramLaunch, arguments: list[str]) -> None:
    agent = _agent(launch)
    agent.is_the_program = True
    current_agent.install(agent)
    agent.files.clear(launch.restore is None)
    agent.begin()
    _line_buffered()
    _own_path(launch)
    _own_folders()
    registry.install(agent)
    streams.watch(agent)
    if launch.restore is None and is_blind(arguments[0]):
        agent.framework = "none"  # what a zygote has imported is none of the program's
        agent.blind(child_interpreters.UNSEEN)
    leave(_outcome(agent, arguments))


def _outcome(agent: Agent, arguments: list[str]) -> int:
    """Run the program, to the end of its last thread, and tell how it ended; its exit code."""
    failure = None
    _report_before_exit(agent)
    try:
        _run(arguments)
        code = 0
    except SystemExit as exit:
        code = _exit_code(exit)
        failure = "exit", f"the program called sys.exit({code})", f"exit status {code}"
    except BaseException as error:  # whatever the program raises
        code, failure = 1, ("exception", *_print_exception(error))
    wait_for_threads()
    if code == 0:
        agent.completed(code)
    elif failure is not None:
        agent.failed(*failure)
    return code


def _report_before_exit(agent: Agent) -> None:
    """Have a program that ends itself by `os._exit` tell what it trained since the last report."""
    exit_now, trial = os._exit, os.getpid()

    @functools.wraps(exit_now)
    def _exit(status: int) -> NoReturn:
        if os.getpid() == trial:
            agent.report_if_free()
        exit_now(status)

    os._exit = _exit


def _run(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = [arguments[1], *arguments[2:]]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = os.path.abspath(arguments[0])
    sys.argv = list(arguments)
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    # Not runpy.run_path: the module must stay `__main__` for threads and pickles after its end.
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", script)
    says: dict[str, Any] = {"__file__": script, "__loader__": loader, "__cached__": None}
    module.__dict__.update(says, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    exec(code, module.__dict__)


def _own_path(launch: ProgramLaunch) -> None:
    """Undo what started the host: sys.path as a plain start with the trial's environment has
    it, less the script's folder."""
    ours = {"", _HERE, *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    theirs = [part for part in launch.spec.env.get("PYTHONPATH", "").split(os.pathsep) if part]
    kept = [entry for entry in sys.path if entry not in ours or "-packages" in entry]
    sys.path[:] = theirs + kept
    if not any(os.path.isdir(os.path.join(entry, "trainer_shim")) for entry in sys.path):
        sys.path.append(_HERE)  # so that the program can import trainer_shim in its children


def _own_folders() -> None:
    """Forget what modules that were imported by a zygote have made of its folder and variables."""
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None


def _line_buffered() -> None:
    """Output goes through a pipe, but people follow it line by line."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)


def _exit_code(exit: SystemExit) -> int:
    if exit.code is None:
        return 0
    if isinstance(exit.code, int):
        return exit.code & 0xFF  # as the system takes it
    _say(f"{exit.code}\n")
    return 1


def _say(text: str) -> None:
    with contextlib.suppress(Exception):  # closed, or something of the program's own
        sys.stderr.write(text)
        sys.stderr.flush()


def _print_exception(error: BaseException) -> tuple[str, str]:
    """Print the traceback as Python does, or the program's own hook, without our own frames; the
    end of it, and the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.excepthook is sys.__excepthook__:
        _say("".join(lines))
    else:
        try:
            sys.excepthook(type(error), error, trace)
        except BaseException:  # whatever the program's own hook raises
            _say("Error in sys.excepthook:\n" + traceback.format_exc() + "".join(lines))
    signature = "".join(traceback.format_exception_only(type(error), error)).strip()
    return "".join(lines[-12:]), signature
