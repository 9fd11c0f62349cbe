/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/wireup/pmi1/pmi1_server.h and pmi1_kvs.h: PMI-1 without sockets. */
#include "lib/agent/wireup/pmi1/pmi1_server.h"
#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 2 };

#define KVS "kvs_0123456789abcdef0123456789abcdef"

static struct pmi1_server server;
static struct control_rank ranks[RANKS];
static char job_id[] = "0123456789abcdef0123456789abcdef";

static char lines[RANKS][8192];
static int connected, finished, barriers, spawns, abort_slot, abort_code,
    broken_slot;
static char why[256];

static void on_line(void *arg, int slot, const char *line, size_t len)
{
    size_t used = strlen(lines[slot]);

    (void)arg;
    ck_assert_uint_le(len, PMI1_LINE_MAX);
    ck_assert_int_eq(line[len - 1], '\n');
    ck_assert_uint_lt(used + len, sizeof(lines[slot]));
    memcpy(lines[slot] + used, line, len);
    lines[slot][used + len] = '\0';
}

static void on_connected(void *arg, int slot)
{
    (void)arg;
    (void)slot;
    connected++;
}

static void on_finished(void *arg, int slot)
{
    (void)arg;
    (void)slot;
    finished++;
}

static void on_abort(void *arg, int slot, int exit_code)
{
    (void)arg;
    abort_slot = slot;
    abort_code = exit_code;
}

static void on_spawn(void *arg, int slot)
{
    (void)arg;
    (void)slot;
    spawns++;
}

static void on_broken(void *arg, int slot, const char *text)
{
    (void)arg;
    broken_slot = slot;
    snprintf(why, sizeof(why), "%s", text);
}

static void on_barrier(void *arg)
{
    ck_assert_ptr_eq(arg, &server);
    barriers++;
}

static const struct pmi1_events events = {
    .on_line = on_line,
    .on_connected = on_connected,
    .on_finished = on_finished,
    .on_abort = on_abort,
    .on_spawn = on_spawn,
    .on_broken = on_broken,
    .on_barrier = on_barrier,
};

static void setup(void)
{
    const struct control_launch job = {
        .job_id = job_id,
        .size = RANKS,
        .ranks = ranks,
        .rank_count = RANKS,
    };

    memset(lines, 0, sizeof(lines));
    connected = finished = barriers = spawns = 0;
    abort_slot = broken_slot = -1;
    why[0] = '\0';
    pmi1_server_init(&server, &job, &events, &server);
}

static void teardown(void)
{
    pmi1_server_fini(&server);
}

static void say(int slot, const char *text)
{
    pmi1_server_input(&server, slot, text, strlen(text));
}

/* Sends a line and compares the reply, without its end. */
static void ask(int slot, const char *request, const char *reply)
{
    char expected[PMI1_LINE_MAX + 1];

    lines[slot][0] = '\0';
    say(slot, request);
    say(slot, "\n");
    snprintf(expected, sizeof(expected), "%s\n", reply);
    ck_assert_str_eq(lines[slot], *reply ? expected : "");
}

static void greet(int slot)
{
    ask(slot, "cmd=init pmi_version=1 pmi_subversion=1",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
}

/* ---- Conversations ---- */

START_TEST(test_questions)
{
    greet(0);
    ck_assert_int_eq(connected, 1);
    ask(0, "cmd=get_maxes",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=880");
    ask(0, "cmd=get_appnum", "cmd=appnum appnum=0");
    ask(0, "cmd=get_my_kvsname", "cmd=my_kvsname kvsname=" KVS);
    ask(0, "cmd=get_universe_size", "cmd=universe_size size=2 rc=0");
    ask(0, "cmd=get kvsname=" KVS " key=PMI_process_mapping",
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))");
    ask(0, "cmd=finalize", "cmd=finalize_ack");
    ck_assert_int_eq(finished, 1);
    ck_assert_int_eq(broken_slot, -1);
}
END_TEST

START_TEST(test_lines_come_in_pieces)
{
    greet(0);
    lines[0][0] = '\0';
    say(0, "cmd=get_ap");
    ck_assert_str_eq(lines[0], "");
    say(0, "pnum\ncmd=get_universe_size\ncmd");
    ck_assert_str_eq(lines[0], "cmd=appnum appnum=0\n"
                               "cmd=universe_size size=2 rc=0\n");
    say(0, "=get_appnum\n");
    ck_assert_ptr_nonnull(strstr(lines[0], "rc=0\ncmd=appnum"));
}
END_TEST

START_TEST(test_put_get_barrier)
{
    greet(0);
    greet(1);
    ask(0, "cmd=put kvsname=" KVS " key=P0-card value=a=b;c",
        "cmd=put_result rc=0 msg=success");
    ask(1, "cmd=get kvsname=" KVS " key=P1-card",
        "cmd=get_result rc=-1 msg=key_P1-card_not_found value=unknown");
    ask(0, "cmd=barrier_in", "");
    ck_assert_int_eq(barriers, 0);
    ck_assert_int_eq(server.waiting, 1);
    ask(1, "cmd=barrier_in group=WORLD tag=7", "");
    ck_assert_int_eq(barriers, 1);
    pmi1_server_release(&server);
    ck_assert_str_eq(lines[0], "cmd=barrier_out rc=0\n");
    ck_assert_str_eq(lines[1], "cmd=barrier_out rc=0\n");
    ck_assert_int_eq(server.waiting, 0);
    ask(1, "cmd=get kvsname=" KVS " key=P0-card",
        "cmd=get_result rc=0 msg=success value=a=b;c");
}
END_TEST

START_TEST(test_refused_puts)
{
    char key[PMI1_KEY_MAX + 1], line[PMI1_LINE_MAX];

    greet(0);
    memset(key, 'k', PMI1_KEY_MAX);
    key[PMI1_KEY_MAX] = '\0';
    ask(0, "cmd=put kvsname=other key=a value=b",
        "cmd=put_result rc=-1 msg=unknown_kvsname");
    ask(0, "cmd=put kvsname=" KVS " key=a",
        "cmd=put_result rc=-1 msg=invalid_key_or_value");
    ask(0, "cmd=put kvsname=" KVS " key= value=b",
        "cmd=put_result rc=-1 msg=invalid_key_or_value");
    snprintf(line, sizeof(line), "cmd=put kvsname=" KVS " key=%s value=b", key);
    ask(0, line, "cmd=put_result rc=-1 msg=invalid_key_or_value");
    key[PMI1_KEY_MAX - 1] = '\0';
    snprintf(line, sizeof(line), "cmd=put kvsname=" KVS " key=%s value=b", key);
    ask(0, line, "cmd=put_result rc=0 msg=success");
    ask(0, line, "cmd=put_result rc=-1 msg=duplicate_key");
}
END_TEST

START_TEST(test_longest_value_fits)
{
    char value[PMI1_VALUE_OFFER + 1], line[PMI1_LINE_MAX], reply[PMI1_LINE_MAX];

    greet(0);
    memset(value, 'v', PMI1_VALUE_OFFER);
    value[PMI1_VALUE_OFFER] = '\0';
    snprintf(line, sizeof(line), "cmd=put kvsname=" KVS " key=k value=%s",
             value);
    ask(0, line, "cmd=put_result rc=0 msg=success");
    snprintf(reply, sizeof(reply), "cmd=get_result rc=0 msg=success value=%s",
             value);
    ask(0, "cmd=get kvsname=" KVS " key=k", reply);
}
END_TEST

START_TEST(test_rank_may_put_so_much)
{
    char line[PMI1_LINE_MAX];

    greet(0);
    for (int i = 0; i < PMI1_RANK_KEYS_MAX; i++) {
        snprintf(line, sizeof(line), "cmd=put kvsname=" KVS " key=k%d value=v",
                 i);
        ask(0, line, "cmd=put_result rc=0 msg=success");
    }
    ask(0, "cmd=put kvsname=" KVS " key=more value=v",
        "cmd=put_result rc=-1 msg=no_space");
    greet(1);
    ask(1, "cmd=put kvsname=" KVS " key=more value=v",
        "cmd=put_result rc=0 msg=success");
}
END_TEST

START_TEST(test_abort)
{
    greet(1);
    ask(1, "cmd=abort exitcode=-3 message=it was not = to be", "");
    ck_assert_int_eq(abort_slot, 1);
    ck_assert_int_eq(abort_code, -3);
    ask(1, "cmd=get_appnum", ""); /* nothing is read any more */
    greet(0);
    ask(0, "cmd=abort exitcode=lots", "");
    ck_assert_int_eq(abort_slot, 0);
    ck_assert_int_eq(abort_code, 1);
}
END_TEST

START_TEST(test_what_is_not_supported)
{
    greet(0);
    ask(0, "cmd=publish_name service=s port=p",
        "cmd=publish_result info=failed rc=-1 msg=not_supported");
    ask(0, "cmd=unpublish_name service=s",
        "cmd=unpublish_result info=failed rc=-1 msg=not_supported");
    ask(0, "cmd=lookup_name service=s",
        "cmd=lookup_result info=failed rc=-1 msg=not_supported");
    ask(0, "mcmd=spawn", "");
    ask(0, "nprocs=1", "");
    ask(0, "cmd=abort", "");
    ask(0, "endcmd", "cmd=spawn_result rc=-1 msg=not_supported");
    ck_assert_int_eq(spawns, 1);
    ask(0, "cmd=get_appnum", "cmd=appnum appnum=0");
    ck_assert_int_eq(broken_slot, -1);
}
END_TEST

/* MPI_Comm_spawn_multiple sends several blocks and awaits one reply. */
START_TEST(test_spawn_of_several)
{
    greet(0);
    for (int i = 1; i <= 3; i++) {
        char number[32];

        snprintf(number, sizeof(number), "spawnssofar=%d", i);
        ask(0, "mcmd=spawn", "");
        ask(0, "totspawns=3", "");
        ask(0, number, "");
        ask(0, "arg1=totspawns=9", "");
        ask(0, "endcmd",
            i == 3 ? "cmd=spawn_result rc=-1 msg=not_supported" : "");
        ck_assert_int_eq(spawns, i == 3);
    }
    /* What is no number counts for nothing. */
    ask(0, "mcmd=spawn", "");
    ask(0, "totspawns=99999999999", "");
    ask(0, "spawnssofar=-1", "");
    ask(0, "endcmd", "cmd=spawn_result rc=-1 msg=not_supported");
    ask(0, "cmd=get_appnum", "cmd=appnum appnum=0");
    ck_assert_int_eq(broken_slot, -1);
}
END_TEST

/* ---- Broken protocol ---- */

static const struct {
    const char *greeting, *request, *why;
} wrong[] = {
    {"", "cmd=get_maxes", "sent the PMI request get_maxes out of order"},
    {"", "mcmd=spawn", "the unknown PMI request \"\""},
    {"", "cmd=init pmi_version=2 pmi_subversion=0",
     "asks for version 2 of PMI"},
    {"", "cmd=init", "asks for version ? of PMI"},
    {"", "", "the unknown PMI request \"\""},
    {"", "GET / HTTP/1.1", "the unknown PMI request \"\""},
    {"1", "cmd=init pmi_version=1", "the PMI request init out of order"},
    {"1", "cmd=jump", "the unknown PMI request \"jump\""},
    {"1", "cmd=barrier_in group=NODE", "a barrier of the group NODE"},
    {"1", "cmd=barrier_in\ncmd=barrier_in", "entered a barrier of PMI twice"},
    {"1", "cmd=finalize\ncmd=get_maxes", "get_maxes out of order"},
};

START_TEST(test_broken)
{
    if (*wrong[_i].greeting)
        greet(0);
    say(0, wrong[_i].request);
    say(0, "\n");
    ck_assert_int_eq(broken_slot, 0);
    ck_assert_msg(strstr(why, wrong[_i].why) != NULL, "%s", why);
    broken_slot = -1;
    say(0, "\n\n\n");
    ck_assert_int_eq(broken_slot, -1);
}
END_TEST

START_TEST(test_line_without_end)
{
    char bytes[PMI1_LINE_MAX];

    memset(bytes, 'x', sizeof(bytes));
    pmi1_server_input(&server, 0, bytes, sizeof(bytes) - 1);
    ck_assert_int_eq(broken_slot, -1);
    pmi1_server_input(&server, 0, bytes, 1);
    ck_assert_int_eq(broken_slot, 0);
    ck_assert_str_eq(why, "what it sent is not PMI's protocol");
}
END_TEST

START_TEST(test_zero_byte)
{
    pmi1_server_input(&server, 1, "cmd=\0\n", 6);
    ck_assert_int_eq(broken_slot, 1);
}
END_TEST

/* ---- The key-value space ---- */

START_TEST(test_records_reach_another_host)
{
    struct pmi1_kvs a, b;
    char key[32];

    pmi1_kvs_init(&a);
    pmi1_kvs_init(&b);
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        ck_assert_int_eq(pmi1_kvs_put(&a, key, key + 3), PMI1_PUT_OK);
    }
    ck_assert_int_eq(pmi1_kvs_put(&b, "key7", "own"), PMI1_PUT_OK);
    ck_assert_int_eq(
        pmi1_kvs_merge(&b, hb_buf_data(&a.news), hb_buf_len(&a.news)), 0);
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        ck_assert_str_eq(pmi1_kvs_get(&b, key), i == 7 ? "own" : key + 3);
    }
    ck_assert_uint_eq(hb_buf_len(&b.news), 1 + 2 + 4 + 3);
    pmi1_kvs_fini(&a);
    pmi1_kvs_fini(&b);
}
END_TEST

START_TEST(test_bad_records)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"\x01", 1},           {"\x01\x00\x01k", 4},     {"\x00\x00\x01v", 4},
        {"\x01\x00\x00k", 4},  {"\x01\x00\x01k\x00", 5}, {"\x01\x00\x01 v", 5},
        {"\x01\x00\x01=v", 5}, {"\x01\x00\x01k\n", 5},   {"\x01\xff\xffkv", 5},
    };
    struct pmi1_kvs k;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        pmi1_kvs_init(&k);
        ck_assert_int_eq(pmi1_kvs_merge(&k, bad[i].bytes, bad[i].len),
                         -HVD_EPROTO);
        pmi1_kvs_fini(&k);
    }
}
END_TEST

/* ---- Which ranks share a host ---- */

static const struct {
    const char *hosts, *mapping; /* a digit for each rank */
} mappings[] = {
    {"0", "(vector,(0,1,1))"},
    {"0000", "(vector,(0,1,4))"},
    {"0011", "(vector,(0,2,2))"},
    {"0123", "(vector,(0,4,1))"},
    {"00011", "(vector,(0,1,3),(1,1,2))"}, /* unequal slots */
    {"00112", "(vector,(0,2,2),(2,1,1))"},
    {"01122", "(vector,(0,1,1),(1,2,2))"},
    {"0101", "(vector,(0,2,1))"}, /* hosts in turn */
    {"01010", "(vector,(0,2,1))"},
    {"012012", "(vector,(0,3,1))"},
    {"0120120", "(vector,(0,3,1))"},
    {"01201202", "(vector,(0,3,1),(0,3,1),(0,1,1),(2,1,1))"},
    {"00110011001", "(vector,(0,2,2))"},
    {"10", "(vector,(1,1,1),(0,1,1))"},
    {"011000", "(vector,(0,1,1),(1,1,2),(0,1,3))"},
    {"01100", "(vector,(0,1,1),(1,1,2),(0,1,2))"},
};

static int *hosts_of(const char *digits, int *size)
{
    int *hosts = hb_xcalloc(strlen(digits) + 1, sizeof(*hosts));

    for (*size = 0; digits[*size]; ++*size)
        hosts[*size] = digits[*size] - '0';
    return hosts;
}

START_TEST(test_mapping)
{
    int size, *hosts = hosts_of(mappings[_i].hosts, &size);
    char *got = pmi1_mapping(hosts, size);

    ck_assert_str_eq(got, mappings[_i].mapping);
    hb_free(got);
    hb_free(hosts);
}
END_TEST

START_TEST(test_mapping_that_is_too_long)
{
    enum { SIZE = 4096 };
    int *hosts = hb_xcalloc(SIZE, sizeof(*hosts));
    unsigned random = 1;

    for (int i = 0; i < SIZE; i++) {
        random = random * 1103515245u + 12345u;
        hosts[i] = (int)(random >> 16 & 63);
    }
    ck_assert_ptr_null(pmi1_mapping(hosts, SIZE));
    hb_free(hosts);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("pmi1");
    TCase *t = tcase_create("pmi1");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_questions);
    tcase_add_test(t, test_lines_come_in_pieces);
    tcase_add_test(t, test_put_get_barrier);
    tcase_add_test(t, test_refused_puts);
    tcase_add_test(t, test_longest_value_fits);
    tcase_add_test(t, test_rank_may_put_so_much);
    tcase_add_test(t, test_abort);
    tcase_add_test(t, test_what_is_not_supported);
    tcase_add_test(t, test_spawn_of_several);
    tcase_add_loop_test(t, test_broken, 0, sizeof(wrong) / sizeof(wrong[0]));
    tcase_add_test(t, test_line_without_end);
    tcase_add_test(t, test_zero_byte);
    tcase_add_test(t, test_records_reach_another_host);
    tcase_add_test(t, test_bad_records);
    tcase_add_loop_test(t, test_mapping, 0,
                        sizeof(mappings) / sizeof(mappings[0]));
    tcase_add_test(t, test_mapping_that_is_too_long);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
