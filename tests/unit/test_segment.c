/* SPDX-License-Identifier: Apache-2.0 */
/* lib/protocol/segment.h: the head's checks, abort, waking across
 * processes. */
#include "lib/base/hvd_status.h"
#include "lib/protocol/segment.h"
#include "tests/unit/unit.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4 };

static struct segment_head *map_head(uint32_t local_size)
{
    void *p = mmap(NULL, segment_head_bytes(local_size), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(p, MAP_FAILED);
    return p;
}

START_TEST(test_sizes)
{
    ck_assert_uint_eq(sizeof(struct segment_wake), SEGMENT_LINE_BYTES);
    ck_assert_uint_eq(
        offsetof(struct segment_head, abort_word) % SEGMENT_LINE_BYTES, 0);
    ck_assert(segment_head_bytes(1) % 4096 == 0);
    ck_assert(segment_head_bytes(SEGMENT_LOCAL_MAX) >=
              SEGMENT_LOCAL_MAX * SEGMENT_LINE_BYTES);
}
END_TEST

START_TEST(test_init_and_check)
{
    uint64_t bytes = segment_head_bytes(RANKS) + 65536;
    struct segment_head *h = map_head(RANKS);

    ck_assert_int_eq(segment_head_check(h, 2, RANKS, bytes), -HVD_EPROTO);
    segment_head_init(h, 2, RANKS, bytes);
    ck_assert_int_eq(segment_head_check(h, 2, RANKS, bytes), 0);
    ck_assert_int_eq(segment_head_check(h, 3, RANKS, bytes), -HVD_EPROTO);
    ck_assert_int_eq(segment_head_check(h, 2, RANKS - 1, bytes), -HVD_EPROTO);
    ck_assert_int_eq(segment_head_check(h, 2, RANKS, bytes + 1), -HVD_EPROTO);
    ck_assert_int_eq(segment_head_check(h, 2, 0, bytes), -HVD_EPROTO);
    ck_assert_int_eq(
        segment_head_check(h, 2, SEGMENT_LOCAL_MAX + 1, UINT64_MAX),
        -HVD_EPROTO);
    h->layout++;
    ck_assert_int_eq(segment_head_check(h, 2, RANKS, bytes), -HVD_EPROTO);
    h->layout--;
    h->segment_bytes = segment_head_bytes(RANKS) - 1;
    ck_assert_int_eq(segment_head_check(h, 2, RANKS, h->segment_bytes),
                     -HVD_EPROTO);
    munmap(h, segment_head_bytes(RANKS));
}
END_TEST

START_TEST(test_abort_first_wins)
{
    struct segment_head *h = map_head(RANKS);
    uint64_t word;
    uint32_t i;

    ck_assert_int_eq(segment_abort(h, RANKS, 0, HVD_EPEER, "rank 0 died"), 1);
    ck_assert_int_eq(segment_abort(h, RANKS, 3, HVD_EPEER, "later"), 0);
    ck_assert_int_eq(segment_miss(h, RANKS, 2), 0);
    word = atomic_load(&h->abort_word);
    ck_assert_uint_eq((uint32_t)word, 1);
    ck_assert_uint_eq((uint32_t)(word >> 32), HVD_EPEER);
    ck_assert_str_eq(h->abort_text, "rank 0 died");
    for (i = 0; i < RANKS; i++)
        ck_assert_uint_ge(atomic_load(&h->wake[i].word), 1);
    munmap(h, segment_head_bytes(RANKS));
}
END_TEST

START_TEST(test_miss_then_abort)
{
    struct segment_head *h = map_head(RANKS);
    uint64_t word;

    ck_assert_int_eq(segment_miss(h, RANKS, 2), 1);
    ck_assert_int_eq(segment_miss(h, RANKS, 1), 0);
    ck_assert_int_eq(segment_abort(h, RANKS, 0, HVD_EPEER, "rank 0 died"), 0);
    word = atomic_load(&h->abort_word);
    ck_assert_uint_eq((uint32_t)word, 2 + 1);
    ck_assert_uint_eq((uint32_t)(word >> 32), HVD_ESHUTDOWN);
    ck_assert_str_eq(h->abort_text, "");
    munmap(h, segment_head_bytes(RANKS));
}
END_TEST

/* A lost rank on another host is stored, also with a number that no local rank
 * has; a miss after it is not. */
START_TEST(test_lose_then_miss)
{
    struct segment_head *h = map_head(RANKS);
    uint64_t word;

    ck_assert_int_eq(segment_lose(h, RANKS, 99), 1);
    ck_assert_int_eq(segment_miss(h, RANKS, 1), 0);
    word = atomic_load(&h->abort_word);
    ck_assert_uint_eq((uint32_t)word, 99 + 1);
    ck_assert_uint_eq((uint32_t)(word >> 32), HVD_ECLOSED);
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert_uint_ge(atomic_load(&h->wake[i].word), 2);
    munmap(h, segment_head_bytes(RANKS));
}
END_TEST

START_TEST(test_abort_text_is_cut)
{
    struct segment_head *h = map_head(1);
    char text[2 * SEGMENT_TEXT_MAX];

    memset(text, 't', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_eq(segment_abort(h, 1, 70000, HVD_EPEER, text), 1);
    ck_assert_uint_eq(strlen(h->abort_text), SEGMENT_TEXT_MAX - 1);
    ck_assert_uint_eq((uint32_t)atomic_load(&h->abort_word), 70001);
    munmap(h, segment_head_bytes(1));
}
END_TEST

static void *miss_once(void *arg)
{
    return (void *)(intptr_t)segment_miss(arg, RANKS, 1);
}

START_TEST(test_abort_from_threads)
{
    struct segment_head *h = map_head(RANKS);
    pthread_t threads[8];
    intptr_t winners = 0;
    void *won;
    int i;

    for (i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, miss_once, h), 0);
    winners = segment_abort(h, RANKS, 1, HVD_EPEER, "x");
    for (i = 0; i < 8; i++) {
        pthread_join(threads[i], &won);
        winners += (intptr_t)won;
    }
    ck_assert_int_eq(winners, 1);
    munmap(h, segment_head_bytes(RANKS));
}
END_TEST

/* Sleeps on a rank's word, as the rank does, until it is not 0. */
static void sleep_on(struct segment_wake *w)
{
    while (atomic_load(&w->word) == 0) {
        atomic_store(&w->sleeping, 1);
        if (atomic_load(&w->word) == 0)
            syscall(SYS_futex, &w->word, FUTEX_WAIT, 0, NULL, NULL, 0);
        atomic_store(&w->sleeping, 0);
    }
}

static pid_t start_sleeper(struct segment_head *h, uint32_t rank)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        sleep_on(&h->wake[rank]);
        _exit(atomic_load(&h->abort_word) ? 7 : 0);
    }
    while (!atomic_load(&h->wake[rank].sleeping))
        sched_yield();
    return pid;
}

static int exit_code_of(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(test_wake_reaches_another_process)
{
    struct segment_head *h = map_head(RANKS);
    pid_t pid = start_sleeper(h, 2);

    segment_wake(h, 2);
    ck_assert_int_eq(exit_code_of(pid), 0);
    ck_assert_uint_eq(atomic_load(&h->wake[2].word), 1);
    ck_assert_uint_eq(atomic_load(&h->wake[1].word), 0);
    munmap(h, segment_head_bytes(RANKS));
}
END_TEST

/* A wake-up before the wait keeps the wait from sleeping. */
START_TEST(test_wake_before_the_wait)
{
    struct segment_head *h = map_head(RANKS);

    segment_wake(h, 0);
    sleep_on(&h->wake[0]);
    munmap(h, segment_head_bytes(RANKS));
}
END_TEST

/* A process was killed between setting the abort word and waking the ranks: the
 * next abort wakes them. */
START_TEST(test_abort_wakes_for_a_dead_one)
{
    struct segment_head *h = map_head(RANKS);
    pid_t pid = start_sleeper(h, 2);

    atomic_store(&h->abort_word, (uint64_t)HVD_ESHUTDOWN << 32 | 1);
    ck_assert_int_eq(segment_abort(h, RANKS, 1, HVD_EPEER, "died"), 0);
    ck_assert_int_eq(exit_code_of(pid), 7);
    munmap(h, segment_head_bytes(RANKS));
}
END_TEST

START_TEST(test_abort_wakes_every_rank)
{
    struct segment_head *h = map_head(RANKS);
    pid_t pids[RANKS];
    uint32_t i;

    for (i = 0; i < RANKS; i++)
        pids[i] = start_sleeper(h, i);
    ck_assert_int_eq(segment_abort(h, RANKS, 1, HVD_EPEER, "died"), 1);
    for (i = 0; i < RANKS; i++)
        ck_assert_int_eq(exit_code_of(pids[i]), 7);
    munmap(h, segment_head_bytes(RANKS));
}
END_TEST

START_TEST(test_blame)
{
    struct segment_head *h = map_head(1);
    char text[SEGMENT_TEXT_MAX], longest[2 * SEGMENT_TEXT_MAX];
    int rank = 0;

    ck_assert_uint_eq(segment_blamed(h, &rank, text), 0);
    segment_blame(h, 70000, "it sleeps", 5);
    ck_assert_uint_eq(segment_blamed(h, &rank, text), 5);
    ck_assert_int_eq(rank, 70000);
    ck_assert_str_eq(text, "it sleeps");
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    segment_blame(h, SEGMENT_NO_RANK, longest, 6);
    ck_assert_uint_eq(segment_blamed(h, &rank, text), 6);
    ck_assert_int_eq(rank, -1);
    ck_assert_uint_eq(strlen(text), SEGMENT_TEXT_MAX - 1);
    atomic_fetch_add(&h->blame_begun, 1); /* being written */
    ck_assert_uint_eq(segment_blamed(h, &rank, text), 0);
    munmap(h, segment_head_bytes(1));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("segment");
    TCase *c = tcase_create("segment");

    tcase_add_test(c, test_sizes);
    tcase_add_test(c, test_init_and_check);
    tcase_add_test(c, test_abort_first_wins);
    tcase_add_test(c, test_miss_then_abort);
    tcase_add_test(c, test_lose_then_miss);
    tcase_add_test(c, test_abort_text_is_cut);
    tcase_add_test(c, test_abort_from_threads);
    tcase_add_test(c, test_wake_reaches_another_process);
    tcase_add_test(c, test_wake_before_the_wait);
    tcase_add_test(c, test_abort_wakes_for_a_dead_one);
    tcase_add_test(c, test_abort_wakes_every_rank);
    tcase_add_test(c, test_blame);
    suite_add_tcase(s, c);
    return unit_run(s);
}
