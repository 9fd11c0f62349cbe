# SPDX-License-Identifier: Apache-2.0
"""Keras on several ranks: fit() with callbacks, a tape, saved models.

The ranks train on parts of one batch; the result is that of one process that
trains on all of it, which each rank computes with the same Keras.
"""

import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import hvd.keras as hvd  # noqa: E402
import hvd.tensorflow as hvd_tf  # noqa: E402

hvd.init()
ME, SIZE = hvd.rank(), hvd.size()
numbers = np.random.RandomState(0)
X = numbers.rand(32 * SIZE, 3).astype("f")
Y = X.sum(1, keepdims=True) * 2 + 1
# Batches of 8 of a rank are parts of one batch of 8 * SIZE.
MINE = np.arange(32 * SIZE).reshape(-1, SIZE, 8)[:, ME].ravel()


def make_model(seed=0):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Input((3,)), keras.layers.Dense(4, activation="tanh")]
    return keras.Sequential(layers + [keras.layers.Dense(1)])


def fit(model, optimizer, mine=True, callbacks=(), epochs=3):
    model.compile(loss=keras.losses.MeanSquaredError(), optimizer=optimizer)
    data = (X[MINE], Y[MINE]) if mine else (X, Y)
    return model.fit(
        *data,
        batch_size=8 if mine else 8 * SIZE,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    ).history


def same_weights(model, other):
    for got, expected in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


def check_fit(make, **options):
    model, alone = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(make(), **options)
    assert isinstance(optimizer, type(make())) and int(optimizer.iterations) == 0
    history = fit(model, optimizer, callbacks=[hvd.callbacks.MetricAverageCallback()])
    expected = fit(alone, make(), mine=False)
    same_weights(model, alone)
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-3)


def check_passes(make):
    """Two passes of half the data are one of all."""
    model, alone = make_model(), make_model()
    options = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    optimizer = hvd.DistributedOptimizer(make(), **options)
    fit(model, optimizer)
    assert int(optimizer.iterations) == 12
    alone.compile(loss=keras.losses.MeanSquaredError(), optimizer=make())
    alone.fit(X, Y, batch_size=16 * SIZE, epochs=3, shuffle=False, verbose=0)
    same_weights(model, alone)


def check_callbacks():
    model = make_model(seed=ME)  # other weights on each rank
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.05))
    rates = []

    class Look(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            rates.append(float(np.asarray(self.model.optimizer.learning_rate)))

    calls = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.04, warmup_epochs=2),
        hvd.callbacks.LearningRateScheduleCallback(0.04, 0.1, start_epoch=3),
        hvd.callbacks.LearningRateScheduleCallback(0.04, lambda e: e, start_epoch=4),
        Look(),
    ]
    history = fit(model, optimizer, callbacks=calls, epochs=5)
    weights = [w.tolist() for w in model.get_weights()]
    assert hvd_tf.allgather_object(weights) == [weights] * SIZE
    assert hvd_tf.allgather_object(history["loss"]) == [history["loss"]] * SIZE
    done = (np.arange(8) + 1) / 8
    rise = 0.04 * (1 + done * (SIZE - 1)) / SIZE
    expected = list(rise) + [0.04] * 8 + [0.16] * 4
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def check_saved():
    with tempfile.TemporaryDirectory() as folder:
        model = make_model()
        fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
        path = os.path.join(folder, "model.keras")
        model.save(path)
        plain = keras.models.load_model(path)
        assert type(plain.optimizer) is keras.optimizers.SGD
        loaded = hvd.load_model(path)
        assert isinstance(loaded.optimizer, keras.optimizers.SGD)
        assert int(loaded.optimizer.iterations) == 12
        for again in (model, loaded):
            again.fit(X[MINE], Y[MINE], batch_size=8, shuffle=False, verbose=0)
        same_weights(loaded, model)


def check_tape():
    model, alone = make_model(), make_model()

    def train(model, x, y, wrap):
        optimizer = keras.optimizers.SGD(0.1)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            variables = model.trainable_variables
            grads = wrap(tape).gradient(loss, variables)
            optimizer.apply_gradients(zip(grads, variables))

        for _ in range(5):
            step()

    train(model, X[MINE], Y[MINE], hvd_tf.DistributedGradientTape)
    train(alone, X, Y, lambda tape: tape)
    same_weights(model, alone)


def check_batch_norm():
    together = keras.layers.BatchNormalization()
    part = hvd_tf.SyncBatchNormalization()
    x = tf.constant(X[: 5 * SIZE])
    mine = slice(5 * ME, 5 * ME + 5)
    expected = together(x, training=True)[mine]
    np.testing.assert_allclose(part(x[mine], training=True), expected, atol=1e-5)
    expected = together.moving_variance
    np.testing.assert_allclose(part.moving_variance, expected, rtol=1e-5)


def check_state():
    model = make_model(seed=ME)
    state = hvd.elastic.KerasState(model, keras.optimizers.SGD(), batch=ME)
    state.sync()
    same_weights(model, make_model(seed=0))
    assert state.batch == 0
    state.batch = 5
    model.set_weights(make_model(seed=9).get_weights())
    state.restore()
    same_weights(model, make_model(seed=0))
    assert state.batch == 0
    assert hvd.elastic.run(lambda state, more: state.batch + more)(state, 2) == 2


def check_errors():
    distributed = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    for wrong in (
        lambda: hvd.DistributedOptimizer(distributed),
        lambda: hvd.DistributedOptimizer("sgd"),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd_tf.Min),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=-1),
        lambda: hvd.DistributedOptimizer(
            keras.optimizers.SGD(), backward_passes_per_step=0
        ),
        lambda: hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=3),
        lambda: hvd.callbacks.LearningRateScheduleCallback(None, 1),
    ):
        try:
            wrong()
        except ValueError:
            continue
        raise AssertionError("no ValueError")


def sgd():
    return keras.optimizers.SGD(0.1)


check_fit(sgd)
check_fit(lambda: keras.optimizers.Adam(0.02), groups=2)
if keras.__version__ < "3":
    check_fit(lambda: keras.optimizers.legacy.SGD(0.1))
check_passes(sgd)
check_callbacks()
check_saved()
check_tape()
check_batch_norm()
check_state()
check_errors()
hvd.shutdown()
print(f"rank {ME}: ok")
