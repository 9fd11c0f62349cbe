/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checked allocation.
 *
 * hb_malloc and friends return NULL on failure (libhvd and lib/base use these
 * and report HVD_ENOMEM); hb_x* end the process with one line and exit code 125
 * (the launcher and the agent use these).  Sizes are multiplied with overflow
 * checks; a size of zero gives a pointer that can be freed.  A test can make
 * the Nth allocation fail: see hb_alloc_fail_after.
 */
#ifndef HB_ALLOC_H
#define HB_ALLOC_H

#include <stddef.h>

void *hb_malloc(size_t size) __attribute__((malloc));
void *hb_calloc(size_t count, size_t size) __attribute__((malloc));
void *hb_realloc_array(void *p, size_t count, size_t size);
char *hb_strdup(const char *s) __attribute__((malloc));
/* Copies at most the first len bytes. */
char *hb_strndup(const char *s, size_t len) __attribute__((malloc));
void hb_free(void *p);
/* Overwrites the bytes of p, then frees it. */
void hb_free_wiped(void *p);

void *hb_xmalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *hb_xcalloc(size_t count, size_t size)
    __attribute__((malloc, returns_nonnull));
void *hb_xrealloc_array(void *p, size_t count, size_t size)
    __attribute__((returns_nonnull));
char *hb_xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
char *hb_xasprintf(const char *fmt, ...)
    __attribute__((malloc, returns_nonnull, format(printf, 1, 2)));

/* Ends the process as hb_x* do on failure; for callers of functions that report
 * it. */
void hb_die_oom(void) __attribute__((noreturn));

static inline void hb_must(int rc)
{
    if (rc < 0)
        hb_die_oom();
}

/* Lets n allocations succeed, fails the next, then succeeds again, for tests; a
 * negative n (the default) never fails.  Returns 1 if an armed failure has
 * fired since the last call. */
int hb_alloc_fail_after(long n);

#endif
