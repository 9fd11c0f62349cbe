/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/trace/stall: what a rank records and reports, with an engine whose
 * queue the test makes, and a socket in place of the agent.
 */
#include "lib/base/sys/clock.h"
#include "runtime/core/sched/engine_impl.h"
#include "runtime/core/world/agent_client.h"
#include "runtime/trace/stall.h"
#include "tests/unit/unit.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t ms = 1000000;

static struct segment_status status;
static struct segment_head head;
static struct hvd__engine engine, other;
static struct hvd__agent agent;
static int told_fd; /* agent's end */

static void say(void *arg, const void *frame, size_t len)
{
    hvd__agent_say(arg, frame, len);
}

static void open_with(const char *warning, const char *shutdown)
{
    const struct hvd__stall_config config = {&head, say, &agent};
    struct hb_error err = HB_ERROR_INIT;

    setenv("HVD_STALL_CHECK_TIME_SECONDS", warning, 1);
    setenv("HVD_STALL_SHUTDOWN_TIME_SECONDS", shutdown, 1);
    ck_assert_msg(hvd__stall_open(&config, &err) == 0, "%s", err.text);
    atomic_store(&hvd__context.status, &status);
}

static void setup(void)
{
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds),
                     0);
    agent.fd = fds[0];
    told_fd = fds[1];
    memset(&status, 0, sizeof(status));
    engine = (struct hvd__engine)HVD__ENGINE_INIT;
    other = (struct hvd__engine)HVD__ENGINE_INIT;
    other.stall.set = 4;
    unsetenv("HVD_STALL_CHECK_DISABLE");
}

static void teardown(void)
{
    atomic_store(&hvd__context.status, NULL);
    hvd__stall_close();
    close(agent.fd);
    close(told_fd);
}

/* Reads the next report; 0 if there is none. */
static int told(struct worker_stalled *m)
{
    unsigned char bytes[WORKER_STALLED_BYTES];
    struct hb_buf in = HB_BUF_INIT;
    struct frame f;
    int got = recv(told_fd, bytes, sizeof(bytes), MSG_DONTWAIT) ==
              (ssize_t)sizeof(bytes);

    if (got) {
        hb_buf_append(&in, bytes, sizeof(bytes));
        ck_assert_int_eq(frame_decode(&in, 64, &f, NULL), 1);
        ck_assert_int_eq(f.type, WORKER_STALLED);
        ck_assert_int_eq(worker_decode_stalled(f.payload, f.len, m), 0);
        hb_buf_free(&in);
    }
    return got;
}

/* The present; make() issues a request `age_ms` before it. */
static const uint64_t hour = 3600 * 1000 * 1000000ull;

static __attribute__((noinline)) struct hvd_request
make(enum hvd__kind kind, const char *name, uint64_t age_ms)
{
    struct hvd_request req;

    memset(&req, 0, sizeof(req));
    req.op.kind = kind;
    req.op.name = name;
    req.op.hashes.name = name[0] ? 1000 + (uint64_t)name[0] : 0;
    req.stall_ns = hour - age_ms * ms;
    return req;
}

static void queue(struct hvd__engine *e, struct hvd_request *reqs, size_t n)
{
    e->head = n ? &reqs[0] : NULL;
    for (size_t i = 0; i < n; i++)
        reqs[i].next = i + 1 < n ? &reqs[i + 1] : NULL;
    atomic_store(&e->queued, (unsigned)n);
}

static void look(struct hvd__engine *e, uint64_t later_ms)
{
    hvd__stall_look(e, NULL, &status, hour + later_ms * ms);
}

static struct status_view view(void)
{
    struct status_view v;

    status_read(&status, &v);
    ck_assert_int_eq(v.torn, 0);
    return v;
}

/* ---- Calls -------------------------------------------------------------- */

START_TEST(calls_are_written_down)
{
    struct hvd_request req = make(HVD__ALLTOALL, "x", 0);
    uint64_t n;

    n = hvd__stall_issued(&engine.stall, &req); /* closed: does nothing */
    hvd__stall_returned(hvd__stall_on(), n);
    ck_assert_uint_eq(view().calls, 0);
    open_with("60", "0");
    n = hvd__stall_issued(&other.stall, &req);
    ck_assert_uint_eq(view().calls, 1);
    ck_assert_int_eq(view().inside, 1);
    ck_assert_int_eq(view().call.kind, STATUS_ALLTOALL);
    ck_assert_int_eq(view().call.set, 4);
    ck_assert_uint_eq(view().call.when_ns, req.stall_ns);
    hvd__stall_returned(hvd__stall_on(), n);
    ck_assert_int_eq(view().inside, 0);
}
END_TEST

START_TEST(membership)
{
    hvd__stall_member(hvd__stall_on(), 3, 1); /* closed */
    open_with("60", "0");
    hvd__stall_member(hvd__stall_on(), 0, 1);
    hvd__stall_member(hvd__stall_on(), 31, 1);
    hvd__stall_member(hvd__stall_on(), 5, 1);
    hvd__stall_member(hvd__stall_on(), 5, 0);
    hvd__stall_member(hvd__stall_on(), HVD_PROCESS_SETS_MAX - 1, 1);
    ck_assert_uint_eq(view().sets[0], 0x80000001);
    ck_assert_uint_eq(view().sets[STATUS_SETS_WORDS - 1], UINT64_C(1) << 63);
}
END_TEST

/* The count starts at 0 for the next process set with the same number. */
START_TEST(what_was_carried_out)
{
    hvd__stall_carried_out(hvd__stall_on(), 3, 7); /* closed */
    open_with("60", "0");
    hvd__stall_member(hvd__stall_on(), 3, 1);
    ck_assert_uint_eq(view().carried_out[3], 0);
    hvd__stall_carried_out(hvd__stall_on(), 3, 7);
    ck_assert_uint_eq(view().carried_out[3], 7);
    ck_assert_uint_eq(view().carried_out[0], 0);
    hvd__stall_member(hvd__stall_on(), 3, 0);
    hvd__stall_member(hvd__stall_on(), 3, 1);
    ck_assert_uint_eq(view().carried_out[3], 0);
}
END_TEST

/* ---- What it waits for -------------------------------------------------- */

START_TEST(short_waits_are_not_listed)
{
    struct hvd_request req = make(HVD__ALLREDUCE, "a", 10);

    open_with("60", "0");
    queue(&engine, &req, 1);
    look(&engine, 0);
    ck_assert_int_eq(view().count, 0);
    ck_assert_int_eq(hvd__stall_listed(&engine.stall), 0);
    ck_assert_uint_gt(engine.stall.look_ns, hour);
}
END_TEST

START_TEST(unless_asked)
{
    struct hvd_request req = make(HVD__ALLREDUCE, "a", 10);

    open_with("60", "0");
    queue(&engine, &req, 1);
    atomic_store(&status.asked, 1);
    ck_assert_int_eq(view().fresh, 0);
    look(&engine, 0);
    ck_assert_int_eq(view().fresh, 1);
    ck_assert_int_eq(view().count, 1);
}
END_TEST

START_TEST(the_queue_is_listed)
{
    struct hvd_request reqs[] = {
        make(HVD__ALLREDUCE, "a", 300), make(HVD__BARRIER, "", 200),
        make(HVD__BROADCAST, "b", 100), make(HVD__BARRIER, "", 90)};
    struct status_view v;

    open_with("60", "0");
    queue(&engine, reqs, 4);
    engine.controller.plan.unnamed_done = 8;
    look(&engine, 0);
    v = view();
    ck_assert_int_eq(v.count, 4);
    ck_assert_uint_eq(v.total, 4);
    ck_assert_str_eq(v.waits[0].name, "a");
    ck_assert_uint_eq(v.waits[0].key, 1000 + 'a');
    ck_assert_uint_eq(v.waits[0].when_ns, hour - 300 * ms);
    ck_assert_int_eq(v.waits[1].kind, STATUS_BARRIER);
    ck_assert_int_eq(v.waits[2].kind, STATUS_BROADCAST);
    ck_assert_uint_ne(v.waits[1].key, v.waits[3].key);
    ck_assert_int_eq(hvd__stall_listed(&engine.stall), 1);
}
END_TEST

/* An unnamed request's key is the number of unnamed ones before it: the same on
 * ranks whose queues begin differently. */
START_TEST(keys_of_unnamed_requests)
{
    struct hvd_request here[] = {make(HVD__ALLREDUCE, "a", 300),
                                 make(HVD__BARRIER, "", 200)};
    struct hvd_request there = make(HVD__BARRIER, "", 200);
    uint64_t key;

    open_with("60", "0");
    engine.controller.plan.unnamed_done = 8;
    queue(&engine, here, 2);
    look(&engine, 0);
    key = view().waits[1].key;
    queue(&engine, NULL, 0);
    hvd__stall_look(&engine, &there, &status, hour);
    ck_assert_int_eq(view().count, 1);
    ck_assert_uint_eq(view().waits[0].key, key);
}
END_TEST

START_TEST(long_queues)
{
    struct hvd_request reqs[STATUS_WAITS_MAX + 9];

    open_with("60", "0");
    for (int i = 0; i < STATUS_WAITS_MAX + 9; i++)
        reqs[i] = make(HVD__BARRIER, "", 500);
    queue(&engine, reqs, STATUS_WAITS_MAX + 9);
    look(&engine, 0);
    ck_assert_int_eq(view().count, STATUS_WAITS_MAX);
    ck_assert_uint_eq(view().total, STATUS_WAITS_MAX + 9);
    queue(&engine, reqs, 1);
    hvd__stall_settle(&engine);
    ck_assert_int_eq(view().count, 1);
    ck_assert_uint_eq(view().total, 1);
    queue(&engine, NULL, 0);
    hvd__stall_settle(&engine);
    ck_assert_int_eq(view().count, 0);
    ck_assert_int_eq(hvd__stall_listed(&engine.stall), 0);
}
END_TEST

START_TEST(sets_share_the_list)
{
    struct hvd_request a = make(HVD__ALLREDUCE, "a", 300);
    struct hvd_request b = make(HVD__ALLREDUCE, "b", 200);

    open_with("60", "0");
    queue(&engine, &a, 1);
    queue(&other, &b, 1);
    look(&engine, 0);
    look(&other, 0);
    look(&engine, 0);
    ck_assert_int_eq(view().count, 2);
    ck_assert_int_eq(view().waits[0].set, 4);
    ck_assert_int_eq(view().waits[1].set, 0);
    queue(&other, NULL, 0);
    hvd__stall_settle(&other);
    ck_assert_int_eq(view().count, 1);
    ck_assert_str_eq(view().waits[0].name, "a");
}
END_TEST

/* ---- What it tells ------------------------------------------------------ */

START_TEST(told_once)
{
    struct hvd_request req = make(HVD__ALLREDUCE, "a", 1999);
    struct worker_stalled m;

    open_with("2", "30");
    queue(&engine, &req, 1);
    look(&engine, 0);
    ck_assert_int_eq(told(&m), 0);
    ck_assert_uint_eq(engine.stall.look_ns, hour + 1 * ms);
    look(&engine, 1);
    ck_assert_int_eq(told(&m), 1);
    ck_assert_uint_eq(m.waited_ms, 2000);
    ck_assert_uint_eq(m.warning_ms, 2000);
    ck_assert_uint_eq(m.shutdown_ms, 30000);
    look(&engine, 1000);
    ck_assert_int_eq(told(&m), 0);
    queue(&engine, NULL, 0);
    hvd__stall_settle(&engine);
    ck_assert_int_eq(told(&m), 1);
    ck_assert_uint_eq(m.waited_ms, 0);
    hvd__stall_settle(&engine);
    ck_assert_int_eq(told(&m), 0);
}
END_TEST

/* Another thread issued the request after the driver had read the clock. */
START_TEST(younger_than_the_clock)
{
    struct hvd_request req = make(HVD__ALLREDUCE, "a", 0);
    struct worker_stalled m;

    open_with("2", "0");
    req.stall_ns += ms;
    queue(&engine, &req, 1);
    look(&engine, 0);
    ck_assert_int_eq(told(&m), 0);
    ck_assert_int_eq(view().count, 0);
    atomic_fetch_add(&status.asked, 1);
    look(&engine, 0);
    ck_assert_int_eq(told(&m), 0);
    ck_assert_int_eq(view().count, 1);
}
END_TEST

START_TEST(sets_are_told_together)
{
    struct hvd_request a = make(HVD__ALLREDUCE, "a", 3000);
    struct hvd_request b = make(HVD__ALLREDUCE, "b", 3000);
    struct worker_stalled m;

    open_with("2", "0");
    queue(&engine, &a, 1);
    queue(&other, &b, 1);
    look(&engine, 0);
    ck_assert_int_eq(told(&m), 1);
    look(&other, 0);
    ck_assert_int_eq(told(&m), 0);
    queue(&engine, NULL, 0);
    hvd__stall_settle(&engine);
    ck_assert_int_eq(told(&m), 0);
    queue(&other, NULL, 0);
    hvd__stall_settle(&other);
    ck_assert_int_eq(told(&m), 1);
    ck_assert_uint_eq(m.waited_ms, 0);
}
END_TEST

/* A joined rank waits for ranks with more data: no stall. */
START_TEST(join_is_no_stall)
{
    struct hvd_request req = make(HVD__JOIN, "", 60000);
    struct worker_stalled m;

    open_with("1", "2");
    queue(&engine, &req, 1);
    look(&engine, 0);
    ck_assert_int_eq(view().waits[0].kind, STATUS_JOIN);
    ck_assert_int_eq(told(&m), 0);
}
END_TEST

START_TEST(knobs)
{
    static const struct {
        const char *warning, *shutdown, *off;
        uint64_t age_ms;
        int tells;
    } cases[] = {
        {"5", "0", "0", 4000, 0},  {"5", "0", "0", 5000, 1},
        {"0.5", "0", "0", 500, 1}, {"5", "2", "0", 1500, 1},
        {"0", "2", "0", 1499, 0},  {"0", "2", "0", 1500, 1},
        {"0", "0", "0", 90000, 0}, {"1", "2", "1", 90000, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hvd_request req = make(HVD__ALLREDUCE, "a", cases[i].age_ms);
        struct worker_stalled m;

        setenv("HVD_STALL_CHECK_DISABLE", cases[i].off, 1);
        open_with(cases[i].warning, cases[i].shutdown);
        queue(&engine, &req, 1);
        look(&engine, 0);
        ck_assert_msg(told(&m) == cases[i].tells, "case %zu", i);
        ck_assert_int_eq(view().count, 1);
        hvd__stall_close();
    }
}
END_TEST

START_TEST(bad_knobs)
{
    const struct hvd__stall_config config = {&head, say, &agent};
    struct hb_error err = HB_ERROR_INIT;

    setenv("HVD_STALL_CHECK_TIME_SECONDS", "soon", 1);
    ck_assert_int_eq(hvd__stall_open(&config, &err), -HVD_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "HVD_STALL_CHECK_TIME_SECONDS"));
}
END_TEST

/* An agent that does not read, or has gone, blocks no rank. */
START_TEST(agent_that_does_not_read)
{
    struct hvd_request req = make(HVD__ALLREDUCE, "a", 9000);
    char bytes[4096] = {0};

    open_with("1", "0");
    while (send(agent.fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
    queue(&engine, &req, 1);
    look(&engine, 0);
    close(told_fd);
    queue(&engine, NULL, 0);
    hvd__stall_settle(&engine);
    told_fd = -1;
}
END_TEST

/* ---- Devices ------------------------------------------------------------ */

static struct hvd__gpu_wait device_wait(uint64_t age_ms, uint32_t limit_ms)
{
    return (struct hvd__gpu_wait){.number = 9,
                                  .since_ns = hb_now_ns() - age_ms * ms,
                                  .kind = HVD__ALLTOALL,
                                  .name = "d",
                                  .is_reached = 1,
                                  .limit_ms = limit_ms};
}

START_TEST(devices_are_listed)
{
    struct hvd__gpu_wait w = device_wait(100, 60000);
    struct hvd_request req = make(HVD__ALLREDUCE, "a", 100);
    struct worker_stalled m;

    ck_assert_ptr_null(hvd__stall_launched(hvd__stall_on(), 4));
    hvd__stall_device(hvd__stall_on(), 4, &w); /* closed: does nothing */
    open_with("60", "0");
    *hvd__stall_launched(hvd__stall_on(), 4) = 9;
    queue(&engine, &req, 1);
    hvd__stall_device(hvd__stall_on(), 4, &w);
    look(&engine, 0);
    ck_assert_int_eq(view().count, 2);
    ck_assert_uint_eq(view().total, 2);
    ck_assert_int_eq(view().waits[0].where, STATUS_ON_DEVICE);
    ck_assert_int_eq(view().waits[0].set, 4);
    ck_assert_uint_eq(view().waits[0].key, 9);
    ck_assert_str_eq(view().waits[0].name, "d");
    ck_assert_int_eq(view().waits[1].where, STATUS_IN_QUEUE);
    ck_assert_uint_eq(view().launched[4], 9);
    w.is_reached = 0;
    atomic_fetch_add(&status.asked, 1);
    ck_assert_int_eq(view().fresh, 0);
    hvd__stall_device(hvd__stall_on(), 4, &w);
    ck_assert_int_eq(view().fresh, 1);
    ck_assert_int_eq(view().waits[0].where, STATUS_NOT_REACHED);
    hvd__stall_device(hvd__stall_on(), 4, NULL);
    ck_assert_int_eq(view().count, 1);
    hvd__stall_device(hvd__stall_on(), 4, NULL);
    ck_assert_int_eq(told(&m), 0);
}
END_TEST

/* A wait for a device is reported after the stall check's time, or the plane's
 * limit if shorter, but not while the rank's own work runs. */
START_TEST(devices_are_told)
{
    struct hvd__gpu_wait w = device_wait(7000, 60000);
    struct worker_stalled m;

    open_with("8", "30");
    hvd__stall_device(hvd__stall_on(), 4, &w);
    ck_assert_int_eq(told(&m), 0);
    w = device_wait(7000, 5000);
    w.is_reached = 0;
    hvd__stall_device(hvd__stall_on(), 4, &w);
    ck_assert_int_eq(told(&m), 0);
    w.is_reached = 1;
    hvd__stall_device(hvd__stall_on(), 4, &w);
    ck_assert_int_eq(told(&m), 1);
    ck_assert_uint_ge(m.waited_ms, 7000);
    ck_assert_uint_eq(m.warning_ms, 5000);
    ck_assert_uint_eq(m.shutdown_ms, 30000);
    hvd__stall_device(hvd__stall_on(), 4, NULL);
    ck_assert_int_eq(told(&m), 1);
    ck_assert_uint_eq(m.waited_ms, 0);
}
END_TEST

/* Only a report that is younger than the wait names a culprit. */
START_TEST(culprit)
{
    struct hvd__gpu_wait w = device_wait(7000, 5000);
    struct hb_error err = HB_ERROR_INIT;

    memset(&head, 0, sizeof(head));
    ck_assert_int_eq(hvd__stall_culprit(w.since_ns, &err), -1);
    open_with("60", "0");
    ck_assert_int_eq(hvd__stall_culprit(w.since_ns, &err), -1);
    hvd__stall_device(hvd__stall_on(), 0, &w);
    segment_blame(&head, 3, "an old one", w.since_ns - 1);
    ck_assert_int_eq(hvd__stall_culprit(w.since_ns, &err), 0);
    ck_assert_int_eq(err.status, 0);
    segment_blame(&head, 3, "rank 3 sleeps", w.since_ns + 1);
    ck_assert_int_eq(hvd__stall_culprit(w.since_ns, &err), 1);
    ck_assert_int_eq(err.rank, 3);
    ck_assert_str_eq(err.text, "rank 3 sleeps");
}
END_TEST

/* A driver that was slow to publish does not take back the answer that another
 * set's driver has given meanwhile. */
START_TEST(answers_do_not_go_back)
{
    struct hvd__stall_waits w = {.set = 0, .asked = UINT32_MAX};

    open_with("60", "0");
    atomic_store(&status.answered, UINT32_MAX - 1);
    hvd__stall_publish(&w, &status, 1);
    ck_assert_uint_eq(atomic_load(&status.answered), UINT32_MAX);
    w.asked = 0; /* the next one */
    hvd__stall_publish(&w, &status, 1);
    ck_assert_uint_eq(atomic_load(&status.answered), 0);
    w.set = 4;
    w.asked = UINT32_MAX;
    hvd__stall_publish(&w, &status, 1);
    ck_assert_uint_eq(atomic_load(&status.answered), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trace_stall");
    TCase *tc = tcase_create("trace_stall");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, calls_are_written_down);
    tcase_add_test(tc, membership);
    tcase_add_test(tc, what_was_carried_out);
    tcase_add_test(tc, short_waits_are_not_listed);
    tcase_add_test(tc, unless_asked);
    tcase_add_test(tc, the_queue_is_listed);
    tcase_add_test(tc, keys_of_unnamed_requests);
    tcase_add_test(tc, long_queues);
    tcase_add_test(tc, sets_share_the_list);
    tcase_add_test(tc, told_once);
    tcase_add_test(tc, younger_than_the_clock);
    tcase_add_test(tc, sets_are_told_together);
    tcase_add_test(tc, join_is_no_stall);
    tcase_add_test(tc, knobs);
    tcase_add_test(tc, bad_knobs);
    tcase_add_test(tc, agent_that_does_not_read);
    tcase_add_test(tc, devices_are_listed);
    tcase_add_test(tc, devices_are_told);
    tcase_add_test(tc, culprit);
    tcase_add_test(tc, answers_do_not_go_back);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
