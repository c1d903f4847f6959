"""The private names of TensorFlow that the adapter for its loops relies on, and their check.

Everything that no public interface promises is listed here. If a name is missing nothing is hooked,
and with an untested version nothing is saved; in either case the reason names it.
"""

from __future__ import annotations

from trainer_shim.adapters.private_names import find as find
from trainer_shim.adapters.private_names import first_missing, first_untested, first_unused

CONTEXT = "tensorflow.python.eager.context"
BACKPROP = "tensorflow.python.eager.backprop"
FUNCTIONS = "tensorflow.python.eager.polymorphic_function.concrete_function"
ATTRIBUTES = "tensorflow.python.eager.polymorphic_function.attributes"
TRACING = "tensorflow.python.eager.polymorphic_function.tracing_compilation"
VARIABLES = "tensorflow.python.ops.resource_variable_ops"
READ_VARIABLE = "tensorflow.python.ops.gen_resource_variable_ops"
ITERATORS = "tensorflow.python.data.ops.iterator_ops"
DATASETS = "tensorflow.python.data.ops.dataset_ops"
MAPS = "tensorflow.python.data.ops.map_op"
BATCHES = "tensorflow.python.data.ops.batch_op"
OPTIONALS = "tensorflow.python.data.ops.optional_ops"
STRUCTURED = "tensorflow.python.data.ops.structured_function"
DETERMINISM = "tensorflow.python.framework.config"
RANDOM = "tensorflow.python.ops.gen_random_ops"
STATELESS_RANDOM = "tensorflow.python.ops.gen_stateless_random_ops_v2"
CHECKPOINTS = "tensorflow.python.checkpoint.checkpoint_management"
FUNC_GRAPH = "tensorflow.python.framework.func_graph"
OPS = "tensorflow.python.framework.ops"
OP_REGISTRY = "tensorflow.python.framework.op_def_registry"

NAMES = (
    (CONTEXT, "context"),
    (CONTEXT, "global_seed"),
    (CONTEXT, "Context.call_function"),
    (CONTEXT, "Context.get_function_def"),
    (BACKPROP, "GradientTape.gradient"),
    (TRACING, "trace_function"),
    (TRACING, "_create_concrete_function"),
    (TRACING, "TracingOptions.attributes"),
    (TRACING, "TracingOptions.python_function"),
    (ATTRIBUTES, "XLA_COMPILE"),
    (FUNCTIONS, "ConcreteFunction.inference_fn"),
    (FUNC_GRAPH, "FuncGraph.deferred_internal_captures"),
    (FUNC_GRAPH, "FuncGraph.internal_captures"),
    (VARIABLES, "ResourceVariable"),
    (VARIABLES, "BaseResourceVariable.assign"),
    (VARIABLES, "_UnreadVariable"),
    (READ_VARIABLE, "read_variable_op"),
    (READ_VARIABLE, "assign_variable_op"),
    (ITERATORS, "OwnedIterator._create_iterator"),
    (DATASETS, "DatasetV2._functions"),
    (DATASETS, "DatasetV2._inputs"),
    (OPTIONALS, "OptionalSpec._from_components"),
    (OPTIONALS, "OptionalSpec._to_components"),
    (STRUCTURED, "StructuredFunctionWrapper.function"),
    (DETERMINISM, "is_op_determinism_enabled"),
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
    (OPS, "EagerTensor._id"),
    (OPS, "EagerTensor._shape_tuple"),
    (OPS, "Graph.building_function"),
    (OP_REGISTRY, "get"),
)
# Attributes of objects, each by a function that sets it.
USES = (
    (VARIABLES, "BaseResourceVariable.__init__", "_handle"),
    (VARIABLES, "BaseResourceVariable.__init__", "_distribute_strategy"),
    (ITERATORS, "OwnedIterator._create_iterator", "_iterator_resource"),
    (FUNC_GRAPH, "FuncGraph.__init__", "structured_outputs"),
    (MAPS, "_ParallelMapDataset.__init__", "_deterministic"),
    (BATCHES, "_ParallelBatchDataset.__init__", "_deterministic"),
)


def missing() -> str | None:
    """Why this TensorFlow cannot be hooked at all; None when it can."""
    return first_missing(NAMES, framework()) or first_unused(USES, framework())


def untested() -> str | None:
    """The installed version, if resuming was never tested with it."""
    import tensorflow as tf

    return first_untested({"tensorflow": tf.__version__})


def framework(are_replicas: bool = False) -> str:
    """The framework and its version, as a checkpoint names it; by another name if all that is
    trained is the same in each of the processes, which may then be any number."""
    import tensorflow as tf

    return f"tensorflow{'-multiworker' * are_replicas} {tf.__version__}"
