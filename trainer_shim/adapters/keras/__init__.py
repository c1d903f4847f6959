"""Keras 3's `fit` on TensorFlow, PyTorch or JAX, script unchanged.

How a backend compiles a step and keeps variables is in `on_tensorflow`, `on_torch` and `on_jax`;
the rest of a fit is handled once for all of them.
"""
