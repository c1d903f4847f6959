"""The list of TensorFlow's private names is complete here, and says which one is gone elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer_shim.suspending import with_keras

pytestmark = pytest.mark.tensorflow

# In a process of its own: an import of TensorFlow warns, and would stay.
CHECK = """
from trainer_shim.adapters import private_names
from trainer_shim.adapters.tensorflow import private
print(private.missing(), "/", private.untested())
private.USES += (("tensorflow.python.client.session", "BaseSession.__init__", "_no_such"),)
print(private.missing())
private.NAMES += (("tensorflow.python.eager.context", "Context.no_such_method"),)
print(private.missing())
private_names.TESTED["tensorflow"] = ("2.0", "2.0")
print(private.untested())
"""


def test_a_name_that_is_gone_and_a_version_untested_are_named(tmp_path: Path) -> None:
    here, unused, gone, untested = with_keras(tmp_path, CHECK).splitlines()
    assert here == "None / None"
    assert unused.endswith("no _no_such in tensorflow.python.client.session.BaseSession.__init__")
    assert "tensorflow.python.eager.context.Context.no_such_method" in gone
    assert untested.startswith("resuming is tested with tensorflow 2.0, this is ")
