/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader's cache, /etc/ld.so.cache: which file a shared library's name
 * leads to.  Nothing in it is trusted: a damaged cache has fewer libraries.
 */
#ifndef HVD_AGENT_LD_CACHE_H
#define HVD_AGENT_LD_CACHE_H

#include <stddef.h>

struct ld_cache {
    char *bytes; /* NULL: none; followed by an added 0 */
    size_t len;
};

/* Reads the cache below `root` ("" or a fixture); it is empty if there is
 * none. */
void ld_cache_read(const char *root, struct ld_cache *c);
/* Takes `bytes`, a heap block with room for one byte more than len. */
void ld_cache_set(struct ld_cache *c, char *bytes, size_t len);
void ld_cache_fini(struct ld_cache *c);

/* Returns the path of the first library of this processor for which `matches`
 * is true, called with the library's name and `name`; NULL: none.  The path is
 * borrowed from c. */
const char *ld_cache_find(const struct ld_cache *c,
                          int (*matches)(const char *library, const char *name),
                          const char *name);

#endif
