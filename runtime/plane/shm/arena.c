/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for hvd_alloc; see arena.h. */
#include "runtime/plane/shm/arena.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/error.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,
    LARGE_BYTES = 2 << 20, /* from here on huge pages pay; also their
                              alignment */
    /* Between blocks: an overrun does not at once hit the next block, and
     * equal offsets in several blocks do not map to the same cache sets. */
    GAP_BYTES = 4096,
    BLOCKS_MIN = 16,
    /* All arenas of a host together: the agent's segment is below 2^44. */
    ARENAS_SHIFT = 43,
};

void hvd__arena_init(struct hvd__arena *a, void *base, size_t bytes)
{
    a->base = base;
    a->bytes = base ? bytes : 0;
    a->page = (size_t)sysconf(_SC_PAGESIZE);
    a->inside = (struct hvd__arena_list){NULL, 0, 0};
}

void hvd__arena_fini(struct hvd__arena *a)
{
    for (size_t i = 0; i < a->apart.count; i++)
        munmap(a->apart.blocks[i].at, a->apart.blocks[i].bytes);
    hb_free(a->apart.blocks);
    hb_free(a->inside.blocks);
    a->apart = (struct hvd__arena_list){NULL, 0, 0};
    hvd__arena_init(a, NULL, 0);
}

static int make_room(struct hvd__arena_list *list)
{
    size_t cap = list->cap ? 2 * list->cap : BLOCKS_MIN;
    struct hvd__arena_block *blocks;

    if (list->count < list->cap)
        return 1;
    blocks = hb_realloc_array(list->blocks, cap, sizeof(*blocks));
    if (!blocks)
        return 0;
    list->blocks = blocks;
    list->cap = cap;
    return 1;
}

/* Inserts a block before the one at `index`; there is room. */
static void insert(struct hvd__arena_list *list, size_t index,
                   struct hvd__arena_block block)
{
    memmove(list->blocks + index + 1, list->blocks + index,
            (list->count - index) * sizeof(*list->blocks));
    list->blocks[index] = block;
    list->count++;
}

static void remove_at(struct hvd__arena_list *list, size_t index)
{
    list->count--;
    memmove(list->blocks + index, list->blocks + index + 1,
            (list->count - index) * sizeof(*list->blocks));
}

/* Returns the index of the block at p, or the list's length. */
static size_t find(const struct hvd__arena_list *list, const void *p)
{
    size_t i = 0;

    while (i < list->count && list->blocks[i].at != p)
        i++;
    return i;
}

static size_t align_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Finds the first gap of `bytes`: sets its index in the array and the block's
 * offset in the arena, or returns 0. */
static int find_gap(const struct hvd__arena *a, size_t bytes, size_t *index,
                    size_t *at)
{
    const struct hvd__arena_list *in = &a->inside;
    size_t align = bytes >= LARGE_BYTES ? LARGE_BYTES : a->page, from = 0;
    /* The base itself may be aligned to less. */
    size_t skew = (uintptr_t)a->base % align;

    for (size_t i = 0; i <= in->count; i++) {
        size_t start = align_up(from + skew, align) - skew;
        size_t end =
            i < in->count ? (size_t)(in->blocks[i].at - a->base) : a->bytes;

        if (start <= end && bytes <= end - start) {
            *index = i;
            *at = start;
            return 1;
        }
        if (i < in->count)
            from = end + in->blocks[i].bytes + GAP_BYTES;
    }
    return 0;
}

static unsigned char *map_block(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static int alloc_locked(struct hvd__arena *a, size_t bytes, void **p)
{
    struct hvd__arena_list *list = a->base ? &a->inside : &a->apart;
    struct hvd__arena_block block = {NULL, bytes};
    size_t index = list->count, at = 0;

    if (!make_room(list) || (a->base && !find_gap(a, bytes, &index, &at)))
        return -HVD_ENOMEM;
    block.at = a->base ? a->base + at : map_block(bytes);
    if (!block.at)
        return -HVD_ENOMEM;
    /* Some systems give huge pages only on request. */
    if (bytes >= LARGE_BYTES)
        madvise(block.at, bytes, MADV_HUGEPAGE);
    insert(list, index, block);
    *p = block.at;
    return 0;
}

int hvd__arena_alloc(struct hvd__arena *a, size_t bytes, void **p)
{
    int rc;

    if (bytes == 0)
        return -HVD_EINVAL;
    if (bytes > PTRDIFF_MAX - LARGE_BYTES)
        return -HVD_ENOMEM;
    pthread_mutex_lock(&a->lock);
    rc = alloc_locked(a, align_up(bytes, a->page), p);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

/* Returns the pages of a block in the segment to the system.  If they cannot be
 * removed from it (MADV_REMOVE fails), clears them. */
static void release(const struct hvd__arena_block *block)
{
    if (madvise(block->at, block->bytes, MADV_REMOVE) < 0)
        memset(block->at, 0, block->bytes);
}

static int free_locked(struct hvd__arena *a, const void *p)
{
    size_t in = find(&a->inside, p), out = find(&a->apart, p);

    if (in < a->inside.count) {
        release(&a->inside.blocks[in]);
        remove_at(&a->inside, in);
        return 0;
    }
    if (out == a->apart.count)
        return -HVD_EINVAL;
    munmap(a->apart.blocks[out].at, a->apart.blocks[out].bytes);
    remove_at(&a->apart, out);
    return 0;
}

int hvd__arena_free(struct hvd__arena *a, void *p)
{
    int rc;

    if (!p)
        return 0;
    pthread_mutex_lock(&a->lock);
    rc = free_locked(a, p);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

/* ---- Blocks that outlive the segment ------------------------------------- */

/* Puts ordinary memory with the block's contents in its place. */
static int replace(const struct hvd__arena_block *block)
{
    unsigned char *copy = map_block(block->bytes);

    if (!copy)
        return -HVD_ENOMEM;
    memcpy(copy, block->at, block->bytes);
    if (mremap(copy, block->bytes, block->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               block->at) != MAP_FAILED)
        return 0;
    munmap(copy, block->bytes);
    return -HVD_ENOMEM;
}

int hvd__arena_detach(struct hvd__arena *a)
{
    int rc = 0;

    pthread_mutex_lock(&a->lock);
    while (a->inside.count > 0 && rc == 0) {
        const struct hvd__arena_block block = a->inside.blocks[0];

        rc = make_room(&a->apart) ? replace(&block) : -HVD_ENOMEM;
        if (rc < 0)
            break;
        remove_at(&a->inside, 0);
        insert(&a->apart, a->apart.count, block);
    }
    if (rc == 0) {
        hb_free(a->inside.blocks);
        hvd__arena_init(a, NULL, 0);
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}

/* ---- How much --------------------------------------------------------- */

static uint64_t default_size(int local_size)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    struct rlimit limit;

    if (pages <= 0 ||
        (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY))
        return 0;
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) /
           (unsigned)local_size;
}

int hvd__arena_size(int local_size, uint64_t *bytes, struct hb_error *err)
{
    uint64_t most = ((uint64_t)1 << ARENAS_SHIFT) / (unsigned)local_size;
    uint64_t n = default_size(local_size);
    const char *text = hb_knob("ALLOC_BYTES");

    if (text && hb_parse_size(text, &n, err) < 0)
        return hb_error_context(err, "HVD_ALLOC_BYTES");
    if (n > most)
        n = most;
    *bytes = n / PAGE_BYTES * PAGE_BYTES;
    return 0;
}
