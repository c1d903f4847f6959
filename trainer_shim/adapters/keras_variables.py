"""The variables of Keras, on backends whose own variables or arrays it holds."""

from __future__ import annotations

from typing import Any


class KerasVariables:
    """They are known by Keras' own object."""

    def plain(self, variable: Any) -> Any:
        return variable

    def key(self, variable: Any) -> Any:
        return id(variable)

    def described(self, variable: Any) -> tuple[str, Any, tuple[int, ...]]:
        import ml_dtypes
        import numpy as np

        name = str(variable.dtype).rpartition(".")[2]
        dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
        return getattr(variable, "name", "a tensor"), dtype, tuple(variable.shape)

    def values(self, value: Any) -> Any:
        import keras
        import numpy as np

        plain = value.value if isinstance(value, keras.Variable) else value
        return np.array(keras.ops.convert_to_numpy(plain))
