# SPDX-License-Identifier: Apache-2.0
"""Training in graphs of a session, as TensorFlow 1 programs do it.

The ranks train on parts of one batch; the result is that of one process that
trains on all of it, computed here by NumPy.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

import hvd.tensorflow as hvd  # noqa: E402

tf.disable_eager_execution()
hvd.init()
ME, SIZE = hvd.rank(), hvd.size()
STEPS, RATE = 6, 0.1
numbers = np.random.RandomState(0)
X = numbers.rand(8 * SIZE, 3)
Y = X.sum(1, keepdims=True) * 2 + 1
MINE = slice(8 * ME, 8 * ME + 8)


def reference(step_of):
    """Returns the weights after the steps of a rule, from ones."""
    w = np.ones((3, 1))
    state = {}
    for step in range(STEPS):
        grad = 2 * X.T @ (X @ w - Y) / len(X)
        w = step_of(w, grad, state, step)
    return w


def train(optimizer, **options):
    """Returns the weights that the session has after the steps, on this rank."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float64, [None, 3])
        y = tf.placeholder(tf.float64, [None, 1])
        w = tf.get_variable("w", initializer=np.full((3, 1), 1.0 + ME))
        loss = tf.reduce_mean((tf.matmul(x, w) - y) ** 2)
        opt = hvd.DistributedOptimizer(optimizer, **options)
        step = tf.train.get_or_create_global_step()
        op = opt.minimize(loss, global_step=step)
        mean = hvd.allreduce(loss)
        hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        config = tf.ConfigProto()
        config.gpu_options.visible_device_list = str(hvd.local_rank())
        with tf.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
            for _ in range(STEPS):
                session.run([op, mean], {x: X[MINE], y: Y[MINE]})
            assert session.run(step) == STEPS
            return session.run(w)


def descent(w, grad, state, step):
    return w - RATE * grad


def descent_by_two(w, grad, state, step):
    state["sum"] = state.get("sum", 0) + grad
    if step % 2 == 0:
        return w
    return w - RATE * state.pop("sum") / 2


def adagrad(w, grad, state, step):
    state["sum"] = state.get("sum", 0.1) + grad**2
    return w - RATE * grad / np.sqrt(state["sum"])


make = tf.train.GradientDescentOptimizer
cases = [
    (descent, make(RATE), {"backward_passes_per_step": 1}),
    (descent, make(RATE), {"gradient_predivide_factor": 2.0}),
    (descent, make(RATE / SIZE), {"op": hvd.Sum, "groups": 1}),
    (
        descent_by_two,
        make(RATE),
        {"backward_passes_per_step": 2, "average_aggregated_gradients": True},
    ),
    (adagrad, tf.train.AdagradOptimizer(RATE), {}),
]
for rule, optimizer, options in cases:
    got = train(optimizer, **options)
    np.testing.assert_allclose(got, reference(rule), rtol=1e-6, err_msg=str(options))
got = train(make(RATE), compression=hvd.Compression.fp16)
np.testing.assert_allclose(got, reference(descent), rtol=1e-2)
got = train(make(RATE), op=hvd.Adasum)
assert np.isfinite(got).all()
assert hvd.allgather_object(got.tolist()) == [got.tolist()] * SIZE
hvd.shutdown()
print(f"rank {ME}: ok")
