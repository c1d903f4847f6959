"""A very small BERT that learns whether there are more sevens than threes in a row of digits."""

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--learning_rate", type=float, default=1e-3)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

torch.manual_seed(0)
rows = torch.randint(0, 10, (1200, 12))
more_sevens = ((rows == 7).sum(1) > (rows == 3).sum(1)).long()
data = [{"input_ids": row, "labels": label} for row, label in zip(rows, more_sevens, strict=True)]

model = BertForSequenceClassification(
    BertConfig(
        vocab_size=10,
        hidden_size=args.hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * args.hidden,
    )
)
settings = TrainingArguments(
    "out",
    num_train_epochs=args.epochs,
    per_device_train_batch_size=32,
    learning_rate=args.learning_rate,
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=10,
    report_to="none",
)
Trainer(model, settings, train_dataset=data[:1000], eval_dataset=data[1000:]).train()
