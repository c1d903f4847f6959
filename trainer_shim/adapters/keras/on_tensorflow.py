"""Keras on TensorFlow: its functions are graphs, and its data come from tf.data."""

from __future__ import annotations

import functools
import pickle
from typing import TYPE_CHECKING, Any

from trainer_shim.adapters.keras import private, tensorflow_graph
from trainer_shim.adapters.keras.around import around
from trainer_shim.adapters.keras.tensorflow_data import TensorFlowData

if TYPE_CHECKING:
    from trainer_shim.adapters.keras.backend import FitSession


class _TensorFlow:
    traces_at_once = True
    needs_a_step = False

    def hook(self, session: FitSession) -> None:
        import tensorflow as tf

        def begin_pipeline(original: Any, dataset: Any) -> Any:
            session.begins_pipeline(dataset)
            return original(dataset)

        def make_function(original: Any, model: Any, step: Any) -> Any:
            if step not in (model.train_step, model.test_step):
                return original(model, step)
            kind = "train" if step == model.train_step else "test"
            seen = functools.partial(session.seen, model)
            return tensorflow_graph.watch(original, model, step, kind, seen)

        def get_tf_dataset(original: Any, adapter: Any) -> Any:
            fit = session.fit
            if fit is None or fit.source.iterator is not None or not adapter._shuffle:
                return original(adapter)
            own = self.is_seeded() or session.agent.seed is None
            source: Any = fit.source
            return original(adapter) if own else source.shuffled(adapter, original)

        around(private.trainer(), "_make_function", make_function)
        arrays = private.find(private.ARRAYS, "ArrayDataAdapter")
        around(arrays, "get_tf_dataset", get_tf_dataset)
        around(tf.data.Dataset, "__iter__", begin_pipeline)

    def is_seeded(self) -> bool:
        return private.find(private.CONTEXT, "global_seed")() is not None

    def look_at(self, session: FitSession, model: Any) -> None:
        import tensorflow as tf

        if model._distribute_strategy is not None:
            session.obstacle("training under a tf.distribute strategy")
        devices = {device.device_type for device in tf.config.list_logical_devices()}
        determinism = private.find(private.DETERMINISM, "is_op_determinism_enabled")()
        if devices != {"CPU"} and not determinism:
            session.doubt("operations on a GPU may not be deterministic")

    def source(self, session: FitSession, number: int) -> TensorFlowData:
        return TensorFlowData(session, number)

    def settle(self, model: Any) -> None:
        """They always do."""

    # -- variables

    def plain(self, variable: Any) -> Any:
        import keras

        return variable.value if isinstance(variable, keras.Variable) else variable

    def others(self, model: Any) -> list[Any]:
        return []  # those of its graphs are noted when they are traced

    def key(self, variable: Any) -> Any:
        return variable.ref()

    def described(self, variable: Any) -> tuple[str, Any, tuple[int, ...]]:
        import numpy as np

        return variable.name, np.dtype(variable.dtype.as_numpy_dtype), tuple(variable.shape)

    def values(self, value: Any) -> Any:
        import numpy as np

        return np.asarray(value.numpy())

    def assign(self, variable: Any, array: Any) -> None:
        import tensorflow as tf

        variable.assign(tf.constant(array, dtype=variable.dtype))

    # -- objects that callbacks keep

    def pickled(self, value: Any) -> tuple[Any, ...] | None:
        import tensorflow as tf

        if isinstance(value, tf.data.Iterator):
            raise pickle.PicklingError("the position of an iterator is not known")
        if isinstance(value, tf.Variable):
            return ("variable", value.dtype.name, value.numpy(), value.trainable)
        if isinstance(value, tf.Tensor):
            return ("tensor", value.dtype.name, value.numpy())  # a symbolic one raises
        return None

    def unpickled(self, pid: tuple[Any, ...]) -> Any:
        import tensorflow as tf

        if pid[0] == "variable":
            return tf.Variable(pid[2], dtype=pid[1], trainable=pid[3])
        return tf.constant(pid[2], dtype=pid[1])

    def is_made_again(self, value: Any) -> bool | None:
        import tensorflow as tf

        if isinstance(value, (tf.Tensor, tf.DType, tf.TensorShape, tf.data.Iterator)):
            return False
        return True if type(value).__module__.startswith("tensorflow.") else None

    def variables_in(self, one: Any) -> list[Any]:
        import tensorflow as tf

        if isinstance(one, tf.Variable):
            return [one]
        if isinstance(one, tf.Module):
            return list(one.variables)
        return [one.state] if isinstance(one, tf.random.Generator) else []

    def is_constant(self, value: Any) -> bool:
        import tensorflow as tf

        return isinstance(value, tf.Tensor)


BACKEND = _TensorFlow()
