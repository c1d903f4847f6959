"""What every test session shares: what may be skipped, and the count of it at the end."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import re
import shutil
import signal
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from trainer_shim.host.warm_start_rules import LIBRARIES


def _heed_signals() -> None:
    """Have this process, and so what tests start, find signals as at a prompt.

    Started in the background (`make test &`, nohup, some CI runners), it has some ignored, and its
    children with it: a test that interrupts one would wait for ever.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Caught, unlike ignored, is not inherited: nohup's wish counts for the tests alone.
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: lambda *_: None}
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handlers.get(signal.Signals(number), signal.SIG_DFL))


_heed_signals()

# How long an example takes says something of the machine, and nothing of what is tested.
_OF_MACHINE = (HealthCheck.too_slow,)
settings.register_profile("hermes", deadline=None, suppress_health_check=_OF_MACHINE)
settings.load_profile("hermes")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail when any test is skipped")


WORKER = os.environ.get("PYTEST_XDIST_WORKER")

# What whoever runs these has set for libraries, as desktops do, is in no trial's environment.
for _name in [name for name in os.environ if name.startswith(LIBRARIES)]:
    del os.environ[_name]

# The nodes of tests belong to who runs these.
os.environ.setdefault("HERMES_NODE_RUN_AS", "self")


def _have(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) for package in packages)


# The only reasons for which a test may be skipped; any other fails the session. Frameworks skip in
# `make test` alone: `make test-frameworks` has them, and lets nothing skip.
ALLOWED_SKIPS = (
    r"no (jax|lightgbm|lightning|ray|tf_keras|torch|transformers|xgboost) here",
    r"no gpu here",
    r"open connections take rights over the network",
    r"no root here",
    r"root reads everything",  # one test needs not to be root
    r"one core here",
    r"no cgroups .*",  # writable control groups: root's, and not in every container
    r"no v[12] freezer can be made here",
    r"cpu_slots: no cgroup cpu controller can be written here.*",
    r"no uv beside this interpreter",  # the Makefile does with pip where there is none
    r"the file system of the tests has nothing but its cache",  # no O_DIRECT on a tmpfs
    r"no systemd-analyze here",
    r"no kubectl here",
    r"no git here",
    r"no Slurm here.*",
    r"no CRIU here",
    r"no process images here: .*",  # a container may forbid namespaces
    r"no (Rscript|awk|bash|cc|node|perl|/usr/bin/python3) here",  # programs for images
    r"no packages of Node.js here",  # nor a registry to have them from
    r"no io_uring here",
    r"no libfaketime here",
    r"no (ip|nsenter|ip and no nsenter) here",
    r"no network namespaces here.*",
    r"no file systems can be mounted here",
)

_MISSING = {
    "tensorflow": lambda: importlib.util.find_spec("tensorflow") is None,
    "jax": lambda: importlib.util.find_spec("jax") is None,
    "torch": lambda: importlib.util.find_spec("torch") is None,
    "lightning": lambda: not _have("lightning", "pytorch_lightning"),
    "transformers": lambda: not _have("transformers", "accelerate"),
    "tf_keras": lambda: not _have("tf_keras"),
    "gpu": lambda: shutil.which("nvidia-smi") is None,
    "root": lambda: os.geteuid() != 0,
}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep six thousand tests out of each search for garbage: they stay to the end."""
    gc.disable()
    collected = yield
    gc.enable()
    gc.freeze()
    return collected


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each worker read the files in an order of its own.

    Whoever reads a file first compiles it for the others. That is most of the work in a fresh
    checkout, and in the same order all workers would compile all files at the same time.
    """
    report = yield
    if WORKER and report.passed and isinstance(collector, pytest.Directory):
        random.Random(WORKER).shuffle(report.result)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    """Skip what needs a framework, a GPU or root that this machine does not have."""
    if WORKER:
        items.sort(key=lambda item: item.path)  # alike in all of them, before any plugin's order
    absent = {name for name, missing in _MISSING.items() if missing()}
    for item in items:
        for name in sorted(absent & {mark.name for mark in item.iter_markers()}):
            item.add_marker(pytest.mark.skip(reason=f"no {name} here"))
    return (yield)


def _skips(config: pytest.Config) -> Counter[str]:
    """How many tests were skipped, by reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reasons: Counter[str] = Counter()
    for report in reporter.stats.get("skipped", []) if reporter else []:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "unknown"
        reasons[reason.removeprefix("Skipped: ")] += 1
    return reasons


def _forbidden(config: pytest.Config) -> list[str]:
    """The reasons for which nothing may be skipped in this session."""
    allowed = () if config.getoption("--no-skips") else ALLOWED_SKIPS
    return sorted(
        reason
        for reason in _skips(config)
        if not any(re.fullmatch(pattern, reason) for pattern in allowed)
    )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skip that is not in the list fails the session."""
    if _forbidden(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """After all else: how many tests were skipped, and for want of what."""
    yield
    for reason in _forbidden(terminalreporter.config):
        terminalreporter.write_line(f"may not be skipped: {reason}", red=True)
    reasons = _skips(terminalreporter.config)
    detail = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    terminalreporter.write_line(f"skipped: {reasons.total()}{f' ({detail})' if detail else ''}")
