/* SPDX-License-Identifier: Apache-2.0 */
/* hvdrun's options of elastic jobs, and of all that need its agents. */
#include "cmd/hvdrun/options/options_table.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct options o;
static struct hb_error err;

static void setup(void)
{
    options_init(&o);
}

static void teardown(void)
{
    options_fini(&o);
}

/* Parses a command line, split at blanks, into fresh options. */
static int parse(const char *line)
{
    struct hb_strv argv = HB_STRV_INIT;
    int rc;

    options_fini(&o);
    options_init(&o);
    hb_error_clear(&err);
    hb_strv_split(&argv, line, " ");
    rc = options_parse(&o, (int)argv.count, argv.items, &err);
    hb_strv_free(&argv);
    return rc;
}

static void ok(const char *line)
{
    ck_assert_msg(parse(line) == 0, "%s: %s", line, err.text);
}

static void refused(const char *line, const char *text)
{
    ck_assert_msg(parse(line) < 0, "%s was accepted", line);
    ck_assert_str_eq(err.text, text);
}

START_TEST(elastic_jobs)
{
    ok("hvdrun -np 4 cmd");
    ck_assert_int_eq(o.spec.elastic, 0);
    ck_assert_int_eq(o.reset_limit, -1);
    ck_assert_int_eq(o.elastic_timeout_ms, 600000);
    ok("hvdrun -np 4 --min-np 2 --max-num-proc 4 --reset-limit 0 "
       "--elastic-timeout 90 cmd");
    ck_assert_int_eq(o.spec.elastic, 1);
    ck_assert_int_eq(o.min_np, 2);
    ck_assert_int_eq(o.max_np, 4);
    ck_assert_int_eq(o.reset_limit, 0);
    ck_assert_int_eq(o.elastic_timeout_ms, 90000);
    ck_assert_int_eq(o.spec.restart, 0);
    ok("hvdrun -np 4 --min-np 2 --restart-failed 3 cmd");
    ck_assert_int_eq(o.restart_failed, 3);
    ck_assert_int_eq(o.spec.restart, 1);
    ok("hvdrun -np 4 --restart-failed 3 cmd");
    ck_assert_int_eq(o.min_np, 0);
    ck_assert_int_eq(o.spec.elastic, 1);
    ck_assert_int_eq(o.spec.restart, 1);
    ok("hvdrun -np 4 --min-np 2 --elastic-unit host cmd");
    ck_assert_int_eq(o.whole_hosts, 1);
    ok("hvdrun -np 4 --min-np 2 --elastic-unit rank cmd");
    ck_assert_int_eq(o.whole_hosts, 0);
    refused("hvdrun -np 4 --elastic-unit node cmd",
            "--elastic-unit 'node': must be one of rank host");
    ok("hvdrun -np 4 --stop-at-commit cmd");
    ck_assert(o.spec.elastic && o.stop_at_commit && !o.preempt_file);
    ok("hvdrun -np 4 --preempt-file F --preempt-script 'S 1' cmd");
    ck_assert(o.spec.elastic && !o.stop_at_commit);
    ck_assert_str_eq(o.preempt_file, "F");
    ok("hvdrun -np 4 --preempt-script S cmd");
    ck_assert_int_eq(o.spec.elastic, 1);
    ck_assert_str_eq(o.preempt_script, "S");
    ok("hvdrun -np 4 --max-np 4 --elastic-timeout 1 cmd");
    ck_assert_int_eq(o.spec.elastic, 0);
    ok("hvdrun -np 4 --min-np 2 --wireup none --timeline DYNAMIC cmd");
    ck_assert_int_eq(o.spec.elastic, 1);
}
END_TEST

START_TEST(jobs_that_grow)
{
    ok("hvdrun -np 4 --max-np 6 cmd");
    ck_assert_int_eq(o.spec.elastic, 1);
    ck_assert_int_eq(o.spec.restart, 1);
    ck_assert(options_grows(&o));
    ck_assert_int_eq(o.cooldown_least_ms, 10000);
    ck_assert_int_eq(o.cooldown_most_ms, 300000);
    ck_assert_int_eq(o.discovery_ms, 1000);
    ok("hvdrun --min-np 2 --host-discovery-script ./d --slots-per-host 4 "
       "--blacklist-cooldown-range 5 60 cmd arg");
    ck_assert_str_eq(o.discovery_script, "./d");
    ck_assert_int_eq(o.slots_per_host, 4);
    ck_assert_int_eq(o.cooldown_least_ms, 5000);
    ck_assert_int_eq(o.cooldown_most_ms, 60000);
    ck_assert_uint_eq(o.command.count, 2);
    ok("hvdrun -np 2 --blacklist-cooldown-range=5,60 --spares 1 cmd arg");
    ck_assert_int_eq(o.cooldown_least_ms, 5000);
    ck_assert_int_eq(o.spares, 1);
    ck_assert_uint_eq(o.command.count, 2);
    refused("hvdrun -np 2 --blacklist-cooldown-range 60 5 cmd",
            "--blacklist-cooldown-range '60,5': must be two numbers of seconds "
            "from 1 to 3600, MIN and MAX");
    refused("hvdrun -np 2 -H a:2 --host-discovery-script ./d cmd",
            "--host-discovery-script: it excludes -H and --hostfile");
    refused("hvdrun --host-discovery-script ./d cmd",
            "--host-discovery-script: give -np, the number of ranks to start "
            "with");
}
END_TEST

START_TEST(what_elastic_jobs_exclude)
{
    refused("hvdrun -np 4 --min-np 0 cmd",
            "--min-np: 0 is out of range; give a number from 1 to 65536");
    refused("hvdrun -np 4 --min-np 2 --restart-failed 1001 cmd",
            "--restart-failed: 1001 is out of range; give a number from 0 to "
            "1000");
    refused("hvdrun -np 4 --reset-limit -1 cmd",
            "--reset-limit: -1 is out of range; give a number from 0 to "
            "2147483647");
    refused("hvdrun -np 4 --elastic-timeout 0 cmd",
            "--elastic-timeout '0': must be more than 0");
    refused("hvdrun -np 4 --min-np 2 --mpi cmd",
            "--min-np cannot be used with --mpi: mpirun has nothing like it");
    refused("hvdrun -np 4 --min-np 2 --wireup pmix cmd",
            "--min-np cannot be used with --wireup: an MPI program cannot go "
            "on without a rank");
    refused("hvdrun -np 4 --wireup pmi1 --min-np 2 cmd",
            "--min-np cannot be used with --wireup: an MPI program cannot go "
            "on without a rank");
    refused("hvdrun -np 4 --stop-at-commit --mpi cmd",
            "--stop-at-commit cannot be used with --mpi: mpirun has nothing "
            "like it");
    refused("hvdrun -np 4 --restart-failed 1 --wireup pmix cmd",
            "--restart-failed cannot be used with --wireup: an MPI program "
            "cannot go on without a rank");
    refused("hvdrun -np 4 --preempt-file F --timeline t.json cmd",
            "--preempt-file cannot be used with --timeline-filename: a rank "
            "that is lost leaves no timeline");
    refused("hvdrun -np 4 --timeline t.json --min-np 2 cmd",
            "--min-np cannot be used with --timeline-filename: a rank that is "
            "lost leaves no timeline");
}
END_TEST

/* --mpi refuses, by name, what only hvdrun's own agents can do. */
START_TEST(mpi_refuses_by_name)
{
    const struct option *p = &options_table[_i];
    char option[64], line[96], text[160], value[16] = "1";

    if (!(p->flags & OPTION_AGENT))
        return;
    if (p->arg == ARG_CHOICE) /* its first word; the others accept 1 */
        sscanf(p->choices, "%15s", value);
    if (p->metavar && strcmp(p->metavar, "FILE") == 0)
        snprintf(value, sizeof(value), "1.json"); /* for --report */
    if (p->flags & OPTION_PAIR)
        snprintf(value, sizeof(value), "1,1");
    snprintf(option, sizeof(option), "%s%s%s", p->names[0],
             p->arg == ARG_NONE ? "" : " ", p->arg == ARG_NONE ? "" : value);
    snprintf(line, sizeof(line), "hvdrun -np 2 %s --mpi cmd", option);
    snprintf(text, sizeof(text),
             "%s cannot be used with --mpi: mpirun has nothing like it",
             p->names[0]);
    refused(line, text);
    snprintf(line, sizeof(line), "hvdrun -np 2 %s cmd", option);
    ok(line);
}
END_TEST

START_TEST(drain)
{
    ok("hvdrun drain -p 22 --within 120 n1 n2,n3");
    ck_assert_int_eq(o.action, OPTIONS_DRAIN);
    ck_assert_int_eq(o.within_ms, 120000);
    ck_assert_str_eq(o.hosts, "n1,n2,n3");
    ok("hvdrun drain --job 0123456789abcdef n1");
    ck_assert_str_eq(o.job, "0123456789abcdef");
    refused("hvdrun drain --job 01234 n1", "--job 01234: give 6 or more digits "
                                           "of the id that hvdrun ps shows");
    refused("hvdrun drain --job 01234g n1", "--job 01234g: give 6 or more "
                                            "digits of the id that hvdrun ps "
                                            "shows");
    refused("hvdrun drain", "drain: which hosts? name them after the options");
    refused("hvdrun drain -H a b",
            "drain: which hosts? name them after the options");
    refused("hvdrun -np 2 --within 1 cmd", "--within is for hvdrun drain");
    refused("hvdrun -np 2 --all cmd", "--all is for hvdrun kill");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("options_elastic");
    TCase *t = tcase_create("options_elastic");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, elastic_jobs);
    tcase_add_test(t, drain);
    tcase_add_test(t, jobs_that_grow);
    tcase_add_test(t, what_elastic_jobs_exclude);
    tcase_add_loop_test(t, mpi_refuses_by_name, 0, (int)options_table_count);
    suite_add_tcase(s, t);
    return unit_run(s);
}
