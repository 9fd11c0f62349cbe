/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the memory that hvd_alloc hands out. */
#include "lib/base/error.h"
#include "runtime/plane/shm/arena.h"
#include "tests/unit/unit.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MIB = 1 << 20, BYTES = 16 * MIB, PAGE = 4096 };

static struct hvd__arena arena = HVD__ARENA_INIT;
static unsigned char *memory;

static void open_shared(void)
{
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert(memory != MAP_FAILED);
    hvd__arena_init(&arena, memory, BYTES);
}

static void close_shared(void)
{
    hvd__arena_fini(&arena);
    munmap(memory, BYTES);
}

static int is_all(const unsigned char *p, size_t bytes, int value)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != value)
            return 0;
    return 1;
}

static unsigned char *get(size_t bytes)
{
    void *p = NULL;

    ck_assert_int_eq(hvd__arena_alloc(&arena, bytes, &p), 0);
    ck_assert_uint_eq((uintptr_t)p % PAGE, 0);
    ck_assert(is_all(p, bytes, 0));
    return p;
}

/* Blocks do not overlap, lie in the arena and are zero, also in reused
 * memory. */
START_TEST(test_blocks)
{
    unsigned char *p[16];
    size_t bytes[16];

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 16; i++) {
            bytes[i] = (size_t)(1 + (i * 7919 + round * 104729) % 700000);
            p[i] = get(bytes[i]);
            ck_assert(p[i] >= memory && p[i] + bytes[i] <= memory + BYTES);
            memset(p[i], i + 1, bytes[i]);
        }
        for (int i = 0; i < 16; i++) {
            int k = (i * 5 + round) % 16;

            ck_assert(is_all(p[k], bytes[k], k + 1));
            ck_assert_int_eq(hvd__arena_free(&arena, p[k]), 0);
        }
    }
}
END_TEST

/* Freed neighbours become one gap. */
START_TEST(test_gaps)
{
    enum { SMALL = 600 << 10 };
    unsigned char *all[BYTES / SMALL];
    int n = 0;
    void *p;

    while (hvd__arena_alloc(&arena, SMALL, &p) == 0)
        all[n++] = p;
    ck_assert_int_ge(n, BYTES / (SMALL + PAGE) - 1);
    ck_assert_int_eq(hvd__arena_free(&arena, all[5]), 0);
    ck_assert_int_eq(hvd__arena_free(&arena, all[3]), 0);
    ck_assert_int_eq(hvd__arena_alloc(&arena, 2 * SMALL, &p), -HVD_ENOMEM);
    ck_assert_int_eq(hvd__arena_free(&arena, all[4]), 0);
    ck_assert_ptr_eq(get(3 * SMALL), all[3]);
    ck_assert_int_eq(hvd__arena_alloc(&arena, SMALL, &p), -HVD_ENOMEM);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(hvd__arena_free(&arena, all[i]),
                         i == 4 || i == 5 ? -HVD_EINVAL : 0);
    ck_assert_ptr_eq(get(SMALL), memory);
}
END_TEST

/* Large blocks can have large pages; one block can fill the arena. */
START_TEST(test_large)
{
    void *p;
    unsigned char *a = get(1), *b = get(3 * MIB);

    ck_assert_uint_eq((uintptr_t)b % (2 * MIB), 0);
    ck_assert_int_eq(hvd__arena_free(&arena, a), 0);
    ck_assert_int_eq(hvd__arena_free(&arena, b), 0);
    hvd__arena_fini(&arena);
    hvd__arena_init(&arena, memory, MIB);
    a = get(MIB);
    ck_assert_int_eq(hvd__arena_alloc(&arena, 1, &p), -HVD_ENOMEM);
    ck_assert_int_eq(hvd__arena_free(&arena, a), 0);
}
END_TEST

/* A freed block's pages go back to the system. */
START_TEST(test_given_back)
{
    unsigned char *p = get(8 * PAGE);
    unsigned char resident[8];

    memset(p, 1, 8 * PAGE);
    ck_assert_int_eq(mincore(p, 8 * PAGE, resident), 0);
    ck_assert_int_eq(resident[0] & 1, 1);
    ck_assert_int_eq(hvd__arena_free(&arena, p), 0);
    ck_assert_int_eq(mincore(p, 8 * PAGE, resident), 0);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(resident[i] & 1, 0);
}
END_TEST

/* Where pages are larger than the arena's alignment, a page belongs to one
 * block at most, so that it can be given back as a whole. */
START_TEST(test_pages)
{
    enum { LARGER = 16 * PAGE };
    unsigned char *p[8];

    hvd__arena_init(&arena, memory + PAGE, BYTES - 3 * PAGE);
    arena.page = LARGER;
    for (int i = 0; i < 8; i++) {
        p[i] = get(i % 2 ? PAGE : LARGER + 1);
        ck_assert_uint_eq((uintptr_t)p[i] % LARGER, 0);
        memset(p[i], i, PAGE);
    }
    for (int i = 0; i < 8; i++) {
        ck_assert_uint_eq(arena.inside.blocks[0].bytes % LARGER, 0);
        ck_assert(is_all(p[i], PAGE, i));
        ck_assert_int_eq(hvd__arena_free(&arena, p[i]), 0);
    }
}
END_TEST

START_TEST(test_mistakes)
{
    void *p = NULL;
    unsigned char *own = get(3 * PAGE);

    ck_assert_int_eq(hvd__arena_alloc(&arena, 0, &p), -HVD_EINVAL);
    ck_assert_int_eq(hvd__arena_alloc(&arena, SIZE_MAX, &p), -HVD_ENOMEM);
    ck_assert_int_eq(hvd__arena_alloc(&arena, BYTES + 1, &p), -HVD_ENOMEM);
    ck_assert(p == NULL);
    ck_assert_int_eq(hvd__arena_free(&arena, NULL), 0);
    ck_assert_int_eq(hvd__arena_free(&arena, own + PAGE), -HVD_EINVAL);
    ck_assert_int_eq(hvd__arena_free(&arena, &p), -HVD_EINVAL);
    ck_assert_int_eq(hvd__arena_free(&arena, own), 0);
    ck_assert_int_eq(hvd__arena_free(&arena, own), -HVD_EINVAL);
}
END_TEST

/* Without an arena, memory comes from the system. */
START_TEST(test_ordinary)
{
    unsigned char *a, *b;

    hvd__arena_init(&arena, NULL, 0);
    a = get(100);
    b = get(5 * MIB);
    memset(a, 1, 100);
    memset(b, 2, 5 * MIB);
    ck_assert_int_eq(hvd__arena_free(&arena, a), 0);
    ck_assert_int_eq(hvd__arena_free(&arena, a), -HVD_EINVAL);
    hvd__arena_fini(&arena); /* also frees b */
    ck_assert_int_eq(hvd__arena_free(&arena, b), -HVD_EINVAL);
}
END_TEST

/* What hvd_sync does: blocks keep their address and contents when the segment
 * is unmapped around them, and no longer belong to it. */
START_TEST(test_detach)
{
    static const size_t sizes[] = {1, 3 * MIB, 5 * PAGE, PAGE - 1};
    unsigned char *p[4], *elsewhere, *gone, *again;
    int fds[2];

    for (int i = 0; i < 4; i++) {
        p[i] = get(sizes[i]);
        memset(p[i], i + 1, sizes[i]);
    }
    gone = p[2];
    ck_assert_int_eq(hvd__arena_free(&arena, gone), 0);
    ck_assert_int_eq(hvd__arena_detach(&arena), 0);
    ck_assert(!arena.base && arena.inside.count == 0);
    ck_assert_uint_eq(arena.apart.count, 3);
    ck_assert_int_eq(pipe(fds), 0);
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        ck_assert(is_all(p[i], sizes[i], i + 1));
        memset(p[i], i + 11, sizes[i]);
        ck_assert_int_eq(madvise(p[i], PAGE, MADV_REMOVE), -1); /* not shared */
    }
    /* Unmapping the rest, as the caller does. */
    for (unsigned char *at = memory; at < memory + BYTES; at += PAGE) {
        int kept = 0;

        for (size_t k = 0; k < arena.apart.count; k++)
            kept |= at >= arena.apart.blocks[k].at &&
                    at < arena.apart.blocks[k].at + arena.apart.blocks[k].bytes;
        if (!kept)
            ck_assert_int_eq(munmap(at, PAGE), 0);
    }
    ck_assert_int_eq(write(fds[1], gone, 1), -1); /* EFAULT */
    close(fds[0]);
    close(fds[1]);
    /* A new segment, beside which the old blocks stay. */
    elsewhere = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert(elsewhere != MAP_FAILED);
    hvd__arena_init(&arena, elsewhere, BYTES);
    again = get(MIB);
    ck_assert(again >= elsewhere && again + MIB <= elsewhere + BYTES);
    memset(again, 9, MIB);
    for (int i = 0; i < 4; i++)
        if (i != 2) {
            ck_assert(is_all(p[i], sizes[i], i + 11));
            ck_assert_int_eq(hvd__arena_free(&arena, p[i]), 0);
            ck_assert_int_eq(hvd__arena_free(&arena, p[i]), -HVD_EINVAL);
        }
    ck_assert_uint_eq(arena.apart.count, 0);
    /* Blocks are detached from the next segment, too. */
    ck_assert_int_eq(hvd__arena_detach(&arena), 0);
    ck_assert(is_all(again, MIB, 9));
    ck_assert_int_eq(hvd__arena_free(&arena, again), 0);
    munmap(elsewhere, BYTES);
}
END_TEST

/* Without a segment there is nothing to detach. */
START_TEST(test_detach_ordinary)
{
    unsigned char *p;

    hvd__arena_init(&arena, NULL, 0);
    p = get(PAGE);
    memset(p, 7, PAGE);
    ck_assert_int_eq(hvd__arena_detach(&arena), 0);
    ck_assert(is_all(p, PAGE, 7));
    ck_assert_int_eq(hvd__arena_free(&arena, p), 0);
    hvd__arena_fini(&arena);
}
END_TEST

/* A detach that fails keeps every block in exactly one list. */
static int detach_many(void *arg)
{
    void *p[40];
    int rc;

    (void)arg;
    hb_alloc_fail_after(-1);
    for (int i = 0; i < 40; i++) {
        ck_assert_int_eq(hvd__arena_alloc(&arena, PAGE, &p[i]), 0);
        memset(p[i], i, PAGE);
    }
    hb_alloc_fail_after(*(long *)arg);
    rc = hvd__arena_detach(&arena);
    *(long *)arg = hb_alloc_fail_after(-1) ? *(long *)arg + 1 : -1;
    ck_assert_uint_eq(arena.inside.count + arena.apart.count, 40);
    for (int i = 0; i < 40; i++) {
        ck_assert(is_all(p[i], PAGE, i));
        ck_assert_int_eq(hvd__arena_free(&arena, p[i]), 0);
    }
    close_shared();
    open_shared();
    return rc;
}

START_TEST(test_detach_memory)
{
    long after = 0;

    for (int rc = -1; after >= 0;) {
        rc = detach_many(&after);
        ck_assert_int_eq(rc, after >= 0 ? -HVD_ENOMEM : 0);
    }
}
END_TEST

static int alloc_many(void *arg)
{
    void *p[40];
    int n = 0, rc = 0;

    (void)arg;
    while (n < 40 && (rc = hvd__arena_alloc(&arena, 1, &p[n])) == 0)
        n++;
    while (n > 0)
        hvd__arena_free(&arena, p[--n]);
    hvd__arena_fini(&arena);
    hvd__arena_init(&arena, memory, BYTES);
    return rc;
}

START_TEST(test_memory)
{
    unit_fail_each(alloc_many, NULL);
}
END_TEST

START_TEST(test_size)
{
    struct hb_error err = HB_ERROR_INIT;
    uint64_t one = 0, four = 0, told = 0;

    unsetenv("HVD_ALLOC_BYTES");
    unsetenv("HOROVOD_ALLOC_BYTES");
    ck_assert_int_eq(hvd__arena_size(1, &one, &err), 0);
    ck_assert_int_eq(hvd__arena_size(4, &four, &err), 0);
    ck_assert_uint_eq(one % PAGE, 0);
    ck_assert(four <= one / 4 && four + PAGE > one / 4);
    setenv("HVD_ALLOC_BYTES", "10000", 1);
    ck_assert_int_eq(hvd__arena_size(4, &told, &err), 0);
    ck_assert_uint_eq(told, 8192);
    setenv("HVD_ALLOC_BYTES", "0", 1);
    ck_assert_int_eq(hvd__arena_size(4, &told, &err), 0);
    ck_assert_uint_eq(told, 0);
    setenv("HVD_ALLOC_BYTES", "8000000T", 1);
    ck_assert_int_eq(hvd__arena_size(64, &told, &err), 0);
    ck_assert(told <= ((uint64_t)1 << 43) / 64);
    setenv("HVD_ALLOC_BYTES", "much", 1);
    ck_assert_int_eq(hvd__arena_size(4, &told, &err), -HVD_EINVAL);
    ck_assert(strstr(err.text, "HVD_ALLOC_BYTES"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arena");
    TCase *shared = tcase_create("shared"), *other = tcase_create("other");

    tcase_set_timeout(shared, 120);
    tcase_add_checked_fixture(shared, open_shared, close_shared);
    tcase_add_test(shared, test_blocks);
    tcase_add_test(shared, test_gaps);
    tcase_add_test(shared, test_large);
    tcase_add_test(shared, test_given_back);
    tcase_add_test(shared, test_pages);
    tcase_add_test(shared, test_mistakes);
    tcase_add_test(shared, test_memory);
    tcase_add_test(shared, test_detach);
    tcase_add_test(shared, test_detach_memory);
    tcase_add_test(other, test_ordinary);
    tcase_add_test(other, test_detach_ordinary);
    tcase_add_test(other, test_size);
    suite_add_tcase(s, shared);
    suite_add_tcase(s, other);
    return unit_run(s);
}
