/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of the shared segment; see segment.h.  Linked into libhvd: libc and
 * the futex system call only.
 *
 * The futexes are shared ones: waiter and waker are different processes, which
 * FUTEX_PRIVATE_FLAG does not support.
 */
#include "lib/protocol/segment.h"

#include "lib/base/hvd_status.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(offsetof(struct segment_head, wake) % SEGMENT_LINE_BYTES == 0,
               "each rank's futex has lines of its own");
_Static_assert(sizeof(_Atomic uint32_t) == 4, "a futex is 32 bits");

void segment_head_init(struct segment_head *h, uint32_t epoch,
                       uint32_t local_size, uint64_t segment_bytes)
{
    h->layout = SEGMENT_LAYOUT;
    h->epoch = epoch;
    h->local_size = local_size;
    h->segment_bytes = segment_bytes;
    h->magic = SEGMENT_MAGIC;
}

int segment_head_check(const struct segment_head *h, uint32_t epoch,
                       uint32_t local_size, uint64_t segment_bytes)
{
    if (local_size < 1 || local_size > SEGMENT_LOCAL_MAX ||
        segment_bytes < segment_head_bytes(local_size))
        return -HVD_EPROTO;
    if (h->magic != SEGMENT_MAGIC || h->layout != SEGMENT_LAYOUT)
        return -HVD_EPROTO;
    if (h->epoch != epoch || h->local_size != local_size ||
        h->segment_bytes != segment_bytes)
        return -HVD_EPROTO;
    return 0;
}

/* Sets the abort word, unless it is set, and wakes the sleepers in any case:
 * the process that set it may have been killed before it could. */
static int set_abort_word(struct segment_head *h, uint32_t local_size,
                          uint32_t rank, int status)
{
    uint64_t word = (uint64_t)(uint32_t)status << 32 | (uint32_t)(rank + 1);
    uint64_t unset = 0;
    int won = atomic_compare_exchange_strong(&h->abort_word, &unset, word);

    for (uint32_t i = 0; i < local_size; i++)
        segment_wake(h, i);
    return won;
}

int segment_abort(struct segment_head *h, uint32_t local_size,
                  uint32_t culprit_rank, int status, const char *text)
{
    size_t len = strnlen(text, SEGMENT_TEXT_MAX - 1);

    /* The text is not read before the word is set, and the agent writes it at
     * most once before that: setting the word ends the writing. */
    if (atomic_load(&h->abort_word) == 0) {
        memcpy(h->abort_text, text, len);
        h->abort_text[len] = '\0';
    }
    return set_abort_word(h, local_size, culprit_rank, status);
}

int segment_miss(struct segment_head *h, uint32_t local_size, uint32_t rank)
{
    return set_abort_word(h, local_size, rank, HVD_ESHUTDOWN);
}

int segment_lose(struct segment_head *h, uint32_t local_size, uint32_t rank)
{
    return set_abort_word(h, local_size, rank, HVD_ECLOSED);
}

void segment_blame(struct segment_head *h, uint32_t rank, const char *text,
                   uint64_t now_ns)
{
    uint64_t words[SEGMENT_TEXT_MAX / 8] = {0}, n = h->blame_done + 1;

    memcpy(words, text, strnlen(text, SEGMENT_TEXT_MAX - 1));
    status_put(&h->blame_begun, n);
    status_put(&h->blame_ns, now_ns);
    status_put(&h->blame_rank, rank);
    for (size_t i = 0; i < SEGMENT_TEXT_MAX / 8; i++)
        status_put(&h->blame_text[i], words[i]);
    status_put(&h->blame_done, n);
}

/* Loads a word with acquire, which pairs with status_put's release. */
static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

uint64_t segment_blamed(const struct segment_head *h, int *rank,
                        char text[SEGMENT_TEXT_MAX])
{
    uint64_t words[SEGMENT_TEXT_MAX / 8];
    uint64_t n = get(&h->blame_done), when_ns = get(&h->blame_ns);

    *rank = (int)(uint32_t)get(&h->blame_rank);
    for (size_t i = 0; i < SEGMENT_TEXT_MAX / 8; i++)
        words[i] = get(&h->blame_text[i]);
    memcpy(text, words, SEGMENT_TEXT_MAX);
    text[SEGMENT_TEXT_MAX - 1] = '\0';
    return get(&h->blame_begun) == n ? when_ns : 0;
}

void segment_wake(struct segment_head *h, uint32_t local_rank)
{
    struct segment_wake *w = &h->wake[local_rank];

    /* Both seq_cst, against the sleeper's store of `sleeping` and load of
     * `word`: either it sees the new word or we see it asleep. */
    atomic_fetch_add(&w->word, 1);
    if (atomic_load(&w->sleeping))
        syscall(SYS_futex, &w->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
