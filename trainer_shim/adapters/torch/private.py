"""What the adapter relies on that no public interface of PyTorch, Python, Lightning or Transformers
promises.

All of it is listed here. If a name is missing nothing is hooked, and with an untested version
nothing is saved; in either case the reason names it.
"""

from __future__ import annotations

import importlib
import platform

from trainer_shim.adapters.private_names import find as find
from trainer_shim.adapters.private_names import first_missing as first_missing
from trainer_shim.adapters.private_names import first_untested, first_unused

# What of a trainer's packages has to be of a tested version.
PACKAGES = {
    "lightning": ("lightning",),
    "pytorch_lightning": ("pytorch_lightning",),
    "transformers": ("transformers", "accelerate"),
}

LOADER = "torch.utils.data.dataloader"
SCHEDULERS = "torch.optim.lr_scheduler"

NAMES = (
    # Every iterator over a DataLoader goes through these.
    (LOADER, "_BaseDataLoaderIter.__next__"),
    (LOADER, "_BaseDataLoaderIter._next_index"),
    (LOADER, "_SingleProcessDataLoaderIter._next_data"),
    (LOADER, "DataLoader.__iter__"),
    # What that calls, and what ends the workers of an iterator that is begun again.
    (LOADER, "DataLoader._get_iterator"),
    (LOADER, "_MultiProcessingDataLoaderIter._shutdown_workers"),
    # Called by copy.deepcopy, which makes a module without calling its __init__.
    ("torch.nn", "Module.__setstate__"),
    # What a state_dict names a module's own state by.
    ("torch.nn.modules.module", "_EXTRA_STATE_KEY_SUFFIX"),
    # Where `Tensor.backward` looks its function up at each call.
    ("torch.autograd", "backward"),
    # How many of the modes that see all that is computed are under way.
    ("torch._C", "_len_torch_dispatch_stack"),
    # What a tensor is a view of.
    ("torch", "Tensor._base"),
    (SCHEDULERS, "LRScheduler.__init__"),
    ("torch.amp", "GradScaler.step"),
    ("torch.optim.optimizer", "register_optimizer_step_post_hook"),
)
# Attributes of objects, each by a function that sets it.
USES = (
    (LOADER, "_BaseDataLoaderIter.__init__", "_num_yielded"),
    # Of a scaler this is not copied: it is begun anew with each step.
    ("torch.amp", "GradScaler.__init__", "_per_optimizer_states"),
    # The buffers that a state_dict leaves out.
    ("torch.nn", "Module.register_buffer", "_non_persistent_buffers_set"),
)
# What `torch.compile` is in: a zygote imports the first before it is asked for, and a generator of
# random numbers that one of them makes is none of the program's.
OPTIONAL_NAMES = (
    ("torch", "_dynamo"),
    ("torch", "_inductor"),
    ("torch", "_functorch"),
)
# What a DistributedDataParallel is made with, and tells of its buckets: or one of three processes
# sums its gradients in another order in the first step after a checkpoint.
BUCKET_NAMES = (
    ("torch.distributed", "_compute_bucket_assignment_by_size"),
    ("torch.nn.parallel", "DistributedDataParallel._ddp_init_helper"),
    ("torch.nn.parallel", "DistributedDataParallel._get_ddp_logging_data"),
)
# What it keeps of how far that has come, which is not put back.
BUCKET_USES = (
    ("torch.nn.parallel", "DistributedDataParallel.__init__", "_has_rebuilt_buckets"),
    ("torch.nn.parallel", "DistributedDataParallel.__init__", "_lazy_init_ran"),
    (
        "torch.nn.parallel",
        "DistributedDataParallel._set_static_graph",
        "_static_graph_delay_allreduce_enqueued",
    ),
)
# Of Python itself, besides: that a `for` statement calls `__next__` from the instruction
# FOR_ITER, what instructions end it, `break` from it and gather a comprehension, that the index of
# an enumerate follows its object header (checked against its `__reduce__` each time), and
# PyFrame_LocalsToFast, which debuggers use to set local variables before 3.13.

HF_TRAINER, HF_CALLBACKS = "transformers.trainer", "transformers.trainer_callback"
TRANSFORMERS_NAMES = (
    # Each epoch is one call.
    (HF_TRAINER, "Trainer._run_epoch"),
    # What follows a step of the optimizer: logs, evaluation, saving.
    (HF_TRAINER, "Trainer._maybe_log_save_evaluate"),
    # Says with which epoch a call of `train` begins.
    (HF_TRAINER, "Trainer._init_training_state"),
    (HF_CALLBACKS, "CallbackHandler.on_log"),
    (HF_CALLBACKS, "TrainerState"),
    (HF_CALLBACKS, "TrainerControl"),
    # Draws a bar, and counts in `current_step`.
    (HF_CALLBACKS, "ProgressCallback"),
)
TRANSFORMERS_USES = (
    # What it is given, and its variables.
    (HF_TRAINER, "Trainer._run_epoch", "epoch"),
    (HF_TRAINER, "Trainer._run_epoch", "train_dataloader"),
    (HF_TRAINER, "Trainer._run_epoch", "step"),
    (HF_TRAINER, "Trainer._run_epoch", "update_step"),
    (HF_TRAINER, "Trainer._run_epoch", "steps_in_epoch"),
    (HF_TRAINER, "Trainer._run_epoch", "num_update_steps_trained"),
    (HF_TRAINER, "Trainer._run_epoch", "num_update_steps_per_epoch"),
    (HF_TRAINER, "Trainer._run_epoch", "grad_norm"),
    (HF_TRAINER, "Trainer._run_epoch", "learning_rate"),
    (HF_CALLBACKS, "CallbackHandler.__init__", "callbacks"),
    # What the loader of an epoch reads from.
    ("accelerate.data_loader", "DataLoaderAdapter.__init__", "base_dataloader"),
)

CONNECTOR = "trainer.connectors.logger_connector"
LIGHTNING_NAMES = (  # below lightning.pytorch or pytorch_lightning
    ("trainer.trainer", "Trainer.fit"),
    # Before the first batch of an epoch, and after all that follows a batch.
    ("loops.training_epoch_loop", "_TrainingEpochLoop.on_run_start"),
    ("loops.training_epoch_loop", "_TrainingEpochLoop.on_advance_end"),
    ("loops.training_epoch_loop", "_TrainingEpochLoop._num_ready_batches_reached"),
    # The data of an epoch are begun with; it counts in `fetched`.
    ("loops.fetchers", "_DataFetcher.__iter__"),
    ("loops.fetchers", "_PrefetchDataFetcher"),
    ("loops.fit_loop", "_set_sampler_epoch"),
    # What counts.
    ("loops.loop", "_Loop"),
    ("loops.progress", "_BaseProgress"),
    # What is logged, and what gathers it.
    (f"{CONNECTOR}.logger_connector", "_LoggerConnector.log_metrics"),
    (f"{CONNECTOR}.logger_connector", "_LoggerConnector.on_epoch_end"),
    (f"{CONNECTOR}.logger_connector", "_LoggerConnector.metrics"),
    (f"{CONNECTOR}.result", "_ResultMetric"),
    (f"{CONNECTOR}.result", "_Metadata.sync"),
    (f"{CONNECTOR}.result", "_Sync.should"),
    ("loggers.csv_logs", "ExperimentWriter"),
    ("callbacks.model_checkpoint", "ModelCheckpoint.file_exists"),
    # Numbers the lines that it draws.
    ("callbacks.progress.progress_bar", "ProgressBar"),
)
METADATA = (
    "fx",
    "name",
    "prog_bar",
    "logger",
    "on_step",
    "on_epoch",
    "enable_graph",
    "add_dataloader_idx",
    "dataloader_idx",
    "metric_attribute",
)
LIGHTNING_USES = (
    ("trainer.trainer", "Trainer.__init__", "_logger_connector"),
    ("loops.fit_loop", "_FitLoop.__init__", "_combined_loader"),
    ("loops.fit_loop", "_FitLoop.__init__", "_data_fetcher"),
    ("loops.fetchers", "_DataFetcher.__init__", "fetched"),
    ("loops.training_epoch_loop", "_TrainingEpochLoop.__init__", "_results"),
    ("core.module", "LightningModule.__init__", "_metric_attributes"),
    (f"{CONNECTOR}.result", "_Sync.__init__", "_should"),
    (f"{CONNECTOR}.result", "_Sync.__init__", "rank_zero_only"),
    (f"{CONNECTOR}.result", "_Metadata.__init__", "reduce_fx"),
    *((f"{CONNECTOR}.result", "_Metadata.__init__", name) for name in METADATA),
    # Where a logger writes.
    ("loggers.csv_logs", "CSVLogger.version.fget", "_version"),
    ("loggers.csv_logs", "CSVLogger.experiment.fget", "_experiment"),
    ("loggers.csv_logs", "ExperimentWriter.save", "metrics_file_path"),
)
# Points in time, which are left out of a checkpoint. Lightning 2.5 has none.
LIGHTNING_OPTIONAL_USES = (
    ("loops.fit_loop", "_FitLoop.setup_data", "_train_start_time"),
    ("loops.fit_loop", "_FitLoop.setup_data", "_last_val_time"),
)
# Of its objects also the attributes without an underscore that `lightning` names: with
# another version nothing is saved.


def missing() -> str | None:
    """Why this PyTorch cannot be hooked at all; None when it can."""
    return first_missing(NAMES, framework()) or first_unused(USES, framework())


def untested() -> str | None:
    """The version in use that resuming was never tested with; None when all were."""
    import torch

    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return first_untested(versions)


def missing_of(package: str) -> str | None:
    """Why the trainer of this framework cannot be hooked; None when it can."""
    if package == HF_TRAINER:
        lacking = first_missing(TRANSFORMERS_NAMES, "transformers")
        return lacking or first_unused(TRANSFORMERS_USES, "transformers")
    names = [(f"{package}.{module}", path) for module, path in LIGHTNING_NAMES]
    uses = [(f"{package}.{module}", path, use) for module, path, use in LIGHTNING_USES]
    return first_missing(names, package) or first_unused(uses, package)


def untested_of(package: str) -> str | None:
    """The version in use of this framework that resuming was never tested with; None when all
    were."""
    names = PACKAGES[package.partition(".")[0]]
    return first_untested({name: str(importlib.import_module(name).__version__) for name in names})


def framework(are_replicas: bool = False) -> str:
    """The framework and its version, as a checkpoint names it; by another name if all that is
    trained is the same in each of the processes, which may then be any number."""
    import torch

    return f"torch{'-ddp' * are_replicas} {torch.__version__}"
