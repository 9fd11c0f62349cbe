/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for tests: see world.h.  The agent is one poll loop over its
 * listening socket, the ranks' connections and their pidfds.
 */
#include "tests/unit/world.h"

#include "lib/base/clock.h"
#include "lib/protocol/segment.h"
#include "lib/protocol/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CONNS_MAX = 4 * WORLD_RANKS_MAX,
    POLL_MS = 2, /* how soon world_board->kill_rank is seen */
    WORLD_LIMIT_S = 180,
};

struct conn {
    int fd;
    struct hb_buf in;
    int rank;
    uint32_t joined; /* the epoch it asked for and has not got, or 0 */
    uint64_t segment_bytes;
};

struct agent {
    struct world *world;
    int listener;
    char address[64]; /* as in HVD_RENDEZVOUS */
    struct conn conns[CONNS_MAX];
    int conn_count;
    pid_t pids[WORLD_RANKS_MAX];
    int pidfds[WORLD_RANKS_MAX];
    int alive;
    struct segment_head *head; /* of the latest epoch */
    uint64_t head_bytes;
};

struct world_board *world_board;

/* A world that cannot be made is a broken machine, not a test result. */
static void need(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

/* ---- Ranks --------------------------------------------------------- */

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    need(setenv(name, text, 1) == 0, "setenv");
}

static void rank_main(const struct agent *a, int rank)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(a->listener);
    set_number("HVD_RANK", rank);
    set_number("HVD_LOCAL_RANK", rank);
    set_number("HVD_SIZE", a->world->size);
    set_number("HVD_LOCAL_SIZE", a->world->size);
    set_number("HVD_CROSS_RANK", 0);
    set_number("HVD_CROSS_SIZE", 1);
    need(setenv("HVD_RENDEZVOUS", a->address, 1) == 0, "setenv");
    exit(a->world->body(rank, a->world->arg));
}

static void start_ranks(struct agent *a)
{
    fflush(NULL);
    for (int r = 0; r < a->world->size; r++) {
        pid_t pid = fork();

        need(pid >= 0, "fork");
        if (pid == 0)
            rank_main(a, r);
        a->pids[r] = pid;
        a->pidfds[r] = (int)syscall(SYS_pidfd_open, pid, 0);
        need(a->pidfds[r] >= 0, "pidfd_open");
        a->alive++;
    }
}

static void tell_death(struct agent *a, int rank, int wait_status)
{
    char text[SEGMENT_TEXT_MAX];

    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)
        return;
    if (WIFSIGNALED(wait_status))
        snprintf(text, sizeof(text),
                 "rank %d on host testhost: killed by signal %d", rank,
                 WTERMSIG(wait_status));
    else
        snprintf(text, sizeof(text), "rank %d on host testhost: exit status %d",
                 rank, WEXITSTATUS(wait_status));
    if (a->head)
        segment_abort(a->head, (uint32_t)a->world->size, (uint32_t)rank,
                      HVD_EPEER, text);
}

static void reap(struct agent *a, int rank)
{
    int status = 0;

    need(waitpid(a->pids[rank], &status, 0) == a->pids[rank], "waitpid");
    close(a->pidfds[rank]);
    a->pidfds[rank] = -1;
    a->alive--;
    a->world->wait_status[rank] = status;
    tell_death(a, rank, status);
}

/* ---- What the agent says ------------------------------------------- */

static void say(const struct conn *c, const struct hb_buf *out, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {hb_buf_data(out), hb_buf_len(out)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *cm = &control.align;

        memset(&control, 0, sizeof(control));
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cm), &fd, sizeof(int));
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof(control.bytes);
    }
    /* A rank that is gone shows by its pidfd. */
    while (sendmsg(c->fd, &msg, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

static uint32_t usable_cpus(void)
{
    cpu_set_t set;

    need(sched_getaffinity(0, sizeof(set), &set) == 0, "getaffinity");
    return (uint32_t)CPU_COUNT(&set);
}

static void say_welcome(const struct agent *a, const struct conn *c)
{
    static struct worker_welcome w;
    const struct world *world = a->world;
    struct hb_buf out = HB_BUF_INIT;

    memset(&w, 0, sizeof(w));
    w.rank = w.local_rank = (uint32_t)c->rank;
    w.size = w.local_size = w.local_count = (uint32_t)world->size;
    w.cross_size = 1;
    if (world->fault == WORLD_WRONG_SIZE)
        w.size = ++w.local_size, w.local_count++;
    w.cpus = world->cpus ? world->cpus : usable_cpus();
    snprintf(w.host, sizeof(w.host), "testhost");
    snprintf(w.job_id, sizeof(w.job_id), "0123456789abcdef");
    for (uint32_t i = 0; i < w.local_count; i++)
        w.local_ranks[i] = i;
    if (world->fault == WORLD_TWO_HOSTS) {
        w.local_size = w.local_count = 1;
        w.local_rank = 0;
        w.local_ranks[0] = w.cross_rank = w.rank;
        w.cross_size = w.size;
    }
    need(worker_encode_welcome(&out, &w) == 0, "welcome");
    say(c, &out, -1);
    hb_buf_free(&out);
}

static void hang_up(struct conn *c)
{
    close(c->fd);
    c->fd = -1;
    c->joined = 0;
    hb_buf_free(&c->in);
}

static void answer_hello(struct agent *a, struct conn *c)
{
    struct hb_buf out = HB_BUF_INIT;

    switch (a->world->fault) {
    case WORLD_IS_SILENT:
        break;
    case WORLD_HANGS_UP:
        hang_up(c);
        break;
    case WORLD_REFUSES:
        need(worker_encode_refused(&out, "no such rank") == 0, "refused");
        say(c, &out, -1);
        break;
    case WORLD_TALKS_RUBBISH:
        need(hb_buf_puts(&out, "HTTP/1.1 400 Bad Request") == 0, "puts");
        say(c, &out, -1);
        break;
    default:
        say_welcome(a, c);
    }
    hb_buf_free(&out);
}

/* ---- The segment --------------------------------------------------- */

static int make_segment(struct agent *a, uint32_t epoch, uint64_t bytes)
{
    int fd = memfd_create("world", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    uint64_t given = bytes;

    if (a->world->fault == WORLD_SMALL_SEGMENT)
        given -= 4096;
    need(fd >= 0 && ftruncate(fd, (off_t)given) == 0, "memfd");
    need(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "seal");
    if (a->head)
        munmap(a->head, a->head_bytes);
    a->head_bytes = segment_head_bytes((uint32_t)a->world->size);
    a->head =
        mmap(NULL, a->head_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need(a->head != MAP_FAILED, "mmap");
    if (a->world->fault == WORLD_BAD_HEAD)
        epoch++;
    segment_head_init(a->head, epoch, (uint32_t)a->world->size, bytes);
    return fd;
}

static void hand_out(struct agent *a, uint32_t epoch, uint64_t bytes)
{
    struct worker_segment m = {epoch, bytes};
    int fd = make_segment(a, epoch, bytes);
    struct hb_buf out = HB_BUF_INIT;

    need(worker_encode_segment(&out, &m) == 0, "segment");
    for (int i = 0; i < a->conn_count; i++) {
        struct conn *c = &a->conns[i];

        if (c->joined != epoch)
            continue;
        c->joined = 0;
        say(c, &out, a->world->fault == WORLD_NO_MEMFD ? -1 : fd);
        if (a->world->fault == WORLD_GONE)
            hang_up(c);
    }
    hb_buf_free(&out);
    close(fd);
}

static void joined(struct agent *a, uint32_t epoch, uint64_t bytes)
{
    int n = 0;

    for (int i = 0; i < a->conn_count; i++)
        n += a->conns[i].joined == epoch;
    if (n == a->world->size)
        hand_out(a, epoch, bytes);
}

/* ---- What the agent hears ------------------------------------------ */

static void hear(struct agent *a, struct conn *c, const struct frame *f)
{
    struct worker_hello hello;
    struct worker_join join;
    uint32_t epoch;

    switch (f->type) {
    case WORKER_HELLO:
        need(worker_decode_hello(f->payload, f->len, &hello) == 0, "HELLO");
        c->rank = (int)hello.rank;
        frame_done(&c->in, f);
        answer_hello(a, c);
        return;
    case WORKER_JOIN:
        need(worker_decode_join(f->payload, f->len, &join) == 0, "JOIN");
        c->joined = join.epoch;
        frame_done(&c->in, f);
        joined(a, join.epoch, join.segment_bytes);
        return;
    default:
        need(f->type == WORKER_LEAVE &&
                 worker_decode_leave(f->payload, f->len, &epoch) == 0,
             "LEAVE");
        frame_done(&c->in, f);
    }
}

static void read_conn(struct agent *a, struct conn *c)
{
    char bytes[4096];
    ssize_t n = read(c->fd, bytes, sizeof(bytes));
    struct frame f;

    if (n <= 0) {
        hang_up(c);
        return;
    }
    need(hb_buf_append(&c->in, bytes, (size_t)n) == 0, "append");
    while (c->fd >= 0 && frame_decode(&c->in, 1 << 16, &f, NULL) == 1)
        hear(a, c, &f);
}

static void accept_conn(struct agent *a)
{
    struct conn *c = NULL;

    for (int i = 0; i < a->conn_count && !c; i++)
        if (a->conns[i].fd < 0)
            c = &a->conns[i];
    if (!c) {
        need(a->conn_count < CONNS_MAX, "too many connections");
        c = &a->conns[a->conn_count++];
    }
    memset(c, 0, sizeof(*c));
    c->rank = -1;
    c->fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
    need(c->fd >= 0, "accept");
}

/* ---- The loop ------------------------------------------------------ */

static void listen_on(struct agent *a)
{
    static unsigned serial;
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    socklen_t len;

    snprintf(a->address, sizeof(a->address), "unix:@hvd-test-%d-%u",
             (int)getpid(), serial++);
    len = (socklen_t)strlen(a->address + 6);
    memcpy(sa.sun_path + 1, a->address + 6, len);
    len += (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1;
    a->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    need(a->listener >= 0 &&
             bind(a->listener, (struct sockaddr *)&sa, len) == 0 &&
             listen(a->listener, WORLD_RANKS_MAX) == 0,
         "listen");
}

static void turn(struct agent *a)
{
    struct pollfd p[1 + CONNS_MAX + WORLD_RANKS_MAX];
    int conns = a->conn_count, n = 0;
    int victim = atomic_exchange(&world_board->kill_rank, 0) - 1;

    if (victim >= 0 && a->pidfds[victim] >= 0)
        kill(a->pids[victim], SIGKILL);
    p[n++] = (struct pollfd){a->listener, POLLIN, 0};
    for (int i = 0; i < conns; i++)
        p[n++] = (struct pollfd){a->conns[i].fd, POLLIN, 0};
    for (int r = 0; r < a->world->size; r++)
        p[n++] = (struct pollfd){a->pidfds[r], POLLIN, 0};
    if (poll(p, (nfds_t)n, POLL_MS) <= 0)
        return;
    for (int r = 0; r < a->world->size; r++)
        if (p[1 + conns + r].revents)
            reap(a, r);
    for (int i = 0; i < conns; i++)
        if (p[1 + i].revents && a->conns[i].fd >= 0)
            read_conn(a, &a->conns[i]);
    if (p[0].revents)
        accept_conn(a);
}

static void kill_all(struct agent *a)
{
    fprintf(stderr, "world: still running after %d s\n", WORLD_LIMIT_S);
    for (int r = 0; r < a->world->size; r++)
        if (a->pidfds[r] >= 0)
            kill(a->pids[r], SIGKILL);
}

int world_run_with(struct world *w)
{
    static struct agent a;
    uint64_t limit_ns = hb_now_ns() + (uint64_t)WORLD_LIMIT_S * 1000000000;
    int failed = 0;

    memset(&a, 0, sizeof(a));
    a.world = w;
    world_board = mmap(NULL, sizeof(*world_board), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(world_board != MAP_FAILED && w->size <= WORLD_RANKS_MAX, "mmap");
    listen_on(&a);
    start_ranks(&a);
    while (a.alive) {
        turn(&a);
        if (hb_now_ns() > limit_ns) {
            kill_all(&a);
            limit_ns = UINT64_MAX;
        }
    }
    for (int i = 0; i < a.conn_count; i++)
        if (a.conns[i].fd >= 0)
            hang_up(&a.conns[i]);
    close(a.listener);
    if (a.head)
        munmap(a.head, a.head_bytes);
    munmap(world_board, sizeof(*world_board));
    for (int r = 0; r < w->size; r++)
        failed += w->wait_status[r] != 0;
    return failed;
}

int world_run(int size, world_fn *body, void *arg)
{
    struct world w = {.size = size, .body = body, .arg = arg};

    return world_run_with(&w);
}
