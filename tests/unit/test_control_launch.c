/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LAUNCH of lib/protocol/control/control.h: encoded and decoded with all bytes
 * that argv and environments may hold, at the sizes of real jobs; a refusal
 * names the field.
 */
#include "lib/protocol/control/control.h"
#include "tests/unit/unit_frame.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Statements for each member of struct control_spec. */
#define SPEC_GREATEST(type, name, value, kind, min, max) m->spec.name = max;
#define SPEC_LEAST(type, name, value, kind, min, max) m.spec.name = min;
#define SPEC_SAME(type, name, ...) \
    ck_assert_int_eq((int64_t)got.spec.name, (int64_t)m->spec.name);
#define SPEC_USUAL(type, name, ...) \
    ck_assert_int_eq((int64_t)m.spec.name, (int64_t)usual.name);
#define SPEC_NAME(type, name, ...) #name,

static void make_launch(struct control_launch *m, int rank_count)
{
    int i;

    memset(m, 0, sizeof(*m));
    m->job_id = hb_xstrdup("0123456789abcdef0123456789abcdef");
    m->host = hb_xstrdup("node1");
    m->host_index = 1;
    hb_strv_add(&m->peers, "10.0.0.1");
    hb_strv_add(&m->peers, "");
    hb_strv_add(&m->peers, "fd00::3");
    m->cwd = hb_xstrdup("/home/u\xff");
    for (i = 0; i < 32; i++)
        m->secret[i] = (unsigned char)(i * 9);
    m->size = rank_count + 4;
    hb_strv_add(&m->argv, "./train");
    hb_strv_add(&m->argv, all_bytes());
    hb_strv_add(&m->argv, "");
    hb_strv_add(&m->argv, "{\"hex\":\"41\"}");
    hb_strv_add(&m->env, "A=gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");
    hb_strv_addf(&m->env, "B=%s", all_bytes());
    hb_strv_add(&m->env, "C=line\nline\t\"quoted\" \\ \x7f");
    hb_strv_add(&m->env, "D=\xc3");
    hb_strv_add(&m->host_names, "n0");
    hb_strv_add(&m->host_names, "node1");
    hb_strv_add(&m->host_names, "n2");
    m->runs = hb_xcalloc(3, sizeof(*m->runs));
    m->run_count = 3;
    m->runs[0] = (struct control_run){0, 2};
    m->runs[1] = (struct control_run){1, rank_count};
    m->runs[2] = (struct control_run){2, 2};
    m->ranks = hb_xcalloc((size_t)rank_count, sizeof(*m->ranks));
    m->rank_count = rank_count;
    for (i = 0; i < rank_count; i++) {
        struct control_rank *r = &m->ranks[i];

        r->rank = 2 + i;
        r->local_rank = i;
        r->local_size = rank_count;
        r->cross_rank = 1;
        r->cross_size = 3;
        r->stdin_open = i == 0;
        r->is_idle = i == 1;
        hb_strv_addf(&r->env, "RANK=%d", 2 + i);
    }
    CONTROL_SPEC(SPEC_GREATEST)
    m->output_window = CONTROL_OUTPUT_WINDOW_MIN;
    m->trace = 1;
    m->limits[CONTROL_LIMIT_NOFILE] = (struct control_soft_limit){1, 777};
    m->limits[CONTROL_LIMIT_CORE] =
        (struct control_soft_limit){1, RLIM_INFINITY};
}

static void check_same_strv(const struct hb_strv *a, const struct hb_strv *b)
{
    size_t i;

    ck_assert_uint_eq(a->count, b->count);
    for (i = 0; i < a->count; i++)
        ck_assert_str_eq(a->items[i], b->items[i]);
}

static void check_same_rank(const struct control_rank *a,
                            const struct control_rank *b)
{
    ck_assert_int_eq(a->rank, b->rank);
    ck_assert_int_eq(a->local_rank, b->local_rank);
    ck_assert_int_eq(a->local_size, b->local_size);
    ck_assert_int_eq(a->cross_rank, b->cross_rank);
    ck_assert_int_eq(a->cross_size, b->cross_size);
    ck_assert_int_eq(a->stdin_open, b->stdin_open);
    ck_assert_int_eq(a->is_idle, b->is_idle);
    check_same_strv(&a->env, &b->env);
}

/* Checks that both say the same about where each rank is. */
static void check_same_hosts(const struct control_launch *a,
                             const struct control_launch *b)
{
    int *got = hb_xcalloc((size_t)a->size, sizeof(*got));
    int *wanted = hb_xcalloc((size_t)b->size, sizeof(*wanted));

    control_rank_hosts(a, got);
    control_rank_hosts(b, wanted);
    ck_assert_int_eq(a->size, b->size);
    ck_assert_mem_eq(got, wanted, (size_t)a->size * sizeof(*got));
    hb_free(got);
    hb_free(wanted);
}

static void check_launch_round_trip(const struct control_launch *m)
{
    struct hb_buf b = HB_BUF_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct control_launch got;
    struct frame f;
    int i;

    ck_assert_int_eq(control_encode_launch(&b, m), 0);
    f = only_frame(&b, CONTROL_LAUNCH);
    ck_assert_msg(control_decode_launch(f.payload, f.len, &got, &err) == 0,
                  "%s", err.text);
    ck_assert_str_eq(got.job_id, m->job_id);
    ck_assert_str_eq(got.host, m->host);
    ck_assert_int_eq(got.host_index, m->host_index);
    check_same_strv(&got.peers, &m->peers);
    check_same_strv(&got.host_names, &m->host_names);
    check_same_hosts(&got, m);
    ck_assert_mem_eq(got.secret, m->secret, sizeof(m->secret));
    ck_assert_int_eq(got.size, m->size);
    ck_assert_str_eq(got.cwd, m->cwd);
    check_same_strv(&got.argv, &m->argv);
    check_same_strv(&got.env, &m->env);
    ck_assert_int_eq(got.rank_count, m->rank_count);
    for (i = 0; i < m->rank_count; i++)
        check_same_rank(&got.ranks[i], &m->ranks[i]);
    CONTROL_SPEC(SPEC_SAME)
    ck_assert_int_eq(got.output_window, m->output_window);
    ck_assert_int_eq(got.trace, m->trace);
    for (i = 0; i < CONTROL_LIMIT_COUNT; i++) {
        ck_assert_int_eq(got.limits[i].given, m->limits[i].given);
        ck_assert_uint_eq(got.limits[i].value, m->limits[i].value);
    }
    control_launch_fini(&got);
    control_launch_fini(&got);
    hb_buf_free(&b);
}

START_TEST(test_launch_round_trip)
{
    struct control_launch m;

    make_launch(&m, 1);
    check_launch_round_trip(&m);
    control_launch_fini(&m);
    make_launch(&m, 3);
    CONTROL_SPEC(SPEC_LEAST)
    m.output_window = 0;
    m.limits[CONTROL_LIMIT_CORE].value = 0;
    check_launch_round_trip(&m);
    control_launch_fini(&m);
}
END_TEST

/* As large as jobs get: 1024 ranks and 200 kB of environment, none of it UTF-8,
 * which doubles its size. */
START_TEST(test_large_launch)
{
    struct control_launch m;
    char *value = hb_xmalloc(100001);
    int i;

    make_launch(&m, CONTROL_LOCAL_MAX);
    memset(value, 'v', 100000);
    value[100000] = '\0';
    hb_strv_addf(&m.env, "TEXT=%s", value);
    memset(value, 0xfe, 100000);
    hb_strv_addf(&m.env, "BYTES=%s", value);
    for (i = 0; i < 500; i++)
        hb_strv_addf(&m.env, "NAME_%d=%0200d", i, i);
    for (i = 0; i < m.rank_count; i++)
        hb_strv_addf(&m.ranks[i].env, "CUDA_VISIBLE_DEVICES=%0300d", i);
    check_launch_round_trip(&m);
    control_launch_fini(&m);
    hb_free(value);
}
END_TEST

START_TEST(test_too_large_to_send)
{
    struct control_launch m;
    struct hb_buf b = HB_BUF_INIT;
    char *value = hb_xmalloc(FRAME_PAYLOAD_MAX);

    make_launch(&m, 1);
    memset(value, 'v', FRAME_PAYLOAD_MAX - 1);
    value[FRAME_PAYLOAD_MAX - 1] = '\0';
    hb_strv_add(&m.env, value);
    ck_assert_int_eq(control_encode_launch(&b, &m), -HVD_EINVAL);
    ck_assert_uint_eq(hb_buf_len(&b), 0);
    control_launch_fini(&m);
    hb_buf_free(&b);
    hb_free(value);
}
END_TEST

START_TEST(test_secret_and_values_not_in_errors)
{
    static const char bad[] = "{\"secret\":\"abcd\"}";
    struct control_launch got;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(control_decode_launch(bad, sizeof(bad) - 1, &got, &err),
                     -HVD_EPROTO);
    ck_assert_ptr_null(strstr(err.text, "abcd"));
}
END_TEST

/* A change to a good LAUNCH before it is decoded: `path` names a field,
 * `rank.x` a field of ranks[0]; value NULL removes it. */
struct change {
    const char *path, *value, *text;
};

static const struct change launch_changes[] = {
    {"job_id", NULL, "launch: field 'job_id' is missing"},
    {"job_id", "\"0123\"", "launch: field 'job_id' is not 32 hex digits"},
    {"job_id", "\"0123456789abcdef0123456789abcdeg\"",
     "launch: field 'job_id' is not 32 hex digits"},
    {"job_id", "7", "launch: field 'job_id' is not a string"},
    {"host", NULL, "launch: field 'host' is missing"},
    {"host", "\"\"", "launch: field 'host' is empty"},
    {"host", "null", "launch: field 'host' is not a string"},
    {"host", "{\"hex\":\"4\"}", "launch: field 'host' is not a string"},
    {"host", "{\"hex\":\"4g\"}", "launch: field 'host' has bad hex digits"},
    {"host", "{\"hex\":\"4100\"}", "launch: field 'host' has bad hex digits"},
    {"host", "{\"hex\":\"41\",\"x\":1}",
     "launch: field 'host' is not a string"},
    {"host", "{}", "launch: field 'host' is not a string"},
    {"host", "{\"hex\":7}", "launch: field 'host' is not a string"},
    {"host_index", "3",
     "launch: field 'peers' does not reach this host's index"},
    {"host_index", "65536",
     "launch: field 'host_index' is 65536, not from 0 to 65535"},
    {"peers", NULL, "launch: field 'peers' is missing"},
    {"peers", "{}", "launch: field 'peers' is not an array"},
    {"peers", "[\"10.0.0.1\",\"n2\"]",
     "launch: field 'peers' holds something other than addresses"},
    {"secret", NULL, "launch: field 'secret' is missing"},
    {"secret", "\"00\"", "launch: field 'secret' is not 64 hex digits"},
    {"size", NULL, "launch: field 'size' is missing"},
    {"size", "0", "launch: field 'size' is 0, not from 1 to 65536"},
    {"size", "-1", "launch: field 'size' is -1, not from 1 to 65536"},
    {"size", "65537", "launch: field 'size' is 65537, not from 1 to 65536"},
    {"size", "9223372036854775807",
     "launch: field 'size' is "
     "9223372036854775807, not from 1 to "
     "65536"},
    {"size", "2.0", "launch: field 'size' is not an integer"},
    {"size", "\"2\"", "launch: field 'size' is not an integer"},
    {"size", "1", "launch: field 'ranks' is not an array of a possible length"},
    {"cwd", NULL, "launch: field 'cwd' is missing"},
    {"cwd", "\"\"", "launch: field 'cwd' is empty"},
    {"argv", NULL, "launch: field 'argv' is missing"},
    {"argv", "[]", "launch: field 'argv' names no program"},
    {"argv", "\"x\"", "launch: field 'argv' is not an array"},
    {"argv", "[\"x\",1]", "launch: field 'argv[1]' is not a string"},
    {"env", NULL, "launch: field 'env' is missing"},
    {"env", "{}", "launch: field 'env' is not an array"},
    {"ranks", NULL, "launch: field 'ranks' is missing"},
    {"ranks", "[]", "launch: field 'ranks' is empty"},
    {"ranks", "7",
     "launch: field 'ranks' is not an array of a possible length"},
    {"ranks", "[1,2]",
     "launch: field 'ranks' holds something other than objects"},
    {"host_names", NULL, "launch: field 'host_names' is missing"},
    {"host_names", "[\"n0\",\"node1\"]",
     "launch: field 'runs' names a host that has no name"},
    {"runs", NULL, "launch: unknown field 'host_names'"},
    {"runs", "[]", "launch: field 'runs' is empty"},
    {"runs", "[{\"host\":1}]", "launch: runs[0]: field 'count' is missing"},
    {"runs", "[{\"host\":1,\"count\":0}]",
     "launch: runs[0]: field 'count' is 0, not from 1 to 65536"},
    {"runs", "[{\"host\":0,\"count\":7}]",
     "launch: field 'runs' has more ranks than the job"},
    {"runs",
     "[{\"host\":0,\"count\":2},{\"host\":1,\"count\":2},"
     "{\"host\":0,\"count\":65536}]",
     "launch: field 'runs' has more ranks than the job"},
    {"runs", "[{\"host\":0,\"count\":3},{\"host\":1,\"count\":3}]",
     "launch: field 'runs' contradicts 'ranks'"},
    {"runs", "[{\"host\":0,\"count\":2},{\"host\":1,\"count\":4}]",
     "launch: field 'runs' contradicts 'ranks'"},
    {"runs", "[{\"host\":0,\"count\":2},{\"host\":1,\"count\":2}]",
     "launch: field 'runs' does not have all ranks"},
    {"runs", "[{\"host\":0,\"count\":6}]",
     "launch: field 'runs' does not have all ranks"},
    {"wireup", "\"pmi2\"", "launch: field 'wireup' has an unknown value"},
    {"bind", "\"socket\"", "launch: field 'bind' has an unknown value"},
    {"bind", "1", "launch: field 'bind' is not a string"},
    {"gpus_per_rank", "0",
     "launch: field 'gpus_per_rank' is 0, not from 1 to 1024"},
    {"bind_gpu", "1", "launch: field 'bind_gpu' is not true or false"},
    {"grace_ms", "-1",
     "launch: field 'grace_ms' is -1, not from 0 to 86400000"},
    {"trace", "1", "launch: field 'trace' is not true or false"},
    {"output_window", NULL, "launch: field 'output_window' is missing"},
    {"output_window", "16383", "launch: field 'output_window' is too small"},
    {"output_window", "524289",
     "launch: field 'output_window' is 524289, not from 0 to 524288"},
    {"limits", NULL, "launch: field 'limits' is missing"},
    {"limits", "[]", "launch: field 'limits' is not an object"},
    {"limits", "{\"core\":-2}",
     "launch: field 'limits' holds something other than limits"},
    {"limits", "{\"nofile\":null}",
     "launch: field 'limits' holds something other than limits"},
    {"limits", "{\"cpu\":1}",
     "launch: field 'limits' holds something other than limits"},
    {"extra", "1", "launch: unknown field 'extra'"},
    {"rank.rank", NULL, "launch: ranks[0]: field 'rank' is missing"},
    {"rank.rank", "6", "launch: ranks[0]: field 'rank' is 6, not from 0 to 5"},
    {"rank.rank", "3", "launch: ranks[1]: field 'rank' is 3, not from 4 to 5"},
    {"rank.local_rank", "1",
     "launch: ranks[0]: field 'local_rank' is 1, not from 0 to 0"},
    {"rank.local_size", "3",
     "launch: ranks[0]: field 'local_size' is 3, not from 2 to 2"},
    {"rank.cross_rank", "3",
     "launch: ranks[0]: field 'cross_rank' is 3, not from 0 to 2"},
    {"rank.cross_size", "7",
     "launch: ranks[0]: field 'cross_size' is 7, not from 1 to 6"},
    {"rank.env", "[[]]", "launch: ranks[0]: field 'env[0]' is not a string"},
    {"rank.idle", "1", "launch: ranks[0]: field 'idle' is not true or false"},
    {"rank.stdin_open", "0",
     "launch: ranks[0]: field 'stdin_open' is not true or false"},
    {"rank.more", "0", "launch: ranks[0]: unknown field 'more'"},
};

static char *changed_launch(const struct change *c)
{
    struct control_launch m;
    struct hb_buf b = HB_BUF_INIT;
    json_t *root, *object;
    const char *name = c->path;
    struct frame f;
    char *text;

    make_launch(&m, 2);
    control_encode_launch(&b, &m);
    f = only_frame(&b, CONTROL_LAUNCH);
    object = root = json_loadb(f.payload, f.len, 0, NULL);
    if (strncmp(name, "rank.", 5) == 0) {
        object = json_array_get(json_object_get(root, "ranks"), 0);
        name += 5;
    }
    if (c->value)
        json_object_set_new(object, name,
                            json_loads(c->value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(object, name);
    text = json_dumps(root, 0);
    json_decref(root);
    hb_buf_free(&b);
    control_launch_fini(&m);
    return text;
}

/* What the message does not tell of the user's wishes has its default. */
START_TEST(test_launch_defaults)
{
    static const struct control_spec usual = CONTROL_SPEC_INIT;
    static const char *const names[] = {CONTROL_SPEC(SPEC_NAME)};
    struct control_launch m;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    json_t *root;
    char *text;

    make_launch(&m, 2);
    control_encode_launch(&b, &m);
    control_launch_fini(&m);
    f = only_frame(&b, CONTROL_LAUNCH);
    root = json_loadb(f.payload, f.len, 0, NULL);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_int_eq(json_object_del(root, names[i]), 0);
    text = json_dumps(root, 0);
    json_decref(root);
    hb_buf_free(&b);
    ck_assert_int_eq(control_decode_launch(text, strlen(text), &m, NULL), 0);
    hb_free(text);
    CONTROL_SPEC(SPEC_USUAL)
    control_launch_fini(&m);
}
END_TEST

/* A job of one host has no map: all ranks are on the host itself. */
START_TEST(test_launch_without_a_map)
{
    struct control_launch m;
    int hosts[6];

    make_launch(&m, 2);
    control_rank_hosts(&m, hosts);
    ck_assert_int_eq(hosts[1], 0);
    ck_assert_int_eq(hosts[3], 1);
    ck_assert_int_eq(hosts[5], 2);
    m.run_count = 0;
    hb_strv_free(&m.host_names);
    control_rank_hosts(&m, hosts);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(hosts[i], 1);
    check_launch_round_trip(&m);
    control_launch_fini(&m);
}
END_TEST

/* HOSTS replaces the map of a LAUNCH, or leaves it as it is. */
START_TEST(test_hosts)
{
    static const char *const bad[] = {
        "{}",
        "{\"peers\":[\"\"],\"host_names\":[\"a\"],"
        "\"runs\":[{\"host\":0,\"count\":6}]}",
        "{\"peers\":[\"\",\"\"],\"host_names\":[\"a\",\"b\"],"
        "\"runs\":[{\"host\":2,\"count\":6}]}",
        "{\"peers\":[\"\",\"\"],\"host_names\":[\"a\",\"b\"],"
        "\"runs\":[{\"host\":-2,\"count\":6}]}",
    };
    struct control_launch m, next;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    int hosts[6];

    make_launch(&m, 2);
    make_launch(&next, 2);
    hb_strv_add(&next.host_names, "new");
    hb_strv_add(&next.peers, "10.0.0.9");
    next.runs[next.run_count - 1].host = -1;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(control_decode_hosts(bad[i], strlen(bad[i]), &m, NULL),
                         -HVD_EPROTO);
    control_rank_hosts(&m, hosts);
    ck_assert_int_eq(hosts[5], 2);
    ck_assert_int_eq(control_encode_hosts(&b, &next), 0);
    f = only_frame(&b, CONTROL_HOSTS);
    ck_assert_int_eq(control_decode_hosts(f.payload, f.len, &m, NULL), 0);
    control_rank_hosts(&m, hosts);
    ck_assert_int_eq(hosts[1], 0);
    ck_assert_int_eq(hosts[5], -1);
    ck_assert_uint_eq(m.host_names.count, next.host_names.count);
    ck_assert_str_eq(m.peers.items[m.peers.count - 1], "10.0.0.9");
    ck_assert_int_eq(m.rank_count, 2);
    control_launch_fini(&m);
    control_launch_fini(&next);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_launch_refusals)
{
    const struct change *c = &launch_changes[_i];
    struct hb_error err = HB_ERROR_INIT;
    struct control_launch got;
    char *text = changed_launch(c);

    ck_assert_int_eq(control_decode_launch(text, strlen(text), &got, &err),
                     -HVD_EPROTO);
    ck_assert_str_eq(err.text, c->text);
    ck_assert_ptr_null(got.ranks);
    ck_assert_ptr_null(got.host);
    ck_assert_int_eq(control_decode_launch(text, strlen(text), &got, NULL),
                     -HVD_EPROTO);
    free(text);
}
END_TEST

static int encode_launch(void *arg)
{
    struct hb_buf b = HB_BUF_INIT;
    int rc = control_encode_launch(&b, arg);

    ck_assert_int_eq(rc < 0, hb_buf_len(&b) == 0);
    hb_buf_free(&b);
    return rc;
}

static int decode_launch(void *arg)
{
    struct frame *f = arg;
    struct control_launch got;
    int rc = control_decode_launch(f->payload, f->len, &got, NULL);

    control_launch_fini(&got);
    return rc;
}

/* Decoding: only our own allocations fail (control.h says why). */
START_TEST(test_decode_allocation_failures)
{
    struct control_launch m;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    make_launch(&m, 2);
    control_encode_launch(&b, &m);
    f = only_frame(&b, CONTROL_LAUNCH);
    unit_fail_each(decode_launch, &f);
    control_launch_fini(&m);
    hb_buf_free(&b);
}
END_TEST

/* Encoding: jansson's allocations fail, too.  A run may survive that: a string
 * whose UTF-8 form could not be made still has its hex form. */
START_TEST(test_encode_allocation_failures)
{
    struct control_launch m;
    long n;
    int fired = 1;

    json_object_seed(1);
    json_set_alloc_funcs(hb_malloc, hb_free);
    make_launch(&m, 2);
    for (n = 0; fired; n++) {
        hb_alloc_fail_after(n);
        encode_launch(&m);
        fired = hb_alloc_fail_after(-1);
    }
    ck_assert_int_gt(n, 20);
    check_launch_round_trip(&m);
    control_launch_fini(&m);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
    Suite *s = suite_create("control_launch");
    TCase *c = tcase_create("launch");

    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_launch_round_trip);
    tcase_add_test(c, test_large_launch);
    tcase_add_test(c, test_too_large_to_send);
    tcase_add_test(c, test_secret_and_values_not_in_errors);
    tcase_add_test(c, test_launch_defaults);
    tcase_add_test(c, test_launch_without_a_map);
    tcase_add_test(c, test_hosts);
    tcase_add_loop_test(c, test_launch_refusals, 0, COUNT(launch_changes));
    tcase_add_test(c, test_decode_allocation_failures);
    tcase_add_test(c, test_encode_allocation_failures);
    suite_add_tcase(s, c);
    return unit_run(s);
}
