# SPDX-License-Identifier: Apache-2.0
"""Learns to read handwritten digits with TensorFlow, in a script for Horovod:

    hvdrun --horovod -np 2 python examples/python/tensorflow_digits.py

It is written as Horovod's scripts for graphs and sessions are.  It needs
TensorFlow (pip install tensorflow-cpu).
"""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

tf.compat.v1.disable_eager_execution()
hvd.init()
path = os.path.join(os.path.dirname(__file__), "..", "data", "digits.csv")
data = np.loadtxt(path, delimiter=",", dtype="float32")
images, digits = data[:, :-1] / 16, data[:, -1].astype("int32")
mine = slice(hvd.rank(), 1400 // hvd.size() * hvd.size(), hvd.size())

x = tf.compat.v1.placeholder(tf.float32, [None, 64])
y = tf.compat.v1.placeholder(tf.int32, [None])
weights = tf.Variable(tf.random.normal([64, 64], stddev=0.15))
bias = tf.Variable(tf.zeros([64]))
out_weights = tf.Variable(tf.random.normal([64, 10], stddev=0.15))
out_bias = tf.Variable(tf.zeros([10]))
logits = tf.nn.relu(x @ weights + bias) @ out_weights + out_bias
loss = tf.reduce_mean(
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
)
right = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y)
accuracy = tf.reduce_mean(tf.cast(right, tf.float32))

step = tf.compat.v1.train.get_or_create_global_step()
optimizer = tf.compat.v1.train.AdagradOptimizer(0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer)
train = optimizer.minimize(loss, global_step=step)

hooks = [
    hvd.BroadcastGlobalVariablesHook(0),
    tf.compat.v1.train.StopAtStepHook(last_step=1500 // hvd.size()),
]
rows = np.random.default_rng(hvd.rank())
# The session cannot be used after the last step: the accuracy is read before.
with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
    while not session.should_stop():
        batch = rows.integers(0, len(images[:1400][mine]), 32)
        feed = {x: images[:1400][mine][batch], y: digits[:1400][mine][batch]}
        test = {x: images[1400:], y: digits[1400:]}
        found = session.run(accuracy, feed_dict=test)
        session.run(train, feed_dict=feed)
if hvd.rank() == 0:
    print(f"accuracy {found:.3f} on {hvd.size()} ranks")
