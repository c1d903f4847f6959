"""The private names of Keras and its backends that the adapter relies on, and their check.

Everything that no public interface promises is listed here. If a name is missing nothing is hooked,
and with an untested version nothing is saved; in either case the reason names it.
"""

from __future__ import annotations

import importlib
from typing import Any

from trainer_shim.adapters.private_names import find as find
from trainer_shim.adapters.private_names import first_missing, first_untested, first_unused

TRAINER = "keras.src.backend.{}.trainer"
BASE_TRAINER = "keras.src.trainers.trainer"
CALLBACKS = "keras.src.callbacks.callback_list"
ARRAYS = "keras.src.trainers.data_adapters.array_data_adapter"
DATASETS = "keras.src.trainers.data_adapters.tf_dataset_adapter"
GENERATORS = "keras.src.trainers.data_adapters.generator_data_adapter"
PYDATASETS = "keras.src.trainers.data_adapters.py_dataset_adapter"
LOADERS = "keras.src.trainers.data_adapters.torch_data_loader_adapter"
EPOCHS = "keras.src.trainers.epoch_iterator"
LAYER = "keras.src.layers.layer"
CALLBACK = "keras.src.callbacks.callback"
CSV_LOGGER = "keras.src.callbacks.csv_logger"
TENSORBOARD = "keras.src.callbacks.tensorboard"
COMPILE = "keras.src.trainers.compile_utils"
REDUCTIONS = "keras.src.metrics.reduction_metrics"
GLOBAL_STATE = "keras.src.backend.common.global_state"
SEED_GENERATOR = "keras.src.random.seed_generator"
CONTEXT = "tensorflow.python.eager.context"
DETERMINISM = "tensorflow.python.framework.config"
PIPELINES = "tensorflow.python.data.ops.dataset_ops"
SHUFFLES = "tensorflow.python.data.ops.shuffle_op"
RANDOMS = "tensorflow.python.data.ops.random_op"
OPTIONALS = "tensorflow.python.data.ops.optional_ops"
OP_REGISTRY = "tensorflow.python.framework.op_def_registry"
TORCH_LOADER = "torch.utils.data.dataloader"

# The global attribute that unseeded random operations draw from; newer versions have a constant.
GLOBAL_SEED_GENERATOR = "global_seed_generator"

# Of each backend: where it trains, and its iterator over epochs.
TRAINERS = {"tensorflow": "TensorFlowTrainer", "torch": "TorchTrainer", "jax": "JAXTrainer"}
ITERATORS = {
    "tensorflow": "TFEpochIterator",
    "torch": "TorchEpochIterator",
    "jax": "JAXEpochIterator",
}

NAMES = (
    (BASE_TRAINER, "Trainer._compute_loss"),
    (BASE_TRAINER, "Trainer._get_metrics_result_or_logs"),
    (BASE_TRAINER, "Trainer._symbolic_build"),
    (EPOCHS, "EpochIterator._enumerate_iterator"),
    (EPOCHS, "EpochIterator.num_batches"),
    (LAYER, "Layer._flatten_layers"),
    (GENERATORS, "GeneratorDataAdapter"),
    (PYDATASETS, "PyDatasetAdapter._finite_generator"),
    (PYDATASETS, "PyDatasetAdapter._infinite_generator"),
    (COMPILE, "CompileLoss.__call__"),
    (REDUCTIONS, "Mean.update_state"),
    (GLOBAL_STATE, "get_global_attribute"),
    (SEED_GENERATOR, "global_seed_generator"),
)
NAMES_ON = {
    "tensorflow": (
        (TRAINER, "TensorFlowTrainer.fit"),
        (TRAINER, "TensorFlowTrainer._make_function"),
        (TRAINER, "TFEpochIterator._get_iterator"),
        (TRAINER, "TFEpochIterator._enumerate_iterator"),
        (ARRAYS, "ArrayDataAdapter.get_tf_dataset"),
        (DATASETS, "TFDatasetAdapter.get_tf_dataset"),
        (GENERATORS, "GeneratorDataAdapter.get_tf_dataset"),
        (PIPELINES, "DatasetV2._inputs"),
        (CONTEXT, "global_seed"),
        (DETERMINISM, "is_op_determinism_enabled"),
        (OP_REGISTRY, "get"),
    ),
    "torch": (
        (TRAINER, "TorchTrainer.fit"),
        (TRAINER, "TorchTrainer.make_train_function"),
        (TRAINER, "TorchEpochIterator._get_iterator"),
        (ARRAYS, "ArrayDataAdapter.get_torch_dataloader"),
        (LOADERS, "TorchDataLoaderAdapter.get_torch_dataloader"),
        (TORCH_LOADER, "_BaseDataLoaderIter._next_index"),
        (TORCH_LOADER, "_SingleProcessDataLoaderIter._next_data"),
    ),
    "jax": (
        (LOADERS, "TorchDataLoaderAdapter"),
        (TRAINER, "JAXTrainer.fit"),
        (TRAINER, "JAXTrainer.make_train_function"),
        (TRAINER, "JAXTrainer._update_metrics_variables"),
        (TRAINER, "JAXTrainer.jax_state_sync"),
        (TRAINER, "JAXEpochIterator._get_iterator"),
        (TRAINER, "is_nnx_enabled"),
        ("jax.core", "Tracer._trace"),
    ),
}
# Attributes of objects and variables of functions, each by a function that has it.
USES = (
    (BASE_TRAINER, "Trainer.__init__", "_initial_epoch"),
    # Of callbacks that may run beside the training.
    (CALLBACKS, "CallbackList.__init__", "_futures"),
    (EPOCHS, "EpochIterator.__init__", "_steps_seen"),
    # What it gives is the first step of an execution, the last and the data.
    (EPOCHS, "EpochIterator.__next__", "end_step"),
    (EPOCHS, "EpochIterator.__init__", "data_adapter"),
    (EPOCHS, "EpochIterator.__init__", "steps_per_epoch"),
    (ARRAYS, "ArrayDataAdapter.__init__", "_inputs"),
    (ARRAYS, "ArrayDataAdapter.__init__", "_shuffle"),
    (GENERATORS, "GeneratorDataAdapter.__init__", "generator"),
    (PYDATASETS, "PyDatasetAdapter.__init__", "enqueuer"),
    (PYDATASETS, "PyDatasetAdapter.__init__", "py_dataset"),
    (REDUCTIONS, "MeanMetricWrapper.__init__", "_fn"),
)
USES_ON = {
    "tensorflow": (
        (TRAINER, "TensorFlowTrainer.__init__", "_distribute_strategy"),
        (TRAINER, "TensorFlowTrainer.fit", "_eval_epoch_iterator"),
        (TRAINER, "TensorFlowTrainer.fit", "_initial_epoch"),
        (TRAINER, "TensorFlowTrainer._make_function", "multi_step_on_iterator"),
        (SHUFFLES, "_ShuffleDataset.__init__", "_reshuffle_each_iteration"),
        (RANDOMS, "_RandomDataset.__init__", "_rerandomize"),
        (OPTIONALS, "_OptionalImpl.__init__", "_variant_tensor"),
    ),
    "torch": (
        (TRAINER, "TorchTrainer.fit", "_eval_epoch_iterator"),
        (TRAINER, "TorchTrainer.fit", "_initial_epoch"),
        (TORCH_LOADER, "_BaseDataLoaderIter.__init__", "_num_yielded"),
        (LOADERS, "TorchDataLoaderAdapter.__init__", "_dataloader"),
    ),
    "jax": (
        (TRAINER, "JAXTrainer.fit", "_eval_epoch_iterator"),
        (TRAINER, "JAXTrainer.fit", "_initial_epoch"),
        (TRAINER, "JAXTrainer.fit", "_jax_state_synced"),
        (TRAINER, "JAXTrainer.train_step", "_update_metrics_variables"),
        (LOADERS, "TorchDataLoaderAdapter.__init__", "_dataloader"),
    ),
}
# Of callbacks what is none of their state, and not copied. By another name it would be: a model
# stands for itself, and a fit that has one of the two others is parked only, and says why.
OPTIONAL_USES = (
    (CALLBACK, "Callback.__init__", "_model"),
    (CSV_LOGGER, "CSVLogger.__init__", "append"),
    (CSV_LOGGER, "CSVLogger.__init__", "append_header"),
    (CSV_LOGGER, "CSVLogger.on_train_begin", "csv_file"),
    (CSV_LOGGER, "CSVLogger.__init__", "writer"),
    (TENSORBOARD, "TensorBoard.set_model", "_writers"),
    (TENSORBOARD, "TensorBoard._push_writer", "_prev_summary_state"),
    (TENSORBOARD, "TensorBoard.on_train_batch_end", "_batch_trace_context"),
)


def trainer() -> Any:
    """The class that trains on this backend."""
    return _of_backend(TRAINERS)


def epoch_iterator() -> Any:
    """The class of this backend's iterators over epochs."""
    return _of_backend(ITERATORS)


def _of_backend(names: dict[str, str]) -> Any:
    here = backend()
    return find(TRAINER.format(here), names[here])


def missing() -> str | None:
    """Why this Keras cannot be hooked at all; None when it can."""
    import keras

    here = backend()
    if here not in TRAINERS:
        known = ", ".join(TRAINERS)
        return f"Keras runs on the {here} backend, expected one of {known}"
    framework = f"keras {keras.__version__}"
    names = [(module.format(here), path) for module, path in (*NAMES, *NAMES_ON[here])]
    uses = [(m.format(here), path, use) for m, path, use in (*USES, *USES_ON[here])]
    lacking = first_missing(names, framework) or first_unused(uses, framework)
    return "; ".join(filter(None, (lacking, untested()))) if lacking else None


def untested() -> str | None:
    """The installed version that resuming was never tested with; None when both were."""
    return first_untested(_versions())


def is_keras_3() -> bool:
    """Whether it has the public interface of Keras 3, on whatever backend."""
    import keras

    return bool(keras.__version__.startswith("3."))


def name() -> str:
    """Keras, its version and its backend, where no checkpoint is made."""
    import keras

    return f"keras {keras.__version__} on {backend()}"


def framework() -> str:
    """The frameworks and their versions, as a checkpoint names them."""
    return ", ".join(f"{package} {version}" for package, version in _versions().items())


def backend() -> str:
    """What this Keras computes with."""
    import keras

    return str(keras.backend.backend())


def _versions() -> dict[str, str]:
    import keras

    here = backend()
    own = importlib.import_module(here)
    return {"keras": keras.__version__, here: str(own.__version__)}
