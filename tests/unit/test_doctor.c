/* SPDX-License-Identifier: Apache-2.0 */
/* What `hvdrun doctor` finds in made-up reports and networks. */
#include "cmd/hvdrun/tools/doctor.h"

#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { HOSTS = 3 };

static struct doctor_host hosts[HOSTS];
static struct findings found;

/* A host without faults. */
static const char good[] =
    "{\"host\":\"h\",\"os\":\"Linux\",\"cpu\":\"x86_64\",\"kernel\":\"6\","
    "\"cpus\":8,\"memory_bytes\":8589934592,"
    "\"shm\":{\"size_bytes\":4294967296,\"free_bytes\":4294967296},"
    "\"limits\":{\"nofile\":[1048576,1048576],\"nproc\":[-1,-1],"
    "\"memlock\":[65536,65536]},\"rdma\":false,"
    "\"home\":{\"path\":\"/root\",\"writable\":true,\"error\":\"\"},"
    "\"cache\":{\"path\":\"/root/.cache/hvd\",\"usable\":true,"
    "\"noexec\":false,\"error\":\"\"},"
    "\"shell\":{\"path\":\"/bin/sh\",\"bytes\":0,\"ms\":2.5,\"text\":\"\","
    "\"status\":0},\"gpus\":0,\"libraries\":{\"nccl\":{\"path\":\"/x\","
    "\"version\":\"2.18.3\"}},\"mpirun\":null,"
    "\"names\":{\"n1\":[\"10.0.0.1\"]}}";

static json_t *part(int host, const char *name)
{
    return json_object_get(hosts[host].report, name);
}

static void set(json_t *object, const char *name, json_t *value)
{
    ck_assert_int_eq(json_object_set_new(object, name, value), 0);
}

static void setup(void)
{
    static const char *const names[] = {"n1", "n2", "n3"};

    memset(hosts, 0, sizeof(hosts));
    for (int i = 0; i < HOSTS; i++) {
        hosts[i].name = names[i];
        hosts[i].reached = 1;
        hosts[i].error = "";
        hosts[i].connect_ms = 100 + i;
        hosts[i].has_clock = 1;
        hosts[i].offset_error_ms = 0.5;
        hosts[i].report = json_loads(good, 0, NULL);
        ck_assert_ptr_nonnull(hosts[i].report);
    }
}

static void teardown(void)
{
    for (int i = 0; i < HOSTS; i++)
        json_decref(hosts[i].report);
    findings_free(&found);
}

static void check(void)
{
    doctor_check_hosts(hosts, HOSTS, &found);
}

/* Checks for exactly one finding, and its host. */
static void expect(const char *section, const char *host, const char *text)
{
    size_t seen = 0;

    check();
    for (size_t i = 0; i < found.count; i++) {
        const struct finding *f = &found.items[i];

        if (f->kind != FINDING_WRONG)
            continue;
        seen++;
        ck_assert_str_eq(f->section, section);
        ck_assert_uint_eq(f->hosts.count, 1);
        ck_assert_str_eq(f->hosts.items[0], host);
        ck_assert_msg(strstr(f->text, text) != NULL, "%s", f->text);
        ck_assert_str_ne(f->fix, "");
    }
    ck_assert_uint_eq(seen, 1);
}

static int has_note(const char *section, const char *text)
{
    int n = 0;

    for (size_t i = 0; i < found.count; i++)
        n += found.items[i].kind == FINDING_NOTE &&
             strcmp(found.items[i].section, section) == 0 &&
             strstr(found.items[i].text, text);
    return n;
}

START_TEST(all_is_well)
{
    struct hb_buf out = HB_BUF_INIT;

    check();
    ck_assert_uint_eq(findings_wrong(&found, NULL), 0);
    findings_format(&found, doctor_sections, &out);
    ck_assert_str_eq(
        hb_buf_data(&out),
        "ok    dns       this machine knows the addresses of 3 of 3\n"
        "ok    agent     runs on 3 of 3 hosts, the slowest, n3, after 0.10 s\n"
        "ok    names     the hosts know each other's names\n"
        "ok    shell     login shells are silent and start within 3 ms\n"
        "ok    home      can be written, and the agent is kept\n"
        "ok    clock     within 0.0 ms of this machine's\n"
        "ok    system    Linux, x86_64, 8 processors, 8 GiB\n"
        "ok    limits    open files, processes and locked memory suffice\n"
        "ok    gpu       GPUs on each host: 0\n"
        "ok    nccl      NCCL 2.18.3\n");
    hb_buf_free(&out);
}
END_TEST

START_TEST(unreachable)
{
    static const struct {
        int status;
        enum hb_stage stage;
        const char *error, *section;
        int dns_failed;
    } cases[] = {
        {-HVD_EPERM, HB_STAGE_HOST_KEY, "not known: SHA256:x", "host key", 0},
        {-HVD_EPERM, HB_STAGE_LOGIN, "no key was accepted", "login", 1},
        {-HVD_EINVAL, HB_STAGE_NAME, "cannot resolve n2", "dns", 0},
        {-HVD_ESYSTEM, HB_STAGE_CONNECT, "connection refused", "tcp", 0},
        {-HVD_ETIMEOUT, HB_STAGE_CONNECT, "no answer", "dns", 1},
        {-HVD_ETIMEOUT, HB_STAGE_NONE, "time is up", "tcp", 0},
        {-HVD_ETIMEOUT, HB_STAGE_NONE, "time is up", "dns", 1},
        {-HVD_EPERM, HB_STAGE_NONE, "may not be executed", "agent", 0},
        {-HVD_ECLOSED, HB_STAGE_NONE, "exited with code 1", "agent", 0},
    };

    json_decref(hosts[1].report);
    hosts[1].report = NULL;
    hosts[1].reached = hosts[1].has_clock = 0;
    hosts[1].status = cases[_i].status;
    hosts[1].stage = cases[_i].stage;
    hosts[1].dns_failed = cases[_i].dns_failed;
    hosts[1].error = cases[_i].error;
    expect(cases[_i].section, "n2", cases[_i].error);
}
END_TEST

/* The advice for an agent that was reached fits how it was lost. */
START_TEST(lost_while_it_answered)
{
    static const struct {
        int status;
        const char *error, *fix;
    } cases[] = {
        {-HVD_ETIMEOUT, "the agent does not answer", "something hangs there"},
        {-HVD_ECLOSED, "the agent got SIGTERM", "ended while it answered"},
        {-HVD_EPROTO, "message of unknown type 9", "try: ssh HOST"},
    };

    json_decref(hosts[1].report);
    hosts[1].report = NULL;
    hosts[1].has_clock = 0;
    hosts[1].status = cases[_i].status;
    hosts[1].error = cases[_i].error;
    expect("agent", "n2", cases[_i].error);
    for (size_t i = 0; i < found.count; i++)
        if (found.items[i].kind == FINDING_WRONG)
            ck_assert_ptr_nonnull(strstr(found.items[i].fix, cases[_i].fix));
}
END_TEST

START_TEST(a_name_that_only_ssh_knows)
{
    hosts[0].dns_failed = 1;
    hosts[0].dns_error = (char *)"unknown node or service";
    check();
    ck_assert_int_eq(has_note("dns", "but reached"), 1);
    ck_assert_uint_eq(findings_wrong(&found, NULL), 0);
}
END_TEST

START_TEST(a_noisy_shell)
{
    set(part(2, "shell"), "bytes", json_integer(9));
    set(part(2, "shell"), "text", json_string("welcome\n!"));
    expect("shell", "n3", "prints 9 bytes by itself: welcome?!");
}
END_TEST

START_TEST(a_slow_shell)
{
    set(part(2, "shell"), "ms", json_real(2000));
    expect("shell", "n3", "0.5 s");
}
END_TEST

START_TEST(a_shell_that_fails)
{
    set(part(2, "shell"), "status", json_integer(1));
    expect("shell", "n3", "exits with 1");
}
END_TEST

START_TEST(a_full_home)
{
    set(part(0, "home"), "writable", json_false());
    set(part(0, "home"), "error", json_string("Disk quota exceeded"));
    expect("home", "n1", "/root cannot be written: Disk quota exceeded");
}
END_TEST

START_TEST(a_cache_without_exec)
{
    set(part(0, "cache"), "usable", json_false());
    set(part(0, "cache"), "noexec", json_true());
    expect("home", "n1", "noexec");
}
END_TEST

START_TEST(a_clock_that_is_off)
{
    hosts[1].offset_ms = -2300;
    expect("clock", "n2", "2.3 s behind");
}
END_TEST

/* A slow answer leaves too large an error for a finding. */
START_TEST(a_clock_within_the_error)
{
    hosts[1].offset_ms = 900;
    hosts[1].offset_error_ms = 1000;
    check();
    ck_assert_uint_eq(findings_wrong(&found, NULL), 0);
}
END_TEST

START_TEST(low_limits)
{
    set(part(1, "limits"), "nofile", json_pack("[i, i]", 256, 256));
    expect("limits", "n2", "only 256 open files");
}
END_TEST

START_TEST(locked_memory_for_rdma_only)
{
    set(hosts[1].report, "rdma", json_true());
    expect("limits", "n2", "64 KiB");
}
END_TEST

START_TEST(small_shm)
{
    set(part(1, "shm"), "size_bytes", json_integer(67108864));
    expect("system", "n2", "/dev/shm has 64M");
}
END_TEST

START_TEST(full_shm)
{
    set(part(1, "shm"), "free_bytes", json_integer(0));
    expect("system", "n2", "/dev/shm has left 0");
}
END_TEST

START_TEST(another_machine_type)
{
    set(hosts[2].report, "cpu", json_string("aarch64"));
    expect("system", "n3", "is aarch64; on n[1-2] it is x86_64");
}
END_TEST

START_TEST(unequal_hosts_are_a_note)
{
    set(hosts[2].report, "cpus", json_integer(4));
    set(hosts[2].report, "gpus", json_integer(4));
    check();
    ck_assert_int_eq(has_note("system", "processors is 4"), 1);
    ck_assert_int_eq(has_note("gpu", "GPUs is 4; on n[1-2] it is 0"), 1);
    ck_assert_uint_eq(findings_wrong(&found, NULL), 0);
}
END_TEST

START_TEST(another_nccl)
{
    set(json_object_get(part(1, "libraries"), "nccl"), "version",
        json_string("2.4.8"));
    expect("nccl", "n2", "NCCL is 2.4.8; on n[1,3] it is 2.18.3");
}
END_TEST

START_TEST(one_without_mpi)
{
    for (int i = 0; i < 2; i++)
        set(hosts[i].report, "mpirun",
            json_pack("{s:s}", "version", "mpirun 4.1"));
    expect("mpi", "n3", "mpirun is not there; on n[1-2] it is mpirun 4.1");
}
END_TEST

static void set_program(int host, const char *hash)
{
    set(hosts[host].report, "program",
        json_pack("{s:s, s:s, s:[]}", "path", "/x/train", "hash", hash,
                  "missing"));
}

START_TEST(another_build_of_the_program)
{
    set_program(0, "aa");
    set_program(1, "aa");
    set_program(2, "bb");
    expect("program", "n3", "the content of the program is bb");
}
END_TEST

START_TEST(a_missing_library)
{
    for (int i = 0; i < HOSTS; i++)
        set_program(i, "aa");
    json_array_append_new(json_object_get(part(0, "program"), "missing"),
                          json_string("libx.so.1"));
    expect("program", "n1", "/x/train needs libx.so.1");
}
END_TEST

START_TEST(another_script)
{
    for (int i = 0; i < HOSTS; i++) {
        set_program(i, "aa");
        set(hosts[i].report, "files",
            json_pack("{s:{s:s}}", "train.py", "hash", i == 1 ? "x" : "y"));
    }
    expect("program", "n2", "the content of train.py is x");
}
END_TEST

START_TEST(no_program)
{
    set_program(0, "aa");
    set_program(1, "aa");
    set(hosts[2].report, "program",
        json_pack("{s:s}", "error", "train: not found in PATH"));
    check();
    ck_assert_uint_ge(findings_wrong(&found, "program"), 1);
}
END_TEST

/* Every field of a report, replaced by a value of each type. */
START_TEST(hostile_reports)
{
    const char *name;
    json_t *value;

    json_object_foreach(hosts[1].report, name, value)
    {
        static const char *const values[] = {
            "null", "7",  "\"\\u001b\"", "[7]",
            "{}",   "-1", "1e300",       "{\"a\":[{}]}"};

        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            set(hosts[0].report, name,
                json_loads(values[i], JSON_DECODE_ANY, NULL));
            findings_free(&found);
            check();
        }
    }
}
END_TEST

/* ---- The network ---- */

static struct routes_pair pairs[HOSTS * HOSTS];
static const char *const net_names[] = {"n1", "n2", "n3"};
static struct doctor_net net = {net_names, HOSTS, pairs};

static void set_net(void)
{
    memset(pairs, 0, sizeof(pairs));
    for (int i = 0; i < HOSTS * HOSTS; i++)
        pairs[i] = (struct routes_pair){
            .reached = 1, .rtt_us = 100, .bytes_per_s = 1 << 30};
}

START_TEST(every_pair_connects)
{
    struct hb_buf out = HB_BUF_INIT;

    set_net();
    doctor_check_net(&net, &found);
    ck_assert_uint_eq(findings_wrong(&found, NULL), 0);
    doctor_matrix(&net, &out);
    ck_assert_str_eq(hb_buf_data(&out),
                     "\n"
                     "from\\to            n1            n2            n3\n"
                     "n1                  -  100us 1.0G/s  100us 1.0G/s\n"
                     "n2       100us 1.0G/s             -  100us 1.0G/s\n"
                     "n3       100us 1.0G/s  100us 1.0G/s             -\n");
    hb_buf_free(&out);
}
END_TEST

START_TEST(one_way_only)
{
    set_net();
    pairs[0 * HOSTS + 2].reached = 0;
    pairs[1 * HOSTS + 2].reached = 0;
    doctor_check_net(&net, &found);
    ck_assert_uint_eq(findings_wrong(&found, "network"), 1);
    ck_assert_uint_eq(found.items[0].hosts.count, 2);
    ck_assert_ptr_nonnull(
        strstr(found.items[0].text, "cannot connect to n3, which can"));
}
END_TEST

START_TEST(neither_way)
{
    struct hb_buf out = HB_BUF_INIT;

    set_net();
    pairs[0 * HOSTS + 1].reached = pairs[1 * HOSTS + 0].reached = 0;
    pairs[2 * HOSTS + 0].reached = -1;
    doctor_check_net(&net, &found);
    ck_assert_uint_eq(findings_wrong(&found, "network"), 2);
    ck_assert_ptr_nonnull(strstr(found.items[0].text, "nor the other way"));
    doctor_matrix(&net, &out);
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&out), "NO"));
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&out), "?"));
    hb_buf_free(&out);
}
END_TEST

START_TEST(a_slow_pair)
{
    set_net();
    pairs[1].bytes_per_s = 10 << 20;
    pairs[2].rtt_us = 30000;
    doctor_check_net(&net, &found);
    ck_assert_uint_eq(findings_wrong(&found, NULL), 0);
    ck_assert_int_eq(has_note("network", "sends 10M/s to n2"), 1);
    ck_assert_int_eq(has_note("network", "30000 us to n3"), 1);
}
END_TEST

START_TEST(many_hosts_get_a_summary)
{
    enum { MANY = DOCTOR_MATRIX_MAX + 1 };
    static struct routes_pair all[MANY * MANY];
    static char text[MANY][8];
    const char *names[MANY];
    struct doctor_net many = {names, MANY, all};
    struct hb_buf out = HB_BUF_INIT;
    json_t *list;

    for (int i = 0; i < MANY; i++) {
        snprintf(text[i], sizeof(text[i]), "n%02d", i);
        names[i] = text[i];
    }
    for (int i = 0; i < MANY * MANY; i++)
        all[i] = (struct routes_pair){
            .reached = 1, .rtt_us = 100, .bytes_per_s = 1 << 30};
    all[3 * MANY + 5].rtt_us = 170;
    all[4 * MANY + 6].bytes_per_s = 1 << 29;
    doctor_matrix(&many, &out);
    ck_assert_str_eq(hb_buf_data(&out), "\nlongest way: n03 to n05, 170 us\n"
                                        "slowest way: n04 to n06, 512M/s\n");
    list = doctor_matrix_json(&many);
    ck_assert_uint_eq(json_array_size(list), MANY * (MANY - 1));
    json_decref(list);
    hb_buf_free(&out);
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_test(tc, all_is_well);
    tcase_add_loop_test(tc, unreachable, 0, 9);
    tcase_add_loop_test(tc, lost_while_it_answered, 0, 3);
    tcase_add_test(tc, a_name_that_only_ssh_knows);
    tcase_add_test(tc, a_noisy_shell);
    tcase_add_test(tc, a_slow_shell);
    tcase_add_test(tc, a_shell_that_fails);
    tcase_add_test(tc, a_full_home);
    tcase_add_test(tc, a_cache_without_exec);
    tcase_add_test(tc, a_clock_that_is_off);
    tcase_add_test(tc, a_clock_within_the_error);
    tcase_add_test(tc, low_limits);
    tcase_add_test(tc, locked_memory_for_rdma_only);
    tcase_add_test(tc, small_shm);
    tcase_add_test(tc, full_shm);
    tcase_add_test(tc, another_machine_type);
    tcase_add_test(tc, unequal_hosts_are_a_note);
    tcase_add_test(tc, another_nccl);
    tcase_add_test(tc, one_without_mpi);
    tcase_add_test(tc, another_build_of_the_program);
    tcase_add_test(tc, a_missing_library);
    tcase_add_test(tc, another_script);
    tcase_add_test(tc, no_program);
    tcase_add_test(tc, hostile_reports);
}

int main(void)
{
    Suite *s = suite_create("doctor");
    TCase *tc = tcase_create("reports"), *network = tcase_create("network");

    tcase_add_checked_fixture(tc, setup, teardown);
    add_tests(tc);
    suite_add_tcase(s, tc);
    tcase_add_checked_fixture(network, setup, teardown);
    tcase_add_test(network, every_pair_connects);
    tcase_add_test(network, one_way_only);
    tcase_add_test(network, neither_way);
    tcase_add_test(network, a_slow_pair);
    tcase_add_test(network, many_hosts_get_a_summary);
    suite_add_tcase(s, network);
    return unit_run(s);
}
