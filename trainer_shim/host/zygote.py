"""A process with the framework imported, from which hosts are forked in milliseconds.

It only imports: no framework operation, no thread of its own, no grpc, since a fork after the first
operation hangs. It imports on as many cores as its forks will have, because OpenMP and the BLAS
libraries count them when they are loaded, and does not keep its forks there. It belongs to the node
daemon and ends with its connection; the hosts that it forked are in sessions of their own, are
adopted by init, and live on.

`python -m trainer_shim.host.zygote <socket> [--preload torch,sklearn.datasets.load_digits]`
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
from collections.abc import Mapping

from trainer_shim import signals
from trainer_shim.channel.frames import Message, receive, send
from trainer_shim.host.__main__ import serve_trial
from trainer_shim.host.launch import python_arguments, run_program, take_cores
from trainer_shim.host.warm_start_rules import FRAMEWORK, LIBRARIES, cold_program
from trainer_shim.spec import CORES, Spec, named_cores

# The daemon connects as soon as it can. One that hasn't by then was killed meanwhile.
CONNECT_SECONDS = 60.0
_STARTED_IN = dict(os.environ)  # a framework's import may set variables of its own
# Read when an interpreter starts, or imports something.
_AT_IMPORT = (*FRAMEWORK, *LIBRARIES, "LD_", "PYTHON")
# These say only how output is written, and that no compiled file is.
_HARMLESS = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
# What each framework imports at its first use, for seconds.
_FRAMEWORKS = {"keras": (), "tensorflow": (), "torch": ("torch._dynamo",)}
_TERRAFORM = ("TF_CLI_", "TF_DATA_DIR", "TF_PLUGIN_", "TF_VAR_", "TF_WORKSPACE")


def unfit(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """Why an interpreter started in the environment `ours` cannot become a program whose own is
    `theirs`; None when it can."""
    for name in sorted(ours.keys() | theirs.keys()):
        if not name.startswith(_AT_IMPORT) or name.startswith(_TERRAFORM):
            continue
        if name not in _HARMLESS and _meant(name, ours) != _meant(name, theirs):
            return f"the environment differs in {name}"
    here, there = _core_count(ours), _core_count(theirs)
    return f"it has {here or 'all'} of the cores, not {there or 'all'}" if here != there else None


def _core_count(environment: Mapping[str, str]) -> int:
    """How many cores a slot has; 0 where it has none of its own."""
    named = environment.get(CORES)
    return len(named.split(",")) if named else 0


def _meant(name: str, environment: Mapping[str, str]) -> str | None:
    """A variable's value, less what every host and zygote is started with."""
    value = environment.get(name)
    if name == "PYTHONHASHSEED":
        return value or "0"
    if name == "PYTHONPATH":
        parts = [part for part in (value or "").split(os.pathsep) if part]
        ours = [part for part in parts if os.path.isdir(os.path.join(part, "trainer_shim"))]
        return os.pathsep.join(part for part in parts if part not in ours)
    return value


def _refusal(spec_path: str) -> Message | None:
    """The answer to a request that cannot be met; `unfit` if another zygote could meet it."""
    try:
        spec = Spec.load(spec_path)
    except (OSError, ValueError, TypeError) as error:
        reason = f"cannot read {spec_path}: {type(error).__name__}: {error}"
        return {"kind": "refused", "reason": reason}
    arguments = python_arguments(spec.argv, spec.env.get("PATH"))
    if arguments is None:
        return {"kind": "refused", "reason": "the program is not a script of this interpreter"}
    cold = cold_program(arguments, spec.cwd, spec.env)
    if cold is not None:
        return {"kind": "refused", "reason": cold}
    differs = unfit(_STARTED_IN, spec.env)
    return {"kind": "unfit", "reason": differs} if differs is not None else None


def _fork_host(spec_path: str, control: socket.socket, listener: socket.socket) -> int | None:
    """Fork twice, so that init adopts the host. The host gets None, the zygote its pid."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        host = os.fork()
        if host != 0:
            os.write(write_end, str(host).encode())
            os._exit(0)
        for fd in (read_end, write_end):
            os.close(fd)
        control.close()
        listener.close()
        return None
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        pid = int(pipe.read())
    os.waitpid(child, 0)
    return pid


def _serve(path: str) -> str | None:
    """Answer the daemon until it goes, or has not come; in a forked host, the path of its spec."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    listener.bind(path)
    os.umask(old)
    listener.listen(1)
    listener.settimeout(CONNECT_SECONDS)
    try:
        control, _ = listener.accept()
    except socket.timeout:
        listener.close()
        os.unlink(path)
        return None
    while True:
        request = receive(control)
        if request is None:
            os.unlink(path)
            return None
        if request.get("kind") != "spawn":
            continue
        spec_path = request["spec"]
        answer = _refusal(spec_path)
        if answer is None:
            pid = _fork_host(spec_path, control, listener)
            if pid is None:
                return str(spec_path)
            answer = {"kind": "spawned", "pid": pid}
        send(control, answer)


def _import(name: str) -> None:
    """Import a module, or the one that has what is called so."""
    module, _, attribute = name.rpartition(".")
    try:
        try:
            importlib.import_module(name)
        except ImportError:
            if module not in sys.modules:
                raise
            getattr(sys.modules[module], attribute)
    except (Exception, SystemExit) as error:  # whatever a library raises, the program meets it, too
        print(f"zygote: {name} cannot be imported here: {error}", file=sys.stderr)


def main(argv: list[str]) -> None:
    """Import what is asked for, then fork hosts on request."""
    signals.unblock()
    libraries_set: dict[str, str] = {}
    if "PYTHONHASHSEED" not in os.environ:
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "trainer_shim.host.zygote", *argv]
        os.execve(sys.executable, command, environment)
    if "--preload" in argv:
        names = argv[argv.index("--preload") + 1].split(",")
        usable = os.sched_getaffinity(0)
        take_cores(named_cores(os.environ))
        gc.disable()  # what imports make stays; to look for garbage in it takes a sixth of the time
        for name in names:
            before = dict(os.environ)
            for module in (name, *_FRAMEWORKS.get(name, ())):
                _import(module)
            if name not in _FRAMEWORKS:
                libraries_set |= {k: v for k, v in os.environ.items() if before.get(k) != v}
        gc.enable()
        os.sched_setaffinity(0, usable)
    gc.freeze()  # a collection in a child would write to, and so copy, every imported page
    spec_path = _serve(argv[0])
    if spec_path is None:
        return
    launch = serve_trial(spec_path)
    if launch is not None:
        run_program(launch, libraries_set)


if __name__ == "__main__":
    main(sys.argv[1:])
