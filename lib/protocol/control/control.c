/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON control messages; see control.h.  The binary ones are in
 * control_bytes.c, the reading and writing of fields in control_json.c.
 */
#include "lib/protocol/control/control.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/protocol/control/control_json.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    CPUS_MAX = 1 << 20,
    SIGNAL_MAX = 127,
    JOB_ID_DIGITS = 32,
    INTERFACE_NAME_MAX = 64,
    PREFIX_MAX = 128,
    SPEED_MAX_MBPS = 100000000,
};

/* HELLO */

static const struct control_field interface_fields[] = {
    CONTROL_FIELD(control_interface, name, CONTROL_NONEMPTY),
    CONTROL_FIELD_INT(control_interface, index, 0, INT_MAX),
    CONTROL_FIELD(control_interface, address, CONTROL_ADDRESS),
    CONTROL_FIELD_INT(control_interface, prefix, 0, PREFIX_MAX),
    CONTROL_NAMED_INT("speed", control_interface, speed_mbps, 0,
                      SPEED_MAX_MBPS),
    CONTROL_FIELD_FLAG("up", control_interface, flags, CONTROL_INTERFACE_UP),
    CONTROL_FIELD_FLAG("loopback", control_interface, flags,
                       CONTROL_INTERFACE_LOOPBACK),
    CONTROL_FIELD_FLAG("virtual", control_interface, flags,
                       CONTROL_INTERFACE_VIRTUAL),
    CONTROL_FIELDS_END,
};

static const struct control_field hello_fields[] = {
    CONTROL_FIELD(control_hello, version, CONTROL_NONEMPTY),
    CONTROL_FIELD(control_hello, host, CONTROL_STRING),
    CONTROL_FIELD(control_hello, cpu, CONTROL_STRING),
    CONTROL_FIELD_INT(control_hello, pid, 1, INT_MAX),
    CONTROL_FIELD_INT(control_hello, cpus, 1, CPUS_MAX),
    CONTROL_FIELD(control_hello, machine, CONTROL_STRING),
    CONTROL_FIELD(control_hello, namespaces, CONTROL_STRING),
    CONTROL_FIELD_ARRAY("interfaces", control_hello, interfaces.items,
                        interfaces.count, 0, CONTROL_INTERFACES_MAX,
                        interface_fields),
    CONTROL_FIELDS_END,
};

void control_interfaces_fini(struct control_interfaces *list)
{
    for (int i = 0; i < list->count; i++)
        control_free_table(interface_fields, &list->items[i]);
    hb_free(list->items);
    memset(list, 0, sizeof(*list));
}

static void check_interfaces(struct control_fields *f, const void *m)
{
    const struct control_interfaces *list =
        &((const struct control_hello *)m)->interfaces;

    for (int i = 0; i < list->count && f->rc == 0; i++) {
        const struct control_interface *one = &list->items[i];
        struct control_fields e;
        char what[CONTROL_WHAT_MAX];

        control_element_open(f, "interfaces", i, &e, what);
        if (strlen(one->name) > INTERFACE_NAME_MAX)
            control_refuse(&e, "name", "is too long");
        control_check_range(&e, "prefix", one->prefix, 0,
                            hb_netaddr_bits(&one->address));
        f->rc = e.rc;
    }
}

static const struct control_message hello_message = {
    CONTROL_HELLO, "hello", sizeof(struct control_hello), hello_fields,
    check_interfaces};

int control_encode_hello(struct hb_buf *out, const struct control_hello *m)
{
    return control_encode_message(out, &hello_message, m);
}

void control_hello_fini(struct control_hello *m)
{
    control_message_fini(&hello_message, m);
}

int control_decode_hello(const void *p, size_t len, struct control_hello *m,
                         struct hb_error *err)
{
    return control_decode_message(&hello_message, p, len, m, err);
}

/* LAUNCH */

static const char *const bind_words[] = {
    [CONTROL_BIND_NONE] = "none",
    [CONTROL_BIND_CORE] = "core",
    [CONTROL_BIND_NUMA] = "numa",
};

static const char *const wireup_words[] = {
    [CONTROL_WIREUP_AUTO] = "auto",
    [CONTROL_WIREUP_PMIX] = "pmix",
    [CONTROL_WIREUP_PMI1] = "pmi1",
    [CONTROL_WIREUP_NONE] = "none",
};

static const struct control_field rank_fields[] = {
    CONTROL_FIELD_INT(control_rank, rank, 0, CONTROL_RANKS_MAX - 1),
    CONTROL_FIELD_INT(control_rank, local_rank, 0, CONTROL_LOCAL_MAX - 1),
    CONTROL_FIELD_INT(control_rank, local_size, 1, CONTROL_LOCAL_MAX),
    CONTROL_FIELD_INT(control_rank, cross_rank, 0, CONTROL_RANKS_MAX - 1),
    CONTROL_FIELD_INT(control_rank, cross_size, 1, CONTROL_RANKS_MAX),
    CONTROL_FIELD(control_rank, env, CONTROL_STRV),
    CONTROL_FIELD(control_rank, stdin_open, CONTROL_BOOL),
    CONTROL_NAMED("idle", control_rank, is_idle, CONTROL_BOOL),
    CONTROL_FIELDS_END,
};

static const struct control_field launch_fields[] = {
    CONTROL_FIELD(control_launch, job_id, CONTROL_STRING),
    CONTROL_FIELD_INT(control_launch, host_index, 0, CONTROL_HOSTS_MAX - 1),
    CONTROL_FIELD(control_launch, peers, CONTROL_STRV),
    CONTROL_FIELD(control_launch, secret, CONTROL_HEX),
    CONTROL_FIELD(control_launch, host, CONTROL_NONEMPTY),
    CONTROL_FIELD_INT(control_launch, size, 1, CONTROL_RANKS_MAX),
    CONTROL_FIELD(control_launch, cwd, CONTROL_NONEMPTY),
    CONTROL_FIELD(control_launch, argv, CONTROL_STRV),
    CONTROL_FIELD(control_launch, env, CONTROL_STRV),
    CONTROL_FIELD_INT(control_launch, output_window, 0, CONTROL_OUTPUT_WINDOW),
    CONTROL_FIELD(control_launch, trace, CONTROL_BOOL),
    CONTROL_FIELD_ARRAY("ranks", control_launch, ranks, rank_count, 1,
                        CONTROL_LOCAL_MAX, rank_fields),
    CONTROL_FIELDS_END,
};

static const struct control_field run_fields[] = {
    CONTROL_FIELD_INT(control_run, host, -1, CONTROL_HOSTS_MAX - 1),
    CONTROL_FIELD_INT(control_run, count, 1, CONTROL_RANKS_MAX),
    CONTROL_FIELDS_END,
};

/* Only in a job of several hosts. */
static const struct control_field map_fields[] = {
    CONTROL_FIELD(control_launch, host_names, CONTROL_STRV),
    CONTROL_FIELD_ARRAY("runs", control_launch, runs, run_count, 1,
                        CONTROL_RANKS_MAX, run_fields),
    CONTROL_FIELDS_END,
};

/* clang-format off */
#define SPEC_WORDS(name) \
    _Generic(((struct control_spec *)NULL)->name, \
             enum control_bind: bind_words, \
             enum control_wireup: wireup_words, \
             default: NULL)
#define SPEC_FIELD(type, name, value, kind, min, max) \
    { #name, CONTROL_##kind, CONTROL_MEMBER(control_spec, name), min, max, \
      SPEC_WORDS(name), 0, NULL },
static const struct control_field spec_fields[] = {
    CONTROL_SPEC(SPEC_FIELD)
    CONTROL_FIELDS_END,
};
/* clang-format on */

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
    control_put_table(&b, launch_fields, m);
    if (m->run_count > 0)
        control_put_table(&b, map_fields, m);
    control_put_table(&b, spec_fields, &m->spec);
    control_put(&b, "limits", encode_limits(m));
    return control_builder_finish(&b, out, CONTROL_LAUNCH);
}

void control_launch_fini(struct control_launch *m)
{
    control_free_table(launch_fields, m);
    control_free_table(map_fields, m);
    explicit_bzero(m, sizeof(*m));
}

static void check_job_id(struct control_fields *f, const char *job_id)
{
    unsigned char id[JOB_ID_DIGITS / 2];

    if (strlen(job_id) != JOB_ID_DIGITS ||
        control_decode_hex(job_id, sizeof(id), id) < 0)
        control_refuse(f, "job_id", "is not 32 hex digits");
}

static void check_peers(struct control_fields *f,
                        const struct control_launch *m)
{
    struct hb_netaddr address;

    if (m->peers.count > 0 && (size_t)m->host_index >= m->peers.count)
        control_refuse(f, "peers", "does not reach this host's index");
    if (m->peers.count > CONTROL_HOSTS_MAX)
        control_refuse(f, "peers", "is too long");
    for (size_t i = 0; f->rc == 0 && i < m->peers.count; i++)
        if (m->peers.items[i][0] &&
            hb_netaddr_parse(m->peers.items[i], &address) < 0)
            control_refuse(f, "peers", "holds something other than addresses");
}

static void check_ranks(struct control_fields *f,
                        const struct control_launch *m)
{
    int count = m->rank_count, above = 0;

    if (count > m->size)
        control_refuse(f, "ranks", "is not an array of a possible length");
    for (int i = 0; i < count && f->rc == 0; i++) {
        const struct control_rank *r = &m->ranks[i];
        struct control_fields e;
        char what[CONTROL_WHAT_MAX];

        control_element_open(f, "ranks", i, &e, what);
        /* Ascending, and therefore distinct. */
        control_check_range(&e, "rank", r->rank, above, m->size - 1);
        control_check_range(&e, "local_rank", r->local_rank, i, i);
        control_check_range(&e, "local_size", r->local_size, count, count);
        control_check_range(&e, "cross_size", r->cross_size, 1, m->size);
        control_check_range(&e, "cross_rank", r->cross_rank, 0,
                            r->cross_size - 1);
        above = r->rank + 1;
        f->rc = e.rc;
    }
}

void control_rank_hosts(const struct control_launch *m, int *hosts)
{
    int rank = 0;

    for (int i = 0; i < m->run_count; i++)
        for (int n = 0; n < m->runs[i].count; n++)
            hosts[rank++] = m->runs[i].host;
    for (; rank < m->size; rank++)
        hosts[rank] = m->host_index;
}

/* Checks the map of all ranks against `m`'s own ranks. */
static void check_map(struct control_fields *f, const struct control_launch *m)
{
    int rank = 0, local = 0;

    for (int i = 0; i < m->run_count && f->rc == 0; i++) {
        const struct control_run *run = &m->runs[i];

        if (run->host >= (int)m->host_names.count)
            control_refuse(f, "runs", "names a host that has no name");
        if (run->count > m->size - rank)
            control_refuse(f, "runs", "has more ranks than the job");
        for (int n = 0; n < run->count && f->rc == 0; n++, rank++)
            if (run->host == m->host_index &&
                (local == m->rank_count || m->ranks[local++].rank != rank))
                control_refuse(f, "runs", "contradicts 'ranks'");
    }
    if (m->run_count > 0 && (rank < m->size || local < m->rank_count))
        control_refuse(f, "runs", "does not have all ranks");
}

/* Checks what launch_fields cannot. */
static void check_launch(struct control_fields *f,
                         const struct control_launch *m)
{
    check_job_id(f, m->job_id);
    check_peers(f, m);
    if (m->argv.count == 0)
        control_refuse(f, "argv", "names no program");
    if (m->output_window > 0 && m->output_window < CONTROL_OUTPUT_WINDOW_MIN)
        control_refuse(f, "output_window", "is too small");
    check_ranks(f, m);
    check_map(f, m);
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
    control_fields_open(&f, "launch", p, len, SIZE_MAX, err);
    control_take_table(&f, launch_fields, m);
    if (f.rc == 0 && json_object_get(f.object, "runs"))
        control_take_table(&f, map_fields, m);
    if (f.rc == 0)
        check_launch(&f, m);
    control_take_present(&f, spec_fields, &m->spec);
    take_limits(&f, m);
    rc = control_fields_close(&f);
    if (rc < 0)
        control_launch_fini(m);
    return rc;
}

/* HOSTS */

static const struct control_field peers_fields[] = {
    CONTROL_FIELD(control_launch, peers, CONTROL_STRV),
    CONTROL_FIELDS_END,
};

int control_encode_hosts(struct hb_buf *out, const struct control_launch *m)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put_table(&b, peers_fields, m);
    control_put_table(&b, map_fields, m);
    return control_builder_finish(&b, out, CONTROL_HOSTS);
}

int control_decode_hosts(const void *p, size_t len, struct control_launch *m,
                         struct hb_error *err)
{
    struct control_launch next = *m;
    struct control_fields f;
    int rc;

    memset(&next.peers, 0, sizeof(next.peers));
    memset(&next.host_names, 0, sizeof(next.host_names));
    next.runs = NULL;
    next.run_count = 0;
    control_fields_open(&f, "hosts", p, len, SIZE_MAX, err);
    control_take_table(&f, peers_fields, &next);
    control_take_table(&f, map_fields, &next);
    if (f.rc == 0) {
        check_peers(&f, &next);
        check_map(&f, &next);
    }
    rc = control_fields_close(&f);
    if (rc == 0) {
        control_free_table(peers_fields, m);
        control_free_table(map_fields, m);
        *m = next;
        return 0;
    }
    control_free_table(peers_fields, &next);
    control_free_table(map_fields, &next);
    return rc;
}

/* STARTED */

static const struct control_field pid_element[] = {
    CONTROL_ELEMENT(pid_t, CONTROL_INT, 0, INT_MAX),
    CONTROL_FIELDS_END,
};

static const struct control_field started_fields[] = {
    CONTROL_FIELD_ARRAY("pids", control_started, pids, count, 1,
                        CONTROL_LOCAL_MAX, pid_element),
    CONTROL_FIELDS_END,
};

static const struct control_message started_message = {
    CONTROL_STARTED, "started", sizeof(struct control_started), started_fields,
    NULL};

int control_encode_started(struct hb_buf *out, const struct control_started *m)
{
    return control_encode_message(out, &started_message, m);
}

void control_started_fini(struct control_started *m)
{
    control_message_fini(&started_message, m);
}

int control_decode_started(const void *p, size_t len, struct control_started *m,
                           struct hb_error *err)
{
    return control_decode_message(&started_message, p, len, m, err);
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
    CONTROL_EXITED, "exited", sizeof(struct control_exited), exited_fields,
    NULL};

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
    CONTROL_FAILED, "failed", sizeof(struct control_failed), failed_fields,
    NULL};

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
