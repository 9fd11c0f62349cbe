/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks for tests of the NCCL plug-in: each loads the built plug-in over the
 * doubles of CUDA and NCCL, and makes its plane on one of shared memory.
 */
#ifndef TESTS_UNIT_NCCL_WORLD_H
#define TESTS_UNIT_NCCL_WORLD_H

#include "runtime/plugins/gpu.h"
#include "tests/system/prog/nccl_driver.h"
#include "tests/system/prog/nccl_values.h"
#include "tests/unit/shm_group.h"

enum { RANKS = 4, COUNT = 1003 };

/* What is special in a test; zero fields have usual values. */
struct nccl_scene {
    int n;
    int hosts;           /* 0: one host */
    int uneven;          /* one more rank on the first host */
    int one_device;      /* shared by all ranks */
    const char *old;     /* double of an old NCCL; NULL: of a current one */
    const char *setting; /* NAME=VALUE, for rank `odd` or, if -1, all */
    int odd;
    int limit_s; /* HVD_NCCL_TIMEOUT; 0: 30 */
    int (*run)(struct shm_group *g, int me);
};

struct nccl_rank {
    const struct hvd__gpu *gpu;
    struct hvd__plane *plane;
    int n, me;
    int ranks[RANKS], host_index[RANKS];
    uint64_t seq;
    CUstream stream;
    struct hb_error err;
    _Atomic int over; /* what look reports */
    /* Last report of the plane; waits_for 0: it waits for nothing. */
    _Atomic uint64_t launched, waits_for;
    int knows; /* culprit names rank 101 when called for the tenth time */
    _Atomic int asks; /* calls of culprit */
    /* Set to 1: the next report of a wait sets 2 and blocks.  Set to 3: that
     * report goes on and sets 0. */
    _Atomic int hold;
    /* Number of reports that the device has not reached the operation. */
    _Atomic unsigned unreached;
};

extern struct nccl_rank nccl_self;

/* Finds the built plug-in and doubles; call first, in the parent. */
int nccl_find_build(void);
/* Runs a scene; returns how many ranks did not return 0. */
int nccl_failures(struct nccl_scene s);

/* In a rank: begin and end; each returns 0, or 1 like `must`. */
int nccl_begin(struct shm_group *g, int me);
int nccl_end(void);
/* Sets a rank's environment; for a rank without a plane. */
void nccl_set_environment(const struct nccl_scene *s, int me);
const struct hvd__gpu *nccl_load(struct hb_error *err);

/* Returns an operation without buffers and counts. */
struct hvd__op nccl_op(enum hvd__kind kind, enum hvd_dtype dtype,
                       enum hvd_op op);
/* Carries out `o` like the engine, on nccl_self.stream; host: as a rank that
 * has joined does, in host memory. */
int nccl_carry_out(struct hvd__op *o, int host);

/* Waits for one launch.  Returns what the wait of hvd__launch_ops returns, and
 * puts an error into nccl_self.err. */
int nccl_wait(uint64_t launch, uint64_t until_ns);
/* Makes a stream wait for one launch.  Returns and reports as nccl_wait. */
int nccl_order(uint64_t launch, CUstream stream);

struct values nccl_values(enum hvd_dtype dtype, enum hvd_op op);
/* Returns device memory with this rank's input. */
void *nccl_filled(const struct values *v, size_t count);
int nccl_is_right(const struct values *v, const void *at, size_t first,
                  size_t count);
/* Runs one allreduce in place.  Returns its algorithm, or NULL if it fails or
 * its result is wrong. */
const char *nccl_reduce(enum hvd_dtype dtype, enum hvd_op op, size_t count,
                        double pre);
int nccl_sum_is(const char *algorithm);

#endif
