"""Run by every Python that a trial's program starts, before the program's first line.

The sitecustomize of the user's own environment runs as if this one did not exist. Then the trial is
looked for, in any Python that can run trainer_shim. Nothing here may end a program.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_the_users() -> None:
    """Put the sitecustomize that this one hides in its place."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _look_for_a_trial() -> None:
    if "HERMES_CHANNEL_FDS" in os.environ and sys.version_info >= (3, 9):
        try:
            from trainer_shim import child_interpreters
        except ImportError:
            return  # a program that has changed PYTHONPATH is not to be reached
        child_interpreters.begin()


try:
    _run_the_users()
finally:
    _look_for_a_trial()
