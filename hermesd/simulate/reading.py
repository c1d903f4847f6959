"""A file of recorded curves, whatever it is: an archive, or the export of a study."""

from __future__ import annotations

from pathlib import Path

from hermesd.refusal import FieldError, Refused
from hermesd.simulate.archives import JOB_ITERATIONS, ZIP, read_archive
from hermesd.simulate.curves import Curves, Loss
from hermesd.simulate.exports import read_export


def read(path: Path, loss: Loss = "base", iterations: int | None = JOB_ITERATIONS) -> Curves:
    """Every usable training of a file; `iterations` is `read_archive`'s.

    Raises:
        Refused: the file cannot be read, has no layout that is known, or not the loss asked for.
    """
    try:
        with path.open("rb") as file:
            begun = file.read(len(ZIP))
    except IsADirectoryError:
        raise Refused(
            FieldError("curves", str(path), "files; a folder's are named one by one")
        ) from None
    except OSError as error:
        expected = f"a file of recorded curves ({error.strerror})"
        raise Refused(FieldError("curves", str(path), expected)) from None
    if begun == ZIP or (begun and path.suffix == ".npz"):
        stock = read_archive(path, loss, iterations)
        if not stock.jobs:
            raise Refused(FieldError("curves", str(path), "at least one training with losses"))
        return stock
    curves = read_export(path)
    if loss != "base":
        raise Refused(FieldError("metric_loss", loss, f"base: {path} has the study's own signal"))
    return curves
