/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps our datatypes and operations to MPI's.  Uses MPI's own operations where
 * they mean the same, else ours, around the kernels of
 * runtime/plane/kernels/reduce.h: for float16, bfloat16 and bool, for the min
 * and max of floats, where MPI does not say what a NaN gives, and for those of
 * unsigned integers, which MPICH 4.0 compares as signed.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

enum { DTYPES = HVD_BFLOAT16 + 1, OPS = HVD_BOR + 1 };

static MPI_Op made[DTYPES][OPS];
static int open;

MPI_Datatype mp_plain_type(size_t elem_bytes)
{
    return elem_bytes == 1   ? MPI_UINT8_T
           : elem_bytes == 2 ? MPI_UINT16_T
           : elem_bytes == 4 ? MPI_UINT32_T
                             : MPI_UINT64_T;
}

MPI_Datatype mp_type(enum hvd_dtype dtype)
{
    switch (dtype) {
    case HVD_INT8:
        return MPI_INT8_T;
    case HVD_INT16:
        return MPI_INT16_T;
    case HVD_INT32:
        return MPI_INT32_T;
    case HVD_INT64:
        return MPI_INT64_T;
    case HVD_FLOAT32:
        return MPI_FLOAT;
    case HVD_FLOAT64:
        return MPI_DOUBLE;
    default: /* MPI only moves it, or it is unsigned */
        return mp_plain_type(hvd_dtype_size(dtype));
    }
}

/* Computes inout[i] = in[i] op inout[i]; `in` comes from lower ranks. */
static void fold(enum hvd_dtype dtype, enum hvd_op op, void *in, void *inout,
                 const int *len)
{
    static const struct hvd__reduce_args plain = {1.0, 1.0, 1, 0};
    const void *srcs[2] = {in, inout};

    hvd__reduce_get(dtype, op)(inout, srcs, 2, (size_t)*len, &plain);
}

/* What our kernels reduce. */
/* clang-format off */
#define OURS(X)          \
    X(UINT8, MIN)        \
    X(UINT8, MAX)        \
    X(UINT16, MIN)       \
    X(UINT16, MAX)       \
    X(FLOAT16, SUM)      \
    X(FLOAT16, PRODUCT)  \
    X(FLOAT16, MIN)      \
    X(FLOAT16, MAX)      \
    X(BFLOAT16, SUM)     \
    X(BFLOAT16, PRODUCT) \
    X(BFLOAT16, MIN)     \
    X(BFLOAT16, MAX)     \
    X(FLOAT32, MIN)      \
    X(FLOAT32, MAX)      \
    X(FLOAT64, MIN)      \
    X(FLOAT64, MAX)      \
    X(BOOL, BAND)        \
    X(BOOL, BOR)
/* clang-format on */

/* One function for each, as MPI passes no context to it. */
#define FOLD(dtype, op)                                              \
    static void fold_##dtype##_##op(void *in, void *inout, int *len, \
                                    MPI_Datatype *type)              \
    {                                                                \
        (void)type;                                                  \
        fold(HVD_##dtype, HVD_##op, in, inout, len);                 \
    }
OURS(FOLD)

#define ROW(dtype, op) {HVD_##dtype, HVD_##op, fold_##dtype##_##op},
static const struct {
    enum hvd_dtype dtype;
    enum hvd_op op;
    MPI_User_function *fold;
} ours[] = {OURS(ROW)};

enum { OURS_COUNT = sizeof(ours) / sizeof(ours[0]) };

/* Returns the operation that does the same, so that fewer are needed. */
static enum hvd_op same_op(enum hvd_dtype dtype, enum hvd_op op)
{
    if (op == HVD_AVERAGE)
        return HVD_SUM;
    if (dtype != HVD_BOOL)
        return op;
    return op == HVD_SUM || op == HVD_MAX || op == HVD_BOR ? HVD_BOR : HVD_BAND;
}

static MPI_Op own_op(enum hvd_op op)
{
    switch (op) {
    case HVD_SUM:
        return MPI_SUM;
    case HVD_PRODUCT:
        return MPI_PROD;
    case HVD_MIN:
        return MPI_MIN;
    case HVD_MAX:
        return MPI_MAX;
    case HVD_BAND:
        return MPI_BAND;
    case HVD_BOR:
        return MPI_BOR;
    default:
        return MPI_OP_NULL;
    }
}

MPI_Op mp_op(enum hvd_dtype dtype, enum hvd_op op)
{
    enum hvd_op same = same_op(dtype, op);

    return made[dtype][same] != MPI_OP_NULL ? made[dtype][same] : own_op(same);
}

int mp_types_open(struct hb_error *err)
{
    if (open)
        return 0;
    for (int d = 0; d < DTYPES; d++)
        for (int o = 0; o < OPS; o++)
            made[d][o] = MPI_OP_NULL;
    open = 1;
    for (int i = 0; i < OURS_COUNT; i++) {
        int rc =
            MPI_Op_create(ours[i].fold, 1, &made[ours[i].dtype][ours[i].op]);

        if (rc != MPI_SUCCESS)
            return mp_error_own(err, rc, "MPI_Op_create");
    }
    return 0;
}

void mp_types_close(void)
{
    for (int i = 0; open && i < OURS_COUNT; i++)
        if (made[ours[i].dtype][ours[i].op] != MPI_OP_NULL)
            MPI_Op_free(&made[ours[i].dtype][ours[i].op]);
    open = 0;
}
