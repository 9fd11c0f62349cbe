/* SPDX-License-Identifier: Apache-2.0 */
/* For test_check_build: a shared object that reports versions like
 * libhvd-nccl.so, libcuda.so.1 and libnccl.so.2, and has no other function. */
#define SHOWN __attribute__((visibility("default")))

extern const char hvd_nccl_build[];
int cuDriverGetVersion(int *version);
int ncclGetVersion(int *version);
const void *hvd_plugin(void);

SHOWN const char hvd_nccl_build[] = "CUDA 99.1, NCCL 2.99.3";

SHOWN int cuDriverGetVersion(int *version)
{
    *version = 99010;
    return 0;
}

SHOWN int ncclGetVersion(int *version)
{
    *version = 29903;
    return 0;
}

SHOWN const void *hvd_plugin(void)
{
    return hvd_nccl_build;
}
