/* SPDX-License-Identifier: Apache-2.0 */
/* The workers' environment: what is passed on, which value wins, what a rank
 * gets. */
#include "lib/job/worker_env.h"

#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct hb_strv env, knobs, set_env;
static struct hb_error err;

static void teardown(void)
{
    hb_strv_free(&env);
    hb_strv_free(&knobs);
    hb_strv_free(&set_env);
}

static void common_for(int remote, char *const *inherited, int no_env)
{
    const struct worker_env_config config = {
        .inherited = inherited,
        .no_env = no_env,
        .remote = remote,
        .knobs = &knobs,
        .set_env = &set_env,
    };

    hb_strv_free(&env);
    hb_error_clear(&err);
    ck_assert_int_eq(worker_env_common(&config, &env, &err), 0);
}

static void common(char *const *inherited, int no_env)
{
    common_for(0, inherited, no_env);
}

static void is(const char *name, const char *value)
{
    const char *got = hb_env_get(&env, name);

    ck_assert_msg((got == NULL) == (value == NULL), "%s is %s", name,
                  got ? got : "not set");
    if (value)
        ck_assert_str_eq(got, value);
}

START_TEST(inherited_passes)
{
    char *inherited[] = {"PATH=/bin",
                         "A=1",
                         "EMPTY=",
                         "dotted.name=x",
                         "CUDA_VISIBLE_DEVICES=0,1",
                         "HOROVOD_CYCLE_TIME=5",
                         "HOROVOD_GLOO_TIMEOUT_SECONDS=1800",
                         "HOROVOD_CONTROLLER=gloo",
                         "SLURM_JOB_ID=7",
                         NULL};

    common(inherited, 0);
    for (int i = 0; inherited[i]; i++)
        ck_assert_str_eq(env.items[i], inherited[i]);
    is("PYTHONUNBUFFERED", "1");
    ck_assert_uint_eq(env.count, 10);
}
END_TEST

/* Variables bound to this host do not go to others, unless given with -x. */
START_TEST(other_hosts_do_not_get_what_is_bound_to_this_one)
{
    char *inherited[] = {"PATH=/bin",      "HOME=/home/me",
                         "USER=me",        "SSH_AUTH_SOCK=/tmp/s",
                         "DISPLAY=:0",     "CUDA_VISIBLE_DEVICES=1",
                         "SHELL=/bin/zsh", "X_CUDA_VISIBLE_DEVICES=1",
                         "PWD=/here",      "XDG_RUNTIME_DIR=/run/user/1",
                         "VISIBLE=1",      NULL};

    hb_strv_add(&set_env, "DISPLAY=far:1");
    common_for(1, inherited, 0);
    is("PATH", "/bin");
    is("VISIBLE", "1");
    is("DISPLAY", "far:1");
    is("HOME", NULL);
    ck_assert_uint_eq(env.count, 4); /* and PYTHONUNBUFFERED */
    common_for(1, inherited, 1);
    is("HOME", NULL);
    is("PATH", "/bin");
}
END_TEST

START_TEST(bytes_are_kept)
{
    char *big = malloc(200001);
    char *inherited[] = {big, "Q='\"`$\\", "NL=a\nb\n", "X=\xff\xfe", NULL};

    memset(big, 'v', 200000);
    big[200000] = '\0';
    memcpy(big, "BIG=", 4);
    hb_strv_add(&set_env, "N=\n'\"");
    common(inherited, 0);
    for (int i = 0; inherited[i]; i++)
        ck_assert_str_eq(env.items[i], inherited[i]);
    is("N", "\n'\"");
    free(big);
}
END_TEST

/* Variables of an outer job, of one shell, and of another rendezvous are
 * dropped. */
START_TEST(stale_variables_are_dropped)
{
    static const char *const names[] = {"HVD_RANK",
                                        "HVD_SIZE",
                                        "HVD_LOCAL_RANK",
                                        "HVD_LOCAL_SIZE",
                                        "HVD_CROSS_RANK",
                                        "HVD_CROSS_SIZE",
                                        "HVD_HOSTNAME",
                                        "HVD_JOB_ID",
                                        "HVD_RENDEZVOUS",
                                        "HVD_GPU",
                                        "HVD_ELASTIC",
                                        "HOROVOD_RANK",
                                        "HOROVOD_SIZE",
                                        "HOROVOD_LOCAL_RANK",
                                        "HOROVOD_LOCAL_SIZE",
                                        "HOROVOD_CROSS_RANK",
                                        "HOROVOD_CROSS_SIZE",
                                        "HOROVOD_HOSTNAME",
                                        "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                                        "HOROVOD_GLOO_RENDEZVOUS_PORT",
                                        "HOROVOD_GLOO_IFACE",
                                        "HOROVOD_ELASTIC",
                                        "_HOROVOD_SECRET_KEY",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "NODE_RANK",
                                        "GROUP_RANK",
                                        "GROUP_WORLD_SIZE",
                                        "ROLE_RANK",
                                        "ROLE_WORLD_SIZE",
                                        "ROLE_NAME",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMI_RANK",
                                        "PMI_FD",
                                        "HYDRA_HOST_FILE",
                                        "PMIX_RANK",
                                        "PMIX_NAMESPACE",
                                        "OMPI_MCA_ess",
                                        "OMPI_MCA_ess_base_jobid",
                                        "OMPI_MCA_orte_launch",
                                        "OMPI_MCA_pmix",
                                        "OMPI_MCA_schizo",
                                        "SLURM_PROCID",
                                        "BASH_FUNC_module%%",
                                        "OLDPWD"};
    enum { COUNT = sizeof(names) / sizeof(names[0]) };
    char *inherited[COUNT + 1] = {NULL};

    for (int i = 0; i < COUNT; i++)
        inherited[i] = hb_xasprintf("%s=5", names[i]);
    common(inherited, 0);
    ck_assert_uint_eq(env.count, 1);
    ck_assert_str_eq(env.items[0], "PYTHONUNBUFFERED=1");
    for (int i = 0; i < COUNT; i++)
        hb_free(inherited[i]);
}
END_TEST

/* Names that only resemble those are passed on. */
START_TEST(similar_names_pass)
{
    char *inherited[] = {"HVD_RANKS=1",
                         "XRANK=1",
                         "RANKS=1",
                         "OLDPWD2=1",
                         "HOROVOD_=1",
                         "HVD_=1",
                         "PMI=1",
                         "SIZE=1",
                         "HOSTNAME=h",
                         "JOB_ID=3",
                         "PMIX_MCA_gds=hash",
                         "OMPI_MCA_pmix_base_x=1",
                         "OMPI_MCA_btl=self",
                         NULL};

    common(inherited, 0);
    ck_assert_uint_eq(env.count, 14);
}
END_TEST

START_TEST(rubbish_is_skipped)
{
    char *inherited[] = {"", "=x", "noequals", "A=1", NULL};

    common(inherited, 0);
    ck_assert_uint_eq(env.count, 2);
    common(NULL, 0);
    ck_assert_uint_eq(env.count, 1);
}
END_TEST

START_TEST(no_env_keeps_the_basics)
{
    char *inherited[] = {
        "PATH=/bin",     "HOME=/h",  "USER=u",       "LOGNAME=u",
        "SHELL=/bin/sh", "LANG=C",   "LC_ALL=C",     "TERM=xterm",
        "TMPDIR=/t",     "SECRET=1", "LD_PRELOAD=x", "HOROVOD_CYCLE_TIME=5",
        "PATHS=1",       NULL};

    hb_strv_add(&set_env, "SET=1");
    common(inherited, 1);
    ck_assert_uint_eq(env.count, 11);
    is("TMPDIR", "/t");
    is("LC_ALL", "C");
    is("SECRET", NULL);
    is("LD_PRELOAD", NULL);
    is("HOROVOD_CYCLE_TIME", NULL);
    is("PATHS", NULL);
    is("SET", "1");
}
END_TEST

START_TEST(flags_beat_the_environment_and_x_beats_flags)
{
    char *inherited[] = {"HVD_CYCLE_TIME=1",
                         "HOROVOD_CYCLE_TIME=1",
                         "HVD_CACHE_CAPACITY=1",
                         "PYTHONUNBUFFERED=0",
                         "A=1",
                         NULL};

    hb_strv_add(&knobs, "HVD_CYCLE_TIME=2");
    hb_strv_add(&knobs, "HOROVOD_CYCLE_TIME=2");
    common(inherited, 0);
    is("HVD_CYCLE_TIME", "2");
    is("HOROVOD_CYCLE_TIME", "2");
    is("HVD_CACHE_CAPACITY", "1");
    is("PYTHONUNBUFFERED", "1");
    hb_strv_add(&set_env, "A=2");
    hb_strv_add(&set_env, "A=3");
    hb_strv_add(&set_env, "PYTHONUNBUFFERED=");
    common(inherited, 0);
    is("A", "3");
    is("PYTHONUNBUFFERED", "");
}
END_TEST

/* -x of HVD_X or HOROVOD_X removes an older value of the other name, as libhvd
 * reads HVD_X first.  If both are given with -x, both are kept. */
START_TEST(x_replaces_both_spellings)
{
    char *inherited[] = {"HVD_CYCLE_TIME=1", "HOROVOD_CACHE_CAPACITY=1", NULL};

    hb_strv_add(&knobs, "HVD_TIMELINE=a");
    hb_strv_add(&knobs, "HOROVOD_TIMELINE=a");
    hb_strv_add(&set_env, "HOROVOD_CYCLE_TIME=3");
    hb_strv_add(&set_env, "HVD_CACHE_CAPACITY=3");
    hb_strv_add(&set_env, "HOROVOD_TIMELINE=b");
    hb_strv_add(&set_env, "HVD_X=1");
    hb_strv_add(&set_env, "HOROVOD_X=2");
    common(inherited, 0);
    is("HVD_CYCLE_TIME", NULL);
    is("HOROVOD_CYCLE_TIME", "3");
    is("HVD_CACHE_CAPACITY", "3");
    is("HOROVOD_CACHE_CAPACITY", NULL);
    is("HVD_TIMELINE", NULL);
    is("HOROVOD_TIMELINE", "b");
    is("HVD_X", "1");
    is("HOROVOD_X", "2");
}
END_TEST

START_TEST(x_cannot_set_a_rank)
{
    hb_strv_add(&set_env, "HVD_RANK=9");
    hb_strv_add(&set_env, "RANK=9");
    hb_strv_add(&set_env, "MASTER_PORT=9");
    hb_strv_add(&set_env, "PMI_RANK=9");
    common(NULL, 0);
    is("HVD_RANK", NULL);
    is("RANK", NULL);
    is("MASTER_PORT", "9");
    is("PMI_RANK", "9");
}
END_TEST

START_TEST(computed_names)
{
    ck_assert(worker_env_is_computed("HVD_RANK"));
    ck_assert(worker_env_is_computed("HVD_RANK=3"));
    ck_assert(worker_env_is_computed("HOROVOD_LOCAL_SIZE"));
    ck_assert(worker_env_is_computed("HVD_RENDEZVOUS"));
    ck_assert(worker_env_is_computed("LOCAL_WORLD_SIZE"));
    ck_assert(!worker_env_is_computed("MASTER_ADDR"));
    ck_assert(!worker_env_is_computed("HVD_CYCLE_TIME"));
    ck_assert(!worker_env_is_computed("SIZE"));
    ck_assert(!worker_env_is_computed(""));
}
END_TEST

/* ---- Per rank ---- */

static struct hostlist hosts;
static struct plan plan;

static void make_plan(const char *list, int num_proc)
{
    ck_assert_msg(!hostlist_parse(list, &hosts, &err), "%s", err.text);
    ck_assert_int_eq(plan_make(&hosts,
                               &(struct plan_options){.num_proc = num_proc},
                               &plan, &err),
                     0);
}

static void rank_env(int rank)
{
    struct hb_strv shared = HB_STRV_INIT;

    hb_strv_add_all(&shared, set_env.items ? set_env.items : (char *[]){NULL});
    hb_strv_free(&env);
    ck_assert_int_eq(
        worker_env_rank(&plan, rank, "0123abcd", &shared, &env, &err), 0);
    hb_strv_free(&shared);
}

static void plan_teardown(void)
{
    teardown();
    plan_free(&plan);
    hostlist_free(&hosts);
}

START_TEST(one_host)
{
    make_plan("localhost:4", 2);
    rank_env(1);
    is("HVD_RANK", "1");
    is("HVD_SIZE", "2");
    is("HVD_LOCAL_RANK", "1");
    is("HVD_LOCAL_SIZE", "2");
    is("HVD_CROSS_RANK", "0");
    is("HVD_CROSS_SIZE", "1");
    is("HVD_HOSTNAME", "localhost");
    is("HVD_JOB_ID", "0123abcd");
    is("HOROVOD_RANK", "1");
    is("HOROVOD_SIZE", "2");
    is("HOROVOD_LOCAL_RANK", "1");
    is("HOROVOD_LOCAL_SIZE", "2");
    is("HOROVOD_CROSS_RANK", "0");
    is("HOROVOD_CROSS_SIZE", "1");
    is("HOROVOD_HOSTNAME", "localhost");
    is("RANK", "1");
    is("WORLD_SIZE", "2");
    is("LOCAL_RANK", "1");
    is("LOCAL_WORLD_SIZE", "2");
    is("NODE_RANK", "0");
    is("GROUP_RANK", "0");
    is("GROUP_WORLD_SIZE", "1");
    is("ROLE_RANK", "1");
    is("ROLE_WORLD_SIZE", "2");
    is("ROLE_NAME", "default");
    is("OMP_NUM_THREADS", "1");
    is("MASTER_ADDR", "127.0.0.1");
    is("MASTER_PORT", NULL);
    is("HOROVOD_CONTROLLER", NULL);
    is("HOROVOD_GLOO_IFACE", "lo");
    hb_strv_add(&set_env, "HVD_GLOO_IFACE=eth0");
    rank_env(1);
    is("HOROVOD_GLOO_IFACE", NULL);
}
END_TEST

START_TEST(unequal_hosts)
{
    make_plan("a:1,b:2", 3);
    rank_env(2);
    is("HVD_RANK", "2");
    is("HOROVOD_SIZE", "3");
    is("HVD_LOCAL_RANK", "1");
    is("HVD_LOCAL_SIZE", "2");
    is("HVD_CROSS_RANK", "0");
    is("HVD_CROSS_SIZE", "1");
    is("HVD_HOSTNAME", "b");
    is("NODE_RANK", "1");
    is("GROUP_WORLD_SIZE", "2");
    is("OMP_NUM_THREADS", "1");
    is("MASTER_ADDR", "a");
    is("HOROVOD_GLOO_IFACE", NULL);
    hb_strv_free(&env);
    rank_env(0); /* alone on its host */
    is("OMP_NUM_THREADS", NULL);
}
END_TEST

START_TEST(the_users_threads_stay)
{
    hb_strv_add(&set_env, "OMP_NUM_THREADS=2");
    make_plan("localhost:2", 2);
    rank_env(0);
    is("OMP_NUM_THREADS", NULL);
}
END_TEST

START_TEST(the_users_master_addr_stays)
{
    hb_strv_add(&set_env, "MASTER_ADDR=10.0.0.1");
    make_plan("localhost:2", 2);
    rank_env(0);
    is("MASTER_ADDR", NULL);
}
END_TEST

/* Whichever allocation fails, the call reports it. */
START_TEST(out_of_memory)
{
    char *inherited[] = {"A=1", "B=2", "C=3", NULL};
    const struct worker_env_config config = {
        .inherited = inherited, .knobs = &knobs, .set_env = &set_env};
    int failures = 0;

    hb_strv_add(&knobs, "HVD_CYCLE_TIME=1");
    hb_strv_add(&set_env, "HOROVOD_X=1");
    for (long n = 0;; n++) {
        int rc;

        hb_strv_free(&env);
        hb_error_clear(&err);
        hb_alloc_fail_after(n);
        rc = worker_env_common(&config, &env, &err);
        if (!hb_alloc_fail_after(-1))
            break;
        ck_assert_int_eq(rc, -HVD_ENOMEM);
        ck_assert_int_eq(err.status, -HVD_ENOMEM);
        failures++;
    }
    ck_assert_int_gt(failures, 5);
    is("A", "1");
}
END_TEST

static void with_compat(char *const *inherited, int force)
{
    const struct worker_env_config config = {
        .inherited = inherited,
        .set_env = &set_env,
        .compat_dir = "/opt/c",
        .compat_force = force,
    };

    hb_strv_free(&env);
    ck_assert_int_eq(worker_env_common(&config, &env, &err), 0);
}

/* The folder for --horovod comes after the user's folders, so that a Horovod
 * in one of these is found first, or with =force before them. */
START_TEST(compat_folder_is_in_pythonpath)
{
    char *none[] = {"A=1", "HVD_COMPAT_FORCE=1", NULL};
    char *path[] = {"PYTHONPATH=/a:/opt/cc", NULL};
    char *nested[] = {"PYTHONPATH=/opt/c:/a", NULL};

    with_compat(none, 0);
    is("PYTHONPATH", "/opt/c");
    is("HVD_COMPAT", "/opt/c");
    is("HVD_COMPAT_FORCE", NULL);
    with_compat(path, 0);
    is("PYTHONPATH", "/a:/opt/cc:/opt/c");
    with_compat(path, 1);
    is("PYTHONPATH", "/opt/c:/a:/opt/cc");
    is("HVD_COMPAT_FORCE", "1");
    with_compat(nested, 0);
    is("PYTHONPATH", "/opt/c:/a");
    hb_must(hb_strv_add(&set_env, "PYTHONPATH=/user"));
    with_compat(path, 0);
    is("PYTHONPATH", "/user:/opt/c");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("worker_env");
    TCase *t = tcase_create("common"), *r = tcase_create("rank");

    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, inherited_passes);
    tcase_add_test(t, other_hosts_do_not_get_what_is_bound_to_this_one);
    tcase_add_test(t, bytes_are_kept);
    tcase_add_test(t, stale_variables_are_dropped);
    tcase_add_test(t, similar_names_pass);
    tcase_add_test(t, rubbish_is_skipped);
    tcase_add_test(t, no_env_keeps_the_basics);
    tcase_add_test(t, flags_beat_the_environment_and_x_beats_flags);
    tcase_add_test(t, x_replaces_both_spellings);
    tcase_add_test(t, x_cannot_set_a_rank);
    tcase_add_test(t, computed_names);
    tcase_add_test(t, out_of_memory);
    tcase_add_test(t, compat_folder_is_in_pythonpath);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(r, NULL, plan_teardown);
    tcase_add_test(r, one_host);
    tcase_add_test(r, unequal_hosts);
    tcase_add_test(r, the_users_master_addr_stays);
    tcase_add_test(r, the_users_threads_stay);
    suite_add_tcase(s, r);
    return unit_run(s);
}
