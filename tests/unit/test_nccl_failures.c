/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NCCL plug-in's plane under failures: ranks that cannot take part, calls
 * of CUDA and NCCL that fail, ranks that die or hang, and a plug-in that cannot
 * be opened.
 */
#include "tests/unit/nccl_world.h"

#include "lib/base/sys/clock.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Ranks that cannot take part ----------------------------------------- */

/* Checks that an allreduce in host memory still works. */
static int host_sum(void)
{
    struct hvd__op o = nccl_op(HVD__ALLREDUCE, HVD_INT32, HVD_SUM);
    int v = 1;

    o.flags = 0;
    o.sendbuf = o.recvbuf = &v;
    o.count = 1;
    must(nccl_carry_out(&o, 1) == 1 && v == nccl_self.n);
    return 0;
}

static const char *expected;
static int expected_status;

static int run_refused(struct shm_group *g, int me)
{
    if (nccl_begin(g, me))
        return 1;
    for (int i = 0; i < 2; i++) {
        must(!nccl_sum_is("nccl.allreduce"));
        must(nccl_self.err.status == expected_status);
        must(strstr(nccl_self.err.text, expected) != NULL);
        if (host_sum())
            return 1;
    }
    return nccl_end();
}

static int run_works(struct shm_group *g, int me)
{
    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    return nccl_end();
}

/* ---- Failures ------------------------------------------------------------ */

/* Queues host work on the rank's stream that lasts until an event ends it. */
static void begin_work(CUhostFn work)
{
    GPU(LaunchHostFunc, nccl_self.stream, work, NULL);
}

static _Atomic int has_failed;

static void work_until_failure(void *arg)
{
    (void)arg;
    while (!atomic_load(&has_failed))
        usleep(1000);
}

/* Runs sums until one fails; *waited: whether it failed in wait. */
static int until_failure(int ordered, int *waited)
{
    struct hvd__op o;
    void *at = gpu_alloc(4 * COUNT);
    int rc = 1;

    *waited = 0;
    for (int i = 0; i < 8 && rc == 1 && !*waited; i++) {
        o = nccl_op(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
        o.sendbuf = o.recvbuf = at;
        o.count = COUNT;
        o.device.ordered = ordered;
        rc = nccl_carry_out(&o, 0);
        if (rc == 1 && ordered) {
            rc = nccl_wait(o.device.launch, 0);
            *waited = rc < 0;
            rc = rc < 0 ? rc : 1;
        }
    }
    atomic_store(&has_failed, 1);
    gpu_free(at); /* waits for all work of the device */
    return rc;
}

/* Checks that the plane keeps failing with `status`. */
static int failed_for_good(int status)
{
    int waited;

    if (nccl_self.err.status != status)
        fprintf(stderr, "rank %d: %s\n", nccl_self.me, nccl_self.err.text);
    must(nccl_self.err.status == status);
    must(until_failure(0, &waited) == status);
    must(nccl_self.plane->ops->began(nccl_self.plane, &nccl_self.err) ==
         status);
    return nccl_end();
}

static int is_ordered;

static int run_hung(struct shm_group *g, int me)
{
    char who[64];
    int waited;

    if (nccl_begin(g, me))
        return 1;
    must(until_failure(is_ordered, &waited) < 0 && waited == is_ordered);
    must(strstr(nccl_self.err.text, "HVD_NCCL_TIMEOUT"));
    snprintf(who, sizeof(who), "rank %d on host n%d or a device hangs",
             101 - me, 1 - me);
    must(strstr(nccl_self.err.text, who));
    return failed_for_good(-HVD_ETIMEOUT);
}

/* When a peer never joins a communicator, made from scratch or by a split, the
 * others time out and nothing of it is left. */
static int run_absent(struct shm_group *g, int me)
{
    int waited;

    if (nccl_begin(g, me))
        return 1;
    must(until_failure(0, &waited) == -HVD_ETIMEOUT);
    return failed_for_good(-HVD_ETIMEOUT);
}

static _Atomic int *passed; /* count of ranks, shared by all */

/* Makes a sum that is complete for the engine once it is launched. */
static struct hvd__op ordered_sum(void *at)
{
    struct hvd__op o = nccl_op(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);

    o.sendbuf = o.recvbuf = at;
    o.count = COUNT;
    o.device.ordered = 1;
    return o;
}

/* A launched operation hangs while the driver waits for the odd rank to agree
 * on the next one: the wait times out. */
static int run_agreeing(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    struct hvd__op o, next;
    void *at;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    at = gpu_alloc(4 * COUNT);
    o = ordered_sum(at);
    next = o;
    must(nccl_carry_out(&o, 0) == 1);
    if (me == s->odd) {
        while (atomic_load(passed) < g->n - 1)
            usleep(1000);
    } else {
        must(nccl_carry_out(&next, 0) == -HVD_ETIMEOUT);
        must(strstr(nccl_self.err.text, "HVD_NCCL_TIMEOUT"));
        atomic_fetch_add(passed, 1);
    }
    gpu_free(at);
    nccl_self.plane->ops->leave(nccl_self.plane);
    return nccl_end();
}

/* A time-out's error names the rank that the agent, once it can, blames. */
static int run_named(struct shm_group *g, int me)
{
    int waited;

    if (nccl_begin(g, me))
        return 1;
    nccl_self.knows = 1;
    must(until_failure(is_ordered, &waited) == -HVD_ETIMEOUT);
    must(strstr(nccl_self.err.text, "(HVD_NCCL_TIMEOUT): rank 101 sleeps"));
    must(nccl_self.err.rank == 101 && strcmp(nccl_self.err.host, "n1") == 0);
    must(atomic_load(&nccl_self.asks) >= 10);
    must(atomic_load(&nccl_self.launched) == 3);
    must(atomic_load(&nccl_self.waits_for) == 0);
    return failed_for_good(-HVD_ETIMEOUT);
}

/* The odd rank's own work hangs.  Its limit is shorter than the other's, which
 * times out later or learns that the odd rank has left. */
static int run_late(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    int waited, rc;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    if (me == s->odd)
        begin_work(work_until_failure);
    rc = until_failure(is_ordered, &waited);
    if (me == s->odd)
        must(rc == -HVD_ETIMEOUT &&
             strstr(nccl_self.err.text, "has not come to it") &&
             nccl_self.err.rank == 100 + me);
    else
        must(rc < 0 && (strstr(nccl_self.err.text, "has waited for 3 s") ||
                        nccl_self.err.rank == 100 + s->odd));
    return failed_for_good(rc);
}

/* ---- Several streams ----------------------------------------------------- */

/* One rank is late twice, each time for less than the limit, but together for
 * longer: the second sum, on another stream, waits for it only once the first
 * is over. */
static int run_late_twice(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    uint64_t launch[2];
    void *at[2];

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    at[0] = gpu_alloc(4 * COUNT);
    at[1] = gpu_alloc(4 * COUNT);
    for (int i = 0; i < 2; i++) {
        struct hvd__op o = ordered_sum(at[i]);

        if (me == s->odd)
            gpu_delay(nccl_self.stream, 1300);
        must(nccl_carry_out(&o, 0) == 1);
        launch[i] = o.device.launch;
        must(nccl_order(launch[i], nccl_self.stream) == 0);
    }
    must(nccl_wait(launch[0], 0) == 1 && nccl_wait(launch[1], 0) == 1);
    gpu_free(at[0]);
    gpu_free(at[1]);
    return nccl_end();
}

/* Of two sums one is behind work of the caller's that does not end; the other,
 * on another stream, hangs in NCCL, and is scaled by a kernel after it.  When
 * it fails, its memory is the caller's again. */
static int run_late_and_hung(struct shm_group *g, int me)
{
    CUstream busy, own;
    struct hvd__op o;
    int32_t was[COUNT], is[COUNT];
    void *at[2];

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    own = nccl_self.stream;
    busy = gpu_stream();
    at[0] = gpu_alloc(4 * COUNT);
    at[1] = gpu_alloc(4 * COUNT);
    memset(was, 1, sizeof(was));
    gpu_write(at[1], was, sizeof(was));
    GPU(LaunchHostFunc, busy, work_until_failure, NULL);
    nccl_self.stream = busy;
    o = ordered_sum(at[0]);
    must(nccl_carry_out(&o, 0) == 1);
    nccl_self.stream = own;
    o = ordered_sum(at[1]);
    o.dtype = o.part_dtype = HVD_INT32;
    o.reduce = hvd__reduce_get(HVD_INT32, HVD_SUM);
    o.postscale = o.args.post = 3;
    must(nccl_carry_out(&o, 0) == 1);
    must(nccl_wait(o.device.launch, 0) == -HVD_ETIMEOUT);
    gpu_read(was, at[1], sizeof(was));
    usleep(100000);
    gpu_read(is, at[1], sizeof(is));
    must(memcmp(was, is, sizeof(is)) == 0);
    atomic_store(&has_failed, 1);
    gpu_free(at[0]);
    gpu_free(at[1]);
    GPU(StreamDestroy, busy);
    return nccl_end();
}

/* ---- Work of the rank's own ---------------------------------------------- */

static void wait_until_told(unsigned times)
{
    while (atomic_load(&nccl_self.unreached) < times &&
           !atomic_load(&has_failed))
        usleep(1000);
}

static _Atomic uint64_t unreached_ns;

/* Ends once the plane has noticed, after unreached_ns, that the device has not
 * got past this work: when it says so for the second time from then on, it has
 * looked again in between. */
static void work_until_seen(void *arg)
{
    (void)arg;
    wait_until_told(1); /* lets it last for a while */
    atomic_store(&unreached_ns, hb_now_ns());
    wait_until_told(atomic_load(&nccl_self.unreached) + 2);
}

/* The time limit of an operation starts only when earlier work of the rank's
 * own is done. */
static int run_after_work(struct shm_group *g, int me)
{
    int waited;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    begin_work(work_until_seen);
    must(until_failure(is_ordered, &waited) == -HVD_ETIMEOUT);
    must(strstr(nccl_self.err.text, "has waited for 2 s"));
    must(hb_now_ns() - atomic_load(&unreached_ns) > 2000 * UINT64_C(1000000));
    return failed_for_good(-HVD_ETIMEOUT);
}

static void work_until_held(void *arg)
{
    (void)arg;
    while (atomic_load(&nccl_self.hold) != 2)
        usleep(1000);
}

/* The driver ends an operation while the watch thread reports an earlier one:
 * the plane still reports that nothing is waited for any more. */
static int run_told_twice(struct shm_group *g, int me)
{
    struct hvd__op o, next;
    void *at;
    int left = 5000;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    at = gpu_alloc(4 * COUNT);
    o = ordered_sum(at);
    next = o;
    begin_work(work_until_held);
    must(nccl_carry_out(&o, 0) == 1);
    /* Only now: before, the driver reports too when another rank is late. */
    atomic_store(&nccl_self.hold, 1);
    while (atomic_load(&nccl_self.hold) == 1)
        usleep(1000);
    must(nccl_carry_out(&next, 0) == 1);
    must(nccl_order(next.device.launch, nccl_self.stream) == 0);
    GPU(StreamSynchronize, nccl_self.stream);
    atomic_store(&nccl_self.hold, 3);
    while (atomic_load(&nccl_self.hold))
        usleep(1000);
    while (atomic_load(&nccl_self.waits_for) && left-- > 0)
        usleep(1000);
    must(atomic_load(&nccl_self.waits_for) == 0);
    gpu_free(at);
    return nccl_end();
}

/* A plane may be freed while the device still works. */
static int run_stranded(struct shm_group *g, int me)
{
    struct hvd__op o;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    o = ordered_sum(gpu_alloc(4 * COUNT)); /* never freed */
    gpu_delay(nccl_self.stream, 3600 * 1000);
    must(nccl_carry_out(&o, 0) == 1);
    nccl_self.plane->ops->free(nccl_self.plane);
    must(atomic_load(&nccl_self.waits_for) == 0);
    _exit(0); /* see run_endless */
}

/* The odd rank's own work never ends.  NCCL cannot abort what comes after it;
 * the rank gets an error that says so, and can still leave and exit. */
static int run_endless(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    struct hvd__op o;
    uint64_t began_ns;
    int waited;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    if (me != s->odd) {
        must(until_failure(is_ordered, &waited) == -HVD_ETIMEOUT);
        return failed_for_good(-HVD_ETIMEOUT);
    }
    o = nccl_op(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
    o.sendbuf = o.recvbuf = gpu_alloc(4 * COUNT); /* never freed */
    o.count = COUNT;
    o.device.ordered = is_ordered;
    gpu_delay(nccl_self.stream, 3600 * 1000);
    if (nccl_carry_out(&o, 0) == 1)
        nccl_wait(o.device.launch, 0);
    must(strstr(nccl_self.err.text, "has not come to it"));
    began_ns = hb_now_ns();
    nccl_self.plane->ops->leave(nccl_self.plane);
    /* leave does not wait for its limit of 30 s, as this work never ends. */
    must(hb_now_ns() - began_ns < 30 * UINT64_C(1000000000));
    nccl_self.plane->ops->free(nccl_self.plane);
    nccl_self.gpu->close();
    /* Threads stay inside the double for ever, with the memory they use: keep
     * sanitizers from looking for leaks. */
    _exit(0);
}

/* The odd rank fails by itself; the others fail during their operation when it
 * leaves, and their error names it. */
static int run_broken(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    int waited, rc;

    if (nccl_begin(g, me))
        return 1;
    rc = until_failure(0, &waited);
    must(rc < 0);
    if (me == s->odd ? !strstr(nccl_self.err.text, expected)
                     : nccl_self.err.rank != 100 + s->odd)
        fprintf(stderr, "rank %d: %s\n", me, nccl_self.err.text);
    if (me == s->odd)
        must(rc == -HVD_ESYSTEM && strstr(nccl_self.err.text, expected));
    else
        must(nccl_self.err.rank == 100 + s->odd);
    return failed_for_good(rc);
}

/* The odd rank's second array is misaligned.  Only that rank notices, after the
 * others have launched the operation. */
static int run_skewed(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    char *at, *skewed;
    struct hvd__part parts[2];
    struct hvd__op o;
    int rc;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    at = gpu_alloc(4 * (COUNT + 1));
    skewed = at + 4 + (me == s->odd);
    parts[0] = (struct hvd__part){at, at, 0, 1, NULL};
    parts[1] = (struct hvd__part){skewed, skewed, 1, COUNT - 1, NULL};
    o = nccl_op(HVD__ALLREDUCE, HVD_INT32, HVD_SUM);
    o.prescale = o.args.pre = 1.25;
    o.recvbuf = at; /* for the event; the parts are what is reduced */
    o.parts = parts;
    o.nparts = 2;
    o.count = COUNT;
    rc = nccl_carry_out(&o, 0);
    gpu_free(at);
    if (me == s->odd)
        must(rc == -HVD_EINVAL &&
             strstr(nccl_self.err.text, "is not aligned to its elements"));
    else
        must(rc < 0 && nccl_self.err.rank == 100 + s->odd);
    return failed_for_good(rc);
}

/* Without an operation in progress the plane learns from `look` alone that the
 * job is over. */
static int run_over(struct shm_group *g, int me)
{
    struct hvd__op o;
    void *at;

    if (nccl_begin(g, me))
        return 1;
    at = gpu_alloc(4 * COUNT);
    o = ordered_sum(at);
    must(nccl_carry_out(&o, 0) == 1);
    atomic_store(&nccl_self.over, 1);
    must(nccl_wait(o.device.launch, 0) == -HVD_EPEER);
    must(strcmp(nccl_self.err.text, "it is over") == 0);
    gpu_free(at);
    return failed_for_good(-HVD_EPEER);
}

static int run_killed(struct shm_group *g, int me)
{
    int waited;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    if (me == 1)
        raise(SIGKILL);
    must(until_failure(0, &waited) == -HVD_EPEER);
    must(nccl_self.err.rank == 101);
    return failed_for_good(-HVD_EPEER);
}

/* ---- Opening ------------------------------------------------------------- */

/* Opens the plug-in with a setting; returns the status, and checks that the
 * error contains `text`. */
static int opens(const char *setting, const char *text)
{
    const struct nccl_scene s = {.n = 1, .odd = -1, .setting = setting};
    struct hb_error err = HB_ERROR_INIT;
    const struct hvd__gpu *table;
    int rc;

    nccl_set_environment(&s, 0);
    table = nccl_load(&err);
    must(table != NULL);
    rc = table->open(&err);
    if (rc == 0)
        table->close();
    if (!strstr(err.text, text)) {
        fprintf(stderr, "%s: %s\n", setting, err.text);
        return 1;
    }
    exit(-rc == expected_status ? 0 : 1);
}

static int run_open(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;

    (void)me;
    return opens(s->setting, expected);
}

/* ---- The suite ----------------------------------------------------------- */

static int wanted(int status, const char *text, struct nccl_scene s)
{
    expected_status = status;
    expected = text;
    return nccl_failures(s);
}

START_TEST(test_refused)
{
    struct nccl_scene s = {.n = 3, .hosts = 3, .odd = 1, .run = run_refused};

    s.setting = "FAKE_CUDA_FAIL=cuStreamCreate:2:1:2";
    ck_assert_int_eq(
        wanted(-HVD_ENOMEM, "rank 101 on host n1 cannot use NCCL: cuStream", s),
        0);
    s.setting = "FAKE_CUDA_FAIL=cuDeviceGetUuid:1:1:1";
    ck_assert_int_eq(wanted(-HVD_ESYSTEM, "cuDeviceGetUuid", s), 0);
    s.setting = "FAKE_NCCL_VERSION=22703";
    ck_assert_int_eq(wanted(-HVD_EUNSUPPORTED,
                            "rank 100 on host n0 has NCCL 2.28.9 and rank 101 "
                            "on host n1 has 2.27.3",
                            s),
                     0);
    s.hosts = 1;
    s.setting = NULL;
    s.one_device = 1;
    ck_assert_int_eq(wanted(-HVD_EUNSUPPORTED,
                            "ranks 100 and 101 on host n0 use the same GPU", s),
                     0);
    s.n = 2;
    s.setting = "NCCL_HOSTID=another";
    s.run = run_works;
    ck_assert_int_eq(nccl_failures(s), 0);
}
END_TEST

START_TEST(test_failures)
{
    struct nccl_scene s = {.n = 3, .odd = 1};

    s.run = run_broken;
    s.setting = "FAKE_NCCL=error:1:3";
    ck_assert_int_eq(wanted(0, "injected into the double", s), 0);
    s.setting = "FAKE_NCCL=call:1:3";
    ck_assert_int_eq(wanted(0, "CUDA device 1: ncclAllReduce", s), 0);
    s.setting = "FAKE_NCCL=init:1:1";
    ck_assert_int_eq(wanted(0, "ncclCommInitRankConfig", s), 0);
    s.setting = "FAKE_CUDA_FAIL=cuEventRecord:700:1:10";
    ck_assert_int_eq(wanted(0, "cuEventRecord", s), 0);
    s.setting = NULL;
    s.run = run_skewed;
    ck_assert_int_eq(nccl_failures(s), 0);
    s.run = run_killed;
    ck_assert_int_eq(nccl_failures(s), 1);
}
END_TEST

START_TEST(test_own_work)
{
    const struct nccl_scene late = {.n = 2,
                                    .odd = 1,
                                    .limit_s = 3,
                                    .setting = "HVD_NCCL_TIMEOUT=1",
                                    .run = run_late};
    const struct nccl_scene after = {.n = 1,
                                     .odd = -1,
                                     .limit_s = 2,
                                     .setting = "FAKE_NCCL=hang:0:2",
                                     .run = run_after_work};
    const struct nccl_scene told = {.n = 2, .odd = -1, .run = run_told_twice};

    for (is_ordered = 0; is_ordered < 2; is_ordered++) {
        ck_assert_int_eq(nccl_failures(late), 0);
        ck_assert_int_eq(nccl_failures(after), 0);
    }
    ck_assert_int_eq(nccl_failures(told), 0);
}
END_TEST

START_TEST(test_hung)
{
    struct nccl_scene s = {.n = 2, .odd = 1, .limit_s = 1};

    for (is_ordered = 0; is_ordered < 2; is_ordered++) {
        s.run = run_endless;
        s.setting = NULL;
        ck_assert_int_eq(nccl_failures(s), 0);
        s.setting = "FAKE_NCCL=hang:1:3";
        s.run = run_named;
        ck_assert_int_eq(nccl_failures(s), 0);
        s.run = run_hung;
        ck_assert_int_eq(nccl_failures(s), 0);
    }
    s.setting = NULL;
    s.limit_s = 0;
    s.n = 1;
    s.run = run_stranded;
    ck_assert_int_eq(nccl_failures(s), 0);
    s.limit_s = 1;
    s.n = 3;
    s.setting = "FAKE_NCCL=hang:1:2";
    s.run = run_agreeing;
    passed = mmap(NULL, sizeof(*passed), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne((void *)passed, MAP_FAILED);
    ck_assert_int_eq(nccl_failures(s), 0);
    munmap((void *)passed, sizeof(*passed));
    s.n = 2;
    s.run = run_absent;
    s.n = 4;
    s.hosts = 2;
    s.odd = -1;
    setenv("HVD_TORUS_ALLREDUCE", "1", 1);
    for (int k = 1; k <= 3; k++) {
        s.setting = (const char *const[]){"FAKE_NCCL=absent:1:1",
                                          "FAKE_NCCL=absent:1:2",
                                          "FAKE_NCCL=absent:1:3"}[k - 1];
        ck_assert_int_eq(nccl_failures(s), 0);
    }
    unsetenv("HVD_TORUS_ALLREDUCE");
    s.n = 2;
    s.hosts = 0;
    s.odd = 1;
    s.run = run_over;
    s.limit_s = 0;
    s.setting = "FAKE_NCCL=hang:1:1";
    ck_assert_int_eq(nccl_failures(s), 0);
}
END_TEST

START_TEST(test_several_streams)
{
    struct nccl_scene s = {.n = 3, .odd = 1};

    setenv("HVD_NUM_NCCL_STREAMS", "3", 1);
    s.run = run_broken;
    s.setting = "FAKE_NCCL=error:1:3";
    ck_assert_int_eq(wanted(0, "injected into the double", s), 0);
    s.setting = "FAKE_NCCL=init:1:2";
    ck_assert_int_eq(wanted(0, "ncclCommSplit", s), 0);
    s.setting = "FAKE_CUDA_FAIL=cuMemHostAlloc:2:1:3";
    s.run = run_refused;
    ck_assert_int_eq(
        wanted(-HVD_ENOMEM, "rank 101 on host n1 cannot use NCCL: cuMem", s),
        0);
    s.n = 2;
    s.limit_s = 1;
    s.setting = "FAKE_NCCL=hang:1:3";
    for (is_ordered = 0; is_ordered < 2; is_ordered++) {
        s.run = run_named;
        ck_assert_int_eq(nccl_failures(s), 0);
        s.run = run_hung;
        ck_assert_int_eq(nccl_failures(s), 0);
    }
    s.run = run_absent;
    s.setting = "FAKE_NCCL=absent:1:3";
    ck_assert_int_eq(nccl_failures(s), 0);
    s.odd = -1;
    s.run = run_late_and_hung;
    s.setting = "FAKE_NCCL=hang:1:3";
    ck_assert_int_eq(nccl_failures(s), 0);
    s.odd = 1;
    s.run = run_late_twice;
    s.setting = NULL;
    s.limit_s = 2;
    ck_assert_int_eq(nccl_failures(s), 0);
    unsetenv("HVD_NUM_NCCL_STREAMS");
}
END_TEST

START_TEST(test_open)
{
    struct nccl_scene s = {.n = 1, .odd = -1, .run = run_open};

    s.setting = "HVD_CUDA_LIBRARY=/nonexistent";
    ck_assert_int_eq(wanted(HVD_EUNSUPPORTED, "no CUDA driver", s), 0);
    s.setting = "HVD_NCCL_LIBRARY=/nonexistent";
    ck_assert_int_eq(wanted(HVD_EUNSUPPORTED, "NCCL", s), 0);
    s.setting = "FAKE_NCCL_VERSION=21304";
    ck_assert_int_eq(wanted(HVD_EUNSUPPORTED, "2.14", s), 0);
    s.setting = "HVD_NCCL_TIMEOUT=0";
    ck_assert_int_eq(wanted(HVD_EINVAL, "HVD_NCCL_TIMEOUT", s), 0);
    s.setting = "HVD_STALL_SHUTDOWN_TIME_SECONDS=soon";
    ck_assert_int_eq(wanted(HVD_EINVAL, "HVD_STALL_SHUTDOWN_TIME_SECONDS", s),
                     0);
    s.setting = "HVD_NUM_NCCL_STREAMS=0";
    ck_assert_int_eq(wanted(HVD_EINVAL, "NUM_NCCL_STREAMS", s), 0);
    s.setting = "HVD_TORUS_ALLREDUCE=perhaps";
    ck_assert_int_eq(wanted(HVD_EINVAL, "TORUS_ALLREDUCE", s), 0);
    s.setting = "FAKE_CUDA_DEVICES=4";
    ck_assert_int_eq(wanted(0, "", s), 0);
}
END_TEST

static Suite *nccl_failures_suite(void)
{
    Suite *s = suite_create("nccl_failures");
    TCase *tc = tcase_create("nccl_failures");

    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, test_refused);
    tcase_add_test(tc, test_failures);
    tcase_add_test(tc, test_hung);
    tcase_add_test(tc, test_several_streams);
    tcase_add_test(tc, test_open);
    suite_add_tcase(s, tc);
    tc = tcase_create("own_work");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, test_own_work);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return nccl_find_build() < 0 ? 1 : unit_run(nccl_failures_suite());
}
