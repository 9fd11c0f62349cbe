# SPDX-License-Identifier: Apache-2.0
"""Operations of hvd.tensorflow against formulas, on any number of ranks.

Eagerly, in tf.functions and in graphs of a session.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import hvd.tensorflow as hvd  # noqa: E402

hvd.init()
ME, SIZE = hvd.rank(), hvd.size()
TYPES = "uint8 int8 int32 int64 float16 bfloat16 float32 float64".split()


def value(dtype, shape=(2, 3), rank=None):
    rank = ME if rank is None else rank
    count = int(np.prod(shape))
    numbers = np.arange(count, dtype=np.float64).reshape(shape) + rank
    return tf.cast(tf.constant(numbers), dtype)


def total(dtype, shape=(2, 3)):
    return sum(np.asarray(value("float64", shape, r)) for r in range(SIZE))


def same(got, expected):
    got = np.asarray(tf.cast(got, tf.float64))
    np.testing.assert_allclose(got, np.asarray(expected, np.float64), rtol=1e-6)


def check_reductions(call):
    for dtype in TYPES:
        x = value(dtype)
        same(call(lambda x: hvd.allreduce(x, op=hvd.Sum), x), total(dtype))
        most = value("float64", rank=SIZE - 1)
        same(call(lambda x: hvd.allreduce(x, op=hvd.Max), x), most)
        rows = total(dtype, (2 * SIZE + 1, 2))
        first = 0 if ME == 0 else 2 * ME + 1
        mine = rows[first : first + (3 if ME == 0 else 2)]
        y = value(dtype, (2 * SIZE + 1, 2))
        same(call(lambda x: hvd.reducescatter(x, op=hvd.Sum), y), mine)
    x = value("float32")
    same(call(lambda x: hvd.allreduce(x), x), total("float32") / SIZE)
    same(
        call(
            lambda x: hvd.allreduce(
                x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0
            ),
            x,
        ),
        total("float32") * 2,
    )
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        got = call(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=compression), x)
        assert got.dtype == tf.float32
        same(got, total("float32"))


def check_copies(call):
    for dtype in TYPES + ["bool", "uint32", "complex64"]:
        x = tf.cast(value("int32", (ME + 1, 2)) % 2, dtype)
        got = call(hvd.allgather, x)
        parts = [value("int32", (r + 1, 2), r).numpy() % 2 for r in range(SIZE)]
        expected = np.concatenate(parts)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(tf.cast(got, tf.int32)), expected)
        y = tf.cast(value("int32") % 2, dtype)
        got = call(lambda x: hvd.broadcast(x, SIZE - 1), y)
        expected = value("int32", rank=SIZE - 1).numpy() % 2
        np.testing.assert_array_equal(np.asarray(tf.cast(got, tf.int32)), expected)
    splits = tf.fill([SIZE], ME + 1)
    x = tf.repeat(tf.range(SIZE), ME + 1) * 100 + ME
    out, received = call(lambda x: hvd.alltoall(x, splits), x)
    expected = [ME * 100 + r for r in range(SIZE) for _ in range(r + 1)]
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(received, np.arange(SIZE) + 1)


def check_groups(call):
    tensors = [value("float32"), value("int64", (4,)), value("float32", (0, 3))]
    outs = call(lambda *t: hvd.grouped_allreduce(t, op=hvd.Sum), *tensors)
    for out, t in zip(outs, tensors):
        assert out.dtype == t.dtype and out.shape == t.shape
        same(out, total("", tuple(t.shape)))
    outs = call(lambda *t: hvd.grouped_allgather(t), *tensors)
    assert [o.shape[0] for o in outs] == [2 * SIZE, 4 * SIZE, 0]
    slices = tf.IndexedSlices(
        value("float32", (1, 2)), tf.constant([ME]), tf.constant([SIZE, 2])
    )
    dense = call(lambda s: tf.convert_to_tensor(hvd.allreduce(s)), slices)
    rows = [value("float64", (1, 2), r).numpy()[0] for r in range(SIZE)]
    same(dense, np.array(rows) / SIZE)


def check_gradients(call):
    def gradient_of(operation, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = operation(x)
        weights = tf.cast(tf.reshape(tf.range(tf.size(y)), tf.shape(y)) + ME, x.dtype)
        return tape.gradient(y, x, weights)

    def run(operation, x):
        return call(lambda x: gradient_of(operation, x), x)

    x = value("float64", (2, 1))
    mean = np.array([[0.0], [1.0]]) + (SIZE - 1) / 2
    same(run(lambda x: hvd.allreduce(x, op=hvd.Sum), x), mean * SIZE)
    same(run(lambda x: hvd.allreduce(x, op=hvd.Average), x), mean)
    same(run(lambda x: hvd.broadcast(x, 0), x), mean * (ME == 0))
    same(run(hvd.allgather, x), mean + 2 * ME)
    y = value("float64", (SIZE, 1))
    weights = np.arange(SIZE).reshape(SIZE, 1)  # each rank: one row of weight ME
    same(run(lambda x: hvd.reducescatter(x, op=hvd.Average), y), weights)
    same(run(lambda x: hvd.reducescatter(x, op=hvd.Sum), y), weights * SIZE)
    same(run(lambda x: hvd.alltoall(x), y), [[ME + r] for r in range(SIZE)])
    ones = tf.ones([SIZE], tf.int32)  # leaves the last two rows of z unsent
    z = value("float64", (SIZE + 2, 1))
    sent = [[ME + r] for r in range(SIZE)]
    same(run(lambda x: hvd.alltoall(x, ones)[0], z), sent + [[0], [0]])


def check_errors():
    def fails(error, operation, text=""):
        try:
            operation()
        except error as err:
            assert text in str(err), str(err)
        else:
            raise AssertionError(f"no {error}")

    wrong = tf.zeros([2 + ME])
    if SIZE > 1:
        fails(tf.errors.FailedPreconditionError, lambda: hvd.allreduce(wrong), "rank")
        fails(hvd.HorovodInternalError, lambda: hvd.allreduce(wrong), "rank")
        named = tf.function(lambda x: hvd.allreduce(x))
        fails(tf.errors.UnknownError, lambda: named(wrong), "HorovodInternalError")
        uneven = tf.zeros([SIZE + 1])
        fails(tf.errors.InvalidArgumentError, lambda: hvd.alltoall(uneven))
        fails(ValueError, lambda: hvd.alltoall(uneven))
    fails(ValueError, lambda: hvd.allgather(tf.constant(1.0)), "scalar")
    fails(ValueError, lambda: hvd.allreduce(wrong, average=True, op=hvd.Sum))
    fails(RuntimeError, lambda: hvd.broadcast_global_variables(0), "graph")
    slices = tf.IndexedSlices(tf.zeros([1, 2]), tf.constant([0]))
    fails(NotImplementedError, lambda: hvd.allreduce(slices, op=hvd.Min))
    fails(ValueError, lambda: hvd.allreduce(wrong, process_set=hvd.ProcessSet([0])))
    same(hvd.allreduce(tf.ones([1]), op=hvd.Sum), [SIZE])  # goes on


def check_objects():
    assert hvd.broadcast_object({"rank": ME}, SIZE - 1) == {"rank": SIZE - 1}
    assert hvd.allgather_object("x" * ME) == ["x" * r for r in range(SIZE)]
    variables = [tf.Variable(value("float32")), tf.Variable(ME), tf.Variable(ME > 0)]
    hvd.broadcast_variables(variables, 0)
    same(variables[0], value("float32", rank=0))
    assert int(variables[1]) == 0 and not bool(variables[2])


def check_other_order():
    """Operations without dependencies, made in another order on each rank, run by a
    session with a single thread."""
    v1 = tf.compat.v1
    count = 12
    with tf.Graph().as_default():
        outs = {}
        for i in sorted(range(count), reverse=ME % 2 == 1):
            outs[i] = hvd.allreduce(tf.constant([i + 0.0]), op=hvd.Sum, name=f"n{i}")
        config = v1.ConfigProto(
            inter_op_parallelism_threads=1, intra_op_parallelism_threads=1
        )
        with v1.Session(config=config) as session:
            for _ in range(3):
                got = session.run([outs[i] for i in range(count)])
    np.testing.assert_allclose(np.ravel(got), np.arange(count) * SIZE)


def check_join():
    last = hvd.allreduce(tf.constant(ME), op=hvd.Max)
    if ME != 0 or SIZE == 1:
        # Rank 0 contributes nothing, and the others still get a sum.
        got = hvd.allreduce(tf.ones([2]), op=hvd.Sum, name="late")
        same(got, [max(SIZE - 1, 1)] * 2)
    assert 0 <= int(hvd.join()) <= int(last)


def in_function(operation, *tensors):
    return tf.function(operation)(*tensors)


def directly(operation, *tensors):
    return operation(*tensors)


for way in (directly, in_function):
    check_reductions(way)
    check_copies(way)
    check_groups(way)
    check_gradients(way)
assert int(hvd.size_op()) == SIZE and int(hvd.rank_op()) == ME
check_errors()
check_objects()
check_other_order()
check_join()
hvd.barrier()
hvd.shutdown()
print(f"rank {ME}: ok")
