"""Random operations in a step, with their position where a checkpoint finds it: in a variable.

The numbers are those of the plain operation, bit for bit. That operation keeps a Philox generator
in its kernel: the key is its seed, the upper half of the counter its second seed, and each
execution moves the lower half on by 256 for each number. TensorFlow's stateless operations take the
same key and counter as arguments.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from trainer_shim.adapters.tensorflow import private
from trainer_shim.adapters.tensorflow.variables import of_ours

_STATELESS = {
    "random_uniform": "stateless_random_uniform_v2",
    "random_standard_normal": "stateless_random_normal_v2",
    "truncated_normal": "stateless_truncated_normal_v2",
    "random_uniform_int": "stateless_random_uniform_int_v2",
}
_PHILOX = 1
_SKIPPED = 256  # for each number; GuardedPhiloxRandom::ReserveRandomOutputs in TensorFlow's kernels


class RandomPositions:
    """One for each random operation that was traced."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def hook(self, is_meant: Callable[[], bool]) -> None:
        """Replace what is traced while `is_meant`."""
        module = private.find(private.RANDOM, "random_uniform").__globals__
        for name, stateless in _STATELESS.items():
            module[name] = self._replacing(module[name], stateless, is_meant)

    def _replacing(self, original: Any, stateless: str, is_meant: Callable[[], bool]) -> Any:
        replacement = private.find(private.STATELESS_RANDOM, stateless)

        @functools.wraps(original)
        def draw(shape: Any, *args: Any, seed: int = 0, seed2: int = 0, **kwargs: Any) -> Any:
            if (not seed and not seed2) or not is_meant():
                return original(shape, *args, seed=seed, seed2=seed2, **kwargs)
            key, counter = self._next(shape, seed or 0, seed2 or 0)
            if len(args) == 1:
                return replacement(shape, key, counter, _PHILOX, dtype=args[0], **kwargs)
            return replacement(shape, key, counter, _PHILOX, *args, **kwargs)

        return draw

    def _next(self, shape: Any, seed: int, seed2: int) -> tuple[Any, Any]:
        import tensorflow as tf

        position = of_ours(0, tf.int64)
        self._kept.append(position)
        before = tf.identity(position)
        numbers = tf.reduce_prod(tf.cast(shape, tf.int64))
        position.assign_add(numbers * _SKIPPED, read_value=False)
        counter = tf.stack([before, tf.constant(seed2, tf.int64)])
        return tf.constant([seed % 2**64], tf.uint64), tf.bitcast(counter, tf.uint64)
