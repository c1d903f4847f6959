"""TensorFlow without Keras' `fit`: loops around a `tf.function`, and TensorFlow 1 sessions.

Scripts need no change.
"""
