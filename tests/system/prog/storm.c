/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of the fault storm (test_storm.sh):
 *
 *     storm SEED ROUNDS AFTER [VICTIM FAULT WHEN]...
 *
 * Carries out ROUNDS rounds of collectives, chosen by SEED alike on all
 * ranks, and checks every result.  FAULT befalls rank VICTIM after WHEN
 * microseconds, which may be before or inside hvd_init:
 *
 *     kill:SIGNAL   the process sends itself that signal; stop: SIGSTOP
 *     exit:CODE     exit() in a second thread; leave:CODE: _exit()
 *     agent         the agent of this host is killed; hvdrun: hvdrun is
 *     skip, size    WHEN is the number of a round, in which the victim leaves
 *                   out a named allreduce, or gives it another count
 *
 * A stop happens before the last round or not at all: after the last round
 * nobody waits for the stopped rank, so the job would never end.
 *
 * The victim prints "storm: FAULT" on stderr just before.  AFTER is what a rank
 * does after an operation failed and it has printed that: exit, leave (without
 * exit handlers), shutdown (before exit) or sleep; "mixed" chooses by rank.
 */
#include "lib/base/env.h"
#include "runtime/hvd.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BIG = 1 << 20, BURST = 6 };

struct fault {
    const char *what;
    long arg;
    long when;
};

static uint64_t state;
static const char *after;
static struct fault fault;
static hvd_request *requests[BURST];
static float *in, *out, *lent;
static int rank, size, evens;

/* Held while the fault happens, and to set is_over, after which no fault
 * happens. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_over;

static uint32_t chance(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static long number(const char *s)
{
    int64_t v;

    if (hb_parse_i64(s, 0, INT32_MAX, &v, NULL) < 0) {
        fprintf(stderr, "storm: '%s' is no number\n", s);
        exit(99);
    }
    return (long)v;
}

static void pause_us(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};

    nanosleep(&t, NULL);
}

/* ---- The fault ---- */

static void announce(void)
{
    char line[64];
    int n = snprintf(line, sizeof(line), "storm: %s\n", fault.what);

    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        _exit(99);
}

/* Returns the pid of the nearest ancestor that runs the program `name`. */
static pid_t ancestor(const char *name)
{
    char path[64], comm[64];
    pid_t pid = getppid();

    while (pid > 1) {
        int found = 0, parent = 0;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        f = fopen(path, "r");
        if (f)
            found = fscanf(f, "%*d (%63[^)]) %*c %d", comm, &parent);
        if (f)
            fclose(f);
        if (found != 2)
            break;
        if (strcmp(comm, name) == 0)
            return pid;
        pid = parent;
    }
    fprintf(stderr, "storm: no ancestor %s\n", name);
    _exit(99);
}

static void *strike(void *arg)
{
    pause_us(fault.when);
    pthread_mutex_lock(&lock);
    if (!is_over) {
        announce();
        if (strcmp(fault.what, "kill") == 0)
            kill(getpid(), (int)fault.arg);
        else if (strcmp(fault.what, "stop") == 0)
            kill(getpid(), SIGSTOP);
        else if (strcmp(fault.what, "agent") == 0)
            kill(getppid(), SIGKILL);
        else if (strcmp(fault.what, "hvdrun") == 0)
            kill(ancestor("hvdrun"), SIGKILL);
        else if (strcmp(fault.what, "leave") == 0)
            _exit((int)fault.arg);
        else if (strcmp(fault.what, "exit") == 0)
            exit((int)fault.arg);
    }
    pthread_mutex_unlock(&lock);
    return arg;
}

static int is_timed(void)
{
    return fault.what && strcmp(fault.what, "skip") != 0 &&
           strcmp(fault.what, "size") != 0;
}

static int strikes_in(const char *what, long round)
{
    return fault.what && strcmp(fault.what, what) == 0 && fault.when == round;
}

static void finish(void)
{
    pthread_mutex_lock(&lock);
    is_over = 1;
    pthread_mutex_unlock(&lock);
}

/* Sets the fault from `what`, which it cuts at the colon, and `when`. */
static void read_fault(char *what, const char *when)
{
    char *arg = strchr(what, ':');
    pthread_t thread;

    if (arg)
        *arg++ = '\0';
    fault.what = what;
    fault.arg = arg ? number(arg) : 0;
    fault.when = number(when);
    if (is_timed() && pthread_create(&thread, NULL, strike, NULL) != 0)
        exit(99);
}

/* ---- The collectives ---- */

static _Noreturn void fail(const char *where, int rc)
{
    static const char *const ways[] = {"exit", "leave", "shutdown", "sleep"};
    const char *way = after;

    fprintf(stderr, "storm: %s: %d: %s\n", where, rc, hvd_error_message());
    finish(); /* does not return if the fault ends this process */
    if (strcmp(way, "mixed") == 0)
        way = ways[((unsigned)rank + chance(4)) % 4];
    if (strcmp(way, "leave") == 0)
        _exit(1);
    if (strcmp(way, "shutdown") == 0)
        hvd_shutdown();
    if (strcmp(way, "sleep") == 0)
        pause_us(100000000);
    exit(1);
}

/* Returns whether the operation gave a result.  Ends the process after an error
 * other than a mismatch. */
static int expect(int rc, const char *where)
{
    if (rc == -HVD_EMISMATCH) {
        fprintf(stderr, "storm: %s: mismatch: %s\n", where,
                hvd_error_message());
        return 0;
    }
    if (rc < 0)
        fail(where, rc);
    return 1;
}

static void expect_value(float got, float want, const char *where)
{
    if (got == want)
        return;
    fprintf(stderr, "storm: wrong value: %s: %g instead of %g\n", where,
            (double)got, (double)want);
    _exit(98);
}

static void fill(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(rank + 1);
}

static float sum_of(int n)
{
    return (float)(n * (n + 1) / 2);
}

static void reduce(float *from, size_t count)
{
    fill(from, count);
    if (!expect(hvd_allreduce(from, out, count, HVD_FLOAT32, HVD_SUM, NULL),
                "allreduce"))
        return;
    expect_value(out[0], sum_of(size), "allreduce");
    expect_value(out[count - 1], sum_of(size), "allreduce");
}

static void gather(size_t most)
{
    size_t mine = 1 + (size_t)rank * most / 8, at = 0;
    size_t counts[64];

    fill(in, mine);
    if (!expect(hvd_allgather(in, mine, out, BIG, counts, HVD_FLOAT32, NULL),
                "allgather"))
        return;
    for (int r = 0; r < size; at += counts[r++])
        expect_value(out[at], (float)(r + 1), "allgather");
}

static void cast(int root, size_t count)
{
    fill(in, count);
    if (!expect(hvd_broadcast(in, in, count, HVD_FLOAT32, root, NULL),
                "broadcast"))
        return;
    expect_value(in[count - 1], (float)(root + 1), "broadcast");
}

/* Sums in the process set of the even ranks. */
static void reduce_evens(size_t count)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    float want = 0;

    if (rank % 2)
        return;
    o.process_set = evens;
    for (int r = 0; r < size; r += 2)
        want += (float)(r + 1);
    fill(in, count);
    if (expect(hvd_allreduce(in, out, count, HVD_FLOAT32, HVD_SUM, &o),
               "allreduce of a set"))
        expect_value(out[count - 1], want, "allreduce of a set");
}

/* Issues a burst of named operations, in an order of each rank's own. */
static void burst(long round, size_t count)
{
    int odd = (int)chance(BURST), first = rank % BURST;

    fill(in, count + 1);
    for (int k = 0; k < BURST; k++) {
        int i = (first + k) % BURST;
        size_t n = count;
        char name[32];

        requests[i] = NULL;
        if (i == odd && strikes_in("skip", round)) {
            announce();
            continue;
        }
        if (i == odd && strikes_in("size", round)) {
            announce();
            n++;
        }
        snprintf(name, sizeof(name), "w%d", i);
        expect(hvd_allreduce_async(name, in, out + (size_t)i * (BIG / BURST), n,
                                   HVD_FLOAT32, HVD_SUM, NULL, &requests[i]),
               name);
    }
    for (int i = 0; i < BURST; i++)
        if (requests[i] && expect(hvd_wait(requests[i]), "burst"))
            expect_value(out[(size_t)i * (BIG / BURST)], sum_of(size), "burst");
}

static void round_of(long round)
{
    uint32_t kind = chance(8), amount = 1 + chance(2000);

    switch (kind) {
    case 0:
        reduce(in, amount);
        break;
    case 1:
        reduce(lent, amount);
        break;
    case 2:
        reduce(in, BIG - amount);
        break;
    case 3:
        gather(amount);
        break;
    case 4:
        cast((int)(amount % (uint32_t)size), amount);
        break;
    case 5:
        reduce_evens(amount);
        break;
    case 6:
        expect(hvd_barrier(NULL), "barrier");
        break;
    default:
        break;
    }
    burst(round, 1 + amount % 300);
}

static void open_all(void)
{
    int members[64], n = 0;
    int rc = hvd_init();

    if (rc < 0)
        fail("hvd_init", rc);
    rank = hvd_rank();
    size = hvd_size();
    for (int r = 0; r < size; r += 2)
        members[n++] = r;
    rc = hvd_process_set_add(members, (size_t)n, &evens);
    if (rc < 0)
        fail("hvd_process_set_add", rc);
    rc = hvd_alloc(BIG * sizeof(*lent), (void **)&lent);
    if (rc < 0)
        fail("hvd_alloc", rc);
}

int main(int argc, char **argv)
{
    const char *own = getenv("HVD_RANK");
    long rounds;
    int rc;

    if (argc < 4 || (argc - 4) % 3 || !own)
        return 99;
    state = (uint64_t)number(argv[1]);
    after = argv[3];
    rank = (int)number(own);
    in = malloc((BIG + 1) * sizeof(*in));
    out = malloc((BIG + 1) * sizeof(*out));
    if (!in || !out)
        return 99;
    for (int i = 4; i < argc; i += 3)
        if (number(argv[i]) == rank)
            read_fault(argv[i + 1], argv[i + 2]);
    open_all();
    rounds = number(argv[2]);
    for (long i = 0; i < rounds; i++) {
        if (i == rounds - 1 && fault.what && strcmp(fault.what, "stop") == 0)
            finish();
        round_of(i);
    }
    finish();
    rc = hvd_shutdown();
    if (rc < 0)
        fail("hvd_shutdown", rc);
    free(in);
    free(out);
    return 0;
}
