/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NCCL plug-in's plane when something fails: ranks that cannot take part,
 * calls of CUDA and NCCL, ranks that die or hang; and the plug-in where it
 * cannot be opened.
 */
#include "tests/unit/nccl_world.h"

#include "lib/base/clock.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- What cannot be ------------------------------------------------------ */

/* In host memory it goes on. */
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

/* ---- Failures --------------------------------------------------------------
 */

/* Sums on the stream until one fails, or is not over in time. */
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
        o.ordered = ordered;
        rc = nccl_carry_out(&o, 0);
        if (rc == 1 && ordered) {
            rc = nccl_self.gpu->wait(nccl_self.plane, o.launch, &nccl_self.err);
            *waited = rc < 0;
            rc = rc < 0 ? rc : 1;
        }
    }
    gpu_free(at);
    return rc;
}

/* It lasts. */
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

/* One that a peer never comes to be part of, made for itself or split off:
 * of it nothing is left. */
static int run_absent(struct shm_group *g, int me)
{
    int waited;

    if (nccl_begin(g, me))
        return 1;
    must(until_failure(0, &waited) == -HVD_ETIMEOUT);
    return failed_for_good(-HVD_ETIMEOUT);
}

static _Atomic int *passed; /* ranks; of all of them */

/* Over when it was launched. */
static struct hvd__op ordered_sum(void *at)
{
    struct hvd__op o = nccl_op(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);

    o.sendbuf = o.recvbuf = at;
    o.count = COUNT;
    o.ordered = 1;
    return o;
}

/* What is launched hangs while the driver waits for the odd one, which does
 * not come, to agree on the next. */
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

/* Somebody is asked who it is, and the answer waited for. */
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

/* The odd one's own work is what hangs. */
static int run_late(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    int waited;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    if (me == s->odd)
        gpu_delay(nccl_self.stream, 2000);
    must(until_failure(is_ordered, &waited) == -HVD_ETIMEOUT);
    if (me == s->odd)
        must(strstr(nccl_self.err.text, "has not come to it") &&
             nccl_self.err.rank == 100 + me);
    else
        must(strstr(nccl_self.err.text, "has waited for 1 s"));
    return failed_for_good(-HVD_ETIMEOUT);
}

/* What lasts after work of its own has the whole time from then on. */
static int run_after_work(struct shm_group *g, int me)
{
    uint64_t began_ns;
    int waited;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    gpu_delay(nccl_self.stream, 700);
    began_ns = hb_now_ns();
    must(until_failure(is_ordered, &waited) == -HVD_ETIMEOUT);
    must(strstr(nccl_self.err.text, "has waited for 1 s"));
    must(hb_now_ns() - began_ns > 1500 * UINT64_C(1000000));
    return failed_for_good(-HVD_ETIMEOUT);
}

/* The driver ends an operation while the watch tells of one before it: that
 * this is over is told all the same. */
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
    atomic_store(&nccl_self.hold, 1);
    gpu_delay(nccl_self.stream, 500);
    must(nccl_carry_out(&o, 0) == 1);
    while (atomic_load(&nccl_self.hold) == 1)
        usleep(1000);
    must(nccl_carry_out(&next, 0) == 1);
    must(nccl_self.gpu->order(nccl_self.plane, next.launch, nccl_self.stream,
                              &nccl_self.err) == 0);
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

/* The plane goes before the device has come to an end. */
static int run_stranded(struct shm_group *g, int me)
{
    struct hvd__op o;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    o = ordered_sum(gpu_alloc(4 * COUNT)); /* stays */
    gpu_delay(nccl_self.stream, 3600 * 1000);
    must(nccl_carry_out(&o, 0) == 1);
    nccl_self.plane->ops->free(nccl_self.plane);
    must(atomic_load(&nccl_self.waits_for) == 0);
    _exit(0); /* as below */
}

/* The odd one's own work never ends: NCCL cannot abort what comes after it,
 * and the rank is told so and gets away all the same. */
static int run_endless(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    struct hvd__op o;
    int waited;

    if (nccl_begin(g, me))
        return 1;
    must(nccl_sum_is("nccl.allreduce"));
    if (me != s->odd) {
        must(until_failure(is_ordered, &waited) == -HVD_ETIMEOUT);
        return failed_for_good(-HVD_ETIMEOUT);
    }
    o = nccl_op(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
    o.sendbuf = o.recvbuf = gpu_alloc(4 * COUNT); /* stays */
    o.count = COUNT;
    o.ordered = is_ordered;
    gpu_delay(nccl_self.stream, 3600 * 1000);
    if (nccl_carry_out(&o, 0) == 1)
        nccl_self.gpu->wait(nccl_self.plane, o.launch, &nccl_self.err);
    must(strstr(nccl_self.err.text, "has not come to it"));
    nccl_self.plane->ops->leave(nccl_self.plane);
    nccl_self.plane->ops->free(nccl_self.plane);
    nccl_self.gpu->close();
    /* With threads inside the double for ever, and what they use: nothing for
     * a sanitizer to look through. */
    _exit(0);
}

/* The odd one fails by itself; the others, in an operation, when it leaves,
 * as the base tells. */
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

/* The odd one's second array begins where no integer can: it alone notices,
 * when the others have launched theirs. */
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
    o.recvbuf = at; /* for the event; what is reduced is the parts */
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

/* Without an operation in progress only look can tell. */
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
    must(nccl_self.gpu->wait(nccl_self.plane, o.launch, &nccl_self.err) ==
         -HVD_EPEER);
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

/* ---- Opening
 * ------------------------------------------------------------------ */

/* open with a setting: its status, and that its text has `text` in it. */
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

/* ---- The suite --------------------------------------------------------------
 */

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

START_TEST(test_hung)
{
    struct nccl_scene s = {.n = 2, .odd = 1, .is_hasty = 1, .run = run_hung};

    for (is_ordered = 0; is_ordered < 2; is_ordered++) {
        s.run = run_late;
        s.setting = NULL;
        ck_assert_int_eq(nccl_failures(s), 0);
        s.run = run_endless;
        ck_assert_int_eq(nccl_failures(s), 0);
        s.setting = "FAKE_NCCL=hang:1:3";
        s.run = run_after_work;
        s.odd = -1;
        s.setting = "FAKE_NCCL=hang:1:2";
        ck_assert_int_eq(nccl_failures(s), 0);
        s.odd = 1;
        s.setting = "FAKE_NCCL=hang:1:3";
        s.run = run_named;
        ck_assert_int_eq(nccl_failures(s), 0);
        s.run = run_hung;
        ck_assert_int_eq(nccl_failures(s), 0);
    }
    s.setting = NULL;
    s.is_hasty = 0;
    s.run = run_told_twice;
    ck_assert_int_eq(nccl_failures(s), 0);
    s.n = 1;
    s.run = run_stranded;
    ck_assert_int_eq(nccl_failures(s), 0);
    s.is_hasty = 1;
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
    s.is_hasty = 0;
    s.setting = "FAKE_NCCL=hang:1:1";
    ck_assert_int_eq(nccl_failures(s), 0);
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
    tcase_add_test(tc, test_open);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return nccl_find_build() < 0 ? 1 : unit_run(nccl_failures_suite());
}
