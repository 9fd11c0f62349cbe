# SPDX-License-Identifier: Apache-2.0
"""Trains a Keras model to read digits, on several ranks:

    hvdrun -np 2 python examples/python/keras_digits.py

Each rank takes every n-th image of examples/data/digits.csv.  It needs Keras and
TensorFlow (pip install tensorflow-cpu).
"""

import os

import keras
import numpy as np

import hvd.keras as hvd

hvd.init()
path = os.path.join(os.path.dirname(__file__), "..", "data", "digits.csv")
data = np.loadtxt(path, delimiter=",", dtype="float32")
images, digits = data[:, :-1] / 16, data[:, -1].astype("int32")
train, test = slice(0, 1400), slice(1400, None)
mine = slice(hvd.rank(), 1400 // hvd.size() * hvd.size(), hvd.size())

model = keras.Sequential(
    [
        keras.layers.Input((64,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ]
)
model.compile(
    optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size())),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(
    images[train][mine],
    digits[train][mine],
    batch_size=32,
    epochs=12,
    verbose=0,
    callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ],
)
loss, accuracy = model.evaluate(images[test], digits[test], verbose=0)
if hvd.rank() == 0:
    print(f"accuracy {accuracy:.3f} on {hvd.size()} ranks")
