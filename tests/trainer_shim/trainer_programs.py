"""Scripts on PyTorch's frameworks with a training loop of their own, as users write them; none
of them knows of Hermes.

As in `torch_programs`: one line that starts with FINAL holds all that must come out the
same, the loss of each batch as the script sees it among it.
"""

from __future__ import annotations

_HEAD = """
import glob, hashlib, json, os, random, sys, warnings
warnings.filterwarnings("ignore")
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.set_num_threads(1)
{seed}  # and again after other imports, which draw numbers
x = torch.randn(50, 6)
y = (x.sum(dim=1) > 0).long()
epochs = int(sys.argv[1]) if sys.argv[1:] else 3  # how long it trains may be on the command line
seen = []

def digest(*models):
    parts = [tensor.numpy().tobytes() for m in models for tensor in m.state_dict().values()]
    return hashlib.sha256(b"".join(parts)).hexdigest()

def final(*values):
    print("FINAL", json.dumps(values))

class Noisy(Dataset):
    def __init__(self, length):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return x[index] + 0.1 * torch.randn(6) + random.random(), y[index]

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.one, self.norm = nn.Linear(6, width), nn.BatchNorm1d(width)
        self.drop, self.two = nn.Dropout(0.3), nn.Linear(width, 2)
    def forward(self, x):
        return self.two(self.drop(torch.relu(self.norm(self.one(x)))))
"""

_SEEDED = "torch.manual_seed(11)\nrandom.seed(5)"

_LIGHTNING = """
import lightning.pytorch as pl
from lightning.pytorch import callbacks
from lightning.pytorch.loggers import CSVLogger
from torchmetrics.classification import MulticlassAccuracy
{seed}
quiet = dict(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)

class Base(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.right = MulticlassAccuracy(2)
        self.val_right = MulticlassAccuracy(2)
        self.batches = 0
    def loss(self, batch):
        data, target = batch
        out = self.net(data)
        return nn.functional.cross_entropy(out, target), out
    def training_step(self, batch, index):
        loss, out = self.loss(batch)
        self.batches += 1
        self.right(out, batch[1])
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log("train_right", self.right, on_step=False, on_epoch=True)
        seen.append(loss.item())
        return loss
    def validation_step(self, batch, index):
        loss, out = self.loss(batch)
        self.val_right(out, batch[1])
        self.log_dict(dict(val_loss=loss, val_right=self.val_right))
    test_step = validation_step
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8)]

def rows():
    return [open(path).read() for path in sorted(glob.glob("**/metrics.csv", recursive=True))]

def logged(trainer):
    return {name: float(value) for name, value in trainer.callback_metrics.items()}

data = TensorDataset(x, y)
"""

# 7 batches an epoch; validation after each; the best weights are tested.
LIGHTNING_USUAL = (
    _LIGHTNING
    + """
model = Base()
best = callbacks.ModelCheckpoint("best", monitor="val_loss", save_top_k=2)
stop = callbacks.EarlyStopping("train_loss_epoch", patience=2, min_delta=0.01)
trainer = pl.Trainer(max_epochs=epochs, callbacks=[stop, best], logger=CSVLogger("logs"),
                     log_every_n_steps=2, **quiet)
trainer.fit(model, DataLoader(data, 8, shuffle=True), DataLoader(data, 20))
last, values = digest(model), logged(trainer)
trainer.test(model, DataLoader(data, 25), ckpt_path="best", verbose=False)
final(seen, last, values, logged(trainer), model.batches, str(stop.best_score), stop.wait_count,
      os.path.relpath(best.best_model_path), sorted(os.listdir("best")), os.listdir("logs"), rows())
"""
)

# A bar drawn on the terminal, of which each validation is a line.
LIGHTNING_RICH_BAR = (
    _LIGHTNING
    + """
model, bar = Base(), callbacks.RichProgressBar()
trainer = pl.Trainer(max_epochs=epochs, callbacks=[bar], logger=False, enable_checkpointing=False,
                     **{**quiet, "enable_progress_bar": True})
trainer.fit(model, DataLoader(data, 8, shuffle=True), DataLoader(data, 20))
final(seen, digest(model), logged(trainer), bar.train_progress_bar.completed)
"""
)
LIGHTNING_TQDM_BAR = LIGHTNING_RICH_BAR.replace("Rich", "TQDM").replace("bar.completed", "bar.n")

# Two loaders of which one is begun again amid the epoch, workers that draw random numbers, steps
# after two batches, validation twice an epoch, a plateau schedule, averaged weights on the side.
LIGHTNING_TWO = (
    _LIGHTNING
    + """
class Two(Base):
    def training_step(self, batch, index):
        loss = self.loss(batch["noisy"])[0] + 0.5 * self.loss(batch["plain"])[0]
        loss = loss * (1 + random.random() / 10)
        self.log("gap", loss, on_epoch=True, reduce_fx="max", prog_bar=True, logger=False)
        seen.append(loss.item())
        return loss
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
        return dict(optimizer=optimizer, lr_scheduler=dict(scheduler=plateau, monitor="val_loss"))

class Note(pl.Callback):
    def __init__(self):
        self.notes, self.average = [], None
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        weight = module.net.one.weight.detach()
        self.average = weight.clone() if self.average is None else self.average.lerp(weight, 0.1)
        self.notes.append([trainer.current_epoch, index, trainer.global_step])
    def on_train_epoch_start(self, trainer, module):
        self.notes.append(random.random())

loaders = {
    "noisy": DataLoader(Noisy(44), 4, shuffle=True, num_workers=2),
    "plain": DataLoader(data, 10, shuffle=True, generator=torch.Generator().manual_seed(3)),
}
model, note = Two(), Note()
trainer = pl.Trainer(max_epochs=2, accumulate_grad_batches=2, val_check_interval=5, logger=False,
                     gradient_clip_val=0.5, enable_checkpointing=False, callbacks=[note], **quiet)
trainer.fit(model, loaders, DataLoader(data, 20, shuffle=True))
final(seen, digest(model), note.notes, note.average.tolist(), logged(trainer), torch.rand(1).item())
"""
)

# Two optimizers stepped by hand, bfloat16, the end of an epoch asked for by the model, max_steps;
# the data draw numbers in the training process itself. Imported by its other name.
LIGHTNING_MANUAL = (
    _LIGHTNING.replace("lightning.pytorch", "pytorch_lightning")
    + """
class Manual(Base):
    def __init__(self):
        super().__init__()
        self.judge, self.automatic_optimization = nn.Linear(2, 1), False
    def on_train_batch_start(self, batch, index):
        return -1 if self.current_epoch == 0 and index == 4 else None
    def training_step(self, batch, index):
        one, two = self.optimizers()
        loss, out = self.loss(batch)
        score = (self.judge(out.detach()) ** 2).mean()
        for optimizer, value in ((one, loss), (two, score)):
            optimizer.zero_grad()
            self.manual_backward(value)
            optimizer.step()
        self.log_dict({"total": loss, "score": score})
        seen.append([loss.item(), score.item()])
    def configure_optimizers(self):
        nets = self.net, self.judge
        return [torch.optim.AdamW(one.parameters(), lr=0.02) for one in nets]

model = Manual()
trainer = pl.Trainer(max_steps=26, precision="bf16-mixed", num_sanity_val_steps=0, **quiet)
trainer.fit(model, DataLoader(Noisy(42), 6, shuffle=True), DataLoader(data, 20))
final(seen, digest(model), logged(trainer), rows())
"""
)

_TRANSFORMERS = """
from transformers import BatchEncoding, EarlyStoppingCallback, Trainer, TrainerCallback
from transformers import TrainingArguments
{seed}
quiet = dict(report_to=[], disable_tqdm=True, use_cpu=True)

class Rows(Dataset):
    def __len__(self):
        return 50
    def __getitem__(self, index):
        return dict(data=x[index], labels=y[index])

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def forward(self, data, labels):
        out = self.net(data)
        loss = nn.functional.cross_entropy(out, labels)
        if self.training:
            seen.append(loss.item())
        return dict(loss=loss, logits=out)

def history(trainer):
    timed = ("_runtime", "_per_second", "_time")
    logs = trainer.state.log_history
    return [{k: v for k, v in log.items() if not k.endswith(timed)} for log in logs]
"""

# 7 batches an epoch; evaluated, saved and logged at their ends, stopped early, the best loaded.
TRANSFORMERS_USUAL = (
    _TRANSFORMERS
    + """
args = TrainingArguments("out", num_train_epochs=epochs + 1, per_device_train_batch_size=8,
                         eval_strategy="epoch", save_strategy="epoch", logging_strategy="epoch",
                         load_best_model_at_end=True, metric_for_best_model="right",
                         save_total_limit=1, learning_rate=0.05, warmup_steps=3, **quiet)

def measure(predicted):
    return dict(right=float((predicted.predictions.argmax(1) == predicted.label_ids).mean()))

model = Model()
trainer = Trainer(model, args, train_dataset=Rows(), eval_dataset=Rows(), compute_metrics=measure,
                  callbacks=[EarlyStoppingCallback(1, early_stopping_threshold=0.2)])
result = trainer.train()
trainer.evaluate()
final(seen, digest(model), history(trainer), result.training_loss, sorted(os.listdir("out")),
      trainer.state.best_global_step)
"""
)

# Steps after two batches, logs and evaluations amid an epoch, max_steps, a trainer and a callback
# of the script's own, batches that are masked at random in the training process.
TRANSFORMERS_OWN = (
    _TRANSFORMERS
    + """
def masked(rows):
    data = torch.stack([row["data"] for row in rows])
    labels = torch.stack([row["labels"] for row in rows])
    return BatchEncoding(dict(data=data * (torch.rand_like(data) > random.random()), labels=labels))

class Own(Trainer):
    sizes = None
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        self.sizes = (self.sizes or []) + [len(labels)]
        out = model(inputs["data"], labels)
        loss = out["loss"] + 0.01 * model.net.one.weight.abs().sum()
        return (loss, out) if return_outputs else loss

class Note(TrainerCallback):
    def __init__(self):
        self.notes = []
    def on_step_end(self, args, state, control, **kwargs):
        self.notes.append([state.global_step, state.epoch, random.random()])

args = TrainingArguments("out", max_steps=10, per_device_train_batch_size=6, logging_steps=3,
                         gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=4,
                         save_strategy="no", optim="sgd", lr_scheduler_type="cosine", seed=5,
                         learning_rate=0.1, remove_unused_columns=False, **quiet)
model, note = Model(), Note()
trainer = Own(model, args, data_collator=masked, train_dataset=Rows(), eval_dataset=Rows(),
              callbacks=[note])
trainer.train()
final(seen, digest(model), history(trainer), trainer.sizes, note.notes, torch.rand(1).item())
"""
)

# A model of the library's, grouped by length, read by workers.
TRANSFORMERS_BERT = (
    _TRANSFORMERS
    + """
from transformers import BertConfig, BertForSequenceClassification

class Words(Dataset):
    def __len__(self):
        return 30
    def __getitem__(self, index):
        ids = [index % 9 + 1] * 4 + [random.randrange(1, 20)]
        return dict(input_ids=ids, attention_mask=[1] * 5, labels=index % 2)

config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                    intermediate_size=8)
model = BertForSequenceClassification(config)
args = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=8, logging_steps=1,
                         save_strategy="no", dataloader_num_workers=2, learning_rate=0.01, **quiet)
trainer = Trainer(model, args, train_dataset=Words())
trainer.train()
final([], digest(model), history(trainer))
"""
)

LIGHTNING_ASKED = (
    _LIGHTNING
    + """
model = Base()
best = callbacks.ModelCheckpoint("best", monitor="val_loss", save_top_k=2)
trainer = pl.Trainer(max_epochs=epochs, callbacks=[best], logger=False, **quiet)
trainer.fit(model, DataLoader(data, 8, shuffle=True), DataLoader(data, 20))
final(seen, digest(model), logged(trainer), sorted(os.listdir("best")), str(best.best_model_score))
"""
)
TRANSFORMERS_ASKED = (
    _TRANSFORMERS
    + """
args = TrainingArguments("out", num_train_epochs=epochs, per_device_train_batch_size=8,
                         lr_scheduler_type="constant", eval_strategy="epoch", logging_steps=3,
                         save_strategy="no", learning_rate=0.02, **quiet)
model = Model()
trainer = Trainer(model, args, train_dataset=Rows(), eval_dataset=Rows())
trainer.train()
final(seen, digest(model), trainer.state.epoch, trainer.state.log_history[-2]["eval_loss"])
"""
)

_LIGHTNING_FIT = (
    _LIGHTNING
    + """
from torch.utils.data import IterableDataset
class Stream(IterableDataset):
    def __iter__(self):
        return iter(data)
stream = DataLoader(Stream(), 10)
loader, model = DataLoader(data, 10), Base()
no_files = dict(logger=False, enable_checkpointing=False, **quiet)
"""
)

# What cannot be brought back.
LIGHTNING_STREAM = _LIGHTNING_FIT + "pl.Trainer(max_epochs=1, **no_files).fit(model, stream)\n"
LIGHTNING_RELOADED = (
    _LIGHTNING_FIT
    + """
pl.Trainer(max_epochs=1, reload_dataloaders_every_n_epochs=1, **no_files).fit(model, loader)
"""
)
LIGHTNING_AFTER_A_LOOP = (
    _LIGHTNING_FIT
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(data, 50):
    model.loss(batch)[0].backward()
    optimizer.step()
pl.Trainer(max_epochs=1, **no_files).fit(model, DataLoader(TensorDataset(x[:40], y[:40]), 10))
"""
)
TRANSFORMERS_TWICE = (
    _TRANSFORMERS
    + """
args = TrainingArguments("out", max_steps=3, save_strategy="no", **quiet)
model = Model()
for _ in range(2):
    Trainer(model, args, train_dataset=Rows()).train()
"""
)
TRANSFORMERS_ODD_BATCHES = (
    _TRANSFORMERS
    + """
class Batch(dict):
    pass
def odd(rows):
    return Batch({k: torch.stack([row[k] for row in rows]) for k in rows[0]})
args = TrainingArguments("out", max_steps=5, save_strategy="no", **quiet)
Trainer(Model(), args, train_dataset=Rows(), data_collator=odd).train()
"""
)


# Its bar has come to the last step when it is taken away.
TRANSFORMERS_BAR = (
    _TRANSFORMERS
    + """
from transformers.trainer_callback import ProgressCallback

class Bar(ProgressCallback):
    def on_train_end(self, *args, **kwargs):
        drawn.append(self.training_bar.n)
        super().on_train_end(*args, **kwargs)

drawn = []
args = TrainingArguments("out", num_train_epochs=epochs, per_device_train_batch_size=8,
                         eval_strategy="epoch", save_strategy="no", **quiet)
model = Model()
trainer = Trainer(model, args, train_dataset=Rows(), eval_dataset=Rows(), callbacks=[Bar()])
trainer.train()
final(seen, digest(model), history(trainer), drawn)
"""
)


def program(body: str, seeded: bool = True) -> str:
    """The whole script."""
    return (_HEAD + body).replace("{seed}", _SEEDED if seeded else "")


def lightning(body: str) -> str:
    """The whole script, with Lightning imported and a `Base` for its model."""
    return program(_LIGHTNING + body)


def transformers(body: str) -> str:
    """The whole script, with the Hugging Face Trainer imported."""
    return program(_TRANSFORMERS + body)
