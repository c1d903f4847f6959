"""What files hold: another content is found, whatever else differs between two of them is not."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hermesd.verify import contents
from hermesd.verify.contents import is_timed


def look(tmp_path: Path, name: str, content: bytes, number: int = 0) -> dict[str, str]:
    """What is said of a file with this name and content."""
    path = tmp_path / str(number) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    sums, _ = contents.look(path.parent, has_ended=True)
    return sums


def zipped(entries: dict[str, bytes], year: int = 2026) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name, (year, 1, 2, 3, 4, 6)), content)
    return file.getvalue()


def tarred(entries: dict[str, bytes], seconds: int = 0) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in entries.items():
            about = tarfile.TarInfo(name)
            about.size, about.mtime = len(content), seconds
            archive.addfile(about, io.BytesIO(content))
    return file.getvalue()


def keras(weights: bytes, saved: str) -> bytes:
    metadata = {"keras_version": "3", "date_saved": saved}
    return zipped({"metadata.json": json.dumps(metadata).encode(), "model.weights.h5": weights})


def arrays(**named: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **named)
    return file.getvalue()


def shared(text: str, is_one: bool) -> list[str]:
    """Twice the same text, as one object or as two."""
    return [text, text if is_one else "".join(list(text))]


def event(step: int, tag: str, value: float, wall_time: float) -> bytes:
    """A record of TensorBoard's, as its writers frame it."""
    held = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(held)]) + held
    message = b"\x09" + struct.pack("<d", wall_time) + b"\x10" + bytes([step])
    message += b"\x2a" + bytes([len(summary)]) + summary
    return struct.pack("<QI", len(message), 0) + message + bytes(4)


def sharing(*objects: int) -> bytes:
    """The configuration of a Keras model whose layers share objects, named by their addresses."""
    layers = [{"class_name": "Dense", "shared_object_id": one} for one in objects]
    return json.dumps({"layers": layers}).encode()


WEIGHTS = {"w": np.arange(3.0), "kind": "sgd"}
ALIKE: list[tuple[str, bytes, bytes]] = [
    ("a.zip", zipped({"x": b"1", "y": b"2"}), zipped({"y": b"2", "x": b"1"}, 2027)),
    ("a.npz", arrays(x=[1], y=[2]), arrays(y=[2], x=[1])),
    ("m.keras", keras(b"1", "2026-01-02@03:04:05"), keras(b"1", "2026-01-02@03:05:06")),
    (
        "m.keras",
        zipped({"config.json": sharing(7, 9, 7)}),
        zipped({"config.json": sharing(9, 4, 9)}),
    ),
    ("m.json", sharing(7, 9, 7), sharing(9, 4, 9)),
    ("m.h5", b"\x89HDF\r\n" + sharing(7, 9, 7), b"\x89HDF\r\n" + sharing(9, 4, 9)),
    ("a.gz", gzip.compress(b"text", mtime=1), gzip.compress(b"text", 1, mtime=2)),
    ("a.tar.gz", tarred({"x": b"1", "y": b"2"}), tarred({"y": b"2", "x": b"1"}, 99)),
    ("a.pkl", pickle.dumps(WEIGHTS), pickle.dumps(dict(reversed(WEIGHTS.items())), 4)),
    ("a.pkl", pickle.dumps(shared("lr", True)), pickle.dumps(shared("lr", False))),
    ("a.json", b'{"a": 1, "b": {"c": 2, "d": 3}}', b'{"b": {"d": 3, "c": 2},\n "a": 1}'),
    ("a.json", b'{"loss": 1, "seconds": 2.5}', b'{"loss": 1, "seconds": 3.5}'),
    ("a.csv", b"step,loss,time\n1,0.5,17.2\n", b"step,loss,time\n1,0.5,18.9\n"),
    ("a.tfevents.1", event(1, "loss", 0.5, 17.0), event(1, "loss", 0.5, 18.0)),
    (
        "a.tfevents.1",
        event(1, "loss", 0.5, 1.0) + event(1, "epoch_time", 3.0, 1.0),
        event(1, "loss", 0.5, 2.0) + event(1, "epoch_time", 4.0, 2.0),
    ),
]
OTHER: list[tuple[str, bytes, bytes, str]] = [
    ("a.zip", zipped({"x": b"1"}), zipped({"x": b"2"}), "a.zip, x"),
    ("a.zip", zipped({"x": b"1"}), zipped({"y": b"1"}), "a.zip"),
    ("a.npz", arrays(x=[1.0]), arrays(x=[1.0 + 2**-52]), "a.npz, x.npy"),
    ("m.keras", keras(b"1", "x"), keras(b"2", "x"), "m.keras, model.weights.h5"),
    (
        "m.keras",
        zipped({"config.json": sharing(7, 9, 7)}),
        zipped({"config.json": sharing(7, 9, 9)}),
        "m.keras, config.json",
    ),
    ("m.h5", b"\x89HDF" + sharing(7, 9, 7), b"\x89HDF" + sharing(7, 9, 9), "m.h5"),
    ("a.gz", gzip.compress(b"text", mtime=1), gzip.compress(b"test", mtime=1), "a.gz"),
    ("a.tar.gz", tarred({"x": b"1"}), tarred({"x": b"2"}), "a.tar.gz"),
    (
        "a.pkl",
        pickle.dumps(WEIGHTS),
        pickle.dumps({**WEIGHTS, "w": np.array([0.0, 1.0, 2.5])}),
        "a.pkl, key w",
    ),
    ("a.pkl", pickle.dumps({1, 2}), pickle.dumps({1, 3}), "a.pkl"),
    ("a.pkl", pickle.dumps({1, 2}, 2), pickle.dumps({1, 3}, 2), "a.pkl"),
    ("a.pkl", pickle.dumps([1, 2]), pickle.dumps([2, 1]), "a.pkl"),
    ("a.pkl", pickle.dumps(0.1 + 0.2), pickle.dumps(0.3), "a.pkl"),
    ("a.pkl", pickle.dumps(OrderedDict(a=1)), pickle.dumps(OrderedDict(a=2)), "a.pkl"),
    ("a.json", b'{"a": {"c": 2}}', b'{"a": {"c": 3}}', "a.json, key a"),
    ("a.json", b"[1, 2]", b"[2, 1]", "a.json"),
    ("a.json", b'{"broken": 1', b'{"broken": 2', "a.json"),
    ("a.csv", b"step,loss\n1,0.5\n", b"step,loss\n1,0.6\n", "a.csv, column loss"),
    ("a.csv", b"step,loss\n1,0.5\n", b"step,loss\n1,0.5\n2,0.5\n", "a.csv"),
    ("a.csv", b"ragged\n1,2\n", b"ragged\n1,3\n", "a.csv"),
    ("a.bin", b"\x801\x00.", b"\x802\x00.", "a.bin"),
    ("a.zip", b"PK\x03\x04broken", b"PK\x03\x04other", "a.zip"),
    ("a.tfevents.1", event(1, "loss", 0.5, 1.0), event(1, "loss", 0.6, 1.0), "events, loss"),
    ("a.tfevents.1", event(1, "loss", 0.5, 1.0), event(2, "loss", 0.5, 1.0), "events, loss"),
    ("a.txt", b"loss 1", b"loss 2", "a.txt"),
]


def numbered(cases: Sequence[tuple[Any, ...]]) -> list[str]:
    """Names for the cases: their bytes hold the time at which an archive was made, and each worker
    makes its own."""
    return [f"{case[0]}-{number}" for number, case in enumerate(cases)]


@pytest.mark.parametrize(("name", "one", "other"), ALIKE, ids=numbered(ALIKE))
def test_when_and_in_which_order_it_was_written_does_not_count(
    tmp_path: Path, name: str, one: bytes, other: bytes
) -> None:
    assert one != other
    assert look(tmp_path, name, one) == look(tmp_path, name, other, 1)


@pytest.mark.parametrize(("name", "one", "other", "where"), OTHER, ids=numbered(OTHER))
def test_another_content_is_found_where_it_is(
    tmp_path: Path, name: str, one: bytes, other: bytes, where: str
) -> None:
    before, after = look(tmp_path, name, one), look(tmp_path, name, other, 1)
    assert before[where] != after.get(where)


def test_sets_are_the_same_in_any_process(tmp_path: Path) -> None:
    """Whose seed of hashes decides the order of their items."""
    program = "import pickle, sys; sys.stdout.buffer.write(pickle.dumps([{*'abcdefgh'}], {}))"
    for protocol in ("2", "4"):
        runs = [
            subprocess.check_output(
                [sys.executable, "-c", program.replace("{}", protocol)],
                env={**os.environ, "PYTHONHASHSEED": seed},
            )
            for seed in ("1", "2")
        ]
        assert runs[0] != runs[1]
        assert look(tmp_path, "a", runs[0]) == look(tmp_path, "a", runs[1], 1)


def test_nothing_that_is_read_is_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return os.mkdir, (str(tmp_path / "made"),)

    assert look(tmp_path, "a.pkl", pickle.dumps(Evil()))
    assert not (tmp_path / "made").exists()


def test_events_of_a_folder_are_one_run_however_many_writers_there_were(tmp_path: Path) -> None:
    first, second = event(1, "loss", 0.5, 1.0), event(2, "loss", 0.25, 2.0)
    whole = look(tmp_path, "x.tfevents.1", first + second)
    look(tmp_path, "x.tfevents.1", first, 1)
    (tmp_path / "1" / "x.tfevents.2").write_bytes(first + second + b"cut off")
    assert contents.look(tmp_path / "1", has_ended=True)[0] == whole
    assert list(contents.look(tmp_path / "1", has_ended=False)[0]) == ["events"]


def test_links_count_by_where_they_lead_and_times_of_files_do_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "last").symlink_to("file")
    sums, texts = contents.look(tmp_path, has_ended=True)
    os.utime(tmp_path / "file", (98, 99))
    assert contents.look(tmp_path, has_ended=True) == (sums, texts)
    assert (sums["last"], texts) == ("a link to file", {"file": "text"})


@pytest.mark.torch
def test_of_what_torch_saves_the_values_count(tmp_path: Path) -> None:
    import torch

    def saved(name: str, number: int, **values: Any) -> dict[str, str]:
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        torch.save(values, path)
        found = contents.look(path.parent, has_ended=True)[0]
        return {part.replace(name, "file"): said for part, said in found.items()}

    weights = torch.arange(4.0)
    one = saved("a.pt", 0, model={"w": weights, "b": weights[:2]}, names={"x", "y"})
    assert one == saved("b.pt", 1, names={"y", "x"}, model={"b": weights[:2], "w": weights})
    other = saved("a.pt", 2, model={"w": weights + 1, "b": weights[:2]}, names={"x", "y"})
    assert [part for part in one if one[part] != other[part]] == ["file, key model"]
    view = saved("a.pt", 3, model={"w": weights, "b": weights[1:3]}, names={"x", "y"})
    assert one["file, key model"] != view["file, key model"]


@pytest.mark.parametrize("name", ["time", "epoch_time", "time/fps", "train_seconds", "ms"])
def test_names_of_times(name: str) -> None:
    assert is_timed(name)
    assert not is_timed(f"{name}line")


@pytest.mark.parametrize("name", ["timesteps", "time_step", "loss", "items", "val_auc", "beta"])
def test_names_of_other_values(name: str) -> None:
    assert not is_timed(name)
