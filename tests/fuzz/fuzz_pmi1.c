/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PMI-1 as two hosts with two ranks each see it, with whatever ranks send, in
 * any pieces.  In all cases: replies are single lines that fit; each line gets
 * at most one; nobody leaves a barrier before all are in it; a key that was put
 * is found by all ranks after the next barrier, with its value.
 *
 * The input is a list of steps: a byte for what happens, then its arguments.
 * The map of ranks to hosts is made from it, too: MPICH's way of reading
 * PMI_process_mapping must give it back.
 */
#include "lib/agent/wireup/pmi1/pmi1_server.h"
#include "lib/base/alloc.h"
#include "tests/fuzz/fuzz.h"

enum { HOSTS = 2, SLOTS = 2, PUTS_MAX = 64, MAP_MAX = 256 };

struct host {
    struct pmi1_server server;
    int waits; /* all its ranks are in the barrier */
    int lines_in[SLOTS], lines_out[SLOTS], outs[SLOTS];
};

static struct host hosts[HOSTS];
static int barriers; /* complete ones */
/* Keys that were put on one host, until the next barrier. */
static struct put {
    int host;
    char key[PMI1_KEY_MAX];
} pending[PUTS_MAX];
static int put_count;

/* ---- Events ---- */

static void on_line(void *arg, int slot, const char *line, size_t len)
{
    struct host *h = arg;

    FUZZ_CHECK(len > 0 && len <= PMI1_LINE_MAX);
    FUZZ_CHECK(memchr(line, '\n', len) == line + len - 1);
    FUZZ_CHECK(!memchr(line, '\0', len));
    FUZZ_CHECK(!h->server.ranks[slot].broken);
    FUZZ_CHECK(strncmp(line, "cmd=", 4) == 0);
    if (strncmp(line, "cmd=barrier_out", 15) == 0) {
        FUZZ_CHECK(++h->outs[slot] <= barriers);
        return;
    }
    FUZZ_CHECK(++h->lines_out[slot] <= h->lines_in[slot]);
}

static void on_connected(void *arg, int slot)
{
    struct host *h = arg;

    FUZZ_CHECK(h->server.ranks[slot].greeted);
}

static void on_finished(void *arg, int slot)
{
    struct host *h = arg;

    FUZZ_CHECK(h->server.ranks[slot].greeted);
}

static void on_abort(void *arg, int slot, int exit_code)
{
    (void)arg;
    (void)exit_code;
    FUZZ_CHECK(slot >= 0 && slot < SLOTS);
}

static void on_spawn(void *arg, int slot)
{
    struct host *h = arg;

    FUZZ_CHECK(!h->server.ranks[slot].in_spawn);
}

static void on_broken(void *arg, int slot, const char *why)
{
    (void)arg;
    FUZZ_CHECK(slot >= 0 && slot < SLOTS);
    FUZZ_CHECK(why[0] && !strchr(why, '\n'));
    fuzz_check_text(why);
}

static void on_barrier(void *arg)
{
    struct host *h = arg;

    FUZZ_CHECK(!h->waits);
    for (int i = 0; i < SLOTS; i++)
        FUZZ_CHECK(h->server.ranks[i].in_barrier);
    h->waits = 1;
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

/* ---- Steps ---- */

/* Completes the barrier if all hosts are in it. */
static void exchange(void)
{
    struct hb_buf news[HOSTS];

    for (int i = 0; i < HOSTS; i++)
        if (!hosts[i].waits)
            return;
    barriers++;
    for (int i = 0; i < HOSTS; i++) {
        news[i] = hosts[i].server.kvs.news;
        hosts[i].server.kvs.news = (struct hb_buf)HB_BUF_INIT;
    }
    for (int i = 0; i < HOSTS; i++) {
        FUZZ_CHECK(pmi1_kvs_merge(&hosts[i].server.kvs,
                                  hb_buf_data(&news[1 - i]),
                                  hb_buf_len(&news[1 - i])) == 0);
        hosts[i].waits = 0;
        pmi1_server_release(&hosts[i].server);
    }
    for (int i = 0; i < put_count; i++) {
        const char *key = pending[i].key;
        const char *value = pmi1_kvs_get(&hosts[0].server.kvs, key);
        const char *other = pmi1_kvs_get(&hosts[1].server.kvs, key);

        FUZZ_CHECK(value && other);
        for (int n = 0; n < put_count; n++) /* both hosts may have put it */
            if (pending[n].host != pending[i].host &&
                strcmp(pending[n].key, key) == 0)
                other = value;
        FUZZ_CHECK(strcmp(value, other) == 0);
    }
    put_count = 0;
    for (int i = 0; i < HOSTS; i++)
        hb_buf_free(&news[i]);
}

static void say(struct host *h, int slot, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        h->lines_in[slot] += bytes[i] == '\n';
    pmi1_server_input(&h->server, slot, bytes, len);
    exchange();
}

/* Sends a request as a client would. */
static void say_request(struct host *h, int slot, struct fuzz_input *in)
{
    static const struct {
        const char *begin, *end; /* around a byte of the input */
    } forms[] = {
        {"cmd=init x=", " pmi_version=1 pmi_subversion=1"},
        {"cmd=get_maxes x=", ""},
        {"cmd=get_my_kvsname x=", ""},
        {"cmd=get kvsname=kvs_0 key=", ""},
        {"cmd=get x=", " kvsname=kvs_0 key=PMI_process_mapping"},
        {"cmd=barrier_in x=", ""},
        {"cmd=barrier_in group=WORLD tag=", ""},
        {"cmd=finalize x=", ""},
        {"cmd=abort exitcode=", ""},
        {"mcmd=spawn\nx=", "\nendcmd"},
        {"mcmd=spawn\ntotspawns=2\nspawnssofar=", "\nendcmd"},
    };
    unsigned form = fuzz_take(in);
    char line[128], c = (char)fuzz_take(in);

    form %= sizeof(forms) / sizeof(forms[0]);
    snprintf(line, sizeof(line), "%s%c%s\n", forms[form].begin, c ? c : '0',
             forms[form].end);
    say(h, slot, line, strlen(line));
}

static void put(struct host *h, int slot, struct fuzz_input *in)
{
    struct put *p = &pending[put_count];
    char line[PMI1_LINE_MAX], value[700];
    size_t count = h->server.kvs.count,
           before = hb_buf_len(&h->server.ranks[slot].in);
    unsigned many = fuzz_take(in) + (fuzz_take(in) << 8);

    if (put_count == PUTS_MAX)
        return;
    snprintf(p->key, sizeof(p->key), "key%u", fuzz_take(in) % 100);
    p->host = (int)(h - hosts);
    memset(value, 'v', sizeof(value));
    value[many % sizeof(value)] = '\0';
    value[sizeof(value) - 1] = '\0';
    snprintf(line, sizeof(line), "cmd=put kvsname=kvs_0 key=%s value=%s\n",
             p->key, value);
    say(h, slot, line, strlen(line));
    /* Unless the line began in another, or was refused. */
    if (before == 0 && h->server.kvs.count == count + 1)
        put_count++;
}

static void say_rubbish(struct host *h, int slot, struct fuzz_input *in)
{
    size_t len;
    const char *bytes = fuzz_take_bytes(in, &len);

    say(h, slot, bytes, len);
}

/* ---- The map of ranks ---- */

/* Reads a mapping as MPICH does: blocks of (first host, hosts, ranks of each),
 * again from the first one when ranks are left. */
static void check_mapping(const char *text, const int *map, int size)
{
    int rank = 0, first, count, each, n;
    const char *p;

    FUZZ_CHECK(strncmp(text, "(vector,", 8) == 0);
    while (rank < size)
        for (p = text + 7; *p == ','; p += n) {
            FUZZ_CHECK(sscanf(p, ",(%d,%d,%d)%n", &first, &count, &each, &n) ==
                       3);
            FUZZ_CHECK(count > 0 && each > 0);
            for (int i = 0; i < count * each && rank < size; i++)
                FUZZ_CHECK(map[rank++] == first + i / each);
        }
}

static void try_mapping(struct fuzz_input *in)
{
    int map[MAP_MAX], size = 0;
    char *text;

    while (in->p < in->end && size < MAP_MAX) {
        unsigned v = fuzz_take(in);

        for (unsigned n = 0; n <= v >> 5 && size < MAP_MAX; n++)
            map[size++] = (int)(v & 31);
    }
    if (size == 0)
        return;
    text = pmi1_mapping(map, size);
    if (text)
        check_mapping(text, map, size);
    hb_free(text);
}

static void try_records(struct fuzz_input *in)
{
    struct pmi1_kvs k;
    size_t len;
    const char *bytes = fuzz_take_bytes(in, &len);

    pmi1_kvs_init(&k);
    if (pmi1_kvs_merge(&k, bytes, len) == 0)
        FUZZ_CHECK(k.bytes <= len);
    FUZZ_CHECK(hb_buf_len(&k.news) == 0);
    pmi1_kvs_fini(&k);
}

/* ---- All together ---- */

static void setup(void)
{
    static struct control_rank ranks[SLOTS];
    static struct control_run runs[] = {{0, SLOTS}, {1, SLOTS}};
    static char id[] = "0";

    memset(hosts, 0, sizeof(hosts));
    barriers = put_count = 0;
    for (int i = 0; i < HOSTS; i++) {
        const struct control_launch job = {
            .job_id = id,
            .host_index = i,
            .size = HOSTS * SLOTS,
            .ranks = ranks,
            .rank_count = SLOTS,
            .runs = runs,
            .run_count = HOSTS,
        };

        pmi1_server_init(&hosts[i].server, &job, &events, &hosts[i]);
        FUZZ_CHECK(strcmp(hosts[i].server.mapping, "(vector,(0,2,2))") == 0);
    }
}

static void step(struct fuzz_input *in)
{
    unsigned what = fuzz_take(in);
    struct host *h = &hosts[what >> 6 & 1];
    int slot = (int)(what >> 7 & 1);

    switch (what % 8) {
    case 0:
    case 1:
    case 2:
        say_request(h, slot, in);
        break;
    case 3:
    case 4:
        put(h, slot, in);
        break;
    case 5:
        say_rubbish(h, slot, in);
        break;
    case 6:
        try_records(in);
        break;
    default:
        try_mapping(in);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};

    setup();
    while (in.p < in.end)
        step(&in);
    for (int i = 0; i < HOSTS; i++)
        pmi1_server_fini(&hosts[i].server);
    return 0;
}
