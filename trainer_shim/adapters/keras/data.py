"""The position of a fit in its data, and whether they are the same data as before.

An iterator that was moved gives what the copied one would have given, in this epoch and, if
shuffled, in those after it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable

from trainer_shim.adapters.keras import private
from trainer_shim.file_moves import opening

if TYPE_CHECKING:
    from trainer_shim.adapters.keras.backend import DataSource

_SAMPLED_ROWS = 64
Files = dict[str, bytes]


def is_of_arrays(iterator: Any) -> bool:
    """Whether an iterator of Keras' over epochs makes batches of arrays."""
    return isinstance(iterator.data_adapter, private.find(private.ARRAYS, "ArrayDataAdapter"))


def is_batched(iterator: Any) -> bool:
    """Whether it makes them anew in each epoch, of all there is."""
    return is_of_arrays(iterator) and iterator.steps_per_epoch is None


def batch_again(source: DataSource, size: int, **given: Any) -> None:
    """Have Keras' iterator of a source be, between two epochs, one that was asked for this batch
    size; `given` is what else its kind is made with."""
    import keras

    iterator = source.iterator
    adapter = iterator.data_adapter
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(adapter._inputs)
    source.iterator = None  # until it is there: what is made now is what this fit reads
    made = type(iterator)(
        x=x,
        y=y,
        sample_weight=sample_weight,
        batch_size=size,
        shuffle=adapter._shuffle,
        steps_per_execution=iterator.steps_per_execution,
        **given,
    )
    vars(iterator).update(vars(made))
    source.iterator = iterator


def fingerprint(arrays: Iterable[Any]) -> list[Any]:
    """Shapes, types and a checksum of evenly spaced rows of NumPy arrays."""
    import numpy as np

    prints: list[Any] = []
    for array in arrays:
        if isinstance(array, np.ndarray) and array.dtype != object and len(array):
            rows = array[:: max(1, len(array) // _SAMPLED_ROWS)][:_SAMPLED_ROWS]
            sample = zlib.crc32(np.ascontiguousarray(rows).tobytes())
            prints.append((array.shape, array.dtype.str, sample))
    return prints


def is_pipeline(data: Any) -> bool:
    """Whether it is a tf.data pipeline."""
    tf = sys.modules.get("tensorflow")
    return tf is not None and isinstance(data, tf.data.Dataset)


def shuffled_by(key: int, make: Callable[[], Any]) -> tuple[Any, Any]:
    """The dataset of `make`, its permutations drawn from `key` and a counter, and that counter.

    A seed for TensorFlow as a whole would give each epoch the same permutation.
    """
    import tensorflow as tf

    with tf.device("CPU:0"):
        counter = tf.Variable(0, dtype=tf.int64, trainable=False)

    def shuffle(values: Any, seed: Any = None, name: Any = None) -> Any:
        first = tf.cast(values[0], tf.int64)  # differs from batch to batch
        return tf.random.experimental.stateless_shuffle(values, [key + counter, first])

    plain, tf.random.shuffle = tf.random.shuffle, shuffle
    try:
        return make(), counter
    finally:
        tf.random.shuffle = plain


def copy_iterator(iterator: Any) -> Files:
    """The position of a tf.data iterator. Raises tf.errors.OpError when it has none to give."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        tf.train.Checkpoint(iterator=iterator).write(os.path.join(folder, "it"))
        files = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                files[name] = file.read()
        return files


def move_iterator(iterator: Any, start: Files, here: Files, seen: int) -> None:
    """Move an iterator that has given nothing yet to where `here` was copied, after `seen`
    elements; `start` was copied before the first. Of a pipeline with one shuffle at the most."""
    # An operation that has read its input to the end forgets it, and with it how many seeds a
    # shuffle has drawn, which decides the order of the next epoch: read it again.
    if _draws(here) < _draws(start):
        _set_iterator(iterator, start)
        for _ in range(seen):
            next(iterator, None)
    else:
        _set_iterator(iterator, here)


def check_counted(files: Files) -> None:
    """Raises ValueError if a copied position does not hold how many seeds its shuffle has drawn."""
    if not _draws(files):
        raise ValueError("it does not say how often it was shuffled")


def _draws(files: Files) -> int:
    """How many of a shuffle's counters a copied position holds."""
    return sum(content.count(b"num_random_samples") for content in files.values())


def _set_iterator(iterator: Any, files: Files) -> None:
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            with opening(os.path.join(folder, name), "wb") as file:  # none of the program's
                file.write(content)
        tf.train.Checkpoint(iterator=iterator).read(os.path.join(folder, "it"))
