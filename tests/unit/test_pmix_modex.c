/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/wireup/pmix/pmix_modex.h: what two hosts tell each other for PMIx,
 * through a real store. */
#include "lib/agent/wireup/pmix/pmix_modex.h"

#include "lib/base/alloc.h"
#include "lib/rendezvous/store.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { HOSTS = 2, SIZE = 4 };

static struct host {
    struct control_launch job;
    struct control_rank ranks[2];
    struct control_run runs[2];
    struct relay relay;
    struct pmix_modex modex;
    struct hb_buf up; /* requests to the store, as frames */
} hosts[HOSTS];

static struct rdv_store *store;
static char told[512];

static void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void tell(const char *fmt, ...)
{
    size_t used = strlen(told);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(told + used, sizeof(told) - used, fmt, ap);
    va_end(ap);
}

static int host_of(const void *arg)
{
    return (int)((const struct host *)arg - hosts);
}

/* ---- Events ----------------------------------------------------------- */

static void on_fence(void *arg, const struct pmix_wire_item *m, int blames,
                     const char *text)
{
    tell("%d fence %u %d", host_of(arg), m->id, m->status);
    if (m->status == PMIX_WIRE_OK)
        tell(" %.*s;", (int)m->len, (const char *)m->data);
    else
        tell(" by %d: %s;", blames, text);
}

static void on_data(void *arg, const struct pmix_wire_item *m)
{
    tell("%d data %u %d %.*s;", host_of(arg), m->id, m->status, (int)m->len,
         m->len ? (const char *)m->data : "");
}

static void on_late(void *arg, uint32_t rank)
{
    tell("%d late %u;", host_of(arg), rank);
}

static void on_wanted(void *arg)
{
    tell("%d wanted;", host_of(arg));
}

static const struct pmix_modex_events events = {on_fence, on_data, on_late,
                                                on_wanted};

/* ---- Two hosts -------------------------------------------------------- */

/* Keeps the request for run(): nothing is answered inside a call. */
static void on_ask(void *arg, const struct rdv_request *m)
{
    struct host *h = arg;

    hb_must(rdv_encode_request(&h->up, CONTROL_RENDEZVOUS, m));
}

static void on_worker_reply(void *arg, int slot, const struct rdv_reply *m)
{
    (void)arg;
    (void)slot;
    (void)m;
    ck_abort_msg("no worker has asked");
}

static void on_reply(void *arg, int origin, const struct rdv_reply *m)
{
    (void)arg;
    relay_answer(&hosts[origin].relay, m);
}

/* Carries out all requests, and those that follow from them. */
static void run(void)
{
    struct rdv_request m;
    struct frame f;
    int more = 1;

    while (more) {
        more = 0;
        for (int i = 0; i < HOSTS; i++) {
            struct hb_buf up = hosts[i].up;

            hosts[i].up = (struct hb_buf)HB_BUF_INIT;
            while (frame_decode(&up, FRAME_PAYLOAD_MAX, &f, NULL) == 1) {
                more = 1;
                ck_assert_int_eq(
                    rdv_decode_request(f.payload, f.len, FRAME_PAYLOAD_MAX, &m),
                    0);
                rdv_store_request(store, i, &m);
                frame_done(&up, &f);
            }
            hb_buf_free(&up);
        }
    }
}

static void open_host(int index, int host_count)
{
    struct host *h = &hosts[index];
    struct relay_config config = {
        .job = &h->job, .ask = on_ask, .reply = on_worker_reply, .arg = h};

    memset(h, 0, sizeof(*h));
    h->job.size = SIZE;
    h->job.host_index = index;
    h->job.ranks = h->ranks;
    h->job.rank_count = 2;
    for (int i = 0; i < 2; i++) {
        h->ranks[i].rank = 2 * index + i;
        h->runs[i] = (struct control_run){i, 2};
    }
    if (host_count > 1) {
        hb_must(hb_strv_add(&h->job.host_names, "a"));
        hb_must(hb_strv_add(&h->job.host_names, "b"));
        h->job.runs = h->runs;
        h->job.run_count = 2;
    }
    relay_init(&h->relay, &config);
    h->modex = (struct pmix_modex){
        .relay = &h->relay, .job = &h->job, .events = &events, .arg = h};
    pmix_modex_open(&h->modex);
}

static void close_host(int index)
{
    struct host *h = &hosts[index];

    pmix_modex_close(&h->modex);
    relay_fini(&h->relay);
    hb_strv_free(&h->job.host_names);
    hb_buf_free(&h->up);
}

static void setup(void)
{
    struct rdv_store_config config = {.ranks = SIZE,
                                      .bytes_max = 1 << 20,
                                      .waits_max = 64,
                                      .reply = on_reply};

    told[0] = '\0';
    store = rdv_store_new(&config);
    for (int i = 0; i < HOSTS; i++)
        open_host(i, HOSTS);
    run();
}

static void teardown(void)
{
    for (int i = 0; i < HOSTS; i++)
        close_host(i);
    rdv_store_free(store);
}

static struct pmix_wire_item item(uint32_t id, const char *data)
{
    return (struct pmix_wire_item){.id = id, .data = data, .len = strlen(data)};
}

/* ---- Fences ----------------------------------------------------------- */

START_TEST(a_fence_gives_all_to_all)
{
    struct pmix_wire_item a = item(1, "left"), b = item(1, "right");

    pmix_modex_fence(&hosts[0].modex, &a);
    run();
    ck_assert_str_eq(told, "");
    pmix_modex_fence(&hosts[1].modex, &b);
    run();
    ck_assert_str_eq(told, "0 fence 1 0 leftright;1 fence 1 0 leftright;");
    told[0] = '\0';
    a = item(2, "");
    pmix_modex_fence(&hosts[1].modex, &a);
    pmix_modex_fence(&hosts[0].modex, &a);
    run();
    ck_assert_str_eq(told, "0 fence 2 0 ;1 fence 2 0 ;");
}
END_TEST

START_TEST(a_death_fails_a_fence)
{
    struct pmix_wire_item a = item(1, "left");

    pmix_modex_fence(&hosts[0].modex, &a);
    run();
    rdv_store_rank_gone(store, 3, RDV_ALL_EPOCHS, "rank 3 died");
    run();
    ck_assert_str_eq(told, "0 fence 1 1 by 4: rank 3 died;");
}
END_TEST

START_TEST(too_much_fails_a_fence)
{
    struct pmix_wire_item a = {.id = 1, .len = RELAY_OWN_VALUE_MAX + 1};
    char *data = hb_xcalloc(a.len, 1);

    a.data = data;
    pmix_modex_fence(&hosts[0].modex, &a);
    ck_assert_ptr_nonnull(strstr(told, "0 fence 1 1 by 0: "));
    hb_free(data);
}
END_TEST

/* ---- Data of one rank ------------------------------------------------- */

START_TEST(data_are_fetched_when_they_are_needed)
{
    struct pmix_wire_item a = item(2, "two"), b = item(3, "");

    pmix_modex_want(&hosts[0].modex, 3, 1000);
    run();
    ck_assert_str_eq(told, "1 wanted;");
    pmix_modex_want(&hosts[0].modex, 2, 1000);
    run();
    pmix_modex_answer(&hosts[1].modex, &a);
    run();
    ck_assert_str_eq(told, "1 wanted;0 data 2 0 two;");
    b.status = PMIX_WIRE_NO_DATA;
    pmix_modex_answer(&hosts[1].modex, &b);
    run();
    ck_assert_str_eq(told, "1 wanted;0 data 2 0 two;0 data 3 2 ;");
    pmix_modex_want(&hosts[0].modex, 2, 1000); /* again, at once */
    run();
    ck_assert_str_eq(told,
                     "1 wanted;0 data 2 0 two;0 data 3 2 ;0 data 2 0 two;");
}
END_TEST

START_TEST(a_rank_that_does_not_exist_has_no_data)
{
    pmix_modex_want(&hosts[0].modex, SIZE, 1000);
    ck_assert_str_eq(told, "0 data 4 2 ;");
    close_host(0);
    open_host(0, 1); /* alone, it asks nobody */
    pmix_modex_want(&hosts[0].modex, 1, 1000);
    ck_assert_str_eq(told, "0 data 4 2 ;0 data 1 2 ;");
    ck_assert_uint_eq(hb_buf_len(&hosts[0].up), 0);
}
END_TEST

/* Who does not answer in time is given up, each once. */
START_TEST(data_may_be_late)
{
    struct pmix_modex *x = &hosts[0].modex;
    struct pmix_wire_item a = item(1, "left"), b = item(3, "three");

    ck_assert_uint_eq(pmix_modex_expire(x, 1), 0);
    pmix_modex_fence(x, &a);
    pmix_modex_want(x, 2, 1000);
    pmix_modex_want(x, 3, 2000);
    run();
    told[0] = '\0';
    ck_assert_uint_eq(pmix_modex_expire(x, 999), 1000);
    ck_assert_str_eq(told, "");
    ck_assert_uint_eq(pmix_modex_expire(x, 1000), 2000);
    ck_assert_str_eq(told, "0 late 2;");
    pmix_modex_answer(&hosts[1].modex, &b);
    run();
    ck_assert_str_eq(told, "0 late 2;0 data 3 0 three;");
    ck_assert_uint_eq(pmix_modex_expire(x, 9000), 0);
    ck_assert_str_eq(told, "0 late 2;0 data 3 0 three;");
}
END_TEST

START_TEST(nothing_follows_after_closing)
{
    struct pmix_wire_item a = item(1, "x");

    pmix_modex_fence(&hosts[0].modex, &a);
    pmix_modex_want(&hosts[0].modex, 3, 1000);
    pmix_modex_close(&hosts[0].modex);
    pmix_modex_fence(&hosts[1].modex, &a);
    run();
    ck_assert_ptr_null(strstr(told, "0 fence"));
    ck_assert_ptr_null(strstr(told, "0 data"));
    ck_assert_int_eq(hosts[0].relay.own_count, 0);
}
END_TEST

static Suite *pmix_modex_suite(void)
{
    Suite *s = suite_create("pmix_modex");
    TCase *tc = tcase_create("modex");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_fence_gives_all_to_all);
    tcase_add_test(tc, a_death_fails_a_fence);
    tcase_add_test(tc, too_much_fails_a_fence);
    tcase_add_test(tc, data_are_fetched_when_they_are_needed);
    tcase_add_test(tc, a_rank_that_does_not_exist_has_no_data);
    tcase_add_test(tc, data_may_be_late);
    tcase_add_test(tc, nothing_follows_after_closing);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return unit_run(pmix_modex_suite());
}
