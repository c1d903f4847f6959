"""The private names of TensorFlow that the adapters for its loops rely on, and their check.

Rule: everything that no public interface promises is listed here. With a name missing nothing
is hooked, and with an untested version nothing is saved; either way the reason names it.
"""

from __future__ import annotations

from trainer_shim.adapters.private_names import find as find
from trainer_shim.adapters.private_names import first_missing, first_untested

TESTED = {"tensorflow": ("2.21",)}

CONTEXT = "tensorflow.python.eager.context"
BACKPROP = "tensorflow.python.eager.backprop"
TRACING = "tensorflow.python.eager.polymorphic_function.tracing_compilation"
VARIABLES = "tensorflow.python.ops.resource_variable_ops"
READ_VARIABLE = "tensorflow.python.ops.gen_resource_variable_ops"
ITERATORS = "tensorflow.python.data.ops.iterator_ops"
DATASETS = "tensorflow.python.data.ops.dataset_ops"
STRUCTURED = "tensorflow.python.data.ops.structured_function"
DETERMINISM = "tensorflow.python.framework.config"
SESSION = "tensorflow.python.client.session"
GRADIENTS = "tensorflow.python.ops.gradients_util"
RANDOM = "tensorflow.python.ops.gen_random_ops"
STATELESS_RANDOM = "tensorflow.python.ops.gen_stateless_random_ops_v2"
CHECKPOINTS = "tensorflow.python.checkpoint.checkpoint_management"
OPS = "tensorflow.python.framework.ops"
OP_REGISTRY = "tensorflow.python.framework.op_def_registry"

NAMES = (
    (CONTEXT, "context"),
    (CONTEXT, "global_seed"),
    (CONTEXT, "Context.call_function"),
    (CONTEXT, "Context.get_function_def"),
    (BACKPROP, "GradientTape.gradient"),
    (TRACING, "_create_concrete_function"),
    (VARIABLES, "ResourceVariable"),
    (VARIABLES, "BaseResourceVariable.assign"),
    (VARIABLES, "_UnreadVariable"),
    (READ_VARIABLE, "read_variable_op"),
    (READ_VARIABLE, "assign_variable_op"),
    (ITERATORS, "OwnedIterator._create_iterator"),
    (DATASETS, "DatasetV2._functions"),
    (DATASETS, "DatasetV2._inputs"),
    (STRUCTURED, "StructuredFunctionWrapper"),
    (DETERMINISM, "is_op_determinism_enabled"),
    (SESSION, "BaseSession._do_run"),
    (SESSION, "BaseSession._make_callable_from_options"),
    (GRADIENTS, "_GradientsHelper"),
    (RANDOM, "random_uniform"),
    (RANDOM, "random_standard_normal"),
    (RANDOM, "truncated_normal"),
    (RANDOM, "random_uniform_int"),
    (STATELESS_RANDOM, "stateless_random_uniform_v2"),
    (STATELESS_RANDOM, "stateless_random_normal_v2"),
    (STATELESS_RANDOM, "stateless_truncated_normal_v2"),
    (STATELESS_RANDOM, "stateless_random_uniform_int_v2"),
    (CHECKPOINTS, "get_checkpoint_state"),
    (CHECKPOINTS, "CheckpointState"),
    (OPS, "EagerTensor"),
    (OPS, "EagerTensor._shape_tuple"),
    (OP_REGISTRY, "get"),
)


def missing() -> str | None:
    """Why this TensorFlow cannot be hooked at all; None when it can."""
    return first_missing(NAMES, framework())


def untested() -> str | None:
    """The installed version, if resuming was never tested with it."""
    import tensorflow as tf

    return first_untested(TESTED, {"tensorflow": tf.__version__})


def framework() -> str:
    """The framework and its version, as a checkpoint names it."""
    import tensorflow as tf

    return f"tensorflow {tf.__version__}"
