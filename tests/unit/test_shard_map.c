/* SPDX-License-Identifier: Apache-2.0 */
/* Keepers of shards, what is left of them, and how they are dealt out
 * (runtime/core/api/shard_map.c). */
#include "runtime/core/api/shard_map.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 64 };

static int host[MANY], keeper[MANY], scratch[2 * MANY];
static unsigned char leaves[MANY];

/* Takes the places of ranks, a letter each for the host; capital: it leaves.
 * Chooses keepers; returns how many ranks there are. */
static int choose(const char *place)
{
    int n = (int)strlen(place);

    for (int r = 0; r < n; r++) {
        host[r] = r;
        leaves[r] = place[r] >= 'A' && place[r] <= 'Z';
        for (int k = r - 1; k >= 0; k--)
            if ((place[k] | 32) == (place[r] | 32))
                host[r] = k;
    }
    hvd__shard_keepers(host, leaves, n, keeper, scratch);
    return n;
}

/* Returns the most shards that a rank keeps. */
static int most_kept(int n)
{
    int most = 0;

    for (int r = 0; r < n; r++) {
        int kept = 0;

        for (int k = 0; k < n; k++)
            kept += keeper[k] == r;
        if (kept > most)
            most = kept;
    }
    return most;
}

/* ---- Keepers ------------------------------------------------------------- */

static const struct {
    const char *place;
    int most; /* shards that a rank keeps */
} places[] = {
    {"aa", 1},       {"aaa", 1},       {"aaaa", 1},    {"aaaaa", 1},
    {"ab", 1},       {"aabb", 1},      {"abab", 1},    {"abc", 1},
    {"aabbcc", 1},   {"abcd", 1},      {"abcde", 1},   {"aabbccddee", 1},
    {"aab", 2},      {"abb", 2},       {"aaaab", 4},   {"abbbb", 4},
    {"baaaa", 4},    {"abaaab", 2},    {"aabc", 1},    {"aabbc", 1},
    {"aaabbcc", 1},  {"aaabc", 2},     {"cabaaad", 2}, {"abcabcabc", 1},
    {"aaaabbcd", 1}, {"aaaaabbcd", 2},
};

/* Another rank, on another host if there is one, and none keeps too much. */
START_TEST(test_keepers)
{
    const char *place = places[_i].place;
    int n = choose(place), hosts = 0;

    for (int r = 0; r < n; r++)
        hosts += host[r] == r;
    for (int r = 0; r < n; r++) {
        ck_assert(keeper[r] >= 0 && keeper[r] < n && keeper[r] != r);
        ck_assert_msg(hosts == 1 || host[keeper[r]] != host[r],
                      "%s: rank %d's is %d", place, r, keeper[r]);
    }
    ck_assert_msg(most_kept(n) == places[_i].most, "%s: %d", place,
                  most_kept(n));
}
END_TEST

START_TEST(test_alone)
{
    choose("a");
    ck_assert_int_eq(keeper[0], 0);
    choose("A");
    ck_assert_int_eq(keeper[0], 0);
}
END_TEST

/* Two hosts, or two ranks of one, keep each other's; the last three do so in a
 * circle. */
START_TEST(test_pairs)
{
    int n = choose("aabbccdd");

    for (int r = 0; r < n; r++)
        ck_assert_int_eq(keeper[keeper[r]], r);
    n = choose("aaaa");
    for (int r = 0; r < n; r++)
        ck_assert_int_eq(keeper[r], r ^ 1);
    choose("abcde");
    ck_assert(keeper[0] == 1 && keeper[1] == 0);
    ck_assert(keeper[2] == 3 && keeper[3] == 4 && keeper[4] == 2);
}
END_TEST

/* Ranks that leave keep nothing, and theirs are spread over those that stay. */
START_TEST(test_leavers)
{
    static const char *const left[] = {"aaBB", "AAbb",  "aAbB", "aaBBCCdd",
                                       "AaAa", "aBBBB", "aABB", "aabBBB"};
    int n = choose(left[_i]), stay = 0;

    for (int r = 0; r < n; r++) {
        stay += !leaves[r];
        ck_assert(!leaves[keeper[r]]);
    }
    for (int r = 0; r < n; r++)
        ck_assert(keeper[r] != r || stay == 1);
    ck_assert_int_le(most_kept(n), 1 + (n - stay + stay - 1) / stay + 1);
}
END_TEST

/* Where all leave, all keep as before. */
START_TEST(test_all_leave)
{
    int n = choose("AABB");

    for (int r = 0; r < n; r++)
        ck_assert(host[keeper[r]] != host[r]);
}
END_TEST

/* Any placement: the rules hold. */
START_TEST(test_any_place)
{
    char place[MANY + 1];

    srand(7);
    for (int round = 0; round < 20000; round++) {
        int n = 2 + rand() % 20, hosts = 1 + rand() % 6, counts[6] = {0};
        int most = 0, used = 0;

        for (int r = 0; r < n; r++) {
            int h = rand() % hosts;

            place[r] = (char)('a' + h);
            used += counts[h]++ == 0;
            most = counts[h] > most ? counts[h] : most;
        }
        place[n] = '\0';
        choose(place);
        for (int r = 0; r < n; r++) {
            ck_assert(keeper[r] >= 0 && keeper[r] < n && keeper[r] != r);
            ck_assert_msg(used == 1 || host[keeper[r]] != host[r], "%s", place);
        }
        if (used == 1 || 2 * most <= n)
            ck_assert_msg(most_kept(n) == 1, "%s", place);
        else
            ck_assert_int_eq(most_kept(n), (most + n - most - 1) / (n - most));
    }
}
END_TEST

/* ---- What is left -------------------------------------------------------- */

/* Makes the card of a rank that has slots of these numbers. */
static struct hvd__shard_card card(uint64_t clean, uint64_t dirty,
                                   uint64_t confirmed, uint32_t rank,
                                   uint32_t size)
{
    return (struct hvd__shard_card){.seq = {clean, dirty},
                                    .confirmed = confirmed,
                                    .last = dirty > clean ? dirty : clean,
                                    .rank = {rank, rank},
                                    .size = {size, size}};
}

/* A death while the copies of 5 are made: none knows that all have it, so all
 * return to 4; if one does, all have 5 whole. */
START_TEST(test_newest)
{
    struct hvd__shard_card c[] = {card(4, 0, 4, 0, 3), card(4, 5, 4, 1, 3),
                                  card(0, 0, 0, 0, 0)};

    ck_assert_uint_eq(hvd__shard_newest(c, 3), 4);
    ck_assert_int_eq(hvd__shard_source(c, 3, 4), 0);
    ck_assert_int_eq(hvd__shard_source(c, 3, 5), 1);
    ck_assert_int_eq(hvd__shard_source(c, 3, 6), -1);
    ck_assert_int_eq(hvd__shard_slot_of(&c[1], 5), 1);
    ck_assert_int_eq(hvd__shard_slot_of(&c[2], 0), -1);
    c[0] = card(4, 5, 4, 0, 3);
    c[1].confirmed = 5;
    ck_assert_uint_eq(hvd__shard_newest(c, 3), 5);
    ck_assert_uint_eq(hvd__shard_newest(c + 2, 1), 0);
}
END_TEST

/* Of six ranks on three hosts in a circle, these have survived: their owner has
 * a shard, or else its keeper. */
START_TEST(test_holders)
{
    struct hvd__shard_card c[7];
    int holder[6], at[6];

    choose("aabbcc"); /* 0->2->4->0, 1->3->5->1 */
    ck_assert(keeper[0] == 2 && keeper[2] == 4 && keeper[4] == 0);
    for (uint32_t left = 1; left < 64; left++) {
        int n = 0;

        for (uint32_t r = 0; r < 6; r++)
            if (left >> r & 1)
                c[n++] = card(8, 9, 9, r, 6);
        c[n] = card(0, 0, 0, 0, 0); /* one that has just come */
        hvd__shard_holders(c, n + 1, 9, keeper, 6, holder, at);
        for (int r = 0; r < 6; r++) {
            uint32_t who = left >> r & 1 ? (uint32_t)r : (uint32_t)keeper[r];

            ck_assert_int_eq(at[r] >= 0, left >> r & 1);
            if (left >> who & 1)
                ck_assert_uint_eq(c[holder[r]].rank[0], who);
            else
                ck_assert_int_eq(holder[r], -1);
        }
    }
}
END_TEST

/* A rank whose slots are of other numbers, or of a larger world, has nothing.
 */
START_TEST(test_strangers)
{
    struct hvd__shard_card c[] = {card(3, 4, 4, 0, 2), card(3, 0, 3, 1, 2),
                                  card(4, 0, 4, 7, 9)};
    int two[] = {1, 0}, holder[2], at[2];

    hvd__shard_holders(c, 3, 4, two, 2, holder, at);
    ck_assert(holder[0] == 0 && holder[1] == 0 && at[1] == -1);
    hvd__shard_holders(c + 1, 2, 4, two, 2, holder, at);
    ck_assert(holder[0] == -1 && holder[1] == -1);
}
END_TEST

/* ---- Dealing out --------------------------------------------------------- */

/* Deals random shards out, and compares the concatenated bytes. */
START_TEST(test_deal)
{
    enum { BYTES = 200 };
    struct hvd__shard_piece pieces[2 * 8];
    unsigned char old[BYTES], new[BYTES];

    srand(3);
    for (int round = 0; round < 5000; round++) {
        uint64_t before[16] = {0}, after[16] = {0}, total;
        uint64_t old_at[8], new_at[8], at;
        int old_n = 1 + rand() % 8, new_n = 1 + rand() % 8;
        int bytes = rand() % BYTES;
        size_t count, sum = 0;

        for (int i = 0; i < bytes; i++) {
            old[i] = (unsigned char)rand();
            before[2 * (rand() % old_n)]++;
            after[2 * (rand() % new_n)]++;
        }
        at = 0;
        for (int i = 0; i < old_n; at += before[2 * i++])
            old_at[i] = at;
        at = 0;
        for (int i = 0; i < new_n; at += after[2 * i++])
            new_at[i] = at;
        ck_assert(hvd__shard_total(before, (size_t)old_n, 2, &total) &&
                  total == (uint64_t)bytes);
        count = hvd__shard_deal(before, old_n, after, new_n, 2, pieces);
        ck_assert_uint_lt(count, (size_t)(old_n + new_n));
        for (size_t i = 0; i < count; i++) {
            const struct hvd__shard_piece *p = &pieces[i];

            ck_assert(p->from_at + p->bytes <= before[2 * p->from]);
            ck_assert(p->to_at + p->bytes <= after[2 * p->to]);
            memcpy(new + new_at[p->to] + p->to_at,
                   old + old_at[p->from] + p->from_at, p->bytes);
            sum += p->bytes;
        }
        ck_assert_uint_eq(sum, (size_t)bytes);
        ck_assert(memcmp(old, new, sum) == 0);
    }
}
END_TEST

START_TEST(test_total)
{
    const uint64_t bytes[] = {SIZE_MAX - 1, 7, 1, 8, 1};
    uint64_t total = 5;

    ck_assert(hvd__shard_total(bytes, 2, 2, &total) && total == SIZE_MAX);
    ck_assert(!hvd__shard_total(bytes, 3, 2, &total) && total == SIZE_MAX);
    ck_assert(hvd__shard_total(bytes, 0, 2, &total) && total == 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shard_map");
    TCase *tc = tcase_create("shard_map");

    tcase_add_loop_test(tc, test_keepers, 0,
                        (int)(sizeof(places) / sizeof(places[0])));
    tcase_add_test(tc, test_alone);
    tcase_add_test(tc, test_pairs);
    tcase_add_loop_test(tc, test_leavers, 0, 8);
    tcase_add_test(tc, test_all_leave);
    tcase_add_test(tc, test_any_place);
    tcase_add_test(tc, test_newest);
    tcase_add_test(tc, test_holders);
    tcase_add_test(tc, test_strangers);
    tcase_add_test(tc, test_deal);
    tcase_add_test(tc, test_total);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
