/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON control messages; see control.h.  The binary ones are in
 * control_bytes.c, the reading and writing of fields in control_json.c.
 */
#include "lib/protocol/control/control.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/protocol/control/control_json.h"
#include "lib/protocol/control/control_route_json.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    CPUS_MAX = 1 << 20,
    GPUS_MAX = 1024,
    SIGNAL_MAX = 127,
    JOB_ID_DIGITS = 32,
};

/* HELLO */

static const struct control_field hello_fields[] = {
    CONTROL_FIELD(control_hello, version, CONTROL_NONEMPTY),
    CONTROL_FIELD(control_hello, host, CONTROL_STRING),
    CONTROL_FIELD(control_hello, cpu, CONTROL_STRING),
    CONTROL_FIELD_INT(control_hello, pid, 1, INT_MAX),
    CONTROL_FIELD_INT(control_hello, cpus, 1, CPUS_MAX),
    CONTROL_FIELD(control_hello, machine, CONTROL_STRING),
    CONTROL_FIELD(control_hello, namespaces, CONTROL_STRING),
    CONTROL_FIELDS_END,
};

int control_encode_hello(struct hb_buf *out, const struct control_hello *m)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put_table(&b, hello_fields, m);
    control_put(&b, "interfaces", control_json_interfaces(&m->interfaces));
    return control_builder_finish(&b, out, CONTROL_HELLO);
}

void control_hello_fini(struct control_hello *m)
{
    control_free_table(hello_fields, m);
    control_interfaces_fini(&m->interfaces);
    memset(m, 0, sizeof(*m));
}

int control_decode_hello(const void *p, size_t len, struct control_hello *m,
                         struct hb_error *err)
{
    struct control_fields f;
    int rc;

    memset(m, 0, sizeof(*m));
    control_fields_open(&f, "hello", p, len, err);
    control_take_table(&f, hello_fields, m);
    control_take_interfaces(&f, "interfaces", &m->interfaces);
    rc = control_fields_close(&f);
    if (rc < 0)
        control_hello_fini(m);
    return rc;
}

/* LAUNCH */

static const char *const bind_words[] = {
    [CONTROL_BIND_NONE] = "none",
    [CONTROL_BIND_CORE] = "core",
    [CONTROL_BIND_NUMA] = "numa",
};
enum { BIND_COUNT = sizeof(bind_words) / sizeof(bind_words[0]) };

static const struct control_field launch_fields[] = {
    CONTROL_FIELD(control_launch, host, CONTROL_NONEMPTY),
    CONTROL_FIELD_INT(control_launch, size, 1, CONTROL_RANKS_MAX),
    CONTROL_FIELD(control_launch, cwd, CONTROL_NONEMPTY),
    CONTROL_FIELD(control_launch, argv, CONTROL_STRV),
    CONTROL_FIELD(control_launch, env, CONTROL_STRV),
    CONTROL_FIELD_INT(control_launch, output_window, 0, CONTROL_OUTPUT_WINDOW),
    CONTROL_FIELD(control_launch, trace, CONTROL_BOOL),
    CONTROL_FIELDS_END,
};

static const struct control_field spec_fields[] = {
    CONTROL_FIELD_WORD(control_spec, bind, bind_words, BIND_COUNT),
    CONTROL_FIELD_INT(control_spec, gpus_per_rank, 1, GPUS_MAX),
    CONTROL_FIELD(control_spec, bind_gpu, CONTROL_BOOL),
    CONTROL_FIELD(control_spec, share_gpus, CONTROL_BOOL),
    CONTROL_FIELD_INT(control_spec, grace_ms, 0, CONTROL_GRACE_MAX_MS),
    CONTROL_FIELDS_END,
};

static json_t *encode_rank(const struct control_rank *r)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put_int(&b, "rank", r->rank);
    control_put_int(&b, "local_rank", r->local_rank);
    control_put_int(&b, "local_size", r->local_size);
    control_put_int(&b, "cross_rank", r->cross_rank);
    control_put_int(&b, "cross_size", r->cross_size);
    control_put(&b, "env", control_json_strv(&r->env));
    control_put_bool(&b, "stdin_open", r->stdin_open);
    if (!b.failed)
        return b.object;
    json_decref(b.object);
    return NULL;
}

static json_t *encode_ranks(const struct control_launch *m)
{
    json_t *array = json_array();
    int i;

    for (i = 0; array && i < m->rank_count; i++) {
        if (json_array_append_new(array, encode_rank(&m->ranks[i])) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static const char *const limit_words[CONTROL_LIMIT_COUNT] = {
    [CONTROL_LIMIT_NOFILE] = "nofile",
    [CONTROL_LIMIT_MEMLOCK] = "memlock",
    [CONTROL_LIMIT_CORE] = "core",
};

/* Encodes the limits that are given; -1 means unlimited. */
static json_t *encode_limits(const struct control_launch *m)
{
    json_t *object = json_object();

    for (int i = 0; object && i < CONTROL_LIMIT_COUNT; i++) {
        const struct control_soft_limit *l = &m->limits[i];

        if (l->given &&
            json_object_set_new(object, limit_words[i],
                                json_integer(l->value > INT64_MAX
                                                 ? -1
                                                 : (json_int_t)l->value)) < 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

int control_encode_launch(struct hb_buf *out, const struct control_launch *m)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put_string(&b, "job_id", m->job_id);
    control_put_int(&b, "host_index", m->host_index);
    control_put(&b, "peers", control_json_strv(&m->peers));
    control_put(&b, "secret", control_json_hex(m->secret, sizeof(m->secret)));
    control_put_table(&b, launch_fields, m);
    control_put(&b, "ranks", encode_ranks(m));
    control_put_table(&b, spec_fields, &m->spec);
    control_put(&b, "limits", encode_limits(m));
    return control_builder_finish(&b, out, CONTROL_LAUNCH);
}

void control_launch_fini(struct control_launch *m)
{
    int i;

    for (i = 0; i < m->rank_count; i++)
        hb_strv_free(&m->ranks[i].env);
    hb_free(m->ranks);
    hb_strv_free(&m->peers);
    hb_free(m->job_id);
    control_free_table(launch_fields, m);
    explicit_bzero(m, sizeof(*m));
}

static void take_job_id(struct control_fields *f, struct control_launch *m)
{
    unsigned char id[JOB_ID_DIGITS / 2];

    m->job_id = control_take_string(f, "job_id");
    if (m->job_id && (strlen(m->job_id) != JOB_ID_DIGITS ||
                      control_decode_hex(m->job_id, sizeof(id), id) < 0))
        control_refuse(f, "job_id", "is not 32 hex digits");
}

static void take_secret(struct control_fields *f, struct control_launch *m)
{
    char *hex = control_take_string(f, "secret");

    if (hex && (strlen(hex) != 2 * sizeof(m->secret) ||
                control_decode_hex(hex, sizeof(m->secret), m->secret) < 0))
        control_refuse(f, "secret", "is not 64 hex digits");
    if (hex)
        explicit_bzero(hex, strlen(hex));
    hb_free(hex);
}

static void take_peers(struct control_fields *f, struct control_launch *m)
{
    struct hb_netaddr address;

    m->host_index = control_take_int(f, "host_index", 0, CONTROL_HOSTS_MAX - 1);
    control_take_strv(f, "peers", &m->peers);
    if (f->rc == 0 && m->peers.count > 0 &&
        (size_t)m->host_index >= m->peers.count)
        control_refuse(f, "peers", "does not reach this host's index");
    if (m->peers.count > CONTROL_HOSTS_MAX)
        control_refuse(f, "peers", "is too long");
    for (size_t i = 0; f->rc == 0 && i < m->peers.count; i++)
        if (m->peers.items[i][0] &&
            hb_netaddr_parse(m->peers.items[i], &address) < 0)
            control_refuse(f, "peers", "holds something other than addresses");
}

static void decode_rank(struct control_fields *f,
                        const struct control_launch *m, int index)
{
    struct control_rank *r = &m->ranks[index];
    int above = index ? m->ranks[index - 1].rank + 1 : 0;

    /* Ascending, and therefore distinct. */
    r->rank = control_take_int(f, "rank", above, m->size - 1);
    r->local_rank = control_take_int(f, "local_rank", index, index);
    r->local_size =
        control_take_int(f, "local_size", m->rank_count, m->rank_count);
    r->cross_size = control_take_int(f, "cross_size", 1, m->size);
    r->cross_rank = control_take_int(f, "cross_rank", 0, r->cross_size - 1);
    control_take_strv(f, "env", &r->env);
    r->stdin_open = control_take_bool(f, "stdin_open");
    control_nothing_left(f);
}

static void take_ranks(struct control_fields *f, struct control_launch *m)
{
    json_t *array = control_take(f, "ranks");
    size_t count = json_array_size(array);
    size_t most = m->size < CONTROL_LOCAL_MAX ? (size_t)m->size
                                              : (size_t)CONTROL_LOCAL_MAX;
    char what[64];
    int i;

    if (array && (count == 0 || count > most))
        control_refuse(f, "ranks", "is not an array of a possible length");
    if (f->rc == 0) {
        m->ranks = hb_calloc(count, sizeof(*m->ranks));
        m->rank_count = m->ranks ? (int)count : 0;
        if (!m->ranks)
            control_no_memory(f);
    }
    for (i = 0; f->rc == 0 && i < m->rank_count; i++) {
        struct control_fields one = {NULL, what, f->err, 0};

        snprintf(what, sizeof(what), "%s: ranks[%d]", f->what, i);
        one.object = json_array_get(array, (size_t)i);
        if (json_is_object(one.object))
            decode_rank(&one, m, i);
        else
            control_refuse(f, "ranks", "holds something other than objects");
        if (one.rc < 0)
            f->rc = one.rc;
    }
    json_decref(array);
}

static void take_limits(struct control_fields *f, struct control_launch *m)
{
    json_t *object = control_take(f, "limits");
    size_t known = 0;

    if (object && !json_is_object(object))
        control_refuse(f, "limits", "is not an object");
    for (int i = 0; f->rc == 0 && i < CONTROL_LIMIT_COUNT; i++) {
        json_t *value = json_object_get(object, limit_words[i]);

        if (!value)
            continue;
        known++;
        if (!json_is_integer(value) || json_integer_value(value) < -1)
            control_refuse(f, "limits", "holds something other than limits");
        m->limits[i].given = 1;
        m->limits[i].value = json_integer_value(value) < 0
                                 ? UINT64_MAX
                                 : (uint64_t)json_integer_value(value);
    }
    if (f->rc == 0 && json_object_size(object) != known)
        control_refuse(f, "limits", "holds something other than limits");
    json_decref(object);
}

int control_decode_launch(const void *p, size_t len, struct control_launch *m,
                          struct hb_error *err)
{
    struct control_fields f;
    int rc;

    memset(m, 0, sizeof(*m));
    m->spec = (struct control_spec)CONTROL_SPEC_INIT;
    /* hvdrun is trusted: it decides about everything here anyway. */
    control_fields_open_max(&f, "launch", p, len, SIZE_MAX, err);
    take_job_id(&f, m);
    take_peers(&f, m);
    take_secret(&f, m);
    control_take_table(&f, launch_fields, m);
    if (m->argv.count == 0)
        control_refuse(&f, "argv", "names no program");
    if (m->output_window > 0 && m->output_window < CONTROL_OUTPUT_WINDOW_MIN)
        control_refuse(&f, "output_window", "is too small");
    take_ranks(&f, m);
    control_take_present(&f, spec_fields, &m->spec);
    take_limits(&f, m);
    rc = control_fields_close(&f);
    if (rc < 0)
        control_launch_fini(m);
    return rc;
}

/* STARTED */

int control_encode_started(struct hb_buf *out, const struct control_started *m)
{
    json_t *pids = json_array();
    struct control_builder b;
    int i;

    control_builder_init(&b);
    for (i = 0; i < m->count; i++) {
        if (json_array_append_new(pids, json_integer(m->pids[i])) < 0)
            b.failed = 1;
    }
    control_put(&b, "pids", pids);
    return control_builder_finish(&b, out, CONTROL_STARTED);
}

void control_started_fini(struct control_started *m)
{
    hb_free(m->pids);
    memset(m, 0, sizeof(*m));
}

static void take_pids(struct control_fields *f, struct control_started *m)
{
    json_t *array = control_take(f, "pids");
    size_t count = json_array_size(array);
    int i;

    if (array && (count == 0 || count > CONTROL_LOCAL_MAX))
        control_refuse(f, "pids", "is not an array of a possible length");
    if (f->rc == 0) {
        m->pids = hb_calloc(count, sizeof(*m->pids));
        m->count = m->pids ? (int)count : 0;
        if (!m->pids)
            control_no_memory(f);
    }
    for (i = 0; f->rc == 0 && i < m->count; i++) {
        json_t *value = json_array_get(array, (size_t)i);
        json_int_t pid = json_integer_value(value);

        if (!json_is_integer(value) || pid < 0 || pid > INT_MAX)
            control_refuse(f, "pids", "holds something other than pids");
        else
            m->pids[i] = (pid_t)pid;
    }
    json_decref(array);
}

int control_decode_started(const void *p, size_t len, struct control_started *m,
                           struct hb_error *err)
{
    struct control_fields f;
    int rc;

    memset(m, 0, sizeof(*m));
    control_fields_open(&f, "started", p, len, err);
    take_pids(&f, m);
    rc = control_fields_close(&f);
    if (rc < 0)
        control_started_fini(m);
    return rc;
}

/* EXITED */

static const char *const cause_words[CONTROL_CAUSE_COUNT] = {
    [CONTROL_CAUSE_EXIT] = "exit",
    [CONTROL_CAUSE_SIGNAL] = "signal",
    [CONTROL_CAUSE_OOM] = "oom",
    [CONTROL_CAUSE_HVDRUN] = "hvdrun",
};

static const struct control_field exited_fields[] = {
    CONTROL_FIELD_INT(control_exited, rank, 0, CONTROL_RANKS_MAX - 1),
    CONTROL_FIELD_INT(control_exited, pid, 0, INT_MAX),
    CONTROL_FIELD_INT(control_exited, exit_code, 0, 255),
    CONTROL_FIELD_INT(control_exited, signal, 0, SIGNAL_MAX),
    CONTROL_FIELD(control_exited, core_dumped, CONTROL_BOOL),
    CONTROL_FIELD_WORD(control_exited, cause, cause_words, CONTROL_CAUSE_COUNT),
    CONTROL_FIELD(control_exited, detail, CONTROL_STRING),
    CONTROL_FIELD(control_exited, stderr_tail, CONTROL_STRING),
    CONTROL_FIELD_INT(control_exited, when_ns, 0, INT64_MAX),
    CONTROL_FIELD_INT(control_exited, blames, 0, CONTROL_RANKS_MAX),
    CONTROL_FIELDS_END,
};

static const struct control_message exited_message = {
    CONTROL_EXITED, "exited", sizeof(struct control_exited), exited_fields};

int control_encode_exited(struct hb_buf *out, const struct control_exited *m)
{
    if (m->when_ns > INT64_MAX)
        return -HVD_EINVAL;
    return control_encode_message(out, &exited_message, m);
}

void control_exited_fini(struct control_exited *m)
{
    control_message_fini(&exited_message, m);
}

int control_decode_exited(const void *p, size_t len, struct control_exited *m,
                          struct hb_error *err)
{
    return control_decode_message(&exited_message, p, len, m, err);
}

int control_exited_phrase(struct hb_buf *out, const struct control_exited *m)
{
    const char *detail = m->detail ? m->detail : "";
    char name[HB_SIGNAL_NAME_MAX];
    size_t at = hb_buf_len(out);
    int rc;

    if (m->signal)
        rc = hb_buf_printf(out, "killed by signal %d (%s)%s", m->signal,
                           hb_signal_name(m->signal, name),
                           m->core_dumped ? ", core dumped" : "");
    else
        rc = hb_buf_printf(out, "exit code %d", m->exit_code);
    if (rc == 0 && detail[0])
        rc = hb_buf_printf(out, ": %s", detail);
    if (rc == 0)
        hb_text_sanitize(hb_buf_data(out) + at);
    return rc;
}

/* FAILED */

static const struct control_field failed_fields[] = {
    CONTROL_FIELD_INT(control_failed, exit_code, 1, 255),
    CONTROL_FIELD(control_failed, text, CONTROL_NONEMPTY),
    CONTROL_FIELDS_END,
};

static const struct control_message failed_message = {
    CONTROL_FAILED, "failed", sizeof(struct control_failed), failed_fields};

int control_encode_failed(struct hb_buf *out, const struct control_failed *m)
{
    return control_encode_message(out, &failed_message, m);
}

void control_failed_fini(struct control_failed *m)
{
    control_message_fini(&failed_message, m);
}

int control_decode_failed(const void *p, size_t len, struct control_failed *m,
                          struct hb_error *err)
{
    return control_decode_message(&failed_message, p, len, m, err);
}
