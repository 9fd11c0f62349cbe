/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a PMIx server knows: lists of keys with values, as PMIx takes them.
 *
 * Filled in by hand and not by the macros of PMIx's headers, because these
 * depend on the version of the library, which is the host's.
 */
#ifndef HVD_PMIX_KEYS_H
#define HVD_PMIX_KEYS_H

#include "cmd/hvd-pmix/library.h"
#include "lib/protocol/pmix_wire.h"

/* Keys for the library.  Strings and arrays in it belong to the list. */
struct keys {
    pmix_info_t *items;
    size_t count, cap;
};

/* clang-format off */
#define KEYS_INIT { NULL, 0, 0 }
/* clang-format on */

/* Lists what PMIx_server_init needs. */
void keys_of_server(const struct pmix_setup *job, struct keys *keys);
/* Lists what the ranks may ask of the job: 0, or negative with err set. */
int keys_of_job(const struct library *lib, const struct pmix_setup *job,
                struct keys *keys, struct hb_error *err);
void keys_free(struct keys *keys);

/* Counts the ranks of this host. */
uint32_t keys_local_count(const struct pmix_setup *job);

#endif
