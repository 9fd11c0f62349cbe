/* SPDX-License-Identifier: Apache-2.0 */
/* See agent_util.h. */
#include "tests/unit/agent_util.h"

#include "lib/agent/rank/tree.h"
#include "lib/base/alloc.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Fixtures ---- */

static char fixtures[64] = "/tmp";

void fixtures_setup(void)
{
    snprintf(fixtures, sizeof(fixtures), "/tmp/hvd-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fixtures));
}

void fixtures_teardown(void)
{
    struct fixture all;

    snprintf(all.root, sizeof(all.root), "%s", fixtures);
    fixture_close(&all);
}

void fixture_open(struct fixture *f)
{
    snprintf(f->root, sizeof(f->root), "%s/hvd-test-XXXXXX", fixtures);
    ck_assert_ptr_nonnull(mkdtemp(f->root));
}

void fixture_file(struct fixture *f, const char *path, const char *text)
{
    char full[PATH_MAX];
    int fd;

    snprintf(full, sizeof(full), "%s/%s", f->root, path);
    for (char *p = full + strlen(f->root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        (void)mkdir(full, 0700);
        *p = '/';
    }
    fd = open(full, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_msg(fd >= 0, "%s: %s", full, strerror(errno));
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void fixture_close(struct fixture *f)
{
    nftw(f->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- The agent ---- */

static void agent_path(char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    char *slash;

    ck_assert_int_gt(n, 0);
    path[n] = '\0';
    for (int i = 0; i < 2; i++) { /* BUILD/tests/test_x -> BUILD */
        slash = strrchr(path, '/');
        ck_assert_ptr_nonnull(slash);
        *slash = '\0';
    }
    snprintf(path + strlen(path), size - strlen(path), "/bin/hvd-agent");
}

/* Starts an agent with these as its stdin and stdout. */
static void start_agent(struct peer *p, int in, int out)
{
    char path[PATH_MAX];

    agent_path(path, sizeof(path));
    p->guardian = fork();
    ck_assert_int_ge(p->guardian, 0);
    if (p->guardian == 0) {
        dup2(in, 0);
        dup2(out, 1);
        execl(path, path, (char *)NULL);
        _exit(127);
    }
    p->guardian_pidfd = (int)syscall(SYS_pidfd_open, p->guardian, 0u);
    ck_assert_int_ge(p->guardian_pidfd, 0);
}

static void open_socket(struct peer *p, int fds[2])
{
    memset(p, 0, sizeof(*p));
    p->auto_ack = 1;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds),
                     0);
    p->fd = p->out_fd = fds[0];
}

void peer_open(struct peer *p)
{
    int fds[2];

    open_socket(p, fds);
    start_agent(p, fds[1], fds[1]);
    close(fds[1]);
    peer_until(p, CONTROL_HELLO);
}

void peer_open_narrow(struct peer *p)
{
    int in[2], out[2];

    open_socket(p, in);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_ge(fcntl(out[1], F_SETPIPE_SZ, PEER_NARROW_BYTES), 0);
    start_agent(p, in[1], out[1]);
    close(in[1]);
    close(out[1]);
    p->out_fd = out[0];
    peer_until(p, CONTROL_HELLO);
}

int peer_close(struct peer *p)
{
    struct pollfd end = {p->guardian_pidfd, POLLIN, 0};
    int status;

    if (p->out_fd != p->fd)
        close(p->out_fd);
    if (p->fd >= 0)
        close(p->fd);
    ck_assert_int_eq(poll(&end, 1, PEER_WAIT_MS), 1);
    ck_assert_int_eq(waitpid(p->guardian, &status, 0), p->guardian);
    close(p->guardian_pidfd);
    hb_buf_free(&p->in);
    for (int i = 0; i < PEER_RANKS_MAX; i++) {
        hb_buf_free(&p->output[i][0]);
        hb_buf_free(&p->output[i][1]);
    }
    for (int i = 0; i < p->exited_count; i++)
        control_exited_fini(&p->exited[i]);
    control_failed_fini(&p->failed);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void peer_launch_init(struct control_launch *m, const char *script, int ranks)
{
    memset(m, 0, sizeof(*m));
    m->job_id = hb_xstrdup("0123456789abcdef0123456789abcdef");
    m->host = hb_xstrdup("here");
    m->cwd = hb_xstrdup("/");
    m->size = m->rank_count = ranks;
    m->spec.gpus_per_rank = 1;
    m->spec.grace_ms = 60000;
    hb_strv_add(&m->argv, "sh");
    hb_strv_add(&m->argv, "-c");
    hb_strv_add(&m->argv, script);
    hb_strv_add(&m->env, "PATH=/usr/local/bin:/usr/bin:/bin");
    m->ranks = hb_xcalloc((size_t)ranks, sizeof(*m->ranks));
    for (int i = 0; i < ranks; i++) {
        m->ranks[i].rank = m->ranks[i].local_rank = i;
        m->ranks[i].local_size = ranks;
        m->ranks[i].cross_size = 1;
        hb_strv_addf(&m->ranks[i].env, "HVD_RANK=%d", i);
    }
}

void peer_launch(struct peer *p, struct control_launch *m)
{
    struct hb_buf out = HB_BUF_INIT;

    ck_assert_int_eq(control_encode_launch(&out, m), 0);
    peer_send(p, &out);
    hb_buf_free(&out);
    control_launch_fini(m);
}

void peer_run(struct peer *p, const char *script, int ranks)
{
    struct control_launch m;

    peer_launch_init(&m, script, ranks);
    peer_launch(p, &m);
    peer_until(p, CONTROL_STARTED);
}

void peer_send(struct peer *p, struct hb_buf *frames)
{
    while (hb_buf_len(frames) > 0) {
        ssize_t n =
            send(p->fd, hb_buf_data(frames), hb_buf_len(frames), MSG_NOSIGNAL);

        /* The agent may have sent DONE and ended. */
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            hb_buf_clear(frames);
            return;
        }
        ck_assert_int_gt(n, 0);
        hb_buf_consume(frames, (size_t)n);
    }
}

void peer_send_u32(struct peer *p, enum control_type type, uint32_t v)
{
    struct hb_buf out = HB_BUF_INIT;

    ck_assert_int_eq(control_encode_u32(&out, type, v), 0);
    peer_send(p, &out);
    hb_buf_free(&out);
}

static void take_output(struct peer *p, const struct frame *f)
{
    struct control_bytes m;

    ck_assert_int_eq(control_decode_output(f->payload, f->len, &m, NULL), 0);
    ck_assert_int_lt(m.rank, PEER_RANKS_MAX);
    ck_assert_uint_le(m.len, CONTROL_OUTPUT_CHUNK);
    ck_assert_int_eq(p->ended[m.rank][m.stream - 1], 0);
    hb_buf_append(&p->output[m.rank][m.stream - 1], m.bytes, m.len);
    p->ended[m.rank][m.stream - 1] = m.len == 0;
    p->unacked += (uint32_t)m.len;
    if (p->auto_ack && m.len > 0) {
        peer_send_u32(p, CONTROL_OUTPUT_ACK, (uint32_t)m.len);
        p->unacked -= (uint32_t)m.len;
    }
}

static void take_started(struct peer *p, const struct frame *f)
{
    struct control_started m;

    ck_assert_int_eq(control_decode_started(f->payload, f->len, &m, NULL), 0);
    ck_assert_int_le(m.count, PEER_RANKS_MAX);
    memcpy(p->pids, m.pids, (size_t)m.count * sizeof(pid_t));
    p->started = m.count;
    control_started_fini(&m);
}

static void take_routes(struct peer *p, const struct frame *f)
{
    struct control_route_result m;

    ck_assert_int_eq(control_decode_route_result(f->payload, f->len, &m, NULL),
                     0);
    p->route_answers = m.count;
    control_route_result_fini(&m);
}

static void take_counts(struct peer *p, const struct frame *f)
{
    int rc;

    for (p->count = 0; p->count < PEER_RANKS_MAX; p->count++) {
        rc = control_decode_counts(f->payload, f->len, p->count,
                                   &p->counts[p->count], NULL);
        ck_assert_int_ge(rc, 0);
        if (rc == 0)
            break;
    }
}

static void take_stall(struct peer *p, const struct frame *f)
{
    int rc;

    if (f->type == CONTROL_STALLED) {
        rc = control_decode_stalled(f->payload, f->len, &p->stalled, NULL);
    } else if (f->type == CONTROL_STALL_RANKS) {
        control_stall_ranks_fini(&p->stall_ranks);
        rc = control_decode_stall_ranks(f->payload, f->len, &p->stall_ranks,
                                        NULL);
    } else {
        control_stall_stack_fini(&p->stack);
        rc = control_decode_stall_stack(f->payload, f->len, &p->stack, NULL);
    }
    ck_assert_int_eq(rc, 0);
}

static void take(struct peer *p, const struct frame *f)
{
    struct control_hello hello;
    int rank, level;
    uint32_t bytes;

    switch (f->type) {
    case CONTROL_HELLO:
        ck_assert_int_eq(control_decode_hello(f->payload, f->len, &hello, NULL),
                         0);
        p->agent = hello.pid;
        control_hello_fini(&hello);
        break;
    case CONTROL_STARTED:
        take_started(p, f);
        break;
    case CONTROL_OUTPUT:
        take_output(p, f);
        break;
    case CONTROL_EXITED:
        ck_assert_int_eq(control_decode_exited(f->payload, f->len,
                                               &p->exited[p->exited_count],
                                               NULL),
                         0);
        p->exited_count++;
        break;
    case CONTROL_STDIN_ACK:
        ck_assert_int_eq(
            control_decode_stdin_ack(f->payload, f->len, &rank, &bytes, NULL),
            0);
        p->stdin_acked += bytes;
        break;
    case CONTROL_FAILED:
        ck_assert_int_eq(
            control_decode_failed(f->payload, f->len, &p->failed, NULL), 0);
        break;
    case CONTROL_LOG:
        ck_assert_int_eq(control_decode_log(f->payload, f->len, &level, p->log,
                                            sizeof(p->log), NULL),
                         0);
        break;
    case CONTROL_QUITTING:
        snprintf(p->quitting, sizeof(p->quitting), "%.*s", (int)f->len,
                 (const char *)f->payload);
        break;
    case CONTROL_PONG:
        ck_assert_int_eq(control_decode_pong(f->payload, f->len,
                                             &p->pong_ping_ns, &p->pong_now_ns,
                                             NULL),
                         0);
        break;
    case CONTROL_DONE:
        p->done = 1;
        break;
    case CONTROL_ROUTE_PORT:
        ck_assert_int_eq(
            control_decode_route_port(f->payload, f->len, &p->route_port, NULL),
            0);
        break;
    case CONTROL_ROUTE_RESULT:
        take_routes(p, f);
        break;
    case CONTROL_STALLED:
    case CONTROL_STALL_RANKS:
    case CONTROL_STALL_STACK:
        take_stall(p, f);
        break;
    case CONTROL_COUNTS:
        take_counts(p, f);
        break;
    default:
        ck_abort_msg("frame of type %d", f->type);
    }
}

int peer_next(struct peer *p)
{
    struct hb_error err = HB_ERROR_INIT;
    struct frame f;
    int rc, type;

    while ((rc = frame_decode(&p->in, FRAME_PAYLOAD_MAX, &f, &err)) == 0) {
        struct pollfd ready = {p->out_fd, POLLIN, 0};
        char chunk[65536];
        ssize_t n;

        ck_assert_msg(poll(&ready, 1, PEER_WAIT_MS) == 1,
                      "the agent is silent");
        n = read(p->out_fd, chunk, sizeof(chunk));
        if (n <= 0)
            return 0;
        hb_buf_append(&p->in, chunk, (size_t)n);
    }
    ck_assert_msg(rc > 0, "%s", err.text);
    type = f.type;
    take(p, &f);
    frame_done(&p->in, &f);
    return type;
}

void peer_until(struct peer *p, enum control_type type)
{
    int got;

    do {
        got = peer_next(p);
        ck_assert_msg(got != 0 &&
                          (got != CONTROL_FAILED || type == CONTROL_FAILED),
                      "waiting for frame %d: got %d (%s)", (int)type, got,
                      p->failed.text ? p->failed.text : "");
    } while (got != (int)type);
}

void peer_until_output(struct peer *p, int rank, const char *text)
{
    while (!strstr(hb_buf_data(&p->output[rank][0]), text))
        ck_assert_int_ne(peer_next(p), 0);
}

struct peer peer;

/* Processes that the agent leaves behind become children of this process. */
void peer_setup(void)
{
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    peer_open(&peer);
}

void peer_teardown(void)
{
    ck_assert_int_eq(tree_has_children(), 0);
}

void peer_finish(int status)
{
    ck_assert_int_eq(peer_close(&peer), status);
}

const struct control_exited *peer_exited(int rank)
{
    for (int i = 0; i < peer.exited_count; i++)
        if (peer.exited[i].rank == rank)
            return &peer.exited[i];
    ck_abort_msg("rank %d has not exited", rank);
}

int process_lives(pid_t pid)
{
    struct tree_proc stat;

    return tree_stat(pid, &stat) && stat.state != 'Z';
}

void wait_gone(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0u);
    struct pollfd p = {fd, POLLIN, 0};

    if (fd < 0)
        return;
    ck_assert_msg(poll(&p, 1, PEER_WAIT_MS) == 1, "pid %d lives on", (int)pid);
    close(fd);
}
