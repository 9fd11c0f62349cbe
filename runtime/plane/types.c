/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes and names of element types and reduction operators.
 */
#include "runtime/hvd.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [HVD_UINT8] = {"uint8", 1},
    [HVD_INT8] = {"int8", 1},
    [HVD_UINT16] = {"uint16", 2},
    [HVD_INT16] = {"int16", 2},
    [HVD_INT32] = {"int32", 4},
    [HVD_INT64] = {"int64", 8},
    [HVD_FLOAT16] = {"float16", 2},
    [HVD_FLOAT32] = {"float32", 4},
    [HVD_FLOAT64] = {"float64", 8},
    [HVD_BOOL] = {"bool", 1},
    [HVD_BFLOAT16] = {"bfloat16", 2},
    [HVD_FLOAT8_E4M3] = {"float8_e4m3", 1},
    [HVD_FLOAT8_E5M2] = {"float8_e5m2", 1},
};

static const char *const ops[] = {
    [HVD_AVERAGE] = "average", [HVD_SUM] = "sum",         [HVD_MIN] = "min",
    [HVD_MAX] = "max",         [HVD_PRODUCT] = "product", [HVD_BAND] = "band",
    [HVD_BOR] = "bor",         [HVD_ADASUM] = "adasum",
};

size_t hvd_dtype_size(enum hvd_dtype dtype)
{
    unsigned i = (unsigned)dtype;

    return i < sizeof(dtypes) / sizeof(dtypes[0]) ? dtypes[i].bytes : 0;
}

const char *hvd_dtype_name(enum hvd_dtype dtype)
{
    unsigned i = (unsigned)dtype;

    return i < sizeof(dtypes) / sizeof(dtypes[0]) ? dtypes[i].name : "?";
}

const char *hvd_op_name(enum hvd_op op)
{
    unsigned i = (unsigned)op;

    return i < sizeof(ops) / sizeof(ops[0]) && ops[i] ? ops[i] : "?";
}
