/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks for tests of the NCCL plug-in: each with the built plug-in over the
 * doubles of CUDA and NCCL, and a plane on one of shared memory.
 */
#ifndef TESTS_UNIT_NCCL_WORLD_H
#define TESTS_UNIT_NCCL_WORLD_H

#include "runtime/plugins/gpu.h"
#include "tests/system/prog/nccl_cuda.h"
#include "tests/system/prog/nccl_values.h"
#include "tests/unit/shm_group.h"

enum { RANKS = 4, COUNT = 1003 };

/* What is special; all else as usual. */
struct nccl_scene {
    int n;
    int hosts;           /* 0: one */
    int uneven;          /* one more rank on the first */
    int one_device;      /* of all ranks */
    const char *old;     /* the double of an NCCL that is old */
    const char *setting; /* NAME=VALUE, of `odd`, or of all: -1 */
    int odd;
    int is_hasty; /* it does not wait for long */
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
    _Atomic int over; /* what look says */
    /* What the plane has told; waits_for 0: nothing. */
    _Atomic uint64_t launched, waits_for;
    int knows; /* culprit names rank 101, when asked for the tenth time */
    _Atomic int asks; /* of culprit */
    /* 1: when it tells of what it waits for, that becomes 2; it goes on, and
     * that becomes 0, when it is made 3. */
    _Atomic int hold;
};

extern struct nccl_rank nccl_self;

/* Where the tests are; before all else, in the parent. */
int nccl_find_build(void);
/* Runs a scene; how many ranks did not return 0. */
int nccl_failures(struct nccl_scene s);

/* In a rank; as `must` does, 0 or 1. */
int nccl_begin(struct shm_group *g, int me);
int nccl_end(void);
/* For a rank without a plane. */
void nccl_set_environment(const struct nccl_scene *s, int me);
const struct hvd__gpu *nccl_load(struct hb_error *err);

/* An operation but for its buffers and counts. */
struct hvd__op nccl_op(enum hvd__kind kind, enum hvd_dtype dtype,
                       enum hvd_op op);
/* As the engine does, on nccl_self.stream; host: of a rank that stands in. */
int nccl_carry_out(struct hvd__op *o, int host);

struct values nccl_values(enum hvd_dtype dtype, enum hvd_op op);
/* Device memory with this rank's input. */
void *nccl_filled(const struct values *v, size_t count);
int nccl_is_right(const struct values *v, const void *at, size_t first,
                  size_t count);
/* One allreduce in place: its algorithm, or NULL when it fails or is wrong. */
const char *nccl_reduce(enum hvd_dtype dtype, enum hvd_op op, size_t count,
                        double pre);
int nccl_sum_is(const char *algorithm);

#endif
