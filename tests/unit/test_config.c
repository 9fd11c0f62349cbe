/* SPDX-License-Identifier: Apache-2.0 */
/* --config-file: YAML and JSON, precedence, and every kind of mistake. */
#include "cmd/hvdrun/options/config.h"
#include "cmd/hvdrun/options/options.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct settings got;
static struct hb_error err;

static void setup(void)
{
    hb_error_clear(&err);
}

static void teardown(void)
{
    settings_free(&got);
}

static int parse(const char *path, const char *text)
{
    settings_free(&got);
    hb_error_clear(&err);
    return config_parse(path, text, strlen(text), &got, &err);
}

static void ok(const char *path, const char *text)
{
    ck_assert_msg(parse(path, text) == 0, "%s", err.text);
}

static void refused(const char *path, const char *text, const char *message)
{
    ck_assert_int_lt(parse(path, text), 0);
    ck_assert_str_eq(err.text, message);
}

/* Checks that setting i is this option with this value (NULL: a switch). */
static void is(size_t i, const char *name, const char *value)
{
    ck_assert_uint_lt(i, got.count);
    ck_assert_str_eq(got.items[i].option->names[0], name);
    if (value)
        ck_assert_str_eq(got.items[i].value, value);
    else
        ck_assert_ptr_null(got.items[i].value);
}

/* All sections of horovodrun's file; the test checks what each key means. */
static const char whole_yaml[] = "# a comment\n"
                                 "controller: gloo\n"
                                 "params:\n"
                                 "  fusion_threshold_mb: 32\n"
                                 "  cycle_time_ms: 2.5\n"
                                 "  cache_capacity: 2048\n"
                                 "  hierarchical_allreduce: true\n"
                                 "  hierarchical_allgather: no\n"
                                 "  torus_allreduce: off\n"
                                 "autotune:\n"
                                 "  enabled: yes\n"
                                 "  log_file: horovod_autotune_log.txt\n"
                                 "  warmup_samples: 5\n"
                                 "  steps_per_sample: 20\n"
                                 "  bayes_opt_max_samples: 50\n"
                                 "  gaussian_process_noise: 0.9\n"
                                 "timeline:\n"
                                 "  filename: horovod_timeline.json\n"
                                 "  mark_cycles: true\n"
                                 "stall_check:\n"
                                 "  enabled: false\n"
                                 "  warning_time_seconds: 120\n"
                                 "  shutdown_time_seconds: 240\n"
                                 "library_options:\n"
                                 "  mpi_threads_disable: true\n"
                                 "  num_nccl_streams: 2\n"
                                 "  thread_affinity: 1\n"
                                 "  gloo_timeout_seconds: 60\n"
                                 "logging:\n"
                                 "  level: INFO\n"
                                 "  with_timestamp: false\n";

static const struct {
    const char *name, *value;
} whole[] = {
    {"--gloo", NULL},
    {"--fusion-threshold-mb", "32"},
    {"--cycle-time-ms", "2.5"},
    {"--cache-capacity", "2048"},
    {"--hierarchical-allreduce", NULL},
    {"--no-hierarchical-allgather", NULL},
    {"--no-torus-allreduce", NULL},
    {"--autotune", NULL},
    {"--autotune-log-file", "horovod_autotune_log.txt"},
    {"--autotune-warmup-samples", "5"},
    {"--autotune-steps-per-sample", "20"},
    {"--autotune-bayes-opt-max-samples", "50"},
    {"--autotune-gaussian-process-noise", "0.9"},
    {"--timeline-filename", "horovod_timeline.json"},
    {"--timeline-mark-cycles", NULL},
    {"--no-stall-check", NULL},
    {"--stall-check-warning-time-seconds", "120"},
    {"--stall-check-shutdown-time-seconds", "240"},
    {"--mpi-threads-disable", NULL},
    {"--num-nccl-streams", "2"},
    {"--thread-affinity", "1"},
    {"--gloo-timeout-seconds", "60"},
    {"--log-level", "INFO"},
    {"--log-without-timestamp", NULL},
};

START_TEST(horovodruns_sections)
{
    size_t count = sizeof(whole) / sizeof(whole[0]);

    ok("c.yaml", whole_yaml);
    ck_assert_uint_eq(got.count, count);
    for (size_t i = 0; i < count; i++)
        is(i, whole[i].name, whole[i].value);
    ck_assert_str_eq(got.items[1].where,
                     "c.yaml:4: params.fusion_threshold_mb");
}
END_TEST

START_TEST(json_has_the_same_shape)
{
    ok("c.json", "{\n"
                 "  \"controller\": \"gloo\",\n"
                 "  \"params\": {\"fusion_threshold_mb\": 32,\n"
                 "             \"hierarchical_allreduce\": false},\n"
                 "  \"wdir\": \"/data \\\"x\\\" \\u00e9\",\n"
                 "  \"env\": [\"A=1\", \"B=2\"],\n"
                 "  \"cycle-time-ms\": 2.5\n"
                 "}\n");
    ck_assert_uint_eq(got.count, 7);
    is(1, "--fusion-threshold-mb", "32");
    is(2, "--no-hierarchical-allreduce", NULL);
    is(3, "--wdir", "/data \"x\" \xc3\xa9");
    is(4, "--env", "A=1");
    is(5, "--env", "B=2");
    is(6, "--cycle-time-ms", "2.5");
    ck_assert_str_eq(got.items[2].where,
                     "c.json:4: params.hierarchical_allreduce");
    ck_assert_str_eq(got.items[6].where, "c.json:7: cycle-time-ms");
}
END_TEST

START_TEST(json_by_content)
{
    ok("config", " \n{\"num-proc\":\t4}");
    is(0, "--num-proc", "4");
    ck_assert_str_eq(got.items[0].where, "config:2: num-proc");
}
END_TEST

START_TEST(long_names_at_top_level)
{
    ok("c", "num_proc: 4\nhosts: [a:2, 'b:2']\noutput-filename: out\n"
            "verbose: true\ntag_output: false\nno-env: false\n"
            "grace: 500ms\ntimeout: 60\nautotune: true\n"
            "min-np:\nthread_affinity: [0, 1]\n");
    ck_assert_uint_eq(got.count, 9);
    is(0, "--num-proc", "4");
    is(1, "--hosts", "a:2,b:2");
    is(2, "--output-filename", "out");
    is(3, "--verbose", NULL);
    is(4, "--no-tag-output", NULL);
    is(5, "--grace", "500ms");
    is(6, "--timeout", "60");
    is(7, "--autotune", NULL);
    is(8, "--thread-affinity", "0,1");
}
END_TEST

START_TEST(env_as_a_map)
{
    ok("c", "env:\n  A: 1\n  B: 'x: y'\n  C: true\n  D: \"\"\n");
    ck_assert_uint_eq(got.count, 4);
    is(0, "--env", "A=1");
    is(1, "--env", "B=x: y");
    is(2, "--env", "C=true");
    is(3, "--env", "D=");
    ck_assert_str_eq(got.items[1].where, "c:3: env");
}
END_TEST

START_TEST(nothing_means_not_given)
{
    ok("c", "params:\ntimeline:\n  filename:\n  mark_cycles: ~\nwdir: null\n");
    ck_assert_uint_eq(got.count, 0);
    ok("c.json", "{\"wdir\": null, \"params\": null}");
    ck_assert_uint_eq(got.count, 0);
}
END_TEST

/* ---- Mistakes ---- */

static const struct {
    const char *path, *text, *message;
} wrong[] = {
    {"c", "", "c: is empty"},
    {"c.json", "", "c.json: is empty"},
    {"c", "# only a comment\n", "c: is empty"},
    {"c", "- a\n- b\n", "c:1: the file: expected sections, found a list"},
    {"c", "just words\n", "c:1: the file: expected sections, found a string"},
    {"c.json", "[1]", "c.json:1: the file: expected sections, found a list"},
    {"c", "\nparam:\n  cycle_time_ms: 1\n",
     "c:2: unknown section or option 'param'; did you mean 'params'?"},
    {"c", "num-porc: 2\n",
     "c:1: unknown section or option 'num-porc'; did you mean 'num-proc'?"},
    {"c", "qqqqqqqqqqq: 2\n", "c:1: unknown section or option 'qqqqqqqqqqq'"},
    {"c", "config-file: other\n",
     "c:1: unknown section or option 'config-file'"},
    {"c", "params:\n  fusion_treshold_mb: 2\n",
     "c:2: unknown key 'fusion_treshold_mb'; "
     "did you mean 'fusion_threshold_mb'?"},
    {"c.json", "{\n\"params\": {\"cycle_time\": 1}}",
     "c.json:2: unknown key 'cycle_time'; did you mean 'cycle_time_ms'?"},
    {"c", "params: 3\n", "c:1: params: expected a section, found a number"},
    {"c", "params:\n  cycle_time_ms: fast\n",
     "c:2: params.cycle_time_ms: expected a number, found a string"},
    {"c", "params:\n  cache_capacity: '7'\n",
     "c:2: params.cache_capacity: expected a number, found a string"},
    {"c", "params:\n  cache_capacity: [7]\n",
     "c:2: params.cache_capacity: expected a number, found a list"},
    {"c", "autotune:\n  enabled: 1\n",
     "c:2: autotune.enabled: expected true or false, found a number"},
    {"c", "autotune:\n  log_file: {a: b}\n",
     "c:2: autotune.log_file: expected a string, found a section"},
    {"c", "hosts: {a: 2}\n",
     "c:1: hosts: expected a string or a list, found a section"},
    {"c", "hosts: [[a]]\n", "c:1: hosts: expected a string, found a list"},
    {"c", "env:\n  A: [1]\n", "c:2: A: expected a string, found a list"},
    {"c", "wdir: yes\n", "c:1: wdir: expected a string, found true or false"},
    {"c", "grace: [1]\n", "c:1: grace: expected a duration, found a list"},
    {"c", "controller: slurm\n", "c:1: controller: must be gloo or mpi"},
    {"c", "params:\n  cycle_time_ms: 1\nparams:\n  cache_capacity: 1\n",
     "c:3: 'params' is given twice, first on line 1"},
    {"c", "a: &x 1\nb: *x\n", "c:2: aliases (*name) are not supported"},
    {"c", "? [a]\n: 1\n", "c:1: a key must be a plain word"},
    {"c", "wdir: a\n---\nwdir: b\n", "c:2: a second document; one file is one"},
    {"c", "a: [[[[[[[[[[]]]]]]]]]]\n", "c:1: nested too deeply"},
    {"c.json", "{\"a\": [[[[[[[[[[]]]]]]]]]]}", "c.json:1: nested too deeply"},
};

START_TEST(mistakes_are_named_with_their_line)
{
    refused(wrong[_i].path, wrong[_i].text, wrong[_i].message);
}
END_TEST

START_TEST(syntax_errors_have_a_line)
{
    ck_assert_int_lt(parse("c", "wdir: a\n\tgrace: 2\n"), 0);
    ck_assert_int_eq(strncmp(err.text, "c:2: ", 5), 0);
    ck_assert_int_lt(parse("c", "a: 'open\n"), 0);
    ck_assert_int_eq(strncmp(err.text, "c:", 2), 0);
    ck_assert_int_lt(parse("c.json", "{\n\"wdir\": }"), 0);
    ck_assert_int_eq(strncmp(err.text, "c.json:2: ", 10), 0);
    ck_assert_int_lt(parse("c.json", "{\"a\": 1, \"a\": 2}"), 0);
    ck_assert_int_eq(strncmp(err.text, "c.json:1: ", 10), 0);
    ck_assert_int_lt(parse("c.json", "{} x"), 0);
    ck_assert_int_lt(parse("c", "wdir: \xff\xfe\n"), 0);
    ck_assert_int_lt(parse("c", "wdir: \"\\0\"\n"), 0);
    ck_assert_str_eq(err.text, "c:1: a zero byte");
    ck_assert_int_lt(parse("c", "\"\\0\": 1\n"), 0);
}
END_TEST

START_TEST(too_many_keys)
{
    for (int json = 0; json < 2; json++) {
        struct hb_buf text = HB_BUF_INIT;

        hb_buf_puts(&text, json ? "{" : "");
        for (int i = 0; i <= 4096; i++)
            hb_buf_printf(&text, json ? "%s\"k%d\": 1" : "%sk%d: 1\n",
                          json && i ? "," : "", i);
        hb_buf_puts(&text, json ? "}" : "");
        ck_assert_int_lt(parse("c", hb_buf_data(&text)), 0);
        ck_assert_ptr_nonnull(strstr(err.text, "more than 4096 keys"));
        hb_buf_free(&text);
    }
}
END_TEST

/* ---- Through options_parse: real files ---- */

static char directory[] = "/tmp/test_config.XXXXXX";
static char file_path[64];

static void make_directory(void)
{
    setup();
    strcpy(strrchr(directory, '.'), ".XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(file_path, sizeof(file_path), "%s/c.yaml", directory);
}

static void remove_directory(void)
{
    unlink(file_path);
    rmdir(directory);
}

static void write_file(const char *text, size_t len)
{
    FILE *f = fopen(file_path, "w");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, len, f), len);
    fclose(f);
}

/* Parses: hvdrun, two words or NULL, --config-file, the file, two more, cmd. */
static int run(struct options *o, char *before[2], char *after[2])
{
    char *argv[10] = {"hvdrun"};
    int n = 1;

    for (int i = 0; before && i < 2; i++)
        argv[n++] = before[i];
    argv[n++] = "--config-file";
    argv[n++] = file_path;
    for (int i = 0; after && i < 2; i++)
        argv[n++] = after[i];
    argv[n++] = "cmd";
    options_init(o);
    hb_error_clear(&err);
    return options_parse(o, n, argv, &err);
}

static void write_text(const char *text)
{
    write_file(text, strlen(text));
}

START_TEST(flags_win_wherever_they_stand)
{
    char *flag[2] = {"--cycle-time-ms", "9"};
    char *hosts[2] = {"-H", "b:3"};
    struct options o;

    write_text("params:\n  cycle_time_ms: 4\n  cache_capacity: 7\n"
               "hosts: a:2\n");
    ck_assert_int_eq(run(&o, NULL, NULL), 0);
    ck_assert_str_eq(hb_env_get(&o.knobs, "HVD_CYCLE_TIME"), "4");
    ck_assert_str_eq(o.hosts, "a:2");
    options_fini(&o);
    ck_assert_int_eq(run(&o, flag, hosts), 0);
    ck_assert_str_eq(hb_env_get(&o.knobs, "HVD_CYCLE_TIME"), "9");
    ck_assert_str_eq(hb_env_get(&o.knobs, "HOROVOD_CACHE_CAPACITY"), "7");
    ck_assert_str_eq(o.hosts, "b:3");
    options_fini(&o);
    ck_assert_int_eq(run(&o, hosts, flag), 0);
    ck_assert_str_eq(hb_env_get(&o.knobs, "HOROVOD_CYCLE_TIME"), "9");
    options_fini(&o);
}
END_TEST

START_TEST(a_flag_also_beats_its_opposite)
{
    char *flag[2] = {"--no-autotune", "--tag-output"};
    char *hostfile[2] = {"--hostfile", "f"};
    struct options o;

    write_text("autotune:\n  enabled: true\nno-tag-output: true\n"
               "hosts: a:2\n");
    ck_assert_int_eq(run(&o, flag, hostfile), 0);
    ck_assert_str_eq(hb_env_get(&o.knobs, "HVD_AUTOTUNE"), "0");
    ck_assert_int_eq(o.tag, 1);
    ck_assert_ptr_null(o.hosts);
    ck_assert_str_eq(o.hostfile, "f");
    options_fini(&o);
}
END_TEST

START_TEST(the_controller_is_a_choice)
{
    char *mpi[2] = {"--mpi", "--dry-run"}, *gloo[2] = {"--gloo", "--dry-run"};
    struct options o;

    write_text("controller: mpi\nnum-proc: 2\n");
    ck_assert_int_eq(run(&o, NULL, NULL), 0);
    ck_assert_int_eq(o.mpi, 1);
    options_fini(&o);
    ck_assert_int_eq(run(&o, gloo, NULL), 0);
    ck_assert_int_eq(o.mpi, 0);
    options_fini(&o);
    write_text("controller: gloo\nnum-proc: 2\nmpi-args: -q\n");
    ck_assert_int_eq(run(&o, mpi, NULL), 0);
    ck_assert_int_eq(o.mpi, 1);
    ck_assert_str_eq(o.mpi_args, "-q");
    options_fini(&o);
}
END_TEST

START_TEST(variables_add_up)
{
    char *flag[2] = {"-x", "A=flag"};
    struct options o;

    write_text("env:\n  A: file\n  B: file\nnum-proc: 2\n");
    ck_assert_int_eq(run(&o, flag, NULL), 0);
    ck_assert_uint_eq(o.set_env.count, 3);
    ck_assert_str_eq(o.set_env.items[0], "A=file");
    ck_assert_str_eq(o.set_env.items[2], "A=flag");
    options_fini(&o);
}
END_TEST

static void fails_with(const char *before, const char *after)
{
    struct options o;
    char expected[256];

    snprintf(expected, sizeof(expected), "%s%s%s", before, file_path, after);
    ck_assert_int_lt(run(&o, NULL, NULL), 0);
    ck_assert_str_eq(err.text, expected);
    options_fini(&o);
}

START_TEST(values_are_checked_with_their_line)
{
    write_text("num-proc: 2\nparams:\n  cycle_time_ms: -3\n");
    fails_with("", ":3: params.cycle_time_ms: -3 is out of range; "
                   "give a number from 0 to 100000");
    write_text("controller: mpi\nnum-proc: 2\ngrace: 3\n");
    fails_with("", ":3: grace cannot be used with --mpi: mpirun has nothing "
                   "like it");
    write_text("num-proc: 2\nmin-np: 0\n");
    fails_with("", ":2: min-np: 0 is out of range; give a number from 1 to "
                   "65536");
    write_text("num-proc: 2\njsrun: true\n");
    fails_with("", ":2: jsrun is not supported by this version");
    write_text("hosts: a:1\nhostfile: f\n");
    fails_with("", ":2: hostfile: -H and --hostfile exclude each other");
}
END_TEST

START_TEST(files_that_cannot_be_read)
{
    char *big = calloc(1, CONFIG_BYTES_MAX + 1);

    fails_with("--config-file: ", ": cannot open: No such file or directory");
    write_text("");
    fails_with("--config-file: ", ": is empty");
    memset(big, '#', CONFIG_BYTES_MAX + 1);
    write_file(big, CONFIG_BYTES_MAX + 1);
    fails_with("--config-file: ", ": larger than 1024 KiB");
    free(big);
    unlink(file_path);
    snprintf(file_path, sizeof(file_path), "%s", directory);
    fails_with("--config-file: ", ": is a directory");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("config");
    TCase *t = tcase_create("shape"), *f = tcase_create("files");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, horovodruns_sections);
    tcase_add_test(t, json_has_the_same_shape);
    tcase_add_test(t, json_by_content);
    tcase_add_test(t, long_names_at_top_level);
    tcase_add_test(t, env_as_a_map);
    tcase_add_test(t, nothing_means_not_given);
    tcase_add_loop_test(t, mistakes_are_named_with_their_line, 0,
                        (int)(sizeof(wrong) / sizeof(wrong[0])));
    tcase_add_test(t, syntax_errors_have_a_line);
    tcase_add_test(t, too_many_keys);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(f, make_directory, remove_directory);
    tcase_add_test(f, flags_win_wherever_they_stand);
    tcase_add_test(f, a_flag_also_beats_its_opposite);
    tcase_add_test(f, the_controller_is_a_choice);
    tcase_add_test(f, variables_add_up);
    tcase_add_test(f, values_are_checked_with_their_line);
    tcase_add_test(f, files_that_cannot_be_read);
    suite_add_tcase(s, f);
    return unit_run(s);
}
