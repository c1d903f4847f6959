"""A process with the framework imported, forked in milliseconds into hosts.

Rule: imports only. No framework operation, no thread of its own, no grpc: a fork after the
first operation hangs. It belongs to the node daemon and ends with its connection; the hosts
it forked are sessions of their own, adopted by init, and live on.

`python -m trainer_shim.zygote <socket> [--preload tensorflow|keras|torch]`
"""

from __future__ import annotations

import ast
import gc
import importlib
import os
import socket
import sys
from collections.abc import Mapping

from trainer_shim.host import serve_trial
from trainer_shim.launch import python_arguments, run_program
from trainer_shim.spec import Spec
from trainer_shim.wire import Message, receive, send

_STARTED_IN = dict(os.environ)  # a framework's import may set variables of its own
# Read when the framework is imported, which in a zygote has happened already.
_PREFIXES = (
    *("TF_", "KERAS_", "XLA_", "TORCH", "PYTORCH_", "NCCL_"),
    *("CUDA_", "NVIDIA_", "OMP_", "MKL_", "PYTHONHASHSEED"),
)
# What a framework imports at its first use, for seconds.
_LATER = {"torch": ("torch._dynamo",)}
_TERRAFORM = ("TF_CLI_", "TF_DATA_DIR", "TF_PLUGIN_", "TF_VAR_", "TF_WORKSPACE")


def warm_start_allowed(env: Mapping[str, str], script_path: str | None) -> str | None:
    """Why a trial must not be forked from a zygote; None when it may be.

    `env` are the variables in which the trial's environment and the zygote's differ. A script
    that mentions a framework's variable may set it before the import.
    """
    for name in sorted(env):
        if name.startswith(_PREFIXES) and not name.startswith(_TERRAFORM):
            return f"the environment sets {name}"
    if script_path is None:
        return None
    try:
        with open(script_path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError) as error:
        return f"cannot read the script: {error}"
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and text.startswith(_PREFIXES) and text.isidentifier():
            return f"the script names the variable {text}"
    return None


def _refusal(spec_path: str) -> str | None:
    try:
        spec = Spec.load(spec_path)
    except (OSError, ValueError, KeyError) as error:
        return f"cannot read {spec_path}: {type(error).__name__}: {error}"
    ours = _STARTED_IN.keys() - {"PYTHONHASHSEED"}  # which main sets
    names = ours | spec.env.keys()
    changed = {name: "" for name in names if _STARTED_IN.get(name) != spec.env.get(name)}
    arguments = python_arguments(spec.argv, spec.env.get("PATH"))
    if arguments is None:
        return "the program is not a script of this interpreter"
    script = None if arguments[0] == "-m" else os.path.join(spec.cwd, arguments[0])
    return warm_start_allowed(changed, script)


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
    """Answer the daemon until it goes; in a forked host, the path of its spec."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    listener.bind(path)
    os.umask(old)
    listener.listen(1)
    control, _ = listener.accept()
    while True:
        request = receive(control)
        if request is None:
            os.unlink(path)
            return None
        if request.get("kind") != "spawn":
            continue
        spec_path = request["spec"]
        refusal = _refusal(spec_path)
        answer: Message
        if refusal is not None:
            answer = {"kind": "refused", "reason": refusal}
        else:
            pid = _fork_host(spec_path, control, listener)
            if pid is None:
                return str(spec_path)
            answer = {"kind": "spawned", "pid": pid}
        send(control, answer)


def main(argv: list[str]) -> None:
    """Import what is asked for, then fork hosts on request."""
    if "PYTHONHASHSEED" not in os.environ:
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "trainer_shim.zygote", *argv]
        os.execve(sys.executable, command, environment)
    if "--preload" in argv:
        name = argv[argv.index("--preload") + 1]
        for module in (name, *_LATER.get(name, ())):
            try:
                importlib.import_module(module)
            except ImportError:
                print(f"zygote: {module} cannot be imported here", file=sys.stderr)
    gc.freeze()  # a collection in a child would write to, and so copy, every imported page
    spec_path = _serve(argv[0])
    if spec_path is None:
        return
    launch = serve_trial(spec_path)
    if launch is not None:
        run_program(launch)


if __name__ == "__main__":
    main(sys.argv[1:])
