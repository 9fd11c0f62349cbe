/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-1's lines; see pmi1_server.h. */
#include "lib/agent/wireup/pmi1/pmi1_server.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/text.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 16 };

/* The KEY=VALUE words of a line, which they point into. */
struct words {
    int count;
    struct {
        const char *key, *value;
    } word[WORDS_MAX];
};

static const char *word_of(const struct words *w, const char *key)
{
    for (int i = 0; i < w->count; i++)
        if (strcmp(w->word[i].key, key) == 0)
            return w->word[i].value;
    return NULL;
}

/* Splits `line` in place.  Words without `=` are parts of a text, such as
 * abort's message, and are left out. */
static void split(char *line, struct words *w)
{
    char *rest = line, *word, *equals;

    w->count = 0;
    while (w->count < WORDS_MAX && (word = strsep(&rest, " "))) {
        equals = strchr(word, '=');
        if (!equals)
            continue;
        *equals = '\0';
        w->word[w->count].key = word;
        w->word[w->count++].value = equals + 1;
    }
}

/* ---- Replies ---- */

static void __attribute__((format(printf, 3, 4)))
reply(struct pmi1_server *s, int slot, const char *fmt, ...)
{
    char line[PMI1_LINE_MAX];
    va_list ap;
    int len;

    va_start(ap, fmt);
    len = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    assert(len > 0 && len < PMI1_LINE_MAX);
    line[len] = '\n';
    s->events->on_line(s->arg, slot, line, (size_t)len + 1);
}

static void __attribute__((format(printf, 3, 4)))
broken(struct pmi1_server *s, int slot, const char *fmt, ...)
{
    char why[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    hb_text_sanitize(why);
    s->ranks[slot].broken = 1;
    s->events->on_broken(s->arg, slot, why);
}

/* ---- Requests ---- */

static void on_init(struct pmi1_server *s, int slot, const struct words *w)
{
    const char *version = word_of(w, "pmi_version");

    if (!version || strcmp(version, "1") != 0) {
        reply(s, slot,
              "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1");
        broken(s, slot,
               "its MPI asks for version %.20s of PMI; hvdrun speaks "
               "version 1",
               version ? version : "?");
        return;
    }
    s->ranks[slot].greeted = 1;
    s->events->on_connected(s->arg, slot);
    reply(s, slot, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
}

static void on_get_maxes(struct pmi1_server *s, int slot, const struct words *w)
{
    (void)w;
    reply(s, slot, "cmd=maxes kvsname_max=256 keylen_max=%d vallen_max=%d",
          PMI1_KEY_MAX, PMI1_VALUE_OFFER);
}

static void on_get_appnum(struct pmi1_server *s, int slot,
                          const struct words *w)
{
    (void)w;
    reply(s, slot, "cmd=appnum appnum=0");
}

static void on_get_name(struct pmi1_server *s, int slot, const struct words *w)
{
    (void)w;
    reply(s, slot, "cmd=my_kvsname kvsname=%s", s->name);
}

static void on_get_universe(struct pmi1_server *s, int slot,
                            const struct words *w)
{
    (void)w;
    reply(s, slot, "cmd=universe_size size=%d rc=0", s->size);
}

static int is_own_space(const struct pmi1_server *s, const struct words *w)
{
    const char *name = word_of(w, "kvsname");

    return name && strcmp(name, s->name) == 0;
}

/* Puts a key; returns why that is refused, or NULL. */
static const char *put(struct pmi1_server *s, struct pmi1_rank *r,
                       const struct words *w)
{
    static const char *const refusals[] = {
        [PMI1_PUT_OK] = NULL,
        [PMI1_PUT_INVALID] = "invalid_key_or_value",
        [PMI1_PUT_DUPLICATE] = "duplicate_key",
        [PMI1_PUT_FULL] = "no_space",
    };
    const char *key = word_of(w, "key"), *value = word_of(w, "value");
    size_t bytes;
    enum pmi1_put how;

    if (!is_own_space(s, w))
        return "unknown_kvsname";
    if (!key || !value)
        return refusals[PMI1_PUT_INVALID];
    bytes = strlen(key) + strlen(value);
    if (r->key_count >= PMI1_RANK_KEYS_MAX ||
        r->key_bytes + bytes > PMI1_RANK_BYTES_MAX)
        return refusals[PMI1_PUT_FULL];
    how = pmi1_kvs_put(&s->kvs, key, value);
    r->key_count += how == PMI1_PUT_OK;
    r->key_bytes += how == PMI1_PUT_OK ? bytes : 0;
    return refusals[how];
}

static void on_put(struct pmi1_server *s, int slot, const struct words *w)
{
    const char *refusal = put(s, &s->ranks[slot], w);

    if (refusal)
        reply(s, slot, "cmd=put_result rc=-1 msg=%s", refusal);
    else
        reply(s, slot, "cmd=put_result rc=0 msg=success");
}

static void on_get(struct pmi1_server *s, int slot, const struct words *w)
{
    const char *key = word_of(w, "key"), *value = NULL;

    if (!key || strlen(key) >= PMI1_KEY_MAX)
        key = "?";
    else if (strcmp(key, "PMI_process_mapping") == 0)
        value = s->mapping;
    else if (is_own_space(s, w))
        value = pmi1_kvs_get(&s->kvs, key);
    if (value)
        reply(s, slot, "cmd=get_result rc=0 msg=success value=%s", value);
    else
        reply(s, slot,
              "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown", key);
}

static void on_barrier(struct pmi1_server *s, int slot, const struct words *w)
{
    const char *group = word_of(w, "group"); /* since PMI 1.2 */
    struct pmi1_rank *r = &s->ranks[slot];

    if (group && strcmp(group, "WORLD") != 0) {
        broken(s, slot, "its MPI asks for a barrier of the group %.40s only",
               group);
        return;
    }
    if (r->in_barrier) {
        broken(s, slot, "it entered a barrier of PMI twice");
        return;
    }
    r->in_barrier = 1;
    if (++s->waiting == s->rank_count)
        s->events->on_barrier(s->arg);
}

void pmi1_server_release(struct pmi1_server *s)
{
    s->waiting = 0;
    for (int i = 0; i < s->rank_count; i++) {
        s->ranks[i].in_barrier = 0;
        if (!s->ranks[i].broken)
            reply(s, i, "cmd=barrier_out rc=0");
    }
}

static void on_finalize(struct pmi1_server *s, int slot, const struct words *w)
{
    (void)w;
    s->ranks[slot].finished = 1;
    s->events->on_finished(s->arg, slot);
    reply(s, slot, "cmd=finalize_ack");
}

static void on_abort(struct pmi1_server *s, int slot, const struct words *w)
{
    const char *text = word_of(w, "exitcode");
    int64_t code = 1;

    if (!text || hb_parse_i64(text, INT_MIN, INT_MAX, &code, NULL) < 0)
        code = 1;
    s->ranks[slot].broken = 1; /* nothing can follow */
    s->events->on_abort(s->arg, slot, (int)code);
}

static void on_publish(struct pmi1_server *s, int slot, const struct words *w)
{
    (void)w;
    reply(s, slot, "cmd=publish_result info=failed rc=-1 msg=not_supported");
}

static void on_unpublish(struct pmi1_server *s, int slot, const struct words *w)
{
    (void)w;
    reply(s, slot, "cmd=unpublish_result info=failed rc=-1 msg=not_supported");
}

static void on_lookup(struct pmi1_server *s, int slot, const struct words *w)
{
    (void)w;
    reply(s, slot, "cmd=lookup_result info=failed rc=-1 msg=not_supported");
}

static const struct request {
    const char *name;
    void (*handle)(struct pmi1_server *s, int slot, const struct words *w);
} requests[] = {
    {"init", on_init},
    {"get_maxes", on_get_maxes},
    {"get_appnum", on_get_appnum},
    {"get_my_kvsname", on_get_name},
    {"get_universe_size", on_get_universe},
    {"put", on_put},
    {"get", on_get},
    {"barrier_in", on_barrier},
    {"finalize", on_finalize},
    {"abort", on_abort},
    {"publish_name", on_publish},
    {"unpublish_name", on_unpublish},
    {"lookup_name", on_lookup},
};
enum { REQUESTS = sizeof(requests) / sizeof(requests[0]) };

static int number_after(const char *line, const char *key, int current)
{
    size_t len = strlen(key);
    int64_t value = current;

    if (strncmp(line, key, len) == 0)
        (void)hb_parse_i64(line + len, 1, INT_MAX, &value, NULL);
    return (int)value;
}

static void begin_spawn(struct pmi1_rank *r)
{
    r->in_spawn = 1;
    r->spawn = r->spawns = 1;
}

/* Takes a line of mcmd=spawn, which ends with endcmd.  MPI_Comm_spawn_multiple
 * sends a block for each command, and awaits one reply. */
static void take_spawn(struct pmi1_server *s, int slot, const char *line)
{
    struct pmi1_rank *r = &s->ranks[slot];

    r->spawn = number_after(line, "spawnssofar=", r->spawn);
    r->spawns = number_after(line, "totspawns=", r->spawns);
    if (strcmp(line, "endcmd") != 0)
        return;
    r->in_spawn = 0;
    if (r->spawn < r->spawns)
        return;
    s->events->on_spawn(s->arg, slot);
    reply(s, slot, "cmd=spawn_result rc=-1 msg=not_supported");
}

static void handle_command(struct pmi1_server *s, int slot,
                           const struct words *w)
{
    const struct pmi1_rank *r = &s->ranks[slot];
    const char *name = word_of(w, "cmd");
    const struct request *request = requests;

    while (request < requests + REQUESTS &&
           (!name || strcmp(request->name, name) != 0))
        request++;
    if (request == requests + REQUESTS)
        broken(s, slot, "its MPI sent the unknown PMI request \"%.40s\"",
               name ? name : "");
    else if (r->greeted == (request->handle == on_init) || r->finished)
        broken(s, slot, "its MPI sent the PMI request %s out of order",
               request->name);
    else
        request->handle(s, slot, w);
}

/* Handles a line without its end. */
static void handle_line(struct pmi1_server *s, int slot, char *line)
{
    struct pmi1_rank *r = &s->ranks[slot];
    struct words w;

    if (r->in_spawn) {
        take_spawn(s, slot, line);
        return;
    }
    if (r->greeted && !r->finished && strcmp(line, "mcmd=spawn") == 0) {
        begin_spawn(r);
        return;
    }
    split(line, &w);
    handle_command(s, slot, &w);
}

void pmi1_server_input(struct pmi1_server *s, int slot, const char *bytes,
                       size_t len)
{
    struct pmi1_rank *r = &s->ranks[slot];
    char line[PMI1_LINE_MAX];

    if (r->broken)
        return;
    hb_must(hb_buf_append(&r->in, bytes, len));
    while (!r->broken && hb_buf_len(&r->in) > 0) {
        const char *start = hb_buf_data(&r->in);
        const char *end = memchr(start, '\n', hb_buf_len(&r->in));
        size_t n = end ? (size_t)(end - start) : hb_buf_len(&r->in);

        if (n >= PMI1_LINE_MAX || memchr(start, '\0', n)) {
            broken(s, slot, "what it sent is not PMI's protocol");
            break;
        }
        if (!end)
            return;
        memcpy(line, start, n);
        line[n] = '\0';
        hb_buf_consume(&r->in, n + 1);
        handle_line(s, slot, line);
    }
    if (r->broken)
        hb_buf_free(&r->in);
}

/* ---- Opening and closing ---- */

void pmi1_server_init(struct pmi1_server *s, const struct control_launch *job,
                      const struct pmi1_events *events, void *arg)
{
    int *hosts = hb_xcalloc((size_t)job->size + 1, sizeof(*hosts));

    memset(s, 0, sizeof(*s));
    s->events = events;
    s->arg = arg;
    s->size = job->size;
    s->rank_count = job->rank_count;
    s->ranks = hb_xcalloc((size_t)job->rank_count, sizeof(*s->ranks));
    snprintf(s->name, sizeof(s->name), "kvs_%.32s", job->job_id);
    control_rank_hosts(job, hosts);
    s->mapping = pmi1_mapping(hosts, job->size);
    hb_free(hosts);
    pmi1_kvs_init(&s->kvs);
}

void pmi1_server_fini(struct pmi1_server *s)
{
    for (int i = 0; s->ranks && i < s->rank_count; i++)
        hb_buf_free(&s->ranks[i].in);
    hb_free(s->ranks);
    hb_free(s->mapping);
    pmi1_kvs_fini(&s->kvs);
    memset(s, 0, sizeof(*s));
}
