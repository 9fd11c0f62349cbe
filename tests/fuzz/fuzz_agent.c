/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent with whatever hvdrun sends, in any order: well-formed orders,
 * malformed ones, ranks that write and end, the end of the connection, and
 * changed proofs of probes.  In all cases the agent ends when the connection
 * and its ranks have ended, and hvdrun's decoders accept all that it sends: its
 * greeting first, no more output than the window, one report.
 *
 * No process is started: launching, walking the process tree, debuggers and
 * probes to other hosts have stand-ins, here and in agent_doubles.h.  The input
 * is a list of steps: a byte for the event, then its arguments.
 */
#include "lib/agent/agent_impl.h"
#include "lib/base/alloc.h"
#include "lib/protocol/control/control_counts.h"
#include "lib/protocol/query.h"
#include "tests/fuzz/agent_doubles.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

enum { SLOTS = 3, TURNS_MAX = 64 };

/* ---- Stand-ins for what acts on the machine ---- */

static int child_fds[SLOTS][3];
static int opened; /* number of these */
static unsigned char has_ended[SLOTS];

struct launch {
    int kept;
};

static int cannot_start(struct agent *a)
{
    a->failure.exit_code = 127;
    a->failure.text = hb_xstrdup("there is no such program");
    return -HVD_EINVAL;
}

void agent_launch_drop(struct agent *a)
{
    hb_free(a->launch);
    a->launch = NULL;
}

int agent_launch_failed(struct agent *a, const struct hb_error *err)
{
    FUZZ_CHECK(err->status < 0);
    agent_launch_drop(a);
    return cannot_start(a);
}

int agent_launch(struct agent *a)
{
    struct hb_error err = HB_ERROR_INIT;

    FUZZ_CHECK(a->job.rank_count > 0 && a->job.rank_count <= CONTROL_LOCAL_MAX);
    a->ranks = hb_xcalloc((size_t)a->job.rank_count + 1, sizeof(*a->ranks));
    for (int i = 0; i < a->job.rank_count; i++)
        a->ranks[i].pidfd = -1;
    if (a->job.argv.count == 2)
        return cannot_start(a);
    FUZZ_CHECK(pump_init(&a->pump, a->config.loop, a->job.rank_count,
                         &agent_pump_events, a, &err) == 0);
    a->pump_open = 1;
    if (a->job.output_window > 0)
        a->pump.window = (uint32_t)a->job.output_window;
    FUZZ_CHECK(endpoint_init(&a->endpoint, a->config.loop, &a->job, 1, &a->log,
                             &err) == 0);
    a->endpoint_open = 1;
    endpoint_set_rendezvous(&a->endpoint, agent_ask_rendezvous, a);
    a->launch = hb_xcalloc(1, sizeof(*a->launch));
    return a->job.argv.count > 2 ? WIREUP_LATER : agent_launch_ranks(a);
}

int agent_launch_ranks(struct agent *a)
{
    struct control_started m = {.count = a->job.rank_count};
    struct hb_error err = HB_ERROR_INIT;

    agent_launch_drop(a);
    for (; opened < SLOTS && opened < a->job.rank_count; opened++) {
        FUZZ_CHECK(pump_open(&a->pump, opened, a->job.ranks[opened].stdin_open,
                             child_fds[opened], &err) == 0);
        for (int i = 0; i < 3; i++)
            fcntl(child_fds[opened][i], F_SETFL, O_NONBLOCK);
    }
    a->live = opened;
    m.pids = hb_xcalloc((size_t)m.count, sizeof(*m.pids));
    control_encode_started(&a->link.out, &m);
    hb_free(m.pids);
    link_flush(&a->link);
    return 0;
}

/* Is not reached, as agent_launch_ranks keeps nothing to start a rank from. */
int agent_launch_again(struct agent *a, int slot, struct control_failed *failed)
{
    (void)a;
    (void)slot;
    (void)failed;
    FUZZ_CHECK(0);
    return -HVD_EINVAL;
}

/* The wire-up is open, or could not be opened. */
static void wireup_opens(struct agent *a, int fails)
{
    struct hb_error err = HB_ERROR_INIT;

    if (!a->launch)
        return;
    hb_error_set(&err, HVD_ETIMEOUT, "there is no server");
    agent_wireup_events.on_open(a, fails ? &err : NULL);
}

/* ---- What the agent says ---- */

static uv_loop_t loop;
static struct agent *agent;
static int to_agent, from_agent;
static struct hb_buf heard;
static int frames, reports, starts;
static uint64_t in_flight, window; /* bytes of OUTPUT */
static int overpaid;               /* more acknowledged than sent */

static void check_output(const struct frame *f)
{
    struct control_bytes m;
    int known = 0;

    FUZZ_CHECK(control_decode_output(f->payload, f->len, &m, NULL) == 0);
    for (int i = 0; i < agent->job.rank_count; i++)
        known |= agent->job.ranks[i].rank == m.rank;
    in_flight += m.len;
    FUZZ_CHECK(known && (overpaid || in_flight <= window));
}

static void check_words(const struct frame *f)
{
    char text[HB_ERROR_TEXT_MAX];
    int level;

    FUZZ_CHECK(control_decode_log(f->payload, f->len, &level, text,
                                  sizeof(text), NULL) == 0);
    FUZZ_CHECK(!strchr(text, '\n'));
}

/* Only ranks that were never started are reported here. */
static void check_exited(const struct frame *f)
{
    struct control_exited m;

    FUZZ_CHECK(control_decode_exited(f->payload, f->len, &m, NULL) == 0);
    FUZZ_CHECK(!starts && m.pid == 0);
    control_exited_fini(&m);
}

static void check_counts(const struct frame *f)
{
    struct control_counts m;
    int rc, at = 0;

    while ((rc = control_decode_counts(f->payload, f->len, at, &m, NULL)) > 0)
        at++;
    FUZZ_CHECK(rc == 0 && at <= CONTROL_LOCAL_MAX);
}

static void check_frame(const struct frame *f)
{
    struct control_hello hello;
    struct control_started started;
    struct control_failed failed;
    struct control_stall_ranks ranks;
    struct control_stall_stack stack;
    struct control_route_port port;
    uint64_t ping_ns, now_ns;
    uint32_t bytes;
    json_t *answer;
    int rank;

    FUZZ_CHECK((f->type == CONTROL_HELLO) == (frames++ == 0));
    FUZZ_CHECK(!reports);
    switch (f->type) {
    case CONTROL_EXITED:
        check_exited(f);
        break;
    case CONTROL_HELLO:
        FUZZ_CHECK(control_decode_hello(f->payload, f->len, &hello, NULL) == 0);
        control_hello_fini(&hello);
        break;
    case CONTROL_STARTED:
        FUZZ_CHECK(control_decode_started(f->payload, f->len, &started, NULL) ==
                   0);
        FUZZ_CHECK(!starts++);
        window = agent->pump.window;
        control_started_fini(&started);
        break;
    case CONTROL_FAILED:
        FUZZ_CHECK(control_decode_failed(f->payload, f->len, &failed, NULL) ==
                   0);
        control_failed_fini(&failed);
        reports++;
        break;
    case CONTROL_DONE:
        FUZZ_CHECK(f->len == 0);
        reports++;
        break;
    case CONTROL_OUTPUT:
        check_output(f);
        break;
    case CONTROL_STDIN_ACK:
        FUZZ_CHECK(control_decode_stdin_ack(f->payload, f->len, &rank, &bytes,
                                            NULL) == 0);
        break;
    case CONTROL_PONG:
        FUZZ_CHECK(control_decode_pong(f->payload, f->len, &ping_ns, &now_ns,
                                       NULL) == 0);
        break;
    case CONTROL_LOG:
        check_words(f);
        break;
    case CONTROL_ANSWER:
        FUZZ_CHECK(query_decode(f->payload, f->len, f->type, &answer, NULL) ==
                   0);
        json_decref(answer);
        break;
    case CONTROL_STALL_RANKS:
        FUZZ_CHECK(
            control_decode_stall_ranks(f->payload, f->len, &ranks, NULL) == 0);
        control_stall_ranks_fini(&ranks);
        break;
    case CONTROL_STALL_STACK:
        FUZZ_CHECK(
            control_decode_stall_stack(f->payload, f->len, &stack, NULL) == 0);
        control_stall_stack_fini(&stack);
        break;
    case CONTROL_COUNTS:
        check_counts(f);
        break;
    case CONTROL_ROUTE_PORT:
        FUZZ_CHECK(control_decode_route_port(f->payload, f->len, &port, NULL) ==
                   0);
        break;
    default:
        FUZZ_CHECK(f->type == CONTROL_QUITTING);
    }
}

static void listen_to_agent(void)
{
    static char bytes[64 << 10];
    struct frame f;
    ssize_t n;

    while ((n = read(from_agent, bytes, sizeof(bytes))) > 0)
        FUZZ_CHECK(hb_buf_append(&heard, bytes, (size_t)n) == 0);
    while (frame_decode(&heard, control_frame_max(&heard, frames > 0), &f,
                        NULL) == 1) {
        check_frame(&f);
        frame_done(&heard, &f);
    }
}

/* ---- Steps ---- */

static void turn(void)
{
    uv_run(&loop, UV_RUN_NOWAIT);
    listen_to_agent();
}

/* Sends a message to the agent; nothing if it has hung up. */
static void say(struct hb_buf *b)
{
    const char *p = hb_buf_data(b);
    size_t left = hb_buf_len(b);

    for (int i = 0; i < TURNS_MAX && left > 0 && to_agent >= 0; i++) {
        ssize_t n = write(to_agent, p, left);

        if (n > 0) {
            p += n;
            left -= (size_t)n;
        }
        turn();
    }
    hb_buf_free(b);
}

static void say_frame(int type, const void *bytes, size_t len)
{
    struct hb_buf b = HB_BUF_INIT;
    uint32_t v;

    if (type == CONTROL_OUTPUT_ACK &&
        control_decode_u32(bytes, len, &v, NULL) == 0) {
        overpaid |= v > in_flight;
        in_flight -= v < in_flight ? v : in_flight;
    }
    FUZZ_CHECK(frame_encode(&b, (uint8_t)type, bytes, len) == 0);
    say(&b);
}

static void say_raw(struct fuzz_input *in, int type)
{
    size_t len;
    const char *bytes;

    if (type < 0)
        type = (int)fuzz_take(in);
    bytes = fuzz_take_bytes(in, &len);
    say_frame(type, bytes, len);
}

static void say_launch(struct fuzz_input *in)
{
    unsigned how = fuzz_take(in);
    struct control_rank ranks[SLOTS];
    struct control_launch m = {
        .job_id = (char *)"0123456789abcdef0123456789abcdef",
        .host = (char *)"here",
        .size = 20,
        .cwd = (char *)"/",
        .ranks = ranks,
        .rank_count = 1 + (int)(how % SLOTS),
        .spec.gpus_per_rank = 1,
        .spec.grace_ms = how & 16 ? 0 : 1000,
        .output_window = how & 32 ? CONTROL_OUTPUT_WINDOW_MIN : 0,
    };
    struct hb_buf b = HB_BUF_INIT;

    memset(ranks, 0, sizeof(ranks));
    for (int i = 0; i < m.rank_count; i++)
        ranks[i] = (struct control_rank){.rank = 10 + 2 * i,
                                         .local_rank = i,
                                         .local_size = m.rank_count,
                                         .cross_size = 1,
                                         .stdin_open = (int)(how >> 6 & 1)};
    FUZZ_CHECK(hb_strv_add(&m.argv, "program") == 0);
    if (how & 128)
        FUZZ_CHECK(hb_strv_add(&m.argv, "that cannot start") == 0);
    if ((how & 128) && (how & 8))
        FUZZ_CHECK(hb_strv_add(&m.argv, "at once") == 0);
    if (control_encode_launch(&b, &m) == 0)
        say(&b);
    hb_buf_free(&b);
    hb_strv_free(&m.argv);
}

static void say_number(struct fuzz_input *in)
{
    static const enum control_type types[] = {
        CONTROL_OUTPUT_ACK, CONTROL_SIGNAL, CONTROL_KILL, CONTROL_TRACE_TAKEN};
    enum control_type type = types[fuzz_take(in) % 4];
    uint32_t v = fuzz_take(in) << 8;
    unsigned char bytes[4] = {0, 0, 0, 0};

    v |= fuzz_take(in);
    bytes[2] = (unsigned char)(v >> 8);
    bytes[3] = (unsigned char)v;
    say_frame((int)type, bytes, sizeof(bytes));
}

static void say_input(struct fuzz_input *in)
{
    struct hb_buf b = HB_BUF_INIT;
    int rank = (int)fuzz_take(in);
    size_t len;
    const char *bytes = fuzz_take_bytes(in, &len);

    FUZZ_CHECK(control_encode_stdin(&b, rank, bytes, len) == 0);
    say(&b);
}

static void say_end(struct fuzz_input *in)
{
    unsigned how = fuzz_take(in);
    struct hb_buf b = HB_BUF_INIT;
    int rank = (int)(how >> 3) - 1;

    if (how % 3 == 0)
        FUZZ_CHECK(control_encode_abort(&b, rank, "it died") == 0);
    else if (how % 3 == 1)
        FUZZ_CHECK(control_encode_stall_blame(&b, rank, "it waits") == 0);
    else
        FUZZ_CHECK(control_encode_stall_end(&b, rank, "it waited") == 0);
    say(&b);
}

static void say_ask(struct fuzz_input *in)
{
    struct control_stall_ask m = {.id = (int)fuzz_take(in)};
    struct hb_buf b = HB_BUF_INIT;

    m.count = (int)(fuzz_take(in) % 3);
    for (int i = 0; i < m.count; i++)
        m.ranks[i] = 10 + (int)fuzz_take(in) % 6;
    if (control_encode_stall_ask(&b, &m) == 0)
        say(&b);
    hb_buf_free(&b);
}

/* Writes a piece of the input as a rank, repeatedly, to fill the window. */
static void rank_writes(struct fuzz_input *in)
{
    unsigned how = fuzz_take(in);
    char bytes[8192];
    size_t len, n = 0;
    const char *piece = fuzz_take_bytes(in, &len);
    int slot = (int)(how % SLOTS);

    if (slot >= opened || has_ended[slot] || len == 0)
        return;
    len = len < sizeof(bytes) ? len : sizeof(bytes);
    do {
        memcpy(bytes + n, piece, len);
        n += len;
    } while (how & 128 && n + len <= sizeof(bytes));
    (void)!write(child_fds[slot][how & 64 ? 2 : 1], bytes, n);
}

static void rank_reads(struct fuzz_input *in)
{
    char bytes[4096];
    int slot = (int)(fuzz_take(in) % SLOTS);

    if (slot < opened && !has_ended[slot])
        (void)!read(child_fds[slot][0], bytes, sizeof(bytes));
}

static void rank_ends(int slot, int failed)
{
    if (slot >= opened || has_ended[slot])
        return;
    has_ended[slot] = 1;
    pump_close_child(&agent->pump, child_fds[slot]);
    agent->live--;
    agent->failed |= failed;
    endpoint_rank_ended(&agent->endpoint, slot, failed, "rank 10: has ended");
    agent_check_empty(agent);
}

/* ---- Probes ---- */

/* A call or an answer with one changed bit must be refused. */
static void try_call(struct fuzz_input *in)
{
    unsigned char token[CONTROL_TOKEN_BYTES], made[ROUTE_CALL_BYTES];
    unsigned char answer[ROUTE_ANSWER_BYTES];
    struct route_call call = {
        .mode = (enum route_mode)(fuzz_take(in) % ROUTE_MODE_COUNT),
        .from = (int)fuzz_take(in),
        .to = (int)fuzz_take(in)};
    struct route_call got;
    unsigned at = fuzz_take(in), bit = fuzz_take(in);
    int host = -1;

    memset(token, (int)fuzz_take(in), sizeof(token));
    FUZZ_CHECK(route_auth_call(token, &call, made) == 0);
    FUZZ_CHECK(route_auth_read_call(token, made, &got) == 0);
    FUZZ_CHECK(got.mode == call.mode && got.from == call.from &&
               got.to == call.to);
    FUZZ_CHECK(route_auth_answer(token, made, call.to, answer) == 0);
    FUZZ_CHECK(route_auth_read_answer(token, made, answer, &host) == 0 &&
               host == call.to);
    answer[at % sizeof(answer)] ^= (unsigned char)(1u << bit % 8);
    FUZZ_CHECK(route_auth_read_answer(token, made, answer, &host) < 0);
    made[at % sizeof(made)] ^= (unsigned char)(1u << bit % 8);
    FUZZ_CHECK(route_auth_read_call(token, made, &got) < 0);
}

/* ---- All together ---- */

static void step(struct fuzz_input *in)
{
    unsigned what = fuzz_take(in);

    switch (what % 16) {
    case 0:
        say_launch(in);
        break;
    case 1:
        say_raw(in, -1);
        break;
    case 2:
        say_number(in);
        break;
    case 3:
        say_input(in);
        break;
    case 4:
        say_end(in);
        break;
    case 5:
        say_ask(in);
        break;
    case 6:
        rank_writes(in);
        break;
    case 7:
        rank_ends((int)(what >> 4) % SLOTS, (int)(what >> 7));
        break;
    case 8:
        say_raw(in, CONTROL_QUERY);
        break;
    case 9:
        if (what & 64)
            wireup_opens(agent, (int)(what >> 7));
        else
            answer_query(&agent->query);
        break;
    case 10:
        say_raw(in, CONTROL_ROUTE_LISTEN);
        break;
    case 11:
        say_raw(in, CONTROL_ROUTE_PROBE);
        break;
    case 12:
        say_raw(in, CONTROL_RENDEZVOUS_REPLY);
        break;
    case 13:
        try_call(in);
        break;
    case 14:
        rank_reads(in);
        break;
    default:
        say_raw(in, CONTROL_LAUNCH);
    }
}

static void setup(int fds[4])
{
    struct hb_error err = HB_ERROR_INIT;
    struct agent_config config = {.loop = &loop};

    signal(SIGPIPE, SIG_IGN);
    FUZZ_CHECK(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
    FUZZ_CHECK(pipe2(fds + 2, O_CLOEXEC | O_NONBLOCK) == 0);
    FUZZ_CHECK(uv_loop_init(&loop) == 0);
    config.in_fd = fds[0];
    config.out_fd = fds[3];
    to_agent = fds[1];
    from_agent = fds[2];
    frames = reports = starts = opened = overpaid = 0;
    in_flight = window = 0;
    memset(has_ended, 0, sizeof(has_ended));
    FUZZ_CHECK(agent_start(&config, &agent, &err) == 0);
    turn();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    int fds[4], null = open("/dev/null", O_WRONLY | O_CLOEXEC), saved = dup(2);

    FUZZ_CHECK(null >= 0 && saved >= 0);
    setup(fds);
    dup2(null, 2); /* hides the agent's own messages */
    while (in.p < in.end && !agent->closed) {
        step(&in);
        turn();
    }
    close(to_agent);
    for (int i = 0; i < SLOTS; i++)
        rank_ends(i, 1);
    while (uv_run(&loop, UV_RUN_ONCE))
        listen_to_agent();
    listen_to_agent();
    dup2(saved, 2);
    FUZZ_CHECK(agent_finish(agent) >= 0);
    FUZZ_CHECK(uv_loop_close(&loop) == 0);
    close(fds[0]);
    close(fds[2]);
    close(fds[3]);
    close(null);
    close(saved);
    hb_buf_free(&heard);
    return 0;
}
