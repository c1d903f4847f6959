"""The private names of NumPy and TensorFlow by which random number generators are seeded and
copied, whichever framework trains.

Everything in them that no public interface promises is listed here. If a name is missing, nothing
of that package is hooked, and nothing is saved in a process that has imported it; the reason names
it.
"""

from __future__ import annotations

import sys

from trainer_shim.adapters.private_names import first_missing, first_unused

BIT_GENERATOR = "numpy.random.bit_generator"
CONTEXT = "tensorflow.python.eager.context"
OPS = "tensorflow.python.framework.ops"
RANDOM_SEED = "tensorflow.python.framework.random_seed"
GENERATORS = "tensorflow.python.ops.stateful_random_ops"
DATASETS = "tensorflow.python.data.ops.dataset_ops"

NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "numpy": ((BIT_GENERATOR, "randbits"),),
    "tensorflow": (
        (CONTEXT, "context"),
        (CONTEXT, "executing_eagerly"),
        (CONTEXT, "global_seed"),
        (CONTEXT, "internal_operation_seed"),
        (OPS, "get_default_graph"),
        (RANDOM_SEED, "get_seed"),
        (GENERATORS, "non_deterministic_ints"),
        # What shuffles a pipeline is among what it is made of.
        (DATASETS, "DatasetV2._inputs"),
    ),
}
USES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "numpy": (),
    "tensorflow": ((CONTEXT, "Context._set_global_seed", "_rng"),),
}


def is_imported(package: str) -> bool:
    """Whether the program has imported it, to its end; a program may have set it to None, so that
    nobody does."""
    return hasattr(sys.modules.get(package), "__version__")


def missing_of(package: str) -> str | None:
    """Why the generators of this package, which is imported, cannot be reached; None if they
    can."""
    framework = f"{package} {sys.modules[package].__version__}"
    return first_missing(NAMES[package], framework) or first_unused(USES[package], framework)


def missing() -> str | None:
    """The same of the first of those packages that are imported by now; None if all can be."""
    reasons = (missing_of(package) for package in NAMES if is_imported(package))
    return next((reason for reason in reasons if reason is not None), None)
