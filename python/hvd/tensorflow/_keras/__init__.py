# SPDX-License-Identifier: Apache-2.0
"""What hvd.keras and hvd.tensorflow.keras share.

One uses the package keras, the other tf.keras, which differ if TensorFlow is
told to use its old Keras.  So everything here takes the Keras to use.
"""
