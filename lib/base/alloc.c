/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checked allocation; see alloc.h.
 *
 * The fault counter is atomic because libhvd allocates from several
 * threads.  While it is not armed it costs one relaxed load.
 */
#include "lib/base/alloc.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { EXIT_LAUNCHER = 125 };

static atomic_long fail_countdown = -1;
static atomic_int fail_fired;

int hb_alloc_fail_after(long n)
{
    int fired;

    atomic_store(&fail_countdown, -1);
    fired = atomic_exchange(&fail_fired, 0);
    atomic_store(&fail_countdown, n < 0 ? -1 : n);
    return fired;
}

static int must_fail(void)
{
    /* Relaxed: only the count matters; nothing is published with it. */
    long left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);

    while (left >= 0) {
        if (!atomic_compare_exchange_weak(&fail_countdown, &left, left - 1))
            continue;
        if (left > 0)
            return 0;
        atomic_store(&fail_fired, 1);
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

void *hb_malloc(size_t size)
{
    if (must_fail())
        return NULL;
    return malloc(size ? size : 1);
}

/* Returns the bytes of count elements, at least 1; 0 if they exceed the largest
 * possible object. */
static size_t array_bytes(size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX) {
        errno = ENOMEM;
        return 0;
    }
    return bytes ? bytes : 1;
}

void *hb_calloc(size_t count, size_t size)
{
    size_t bytes = array_bytes(count, size);

    return bytes == 0 || must_fail() ? NULL : calloc(1, bytes);
}

void *hb_realloc_array(void *p, size_t count, size_t size)
{
    size_t bytes = array_bytes(count, size);

    return bytes == 0 || must_fail() ? NULL : realloc(p, bytes);
}

char *hb_strdup(const char *s)
{
    return hb_strndup(s, strlen(s));
}

char *hb_strndup(const char *s, size_t len)
{
    size_t n = strnlen(s, len);
    char *copy = hb_malloc(n + 1);

    if (copy) {
        memcpy(copy, s, n);
        copy[n] = '\0';
    }
    return copy;
}

void hb_free(void *p)
{
    free(p);
}

void hb_free_wiped(void *p)
{
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    hb_free(p);
}

/* Writes the message without stdio, which may allocate, and exits. */
void hb_die_oom(void)
{
    static const char text[] = ": out of memory\n";
    struct iovec iov[2];

    iov[0].iov_base = program_invocation_short_name;
    iov[0].iov_len = strlen(program_invocation_short_name);
    iov[1].iov_base = (void *)(uintptr_t)text;
    iov[1].iov_len = sizeof(text) - 1;
    /* If stderr fails, the exit code is all that can be reported. */
    if (writev(STDERR_FILENO, iov, 2) < 0)
        _exit(EXIT_LAUNCHER);
    _exit(EXIT_LAUNCHER);
}

void *hb_xmalloc(size_t size)
{
    void *p = hb_malloc(size);

    if (!p)
        hb_die_oom();
    return p;
}

void *hb_xcalloc(size_t count, size_t size)
{
    void *p = hb_calloc(count, size);

    if (!p)
        hb_die_oom();
    return p;
}

void *hb_xrealloc_array(void *p, size_t count, size_t size)
{
    void *grown = hb_realloc_array(p, count, size);

    if (!grown)
        hb_die_oom();
    return grown;
}

char *hb_xstrdup(const char *s)
{
    char *copy = hb_strdup(s);

    if (!copy)
        hb_die_oom();
    return copy;
}

char *hb_xasprintf(const char *fmt, ...)
{
    va_list ap;
    char *text;
    int len;

    va_start(ap, fmt);
    len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (len < 0)
        hb_die_oom();
    text = hb_xmalloc((size_t)len + 1);
    va_start(ap, fmt);
    vsnprintf(text, (size_t)len + 1, fmt, ap);
    va_end(ap);
    return text;
}
