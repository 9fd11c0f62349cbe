# SPDX-License-Identifier: Apache-2.0
"""A rank dies in a training with TensorFlow, eager and in a tf.function.

    hvdrun -np 3 --min-np 2 python3 tensorflow_elastic.py

The batch is divided among the ranks, so the result does not depend on their number.
"""

import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import hvd.tensorflow as hvd  # noqa: E402
import hvd.tensorflow.elastic as elastic  # noqa: E402

hvd.init()
ME = hvd.rank()
X = np.random.RandomState(0).rand(24, 3).astype("f")
Y = X.sum(1, keepdims=True)
STEPS = 12


def make_step(model, optimizer, distributed):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        if distributed:
            tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    return step


def make_training(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def expected():
    model, optimizer = make_training(0)
    step = make_step(model, optimizer, False)
    for _ in range(STEPS):
        step(X, Y)
    return model.get_weights()


def train(graph, dies_at):
    model, optimizer = make_training(hvd.rank())
    state = elastic.TensorFlowKerasState(model, optimizer, step=0)

    @elastic.run
    def loop(state):
        step = make_step(model, optimizer, True)
        if graph:
            step = tf.function(step)
        rank, size = hvd.rank(), hvd.size()
        mine = slice(rank * 24 // size, (rank + 1) * 24 // size)
        while state.step < STEPS:
            if (ME, state.step) == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            step(X[mine], Y[mine])
            state.step += 1
            state.commit()

    loop(state)
    for got, want in zip(model.get_weights(), expected()):
        np.testing.assert_allclose(got, want, atol=1e-5)
    print(f"graph={graph}: trained on {hvd.size()} ranks", flush=True)


train(False, (0, 5))
train(True, (2, 7))
