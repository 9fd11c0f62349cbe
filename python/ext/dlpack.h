/* SPDX-License-Identifier: Apache-2.0 */
/* The structures of DLPack, by which array libraries lend tensors to each
 * other: https://dmlc.github.io/dlpack, the form without a version. */
#ifndef HVD_PYTHON_DLPACK_H
#define HVD_PYTHON_DLPACK_H

#include <stdint.h>

enum dl_device {
    DL_CPU = 1,
    DL_CUDA = 2,
    DL_CUDA_HOST = 3,
    DL_CUDA_MANAGED = 13
};
enum dl_code {
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_BOOL = 6,
    DL_FLOAT8_E4M3FN = 10,
    DL_FLOAT8_E5M2 = 12
};

struct dl_tensor {
    void *data;
    struct {
        int32_t type;
        int32_t id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code;
        uint8_t bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
};

/* Owned by who got it, who calls deleter once. */
struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

#define DL_NAME "dltensor"
#define DL_NAME_USED "used_dltensor"

#endif
