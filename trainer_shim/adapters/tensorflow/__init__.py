"""TensorFlow without Keras' `fit`.

Loops around a `tf.function`, and sessions of TensorFlow 1, script unchanged.
"""
