"""The private names of Keras and TensorFlow that the adapter relies on, and their check.

Rule: everything that no public interface promises is listed here. With a name missing nothing
is hooked, and with an untested version nothing is saved; either way the reason names it.
"""

from __future__ import annotations

from trainer_shim.adapters.private_names import find as find
from trainer_shim.adapters.private_names import first_missing, first_untested, first_unused

TESTED = {"keras": ("3.15",), "tensorflow": ("2.21",)}

TRAINER = "keras.src.backend.tensorflow.trainer"
BASE_TRAINER = "keras.src.trainers.trainer"
CALLBACKS = "keras.src.callbacks.callback_list"
ARRAYS = "keras.src.trainers.data_adapters.array_data_adapter"
DATASETS = "keras.src.trainers.data_adapters.tf_dataset_adapter"
GENERATORS = "keras.src.trainers.data_adapters.generator_data_adapter"
PYDATASETS = "keras.src.trainers.data_adapters.py_dataset_adapter"
EPOCHS = "keras.src.trainers.epoch_iterator"
COMPILE = "keras.src.trainers.compile_utils"
REDUCTIONS = "keras.src.metrics.reduction_metrics"
GLOBAL_STATE = "keras.src.backend.common.global_state"
SEED_GENERATOR = "keras.src.random.seed_generator"
CONTEXT = "tensorflow.python.eager.context"
DETERMINISM = "tensorflow.python.framework.config"
OPTIONALS = "tensorflow.python.data.ops.optional_ops"
OP_REGISTRY = "tensorflow.python.framework.op_def_registry"

NAMES = (
    (TRAINER, "TensorFlowTrainer.fit"),
    (TRAINER, "TensorFlowTrainer._make_function"),
    (TRAINER, "TFEpochIterator._get_iterator"),
    (TRAINER, "TFEpochIterator._enumerate_iterator"),
    (BASE_TRAINER, "Trainer._compute_loss"),
    (BASE_TRAINER, "Trainer._get_metrics_result_or_logs"),
    (CALLBACKS, "CallbackList._flush_futures"),
    (ARRAYS, "ArrayDataAdapter.get_tf_dataset"),
    (DATASETS, "TFDatasetAdapter.get_tf_dataset"),
    (GENERATORS, "GeneratorDataAdapter.get_tf_dataset"),
    (PYDATASETS, "PyDatasetAdapter._finite_generator"),
    (PYDATASETS, "PyDatasetAdapter._infinite_generator"),
    (COMPILE, "CompileLoss.__call__"),
    (REDUCTIONS, "Mean.update_state"),
    (GLOBAL_STATE, "get_global_attribute"),
    (SEED_GENERATOR, "GLOBAL_SEED_GENERATOR"),
    (SEED_GENERATOR, "global_seed_generator"),
    (CONTEXT, "Context._set_global_seed"),
    (CONTEXT, "global_seed"),
    (DETERMINISM, "is_op_determinism_enabled"),
    (OP_REGISTRY, "get"),
    (OPTIONALS, "_OptionalImpl"),
)
# Attributes of objects and variables of functions, each by a function that has it.
USES = (
    (BASE_TRAINER, "Trainer.__init__", "_initial_epoch"),
    (TRAINER, "TensorFlowTrainer.__init__", "_distribute_strategy"),
    (TRAINER, "TensorFlowTrainer.fit", "_eval_epoch_iterator"),
    (TRAINER, "TensorFlowTrainer.fit", "_initial_epoch"),
    (TRAINER, "TensorFlowTrainer._make_function", "multi_step_on_iterator"),
    (EPOCHS, "EpochIterator.__init__", "_steps_seen"),
    (ARRAYS, "ArrayDataAdapter.__init__", "_inputs"),
    (ARRAYS, "ArrayDataAdapter.__init__", "_shuffle"),
)


def missing() -> str | None:
    """Why this Keras cannot be hooked at all; None when it can."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return f"Keras runs on the {keras.backend.backend()} backend, expected tensorflow"
    framework = f"keras {keras.__version__}"
    return first_missing(NAMES, framework) or first_unused(USES, framework)


def untested() -> str | None:
    """The installed version that resuming was never tested with; None when both were."""
    import keras
    import tensorflow as tf

    return first_untested(TESTED, {"keras": keras.__version__, "tensorflow": tf.__version__})


def is_keras_3() -> bool:
    """Whether it has the public interface of Keras 3, on whatever backend."""
    import keras

    return bool(keras.__version__.startswith("3."))


def name() -> str:
    """Keras, its version and its backend, where no checkpoint is made."""
    import keras

    return f"keras {keras.__version__} on {keras.backend.backend()}"


def framework() -> str:
    """The frameworks and their versions, as a checkpoint names them."""
    import keras
    import tensorflow as tf

    return f"keras {keras.__version__}, tensorflow {tf.__version__}"
