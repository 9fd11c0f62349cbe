/* SPDX-License-Identifier: Apache-2.0 */
/* --dry-run: the table, the command line, and what would fail. */
#include "cmd/hvdrun/dryrun.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static struct options options;
static struct hostlist hosts;
static struct plan plan;
static struct hb_strv env;
static struct hb_buf out;
static struct hb_error err;

/* 4 CPUs on 2 cores with 2 threads each; 4 GPUs. */
static struct cpus_cpu cpu_items[] = {
    {0, 0, 0}, {1, 1, 0}, {2, 0, 0}, {3, 1, 0}};
static const struct cpus cpus = {cpu_items, 4, 2, 1};
static const struct gpu all_gpus[] = {
    {0, 0, "GPU-a"}, {1, 1, "GPU-b"}, {2, 4, "GPU-c"}, {3, 5, "GPU-d"}};
static struct gpu gpu_items[4];
static struct gpu_list gpus = {gpu_items, 4};

static void setup(void)
{
    options_init(&options);
    hb_error_clear(&err);
    hb_strv_add(&options.command, "/bin/sh");
    hb_strv_add(&env, "PATH=/bin:/usr/bin");
    memcpy(gpu_items, all_gpus, sizeof(all_gpus));
    gpus.count = 4;
}

static void teardown(void)
{
    plan_free(&plan);
    hostlist_free(&hosts);
    options_fini(&options);
    hb_strv_free(&env);
    hb_buf_free(&out);
}

static const char *format(const char *list, int num_proc)
{
    const struct dryrun d = {&options, &plan, &env, "/", &cpus, &gpus};

    ck_assert_msg(!hostlist_parse(list, &hosts, &err), "%s", err.text);
    ck_assert_msg(!plan_make(&hosts,
                             &(struct plan_options){.num_proc = num_proc},
                             &plan, &err),
                  "%s", err.text);
    ck_assert_int_eq(dryrun_format(&d, &out), 0);
    return hb_buf_data(&out);
}

START_TEST(plain)
{
    gpus.count = 0;
    ck_assert_str_eq(format("localhost:2", 2),
                     "rank  host       local rank  cpus  gpu\n"
                     "0     localhost  0           -     -\n"
                     "1     localhost  1           -     -\n"
                     "\n"
                     "command: /bin/sh\n"
                     "directory: /\n");
}
END_TEST

START_TEST(bound)
{
    options.spec.bind = CONTROL_BIND_CORE;
    options.spec.gpus_per_rank = 2;
    ck_assert_str_eq(format("localhost:2", 2),
                     "rank  host       local rank  cpus  gpu\n"
                     "0     localhost  0           0,2   0,1\n"
                     "1     localhost  1           1,3   4,5\n"
                     "\n"
                     "command: /bin/sh\n"
                     "directory: /\n");
}
END_TEST

START_TEST(more_ranks_than_cores)
{
    const char *text;

    options.spec.bind = CONTROL_BIND_CORE;
    text = format("localhost:3", 3);
    ck_assert_ptr_nonnull(strstr(text, "2     localhost  2           0,2"));
    ck_assert_ptr_nonnull(strstr(text, "\nwarning: host localhost: 3 ranks on "
                                       "2 cores: some share one\n"));
}
END_TEST

START_TEST(two_hosts_count_on_their_own)
{
    const char *text = format("localhost:2,127.0.0.1:1", 3);

    ck_assert_ptr_nonnull(strstr(text,
                                 "1     localhost  1           -     1\n"
                                 "2     127.0.0.1  0           -     0\n"));
}
END_TEST

START_TEST(unbound_ranks_share_gpus)
{
    gpus.count = 1;
    ck_assert_ptr_nonnull(strstr(format("localhost:2", 2),
                                 "1     localhost  1           -     "
                                 "0\n"));
}
END_TEST

START_TEST(a_mig_instance_has_a_name)
{
    gpus.count = 1;
    gpu_items[0] = (struct gpu){-1, -1, "MIG-12"};
    ck_assert_ptr_nonnull(
        strstr(format("localhost:1", 1), "0           -     MIG-12\n"));
}
END_TEST

START_TEST(bound_ranks_share_when_told_to)
{
    const char *text;

    options.spec.bind_gpu = options.spec.share_gpus = 1;
    options.spec.gpus_per_rank = 3;
    text = format("localhost:2", 2);
    ck_assert_ptr_nonnull(strstr(text, "0     localhost  0           -     "
                                       "0,1,4\n1     localhost  1           -"
                                       "     5,0,1\n"));
    ck_assert_ptr_null(strstr(text, "would fail"));
}
END_TEST

START_TEST(words_are_quoted)
{
    hb_strv_add(&options.command, "a b");
    hb_strv_add(&options.command, "it's");
    hb_strv_add(&options.command, "");
    hb_strv_add(&options.command, "--x=1,2");
    hb_strv_add(&options.command, "$HOME");
    ck_assert_ptr_nonnull(
        strstr(format("localhost:1", 1),
               "command: /bin/sh 'a b' 'it'\\''s' '' --x=1,2 '$HOME'\n"));
}
END_TEST

START_TEST(a_missing_program_is_told)
{
    const char *text;

    hb_strv_free(&options.command);
    hb_strv_add(&options.command, "no-such-program-here");
    text = strstr(format("localhost:1", 1), "would fail: ");
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(strstr(text, "no-such-program-here"));
    ck_assert_ptr_nonnull(strstr(text, "(exit code 127)\n"));
}
END_TEST

START_TEST(a_directory_is_told)
{
    hb_strv_free(&options.command);
    hb_strv_add(&options.command, "/tmp");
    ck_assert_ptr_nonnull(
        strstr(format("localhost:1", 1), "(exit code 126)\n"));
}
END_TEST

START_TEST(too_few_gpus_are_told)
{
    const char *text;

    options.spec.bind_gpu = 1;
    options.spec.gpus_per_rank = 3;
    text = format("localhost:2", 2);
    ck_assert_ptr_nonnull(strstr(text, "1     localhost  1           -     "
                                       "-\n"));
    ck_assert_ptr_nonnull(strstr(
        text, "would fail: localhost: 2 ranks with 3 GPUs each need 6 GPUs"));
}
END_TEST

START_TEST(the_real_machine)
{
    hostlist_parse("localhost:2", &hosts, &err);
    plan_make(&hosts, &(struct plan_options){.num_proc = 2}, &plan, &err);
    options.spec.bind = CONTROL_BIND_CORE;
    ck_assert_int_eq(dryrun_here(&options, &plan, &env, "/", &out, &err), 0);
    ck_assert_int_eq(strncmp(hb_buf_data(&out), "rank  host", 10), 0);
    ck_assert_ptr_null(strstr(hb_buf_data(&out), "would fail"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dryrun");
    TCase *t = tcase_create("dryrun");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, plain);
    tcase_add_test(t, bound);
    tcase_add_test(t, more_ranks_than_cores);
    tcase_add_test(t, two_hosts_count_on_their_own);
    tcase_add_test(t, unbound_ranks_share_gpus);
    tcase_add_test(t, a_mig_instance_has_a_name);
    tcase_add_test(t, bound_ranks_share_when_told_to);
    tcase_add_test(t, words_are_quoted);
    tcase_add_test(t, a_missing_program_is_told);
    tcase_add_test(t, a_directory_is_told);
    tcase_add_test(t, too_few_gpus_are_told);
    tcase_add_test(t, the_real_machine);
    suite_add_tcase(s, t);
    return unit_run(s);
}
