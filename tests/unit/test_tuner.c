/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/core/tune/tuner.h: all ranks use the same settings; the log; wrong
 * knobs; and worlds that are tuned.
 */
#include "runtime/core/sched/plan.h"
#include "runtime/core/tune/tuner.h"
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The tuner, without a world ----------------------------------------- */

enum { RANKS = 3, STEP_TENSORS = 5, TENSOR_BYTES = 1 << 20 };

static char path[64];

static void set_up(void)
{
    static const char *const names[] = {"AUTOTUNE_WARMUP_SAMPLES",
                                        "AUTOTUNE_STEPS_PER_SAMPLE",
                                        "AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
                                        "AUTOTUNE",
                                        "AUTOTUNE_LOG",
                                        "FUSION_THRESHOLD"};
    int fd;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char knob[64];

        snprintf(knob, sizeof(knob), "HVD_%s", names[i]);
        unsetenv(knob);
        snprintf(knob, sizeof(knob), "HOROVOD_%s", names[i]);
        unsetenv(knob);
    }
    snprintf(path, sizeof(path), "/tmp/hvd-autotune-XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    setenv("HVD_AUTOTUNE_LOG", path, 1);
}

static void tear_down(void)
{
    unlink(path);
}

struct group {
    struct hvd__tuner t[RANKS];
    struct hvd__entry tensors[STEP_TENSORS];
};

static struct hvd__tuner_config config_of(int rank)
{
    return (struct hvd__tuner_config){
        .n = RANKS, .me = rank, .defaults = {128 << 20, 256 << 10, 100}};
}

static struct group *open_group(void)
{
    struct group *g = hb_xcalloc(1, sizeof(*g));

    for (int r = 0; r < RANKS; r++) {
        struct hvd__tuner_config c = config_of(r);
        struct hb_error err = HB_ERROR_INIT;

        ck_assert_msg(hvd__tuner_open(&g->t[r], &c, &err) == 0, "%s", err.text);
    }
    return g;
}

static void close_group(struct group *g)
{
    for (int r = 0; r < RANKS; r++) {
        hvd__tuner_close(&g->t[r]);
        hvd__tuner_close(&g->t[r]);
    }
    hb_free(g);
}

/* Plays the allgather of the ranks' offers, if one is due. */
static void exchange(struct group *g)
{
    if (!hvd__tuner_due(&g->t[0]))
        return;
    for (int r = 0; r < RANKS; r++) {
        const void *offer = hvd__tuner_offer(&g->t[r]);

        for (int to = 0; to < RANKS; to++)
            memcpy(g->t[to].all + r * HVD__TUNER_BYTES, offer,
                   HVD__TUNER_BYTES);
    }
    for (int r = 0; r < RANKS; r++)
        hvd__tuner_agreed(&g->t[r]);
}

/* Reports one allreduce of a tensor on all ranks. */
static void carry_out(struct group *g, const struct hvd__entry *e, int is_named)
{
    exchange(g);
    for (int r = 0; r < RANKS && !g->t[r].finished; r++)
        hvd__tuner_allreduced(&g->t[r], e, is_named, TENSOR_BYTES);
    for (int r = 1; r < RANKS; r++) {
        ck_assert_int_eq(g->t[r].due, g->t[0].due);
        ck_assert_int_eq(g->t[r].finished, g->t[0].finished);
        ck_assert_uint_eq(g->t[r].steps, g->t[0].steps);
        ck_assert_int_eq(
            memcmp(&g->t[r].now, &g->t[0].now, sizeof(g->t[r].now)), 0);
    }
}

/* Reads the log and checks its form; returns the number of rows, and the values
 * of row `row`. */
static int read_log(int row, char *phase, unsigned long long *fusion)
{
    FILE *f = fopen(path, "r");
    char line[256];
    int rows = 0;

    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
    ck_assert_str_eq(line, "sample,phase,tensor_fusion_threshold,"
                           "fused_tensor_max,tcp_alpha_percent,score_q1,"
                           "score_q3,score\n");
    while (fgets(line, sizeof(line), f)) {
        unsigned long long bytes, part, percent;
        double q1, q3, score;
        char name[16], end;
        int number;

        ck_assert_int_eq(
            sscanf(line, "%d,%15[a-z],%llu,%llu,%llu,%lf,%lf,%lf%c", &number,
                   name, &bytes, &part, &percent, &q1, &q3, &score, &end),
            9);
        ck_assert_int_eq(end, '\n');
        ck_assert_int_eq(number, ++rows);
        ck_assert(0 <= q1 && q1 <= score && score <= q3);
        if (rows == row || row == 0) {
            snprintf(phase, 16, "%s", name);
            *fusion = bytes;
        }
    }
    fclose(f);
    return rows;
}

START_TEST(test_ranks_use_the_same)
{
    unsigned long long fusion;
    struct group *g;
    char phase[16];
    int n = 0, rows;

    setenv("HVD_AUTOTUNE_WARMUP_SAMPLES", "2", 1);
    setenv("HVD_AUTOTUNE_STEPS_PER_SAMPLE", "4", 1);
    setenv("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "12", 1);
    g = open_group();
    for (; !g->t[0].finished; n++) {
        ck_assert_int_lt(n, 10000);
        carry_out(g, &g->tensors[n % STEP_TENSORS], 1);
    }
    /* A sample takes this many steps, and one step before them. */
    ck_assert_int_le(n, 15 * 5 * STEP_TENSORS);
    rows = read_log(0, phase, &fusion);
    ck_assert_str_eq(phase, "best");
    ck_assert_uint_eq(fusion, g->t[0].now.fusion_bytes);
    ck_assert_int_le(rows, 15);
    read_log(1, phase, &fusion);
    ck_assert_str_eq(phase, "warmup");
    ck_assert_uint_eq(fusion, 128 << 20);
    read_log(3, phase, &fusion);
    ck_assert_str_eq(phase, "search");
    ck_assert_uint_eq(fusion, 128 << 20);
    read_log(4, phase, &fusion); /* half the bytes of a step, as a power of
                                  * two */
    ck_assert_uint_eq(fusion, 2 << 20);
    close_group(g);
    ck_assert_int_eq(read_log(0, phase, &fusion), rows);
}
END_TEST

START_TEST(test_unnamed_steps)
{
    unsigned long long fusion;
    struct group *g;
    char phase[16];

    setenv("HVD_AUTOTUNE_WARMUP_SAMPLES", "0", 1);
    setenv("HVD_AUTOTUNE_STEPS_PER_SAMPLE", "1", 1);
    g = open_group();
    for (int i = 0; i < 2 * HVD__TUNER_UNNAMED; i++) {
        ck_assert_int_eq(read_log(0, phase, &fusion), 0);
        carry_out(g, &g->tensors[0], 0);
    }
    ck_assert_int_eq(read_log(0, phase, &fusion), 1);
    close_group(g);
    ck_assert_int_eq(read_log(0, phase, &fusion), 2);
    ck_assert_str_eq(phase, "best");
}
END_TEST

/* During the search the program stops issuing the tensor that marks its steps:
 * the search ends with the settings that it began with. */
START_TEST(test_lost_marker)
{
    unsigned long long fusion;
    struct group *g;
    char phase[16];

    setenv("HVD_AUTOTUNE_STEPS_PER_SAMPLE", "1", 1);
    setenv("HVD_AUTOTUNE_WARMUP_SAMPLES", "0", 1);
    g = open_group();
    while (g->t[0].now.fusion_bytes == 128 << 20 &&
           g->t[0].now.fusion_part_bytes == 256 << 10)
        for (int i = 0; i < STEP_TENSORS; i++)
            carry_out(g, &g->tensors[i], 1);
    for (int i = 0; i <= HVD__TUNER_LOST; i++)
        carry_out(g, &g->tensors[1 + i % 4], 1);
    ck_assert_int_eq(g->t[0].finished, 1);
    ck_assert_uint_eq(g->t[0].now.fusion_bytes, 128 << 20);
    ck_assert_uint_eq(g->t[0].now.fusion_part_bytes, 256 << 10);
    read_log(0, phase, &fusion);
    ck_assert_str_eq(phase, "best");
    close_group(g);
}
END_TEST

static void count_lines(void *arg, enum hb_log_level level, const char *line)
{
    (void)line;
    if (level >= HB_LOG_WARNING)
        ++*(int *)arg;
}

START_TEST(test_denied)
{
    int lines = 0;
    const struct hb_log log = {.sink = count_lines, .sink_arg = &lines};
    struct hvd__tuner_config c = config_of(0);
    unsigned long long fusion;
    struct hvd__tuner t;
    char phase[16];

    c.log = &log;
    ck_assert_int_eq(hvd__tuner_open(&t, &c, NULL), 0);
    ck_assert(hvd__tuner_due(&t));
    hvd__tuner_offer(&t);
    hvd__tuner_denied(&t);
    ck_assert(!hvd__tuner_due(&t) && t.finished);
    ck_assert_uint_eq(t.now.fusion_bytes, 128 << 20);
    ck_assert_int_eq(lines, 1);
    hvd__tuner_close(&t);
    ck_assert_int_eq(read_log(0, phase, &fusion), 1);
    ck_assert_str_eq(phase, "best");
}
END_TEST

/* All samples use the threshold given by the user. */
START_TEST(test_pinned_fusion)
{
    unsigned long long fusion, given = _i ? 0 : 3 << 20;
    struct hvd__entry tensor = {0};
    struct hvd__tuner_config c = config_of(0);
    struct hvd__tuner t;
    char phase[16];
    int rows;

    c.n = 1;
    c.fusion_pinned = 1;
    c.defaults.fusion_bytes = given;
    ck_assert_int_eq(hvd__tuner_open(&t, &c, NULL), 0);
    for (int i = 0; i < 10000 && !t.finished; i++) {
        if (hvd__tuner_due(&t)) {
            memcpy(t.all, hvd__tuner_offer(&t), HVD__TUNER_BYTES);
            hvd__tuner_agreed(&t);
        }
        hvd__tuner_allreduced(&t, &tensor, 1, TENSOR_BYTES);
    }
    ck_assert(t.finished);
    hvd__tuner_close(&t);
    rows = read_log(0, phase, &fusion);
    ck_assert_int_gt(rows, 4);
    for (int i = 1; i <= rows; i++) {
        read_log(i, phase, &fusion);
        ck_assert_uint_eq(fusion, given);
    }
    if (given == 0) /* without fusion there is nothing to tune */
        ck_assert_int_eq(rows, 5);
}
END_TEST

static const struct {
    const char *knob, *value;
    int status;
    const char *text;
} bad[] = {
    {"HVD_AUTOTUNE_STEPS_PER_SAMPLE", "0", HVD_EINVAL,
     "HVD_AUTOTUNE_STEPS_PER_SAMPLE"},
    {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "-1", HVD_EINVAL,
     "AUTOTUNE_WARMUP_SAMPLES"},
    {"HVD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "many", HVD_EINVAL,
     "AUTOTUNE_BAYES_OPT_MAX_SAMPLES"},
    {"HVD_AUTOTUNE_LOG", "/tmp", HVD_ESYSTEM, "HVD_AUTOTUNE_LOG: open /tmp"},
    {"HVD_AUTOTUNE_LOG", "/proc/none/log", HVD_ENOENT, "/proc/none/log"},
};
enum { NBAD = sizeof(bad) / sizeof(bad[0]) };

START_TEST(test_bad_knobs)
{
    struct hvd__tuner_config c = config_of(0);
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__tuner t;

    setenv(bad[_i].knob, bad[_i].value, 1);
    ck_assert_int_eq(hvd__tuner_open(&t, &c, &err), -bad[_i].status);
    ck_assert_msg(strstr(err.text, bad[_i].text) != NULL, "%s", err.text);
    hvd__tuner_close(&t);
    unsetenv(bad[_i].knob);
}
END_TEST

START_TEST(test_wanted)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(hvd__tuner_wanted(&err), 0);
    setenv("HOROVOD_AUTOTUNE", "1", 1);
    ck_assert_int_eq(hvd__tuner_wanted(&err), 1);
    setenv("HVD_AUTOTUNE", "off", 1);
    ck_assert_int_eq(hvd__tuner_wanted(&err), 0);
    setenv("HVD_AUTOTUNE", "perhaps", 1);
    ck_assert_int_eq(hvd__tuner_wanted(&err), -HVD_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "HVD_AUTOTUNE"));
}
END_TEST

/* A full disk costs the log and nothing else. */
START_TEST(test_full_disk)
{
    int lines = 0;
    const struct hb_log log = {.sink = count_lines, .sink_arg = &lines};
    struct hvd__tuner_config c = config_of(0);
    struct hvd__tuner t;

    c.log = &log;
    setenv("HVD_AUTOTUNE_LOG", "/dev/full", 1);
    ck_assert_int_eq(hvd__tuner_open(&t, &c, NULL), 0);
    hvd__tuner_close(&t);
    ck_assert_int_eq(lines, 1);
}
END_TEST

static int open_and_close(void *arg)
{
    struct hvd__tuner_config c = config_of(0);
    struct hvd__tuner t;
    int rc = hvd__tuner_open(&t, &c, NULL);

    (void)arg;
    hvd__tuner_close(&t);
    return rc;
}

START_TEST(test_no_memory)
{
    unit_fail_each(open_and_close, NULL);
}
END_TEST

/* ---- Worlds ------------------------------------------------------------- */

enum { BURST = 12, ROUNDS = 150, ELEMS = 700 };

static int burst(int round)
{
    static int32_t data[BURST][ELEMS];
    hvd_request *reqs[BURST];
    int n = hvd_size();

    for (int i = 0; i < BURST; i++) {
        char name[32];

        snprintf(name, sizeof(name), "tensor.%d", i);
        for (int k = 0; k < ELEMS; k++)
            data[i][k] = hvd_rank() + i + round + k;
        want(hvd_allreduce_async(name, data[i], data[i], ELEMS, HVD_INT32,
                                 HVD_SUM, NULL, &reqs[i]) == 0);
    }
    for (int i = 0; i < BURST; i++)
        want(hvd_wait(reqs[i]) == 0);
    for (int i = 0; i < BURST; i++)
        for (int k = 0; k < ELEMS; k++)
            want(data[i][k] == n * (n - 1) / 2 + n * (i + round + k));
    return 0;
}

/* Runs bursts of named tensors with unnamed operations between them. */
static int tuned_body(int rank, void *arg)
{
    const char *only = arg; /* the only rank with the knob; NULL: all */
    int32_t one = 1, sum = 0;

    if (!only || atoi(only) == rank)
        setenv("HVD_AUTOTUNE", "1", 1);
    want(hvd_init() == 0);
    for (int round = 0; round < ROUNDS; round++) {
        want(burst(round) == 0);
        if (round % 7 == 0)
            want(hvd_barrier(NULL) == 0);
        want(hvd_allreduce(&one, &sum, 1, HVD_INT32, HVD_SUM, NULL) == 0);
        want(sum == hvd_size());
    }
    want(hvd_shutdown() == 0);
    return 0;
}

static const struct {
    int size;
    const char *place, *only;
} worlds[] = {{2, NULL, NULL}, {4, NULL, NULL},  {1, NULL, NULL},
              {2, "ab", NULL}, {3, "aab", NULL}, {3, NULL, "0"},
              {3, NULL, "1"}};
enum { NWORLDS = sizeof(worlds) / sizeof(worlds[0]) };

START_TEST(test_world)
{
    struct world w = {.size = worlds[_i].size,
                      .place = worlds[_i].place,
                      .body = tuned_body,
                      .arg = (void *)(uintptr_t)worlds[_i].only};
    unsigned long long fusion;
    char phase[16];

    setenv("HVD_AUTOTUNE_STEPS_PER_SAMPLE", "2", 1);
    ck_assert_int_eq(world_run_with(&w), 0);
    if (!worlds[_i].only || worlds[_i].only[0] == '0') {
        int rows = read_log(0, phase, &fusion);

        ck_assert_str_eq(phase, "best");
        if (w.size > 1 && !worlds[_i].only)
            ck_assert_int_gt(rows, 5);
        else
            ck_assert_int_eq(rows, 1);
    }
}
END_TEST

/* One rank joins during the search. */
static int joined_body(int rank, void *arg)
{
    int last = -1;

    (void)arg;
    setenv("HVD_AUTOTUNE", "1", 1);
    want(hvd_init() == 0);
    for (int round = 0; round < 20; round++)
        want(burst(round) == 0);
    for (int i = 0; i < 20 * BURST && rank != 1; i++) {
        hvd_request *req;
        int32_t v = 1;
        char name[32];

        snprintf(name, sizeof(name), "tensor.%d", i % BURST);
        want(hvd_allreduce_async(name, &v, &v, 1, HVD_INT32, HVD_SUM, NULL,
                                 &req) == 0);
        want(hvd_wait(req) == 0);
        want(v == hvd_size() - 1);
    }
    want(hvd_join(&last, NULL) == 0);
    for (int round = 0; round < 60; round++)
        want(burst(round) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_join)
{
    setenv("HVD_AUTOTUNE_STEPS_PER_SAMPLE", "2", 1);
    ck_assert_int_eq(world_run(3, joined_body, NULL), 0);
}
END_TEST

static int failing_body(int rank, void *arg)
{
    (void)arg;
    setenv("HVD_AUTOTUNE", "1", 1);
    if (rank == 0)
        setenv("HVD_AUTOTUNE_LOG", "/proc/none/log", 1);
    if (rank != 0) {
        want(hvd_init() == 0);
        want(hvd_barrier(NULL) < 0);
        hvd_shutdown();
        return 0;
    }
    want(hvd_init() == -HVD_ENOENT);
    want(strstr(hvd_error_message(), "hvd_init: HVD_AUTOTUNE_LOG: open "));
    want(!hvd_is_initialized());
    return 0;
}

START_TEST(test_no_log_no_init)
{
    ck_assert_int_eq(world_run(2, failing_body, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tuner");
    TCase *alone = tcase_create("alone");
    TCase *world = tcase_create("world");

    tcase_set_timeout(alone, 60);
    tcase_add_checked_fixture(alone, set_up, tear_down);
    tcase_add_test(alone, test_ranks_use_the_same);
    tcase_add_test(alone, test_unnamed_steps);
    tcase_add_test(alone, test_lost_marker);
    tcase_add_test(alone, test_denied);
    tcase_add_loop_test(alone, test_pinned_fusion, 0, 2);
    tcase_add_loop_test(alone, test_bad_knobs, 0, NBAD);
    tcase_add_test(alone, test_wanted);
    tcase_add_test(alone, test_full_disk);
    tcase_add_test(alone, test_no_memory);
    suite_add_tcase(s, alone);
    tcase_set_timeout(world, 60);
    tcase_add_checked_fixture(world, set_up, tear_down);
    tcase_add_loop_test(world, test_world, 0, NWORLDS);
    tcase_add_test(world, test_join);
    tcase_add_test(world, test_no_log_no_init);
    suite_add_tcase(s, world);
    return unit_run(s);
}
