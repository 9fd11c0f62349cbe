/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key-value space of PMI-1: what the ranks of a job have put.
 *
 * Keys and values are text without spaces and line ends, which would break the
 * lines of the protocol.  A key is set once.  What local ranks put is kept for
 * the next exchange with the other hosts as well, as records: u8 length of the
 * key, u16 length of the value, both texts.  Pure; one thread.
 */
#ifndef HVD_AGENT_WIREUP_PMI1_KVS_H
#define HVD_AGENT_WIREUP_PMI1_KVS_H

#include "lib/base/buf.h"

enum {
    PMI1_KEY_MAX = 64,          /* bytes of a key with its final 0 */
    PMI1_VALUE_MAX = 960,       /* bytes of a value, to fit a line of GET */
    PMI1_KEYS_MAX = 1 << 20,    /* of the job */
    PMI1_BYTES_MAX = 256 << 20, /* of all keys and values */
};

enum pmi1_put {
    PMI1_PUT_OK,
    PMI1_PUT_INVALID,
    PMI1_PUT_DUPLICATE,
    PMI1_PUT_FULL
};

struct pmi1_pair;

struct pmi1_kvs {
    struct pmi1_pair **buckets;
    size_t bucket_count, count, bytes;
    struct hb_buf news; /* records of what local ranks have put since the last
                           exchange */
};

void pmi1_kvs_init(struct pmi1_kvs *k);
void pmi1_kvs_fini(struct pmi1_kvs *k);

/* Sets a key for a local rank. */
enum pmi1_put pmi1_kvs_put(struct pmi1_kvs *k, const char *key,
                           const char *value);
/* Returns the value, or NULL. */
const char *pmi1_kvs_get(const struct pmi1_kvs *k, const char *key);
/* Takes the records of another host; a key that is set stays.  0 or
 * -HVD_EPROTO. */
int pmi1_kvs_merge(struct pmi1_kvs *k, const void *records, size_t len);

#endif
