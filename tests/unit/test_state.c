/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a state (runtime/core/api/state.c). */
#include "runtime/core/api/state.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { EPOCH = 3, MANY = 50 };

static hvd_state *state;
static unsigned char memory[2][256];

static void setup(void)
{
    ck_assert_int_eq(hvd_state_new(&state), 0);
    for (int i = 0; i < 2; i++)
        memset(memory[i], i + 1, sizeof(memory[i]));
}

static void teardown(void)
{
    hvd_state_free(state);
}

static void add(const char *name, void *p, size_t bytes, unsigned flags)
{
    ck_assert_int_eq(hvd_state_add(state, name, p, bytes, flags), 0);
}

static void refused(const char *name, void *p, size_t bytes, unsigned flags,
                    const char *text)
{
    size_t count = state->count;

    ck_assert_int_eq(hvd_state_add(state, name, p, bytes, flags), -HVD_EINVAL);
    ck_assert(strstr(hvd_error_message(), text));
    ck_assert_uint_eq(state->count, count);
}

/* Adds a block of 8 bytes to a state of its own; returns the layout of all. */
static uint64_t layout(const char *const *names, const size_t *bytes,
                       const unsigned *flags, int n)
{
    hvd_state *s;
    uint64_t found;

    ck_assert_int_eq(hvd_state_new(&s), 0);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(
            hvd_state_add(s, names[i], memory[0], bytes[i], flags[i]), 0);
    found = hvd__state_age(s, EPOCH, 0).layout;
    hvd_state_free(s);
    return found;
}

/* ---- Adding -------------------------------------------------------------- */

START_TEST(test_new_and_free)
{
    hvd_state_free(NULL);
    ck_assert_int_eq(hvd_state_new(NULL), -HVD_EINVAL);
    ck_assert(state->whole == HVD__STATE_NEW && state->count == 0 &&
              state->version == 0);
}
END_TEST

START_TEST(test_add_checks)
{
    char name[HVD_STATE_NAME_MAX + 1];

    ck_assert_int_eq(hvd_state_add(NULL, "a", memory[0], 1, 0), -HVD_EINVAL);
    refused(NULL, memory[0], 1, 0, "NULL");
    refused("a", NULL, 1, 0, "NULL");
    refused("a", memory[0], 0, 0, "bytes is 0");
    refused("a", memory[0], 1, 4, "flags");
    refused("a", memory[0], 1, HVD_STATE_SNAPSHOT | 1u << 31, "flags");
    refused("", memory[0], 1, 0, "1 to 63 bytes");
    memset(name, 'n', sizeof(name));
    name[HVD_STATE_NAME_MAX] = '\0';
    refused(name, memory[0], 1, 0, "1 to 63 bytes");
    name[HVD_STATE_NAME_MAX - 1] = '\0';
    add(name, memory[0], 1, 0);
    refused(name, memory[1], 2, 0, "was added before");
    ck_assert_str_eq(state->blocks[0].name, name);
}
END_TEST

/* Names are copied; many blocks keep what they were added with. */
START_TEST(test_many)
{
    char name[16];

    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "block %d", i);
        add(name, memory[0] + i, (size_t)i + 1, i % 2 ? HVD_STATE_SNAPSHOT : 0);
    }
    ck_assert_uint_eq(state->count, MANY);
    for (int i = 0; i < MANY; i++) {
        const struct hvd__state_block *b = &state->blocks[i];

        snprintf(name, sizeof(name), "block %d", i);
        ck_assert_str_eq(b->name, name);
        ck_assert(b->p == memory[0] + i && b->bytes == (size_t)i + 1);
        ck_assert(!b->copy == !(i % 2));
    }
}
END_TEST

static int make_one(void *arg)
{
    hvd_state *s = NULL;
    int rc = hvd_state_new(&s);
    char name[16];

    (void)arg;
    for (int i = 0; i < 10 && rc == 0; i++) {
        snprintf(name, sizeof(name), "block %d", i);
        rc = hvd_state_add(s, name, memory[0], 100, HVD_STATE_SNAPSHOT);
        ck_assert_uint_eq(s->count, (size_t)(i + (rc == 0)));
    }
    ck_assert(rc == 0 || rc == -HVD_ENOMEM);
    hvd_state_free(s);
    return rc;
}

START_TEST(test_memory)
{
    unit_fail_each(make_one, NULL);
}
END_TEST

/* ---- Copies -------------------------------------------------------------- */

START_TEST(test_restore)
{
    add("kept", memory[0], 256, HVD_STATE_SNAPSHOT);
    add("live", memory[1], 256, 0);
    ck_assert_int_eq(hvd_restore(NULL), -HVD_EINVAL);
    ck_assert_int_eq(hvd_restore(state), -HVD_EINVAL); /* never synchronised */
    memory[0][0] = memory[1][255] = 50;
    hvd__state_settle(state, 1, EPOCH, 10);
    memset(memory, 99, sizeof(memory));
    ck_assert_int_eq(hvd_restore(state), 0);
    ck_assert(memory[0][0] == 50 && memory[0][255] == 1);
    ck_assert(memory[1][0] == 99 && memory[1][255] == 99);
    /* Again, from the same copy; a commit renews it. */
    memory[0][1] = 77;
    ck_assert_int_eq(hvd_restore(state), 0);
    ck_assert_int_eq(memory[0][1], 1);
    memory[0][1] = 78;
    hvd__state_settle(state, 2, EPOCH, 20);
    memory[0][1] = 79;
    ck_assert_int_eq(hvd_restore(state), 0);
    ck_assert_int_eq(memory[0][1], 78);
}
END_TEST

/* ---- Ages ---------------------------------------------------------------- */

/* Returns the order of two ages, checking that it does not depend on their
 * order. */
static int compare(struct hvd__state_age a, struct hvd__state_age b)
{
    int order = hvd__state_compare(&a, &b);

    ck_assert_int_eq(hvd__state_compare(&b, &a), -order);
    return order;
}

START_TEST(test_compare)
{
    /* Ascending; the layout does not count. */
    static const struct hvd__state_age ages[] = {
        {9, 0, 0, 0}, {7, 1, 0, 0}, {9, 1, 0, 5},
        {0, 1, 1, 0}, {1, 1, 1, 1}, {0, 1, UINT64_MAX, 0},
    };
    enum { COUNT = sizeof(ages) / sizeof(ages[0]) };

    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < COUNT; k++)
            ck_assert_int_eq(compare(ages[i], ages[k]), (i > k) - (i < k));
}
END_TEST

/* Operations count from the version on, also in another world. */
START_TEST(test_progress)
{
    struct hvd__state_age age;

    add("a", memory[0], 8, 0);
    age = hvd__state_age(state, EPOCH, 40);
    ck_assert(age.whole == HVD__STATE_NEW && age.version == 0 &&
              age.progress == 0);
    hvd__state_settle(state, 5, EPOCH, 100);
    age = hvd__state_age(state, EPOCH, 100);
    ck_assert(age.whole == HVD__STATE_SYNCED && age.version == 5 &&
              age.progress == 0);
    age = hvd__state_age(state, EPOCH, 103);
    ck_assert_uint_eq(age.progress, 3);
    age = hvd__state_age(state, EPOCH + 1, 2);
    ck_assert_uint_eq(age.progress, 2);
}
END_TEST

/* What was restored is as old as its version, but only if all of it was. */
START_TEST(test_age_of_restored)
{
    add("a", memory[0], 8, HVD_STATE_SNAPSHOT);
    hvd__state_settle(state, 5, EPOCH, 100);
    ck_assert_int_eq(hvd_restore(state), 0);
    ck_assert_uint_eq(hvd__state_age(state, EPOCH, 103).progress, 0);
    hvd__state_settle(state, 6, EPOCH, 110);
    ck_assert_uint_eq(hvd__state_age(state, EPOCH, 113).progress, 3);
    add("b", memory[1], 8, 0);
    hvd__state_settle(state, 7, EPOCH, 120);
    ck_assert_int_eq(hvd_restore(state), 0);
    ck_assert_uint_eq(hvd__state_age(state, EPOCH, 123).progress, 3);
}
END_TEST

START_TEST(test_no_state)
{
    struct hvd__state_age age = hvd__state_age(NULL, EPOCH, 40);

    ck_assert(!age.layout && age.whole == HVD__STATE_NEW && !age.version &&
              !age.progress);
    ck_assert_uint_ne(hvd__state_age(state, EPOCH, 40).layout, 0);
}
END_TEST

/* Names, sizes, flags, order and number all make a layout; the memory's address
 * and contents do not. */
START_TEST(test_layout)
{
    static const char *const ab[] = {"a", "b"}, *const ba[] = {"b", "a"},
                             *const ac[] = {"a", "c"}, *const join[] = {"ab"};
    static const size_t bytes[] = {8, 16}, other[] = {8, 17}, swap[] = {16, 8};
    static const unsigned none[] = {0, 0}, one[] = {0, HVD_STATE_SNAPSHOT};
    const uint64_t layouts[] = {
        layout(ab, bytes, none, 2), layout(ba, bytes, none, 2),
        layout(ac, bytes, none, 2), layout(ab, other, none, 2),
        layout(ab, bytes, one, 2),  layout(ab, bytes, none, 1),
        layout(ba, swap, none, 2),  layout(join, bytes, none, 1),
        layout(ab, bytes, none, 0),
    };
    enum { COUNT = sizeof(layouts) / sizeof(layouts[0]) };

    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < i; k++)
            ck_assert_uint_ne(layouts[i], layouts[k]);
    add("a", memory[1], 8, 0);
    add("b", memory[1] + 100, 16, 0);
    ck_assert_uint_eq(hvd__state_age(state, EPOCH, 9).layout, layouts[0]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state");
    TCase *tc = tcase_create("state");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_new_and_free);
    tcase_add_test(tc, test_add_checks);
    tcase_add_test(tc, test_many);
    tcase_add_test(tc, test_memory);
    tcase_add_test(tc, test_restore);
    tcase_add_test(tc, test_compare);
    tcase_add_test(tc, test_progress);
    tcase_add_test(tc, test_age_of_restored);
    tcase_add_test(tc, test_no_state);
    tcase_add_test(tc, test_layout);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
