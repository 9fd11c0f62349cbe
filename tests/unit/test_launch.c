/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that the engine only launches, over a plane and a device of this
 * file: a caller that waits for the device keeps no one from driving; the end
 * of the job is seen in every state; events outstanding when the device is
 * closed; a plane that cannot be made; the counters of launches.
 */
#include "lib/base/alloc.h"
#include "runtime/core/sched/engine.h"
#include "runtime/core/set/connect.h"
#include "runtime/core/set/device.h"
#include "runtime/core/set/provider.h"
#include "runtime/core/set/world_set.h"
#include "runtime/trace/stall.h"
#include "tests/unit/unit.h"

#include <check.h>
#include <sched.h>
#include <string.h>
#include <time.h>

static struct {
    _Atomic int waits;    /* a caller waits for the device */
    _Atomic int held;     /* unordered operations wait for that */
    _Atomic int is_over;  /* the job */
    _Atomic int events;   /* events not given back */
    int left, freed;      /* calls on the plane; freed: `left` plus 1 */
    _Atomic int was_open; /* events when the device was closed; or -1 */
} scene;

/* ---- The plane ----------------------------------------------------------- */

static int plane_supports(const struct hvd__plane *p, const struct hvd__op *op)
{
    (void)p;
    (void)op;
    return 1;
}

static int plane_start(struct hvd__plane *p, struct hvd__op *op)
{
    (void)p;
    (void)op;
    return 0;
}

static int plane_progress(struct hvd__plane *p, struct hvd__op *op)
{
    (void)p;
    if (op->device.ordered)
        op->device.launch = 1;
    return op->device.ordered || !atomic_load(&scene.held) ||
           atomic_load(&scene.waits);
}

static void plane_pause(struct hvd__plane *p, uint64_t until_ns)
{
    (void)p;
    (void)until_ns;
    sched_yield();
}

static int plane_began(struct hvd__plane *p, struct hb_error *err)
{
    (void)p;
    return atomic_load(&scene.is_over)
               ? hb_error_set(err, HVD_EPEER, "rank 1 is dead")
               : 0;
}

static void plane_nothing(struct hvd__plane *p)
{
    (void)p;
}

static void plane_leave(struct hvd__plane *p)
{
    (void)p;
    scene.left = 1;
}

static void plane_free(struct hvd__plane *p)
{
    (void)p;
    scene.freed = scene.left + 1;
}

static int device_wait(struct hvd__plane *p, uint64_t first, uint64_t last,
                       uint64_t until_ns, struct hb_error *err);

static const struct hvd__launch_ops launches = {.wait = device_wait};

static const struct hvd__plane_ops plane_ops = {
    .name = "launches",
    .launches = &launches,
    .supports = plane_supports,
    .start = plane_start,
    .progress = plane_progress,
    .pause = plane_pause,
    .began = plane_began,
    .interrupt = plane_nothing,
    .leave = plane_leave,
    .free = plane_free,
};

/* ---- The device --------------------------------------------------------- */

static struct hvd_request behind;

/* Returns once another operation is done, which somebody must drive; gives up
 * after 5 s. */
static int device_wait(struct hvd__plane *p, uint64_t first, uint64_t last,
                       uint64_t until_ns, struct hb_error *err)
{
    time_t limit = time(NULL) + 5;

    (void)p;
    (void)first;
    (void)last;
    (void)until_ns;
    atomic_store(&scene.waits, 1);
    while (!hvd__request_done(&behind) && time(NULL) < limit)
        sched_yield();
    return hvd__request_done(&behind)
               ? 1
               : hb_error_set(err, HVD_ETIMEOUT, "nobody drives");
}

static enum hvd__place device_place(const void *p)
{
    (void)p;
    return HVD__DEVICE;
}

static int device_issue(void *stream, const void *buf, void **ready,
                        struct hb_error *err)
{
    (void)stream;
    (void)buf;
    (void)err;
    atomic_fetch_add(&scene.events, 1);
    *ready = &scene;
    return 0;
}

static void device_done(void *ready)
{
    ck_assert_ptr_eq(ready, &scene);
    atomic_fetch_sub(&scene.events, 1);
}

static void device_close(void)
{
    atomic_store(&scene.was_open, atomic_load(&scene.events));
}

static const struct hvd__gpu device = {
    .name = "device",
    .close = device_close,
    .memory_of = device_place,
    .issue = device_issue,
    .done = device_done,
};

/* ---- An engine ---------------------------------------------------------- */

static struct hvd__engine engine = HVD__ENGINE_INIT;
static struct hvd__plane plane = {.ops = &plane_ops};

static void open_engine(void)
{
    static const int rank = 0;

    memset(&scene, 0, sizeof(scene));
    atomic_store(&scene.was_open, -1);
    hvd__gpu_use(&device);
    hvd__context.release = hvd__gpu_provider.release;
    ck_assert_int_eq(hvd__engine_open(&engine, &plane, &rank, 1, 0), 0);
}

static void close_engine(void)
{
    struct hb_error why = HB_ERROR_INIT;

    hb_error_set(&why, HVD_ESHUTDOWN, "hvd_shutdown was called");
    hvd__engine_close(&engine, &why);
    hvd__engine_drain(&engine);
    hvd__gpu_use(NULL);
}

static void make(struct hvd_request *req, int ordered)
{
    hvd__op_init(&req->op);
    hvd__request_init(req);
    req->op.kind = HVD__BARRIER;
    req->op.name = "";
    req->op.elem_bytes = 1;
    req->op.device.ordered = ordered;
    req->signature = hvd__op_signature(&req->op);
}

START_TEST(test_others_drive)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd_request first;

    open_engine();
    atomic_store(&scene.held, 1);
    make(&first, 1);
    make(&behind, 0);
    ck_assert_int_eq(hvd__engine_submit(&engine, &first, &err), 0);
    while (!hvd__request_done(&first))
        sched_yield();
    ck_assert_uint_eq(first.op.device.launch, 1);
    ck_assert_int_eq(hvd__engine_submit(&engine, &behind, &err), 0);
    ck_assert_int_eq(hvd__engine_wait(&engine, &first, 0), 1);
    ck_assert_int_eq(first.err.status, 0);
    ck_assert(hvd__request_done(&behind));
    close_engine();
    hvd__controller_fini(&engine.controller);
}
END_TEST

/* A parked engine still notices that the job is over. */
START_TEST(test_look)
{
    struct hb_error err = HB_ERROR_INIT;

    open_engine();
    ck_assert_int_eq(hvd__engine_look(&engine, &err), 0);
    atomic_store(&scene.is_over, 1);
    atomic_store(&engine.controller.parked, 1);
    ck_assert_int_eq(hvd__engine_look(&engine, &err), -HVD_EPEER);
    close_engine();
    hvd__controller_fini(&engine.controller);
}
END_TEST

static void *close_device(void *arg)
{
    hvd__gpu_close();
    return arg;
}

/* hvd__gpu_close in another thread waits until a call has given back its
 * event. */
START_TEST(test_late_call)
{
    struct hvd_request early, late;
    const struct hvd__issue issue_early = {.req = &early};
    const struct hvd__issue issue_late = {.req = &late};
    pthread_t thread;

    open_engine();
    make(&early, 0);
    make(&late, 0);
    early.op.recvbuf = late.op.recvbuf = &scene;
    ck_assert_int_eq(hvd__providers_issue(&issue_early), 0);
    ck_assert_int_eq(atomic_load(&scene.events), 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, close_device, NULL), 0);
    /* Fails once the device is being closed; earlier events are given back. */
    while (hvd__providers_issue(&issue_late) == 0)
        hvd__op_release(&late.op);
    ck_assert_int_eq(late.err.status, -HVD_ENOTINIT);
    ck_assert_int_eq(atomic_load(&scene.was_open), -1);
    hvd__op_release(&early.op);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(atomic_load(&scene.was_open), 0);
    atomic_store(&scene.was_open, -1);
    hvd__gpu_close();
    ck_assert_int_eq(atomic_load(&scene.was_open), -1);
    close_engine();
    hvd__controller_fini(&engine.controller);
}
END_TEST

/* A rank without memory for a plane tells its peers, which have theirs. */
START_TEST(test_no_memory)
{
    static const int rank = 0;
    struct hvd__set set = {.plane = &plane};
    struct hb_error err = HB_ERROR_INIT;

    hvd__gpu_use(&device);
    hb_alloc_fail_after(0);
    ck_assert_int_eq(hvd__gpu_wrap(&set, &rank, 1, 0, &err), -HVD_ENOMEM);
    hb_alloc_fail_after(-1);
    ck_assert_ptr_null(set.plane);
    ck_assert_int_eq(scene.freed, 2);
    hvd__gpu_use(NULL);
}
END_TEST

/* Without any plug-in, the set keeps the planes of libhvd itself, and closing
 * and leaving do nothing. */
START_TEST(test_no_provider)
{
    static const int ranks[] = {0, 1};
    struct hvd__host host = {0};
    struct hvd__set set = {.plane = &plane};
    struct hvd_stats sum = {.device_timed = 7};
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(hvd__providers_plane(&host, &set, ranks, 2, 0, &err), 0);
    ck_assert_int_eq(hvd__providers_wrap(&set, ranks, 2, 0, &err), 0);
    ck_assert_ptr_eq(set.plane, &plane);
    hvd__providers_stats(&sum);
    ck_assert_uint_eq(sum.device_timed, 0);
    hvd__providers_leave();
    hvd__providers_close();
    hvd__providers_close();
    ck_assert_int_eq(err.status, 0);
}
END_TEST

/* A provider that cannot make its plane fails the set. */
START_TEST(test_provider_fails)
{
    static const int rank = 0;
    struct hvd__set set = {.plane = &plane};
    struct hb_error err = HB_ERROR_INIT;

    hvd__gpu_use(&device);
    hb_alloc_fail_after(0);
    ck_assert_int_eq(hvd__providers_wrap(&set, &rank, 1, 0, &err), -HVD_ENOMEM);
    hb_alloc_fail_after(-1);
    hvd__gpu_use(NULL);
}
END_TEST

static _Atomic uint64_t *counter; /* what the last plane counts in */

static struct hvd__plane *
device_plane(const struct hvd__gpu_plane_config *config, struct hb_error *err)
{
    (void)err;
    counter = config->launched;
    return config->base;
}

/* Each set that all ranks make counts its launches for itself, from its
 * number's first use on; one that its members make alone does not count for
 * hvdrun. */
START_TEST(test_counters)
{
    static struct segment_status status;
    static const int rank = 0;
    const struct hvd__stall_config config = {0};
    const struct hvd__founding alone = {.ranks = &rank, .n = 1, .founded = 1};
    struct hvd__gpu planes = device;
    struct hb_error err = HB_ERROR_INIT;

    planes.plane = device_plane;
    hvd__gpu_use(&planes);
    ck_assert_int_eq(hvd__stall_open(&config, &err), 0);
    atomic_store(&hvd__context.status, &status);
    hvd__sets_init();
    for (int id = 2; id < 4; id++) {
        struct hvd__set *s = &hvd__context.sets[id];

        status.launched[HVD_WORLD] = status.launched[id] = 5;
        ck_assert_int_eq(hvd__set_connect(s, &rank, 1, 0, &err), 0);
        ck_assert_ptr_eq(counter, hvd__stall_launched(&status, id));
        ck_assert_uint_eq(status.launched[id], 0);
        ck_assert_int_eq(hvd__set_connect_members(s, &alone, &err), 0);
        ck_assert_ptr_null(counter);
        ck_assert_uint_eq(status.launched[HVD_WORLD], 5);
    }
    atomic_store(&hvd__context.status, NULL);
    hvd__stall_close();
    hvd__gpu_use(NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("launch");
    TCase *tc = tcase_create("launch");

    tcase_set_timeout(tc, 30);
    tcase_add_test(tc, test_others_drive);
    tcase_add_test(tc, test_look);
    tcase_add_test(tc, test_late_call);
    tcase_add_test(tc, test_no_memory);
    tcase_add_test(tc, test_no_provider);
    tcase_add_test(tc, test_provider_fails);
    tcase_add_test(tc, test_counters);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
