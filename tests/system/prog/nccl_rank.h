/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of the tests of collectives in device memory (nccl.c): buffers, the
 * stream that orders them, and checks.
 */
#ifndef TESTS_PROG_NCCL_RANK_H
#define TESTS_PROG_NCCL_RANK_H

#include "runtime/hvd.h"
#include "tests/system/prog/nccl_driver.h"
#include "tests/system/prog/nccl_values.h"

/* This rank.  If `stream` is NULL, operations get no stream: their data comes
 * by the default stream, and results must be there when a call returns. */
struct rank {
    CUstream stream;
    CUstream reader; /* waits for no other stream: sees what is there now */
    char *empty;     /* what an empty array is: without a stream, a place on
                        the device has to say where it would be */
    uint64_t seed;   /* of all cases, alike on all ranks */
    uint64_t cases;
    int all[VALUES_RANKS]; /* 0, 1, ... */
};
extern struct rank rank;

void rank_open(int with_stream, uint64_t seed);
void rank_close(void);

/* check exits, unless ok, after a line with the text and hvd_error_message;
 * must does so unless status is 0. */
void check(int ok, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void must(int status, const char *what);
/* Exits unless status is the expected error and its message holds the text. */
void must_fail(int status, int expected, const char *text);

/* next_case and common return numbers that are alike on all ranks, own those of
 * one rank. */
uint64_t next_case(void);
uint64_t common(uint64_t place);
uint64_t own(int of_rank, uint64_t place);

/* Returns options with this rank's stream. */
struct hvd_options options(void);

/* Device memory filled with a pattern.  The array begins a few elements after
 * its start and ends where it ends. */
struct array {
    char *whole, *at;
    size_t before, bytes;
};
struct array array_new(size_t count, enum hvd_dtype dtype);
/* Checks that the pattern before the array is intact, and frees the array. */
void array_free(struct array *a);
/* array_write copies to the array, in the order of `stream`; array_read copies
 * from it and waits for the copy. */
void array_write(const struct array *a, const void *from);
void array_read(const struct array *a, void *to);
/* Returns whether the array still holds the pattern. */
int array_untouched(const struct array *a);

/* Inputs and results of reductions among n ranks. */
struct values values_of(enum hvd_dtype dtype, enum hvd_op op, int n);
struct array array_filled(const struct values *v, size_t count);
void array_check(const struct array *a, const struct values *v, size_t first,
                 size_t count, const char *what);

/* Each of these runs all cases of its kind. */
void cases_allreduce(void);
void cases_fused(void);
void cases_wire(void);
void cases_reducescatter(void);
void cases_broadcast(void);
void cases_allgather(void);
void cases_alltoall(void);
void cases_grouped(void);
void cases_gathered_groups(void);
void cases_sets(void);
void cases_join(void);
void cases_mixed(void);
void cases_large(void);

#endif
