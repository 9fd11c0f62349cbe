/* SPDX-License-Identifier: Apache-2.0 */
/* A scripted agent; see fake_agent.h. */
#include "tests/unit/fake_agent.h"

#include "lib/base/buf.h"
#include "lib/base/sys/clock.h"
#include "lib/protocol/control/control.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STARTED_MAX = 64 }; /* ranks of a host */

static struct hb_buf wire_in = HB_BUF_INIT;
static struct control_launch launched; /* the LAUNCH that has come */
static char my_host[64];
static int mute, slow_ms;     /* how PINGs are answered */
static int64_t ahead_ns;      /* our clock, ahead of hvdrun's */
static int64_t ago_ns;        /* age of the next EXITED */
static int blames;            /* in the next EXITED */
static uint32_t told_silence; /* in the last PING */

static void wire_send(struct hb_buf *frame)
{
    size_t len = hb_buf_len(frame), done = 0;
    ssize_t n = 1;

    while (done < len && n > 0) {
        n = write(1, hb_buf_data(frame) + done, len - done);
        done += n > 0 ? (size_t)n : 0;
    }
    hb_buf_free(frame);
}

/* All fake agents are on one machine: no route is probed. */
static void answer_route_listen(const struct frame *f)
{
    struct control_route_listen asked;
    struct control_route_port m = {.port = 1};
    struct hb_buf frame = HB_BUF_INIT;

    if (control_decode_route_listen(f->payload, f->len, &asked, NULL) < 0)
        _exit(1);
    m.reserved = asked.reserve_port ? 29500 : 0;
    control_encode_route_port(&frame, &m);
    wire_send(&frame);
}

static struct frame wire_read(void)
{
    char chunk[65536];
    struct frame f;
    ssize_t n;

    while (frame_decode(&wire_in, FRAME_PAYLOAD_MAX, &f, NULL) == 0) {
        n = read(0, chunk, sizeof(chunk));
        if (n <= 0)
            _exit(0);
        hb_buf_append(&wire_in, chunk, (size_t)n);
    }
    return f;
}

static uint64_t my_clock(void)
{
    return hb_now_ns() + (uint64_t)ahead_ns;
}

static void pause_ms(int ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&pause, NULL);
}

static void answer_ping(const struct frame *f)
{
    struct hb_buf frame = HB_BUF_INIT;
    uint64_t sent;

    if (control_decode_ping(f->payload, f->len, &sent, &told_silence, NULL) < 0)
        _exit(1);
    if (mute)
        return;
    pause_ms(slow_ms);
    control_encode_pong(&frame, sent, my_clock());
    wire_send(&frame);
}

/* Reads the next frame; ends the agent at end of file. */
static struct frame wire_next(void)
{
    struct frame f = wire_read();

    while (f.type == CONTROL_ROUTE_LISTEN || f.type == CONTROL_PING) {
        if (f.type == CONTROL_PING)
            answer_ping(&f);
        else
            answer_route_listen(&f);
        frame_done(&wire_in, &f);
        f = wire_read();
    }
    return f;
}

/* Waits for a frame of that type, skipping acknowledgements; complains of
 * others. */
static void wire_wait(enum control_type type, uint32_t value)
{
    struct frame f = wire_next();
    uint32_t have = 0;

    while (f.type == CONTROL_OUTPUT_ACK) {
        frame_done(&wire_in, &f);
        f = wire_next();
    }
    if (f.type != type) {
        dprintf(2, "expected %d, got %d\n", type, f.type);
        _exit(1);
    }
    if (type == CONTROL_KILL || type == CONTROL_SIGNAL ||
        type == CONTROL_CHANGE || type == CONTROL_RESTART) {
        control_decode_u32(f.payload, f.len, &have, NULL);
        if (have != value)
            dprintf(2, "expected value %u, got %u\n", value, have);
    }
    frame_done(&wire_in, &f);
}

/* Answers on the second connection to a host that was lost. */
static void answer_query(const struct frame *f)
{
    static const char id[] = "00112233445566778899aabbccddeeff";
    struct hb_buf frame = HB_BUF_INIT;
    char name[128];
    const char *answer;

    snprintf(name, sizeof(name), "FAKE_ANSWER_%s", getenv("FAKE_HOST"));
    answer = getenv(name);
    if (!answer || !memmem(f->payload, f->len, id, strlen(id)))
        _exit(1);
    while (strcmp(answer, "deaf") == 0)
        pause();
    if (answer[0]) {
        frame_encode(&frame, CONTROL_ANSWER, answer, strlen(answer));
        wire_send(&frame);
    }
    for (;;) {
        struct frame next = wire_read();

        frame_done(&wire_in, &next);
    }
}

static void wait_launch(void)
{
    struct frame f = wire_next();

    if (f.type == CONTROL_QUERY && getenv("FAKE_HOST"))
        answer_query(&f);
    if (f.type != CONTROL_LAUNCH ||
        control_decode_launch(f.payload, f.len, &launched, NULL) < 0)
        _exit(1);
    snprintf(my_host, sizeof(my_host), "%s", launched.host);
    frame_done(&wire_in, &f);
}

static void send_hello(const char *version, const char *interface)
{
    struct control_interface lo = {
        .name = (char *)interface,
        .index = 1,
        .address = {4, {127, 0, 0, 1}},
        .prefix = 8,
        .flags = CONTROL_INTERFACE_UP | CONTROL_INTERFACE_LOOPBACK,
    };
    struct control_hello m = {.version = (char *)version,
                              .host = (char *)"h",
                              .cpu = (char *)"x86_64",
                              .pid = getpid(),
                              .cpus = 2,
                              .machine = (char *)"fake",
                              .namespaces = (char *)"",
                              .interfaces = {&lo, 1}};
    struct hb_buf frame = HB_BUF_INIT;

    control_encode_hello(&frame, &m);
    wire_send(&frame);
}

static void send_exited(int rank, int code, int signo, int ours,
                        const char *tail)
{
    struct control_exited m = {
        .rank = rank,
        .pid = 100 + rank,
        .exit_code = signo ? 128 + signo : code,
        .signal = signo,
        .cause = ours    ? CONTROL_CAUSE_HVDRUN
                 : signo ? CONTROL_CAUSE_SIGNAL
                         : CONTROL_CAUSE_EXIT,
        .detail = (char *)"",
        .stderr_tail = (char *)tail,
        .when_ns = my_clock() - (uint64_t)ago_ns,
        .blames = blames,
    };
    struct hb_buf frame = HB_BUF_INIT;

    ago_ns = blames = 0;
    control_encode_exited(&frame, &m);
    wire_send(&frame);
}

static void wait_stdin(int rank, const char *text)
{
    size_t want = strlen(text);
    struct control_bytes m = {0};
    struct hb_buf frame = HB_BUF_INIT;

    for (size_t have = 0;;) {
        struct frame f = wire_next();
        if (f.type != CONTROL_STDIN ||
            control_decode_stdin(f.payload, f.len, &m, NULL) < 0 ||
            m.rank != rank || have + m.len > want ||
            memcmp(m.bytes, text + have, m.len) != 0)
            dprintf(2, "wrong stdin\n");
        have += m.len;
        frame_done(&wire_in, &f);
        if (have >= want)
            break;
    }
    control_encode_stdin_ack(&frame, rank, (uint32_t)want);
    wire_send(&frame);
}

/* Waits until that many PINGs have come. */
static void wait_pings(int count)
{
    struct frame f;

    while (count-- > 0) {
        f = wire_read();
        if (f.type != CONTROL_PING)
            dprintf(2, "expected a ping, got %d\n", f.type);
        else
            answer_ping(&f);
        frame_done(&wire_in, &f);
    }
}

/* Waits until a PING says that silence means `ms`. */
static void wait_silence(uint32_t ms)
{
    while (told_silence != ms)
        wait_pings(1);
}

/* Waits until `count` agents have come here: each adds a byte to a file. */
static void barrier(int count)
{
    const char *path = getenv("FAKE_BARRIER");
    int fd = open(path ? path : "", O_WRONLY | O_APPEND | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || write(fd, "", 1) != 1)
        dprintf(2, "cannot write to the file FAKE_BARRIER\n");
    while (fstat(fd, &st) == 0 && st.st_size < count)
        usleep(1000);
    close(fd);
}

static void send_started(int count)
{
    struct hb_buf frame = HB_BUF_INIT;
    pid_t pids[STARTED_MAX] = {100, 101};
    struct control_started started = {pids, count ? count : 2};

    control_encode_started(&frame, &started);
    wire_send(&frame);
}

static void send_done(void)
{
    struct hb_buf frame = HB_BUF_INIT;

    frame_encode(&frame, CONTROL_DONE, NULL, 0);
    wire_send(&frame);
}

static void send_going(uint32_t left_ms, const char *why)
{
    struct hb_buf frame = HB_BUF_INIT;

    control_encode_going(&frame, left_ms, why);
    wire_send(&frame);
}

static void send_output(int rank, int stream, const char *text)
{
    struct hb_buf frame = HB_BUF_INIT, line = HB_BUF_INIT;

    hb_buf_puts(&line, text);
    if (text[0])
        hb_buf_putc(&line, '\n');
    control_encode_output(&frame, rank, stream, hb_buf_data(&line),
                          hb_buf_len(&line));
    wire_send(&frame);
    hb_buf_free(&line);
}

/* Sends output, ignoring the window, until hvdrun hangs up. */
static void flood(int rank)
{
    static char bytes[CONTROL_OUTPUT_CHUNK];
    struct hb_buf frame = HB_BUF_INIT;

    memset(bytes, 'x', sizeof(bytes));
    while (recv(0, bytes, sizeof(bytes), MSG_DONTWAIT) != 0) {
        control_encode_output(&frame, rank, 1, bytes, sizeof(bytes));
        wire_send(&frame);
    }
}

static void send_quitting(const char *why)
{
    struct hb_buf frame = HB_BUF_INIT;

    frame_encode(&frame, CONTROL_QUITTING, why, strlen(why));
    wire_send(&frame);
}

static void send_failed(int code, const char *text)
{
    struct control_failed m = {code, (char *)text};
    struct hb_buf frame = HB_BUF_INIT;

    control_encode_failed(&frame, &m);
    wire_send(&frame);
}

static void send_progress(uint32_t generation)
{
    struct hb_buf frame = HB_BUF_INIT;

    control_encode_u32(&frame, CONTROL_PROGRESS, generation);
    wire_send(&frame);
}

static void send_no_answer(int rank, int peer)
{
    const struct control_no_answer m = {rank, peer};
    struct hb_buf frame = HB_BUF_INIT;

    control_encode_no_answer(&frame, &m);
    wire_send(&frame);
}

static void send_ready(int rank, int ready)
{
    struct hb_buf frame = HB_BUF_INIT;

    control_encode_ready(&frame, rank, ready);
    wire_send(&frame);
}

/* Waits for a generation, and complains if it is not "N JOINED RANKS [WHY]". */
static void wait_generation(const char *want)
{
    struct frame f = wire_next();
    struct control_generation m;
    struct hb_buf text = HB_BUF_INIT;

    if (f.type != CONTROL_GENERATION ||
        control_decode_generation(f.payload, f.len, &m, NULL) < 0) {
        dprintf(2, "expected generation %s, got message %d\n", want, f.type);
        _exit(1);
    }
    hb_buf_printf(&text, "%u %u ", m.number, m.joined);
    for (int i = 0; i < m.count; i++)
        hb_buf_printf(&text, "%s%d", i ? "," : "", m.ranks[i]);
    if (m.why[0])
        hb_buf_printf(&text, " %s", m.why);
    if (strcmp(hb_buf_data(&text), want) != 0)
        dprintf(2, "expected generation %s, got %s\n", want,
                hb_buf_data(&text));
    hb_buf_free(&text);
    control_generation_fini(&m);
    frame_done(&wire_in, &f);
}

static void wait_notice(int rank, int want_ms)
{
    struct frame f = wire_next();
    uint32_t left_ms = 0;
    int got = -1;

    if (f.type == CONTROL_NOTICE)
        control_decode_notice(f.payload, f.len, &got, &left_ms, NULL);
    if (got != rank || (want_ms < 0 ? left_ms != CONTROL_LEFT_ANY
                                    : left_ms > (uint32_t)want_ms ||
                                          left_ms + 1000 < (uint32_t)want_ms))
        dprintf(2, "expected notice %d %d, got message %d: %d %u\n", rank,
                want_ms, f.type, got, left_ms);
    frame_done(&wire_in, &f);
}

/* Waits for HOSTS, with an address of each of `count` hosts. */
static void wait_hosts(int count)
{
    struct frame f = wire_next();
    int known = 0;

    if (f.type != CONTROL_HOSTS ||
        control_decode_hosts(f.payload, f.len, &launched, NULL) < 0) {
        dprintf(2, "expected %d hosts, got message %d\n", count, f.type);
        _exit(1);
    }
    for (size_t i = 0; i < launched.peers.count; i++)
        known += launched.peers.items[i][0] != '\0';
    if (known != count)
        dprintf(2, "expected %d hosts, got %d\n", count, known);
    frame_done(&wire_in, &f);
}

/* Waits for a message about a rank with that text. */
static void wait_text(enum control_type type, int rank, const char *want)
{
    struct frame f = wire_next();
    char text[CONTROL_WHY_MAX] = "";
    int got = -1;

    if (f.type == type)
        control_decode_abort(f.payload, f.len, &got, text, sizeof(text), NULL);
    if (got != rank || strcmp(text, want) != 0)
        dprintf(2, "expected message %d: %d %s, got %d: %d %s\n", type, rank,
                want, f.type, got, text);
    frame_done(&wire_in, &f);
}

/* Does a step that has a text; returns 0 for another step. */
static int step_text(const char *s)
{
    int a = 0, b = 0, skip = 0;

    if (sscanf(s, "out %d %d %n", &a, &b, &skip) == 2)
        send_output(a, b, s + skip);
    else if (sscanf(s, "end %d %d", &a, &b) == 2)
        send_output(a, b, "");
    else if (sscanf(s, "dies %d %n", &a, &skip) == 1)
        send_exited(a, 0, 9, 0, s + skip);
    else if (sscanf(s, "generation %n", &skip) == 0 && skip > 0)
        wait_generation(s + skip);
    else if (sscanf(s, "removed %d %n", &a, &skip) == 1)
        wait_text(CONTROL_REMOVED, a, s + skip);
    else if (sscanf(s, "evict %d %n", &a, &skip) == 1)
        wait_text(CONTROL_EVICT, a, s + skip);
    else if (sscanf(s, "going %d %n", &a, &skip) == 1)
        send_going((uint32_t)a, s + skip);
    else if (sscanf(s, "say %n", &skip) == 0 && skip > 0)
        dprintf(2, "%s\n", s + skip);
    else if (sscanf(s, "quit %n", &skip) == 0 && skip > 0)
        send_quitting(s + skip);
    else if (sscanf(s, "failed %d %n", &a, &skip) == 1)
        send_failed(a, s + skip);
    else if (sscanf(s, "stdin %d %n", &a, &skip) == 1)
        wait_stdin(a, s + skip);
    else
        return 0;
    return 1;
}

static void step(const char *s)
{
    char word[16] = "";
    int a = 0, b = 0, c = 0;

    sscanf(s, " %15s %d %d %d", word, &a, &b, &c);
    if (strcmp(word, "hello") == 0)
        send_hello(s[5] ? s + 6 : HVD_VERSION, "lo");
    else if (strcmp(word, "greet") == 0)
        send_hello(HVD_VERSION, s + 6);
    else if (strcmp(word, "launch") == 0)
        wait_launch();
    else if (strcmp(word, "started") == 0)
        send_started(a);
    else if (strcmp(word, "done") == 0)
        send_done();
    else if (strcmp(word, "exit") == 0)
        send_exited(a, b, c, 0, "");
    else if (strcmp(word, "ours") == 0)
        send_exited(a, b, 0, 1, "");
    else if (strcmp(word, "blames") == 0)
        blames = a + 1;
    else if (strcmp(word, "kill") == 0)
        wire_wait(CONTROL_KILL, (uint32_t)a);
    else if (strcmp(word, "signal") == 0)
        wire_wait(CONTROL_SIGNAL, (uint32_t)a);
    else if (strcmp(word, "abort") == 0)
        wire_wait(CONTROL_ABORT, 0);
    else if (strcmp(word, "stdineof") == 0)
        wait_stdin(a, "");
    else if (strcmp(word, "eof") == 0)
        for (;;) {
            struct frame f = wire_next();
            frame_done(&wire_in, &f);
        }
    else if (strcmp(word, "mute") == 0)
        mute = 1;
    else if (strcmp(word, "slow") == 0)
        slow_ms = a;
    else if (strcmp(word, "flood") == 0)
        flood(a);
    else if (strcmp(word, "pause") == 0)
        pause_ms(a);
    else if (strcmp(word, "ahead") == 0)
        ahead_ns = (int64_t)a * 1000000;
    else if (strcmp(word, "ago") == 0)
        ago_ns = (int64_t)a * 1000000;
    else if (strcmp(word, "barrier") == 0)
        barrier(a);
    else if (strcmp(word, "pings") == 0)
        wait_pings(a);
    else if (strcmp(word, "silence") == 0)
        wait_silence((uint32_t)a);
    else if (strcmp(word, "garbage") == 0)
        dprintf(1, "this is not the protocol, not at all");
    else if (strcmp(word, "ready") == 0 || strcmp(word, "left") == 0)
        send_ready(a, word[0] == 'r');
    else if (strcmp(word, "no-answer") == 0)
        send_no_answer(a, b);
    else if (strcmp(word, "notice") == 0)
        wait_notice(a, b);
    else if (strcmp(word, "progress") == 0)
        send_progress((uint32_t)a);
    else if (strcmp(word, "restart") == 0)
        wire_wait(CONTROL_RESTART, (uint32_t)a);
    else if (strcmp(word, "hosts") == 0)
        wait_hosts(a);
    else if (strcmp(word, "change") == 0)
        wire_wait(CONTROL_CHANGE, (uint32_t)a);
    else if (!step_text(s))
        dprintf(2, "unknown step: %s\n", s);
}

int fake_agent_run(char *script)
{
    char name[128];
    char *rest, *s;

    for (s = strtok_r(script, ";", &rest); s; s = strtok_r(NULL, ";", &rest))
        step(s);
    if (!my_host[0] || getenv("FAKE_HOST"))
        return 0;
    snprintf(name, sizeof(name), "FAKE_AGENT_%s", my_host);
    my_host[0] = '\0';
    return getenv(name) ? fake_agent_run(getenv(name)) : 0;
}
