/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what the machine itself allows: the least that two processes on two
 * cores must do for a collective, without any library.
 *
 *     machine_probe weather         how busy the machine is right now
 *     machine_probe limits BYTES... the limits of tests/bench/speed
 *
 * Prints one JSON object of medians, in microseconds:
 *   flag      each of two cores writes a word and sees the other's
 *   switch    yielding to another process on the same core, one way
 *   add       BYTES summed by two processes in shared memory: each adds half
 *             and copies the other half, with two exchanges of flags
 *   copy      both copy BYTES of their own at the same time
 *   exchange  both send BYTES to the other over TCP on the loopback interface
 * The last three are given for each size.  For the weather also
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __AVX__
#include <immintrin.h>
#endif

enum {
    ROUNDS_MIN = 5,
    ROUNDS_MAX = 50,
    BUDGET_NS = 40000000, /* for one number */
    BLOCK = 1000,         /* exchanges of flags in a round */
    SPINS = 200,          /* before a waiting socket is polled */
    CHUNK = 1 << 18,
    LIMIT_S = 60
};

struct line {
    _Alignas(128) atomic_uint seq;
};

struct shared {
    struct line lines[2];
    atomic_int go; /* 1: do another round; set by process 0 */
    float *in[2], *out[2];
    double waits[2]; /* of weather() */
};

struct side {
    struct shared *shared;
    int me; /* 0 or 1 */
    unsigned seq;
    int fd;       /* connected to the other side */
    void *own[2]; /* memory that is not shared */
    int cpus[2];
};

static void die(const char *what)
{
    fprintf(stderr, "machine_probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- Both sides ------------------------------------------------------ */

static void pin(int cpu)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) < 0)
        die("pin");
}

/* Stores the first two CPUs that this process may use; the same twice if there
 * is one only. */
static void find_cpus(int cpus[2])
{
    cpu_set_t allowed;
    int n = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        die("ask for the CPUs");
    for (int c = 0; c < CPU_SETSIZE && n < 2; c++)
        if (CPU_ISSET((size_t)c, &allowed))
            cpus[n++] = c;
    if (n == 1)
        cpus[1] = cpus[0];
}

/* Waits until the other side is here, too.  The release of `own` pairs with the
 * acquire by the other side, which then sees all that was written before. */
static void meet(struct side *s, int yields)
{
    atomic_uint *own = &s->shared->lines[s->me].seq;
    atomic_uint *other = &s->shared->lines[!s->me].seq;

    atomic_store_explicit(own, ++s->seq, memory_order_release);
    while (atomic_load_explicit(other, memory_order_acquire) - s->seq >
           1u << 31)
        if (yields || s->cpus[0] == s->cpus[1])
            sched_yield();
}

static void flags(struct side *s, size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < BLOCK; i++)
        meet(s, 0);
}

static void switches(struct side *s, size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < BLOCK; i++)
        meet(s, 1);
}

struct mover {
    void (*add)(float *restrict out, const float *restrict a,
                const float *restrict b, size_t n);
    void (*copy)(float *restrict out, const float *restrict a, size_t n);
};

static void add_plain(float *restrict out, const float *restrict a,
                      const float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void copy_plain(float *restrict out, const float *restrict a, size_t n)
{
    memcpy(out, a, n * sizeof(float));
}

static const struct mover plain = {add_plain, copy_plain};

/* Adds with stores that bypass the caches, which is faster for what does not
 * fit into them. */
#ifdef __AVX__
static void add_past(float *restrict out, const float *restrict a,
                     const float *restrict b, size_t n)
{
    for (size_t i = 0; i + 8 <= n; i += 8)
        _mm256_stream_ps(out + i, _mm256_add_ps(_mm256_loadu_ps(a + i),
                                                _mm256_loadu_ps(b + i)));
    _mm_sfence();
}

static void copy_past(float *restrict out, const float *restrict a, size_t n)
{
    for (size_t i = 0; i + 8 <= n; i += 8)
        _mm256_stream_ps(out + i, _mm256_loadu_ps(a + i));
    _mm_sfence();
}

static const struct mover past_cache = {add_past, copy_past};
#else
static const struct mover past_cache = {add_plain, copy_plain};
#endif

static void add_with(struct side *s, size_t bytes, const struct mover *m)
{
    struct shared *sh = s->shared;
    size_t half = bytes / sizeof(float) / 2, at = s->me ? half : 0;
    size_t other = half - at;

    m->add(sh->out[s->me] + at, sh->in[0] + at, sh->in[1] + at, half);
    meet(s, 0);
    m->copy(sh->out[s->me] + other, sh->out[!s->me] + other, half);
    meet(s, 0);
}

static void adds(struct side *s, size_t bytes)
{
    add_with(s, bytes, &plain);
}

static void adds_past_cache(struct side *s, size_t bytes)
{
    add_with(s, bytes, &past_cache);
}

static void copies(struct side *s, size_t bytes)
{
    plain.copy(s->own[1], s->own[0], bytes / sizeof(float));
    meet(s, 0);
}

static void copies_past_cache(struct side *s, size_t bytes)
{
    past_cache.copy(s->own[1], s->own[0], bytes / sizeof(float));
    meet(s, 0);
}

/* Writes and reads what is possible without waiting.  Returns 0 if nothing
 * was. */
static int move_some(struct side *s, size_t bytes, size_t *sent, size_t *got)
{
    size_t left = bytes - *sent, room = bytes - *got;
    ssize_t w = 0, r = 0;

    if (left > 0)
        w = send(s->fd, (char *)s->shared->in[s->me] + *sent,
                 left < CHUNK ? left : CHUNK, MSG_NOSIGNAL);
    if (room > 0)
        r = recv(s->fd, (char *)s->shared->out[s->me] + *got,
                 room < CHUNK ? room : CHUNK, 0);
    if ((room > 0 && r == 0) || ((w < 0 || r < 0) && errno != EAGAIN))
        die("exchange");
    *sent += w > 0 ? (size_t)w : 0;
    *got += r > 0 ? (size_t)r : 0;
    return w > 0 || r > 0;
}

static void exchanges(struct side *s, size_t bytes)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    size_t sent = 0, got = 0;
    int idle = 0;

    while (sent < bytes || got < bytes) {
        idle = move_some(s, bytes, &sent, &got) ? 0 : idle + 1;
        if (idle < SPINS)
            continue;
        p.events = POLLIN | (sent < bytes ? POLLOUT : 0);
        if (poll(&p, 1, 1000) <= 0)
            die("exchange");
    }
}

/* ---- Rounds ---------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Returns the median time of a round in ns.  Process 0 decides how many there
 * are. */
static double median_of(struct side *s, void (*round)(struct side *, size_t),
                        size_t bytes, int yields)
{
    double ns[ROUNDS_MAX], begin = now_ns(), start;
    int n = 0, go = 1;

    round(s, bytes);
    while (go) {
        meet(s, yields);
        start = now_ns();
        round(s, bytes);
        ns[n++] = now_ns() - start;
        if (s->me == 0)
            atomic_store(&s->shared->go,
                         n < ROUNDS_MAX &&
                             (n < ROUNDS_MIN || now_ns() - begin < BUDGET_NS));
        meet(s, yields);
        go = atomic_load(&s->shared->go);
        meet(s, yields);
    }
    qsort(ns, (size_t)n, sizeof(*ns), by_value);
    return ns[n / 2];
}

static double best_of(struct side *s, void (*one)(struct side *, size_t),
                      void (*two)(struct side *, size_t), size_t bytes)
{
    double a = median_of(s, one, bytes, 0), b = median_of(s, two, bytes, 0);

    return a < b ? a : b;
}

static double cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Measures the weather.  Neither side ever sleeps, so when wall time exceeds
 * CPU time, other processes had its CPU. */
static void weather(struct side *s)
{
    double wall = now_ns(), cpu = cpu_ns();
    double flag = median_of(s, flags, 0, 0) / BLOCK;
    double add = median_of(s, adds, 1 << 20, 0);
    double *waits = s->shared->waits;

    waits[s->me] = (now_ns() - wall) / (cpu_ns() - cpu);
    meet(s, 0);
    if (s->me == 0)
        printf("{\"flag\":%.4f,\"add\":%.2f,\"wait\":%.3f}\n", flag / 1e3,
               add / 1e3, waits[0] > waits[1] ? waits[0] : waits[1]);
}

static void limits(struct side *s, char **sizes)
{
    double v = median_of(s, flags, 0, 0) / BLOCK, w;

    if (s->me == 0)
        printf("{\"flag\":%.4f", v / 1e3);
    pin(s->cpus[0]);
    meet(s, 1);
    v = median_of(s, switches, 0, 1) / BLOCK / 2;
    pin(s->cpus[s->me]);
    meet(s, 1);
    if (s->me == 0)
        printf(",\"switch\":%.4f", v / 1e3);
    for (char **z = sizes; *z; z++) {
        size_t bytes = strtoul(*z, NULL, 10) / 64 * 64;

        v = best_of(s, adds, adds_past_cache, bytes);
        w = best_of(s, copies, copies_past_cache, bytes);
        if (s->me == 0)
            printf(",\"add%s\":%.3f,\"copy%s\":%.3f", *z, v / 1e3, *z, w / 1e3);
        bytes = strtoul(*z, NULL, 10);
        v = median_of(s, exchanges, bytes, 0);
        if (s->me == 0)
            printf(",\"exchange%s\":%.3f", *z, v / 1e3);
    }
    if (s->me == 0)
        printf("}\n");
}

/* ---- Setting up ------------------------------------------------------ */

static void connect_sides(int fds[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof(a);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || fds[0] < 0 ||
        bind(listener, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&a, &len) < 0 ||
        connect(fds[0], (struct sockaddr *)&a, sizeof(a)) < 0 ||
        (fds[1] = accept(listener, NULL, NULL)) < 0)
        die("connect over loopback");
    close(listener);
    for (int i = 0; i < 2; i++)
        if (setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) <
                0 ||
            fcntl(fds[i], F_SETFL, O_NONBLOCK) < 0)
            die("set up a socket");
}

static void *pages(size_t bytes, int flags)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        die("map memory");
    return p;
}

static void run(struct side *s, const int fds[2], int argc, char **argv,
                size_t most)
{
    s->fd = fds[s->me];
    pin(s->cpus[s->me]);
    memset(s->shared->in[s->me], 1, most);
    memset(s->shared->out[s->me], 1, most);
    for (int i = 0; i < 2; i++) {
        s->own[i] = pages(most, MAP_PRIVATE);
        memset(s->own[i], 1, most);
    }
    if (argc == 2)
        weather(s);
    else
        limits(s, argv + 2);
}

int main(int argc, char **argv)
{
    struct side side = {.shared = pages(sizeof(struct shared), MAP_SHARED)};
    size_t most = 1 << 20, bytes;
    int fds[2], status;
    pid_t child;

    if (argc < 2 || strcmp(argv[1], argc > 2 ? "limits" : "weather") != 0) {
        fprintf(stderr, "usage: machine_probe weather | limits BYTES...\n");
        return 2;
    }
    alarm(LIMIT_S); /* ends this side if the other one is gone */
    for (int i = 2; i < argc; i++) {
        bytes = strtoul(argv[i], NULL, 10);
        most = bytes > most ? bytes : most;
    }
    for (int i = 0; i < 2; i++) {
        side.shared->in[i] = pages(most, MAP_SHARED);
        side.shared->out[i] = pages(most, MAP_SHARED);
    }
    find_cpus(side.cpus);
    connect_sides(fds);
    child = fork();
    if (child < 0)
        die("fork");
    side.me = child == 0;
    run(&side, fds, argc, argv, most);
    if (child == 0)
        return 0;
    if (waitpid(child, &status, 0) < 0 || status != 0)
        die("the other side failed");
    return 0;
}
