/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for tests: see world.h.  The agent is one poll loop over its
 * listening socket, the ranks' connections and their pidfds.
 */
#include "tests/unit/world_impl.h"

#include "lib/base/sys/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
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
    POLL_MS = 2, /* delay until world_board->kill_rank is seen */
    WORLD_LIMIT_S = 180,
};

struct world_board *world_board;

/* ---- Places --------------------------------------------------------- */

const char *world_host(const struct world *w, int rank)
{
    static char name[16];

    if (!w->place)
        return "testhost";
    snprintf(name, sizeof(name), "host-%c", w->place[rank]);
    return name;
}

static int local_rank_of(const struct agent *a, int rank)
{
    const struct host *h = &a->hosts[world_host_of(a->world, rank)];
    int local = 0;

    while (h->ranks[local] != rank)
        local++;
    return local;
}

void world_place(struct agent *a, int rank)
{
    int host = world_host_of(a->world, rank);
    struct host *h = &a->hosts[host];

    h->ranks[h->size++] = rank;
    if (host >= a->host_count)
        a->host_count = host + 1;
}

/* Counts the hosts before `hosts` that have this local rank. */
static int cross_count(const struct agent *a, int local_rank, int hosts)
{
    int n = 0;

    for (int i = 0; i < hosts; i++)
        n += a->hosts[i].size > local_rank;
    return n;
}

static void place_ranks(struct agent *a)
{
    a->size = a->world->size;
    for (int r = 0; r < a->size; r++) {
        a->number[r] = r;
        world_place(a, r);
    }
}

/* Fills a rank's WELCOME with its place among ranks and hosts. */
static void topology(const struct agent *a, int rank, struct worker_welcome *w)
{
    int host = world_host_of(a->world, rank), local = local_rank_of(a, rank);

    w->rank = (uint32_t)a->number[rank];
    w->size = (uint32_t)a->size;
    w->local_rank = (uint32_t)local;
    w->local_size = (uint32_t)a->hosts[host].size;
    w->cross_rank = (uint32_t)cross_count(a, local, host);
    w->cross_size = (uint32_t)cross_count(a, local, a->host_count);
}

/* ---- Ranks --------------------------------------------------------- */

static void set_number(const char *name, uint32_t value)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", value);
    need(setenv(name, text, 1) == 0, "setenv");
}

static void rank_main(const struct agent *a, int rank)
{
    static struct worker_welcome w;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(a->listener);
    topology(a, rank, &w);
    set_number("HVD_RANK", w.rank);
    set_number("HVD_LOCAL_RANK", w.local_rank);
    set_number("HVD_SIZE", w.size);
    set_number("HVD_LOCAL_SIZE", w.local_size);
    set_number("HVD_CROSS_RANK", w.cross_rank);
    set_number("HVD_CROSS_SIZE", w.cross_size);
    need(setenv("HVD_RENDEZVOUS", a->address, 1) == 0, "setenv");
    need(!a->world->elastic || setenv("HVD_ELASTIC", "1", 1) == 0, "setenv");
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

static void say_abort(struct agent *a, int rank, const char *text);

static void tell_death(struct agent *a, int rank, int wait_status)
{
    const char *host = world_host(a->world, rank);
    char text[SEGMENT_TEXT_MAX];

    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)
        return;
    if (WIFSIGNALED(wait_status))
        snprintf(text, sizeof(text), "rank %d on host %s: killed by signal %d",
                 rank, host, WTERMSIG(wait_status));
    else
        snprintf(text, sizeof(text), "rank %d on host %s: exit status %d", rank,
                 host, WEXITSTATUS(wait_status));
    snprintf(a->why, sizeof(a->why), "%s", text);
    if (a->number[rank] < 0)
        return;
    a->dead = a->number[rank] + 1;
    for (int i = 0; i < a->host_count; i++)
        if (a->hosts[i].head)
            segment_abort(a->hosts[i].head, (uint32_t)a->hosts[i].size,
                          (uint32_t)a->number[rank], HVD_EPEER, text);
    say_abort(a, rank, text);
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

void world_say(const struct conn *c, const struct hb_buf *out, int fd)
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
    /* A failure is ignored: the pidfd tells of a rank that is gone. */
    while (sendmsg(c->fd, &msg, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

static uint32_t usable_cpus(void)
{
    cpu_set_t set;

    need(sched_getaffinity(0, sizeof(set), &set) == 0, "getaffinity");
    return (uint32_t)CPU_COUNT(&set);
}

void world_say_welcome(const struct agent *a, const struct conn *c)
{
    static struct worker_welcome w;
    const struct world *world = a->world;
    int host = world_host_of(world, c->rank);
    const struct host *h = &a->hosts[host];
    struct hb_buf out = HB_BUF_INIT;

    memset(&w, 0, sizeof(w));
    topology(a, c->rank, &w);
    w.local_count = w.local_size;
    w.host_index = (uint32_t)cross_count(a, 0, host);
    w.host_count = (uint32_t)cross_count(a, 0, a->host_count);
    w.generation = a->generation;
    w.joined = (uint32_t)a->joined;
    w.removed = (uint32_t)a->removed;
    if (a->generation)
        snprintf(w.why, sizeof(w.why), "%s", a->why);
    for (uint32_t i = 0; i < w.local_count; i++) {
        w.local_ranks[i] = (uint32_t)a->number[h->ranks[i]];
        w.local_domains[i] = world->domains ? world->domains[i] : 0;
    }
    if (world->fault == WORLD_WRONG_SIZE) {
        w.local_ranks[w.local_count++] = w.size++;
        w.local_size++;
    }
    w.cpus = world->cpus ? world->cpus : usable_cpus();
    snprintf(w.host, sizeof(w.host), "%s", world_host(world, c->rank));
    snprintf(w.job_id, sizeof(w.job_id), "0123456789abcdef");
    need(worker_encode_welcome(&out, &w) == 0, "welcome");
    world_say(c, &out, -1);
    hb_buf_free(&out);
}

static void hang_up(struct conn *c)
{
    close(c->fd);
    c->fd = -1;
    c->joined = 0;
    c->is_ready = 0;
    c->scope[0] = '\0';
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
        world_say(c, &out, -1);
        break;
    case WORLD_TALKS_RUBBISH:
        need(hb_buf_puts(&out, "HTTP/1.1 400 Bad Request") == 0, "puts");
        world_say(c, &out, -1);
        break;
    default:
        if (a->world->elastic)
            c->is_ready = 1;
        else
            world_say_welcome(a, c);
    }
    hb_buf_free(&out);
}

/* Tells those that may wait for the segment, a fence or a connection. */
static void say_abort(struct agent *a, int rank, const char *text)
{
    struct worker_abort m = {.rank = (uint32_t)a->number[rank]};
    struct hb_buf out = HB_BUF_INIT;

    snprintf(m.text, sizeof(m.text), "%s", text);
    need(worker_encode_abort(&out, &m) == 0, "abort");
    for (int i = 0; i < a->conn_count; i++) {
        struct conn *c = &a->conns[i];

        if (c->fd >= 0 && c->rank >= 0 && !c->is_ready &&
            (a->host_count > 1 || a->world->elastic))
            world_say(c, &out, -1);
    }
    hb_buf_free(&out);
}

/* ---- The segment --------------------------------------------------- */

static int make_segment(struct agent *a, struct host *h, uint32_t epoch,
                        uint64_t bytes)
{
    int fd = memfd_create("world", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    uint64_t given = bytes;

    if (a->world->fault == WORLD_SMALL_SEGMENT)
        given -= 4096;
    need(fd >= 0 && ftruncate(fd, (off_t)given) == 0, "memfd");
    need(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "seal");
    if (h->head)
        munmap(h->head, h->head_bytes);
    h->head_bytes = segment_head_bytes((uint32_t)h->size);
    h->head =
        mmap(NULL, h->head_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need(h->head != MAP_FAILED, "mmap");
    if (a->world->fault == WORLD_BAD_HEAD)
        epoch++;
    segment_head_init(h->head, epoch, (uint32_t)h->size, bytes);
    return fd;
}

/* Returns whether a connection on that host waits for that epoch. */
static int waits(const struct agent *a, const struct conn *c, int host,
                 uint32_t epoch)
{
    return c->joined == epoch && world_host_of(a->world, c->rank) == host;
}

static void hand_out(struct agent *a, int host, uint32_t epoch, uint64_t bytes)
{
    struct worker_segment m = {epoch, bytes};
    int fd = make_segment(a, &a->hosts[host], epoch, bytes);
    struct hb_buf out = HB_BUF_INIT;

    need(worker_encode_segment(&out, &m) == 0, "segment");
    for (int i = 0; i < a->conn_count; i++) {
        struct conn *c = &a->conns[i];

        if (!waits(a, c, host, epoch))
            continue;
        c->joined = 0;
        world_say(c, &out, a->world->fault == WORLD_NO_MEMFD ? -1 : fd);
        if (a->world->fault == WORLD_GONE)
            hang_up(c);
    }
    hb_buf_free(&out);
    close(fd);
}

static void joined(struct agent *a, int host, uint32_t epoch, uint64_t bytes)
{
    int n = 0;

    for (int i = 0; i < a->conn_count; i++)
        n += waits(a, &a->conns[i], host, epoch);
    if (n == a->hosts[host].size)
        hand_out(a, host, epoch, bytes);
}

/* ---- What the agent hears ------------------------------------------ */

static void hear(struct agent *a, struct conn *c, const struct frame *f)
{
    struct worker_hello hello;
    struct worker_join join;
    uint32_t epoch, rank;

    switch (f->type) {
    case WORKER_HELLO:
        need(worker_decode_hello(f->payload, f->len, &hello) == 0, "HELLO");
        c->rank = (int)hello.rank;
        frame_done(&c->in, f);
        answer_hello(a, c);
        return;
    case WORKER_JOIN:
        need(worker_decode_join(f->payload, f->len, &join) == 0, "JOIN");
        frame_done(&c->in, f);
        if (world_elastic_ended(a, c))
            return;
        c->joined = join.epoch;
        joined(a, world_host_of(a->world, c->rank), join.epoch,
               join.segment_bytes);
        return;
    case WORKER_ROUTES:
        frame_done(&c->in, f);
        world_answer_routes(a, c);
        return;
    case WORKER_BLAMES:
        need(worker_decode_blames(f->payload, f->len, &rank) == 0, "BLAMES");
        frame_done(&c->in, f);
        return;
    case WORKER_LATE:
        need(worker_decode_late(f->payload, f->len, &rank) == 0, "LATE");
        frame_done(&c->in, f);
        return;
    case WORKER_STALLED: /* a long operation on a slow machine */
        need(f->len == WORKER_STALLED_BYTES - FRAME_HEADER_BYTES, "STALLED");
        frame_done(&c->in, f);
        return;
    case WORKER_RDV_FENCE:
        world_hear_fence(a, c, f);
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
    place_ranks(&a);
    world_board = mmap(NULL, sizeof(*world_board), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(world_board != MAP_FAILED && w->size <= WORLD_RANKS_MAX, "mmap");
    listen_on(&a);
    start_ranks(&a);
    while (a.alive) {
        turn(&a);
        if (w->elastic)
            world_elastic_turn(&a);
        if (hb_now_ns() > limit_ns) {
            kill_all(&a);
            limit_ns = UINT64_MAX;
        }
    }
    for (int i = 0; i < a.conn_count; i++)
        if (a.conns[i].fd >= 0)
            hang_up(&a.conns[i]);
    close(a.listener);
    for (int i = 0; i < a.host_count; i++)
        if (a.hosts[i].head)
            munmap(a.hosts[i].head, a.hosts[i].head_bytes);
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

struct thread {
    pthread_t id;
    int (*body)(int i);
    int i, rc;
};

static void *run_thread(void *arg)
{
    struct thread *t = arg;

    t->rc = t->body(t->i);
    return NULL;
}

int world_threads(int n, int (*body)(int i))
{
    struct thread t[WORLD_THREADS_MAX];
    int failed = 0;

    for (int i = 0; i < n; i++) {
        t[i] = (struct thread){.body = body, .i = i};
        if (pthread_create(&t[i].id, NULL, run_thread, &t[i]) != 0)
            return n;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(t[i].id, NULL);
        failed += t[i].rc != 0;
    }
    return failed;
}
