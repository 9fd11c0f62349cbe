/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of hvd-bench. */
#ifndef HVD_BENCH_OPTIONS_H
#define HVD_BENCH_OPTIONS_H

#include "lib/base/error.h"
#include "lib/protocol/collectives.h"
#include "runtime/hvd.h"

#include <stddef.h>
#include <stdint.h>

enum {
    BENCH_SIZES_MAX = 128,
    BENCH_TENSORS_MAX = 1024, /* in flight, or in a group */
    BENCH_RANKS_MAX = 1024,   /* highest rank + 1 in --process-set */
    BENCH_SETS_MAX = 31       /* sets in --process-set */
};

/* BENCH_ALLREDUCE and so on. */
#define BENCH_KIND(symbol, ...) BENCH_##symbol
enum bench_what { COLLECTIVES(BENCH_KIND), BENCH_IDLE };

/* The plane that moves the data: shared memory on one host; TCP if every host
 * has one rank or HVD_FORCE_TCP is set; both otherwise; NCCL for device
 * memory. */
enum bench_plane {
    BENCH_PLANE_AUTO,
    BENCH_PLANE_SELF,
    BENCH_PLANE_SHM,
    BENCH_PLANE_TCP,
    BENCH_PLANE_HIER,
    BENCH_PLANE_MPI,
    BENCH_PLANE_NCCL
};

/* What an iteration consists of. */
enum bench_mode {
    BENCH_BLOCKING, /* one blocking call */
    BENCH_ASYNC,    /* N operations; the time of each is its share */
    BENCH_BURST,    /* N named operations, timed from first to last */
    BENCH_GROUP,    /* one grouped call of N tensors */
    BENCH_RESNET50  /* a burst of the gradients of ResNet-50 */
};

struct bench_options {
    enum bench_what what;
    size_t sizes[BENCH_SIZES_MAX]; /* bytes */
    size_t nsizes;
    enum hvd_dtype dtype;
    enum hvd_op op;
    enum hvd_wire wire;
    enum bench_plane plane; /* plane that must be in use */
    enum bench_mode mode;
    int tensors;    /* N of the mode; 1 if blocking */
    int64_t iters;  /* 0: as many as fit into measure_ms */
    int64_t warmup; /* -1: twice a block */
    int64_t measure_ms;
    int64_t idle_ms;
    int nsets;                       /* process sets; 0: the world */
    uint8_t set_of[BENCH_RANKS_MAX]; /* set of each rank: 1 .. nsets; 0: none */
    int cuda;                        /* buffers are in device memory */
    int stream, events;              /* events implies stream */
    int raw;
    int in_place, alloc, resnet50, json, check, pin;
    int help, version;
};

/* Fills o from a NULL-terminated argv.  Returns 0, or -HVD_EINVAL with one
 * line for the user. */
int bench_options_parse(struct bench_options *o, char *const *argv,
                        struct hb_error *err);

const char *bench_what_name(enum bench_what what);
const char *bench_plane_name(enum bench_plane plane);
const char *bench_wire_name(enum hvd_wire wire);
extern const char bench_help[];

#endif
