/* SPDX-License-Identifier: Apache-2.0 */
/* lib/remote/srun.h: the command for a host, by the variables of its job. */
#include "lib/remote/srun.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct hb_error err;

static const char *const names[] = {"SLURM_JOB_ID",
                                    "SLURM_JOB_NODELIST",
                                    "SLURM_TASKS_PER_NODE",
                                    "SLURM_GPUS_PER_TASK",
                                    "SLURM_HET_SIZE",
                                    "SLURM_JOB_NODELIST_HET_GROUP_0",
                                    "SLURM_JOB_NODELIST_HET_GROUP_1"};

static void clear(void)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    hb_error_clear(&err);
}

/* Returns the words behind `srun`, joined by blanks. */
static const char *command(const char *host)
{
    static char joined[1024];
    struct hb_strv argv = HB_STRV_INIT;
    size_t i = 0;

    joined[0] = '\0';
    ck_assert_msg(srun_argv(host, &argv, &err) == 0, "%s", err.text);
    ck_assert_str_eq(argv.items[0], "env");
    while (strcmp(argv.items[i], "srun") != 0)
        i++;
    for (; i < argv.count; i++) {
        strcat(joined, joined[0] ? " " : "");
        strcat(joined, argv.items[i]);
    }
    hb_strv_free(&argv);
    return joined;
}

#define COMMON                                                          \
    "srun --overlap --nodes=1 --ntasks=1 --cpu-bind=none --unbuffered " \
    "--quiet "

START_TEST(plain)
{
    setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
    ck_assert_str_eq(command("n2"), COMMON "--nodelist=n2 /bin/sh");
}
END_TEST

/* The shell would get the GPUs of one task. */
START_TEST(gpus_by_task)
{
    setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
    setenv("SLURM_TASKS_PER_NODE", "2,3", 1);
    setenv("SLURM_GPUS_PER_TASK", "2", 1);
    ck_assert_str_eq(command("n2"),
                     COMMON "--nodelist=n2 --gpus-per-node=6 /bin/sh");
    setenv("SLURM_GPUS_PER_TASK", "a100:1", 1);
    ck_assert_str_eq(command("N1"),
                     COMMON "--nodelist=N1 --gpus-per-node=2 /bin/sh");
    ck_assert_str_eq(command("other"), COMMON "--nodelist=other /bin/sh");
    setenv("SLURM_GPUS_PER_TASK", "gpu:a100:2,gpu:v100:1", 1);
    ck_assert_str_eq(command("n2"),
                     COMMON "--nodelist=n2 --gpus-per-node=9 /bin/sh");
    setenv("SLURM_GPUS_PER_TASK", "many", 1);
    ck_assert_str_eq(command("n2"), COMMON "--nodelist=n2 /bin/sh");
    unsetenv("SLURM_GPUS_PER_TASK");
    setenv("SLURM_GPUS", "8", 1);
    ck_assert_str_eq(command("n2"),
                     COMMON "--nodelist=n2 --gpus-per-node=4 /bin/sh");
    setenv("SLURM_GPUS", "7", 1);
    ck_assert_str_eq(command("n2"), COMMON "--nodelist=n2 /bin/sh");
    setenv("SLURM_GPUS_PER_TASK", "1", 1);
    setenv("SLURM_TASKS_PER_NODE", "x", 1);
    ck_assert_str_eq(command("n2"), COMMON "--nodelist=n2 /bin/sh");
}
END_TEST

START_TEST(components)
{
    struct hb_strv argv = HB_STRV_INIT;

    setenv("SLURM_JOB_NODELIST_HET_GROUP_0", "a", 1);
    setenv("SLURM_JOB_NODELIST_HET_GROUP_1", "b[1-2]", 1);
    ck_assert_str_eq(command("a"), COMMON "--nodelist=a --het-group=0 /bin/sh");
    ck_assert_str_eq(command("b2"),
                     COMMON "--nodelist=b2 --het-group=1 /bin/sh");
    ck_assert_int_eq(srun_argv("c", &argv, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "srun: it is in no component of this "
                               "heterogeneous job");
    hb_strv_free(&argv);
}
END_TEST

START_TEST(needs_a_job)
{
    ck_assert_int_eq(srun_check(&err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "--launcher slurm: this is no job of Slurm: "
                               "SLURM_JOB_ID is not set");
    hb_error_clear(&err);
    setenv("SLURM_JOB_ID", "1", 1);
    ck_assert_int_eq(srun_check(&err), 0);
}
END_TEST

static int attempt(void *arg)
{
    struct hb_strv argv = HB_STRV_INIT;
    int rc = srun_argv("a", &argv, arg);

    hb_strv_free(&argv);
    return rc;
}

START_TEST(out_of_memory)
{
    unit_fail_each(attempt, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("srun");
    TCase *t = tcase_create("srun");

    tcase_add_checked_fixture(t, clear, NULL);
    tcase_add_test(t, plain);
    tcase_add_test(t, gpus_by_task);
    tcase_add_test(t, components);
    tcase_add_test(t, needs_a_job);
    tcase_add_test(t, out_of_memory);
    suite_add_tcase(s, t);
    return unit_run(s);
}
