/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/hvdrun/host_plan.h: which hosts the options choose. */
#include "cmd/hvdrun/host_plan.h"

#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct hostlist hosts;
static struct plan plan;
static struct hb_error err;
static struct host_origin from;

/* Keeps the last line. */
static char logged[512];

static void on_log(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    snprintf(logged, sizeof(logged), "%s", line);
}

static const struct hb_log to_test = {.level = HB_LOG_INFO, .sink = on_log};

/* Reads the hosts of `o` and expects the first to be `name`, with `slots`. */
static void expect(const struct options *o, const char *hostname,
                   const char *name, int slots)
{
    hostlist_free(&hosts);
    memset(&hosts, 0, sizeof(hosts));
    hb_free(from.name);
    ck_assert_int_eq(host_plan_read(o, hostname, &to_test, &hosts, &from, &err),
                     0);
    ck_assert_str_eq(hosts.entries[0].name, name);
    ck_assert_int_eq(hosts.entries[0].slots, slots);
}

START_TEST(chooses_hosts)
{
    struct options o = {.num_proc = 3, .stdin_rank = -1};

    expect(&o, "n7", "n7", 3);
    expect(&o, "no valid name", "localhost", 3);
    o.hosts = (char *)"a:2,b:2";
    expect(&o, "n7", "a", 2);
    ck_assert_uint_eq(hosts.count, 2);
    o.hosts = NULL;
    o.hostfile = (char *)"/nonexistent";
    ck_assert_int_lt(host_plan_read(&o, "n7", &to_test, &hosts, &from, &err),
                     0);
    hostlist_free(&hosts);
}
END_TEST

START_TEST(stdin_names_a_rank)
{
    struct options o = {
        .hosts = (char *)"a:2,b:2", .num_proc = 3, .stdin_rank = 2};

    expect(&o, "n7", "a", 2);
    ck_assert_int_eq(host_plan_make(&o, &hosts, &from, &plan, &err), 0);
    ck_assert_int_eq(plan.size, 3);
    plan_free(&plan);
    o.stdin_rank = 3;
    ck_assert_int_eq(host_plan_make(&o, &hosts, &from, &plan, &err),
                     -HVD_EINVAL);
    ck_assert_str_eq(err.text, "--stdin 3: there are only ranks 0 to 2");
    plan_free(&plan);
    hostlist_free(&hosts);
}
END_TEST

static void expect_limits(int min_np, int max_np, const char *text)
{
    struct options o = {.hosts = (char *)"a:2,b:2",
                        .stdin_rank = -1,
                        .min_np = min_np,
                        .max_np = max_np};

    expect(&o, "n7", "a", 2);
    err = (struct hb_error)HB_ERROR_INIT;
    ck_assert_int_eq(host_plan_make(&o, &hosts, &from, &plan, &err),
                     *text ? -HVD_EINVAL : 0);
    ck_assert_str_eq(err.text, text);
    plan_free(&plan);
    hostlist_free(&hosts);
}

START_TEST(limits_of_an_elastic_job)
{
    expect_limits(4, 4, "");
    expect_limits(1, 0, "");
    expect_limits(5, 0, "--min-np 5: the job has only 4 ranks");
    expect_limits(1, 5, "");
    expect_limits(0, 3, "--max-np 3: the job has 4 ranks already");
}
END_TEST

START_TEST(multiples)
{
    struct options o = {
        .hosts = (char *)"a:2,b:2", .stdin_rank = -1, .np_multiple = 2};

    expect(&o, "n7", "a", 2);
    ck_assert_int_eq(host_plan_make(&o, &hosts, &from, &plan, &err), 0);
    plan_free(&plan);
    o.np_multiple = 3;
    ck_assert_int_eq(host_plan_make(&o, &hosts, &from, &plan, &err),
                     -HVD_EINVAL);
    ck_assert_str_eq(err.text, "--np-multiple 3: the job has 4 ranks");
    plan_free(&plan);
    hostlist_free(&hosts);
}
END_TEST

/* The hosts of a batch system are those of a job that names none. */
START_TEST(allocation)
{
    struct options o = {.stdin_rank = -1};

    setenv("SLURM_JOB_NODELIST", "a[1-2]", 1);
    setenv("SLURM_TASKS_PER_NODE", "2(x2)", 1);
    setenv("SLURM_JOB_ID", "17", 1);
    expect(&o, "a1", "a1", 2);
    ck_assert_str_eq(from.name, "Slurm job 17");
    ck_assert_str_eq(logged, "Slurm job 17: 2 hosts (a[1-2]), 4 slots");
    ck_assert_int_eq(host_plan_make(&o, &hosts, &from, &plan, &err), 0);
    ck_assert_int_eq(plan.size, 4);
    plan_free(&plan);
    o.num_proc = 3;
    expect(&o, "a1", "a1", 2);
    ck_assert_int_eq(host_plan_make(&o, &hosts, &from, &plan, &err), 0);
    ck_assert_int_eq(plan.size, 3);
    plan_free(&plan);
    o.num_proc = 5;
    ck_assert_int_eq(host_plan_make(&o, &hosts, &from, &plan, &err),
                     -HVD_EINVAL);
    ck_assert_str_eq(err.text,
                     "-np 5: Slurm job 17 has 4 slots (a1:2, a2:2); lower -np "
                     "or ask for more, or give --oversubscribe");
    plan_free(&plan);
    hostlist_free(&hosts);
}
END_TEST

/* An allocation of this machine alone changes nothing for -np. */
START_TEST(allocation_of_this_machine)
{
    struct options o = {.num_proc = 3, .stdin_rank = -1};

    setenv("LSB_MCPU_HOSTS", "n7 2", 1);
    expect(&o, "n7", "n7", 3);
    ck_assert_int_eq(from.is_used, 0);
    ck_assert_str_eq(logged, "the LSF job: 1 host (n7), 2 slots");
    o.num_proc = 0;
    expect(&o, "n7", "n7", 2);
    ck_assert_str_eq(from.name, "the LSF job");
    o.num_proc = 3;
    expect(&o, "other", "n7", 2);
    hostlist_free(&hosts);
}
END_TEST

/* srun hvdrun starts hvdrun once for each task. */
START_TEST(started_by_srun)
{
    struct options o = {.stdin_rank = -1};

    setenv("SLURM_JOB_NODELIST", "a", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    expect(&o, "a", "a", 1);
    ck_assert_ptr_null(strstr(logged, "started"));
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    expect(&o, "a", "a", 1);
    ck_assert_str_eq(logged, "Slurm has started hvdrun 4 times, and each "
                             "starts ranks: start it once, in the script of "
                             "the job");
    unsetenv("SLURM_STEP_NUM_TASKS");
    hostlist_free(&hosts);
}
END_TEST

START_TEST(allocation_is_not_asked)
{
    struct options o = {.num_proc = 3, .stdin_rank = -1};

    setenv("PBS_NODEFILE", "/nonexistent", 1);
    ck_assert_int_lt(host_plan_read(&o, "n7", &to_test, &hosts, &from, &err),
                     0);
    ck_assert_str_eq(err.text, "PBS_NODEFILE: hostfile /nonexistent: cannot "
                               "open: No such file or directory");
    hb_error_clear(&err);
    o.allocation = ALLOCATION_NONE;
    expect(&o, "n7", "n7", 3);
    o.allocation = ALLOCATION_AUTO;
    o.hosts = (char *)"a:2";
    expect(&o, "n7", "a", 2);
    o.allocation = ALLOCATION_SGE;
    o.hosts = NULL;
    hostlist_free(&hosts);
    ck_assert_int_lt(host_plan_read(&o, "n7", &to_test, &hosts, &from, &err),
                     0);
    ck_assert_str_eq(err.text, "--allocation: this is no job of SGE: "
                               "PE_HOSTFILE is not set");
    hostlist_free(&hosts);
}
END_TEST

/* Parses options and returns the error's text, "" if there is none. */
static const char *parse(const char *first, const char *second,
                         const char *third, const char *fourth)
{
    const char *argv[] = {"hvdrun", first, second, third, fourth, NULL};
    struct options o;
    int argc = 1;

    while (argv[argc])
        argc++;
    options_init(&o);
    hb_error_clear(&err);
    options_parse(&o, argc, (char *const *)(uintptr_t)argv, &err);
    options_fini(&o);
    return err.text;
}

/* In a job of a batch system, its hosts say how many ranks there are. */
START_TEST(options_in_an_allocation)
{
    static const char how_many[] =
        "how many ranks? give -np N or -H HOST:SLOTS";

    ck_assert_str_eq(parse("cmd", NULL, NULL, NULL), how_many);
    setenv("LSB_MCPU_HOSTS", "a 2 b 2", 1);
    ck_assert_str_eq(parse("cmd", NULL, NULL, NULL), "");
    ck_assert_str_eq(parse("--allocation", "lsf", "cmd", NULL), "");
    ck_assert_str_eq(parse("--allocation", "none", "cmd", NULL), how_many);
    ck_assert_str_eq(parse("--allocation", "Slurm", "cmd", NULL), "");
    ck_assert_str_eq(parse("--allocation", "moab", "cmd", NULL),
                     "--allocation 'moab': must be one of auto none slurm pbs "
                     "lsf sge flux");
    ck_assert_str_eq(parse("--mpi", "--allocation", "lsf", "cmd"),
                     "--allocation cannot be used with --mpi: mpirun has "
                     "nothing like it");
}
END_TEST

static void clear(void)
{
    static const char *const names[] = {
        "SLURM_TASKS_PER_NODE", "SLURM_JOB_ID",
        "SLURM_STEP_NUM_TASKS", "FLUX_URI",
        "SLURM_JOB_NODELIST",   "SLURM_JOB_NODELIST_HET_GROUP_0",
        "PBS_NODEFILE",         "LSB_MCPU_HOSTS",
        "LSB_DJOB_HOSTFILE",    "PE_HOSTFILE"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    hb_free(from.name);
    from = (struct host_origin){0};
    memset(&hosts, 0, sizeof(hosts));
    memset(&plan, 0, sizeof(plan));
    hb_error_clear(&err);
}

int main(void)
{
    Suite *s = suite_create("host_plan");
    TCase *t = tcase_create("all");

    tcase_add_checked_fixture(t, clear, NULL);
    tcase_add_test(t, chooses_hosts);
    tcase_add_test(t, stdin_names_a_rank);
    tcase_add_test(t, limits_of_an_elastic_job);
    tcase_add_test(t, multiples);
    tcase_add_test(t, allocation);
    tcase_add_test(t, allocation_of_this_machine);
    tcase_add_test(t, started_by_srun);
    tcase_add_test(t, allocation_is_not_asked);
    tcase_add_test(t, options_in_an_allocation);
    suite_add_tcase(s, t);
    return unit_run(s);
}
