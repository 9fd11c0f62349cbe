/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job with whatever two hosts send, in any order: well-formed frames,
 * malformed ones, bytes on stderr, ends of connections, signals.  In all cases
 * the job ends when both connections have ended; it succeeds only if its own
 * host said of each rank that it succeeded; and what hvdrun itself prints
 * cannot drive a terminal.
 *
 * If the first byte is 254, the job is elastic, and succeeds only if at least
 * two ranks did.
 *
 * If the first byte is 253, the job is elastic and grows: it begins with three
 * of four ranks, starts the fourth, and connects to hosts again that are lost.
 *
 * If the first byte is 255, the same for a survey: a host is lost at most once,
 * gives an answer only to a question, and the survey is closed once.
 *
 * The hosts are stand-ins for transports in this file.  The input is a list of
 * steps: a byte for the host and the event, then the event's arguments.
 */
#include "lib/base/alloc.h"
#include "lib/job/job.h"
#include "lib/job/survey.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/query.h"
#include "lib/transport/transport_impl.h"
#include "tests/fuzz/fuzz.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HOSTS = 2, RANKS = 4, MIN_NP = 2, TURNS_MAX = 1000 };
enum { FARS = 12, NUMBERS = 10 }; /* of a job that grows */
/* The first byte. */
enum { IS_SURVEY = 255, IS_ELASTIC = 254, IS_GROWING = 253 };

/* ---- Hosts ---- */

static struct far {
    struct transport transport; /* must be the first member */
    struct transport_config config;
    int open, ended, closing;
} fars[FARS];
static int far_count;

static int far_write(struct transport *t, const void *bytes, size_t len)
{
    (void)bytes;
    (void)len;
    return ((struct far *)t)->ended ? -HVD_ECLOSED : 0;
}

static size_t far_write_queued(const struct transport *t)
{
    (void)t;
    return 0;
}

static void far_close(struct transport *t)
{
    ((struct far *)t)->closing = 1;
}

static const struct transport_ops far_ops = {
    .write = far_write, .write_queued = far_write_queued, .close = far_close};

/* Replaces lib/transport/local.c, which would start an agent. */
int transport_open_local(const struct transport_config *config,
                         struct transport **out, struct hb_error *err)
{
    struct far *f = &fars[far_count];

    if (far_count == FARS)
        return hb_error_set(err, HVD_ESYSTEM, "no more processes");
    far_count++;
    *f = (struct far){.transport.ops = &far_ops, .config = *config, .open = 1};
    *out = &f->transport;
    return 0;
}

static void far_say(struct far *f, const void *bytes, size_t len)
{
    char *copy = fuzz_copy(bytes, len);

    if (f->open && !f->ended)
        f->config.events.on_read(f->config.arg, copy, len);
    free(copy);
}

static void far_say_buf(struct far *f, struct hb_buf *b)
{
    far_say(f, hb_buf_data(b), hb_buf_len(b));
    hb_buf_free(b);
}

static void far_end(struct far *f, const struct hb_error *err)
{
    if (f->open && !f->ended && !f->closing)
        f->config.events.on_end(f->config.arg, err);
    f->ended = 1;
}

/* Runs the loop once, as between two callbacks. */
static void turn(uv_loop_t *loop)
{
    for (int i = 0; i < far_count; i++) {
        if (!fars[i].open || !fars[i].closing)
            continue;
        fars[i].open = 0;
        fars[i].config.events.on_close(fars[i].config.arg);
    }
    uv_run(loop, UV_RUN_NOWAIT);
}

/* ---- Steps ---- */

/* Takes as many bytes as the next byte says; they stay in the input. */
static const char *take_bytes(struct fuzz_input *in, size_t *len)
{
    const char *bytes;

    *len = fuzz_take(in);
    if (*len > (size_t)(in->end - in->p))
        *len = (size_t)(in->end - in->p);
    bytes = (const char *)in->p;
    in->p += *len;
    return bytes;
}

static unsigned char succeeded[RANKS];

/* Notes the ranks of this host that an EXITED frame reports as successful. */
static void note_success(const struct far *f, const struct hb_buf *b)
{
    struct control_exited m;
    struct frame frame;

    FUZZ_CHECK(frame_decode(b, FRAME_PAYLOAD_MAX, &frame, NULL) == 1);
    if (control_decode_exited(frame.payload, frame.len, &m, NULL) == 0 &&
        m.exit_code == 0 && m.rank < RANKS && m.rank / 2 == (f - fars) % 2)
        succeeded[m.rank] = 1;
    control_exited_fini(&m);
}

static void say_hello(struct far *f, struct fuzz_input *in)
{
    struct control_hello m = {.version = (char *)HVD_VERSION,
                              .host = (char *)"far",
                              .cpu = (char *)"x86_64",
                              .machine = (char *)"",
                              .namespaces = (char *)"",
                              .pid = 7,
                              .cpus = 1 + (int)(fuzz_take(in) & 7)};
    struct hb_buf b = HB_BUF_INIT;

    FUZZ_CHECK(control_encode_hello(&b, &m) == 0);
    far_say_buf(f, &b);
}

static void say_started(struct far *f, struct fuzz_input *in)
{
    pid_t pids[4] = {11, 12, 13, 14};
    struct control_started m = {pids, 2};
    struct hb_buf b = HB_BUF_INIT;
    unsigned count = fuzz_take(in);

    if (count > 200)
        m.count = (int)(count % 5);
    FUZZ_CHECK(control_encode_started(&b, &m) == 0);
    far_say_buf(f, &b);
}

static void say_exited(struct far *f, struct fuzz_input *in)
{
    unsigned rank = fuzz_take(in) % (RANKS + 1), code = fuzz_take(in);
    char *tail;
    size_t len;
    struct control_exited m = {.rank = (int)rank,
                               .pid = 11,
                               .exit_code = (int)(code & 3),
                               .detail = (char *)"",
                               .cause = code & 4 ? CONTROL_CAUSE_HVDRUN
                                                 : CONTROL_CAUSE_EXIT,
                               .when_ns = (uint64_t)fuzz_take(in) << 32,
                               .blames = (int)(fuzz_take(in) % (RANKS + 1))};
    struct hb_buf b = HB_BUF_INIT;
    const char *bytes = take_bytes(in, &len);

    tail = fuzz_string(bytes, len);
    m.stderr_tail = tail;
    if (control_encode_exited(&b, &m) == 0) {
        note_success(f, &b);
        far_say_buf(f, &b);
    }
    hb_buf_free(&b);
    free(tail);
}

static void say_failed(struct far *f, struct fuzz_input *in)
{
    struct control_failed m = {.exit_code = (int)(fuzz_take(in) & 127)};
    struct hb_buf b = HB_BUF_INIT;
    size_t len;
    const char *bytes = take_bytes(in, &len);
    char *text = fuzz_string(bytes, len);

    m.text = text;
    if (control_encode_failed(&b, &m) == 0)
        far_say_buf(f, &b);
    hb_buf_free(&b);
    free(text);
}

static void say_output(struct far *f, struct fuzz_input *in)
{
    unsigned where = fuzz_take(in);
    struct hb_buf b = HB_BUF_INIT;
    size_t len;
    const char *bytes = take_bytes(in, &len);

    FUZZ_CHECK(control_encode_output(&b, (int)(where % (RANKS + 1)),
                                     where & 128 ? 2 : 1, bytes, len) == 0);
    far_say_buf(f, &b);
}

static void say_frame(struct far *f, struct fuzz_input *in, int type)
{
    struct hb_buf b = HB_BUF_INIT;
    size_t len;
    const char *bytes;

    if (type < 0)
        type = (int)fuzz_take(in);
    bytes = take_bytes(in, &len);
    FUZZ_CHECK(frame_encode(&b, (uint8_t)type, bytes, len) == 0);
    if (type == CONTROL_EXITED)
        note_success(f, &b);
    far_say_buf(f, &b);
}

static void moan(struct far *f, struct fuzz_input *in)
{
    size_t len;
    const char *bytes = take_bytes(in, &len);
    char *copy = fuzz_copy(bytes, len);

    if (f->open && !f->ended)
        f->config.events.on_stderr(f->config.arg, copy, len);
    free(copy);
}

static void break_off(struct far *f, struct fuzz_input *in)
{
    struct hb_error err = HB_ERROR_INIT;
    int orderly = fuzz_take(in) & 1;

    hb_error_set(&err, HVD_ECLOSED, "cut");
    far_end(f, orderly ? NULL : &err);
}

static void raise_signal(struct job *job, struct fuzz_input *in)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGCONT};

    job_signal(job, signals[fuzz_take(in) & 3], NULL);
}

static void say_ready(struct far *f, struct fuzz_input *in)
{
    unsigned what = fuzz_take(in);
    struct hb_buf b = HB_BUF_INIT;

    FUZZ_CHECK(control_encode_ready(&b, (int)(what >> 1) % (RANKS + 1),
                                    (int)(what & 1)) == 0);
    far_say_buf(f, &b);
}

static void step(struct job *job, struct fuzz_input *in)
{
    static const int elastic_types[] = {CONTROL_GOING, CONTROL_PROGRESS,
                                        CONTROL_NO_ANSWER};
    unsigned what = fuzz_take(in);
    /* Of a job that grows, also one of the last two connections. */
    int far = what >> 5 < 4 || far_count <= HOSTS
                  ? (int)(what & 1)
                  : far_count - 1 - (int)(what & 1);
    struct far *f = &fars[far];

    switch (what >> 1 & 15) {
    case 0:
        say_frame(f, in, -1);
        break;
    case 1:
        say_hello(f, in);
        break;
    case 2:
        say_started(f, in);
        break;
    case 3:
        say_exited(f, in);
        break;
    case 4:
        far_say(f, "hvD1\1\5\0\0\0\0\0\0", 12); /* DONE */
        break;
    case 5:
        say_failed(f, in);
        break;
    case 6:
        say_output(f, in);
        break;
    case 7:
        say_frame(f, in, CONTROL_QUITTING);
        break;
    case 8:
        say_frame(f, in, CONTROL_LOG);
        break;
    case 9:
        moan(f, in);
        break;
    case 10:
        break_off(f, in);
        break;
    case 11:
        raise_signal(job, in);
        break;
    case 12:
        say_frame(f, in, CONTROL_STALLED);
        break;
    case 13:
        say_frame(f, in, CONTROL_RENDEZVOUS);
        break;
    case 14:
        say_ready(f, in);
        break;
    default:
        say_frame(f, in, elastic_types[fuzz_take(in) % 3]);
        break;
    }
}

/* ---- The job ---- */

static struct host_entry entries[HOSTS] = {{.name = (char *)"a"},
                                           {.name = (char *)"b"}};
static int ranks_of[RANKS] = {0, 1, 2, 3};
static struct plan_host hosts[HOSTS] = {{&entries[0], 0, &ranks_of[0], 2},
                                        {&entries[1], 1, &ranks_of[2], 2}};
static struct plan_rank ranks[RANKS];
static struct plan plan = {ranks, RANKS, hosts, HOSTS, RANKS, HOSTS};
static struct hb_strv rank_env[RANKS];
static int done, exit_code;

static void on_done(void *arg, int code)
{
    (void)arg;
    done++;
    exit_code = code;
}

static void check_log(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    FUZZ_CHECK(!strchr(line, '\n'));
    fuzz_check_text(line);
}

/* Checks what hvdrun itself prints: all but the ranks' lines, which have
 * tags. */
static void check_output(int fd)
{
    off_t len = lseek(fd, 0, SEEK_END);
    char *text = malloc((size_t)len + 1), *line, *rest = text;

    FUZZ_CHECK(len >= 0 && text && pread(fd, text, (size_t)len, 0) == len);
    for (off_t i = 0; i < len; i++)
        if (text[i] == '\r' || text[i] == '\0')
            text[i] = '\n';
    text[len] = '\0';
    while ((line = strsep(&rest, "\n"))) {
        FUZZ_CHECK(!*line || *line == '[' || *line == ' ' ||
                   strncmp(line, "hvdrun: ", 8) == 0 || strstr(line, "]<std"));
        if (strncmp(line, "hvdrun: ", 8) == 0)
            fuzz_check_text(line);
    }
    free(text);
}

static int is_local_host(void *arg, const struct host_entry *entry)
{
    (void)arg;
    (void)entry;
    return 1;
}

/* The plan of a job that grows, and what goes with it. */
struct growth {
    struct hostlist list;
    struct plan plan;
    unsigned char host_is_local[HOSTS + 1];
    struct hb_strv rank_env[NUMBERS];
};

static void growth_init(struct growth *g, struct job_config *config)
{
    const struct plan_options options = {.num_proc = RANKS - 1};

    memset(g, 0, sizeof(*g));
    FUZZ_CHECK(hostlist_parse("a:2,b:2", &g->list, NULL) == 0);
    FUZZ_CHECK(plan_make(&g->list, &options, &g->plan, NULL) == 0);
    plan_reserve(&g->plan, NUMBERS, HOSTS + 1);
    for (int i = 0; i < HOSTS; i++)
        plan_bind(&g->plan, i, 2, g->plan.hosts[i].count);
    memset(g->host_is_local, 1, sizeof(g->host_is_local));
    config->plan = &g->plan;
    config->host_is_local = g->host_is_local;
    config->is_local = is_local_host;
    config->rank_env = g->rank_env;
    config->spec.restart = 1;
    config->restart_failed = 1;
    config->most = RANKS;
    config->names_differ = 1;
    config->cooldown_least_ms = config->cooldown_most_ms = 1;
    config->reset_limit = -1;
}

static void growth_fini(struct growth *g)
{
    for (int i = 0; i < NUMBERS; i++)
        hb_strv_free(&g->rank_env[i]);
    plan_free(&g->plan);
    hostlist_free(&g->list);
}

static void run(struct fuzz_input *in, int elastic, int growing,
                uv_loop_t *loop)
{
    struct growth growth;
    struct hb_log log = {
        .program = "fuzz", .level = HB_LOG_TRACE, .sink = check_log};
    struct job_config config = {.loop = loop,
                                .log = &log,
                                .plan = &plan,
                                .agent_path = "none",
                                .job_id = "00112233445566778899aabbccddeeff",
                                .rank_env = rank_env,
                                .cwd = "/",
                                .spec.gpus_per_rank = 1,
                                .spec.grace_ms = 0,
                                .start_timeout_ms = 3600000,
                                .stdin_rank = JOB_STDIN_NONE,
                                .tag = 1,
                                .spec.elastic = elastic,
                                .min_np = MIN_NP,
                                .reset_limit = 3,
                                .elastic_timeout_ms = 3600000};
    struct hb_error err = HB_ERROR_INIT;
    struct job *job;
    int turns = 0;

    FUZZ_CHECK(hb_strv_add(&config.argv, "true") == 0);
    if (growing)
        growth_init(&growth, &config);
    FUZZ_CHECK(job_start(&config, on_done, NULL, &job, &err) == 0);
    if (growing)
        job_offer_hosts(job, &growth.list);
    while (in->p < in->end && !done) {
        step(job, in);
        turn(loop);
    }
    while (!done && turns++ < TURNS_MAX) {
        for (int i = 0; i < far_count; i++)
            far_end(&fars[i], NULL);
        turn(loop);
    }
    FUZZ_CHECK(done == 1);
    job_free(job);
    if (growing)
        growth_fini(&growth);
    hb_strv_free(&config.argv);
}

/* ---- The survey ---- */

static int lost[HOSTS];

static void on_settled(void *arg)
{
    (void)arg;
}

static void on_closed(void *arg)
{
    (void)arg;
    done++;
}

static void on_lost(void *arg, size_t host)
{
    (void)arg;
    FUZZ_CHECK(host < HOSTS && lost[host]++ == 0);
}

/* Refuses frames of odd length, as another protocol. */
static int on_frame(void *arg, size_t host, const struct frame *f,
                    struct hb_error *err)
{
    (void)arg;
    FUZZ_CHECK(host < HOSTS && f->type != CONTROL_HELLO &&
               f->type != CONTROL_LOG && f->type != CONTROL_ANSWER);
    return f->len % 2 ? hb_error_set(err, HVD_EPROTO, "odd") : 0;
}

static void ask(struct survey *s, size_t host)
{
    json_t *question = json_object();

    FUZZ_CHECK(question);
    survey_ask(s, host, question, 3600000);
    json_decref(question);
}

static void tell_stage(struct far *f, struct fuzz_input *in)
{
    struct hb_error why = HB_ERROR_INIT;

    if (!f->open || f->ended)
        return;
    if (fuzz_take(in) & 1)
        f->config.events.on_stage(f->config.arg, "logging in");
    hb_error_set(&why, HVD_ECLOSED, "refused");
    f->config.events.on_setback(f->config.arg, &why);
}

static void survey_step(struct survey *s, struct fuzz_input *in)
{
    unsigned what = fuzz_take(in);
    size_t host = what & 1;
    struct far *f = &fars[host];
    struct hb_buf b = HB_BUF_INIT;

    switch (what >> 1 & 15) {
    case 0:
        say_frame(f, in, -1);
        break;
    case 1:
        say_hello(f, in);
        break;
    case 2:
        say_frame(f, in, CONTROL_ANSWER);
        break;
    case 3:
        ask(s, host);
        break;
    case 4:
        FUZZ_CHECK(control_encode_u32(&b, CONTROL_KILL, 0) == 0);
        (void)agent_link_send(&s->hosts[host].link, &b);
        hb_buf_free(&b);
        break;
    case 5:
        survey_wait(s, 3600000);
        break;
    case 6:
        survey_settle(s);
        break;
    case 7:
        say_frame(f, in, CONTROL_LOG);
        break;
    case 8:
        moan(f, in);
        break;
    case 9:
        break_off(f, in);
        break;
    case 10:
        tell_stage(f, in);
        break;
    case 11:
        survey_close(s);
        break;
    default:
        break;
    }
}

static void check_survey(const struct survey *s)
{
    size_t waiting = 0;

    for (int i = 0; i < HOSTS; i++) {
        const struct survey_host *h = &s->hosts[i];

        waiting += h->state == SURVEY_CONNECTING || h->state == SURVEY_ASKED;
        FUZZ_CHECK((h->state == SURVEY_LOST) == (h->error.status < 0));
        FUZZ_CHECK(!h->answer || h->state == SURVEY_IDLE);
        if (h->state == SURVEY_IDLE || h->state == SURVEY_ASKED)
            FUZZ_CHECK(strcmp(h->link.hello.version, HVD_VERSION) == 0);
        if (h->error.status < 0)
            fuzz_check_text(h->error.text);
    }
    FUZZ_CHECK(s->waiting == waiting);
}

static void run_survey(struct fuzz_input *in, uv_loop_t *loop)
{
    static const unsigned char is_local[HOSTS] = {1, 1};
    struct hb_log log = {
        .program = "fuzz", .level = HB_LOG_TRACE, .sink = check_log};
    const struct survey_config config = {.loop = loop,
                                         .log = &log,
                                         .agent_path = "none",
                                         .entries = entries,
                                         .is_local = is_local,
                                         .count = HOSTS,
                                         .start_timeout_ms = 3600000,
                                         .on_settled = on_settled,
                                         .on_closed = on_closed,
                                         .on_frame = on_frame,
                                         .on_lost = on_lost};
    struct survey *s = survey_open(&config);

    memset(lost, 0, sizeof(lost));
    while (in->p < in->end && !done) {
        survey_step(s, in);
        check_survey(s);
        turn(loop);
    }
    for (int i = 0; i < HOSTS; i++)
        far_end(&fars[i], NULL);
    check_survey(s);
    survey_close(s);
    for (int turns = 0; !done && turns < TURNS_MAX; turns++)
        turn(loop);
    FUZZ_CHECK(done == 1);
    survey_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    int is_survey = size > 0 && *data == IS_SURVEY;
    int is_growing = size > 0 && *data == IS_GROWING;
    int is_elastic = size > 0 && (*data == IS_ELASTIC || is_growing);
    int successes = 0;
    int saved[2] = {dup(1), dup(2)};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    uv_loop_t loop;

    FUZZ_CHECK(fd >= 0 && saved[0] >= 0 && saved[1] >= 0);
    FUZZ_CHECK(uv_loop_init(&loop) == 0);
    for (int i = 0; i < RANKS; i++)
        ranks[i] = (struct plan_rank){.rank = i,
                                      .local_rank = i % 2,
                                      .local_size = 2,
                                      .cross_size = 1,
                                      .host = i / 2,
                                      .is_bound = 1};
    memset(fars, 0, sizeof(fars));
    memset(succeeded, 0, sizeof(succeeded));
    far_count = done = 0;
    dup2(fd, 1);
    dup2(fd, 2);
    if (is_survey) {
        in.p++;
        run_survey(&in, &loop);
    } else {
        run(&in, is_elastic, is_growing, &loop);
    }
    dup2(saved[0], 1);
    dup2(saved[1], 2);
    FUZZ_CHECK(uv_loop_close(&loop) == 0);
    check_output(fd);
    FUZZ_CHECK(is_survey || (exit_code >= 0 && exit_code <= 255));
    for (int i = 0; i < RANKS; i++)
        successes += succeeded[i];
    FUZZ_CHECK(is_survey || is_growing || exit_code != 0 ||
               successes >= (is_elastic ? MIN_NP : RANKS));
    close(fd);
    close(saved[0]);
    close(saved[1]);
    return 0;
}
