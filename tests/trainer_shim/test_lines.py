"""What in a line of output is a metric, and what is not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_shim.metrics.lines import LineReader, from_json, pairs
from trainer_shim.side_metrics import FOUND, TOLD


def found(line: str, *left_out: str) -> dict[str, float]:
    """The metrics of one line."""
    told = list(LineReader(left_out=left_out).read(line + "\n"))
    assert all(source == FOUND for _, source in told)
    return {name: value for values, _ in told for name, value in values.items()}


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("loss=0.3 acc=0.9", {"loss": 0.3, "acc": 0.9}),
        (
            "Epoch 3: train loss: 0.12, val loss: 0.56",
            {"train_loss": 0.12, "val_loss": 0.56},
        ),
        ("train loss=0.1 val loss=.2", {"train_loss": 0.1, "val_loss": 0.2}),
        (
            "Test set: Average loss: 0.0521, Accuracy: 9830/10000 (98%)",
            {"Average_loss": 0.0521, "Accuracy": 0.983},
        ),
        ("Accuracy of the network on the 10000 test images: 54 %", {"Accuracy": 54.0}),
        ("Writing shards: 100%|####| 1/1 [00:00<00:00, 9.1it/s, loss=0.5]", {"loss": 0.5}),
        ("| acc: 98% | loss: 0.5|", {"acc": 98.0, "loss": 0.5}),
        ("Test accuracy on 1,797 samples = 0.93", {"Test_accuracy": 0.93}),
        ("Results for fold 3 accuracy: 0.9", {"accuracy": 0.9}),
        ("loss 4.12", {"loss": 4.12}),
        ("acc 0.5, f1 0.3", {"acc": 0.5, "f1": 0.3}),
        ("epoch 5 loss 0.154 acc 0.254", {"loss": 0.154, "acc": 0.254}),
        ("12:00:01 Epoch 5/60: loss 0.15, val loss 0.25", {"loss": 0.15, "val_loss": 0.25}),
        ("[5/60] Train Loss 0.15 Val Acc 98.5%", {"Train_Loss": 0.15, "Val_Acc": 98.5}),
        ("epoch 5 of 60 - d_loss 1e-3 - loss 3 - time 3.2s", {"d_loss": 0.001}),
        ("epoch 5 reward 0.5 count 0.5 acc 97/100", {}),
        ("f1 0.3, f2 0.5", {}),
        ("f0 0.1 | f1 0.3 | loss 0.5", {"loss": 0.5}),
        (
            "| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 5.0 | loss  7.63 | ppl 2063.2",
            {"loss": 7.63, "ppl": 2063.2},
        ),
        ("| end of epoch 1 | time: 9.00s | valid loss  5.30 |", {"valid_loss": 5.3}),
        ("Epoch 3 of 10 val loss: 0.5", {"val_loss": 0.5}),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.345", {"Loss": 0.345}),
        ("2024-01-01 12:00:00,123 - INFO - val_acc = 0.91.", {"val_acc": 0.91}),
        ("INFO:root:val_acc:0.91", {"val_acc": 0.91}),
        ("{'eval_loss': 0.51, 'eval_runtime': 1.5, 'epoch': 1.0}", {"eval_loss": 0.51}),
        ('{"step": 3, "val": {"acc": 1}, "name": "x"}', {"val.acc": 1.0}),
        (
            "188/188 - 1s - 5ms/step - accuracy: 0.9123 - loss: 3.1e-1",
            {"accuracy": 0.9123, "loss": 0.31},
        ),
        ("\x1b[1m1/2\x1b[0m loss: 0.9\r\x1b[1m2/2\x1b[0m 3ms/step - loss: 0.5", {"loss": 0.5}),
        (
            " 45%|### | 45/100 [00:01<00:01, 40.5it/s, loss=0.3, acc=98.5%]",
            {"loss": 0.3, "acc": 98.5},
        ),
        ("Best accuracy so far: 98%", {"Best_accuracy_so_far": 98.0}),
        ("top-1: 75.2 | acc@5: 92.1", {"top-1": 75.2, "acc@5": 92.1}),
        ("Validation Accuracy (%): 93.1", {"Validation_Accuracy": 93.1}),
        ("loss: tensor(0.53, grad_fn=<NllLossBackward0>)", {"loss": 0.53}),
        ("torch: 2.13.0+cpu", {}),
        ("the loss 4.12 is high", {}),
        ("loss 4.12 is high", {}),
        ("loss 0.5 -> 0.4", {}),
        ("loss 0.5 (0.4)", {}),
        ("acc -> 0.4", {}),
        ("saved epoch 12 loss 0.3", {}),
        ("best: loss 0.3", {}),
        ("stopped at epoch 12 loss 0.3", {}),
        ("loss improved from 0.5, target accuracy 0.95, lr 0.1, loss 3", {}),
        ("Namespace(lr=0.001, epochs=10, momentum=0.9)", {}),
        ("batch_size=64, params: 1250", {}),
        ("12:00:01.5 Time: 3.2s, 0.5", {}),
        ("http://box:8080/a?b=0.5&c=0.5", {}),
        ("After all of it the final value is: 0.3", {}),
        ("of it the final value=0.3", {"value": 0.3}),
        ("it is: best final val acc: 0.3", {"best_final_val_acc": 0.3}),
        ("best of final val acc: 0.3", {}),
        ("{'a': 0.5", {"a": 0.5}),
    ],
)
def test_metrics_of_a_line(line: str, metrics: dict[str, float]) -> None:
    assert found(line, "lr", "momentum") == metrics


@pytest.mark.parametrize(
    ("line", "counter"),
    [
        ("Epoch 3/60: train_loss=0.63", (3, 60)),
        ("Epoch [03/60] loss: 0.5", (3, 60)),
        ("INFO epoch: 3 of 60, step [7/9], loss: 0.5", (3, 60)),
        ("epoch 1 out of 2, loss=0.5", (1, 2)),
        ("[3/60] loss=0.5", (3, 60)),
        ("loss: 0.5 [3/60]", None),
        ("Step [3/60] loss=0.5", None),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.345", None),
        ("[640/60000 (1%)] loss=0.5", None),
        ("Accuracy: 9830/10000 (98%), loss=0.5", None),
        ("epoch 3 loss=0.5", None),
    ],
)
def test_what_a_line_counts_is_epochs_or_stands_in_brackets_before_all_else(
    line: str, counter: tuple[int, int] | None
) -> None:
    reader = LineReader()
    assert [reader.counter for _ in reader.read("Epoch 7/7\n" + line + "\n")] == [counter]


def test_a_loss_that_is_no_number_is_a_metric() -> None:
    assert math.isnan(found("val_loss=nan")["val_loss"])


def test_a_line_that_comes_in_parts_is_one() -> None:
    reader = LineReader()
    assert not [*reader.read("val_"), *reader.read("acc: 0."), *reader.read("")]
    assert [*reader.read("5\nloss: 0.2")] == [({"val_acc": 0.5}, FOUND)]
    assert [*reader.read("5\n\n")] == [({"loss": 0.25}, FOUND)]


def test_what_is_printed_amid_a_bar_is_a_line_of_its_own() -> None:
    reader = LineReader()
    told = [one for text in ("\r1/2 loss: 0.5", "", "f1: 0.25", "\n") for one in reader.read(text)]
    assert told == [({"f1": 0.25}, FOUND)]
    assert [*reader.read("\r1/2 loss: 0.5"), *reader.read("\b\b\r2/2 loss: 0.4\n")] == [
        ({"loss": 0.4}, FOUND)
    ]


def test_source_in_a_traceback_is_no_metric() -> None:
    text = """loss=0.5
Traceback (most recent call last):
  File "train.py", line 7, in <module>
    fit(dropout=0.25)

ValueError: rate=0.75
loss=0.25
"""
    assert [found for found, _ in LineReader().read(text)] == [{"loss": 0.5}, {"loss": 0.25}]


def test_a_studys_patterns_say_what_is_a_metric() -> None:
    """Also of numbers that are written as counts, several in a line, and the hyper-parameters."""
    patterns = {"hits": r"hits (?P<value>\d+) of (\d+)", "rate": r"rate\((\S+)\)"}
    reader = LineReader(patterns, left_out=["rate"])
    assert [*reader.read("hits 7 of 9, hits 8 of 9, rate(0.5), rate=0.5, f1=0.25\n")] == [
        ({"f1": 0.25}, FOUND),
        ({"hits": 8.0, "rate": 0.5}, TOLD),
    ]
    assert not [*reader.read("rate(none)\n")]


def test_a_line_that_cannot_be_read_ends_nothing() -> None:
    """Whether it is nested too deeply, or a study's pattern has no group."""
    assert from_json('{"a":' + "[" * 100_000 + "]" * 100_000 + "}") is None
    reader = LineReader({"hits": "hits"})
    assert [*reader.read("hits\nloss=0.5\n")] == [({"loss": 0.5}, FOUND)]


def test_a_name_is_found_in_time_in_proportion_to_what_stands_before_it() -> None:
    """Each word is looked at a few times, however many there are: here it would be hours."""
    assert pairs("a " * 500_000 + ", score: 0.5") == {"score": 0.5}


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    for values, _ in LineReader().read(text + "\n"):
        assert all(isinstance(value, float) for value in values.values())
