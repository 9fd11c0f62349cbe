/* SPDX-License-Identifier: Apache-2.0 */
/* The store's internals: values and waits (store.c), and fences (fence.c). */
#ifndef HVD_RENDEZVOUS_STORE_IMPL_H
#define HVD_RENDEZVOUS_STORE_IMPL_H

#include "lib/rendezvous/store.h"

enum { STORE_BUCKETS_FIRST = 64, STORE_FENCES_MAX = 4096 };

struct entry {
    struct entry *next;
    char *scope, *key; /* in names */
    char *value;
    size_t len;
    uint64_t version;
    char names[];
};

struct wait {
    struct wait *next;
    char *scope, *key; /* in names */
    uint64_t after;
    int origin;
    uint32_t id;
    char names[];
};

struct bucket {
    struct entry *entries;
    struct wait *waits; /* in order of arrival */
};

struct asker {
    int origin;
    uint32_t id;
};

struct fence {
    struct fence *next;
    char *scope;
    uint32_t *members; /* NULL: all ranks */
    uint64_t epoch;    /* 0: none */
    uint32_t count, arrived;
    struct hb_buf *values; /* by index of the member */
    unsigned char *has;    /* 1: the value is there */
    struct asker *askers;
    size_t asker_count, asker_cap;
    size_t bytes; /* of the whole fence */
    int full;     /* a value did not fit: the fence will fail */
};

/* Says that a rank contributes to no fence of `epoch` or before. */
struct absence {
    uint64_t epoch;
    size_t since; /* order of the absences */
    char *why;    /* NULL: not absent */
};

struct rdv_store {
    struct rdv_store_config config;
    /* [bucket_count], doubled when it fills up */
    struct bucket *buckets;
    size_t bucket_count, entry_count;
    /* random, so that nobody can fill one bucket on purpose */
    unsigned char seed[16];
    struct fence *fences;
    struct absence *absences; /* [ranks] */
    uint64_t version;
    size_t bytes, waits, fence_count, absence_count;
};

void store_reply(struct rdv_store *s, int origin, uint32_t id, uint64_t version,
                 const void *value, size_t len);
void store_refuse(struct rdv_store *s, int origin, uint32_t id, int status,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* ---- fence.c ---- */
void fence_request(struct rdv_store *s, int origin,
                   const struct rdv_request *m);
void fence_cancel(struct rdv_store *s, int origin, const uint32_t *id);
void fence_rank_gone(struct rdv_store *s, int rank);
void fence_free_all(struct rdv_store *s);

#endif
