"""gRPC is loaded so that it writes nothing of its own; who wants to hear it does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc._cython.cygrpc":
            print(os.environ.get("GRPC_VERBOSITY"))

sys.meta_path.insert(0, Watch())
import {module}
print(os.environ.get("GRPC_VERBOSITY"))
"""


@pytest.mark.parametrize("module", ["hermesctl", "hermesctl.cli", "hermesctl.sdk.connection"])
@pytest.mark.parametrize(("wanted", "heard"), [(None, ["NONE", "None"]), ("DEBUG", ["DEBUG"] * 2)])
def test_what_grpc_may_say_is_set_when_it_is_loaded(
    module: str, wanted: str | None, heard: list[str]
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    environment |= {} if wanted is None else {"GRPC_VERBOSITY": wanted}
    program = PROGRAM.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == heard
