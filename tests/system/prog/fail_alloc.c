/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets allocations fail while Python calls a function; preloaded into Python,
 * with PYTHONMALLOC=malloc.  See tests/python/test_alloc.py.
 *
 * It also counts the blocks that are in use, in all threads.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Which allocations can fail beside those of the calling thread. */
enum { ALL_THREADS = 1u << 0, NOT_LIBHVD = 1u << 1 };

/* Functions of Python, which is not linked here. */
typedef void *python_call(void *fn, void *args, void *kwargs);
typedef void *python_error(void);

void fail_alloc_call(long n, long times, unsigned flags, void *fn, void *args,
                     void **result);
long fail_alloc_failed(void);
long fail_alloc_live(void);

static atomic_bool armed;
static atomic_uint which; /* the flags above */
static _Thread_local bool armed_here;
static atomic_long seen;       /* allocations of a call */
static atomic_long first, end; /* those that fail: from first, before end */
static atomic_long failed;
static atomic_long live;

/* Calls fn(*args), in which the nth allocation and then all others until
 * `times` have failed do so.  Writes a new reference, or NULL if there was an
 * exception. */
void fail_alloc_call(long n, long times, unsigned flags, void *fn, void *args,
                     void **result)
{
    python_call *call;
    python_error *occurred, *no_memory;

    *(void **)&call = dlsym(RTLD_DEFAULT, "PyObject_Call");
    *(void **)&occurred = dlsym(RTLD_DEFAULT, "PyErr_Occurred");
    *(void **)&no_memory = dlsym(RTLD_DEFAULT, "PyErr_NoMemory");
    seen = 0;
    failed = 0;
    first = n;
    end = n + times;
    which = flags;
    armed_here = true;
    armed = true;
    *result = call(fn, args, NULL);
    armed = false;
    armed_here = false;
    if (!*result && !occurred())
        no_memory();
}

/* Returns how many allocations of the last call failed. */
long fail_alloc_failed(void)
{
    return failed;
}

/* Returns how many blocks are in use. */
long fail_alloc_live(void)
{
    return live;
}

static bool in_libhvd(const void *caller)
{
    const char *slash;
    Dl_info info;

    if (!dladdr(caller, &info) || !info.dli_fname)
        return false;
    slash = strrchr(info.dli_fname, '/');
    return slash && strncmp(slash, "/libhvd", 7) == 0;
}

static bool fails(const void *caller)
{
    long k;

    if (!atomic_load_explicit(&armed, memory_order_relaxed) ||
        (!armed_here && !(which & ALL_THREADS)) ||
        ((which & NOT_LIBHVD) && in_libhvd(caller)))
        return false;
    k = atomic_fetch_add(&seen, 1) + 1;
    if (k < first || k >= end)
        return false;
    atomic_fetch_add(&failed, 1);
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

/* Finds the function that this library stands before. */
#define NEXT(name)                 \
    static __typeof__(&name) next; \
    if (!next)                     \
        *(void **)&next = dlsym(RTLD_NEXT, #name);

void *malloc(size_t size)
{
    NEXT(malloc)
    return fails(__builtin_return_address(0)) ? NULL : counted(next(size));
}

void *calloc(size_t count, size_t size)
{
    NEXT(calloc)
    return fails(__builtin_return_address(0)) ? NULL
                                              : counted(next(count, size));
}

void *realloc(void *p, size_t size)
{
    NEXT(realloc)
    if (fails(__builtin_return_address(0)))
        return NULL;
    return p ? next(p, size) : counted(next(p, size));
}

int posix_memalign(void **out, size_t align, size_t size)
{
    int rc;

    NEXT(posix_memalign)
    if (fails(__builtin_return_address(0)))
        return ENOMEM;
    rc = next(out, align, size);
    if (rc == 0)
        counted(*out);
    return rc;
}

void free(void *p)
{
    NEXT(free)
    if (p)
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    next(p);
}
