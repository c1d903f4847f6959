"""TensorFlow without Keras' `fit`: loops around a `tf.function`; of TensorFlow 1's
sessions, where a step ends.

Scripts need no change.
"""
