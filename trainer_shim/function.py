"""Runs a function as a trial: `python -m trainer_shim.function FILE.py:FUNCTION`.

The function is called with the trial's parameters by keyword. What it returns is the trial's
metric: a number becomes `result`, a dict has one number for each of several metrics, None gives
none. Everything that an adapter does for a program it does for the function; a trial that starts
over calls it again.

FILE is imported under another name than `__main__`, so what a script does only when it is run is
not done here. `MODULE:FUNCTION` names a function of a package; `FILE.pkl` is one that cloudpickle
has written.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import operator
import os
import pickle
import sys
from collections.abc import Mapping
from typing import Any

from trainer_shim.api import log

RESULT = "result"


def load(target: str) -> Any:
    """The function that FILE.py:FUNCTION, MODULE:FUNCTION or FILE.pkl names."""
    path, _, name = target.partition(":")
    if not name:
        with open(path, "rb") as file:
            return pickle.load(file)  # finds cloudpickle by itself
    if not path.endswith(".py"):
        return operator.attrgetter(name)(importlib.import_module(path))
    folder, file_name = os.path.split(os.path.abspath(path))
    sys.path.insert(0, folder)
    module_name = os.path.splitext(file_name)[0]
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return operator.attrgetter(name)(module)


def metrics_of(returned: object) -> Mapping[str, Any]:
    """What a function has returned, as metrics. Raises TypeError for what is none."""
    if returned is None:
        return {}
    named: Mapping[str, Any] = returned if isinstance(returned, Mapping) else {RESULT: returned}
    for name, value in named.items():
        try:
            float(value)
        except (TypeError, ValueError):
            told = "a number, a dict of numbers or None"
            raise TypeError(f"the function returned {name} = {value!r}: expected {told}") from None
    return named


def main() -> None:
    """Call it, and report what it returns."""
    parameters = json.loads(os.environ.get("HERMES_PARAMETERS", "{}"))
    found = metrics_of(load(sys.argv[1])(**parameters))
    if found:
        log(found)
    print(json.dumps({name: float(value) for name, value in found.items()}), flush=True)


if __name__ == "__main__":
    main()
