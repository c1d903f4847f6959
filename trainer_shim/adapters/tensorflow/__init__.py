"""TensorFlow without Keras' `fit`: loops around a `tf.function`.

Scripts need no change.
"""
