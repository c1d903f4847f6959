"""Keras 3's `fit` on TensorFlow, PyTorch or JAX, script unchanged."""
