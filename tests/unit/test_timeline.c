/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/trace/timeline.h and its parts: the file is valid JSON at any moment,
 * also if its writer is killed or the disk is full; it holds all events handed
 * over; a full ring drops events and says so.
 */
#include "lib/base/sys/clock.h"
#include "lib/base/sys/trace_file.h"
#include "runtime/trace/timeline.h"
#include "runtime/trace/timeline_lanes.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[64];
static char path[128];

static void set_up(void)
{
    snprintf(dir, sizeof(dir), "/tmp/hvd-timeline-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/trace.json", dir);
}

static void tear_down(void)
{
    unlink(path);
    rmdir(dir);
}

static _Atomic int is_on;
static const struct hvd__timeline_owner owner = {1, 4, "n\"1\n", &is_on};

static void start(unsigned flags)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(hvd__timeline_open(path, flags, &owner, &err) == 0, "%s",
                  err.text);
}

static void stop(void)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(hvd__timeline_close(&err) == 0, "%s", err.text);
}

static json_t *load(void)
{
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);

    ck_assert_msg(j && json_is_array(j), "%s:%d: %s", path, e.line, e.text);
    return j;
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *s = json_string_value(json_object_get(event, key));

    return s ? s : "";
}

/* Returns the n-th event of that name, or NULL. */
static json_t *find(json_t *events, const char *name, int n)
{
    json_t *event;
    size_t i;

    json_array_foreach(events, i,
                       event) if (strcmp(text_of(event, "name"), name) == 0 &&
                                  n-- == 0) return event;
    return NULL;
}

static json_t *find_lane(json_t *events, const char *name)
{
    json_t *event;

    for (int n = 0; (event = find(events, "process_name", n)); n++)
        if (strcmp(text_of(json_object_get(event, "args"), "name"), name) == 0)
            return json_object_get(event, "pid");
    return NULL;
}

static struct hvd__op make_op(const char *name)
{
    struct hvd__op op = {
        .kind = HVD__ALLREDUCE,
        .dtype = HVD_FLOAT32,
        .op = HVD_SUM,
        .name = name,
        .name_hash = hvd__name_hash(name),
        .count = 10,
        .elem_bytes = 4,
        .trace.algorithm = "shm.oneshot",
    };

    return op;
}

static struct hvd__timeline_event make_event(const struct hvd__op *op,
                                             uint64_t now)
{
    struct hvd__timeline_event e = {
        .what = HVD__TIMELINE_REQUEST,
        .op = op,
        .plane = "shm",
        .fused = 2,
        .issued_ns = now,
        .began_ns = now + 1000,
        .agreed_ns = now + 3000,
        .done_ns = now + 7500,
    };

    return e;
}

static void add_one(const char *name)
{
    struct hvd__op op = make_op(name);
    struct hvd__timeline_event e = make_event(&op, hb_now_ns());

    hvd__timeline_add(&e);
}

/* ---- What is in it -------------------------------------------------- */

static void check_span(const json_t *event, double dur_us, const json_t *pid)
{
    double dur;

    ck_assert_ptr_nonnull(event);
    ck_assert_str_eq(text_of(event, "ph"), "X");
    ck_assert(json_number_value(json_object_get(event, "ts")) >= 0);
    dur = json_number_value(json_object_get(event, "dur"));
    ck_assert_double_eq_tol(dur, dur_us, 1e-9);
    ck_assert(json_equal(json_object_get(event, "pid"), pid));
}

START_TEST(test_request)
{
    struct hvd__op op = make_op("grad/0");
    struct hvd__timeline_event e;
    json_t *events, *args, *lane;

    start(0);
    e = make_event(&op, hb_now_ns());
    hvd__timeline_add(&e);
    stop();
    events = load();
    lane = find_lane(events, "grad/0");
    ck_assert_ptr_nonnull(lane);
    check_span(find(events, "NEGOTIATE_ALLREDUCE", 0), 3.0, lane);
    check_span(find(events, "QUEUE", 0), 1.0, lane);
    check_span(find(events, "ALLREDUCE", 0), 4.5, lane);
    ck_assert_ptr_null(find(events, "ALLREDUCE", 1));
    args = json_object_get(find(events, "ALLREDUCE", 0), "args");
    ck_assert_str_eq(text_of(args, "plane"), "shm");
    ck_assert_str_eq(text_of(args, "algorithm"), "shm.oneshot");
    ck_assert_str_eq(text_of(args, "dtype"), "float32");
    ck_assert_str_eq(text_of(args, "op"), "sum");
    ck_assert_int_eq(json_integer_value(json_object_get(args, "bytes")), 40);
    ck_assert_int_eq(json_integer_value(json_object_get(args, "count")), 10);
    ck_assert_int_eq(json_integer_value(json_object_get(args, "fused")), 2);
    json_decref(events);
}
END_TEST

START_TEST(test_start_of_the_file)
{
    uint64_t wall = hb_wall_ns() / 1000, mono = hb_now_ns();
    json_t *events, *args;
    json_int_t v;

    start(0);
    events = load(); /* valid while it is written */
    stop();
    args = json_object_get(json_array_get(events, 0), "args");
    v = json_integer_value(
        json_object_get(args, "start_time_since_epoch_in_micros"));
    ck_assert((uint64_t)v >= wall && (uint64_t)v <= hb_wall_ns() / 1000);
    v = json_integer_value(json_object_get(args, "monotonic_base_ns"));
    ck_assert((uint64_t)v >= mono && (uint64_t)v <= hb_now_ns());
    ck_assert_int_eq(json_integer_value(json_object_get(args, "rank")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(args, "size")), 4);
    ck_assert_str_eq(text_of(args, "host"), "n\"1?");
    json_decref(events);
}
END_TEST

START_TEST(test_planes_and_cycles)
{
    struct hvd__op op = make_op("");
    struct hvd__timeline_event e;
    json_t *events, *copied;

    start(HVD_TIMELINE_CYCLES);
    e = make_event(&op, hb_now_ns());
    e.what = HVD__TIMELINE_OPERATION;
    hvd__timeline_add(&e);
    e.plane = "hier";
    e.status = -HVD_EPEER;
    hvd__timeline_add(&e);
    e.what = HVD__TIMELINE_ACTIVITY;
    e.activity = "MEMCPY_IN_FUSION_BUFFER";
    e.row = HVD__TIMELINE_COPY_ROW;
    e.busy_ns = 1500;
    hvd__timeline_add(&e);
    stop();
    events = load();
    check_span(find(events, "ALLREDUCE", 0), 6.5, find_lane(events, "shm"));
    check_span(find(events, "ALLREDUCE", 1), 6.5, find_lane(events, "hier"));
    check_span(find(events, "MEMCPY_IN_FUSION_BUFFER", 0), 6.5,
               find_lane(events, "(no name)"));
    copied = find(events, "MEMCPY_IN_FUSION_BUFFER", 0);
    ck_assert_int_eq(json_integer_value(json_object_get(copied, "tid")),
                     HVD__TIMELINE_COPY_ROW);
    ck_assert_double_eq_tol(json_real_value(json_object_get(
                                json_object_get(copied, "args"), "busy_us")),
                            1.5, 1e-9);
    ck_assert_str_eq(
        text_of(json_object_get(find(events, "ALLREDUCE", 1), "args"), "error"),
        "HVD_EPEER");
    ck_assert_str_eq(text_of(find(events, "CYCLE_START", 1), "s"), "g");
    ck_assert_ptr_null(find(events, "CYCLE_START", 2));
    ck_assert_ptr_null(find(events, "QUEUE", 0));
    json_decref(events);
}
END_TEST

START_TEST(test_what_is_not_known_is_left_out)
{
    struct hvd__op op = make_op("x");
    struct hvd__timeline_event e;
    json_t *events;

    start(0);
    e = make_event(&op, hb_now_ns());
    e.issued_ns = e.agreed_ns = 0;
    hvd__timeline_add(&e);
    /* Never begun: the event shows waiting only. */
    e = make_event(&op, hb_now_ns());
    e.began_ns = e.agreed_ns = 0;
    hvd__timeline_add(&e);
    /* Issued before the timeline started. */
    e = make_event(&op, hb_now_ns());
    e.issued_ns = 1;
    hvd__timeline_add(&e);
    stop();
    events = load();
    check_span(find(events, "ALLREDUCE", 0), 6.5, find_lane(events, "x"));
    check_span(find(events, "NEGOTIATE_ALLREDUCE", 0), 7.5,
               find_lane(events, "x"));
    ck_assert_ptr_nonnull(find(events, "ALLREDUCE", 1));
    ck_assert_ptr_null(find(events, "ALLREDUCE", 2));
    ck_assert_double_eq(json_number_value(json_object_get(
                            find(events, "NEGOTIATE_ALLREDUCE", 1), "ts")),
                        0.0);
    json_decref(events);
}
END_TEST

START_TEST(test_names_are_made_printable)
{
    static const char *const names[][2] = {
        {"a\"b\\c", "a\"b\\c"},
        {"tab\tline\n", "tab?line?"},
        {"\xff\xc3\xa4", "?\xc3\xa4"},
    };
    json_t *events;

    start(0);
    for (size_t i = 0; i < 3; i++)
        add_one(names[i][0]);
    stop();
    events = load();
    for (size_t i = 0; i < 3; i++)
        ck_assert_ptr_nonnull(find_lane(events, names[i][1]));
    json_decref(events);
}
END_TEST

/* A name used in two sets, and one of 255 quotes. */
START_TEST(test_lanes_of_sets)
{
    char name[HVD__NAME_BYTES];
    struct hvd__op op = make_op("w");
    struct hvd__timeline_event e;
    json_t *events;

    start(0);
    e = make_event(&op, hb_now_ns());
    hvd__timeline_add(&e);
    e.set = 3;
    hvd__timeline_add(&e);
    memset(name, '"', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    op = make_op(name);
    e.set = 0;
    hvd__timeline_add(&e);
    stop();
    events = load();
    ck_assert_ptr_nonnull(find_lane(events, "w"));
    ck_assert_ptr_nonnull(find_lane(events, "set 3: w"));
    ck_assert_ptr_nonnull(find_lane(events, name));
    json_decref(events);
}
END_TEST

START_TEST(test_overlapping_without_a_name)
{
    struct hvd__op op = make_op("");
    uint64_t now;
    json_t *events;

    start(0);
    now = hb_now_ns();
    for (int i = 0; i < 3; i++) {
        struct hvd__timeline_event e =
            make_event(&op, now + (uint64_t)i * 4000);
        hvd__timeline_add(&e); /* each overlaps the one before */
    }
    stop();
    events = load();
    for (int i = 0; i < 3; i++) {
        json_t *e = find(events, "NEGOTIATE_ALLREDUCE", i);
        ck_assert_int_eq(json_integer_value(json_object_get(e, "tid")), i % 2);
    }
    json_decref(events);
}
END_TEST

/* ---- Life ----------------------------------------------------------- */

START_TEST(test_start_and_stop)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__op op = make_op("x");
    struct hvd__timeline_event e = make_event(&op, hb_now_ns());
    json_t *events;

    stop(); /* no timeline runs */
    ck_assert_int_eq(atomic_load(&is_on), 0);
    hvd__timeline_add(&e); /* goes nowhere */
    start(0);
    ck_assert_int_eq(atomic_load(&is_on), 1);
    ck_assert_int_eq(hvd__timeline_open(path, 0, &owner, &err), -HVD_EINVAL);
    hvd__timeline_add(&e);
    stop();
    start(0); /* replaces the file */
    stop();
    events = load();
    ck_assert_ptr_null(find(events, "ALLREDUCE", 0));
    json_decref(events);
}
END_TEST

/* hvd_init and hvd_shutdown, several times: one file, one clock, one set of
 * lanes. */
START_TEST(test_several_worlds)
{
    json_t *events, *first, *second;

    for (int world = 0; world < 3; world++) {
        start(HVD__TIMELINE_GO_ON);
        add_one("x");
        add_one(world == 1 ? "y" : "z");
        stop();
    }
    events = load();
    ck_assert_ptr_nonnull(find(events, "ALLREDUCE", 5));
    ck_assert_ptr_null(find(events, "ALLREDUCE", 6));
    first = find(events, "ALLREDUCE", 0);
    second = find(events, "ALLREDUCE", 2);
    ck_assert_int_eq(json_integer_value(json_object_get(first, "pid")),
                     json_integer_value(json_object_get(second, "pid")));
    ck_assert_double_gt(json_real_value(json_object_get(second, "ts")),
                        json_real_value(json_object_get(first, "ts")));
    ck_assert_int_ne(json_integer_value(find_lane(events, "y")),
                     json_integer_value(find_lane(events, "z")));
    json_decref(events);
    /* A missing file, or one of another kind, is begun anew. */
    unlink(path);
    start(HVD__TIMELINE_GO_ON);
    stop();
    ck_assert_int_eq(truncate(path, 1), 0);
    start(HVD__TIMELINE_GO_ON);
    add_one("y");
    stop();
    events = load();
    ck_assert_ptr_nonnull(find(events, "process_name", 1));
    ck_assert_ptr_nonnull(find(events, "ALLREDUCE", 0));
    json_decref(events);
}
END_TEST

START_TEST(test_no_such_directory)
{
    struct hb_error err = HB_ERROR_INIT;
    char nowhere[160];

    snprintf(nowhere, sizeof(nowhere), "%s/none/x.json", dir);
    ck_assert_int_eq(hvd__timeline_open(nowhere, 0, &owner, &err), -HVD_ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, nowhere));
    ck_assert_int_eq(atomic_load(&is_on), 0);
}
END_TEST

static int attempt(void *arg)
{
    int rc = hvd__timeline_open(arg, 0, &owner, NULL);

    if (rc < 0)
        return rc;
    add_one("x");
    return hvd__timeline_close(NULL);
}

static int attempt_path(void *arg)
{
    char *p = hvd__timeline_path(arg, 3);
    int rc = p ? 0 : -HVD_ENOMEM;

    hb_free(p);
    return rc;
}

/* Without memory for a lane the file stays valid, and that is no failure. */
START_TEST(test_no_memory)
{
    for (long n = 0; n < 8; n++) {
        hb_alloc_fail_after(n);
        attempt(path);
        hb_alloc_fail_after(-1);
        if (access(path, F_OK) == 0)
            json_decref(load());
    }
    unit_fail_each(attempt_path, path);
}
END_TEST

START_TEST(test_full_device)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(hvd__timeline_open("/dev/full", 0, &owner, &err),
                     -HVD_ESYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOSPC);
    ck_assert_int_eq(atomic_load(&is_on), 0);
}
END_TEST

START_TEST(test_paths)
{
    static const char *const cases[][2] = {
        {"trace.json", "trace.7.json"}, {"trace", "trace.7"},
        {"/a.b/trace", "/a.b/trace.7"}, {"/a.b/t.x.json", "/a.b/t.x.7.json"},
        {"d/.hidden", "d/.hidden.7"},   {"trace.", "trace.7."},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *p = hvd__timeline_path(cases[i][0], 7);

        ck_assert_str_eq(p, cases[i][1]);
        hb_free(p);
    }
}
END_TEST

START_TEST(test_knobs)
{
    struct hvd__timeline_knobs k;
    struct hb_error err = HB_ERROR_INIT;

    unsetenv("HVD_TIMELINE");
    unsetenv("HOROVOD_TIMELINE");
    ck_assert_int_eq(hvd__timeline_knobs_read(&k, 0, &err), 0);
    ck_assert_ptr_null(k.path);
    ck_assert_uint_eq(k.flags, HVD__TIMELINE_GO_ON);
    setenv("HOROVOD_TIMELINE", "DYNAMIC", 1);
    setenv("HVD_TIMELINE_MARK_CYCLES", "1", 1);
    ck_assert_int_eq(hvd__timeline_knobs_read(&k, 0, &err), 0);
    ck_assert_ptr_null(k.path);
    ck_assert_uint_eq(k.flags, HVD_TIMELINE_CYCLES | HVD__TIMELINE_GO_ON);
    setenv("HVD_TIMELINE", "/tmp/t.json", 1);
    ck_assert_int_eq(hvd__timeline_knobs_read(&k, 2, &err), 0);
    ck_assert_str_eq(k.path, "/tmp/t.2.json");
    hvd__timeline_knobs_fini(&k);
    /* HVD_TIMELINE wins; alone, HOROVOD_TIMELINE is rank 0's file. */
    setenv("HOROVOD_TIMELINE", "/tmp/h.json", 1);
    ck_assert_int_eq(hvd__timeline_knobs_read(&k, 0, &err), 0);
    ck_assert_str_eq(k.path, "/tmp/t.0.json");
    hvd__timeline_knobs_fini(&k);
    setenv("HVD_TIMELINE", "", 1);
    ck_assert_int_eq(hvd__timeline_knobs_read(&k, 0, &err), 0);
    ck_assert_str_eq(k.path, "/tmp/h.json");
    hvd__timeline_knobs_fini(&k);
    ck_assert_int_eq(hvd__timeline_knobs_read(&k, 2, &err), 0);
    ck_assert_ptr_null(k.path);
    setenv("HVD_TIMELINE", "DYNAMIC", 1);
    ck_assert_int_eq(hvd__timeline_knobs_read(&k, 0, &err), 0);
    ck_assert_ptr_null(k.path);
    setenv("HVD_TIMELINE_MARK_CYCLES", "often", 1);
    ck_assert_int_eq(hvd__timeline_knobs_read(&k, 2, &err), -HVD_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "TIMELINE_MARK_CYCLES"));
    ck_assert_ptr_null(k.path);
}
END_TEST

/* ---- Much ----------------------------------------------------------- */

enum { THREADS = 4, EACH = 30000 };

static void *add_many(void *arg)
{
    char name[16];

    snprintf(name, sizeof(name), "t%d", *(int *)arg);
    for (int i = 0; i < EACH; i++)
        add_one(name);
    return NULL;
}

/* No caller waits for the disk: events that did not fit are counted. */
START_TEST(test_a_full_ring_drops_and_says_so)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    json_int_t written = 0, dropped = 0;
    json_t *events, *event;
    size_t i;

    start(0);
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        pthread_create(&threads[t], NULL, add_many, &numbers[t]);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    stop();
    events = load();
    json_array_foreach(events, i, event)
    {
        if (strcmp(text_of(event, "name"), "ALLREDUCE") == 0)
            written++;
        if (strcmp(text_of(event, "name"), "DROPPED") == 0)
            dropped += json_integer_value(
                json_object_get(json_object_get(event, "args"), "records"));
    }
    ck_assert_int_eq(written + dropped, THREADS * EACH);
    ck_assert_int_gt(written, 0);
    json_decref(events);
}
END_TEST

static void write_until_killed(int ready)
{
    char name[16];

    if (hvd__timeline_open(path, HVD_TIMELINE_CYCLES, &owner, NULL) < 0 ||
        write(ready, "", 1) != 1)
        _exit(1);
    for (unsigned i = 0;; i++) {
        snprintf(name, sizeof(name), "tensor%u", i % 1000);
        add_one(name);
        if (i % 64 == 0)
            sched_yield();
    }
}

START_TEST(test_killed_at_any_moment)
{
    unsigned seed = (unsigned)getpid();

    for (int round = 0; round < 60; round++) {
        struct timespec pause = {0, rand_r(&seed) % 8000000};
        int ready[2], status;
        char byte;
        pid_t pid;

        ck_assert_int_eq(pipe(ready), 0);
        pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0)
            write_until_killed(ready[1]);
        ck_assert_int_eq(read(ready[0], &byte, 1), 1);
        nanosleep(&pause, NULL);
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSIGNALED(status));
        close(ready[0]);
        close(ready[1]);
        json_decref(load());
    }
}
END_TEST

/* ---- The file ------------------------------------------------------- */

/* After each element the file is valid and complete. */
START_TEST(test_file_grows_by_valid_steps)
{
    static struct hb_trace_file f;
    static char element[HB_TRACE_ELEMENT_MAX + 1];
    struct hb_error err = HB_ERROR_INIT;
    unsigned seed = 1;
    json_t *events;

    ck_assert_int_eq(hb_trace_file_open(&f, path, &err), 0);
    json_decref(load());
    memset(element, '1', sizeof(element));
    for (size_t i = 1; i <= 1500; i++) {
        /* Lengths: the longest, 2000, and random short ones. */
        size_t len = i % 100 == 0  ? HB_TRACE_ELEMENT_MAX
                     : i % 10 == 0 ? 2000
                                   : 1 + (size_t)rand_r(&seed) % 300;
        element[0] = '"';
        element[len > 1 ? len - 1 : 0] = '"';
        if (len == 1)
            element[0] = '1';
        hb_trace_file_put(&f, element, len);
        hb_trace_file_flush(&f);
        memset(element, '1', sizeof(element));
        if (i % 7 == 0 || i > 1400) {
            events = load();
            ck_assert_uint_eq(json_array_size(events), i);
            json_decref(events);
        }
    }
    hb_trace_file_put(&f, element, sizeof(element)); /* too long */
    ck_assert_int_eq(hb_trace_file_close(&f), 0);
    events = load();
    ck_assert_uint_eq(json_array_size(events), 1500);
    json_decref(events);
}
END_TEST

/* Two writers with one path, as two jobs have: the second is refused. */
START_TEST(test_one_writer)
{
    static struct hb_trace_file f, other;
    struct hb_error err = HB_ERROR_INIT;
    int status;
    pid_t pid;

    ck_assert_int_eq(hb_trace_file_open(&f, path, &err), 0);
    hb_trace_file_put(&f, "1", 1);
    hb_trace_file_flush(&f);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        _exit(hb_trace_file_open(&other, path, &err) == -HVD_ESYSTEM &&
                      strstr(err.text, "another process")
                  ? 0
                  : 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    hb_trace_file_put(&f, "2", 1);
    ck_assert_int_eq(hb_trace_file_close(&f), 0);
    json_decref(load());
    /* Once the first has closed the file, the second may write. */
    pid = fork();
    if (pid == 0)
        _exit(hb_trace_file_open(&other, path, &err) == 0 ? 0 : 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* Mounts a small file system in a mount namespace, where that is allowed. */
static int small_file_system(void)
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", dir, "tmpfs", 0, "size=64k") == 0;
}

/* Writes more events than the file can hold; at least `few` must be in it. */
static void overfill(int many, size_t few, int sys_errno)
{
    struct hb_error err = HB_ERROR_INIT;
    json_t *events;

    start(0);
    for (int i = 0; i < many; i++)
        add_one("x");
    ck_assert_int_eq(hvd__timeline_close(&err), -HVD_ESYSTEM);
    ck_assert_int_eq(err.sys_errno, sys_errno);
    ck_assert_ptr_nonnull(strstr(err.text, "not complete"));
    events = load();
    ck_assert_uint_gt(json_array_size(events), few);
    json_decref(events);
}

START_TEST(test_disk_full)
{
    if (!small_file_system())
        return;
    overfill(2000, 100, ENOSPC);
    unlink(path);
    umount(dir);
}
END_TEST

/* Limits the length of files where no disk can be filled. */
START_TEST(test_file_too_long)
{
    const struct rlimit limit = {10000, 10000};

    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    overfill(1000, 20, EFBIG);
}
END_TEST

static TCase *tests(const char *name)
{
    TCase *c = tcase_create(name);

    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 120);
    return c;
}

int main(void)
{
    Suite *s = suite_create("timeline");
    TCase *c = tests("events");

    tcase_add_test(c, test_request);
    tcase_add_test(c, test_start_of_the_file);
    tcase_add_test(c, test_planes_and_cycles);
    tcase_add_test(c, test_what_is_not_known_is_left_out);
    tcase_add_test(c, test_names_are_made_printable);
    tcase_add_test(c, test_lanes_of_sets);
    tcase_add_test(c, test_overlapping_without_a_name);
    suite_add_tcase(s, c);
    c = tests("life");
    tcase_add_test(c, test_start_and_stop);
    tcase_add_test(c, test_several_worlds);
    tcase_add_test(c, test_no_such_directory);
    tcase_add_test(c, test_no_memory);
    tcase_add_test(c, test_full_device);
    tcase_add_test(c, test_paths);
    tcase_add_test(c, test_knobs);
    suite_add_tcase(s, c);
    c = tests("much");
    tcase_add_test(c, test_a_full_ring_drops_and_says_so);
    tcase_add_test(c, test_killed_at_any_moment);
    suite_add_tcase(s, c);
    c = tests("file");
    tcase_add_test(c, test_file_grows_by_valid_steps);
    tcase_add_test(c, test_one_writer);
    tcase_add_test(c, test_disk_full);
    tcase_add_test(c, test_file_too_long);
    suite_add_tcase(s, c);
    return unit_run(s);
}
