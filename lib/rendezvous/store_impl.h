/* SPDX-License-Identifier: Apache-2.0 */
/* The store's insides: values and those who wait for them (store.c), and
 * fences (fence.c). */
#ifndef HVD_RENDEZVOUS_STORE_IMPL_H
#define HVD_RENDEZVOUS_STORE_IMPL_H

#include "lib/rendezvous/store.h"

enum { STORE_BUCKETS = 4096, STORE_FENCES_MAX = 4096 };

struct entry {
    struct entry *next;
    char *scope, *key;
    char *value;
    size_t len;
    uint64_t version;
};

struct wait {
    struct wait *next;
    char *scope, *key;
    uint64_t after;
    int origin;
    uint32_t id;
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
    struct hb_buf *values; /* by place among the members */
    unsigned char *has;    /* 1: the value is there */
    struct asker *askers;
    size_t asker_count, asker_cap;
    size_t bytes; /* all of it */
    int full;     /* values were dropped: it will fail */
};

/* A rank that contributes no more to fences of `epoch` and before. */
struct absence {
    uint64_t epoch;
    size_t since; /* counts the absences */
    char *why;    /* NULL: it is here */
};

struct rdv_store {
    struct rdv_store_config config;
    struct bucket buckets[STORE_BUCKETS];
    struct fence *fences;
    struct absence *absences; /* [ranks] */
    uint64_t version;
    size_t bytes, waits, fence_count, absence_count;
};

void store_reply(struct rdv_store *s, int origin, uint32_t id, uint64_t version,
                 const void *value, size_t len);
void store_refuse(struct rdv_store *s, int origin, uint32_t id, int status,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* fence.c */
void fence_request(struct rdv_store *s, int origin,
                   const struct rdv_request *m);
void fence_cancel(struct rdv_store *s, int origin, const uint32_t *id);
void fence_rank_gone(struct rdv_store *s, int rank);
void fence_free_all(struct rdv_store *s);

#endif
