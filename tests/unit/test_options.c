/* SPDX-License-Identifier: Apache-2.0 */
/* hvdrun's options: the meaning of every flag, and every way to get one
 * wrong. */
#include "cmd/hvdrun/options/options_foreign.h"
#include "cmd/hvdrun/options/options_table.h"
#include "lib/base/alloc.h"
#include "lib/job/job.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct options o;
static struct hb_error err;

static void setup(void)
{
    options_init(&o);
    hb_error_clear(&err);
    unsetenv("HVD_START_TIMEOUT");
    unsetenv("HOROVOD_START_TIMEOUT");
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

/* ---- Every tunable flag of horovodrun ---- */

static const struct {
    const char *flag, *name, *value;
} tunables[] = {
    {"--fusion-threshold-mb 10", "FUSION_THRESHOLD", "10485760"},
    {"--fusion-threshold-mb 0", "FUSION_THRESHOLD", "0"},
    {"--cycle-time-ms 20", "CYCLE_TIME", "20"},
    {"--cycle-time-ms=0.5", "CYCLE_TIME", "0.5"},
    {"--cache-capacity 512", "CACHE_CAPACITY", "512"},
    {"--hierarchical-allreduce", "HIERARCHICAL_ALLREDUCE", "1"},
    {"--no-hierarchical-allreduce", "HIERARCHICAL_ALLREDUCE", "0"},
    {"--hierarchical-allgather", "HIERARCHICAL_ALLGATHER", "1"},
    {"--no-hierarchical-allgather", "HIERARCHICAL_ALLGATHER", "0"},
    {"--torus-allreduce", "TORUS_ALLREDUCE", "1"},
    {"--no-torus-allreduce", "TORUS_ALLREDUCE", "0"},
    {"--autotune", "AUTOTUNE", "1"},
    {"--no-autotune", "AUTOTUNE", "0"},
    {"--autotune-log-file /tmp/log.csv", "AUTOTUNE_LOG", "/tmp/log.csv"},
    {"--autotune-warmup-samples 3", "AUTOTUNE_WARMUP_SAMPLES", "3"},
    {"--autotune-steps-per-sample 10", "AUTOTUNE_STEPS_PER_SAMPLE", "10"},
    {"--autotune-bayes-opt-max-samples 20", "AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
     "20"},
    {"--autotune-gaussian-process-noise 0.8", "AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
     "0.8"},
    {"--timeline-filename t.json", "TIMELINE", "t.json"},
    {"--timeline t.json", "TIMELINE", "t.json"},
    {"--stats", "STATS", "1"},
    {"--timeline-filename DYNAMIC", "TIMELINE", "DYNAMIC"},
    {"--timeline-mark-cycles", "TIMELINE_MARK_CYCLES", "1"},
    {"--no-timeline-mark-cycles", "TIMELINE_MARK_CYCLES", "0"},
    {"--no-stall-check", "STALL_CHECK_DISABLE", "1"},
    {"--stall-check", "STALL_CHECK_DISABLE", "0"},
    {"--stall-check-warning-time-seconds 60", "STALL_CHECK_TIME_SECONDS", "60"},
    {"--stall-check-shutdown-time-seconds 120", "STALL_SHUTDOWN_TIME_SECONDS",
     "120"},
    {"--mpi-threads-disable", "MPI_THREADS_DISABLE", "1"},
    {"--no-mpi-threads-disable", "MPI_THREADS_DISABLE", "0"},
    {"--num-nccl-streams 2", "NUM_NCCL_STREAMS", "2"},
    {"--thread-affinity 1", "THREAD_AFFINITY", "1"},
    {"--thread-affinity 0,2,4", "THREAD_AFFINITY", "0,2,4"},
    {"--gloo-timeout-seconds 30", "GLOO_TIMEOUT_SECONDS", "30"},
    {"--start-timeout 90", "START_TIMEOUT", "90"},
    {"--start-timeout 2m", "START_TIMEOUT", "120"},
    {"--start-timeout=1500ms", "START_TIMEOUT", "1500ms"},
    {"--log-level INFO", "LOG_LEVEL", "INFO"},
    {"--log-level debug", "LOG_LEVEL", "DEBUG"},
    {"--log-with-timestamp", "LOG_HIDE_TIME", "0"},
    {"--log-without-timestamp", "LOG_HIDE_TIME", "1"},
    {"--log-hide-timestamp", "LOG_HIDE_TIME", "1"},
    {"--no-log-hide-timestamp", "LOG_HIDE_TIME", "0"},
};

START_TEST(tunable_flags_become_variables)
{
    char line[128], name[64];

    snprintf(line, sizeof(line), "hvdrun -np 2 %s cmd", tunables[_i].flag);
    ok(line);
    ck_assert_uint_eq(o.knobs.count, 2);
    snprintf(name, sizeof(name), "HVD_%s", tunables[_i].name);
    ck_assert_str_eq(hb_env_get(&o.knobs, name), tunables[_i].value);
    snprintf(name, sizeof(name), "HOROVOD_%s", tunables[_i].name);
    ck_assert_str_eq(hb_env_get(&o.knobs, name), tunables[_i].value);
    ck_assert_uint_eq(o.command.count, 1);
}
END_TEST

START_TEST(tcp_is_a_variable_of_nccl)
{
    ok("hvdrun -np 2 --tcp cmd");
    ck_assert_uint_eq(o.knobs.count, 1);
    ck_assert_str_eq(o.knobs.items[0], "NCCL_IB_DISABLE=1");
}
END_TEST

START_TEST(repeated_flags_last_wins)
{
    ok("hvdrun -np 2 --autotune --cycle-time-ms 3 --no-autotune "
       "--cycle-time-ms 4 -np 3 cmd");
    ck_assert_str_eq(hb_env_get(&o.knobs, "HVD_AUTOTUNE"), "0");
    ck_assert_str_eq(hb_env_get(&o.knobs, "HOROVOD_CYCLE_TIME"), "4");
    ck_assert_int_eq(o.num_proc, 3);
}
END_TEST

/* ---- Fields ---- */

START_TEST(defaults)
{
    ok("hvdrun -np 2 cmd");
    ck_assert_int_eq(o.action, OPTIONS_RUN);
    ck_assert_int_eq(o.num_proc, 2);
    ck_assert_ptr_null(o.hosts);
    ck_assert_ptr_null(o.wdir);
    ck_assert_ptr_null(o.agent_path);
    ck_assert_int_eq(o.tag, 1);
    ck_assert_int_eq(o.timestamp, 0);
    ck_assert_int_eq(o.no_env, 0);
    ck_assert_int_eq(o.stdin_rank, JOB_STDIN_NONE);
    ck_assert_int_eq(o.start_timeout_ms, 30000);
    ck_assert_int_eq(o.timeout_ms, 0);
    ck_assert_int_eq(o.spec.grace_ms, 5000);
    ck_assert_int_eq(o.spec.gpus_per_rank, 1);
    ck_assert_int_eq(o.spec.bind_gpu, 0);
    ck_assert_int_eq(o.spec.share_gpus, 0);
    ck_assert_int_eq(o.spec.bind, CONTROL_BIND_NONE);
    ck_assert_int_eq(o.log_level, HB_LOG_WARNING);
    ck_assert_uint_eq(o.knobs.count + o.set_env.count, 0);
}
END_TEST

START_TEST(fields)
{
    ok("hvdrun --num-proc 4 --hosts a:2,b:2 --output-filename out "
       "-prefix-timestamp --no-tag-output --stdin 3 --start-timeout 1m "
       "--timeout 1.5 --grace 500ms --gpus-per-rank 2 --bind-gpu "
       "--oversubscribe-gpu --bind-to core --no-env --agent /opt/hvd-agent "
       "--verbose cmd");
    ck_assert_int_eq(o.num_proc, 4);
    ck_assert_str_eq(o.hosts, "a:2,b:2");
    ck_assert_str_eq(o.output_filename, "out");
    ck_assert_int_eq(o.timestamp, 1);
    ck_assert_int_eq(o.tag, 0);
    ck_assert_int_eq(o.stdin_rank, 3);
    ck_assert_int_eq(o.start_timeout_ms, 60000);
    ck_assert_int_eq(o.timeout_ms, 1500);
    ck_assert_int_eq(o.spec.grace_ms, 500);
    ck_assert_int_eq(o.spec.gpus_per_rank, 2);
    ck_assert_int_eq(o.spec.bind_gpu, 1);
    ck_assert_int_eq(o.spec.share_gpus, 1);
    ck_assert_int_eq(o.spec.bind, CONTROL_BIND_CORE);
    ck_assert_int_eq(o.no_env, 1);
    ck_assert_str_eq(o.agent_path, "/opt/hvd-agent");
    ck_assert_int_eq(o.log_level, HB_LOG_INFO);
}
END_TEST

START_TEST(stdin_words_and_bind_words)
{
    ok("hvdrun -np 2 --stdin all --bind-to NUMA cmd");
    ck_assert_int_eq(o.stdin_rank, JOB_STDIN_ALL);
    ck_assert_int_eq(o.spec.bind, CONTROL_BIND_NUMA);
    ok("hvdrun -np 2 --stdin 1 --stdin none --bind-to none cmd");
    ck_assert_int_eq(o.stdin_rank, JOB_STDIN_NONE);
}
END_TEST

/* Each name of another launcher's option gets its advice; none is hvdrun's, or
 * an abbreviation of one. */
START_TEST(foreign_options)
{
    const char *name, *program, *advice;
    char line[96], text[256];
    size_t i;

    for (i = 0; (name = foreign_option_name(i)); i++) {
        ck_assert_msg(foreign_option(name, &program, &advice), "%s", name);
        snprintf(line, sizeof(line), "hvdrun -np 2 %s x cmd", name);
        snprintf(text, sizeof(text), "%s is an option of %s: %s", name, program,
                 advice);
        refused(line, text);
    }
    ck_assert_uint_gt(i, 20);
    ck_assert(!foreign_option("--wdir", &program, &advice));
}
END_TEST

/* A command that starts ranks itself gets a warning; others do not. */
START_TEST(foreign_launchers)
{
    static const char *const commands[][2] = {
        {"torchrun --nproc-per-node=2 t.py", "torchrun"},
        {"/opt/bin/accelerate launch t.py", "accelerate"},
        {"python3 -u -m torch.distributed.run t.py", "torch.distributed.run"},
        {"python -m torch.distributed.launch t.py", "torch.distributed.launch"},
        {"mpiexec ./a", "mpiexec"},
    };
    char line[96], text[256];

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        snprintf(line, sizeof(line), "hvdrun -np 2 %s", commands[i][0]);
        ok(line);
        ck_assert_uint_eq(o.warnings.count, 1);
        snprintf(text, sizeof(text),
                 "%s starts ranks itself, and hvdrun starts it once for each "
                 "rank: give hvdrun %s instead",
                 commands[i][1], i < 4 ? "python SCRIPT" : "the program");
        ck_assert_str_eq(o.warnings.items[0], text);
    }
    ok("hvdrun -np 2 accelerate env");
    ck_assert_uint_eq(o.warnings.count, 0);
    ok("hvdrun -np 2 python t.py -m torch.distributed.run");
    ck_assert_uint_eq(o.warnings.count, 0);
    ok("hvdrun -np 2 python -m");
    ck_assert_uint_eq(o.warnings.count, 0);
}
END_TEST

START_TEST(wireup_words)
{
    ok("hvdrun -np 2 cmd");
    ck_assert_int_eq(o.spec.wireup, CONTROL_WIREUP_AUTO);
    ok("hvdrun -np 2 --wireup pmi1 cmd");
    ck_assert_int_eq(o.spec.wireup, CONTROL_WIREUP_PMI1);
    ok("hvdrun -np 2 --wireup pmi1 --wireup none cmd");
    ck_assert_int_eq(o.spec.wireup, CONTROL_WIREUP_NONE);
    ok("hvdrun -np 2 --wireup pmix cmd");
    ck_assert_int_eq(o.spec.wireup, CONTROL_WIREUP_PMIX);
}
END_TEST

START_TEST(log_level_beats_verbose)
{
    ok("hvdrun -np 2 --log-level ERROR --verbose --log-with-timestamp cmd");
    ck_assert_int_eq(o.log_level, HB_LOG_ERROR);
    ck_assert_int_eq(o.log_timestamp, 1);
    ok("hvdrun -np 2 --log-with-timestamp --log-without-timestamp cmd");
    ck_assert_int_eq(o.log_timestamp, 0);
}
END_TEST

START_TEST(wdir_becomes_absolute)
{
    char *cwd = getcwd(NULL, 0);
    char *expected = hb_xasprintf("%s/.", cwd);

    ok("hvdrun -np 2 --wdir . cmd");
    ck_assert_str_eq(o.wdir, expected);
    ok("hvdrun -np 2 --wdir / cmd");
    ck_assert_str_eq(o.wdir, "/");
    hb_free(expected);
    free(cwd);
}
END_TEST

START_TEST(start_timeout_from_the_environment)
{
    setenv("HOROVOD_START_TIMEOUT", "90", 1);
    ok("hvdrun -np 2 cmd");
    ck_assert_int_eq(o.start_timeout_ms, 90000);
    setenv("HVD_START_TIMEOUT", "2m", 1);
    ok("hvdrun -np 2 cmd");
    ck_assert_int_eq(o.start_timeout_ms, 120000);
    ok("hvdrun -np 2 --start-timeout 7 cmd");
    ck_assert_int_eq(o.start_timeout_ms, 7000);
    setenv("HVD_START_TIMEOUT", "soon", 1);
    ck_assert_int_lt(parse("hvdrun -np 2 cmd"), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "HVD_START_TIMEOUT"));
    setenv("HVD_START_TIMEOUT", "0", 1);
    ck_assert_int_lt(parse("hvdrun -np 2 cmd"), 0);
}
END_TEST

/* ---- The shape of the command line ---- */

START_TEST(command_begins_at_first_other_word)
{
    ok("hvdrun -np 2 ./train --num-proc 7 -x A=1");
    ck_assert_int_eq(o.num_proc, 2);
    ck_assert_uint_eq(o.command.count, 5);
    ck_assert_str_eq(o.command.items[0], "./train");
    ck_assert_str_eq(o.command.items[4], "A=1");
}
END_TEST

START_TEST(command_words_are_kept)
{
    char *argv[] = {"hvdrun", "-np",     "2",    "--",   "-odd", "a  b",
                    "$HOME",  "it's \"", "\n\t", "\xff", "",     NULL};

    ck_assert_int_eq(options_parse(&o, 11, argv, &err), 0);
    ck_assert_uint_eq(o.command.count, 7);
    for (size_t i = 0; i < 7; i++)
        ck_assert_str_eq(o.command.items[i], argv[4 + i]);
}
END_TEST

START_TEST(a_lone_dash_is_a_command)
{
    ok("hvdrun -np 2 - a");
    ck_assert_str_eq(o.command.items[0], "-");
}
END_TEST

START_TEST(spellings)
{
    static const char *const same[] = {
        "-np 3", "-np=3", "--num-proc 3", "--num-proc=3", "--num-p 3", "-n 3",
    };
    char line[64];

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        snprintf(line, sizeof(line), "hvdrun %s cmd", same[i]);
        ok(line);
        ck_assert_int_eq(o.num_proc, 3);
    }
    ok("hvdrun -Ha:2 cmd");
    ck_assert_str_eq(o.hosts, "a:2");
    ok("hvdrun -hostfile f cmd");
    ck_assert_str_eq(o.hostfile, "f");
    ok("hvdrun --hostf f cmd");
    ck_assert_str_eq(o.hostfile, "f");
    ok("hvdrun -np 2 -xA=1 cmd");
    ck_assert_str_eq(o.set_env.items[0], "A=1");
    ok("hvdrun -np 2 -prefix cmd");
    ck_assert_int_eq(o.timestamp, 1);
    ok("hvdrun -np 2 --timeline-filename=--odd cmd");
    ck_assert_str_eq(hb_env_get(&o.knobs, "HVD_TIMELINE"), "--odd");
}
END_TEST

START_TEST(actions)
{
    ok("hvdrun --help");
    ck_assert_int_eq(o.action, OPTIONS_HELP);
    ok("hvdrun -h --nonsense");
    ck_assert_int_eq(o.action, OPTIONS_HELP);
    ok("hvdrun -np 2 --help-all");
    ck_assert_int_eq(o.action, OPTIONS_HELP_ALL);
    ok("hvdrun -v");
    ck_assert_int_eq(o.action, OPTIONS_VERSION);
    ok("hvdrun -cb");
    ck_assert_int_eq(o.action, OPTIONS_CHECK_BUILD);
    ok("hvdrun --check-build");
    ck_assert_int_eq(o.action, OPTIONS_CHECK_BUILD);
    ok("hvdrun -np 2 --dry-run cmd");
    ck_assert_int_eq(o.action, OPTIONS_DRY_RUN);
}
END_TEST

/* ---- Variables for the ranks ---- */

START_TEST(env_option)
{
    setenv("TEST_OPTIONS_HERE", "a=b c", 1);
    unsetenv("TEST_OPTIONS_GONE");
    ok("hvdrun -np 2 -x TEST_OPTIONS_HERE -x A=1=2 -x EMPTY= "
       "-x TEST_OPTIONS_GONE -x dotted.name=1 cmd");
    ck_assert_uint_eq(o.set_env.count, 4);
    ck_assert_str_eq(o.set_env.items[0], "TEST_OPTIONS_HERE=a=b c");
    ck_assert_str_eq(o.set_env.items[1], "A=1=2");
    ck_assert_str_eq(o.set_env.items[2], "EMPTY=");
    ck_assert_str_eq(o.set_env.items[3], "dotted.name=1");
    ck_assert_uint_eq(o.warnings.count, 1);
    ck_assert_str_eq(o.warnings.items[0],
                     "-x TEST_OPTIONS_GONE: not set here, so not passed on");
    ok("hvdrun -np 2 -x HVD_RANK=3 cmd");
    ck_assert_uint_eq(o.warnings.count, 1);
    refused("hvdrun -np 2 -x =1 cmd", "-x '=1': must be NAME or NAME=VALUE");
}
END_TEST

/* ---- Wrong use ---- */

#define NP_LIMITS                                                             \
    "; at most 1024 on one host, and libhvd serves up to 512 on one host in " \
    "this version"

static const struct {
    const char *line, *text;
} wrong[] = {
    {"hvdrun -np 0 cmd",
     "-np: 0 is out of range; give a number from 1 to 65536" NP_LIMITS},
    {"hvdrun -np -1 cmd",
     "-np: -1 is out of range; give a number from 1 to 65536" NP_LIMITS},
    {"hvdrun -np 65537 cmd",
     "-np: 65537 is out of range; give a number from 1 to 65536" NP_LIMITS},
    {"hvdrun -np 99999999999999999999 cmd",
     "-np: 99999999999999999999 is out of range; "
     "give a number from 1 to 65536" NP_LIMITS},
    {"hvdrun --autotune-steps-per-sample 0 cmd",
     "--autotune-steps-per-sample: 0 is out of range; "
     "give a number from 1 to 10000"},
    {"hvdrun --stall-check-warning-time-seconds 2147484 cmd",
     "--stall-check-warning-time-seconds: 2147484 is out of range; "
     "give a number from 0 to 2147483"},
    {"hvdrun --num-proc two cmd", "--num-proc: 'two' is not a whole number; "
                                  "give one from 1 to 65536" NP_LIMITS},
    {"hvdrun --num-porc 2 cmd",
     "unknown option --num-porc; did you mean --num-proc?"},
    {"hvdrun -nq 2 cmd", "unknown option -nq; did you mean -np?"},
    {"hvdrun --zzzzzzzzzzz cmd",
     "unknown option --zzzzzzzzzzz; see hvdrun --help"},
    {"hvdrun --nproc_per_node=4 train.py",
     "--nproc_per_node is an option of torchrun: use -np N for the number of "
     "all ranks"},
    {"hvdrun -np 2 --master-port 29500 cmd",
     "--master-port is an option of torchrun: leave it out, or use -x "
     "MASTER_ADDR=... or -x MASTER_PORT=..."},
    {"hvdrun -np 2 -mca btl tcp cmd",
     "-mca is an option of mpirun: use -x OMPI_MCA_NAME=VALUE"},
    {"hvdrun --output-filenam=x --wdri=y cmd",
     "unknown option --wdri; did you mean --wdir?"},
    {"hvdrun --time 3 cmd",
     "--time is ambiguous: it could be --timeout, --timeline-filename, "
     "--timeline-mark-cycles"},
    {"hvdrun -np", "-np needs a value: -np N"},
    {"hvdrun --wdir --verbose cmd", "--wdir needs a value: --wdir DIR"},
    {"hvdrun --verbose=1 cmd", "--verbose takes no value ('1')"},
    {"hvdrun", "no command given; see hvdrun --help"},
    {"hvdrun -np 2", "no command given; see hvdrun --help"},
    {"hvdrun -np 2 --", "no command given; see hvdrun --help"},
    {"hvdrun -np 2 ", "the command is an empty string"},
    {"hvdrun cmd", "how many ranks? give -np N or -H HOST:SLOTS"},
    {"hvdrun -H a:1 --hostfile f cmd",
     "--hostfile: -H and --hostfile exclude each other"},
    {"hvdrun -hostfile f -H a:1 cmd",
     "-H: -H and --hostfile exclude each other"},
    {"hvdrun -np 2 --stdin 2 cmd", "--stdin 2: ranks are 0 to 1"},
    {"hvdrun -np 2 --stdin some cmd",
     "--stdin 'some': must be a rank, all or none"},
    {"hvdrun -np 2 --bind-to socket cmd",
     "--bind-to 'socket': must be one of none core numa"},
    {"hvdrun -np 2 --log-level loud cmd",
     "--log-level 'loud': must be one of "
     "TRACE DEBUG INFO WARNING ERROR FATAL"},
    {"hvdrun -np 2 --start-timeout 0 cmd",
     "--start-timeout '0': must be more than 0"},
    {"hvdrun -np 2 --timeout 3000000 cmd",
     "--timeout '3000000': must be at most 2147483 seconds (24 days)"},
    {"hvdrun -np 2 --grace 86401 cmd",
     "--grace '86401': must be at most 86400 seconds (1 day)"},
    {"hvdrun -np 2 --gpus-per-rank 0 cmd",
     "--gpus-per-rank: 0 is out of range; give a number from 1 to 1024"},
    {"hvdrun -np 2 --cycle-time-ms -1 cmd",
     "--cycle-time-ms: -1 is out of range; give a number from 0 to 100000"},
    {"hvdrun -np 2 --fusion-threshold-mb -1 cmd",
     "--fusion-threshold-mb: -1 is out of range; "
     "give a number from 0 to 1048576"},
    {"hvdrun -np 2 --autotune-gaussian-process-noise 1.5 cmd",
     "--autotune-gaussian-process-noise: 1.5 is out of range; "
     "give a number from 0 to 1"},
    {"hvdrun -np 2 --thread-affinity 1,x cmd",
     "--thread-affinity '1,x': 'x' is not a whole number; "
     "give one from 0 to 65535"},
    {"hvdrun -np 2 --launcher rsh cmd",
     "--launcher rsh: give the command with --rsh 'COMMAND {host}'"},
    {"hvdrun -np 2 --launcher ssh2 --rsh docker cmd",
     "--rsh: it excludes the other launchers"},
    {"hvdrun -np 2 --map-by socket cmd",
     "--map-by 'socket': must be one of slot node"},
    {"hvdrun -np 2 -i ~other/key cmd",
     "-i '~other/key': only ~/ is understood, not ~user"},
    {"hvdrun -np 2 --json cmd",
     "--json is for hvdrun ps, doctor and --check-build"},
    {"hvdrun ps -np 2", "-np is not for hvdrun ps"},
    {"hvdrun ps 12", "'12': nothing can follow the options here"},
    {"hvdrun kill", "kill: which job? give its id (see hvdrun ps) or --all"},
    {"hvdrun -np 2 --output-filename= cmd",
     "--output-filename: the value is empty; it takes DIR"},
    {"hvdrun -np 2 --report a.json --report b.txt cmd",
     "--report 'b.txt': the name must end in .json, .xml (JUnit) or .html"},
    {"hvdrun -np 2 --mpi --report a.json cmd",
     "--report cannot be used with --mpi: mpirun has nothing like it"},
    {"hvdrun -np 2 --http localhost:80 cmd",
     "--http 'localhost:80': it must be PORT, ADDRESS:PORT or [ADDRESS]:PORT, "
     "with a numeric address"},
    {"hvdrun -np 2 --http 65536 cmd",
     "--http '65536': 65536 is out of range; give a number from 0 to 65535"},
    {"hvdrun -np 2 --mpi --http 0 cmd",
     "--http cannot be used with --mpi: mpirun has nothing like it"},
    {"hvdrun -np 2 --env-file /no/such/file cmd",
     "--env-file: /no/such/file: cannot open: No such file or directory"},
};

START_TEST(wrong_lines_say_what_is_allowed)
{
    refused(wrong[_i].line, wrong[_i].text);
}
END_TEST

START_TEST(negative_durations)
{
    ck_assert_int_lt(parse("hvdrun -np 2 --grace -1 cmd"), 0);
    ck_assert_int_eq(strncmp(err.text, "--grace: ", 9), 0);
    ck_assert_int_lt(parse("hvdrun -np 2 --timeout forever cmd"), 0);
    ck_assert_int_eq(strncmp(err.text, "--timeout: ", 11), 0);
}
END_TEST

/* Every number of horovodrun that may not be negative. */
START_TEST(negative_tunables)
{
    static const char *const names[] = {"--fusion-threshold-mb",
                                        "--cycle-time-ms",
                                        "--cache-capacity",
                                        "--autotune-warmup-samples",
                                        "--autotune-steps-per-sample",
                                        "--autotune-bayes-opt-max-samples",
                                        "--stall-check-warning-time-seconds",
                                        "--stall-check-shutdown-time-seconds",
                                        "--num-nccl-streams",
                                        "--thread-affinity",
                                        "--gloo-timeout-seconds"};
    char line[96];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(line, sizeof(line), "hvdrun -np 2 %s -1 cmd", names[i]);
        ck_assert_int_lt(parse(line), 0);
        ck_assert_ptr_nonnull(strstr(err.text, names[i]));
    }
}
END_TEST

/* ---- Options of horovodrun that mean nothing here ---- */

START_TEST(compat_is_accepted_with_a_note)
{
    static const char *const lines[] = {
        "hvdrun -np 2 --gloo cmd",
        "hvdrun -np 2 --disable-cache cmd",
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        ok(lines[i]);
        ck_assert_uint_eq(o.notes.count, 1);
        ck_assert_str_eq(o.command.items[0], "cmd");
    }
    ck_assert_int_lt(parse("hvdrun -np 2 -p port cmd"), 0);
}
END_TEST

/* --verbose reports options without effect, and no others. */
START_TEST(tunables_without_effect_are_told)
{
    ok("hvdrun -np 2 --cycle-time-ms 2 --autotune --timeline-filename t cmd");
    ck_assert_uint_eq(o.notes.count, 1);
    ck_assert_str_eq(o.notes.items[0],
                     "--cycle-time-ms: no effect: there are no cycles: work "
                     "begins when it is issued");
    ok("hvdrun -np 2 --fusion-threshold-mb 9 --thread-affinity 0,1 cmd");
    ck_assert_uint_eq(o.notes.count, 0);
    ok("hvdrun -np 2 --tcp --start-timeout 9 --log-level INFO cmd");
    ck_assert_uint_eq(o.notes.count, 0);
    ok("hvdrun -np 2 --no-stall-check --stall-check "
       "--stall-check-warning-time-seconds 5 "
       "--stall-check-shutdown-time-seconds 9 cmd");
    ck_assert_uint_eq(o.notes.count, 0);
}
END_TEST

START_TEST(reaching_hosts)
{
    char *home = getenv("HOME"), *old = home ? strdup(home) : NULL;

    setenv("HOME", "/home/me", 1);
    ok("hvdrun -np 2 -p 2222 -i ~/key --ssh-user u --ssh-config=~/c "
       "--ssh-known-hosts /k --max-startups 4 --heartbeat 2.5 cmd");
    ck_assert_int_eq(o.ssh_port, 2222);
    ck_assert_str_eq(o.ssh_identity, "/home/me/key");
    ck_assert_str_eq(o.ssh_user, "u");
    ck_assert_str_eq(o.ssh_config, "/home/me/c");
    ck_assert_str_eq(o.ssh_known_hosts, "/k");
    ck_assert_int_eq(o.max_startups, 4);
    ck_assert_int_eq(o.heartbeat_ms, 2500);
    ck_assert_uint_eq(o.notes.count, 0);
    ok("hvdrun -np 2 -p2223 cmd");
    ck_assert_int_eq(o.ssh_port, 2223);
    ck_assert_int_eq(o.launcher, REMOTE_AUTO);
    ok("hvdrun -np 2 --launcher openssh cmd");
    ck_assert_int_eq(o.launcher, REMOTE_OPENSSH);
    ok("hvdrun -np 2 --rsh docker cmd");
    ck_assert_int_eq(o.launcher, REMOTE_RSH);
    ck_assert_str_eq(o.rsh, "docker");
    ck_assert_int_lt(parse("hvdrun -np 2 -p port cmd"), 0);
    if (old)
        setenv("HOME", old, 1);
    free(old);
}
END_TEST

START_TEST(interfaces_add_up)
{
    ok("hvdrun -np 2 --network-interfaces eth0,10.0.0.0/8 "
       "--network-interface ib0 cmd");
    ck_assert_str_eq(o.network_interfaces, "eth0,10.0.0.0/8,ib0");
}
END_TEST

START_TEST(placement)
{
    ok("hvdrun --map-by node --npernode 2 --oversubscribe -H a,b cmd");
    ck_assert_int_eq(o.map, PLAN_MAP_NODE);
    ck_assert_int_eq(o.npernode, 2);
    ck_assert_int_eq(o.oversubscribe, 1);
    ok("hvdrun -np 2 cmd");
    ck_assert_int_eq(o.map, PLAN_MAP_SLOT);
    ck_assert_int_eq(o.oversubscribe, 0);
}
END_TEST

/* A subcommand is the first word only; a program may have its name. */
START_TEST(tools)
{
    ok("hvdrun ps -H a,b --json");
    ck_assert_int_eq(o.action, OPTIONS_PS);
    ck_assert_int_eq(o.json, 1);
    ck_assert_str_eq(o.hosts, "a,b");
    ok("hvdrun kill -p 22 0123456789ab cdef01");
    ck_assert_int_eq(o.action, OPTIONS_KILL);
    ck_assert_uint_eq(o.command.count, 2);
    ok("hvdrun kill --all");
    ck_assert_int_eq(o.all, 1);
    ok("hvdrun clean --dry-run");
    ck_assert_int_eq(o.action, OPTIONS_CLEAN);
    ck_assert_int_eq(o.dry_run, 1);
    ok("hvdrun doctor -H a ./train x");
    ck_assert_int_eq(o.action, OPTIONS_DOCTOR);
    ck_assert_uint_eq(o.command.count, 2);
    ok("hvdrun ps --help");
    ck_assert_int_eq(o.action, OPTIONS_HELP);
    ok("hvdrun -np 2 ps");
    ck_assert_int_eq(o.action, OPTIONS_RUN);
    ck_assert_str_eq(o.command.items[0], "ps");
}
END_TEST

START_TEST(mpi)
{
    ok("hvdrun --mpi -np 2 --mpi-args -q --binding-args --bind-to=core cmd");
    ck_assert_int_eq(o.mpi, 1);
    ck_assert_str_eq(o.mpi_args, "-q");
    ck_assert_str_eq(o.binding_args, "--bind-to=core");
    ok("hvdrun -np 2 cmd");
    ck_assert_int_eq(o.mpi, 0);
    refused("hvdrun -np 2 --mpi --gloo cmd",
            "--gloo: --gloo and --mpi exclude each other");
    refused("hvdrun -np 2 --mpi-args -q cmd", "--mpi-args is for --mpi");
    refused("hvdrun -np 2 --binding-args -q cmd",
            "--binding-args is for --mpi");
    refused("hvdrun --mpi -np 2 --mpi-args", "--mpi-args needs a value: "
                                             "--mpi-args ARGS");
    refused("hvdrun --mpi cmd", "how many ranks? give -np N or -H HOST:SLOTS");
    refused("hvdrun --mpj -np 2 cmd", "unknown option --mpj; did you mean "
                                      "--mpi?");
}
END_TEST

START_TEST(horovod)
{
    ok("hvdrun -np 2 cmd");
    ck_assert_int_eq(o.horovod, HOROVOD_OFF);
    ok("hvdrun --horovod -np 2 cmd");
    ck_assert_int_eq(o.horovod, HOROVOD_AUTO);
    ok("hvdrun --horovod=force -np 2 cmd");
    ck_assert_int_eq(o.horovod, HOROVOD_FORCE);
    ok("hvdrun -np 2 --horovod force");
    ck_assert_int_eq(o.horovod, HOROVOD_AUTO);
    ck_assert_str_eq(o.command.items[0], "force");
    refused("hvdrun --horovod=yes -np 2 cmd",
            "--horovod 'yes': must be one of auto force");
    refused("hvdrun --horovod= -np 2 cmd",
            "--horovod: the value is empty; it takes force");
}
END_TEST

/* Abbreviations mean what they mean to horovodrun, whatever options hvdrun
 * has beside; tools are programs; arguments for mpirun are no error. */
START_TEST(called_horovodrun)
{
    ok("/opt/bin/horovodrun -np 2 cmd");
    ck_assert_int_eq(o.horovodrun, 1);
    ck_assert_int_eq(o.horovod, HOROVOD_AUTO);
    ok("horovodrun --horovod=force -np 2 cmd");
    ck_assert_int_eq(o.horovod, HOROVOD_FORCE);
    refused("hvdrun --bi=x --mpi -np 2 cmd",
            "--bi is ambiguous: it could be --binding-args, --bind-to, "
            "--bind-gpu");
    ok("horovodrun --bi=x --mpi -np 2 cmd");
    ck_assert_str_eq(o.binding_args, "x");
    ok("horovodrun --map-by node -np 2 cmd");
    ck_assert_int_eq(o.map, PLAN_MAP_NODE);
    refused("horovodrun --map node -np 2 cmd",
            "unknown option --map; did you mean --mpi?");
    refused("horovodrun ps", "how many ranks? give -np N or -H HOST:SLOTS");
    ok("horovodrun -np 2 --mpi-args=-q cmd");
    ck_assert_uint_eq(o.warnings.count, 1);
    ck_assert_str_eq(o.warnings.items[0], "--mpi-args: ignored without --mpi");
    ok("hvdrunx -np 2 cmd");
    ck_assert_int_eq(o.horovodrun, 0);
}
END_TEST

START_TEST(json_of_check_build)
{
    ok("hvdrun --check-build --json");
    ck_assert_int_eq(o.action, OPTIONS_CHECK_BUILD);
    ck_assert_int_eq(o.json, 1);
}
END_TEST

START_TEST(what_would_change_the_meaning_is_refused)
{
    refused("hvdrun -np 2 --jsrun cmd",
            "--jsrun is not supported by this version");
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

int main(void)
{
    Suite *s = suite_create("options");
    TCase *t = tcase_create("options");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, tunable_flags_become_variables, 0, COUNT(tunables));
    tcase_add_test(t, tcp_is_a_variable_of_nccl);
    tcase_add_test(t, repeated_flags_last_wins);
    tcase_add_test(t, defaults);
    tcase_add_test(t, fields);
    tcase_add_test(t, stdin_words_and_bind_words);
    tcase_add_test(t, foreign_options);
    tcase_add_test(t, foreign_launchers);
    tcase_add_test(t, wireup_words);
    tcase_add_test(t, log_level_beats_verbose);
    tcase_add_test(t, wdir_becomes_absolute);
    tcase_add_test(t, start_timeout_from_the_environment);
    tcase_add_test(t, command_begins_at_first_other_word);
    tcase_add_test(t, command_words_are_kept);
    tcase_add_test(t, a_lone_dash_is_a_command);
    tcase_add_test(t, spellings);
    tcase_add_test(t, actions);
    tcase_add_test(t, env_option);
    tcase_add_loop_test(t, wrong_lines_say_what_is_allowed, 0, COUNT(wrong));
    tcase_add_test(t, negative_durations);
    tcase_add_test(t, negative_tunables);
    tcase_add_test(t, compat_is_accepted_with_a_note);
    tcase_add_test(t, mpi);
    tcase_add_test(t, horovod);
    tcase_add_test(t, called_horovodrun);
    tcase_add_test(t, json_of_check_build);
    tcase_add_test(t, what_would_change_the_meaning_is_refused);
    tcase_add_test(t, tunables_without_effect_are_told);
    tcase_add_test(t, reaching_hosts);
    tcase_add_test(t, interfaces_add_up);
    tcase_add_test(t, placement);
    tcase_add_test(t, tools);
    suite_add_tcase(s, t);
    return unit_run(s);
}
