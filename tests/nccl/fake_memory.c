/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double of the CUDA driver API: memory; see fake_cuda.h.
 *
 * Device memory of all devices is one anonymous file, mapped twice.  At the
 * callers' addresses only managed memory is accessible.  The double adds
 * `delta` to an address and works there; what is not allocated is inaccessible
 * there too.  A piece ends at a page boundary, so that a kernel that goes
 * beyond its end faults within the first 256 bytes, and under AddressSanitizer
 * at the first.
 */
#include "tests/nccl/fake_cuda.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, ALIGNMENT = 256, POISON = 0xa5, POISONED = 1 << 20 };

#define HEAP_BYTES ((size_t)4 << 30)

struct piece {
    struct piece *next; /* those of the heap: sorted by address */
    uintptr_t p;
    size_t bytes;
    uintptr_t pages; /* address of the first page */
    size_t span;     /* bytes of whole pages */
    enum fake_kind kind;
    int device;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece *heap_pieces, *host_pieces;
static uintptr_t heap;
static ptrdiff_t delta;

/* Defined by AddressSanitizer where the double is built with it. */
#pragma weak __asan_poison_memory_region
#pragma weak __asan_unpoison_memory_region
void __asan_poison_memory_region(void const volatile *p, size_t bytes);
void __asan_unpoison_memory_region(void const volatile *p, size_t bytes);

static void poison(uintptr_t p, size_t bytes)
{
    if (__asan_poison_memory_region)
        __asan_poison_memory_region((void *)p, bytes);
}

static void unpoison(uintptr_t p, size_t bytes)
{
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region((void *)p, bytes);
}

static void make_heap(void)
{
    int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    void *seen, *own;

    if (fd < 0 || ftruncate(fd, (off_t)HEAP_BYTES) < 0)
        fake_misuse("no memory for the double's devices");
    seen = mmap(NULL, HEAP_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    own = mmap(NULL, HEAP_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    if (seen == MAP_FAILED || own == MAP_FAILED)
        fake_misuse("no addresses for the double's devices");
    close(fd);
    heap = (uintptr_t)seen;
    delta = (char *)own - (char *)seen;
}

static int in_heap(uintptr_t p)
{
    return heap && p >= heap && p < heap + HEAP_BYTES;
}

static int of_device(enum fake_kind kind)
{
    return kind == FAKE_DEVICE || kind == FAKE_POOL || kind == FAKE_NCCL ||
           kind == FAKE_MANAGED;
}

/* The caller holds table_lock. */
static struct piece *find(uintptr_t p)
{
    struct piece *it = in_heap(p) ? heap_pieces : host_pieces;

    while (it && (p < it->p || p - it->p >= it->bytes))
        it = it->next;
    return it;
}

/* Finds an address for `span` bytes with a free page before them; returns where
 * to link the piece. */
static struct piece **place(size_t span, uintptr_t *at)
{
    struct piece **link = &heap_pieces;

    *at = heap + PAGE;
    while (*link && (*link)->pages < *at + span + PAGE) {
        *at = (*link)->pages + (*link)->span + PAGE;
        link = &(*link)->next;
    }
    return *at + span <= heap + HEAP_BYTES ? link : NULL;
}

static int map_heap_piece(struct piece *piece)
{
    size_t rounded = (piece->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct piece **link;
    void *own;

    if (!heap)
        make_heap();
    piece->span = (piece->bytes + PAGE - 1) / PAGE * PAGE;
    link = place(piece->span, &piece->pages);
    if (!link)
        return -1;
    piece->next = *link;
    *link = piece;
    piece->p = piece->pages + piece->span - rounded;
    own = (void *)(piece->pages + (uintptr_t)delta);
    if (mprotect(own, piece->span, PROT_READ | PROT_WRITE) < 0 ||
        (piece->kind == FAKE_MANAGED &&
         mprotect((void *)piece->pages, piece->span, PROT_READ | PROT_WRITE)))
        fake_misuse("no memory for the double's devices");
    memset(own, POISON, piece->span < POISONED ? piece->span : POISONED);
    poison((uintptr_t)own, piece->span);
    unpoison(piece->p + (uintptr_t)delta, piece->bytes);
    return 0;
}

static int map_host_piece(struct piece *piece)
{
    void *p;

    piece->span = (piece->bytes + PAGE - 1) / PAGE * PAGE;
    p = mmap(NULL, piece->span, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -1;
    piece->p = piece->pages = (uintptr_t)p;
    memset(p, POISON, piece->span < POISONED ? piece->span : POISONED);
    piece->next = host_pieces;
    host_pieces = piece;
    return 0;
}

CUresult fake_alloc(enum fake_kind kind, int device, size_t bytes, uintptr_t *p)
{
    struct piece *piece;
    int rc;

    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    piece = fake_memory(sizeof(*piece));
    piece->kind = kind;
    piece->device = device;
    piece->bytes = bytes;
    pthread_mutex_lock(&table_lock);
    rc = of_device(kind) ? map_heap_piece(piece) : map_host_piece(piece);
    pthread_mutex_unlock(&table_lock);
    if (rc < 0) {
        free(piece);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_count(1);
    *p = piece->p;
    return CUDA_SUCCESS;
}

/* The caller holds table_lock. */
static void unmap(struct piece *piece)
{
    struct piece **link = of_device(piece->kind) ? &heap_pieces : &host_pieces;
    char *own = (char *)piece->pages + delta;

    while (*link != piece)
        link = &(*link)->next;
    *link = piece->next;
    if (piece->kind == FAKE_PINNED)
        munmap((void *)piece->pages, piece->span);
    if (!of_device(piece->kind))
        return;
    unpoison((uintptr_t)own, piece->span);
    madvise(own, piece->span, MADV_REMOVE);
    mprotect(own, piece->span, PROT_NONE);
    mprotect((void *)piece->pages, piece->span, PROT_NONE);
}

static void release(enum fake_kind kind, uintptr_t p, const char *function)
{
    struct piece *piece;

    pthread_mutex_lock(&table_lock);
    piece = find(p);
    if (!piece || piece->p != p || piece->kind != kind)
        fake_misuse("%s: %p is not what it frees", function, (void *)p);
    unmap(piece);
    pthread_mutex_unlock(&table_lock);
    free(piece);
}

CUresult fake_release(enum fake_kind kind, uintptr_t p, const char *function)
{
    release(kind, p, function);
    fake_count(-1);
    return CUDA_SUCCESS;
}

void *fake_alias(const void *p)
{
    return in_heap((uintptr_t)p) ? (char *)(uintptr_t)p + delta
                                 : (void *)(uintptr_t)p;
}

void *fake_reach(const void *p, size_t bytes, const char *function)
{
    struct piece *piece;

    if (bytes == 0)
        return NULL;
    pthread_mutex_lock(&table_lock);
    piece = find((uintptr_t)p);
    if (!piece)
        fake_misuse("%s: %p is not memory that a device can reach", function,
                    p);
    if (bytes > piece->bytes - ((uintptr_t)p - piece->p))
        fake_misuse("%s: %zu bytes at %p go beyond the end of its %zu",
                    function, bytes, p, piece->bytes);
    pthread_mutex_unlock(&table_lock);
    return fake_alias(p);
}

int fake_is_device(const void *p, int *device)
{
    struct piece *piece;
    int is;

    pthread_mutex_lock(&table_lock);
    piece = find((uintptr_t)p);
    is = piece && of_device(piece->kind);
    if (is && device)
        *device = piece->device;
    pthread_mutex_unlock(&table_lock);
    return is;
}

/* ---- Calls ------------------------------------------------------------- */

CUresult cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
    CUresult rc = fake_enter("cuMemAlloc", FAKE_CONTEXT);
    uintptr_t at;

    if (rc == CUDA_SUCCESS)
        rc = fake_alloc(FAKE_DEVICE, fake_context()->device, bytes, &at);
    if (rc == CUDA_SUCCESS)
        *p = at;
    return rc;
}

/* Waits for all running work first, as a driver does. */
CUresult cuMemFree(CUdeviceptr p)
{
    CUresult rc = fake_enter("cuMemFree", FAKE_CONTEXT);
    int managed;

    if (rc)
        return rc;
    fake_drain(fake_context());
    pthread_mutex_lock(&table_lock);
    managed = find(p) && find(p)->kind == FAKE_MANAGED;
    pthread_mutex_unlock(&table_lock);
    return fake_release(managed ? FAKE_MANAGED : FAKE_DEVICE, p, "cuMemFree");
}

CUresult cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream s)
{
    CUresult rc = fake_enter("cuMemAllocAsync", FAKE_CONTEXT);
    uintptr_t at;

    if (rc == CUDA_SUCCESS && !fake_setting("FAKE_CUDA_POOLS", 1))
        rc = CUDA_ERROR_NOT_SUPPORTED;
    if (rc == CUDA_SUCCESS)
        rc = fake_alloc(FAKE_POOL,
                        fake_stream_device(fake_stream(s, "cuMemAllocAsync")),
                        bytes, &at);
    if (rc == CUDA_SUCCESS)
        *p = at;
    return rc;
}

static void run_release(void *arg)
{
    uintptr_t *p = arg;

    release(FAKE_POOL, *p, "cuMemFreeAsync");
    free(p);
}

/* Frees when the stream gets there: a later use of `p` faults. */
CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
    CUresult rc = fake_enter("cuMemFreeAsync", FAKE_CONTEXT);
    uintptr_t *copy;

    if (rc)
        return rc;
    copy = fake_memory(sizeof(*copy));
    *copy = p;
    if (!fake_submit(fake_stream(s, "cuMemFreeAsync"), run_release, copy)) {
        free(copy);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    fake_count(-1);
    return rc;
}

CUresult cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned flags)
{
    CUresult rc = fake_enter("cuMemAllocManaged", FAKE_CONTEXT);
    uintptr_t at;

    if (rc == CUDA_SUCCESS && flags != CU_MEM_ATTACH_GLOBAL)
        rc = CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS)
        rc = fake_alloc(FAKE_MANAGED, fake_context()->device, bytes, &at);
    if (rc == CUDA_SUCCESS)
        *p = at;
    return rc;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    CUresult rc = fake_enter("cuMemHostAlloc", FAKE_CONTEXT);
    uintptr_t at;

    (void)flags;
    if (rc == CUDA_SUCCESS)
        rc = fake_alloc(FAKE_PINNED, fake_context()->device, bytes, &at);
    if (rc == CUDA_SUCCESS)
        *p = (void *)at;
    return rc;
}

CUresult cuMemFreeHost(void *p)
{
    CUresult rc = fake_enter("cuMemFreeHost", FAKE_CONTEXT);

    if (rc)
        return rc;
    fake_drain(fake_context());
    return fake_release(FAKE_PINNED, (uintptr_t)p, "cuMemFreeHost");
}

CUresult cuMemHostRegister(void *p, size_t bytes, unsigned flags)
{
    CUresult rc = fake_enter("cuMemHostRegister", FAKE_CONTEXT);
    struct piece *piece;

    (void)flags;
    if (rc)
        return rc;
    piece = fake_memory(sizeof(*piece));
    piece->p = (uintptr_t)p;
    piece->bytes = bytes;
    piece->kind = FAKE_REGISTERED;
    piece->device = fake_context()->device;
    pthread_mutex_lock(&table_lock);
    piece->next = host_pieces;
    host_pieces = piece;
    pthread_mutex_unlock(&table_lock);
    fake_count(1);
    return rc;
}

CUresult cuMemHostUnregister(void *p)
{
    CUresult rc = fake_enter("cuMemHostUnregister", FAKE_CONTEXT);

    if (rc)
        return rc;
    return fake_release(FAKE_REGISTERED, (uintptr_t)p, "cuMemHostUnregister");
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *p, unsigned flags)
{
    CUresult rc = fake_enter("cuMemHostGetDevicePointer", FAKE_CONTEXT);

    (void)flags;
    if (rc)
        return rc;
    fake_reach(p, 1, "cuMemHostGetDevicePointer");
    *device = (uintptr_t)p;
    return rc;
}

static CUresult attribute_of(const struct piece *piece,
                             CUpointer_attribute attribute, uintptr_t p,
                             void *out)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return cuDevicePrimaryCtxRetain(out, piece->device) ||
               cuDevicePrimaryCtxRelease(piece->device);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)out =
            of_device(piece->kind) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)out = p;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)out = piece->kind == FAKE_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = piece->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)out = piece->p;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = piece->bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute,
                               CUdeviceptr p)
{
    CUresult rc = fake_enter("cuPointerGetAttribute", FAKE_NO_CONTEXT);
    struct piece *piece, copy;

    if (rc)
        return rc;
    pthread_mutex_lock(&table_lock);
    piece = find(p);
    if (piece)
        copy = *piece;
    pthread_mutex_unlock(&table_lock);
    return piece ? attribute_of(&copy, attribute, p, out)
                 : CUDA_ERROR_INVALID_VALUE;
}

/* For memory unknown to CUDA all attributes are 0, without an error. */
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes,
                                void **out, CUdeviceptr p)
{
    CUresult rc = fake_enter("cuPointerGetAttributes", FAKE_NO_CONTEXT);
    struct piece *piece, copy;

    if (rc)
        return rc;
    pthread_mutex_lock(&table_lock);
    piece = find(p);
    if (piece)
        copy = *piece;
    pthread_mutex_unlock(&table_lock);
    for (unsigned i = 0; i < n && !rc; i++) {
        if (piece)
            rc = attribute_of(&copy, attributes[i], p, out[i]);
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)out[i] = -2;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT ||
                 attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
            *(void **)out[i] = NULL;
        else
            *(unsigned *)out[i] = 0;
    }
    return rc;
}
