/* SPDX-License-Identifier: Apache-2.0 */
/* See job_util.h. */
#include "tests/unit/job_util.h"

#include "lib/remote/remote.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/fake_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char self[4096];
static char ssh_dir[32]; /* "": none */

uv_loop_t loop;
static struct host_entry entries[JOB_HOSTS] = {{.name = (char *)"a"},
                                               {.name = (char *)"b"},
                                               {.name = (char *)"c"},
                                               {.name = (char *)"d"}};
static int ranks_of[JOB_RANKS];
struct plan_host hosts[JOB_HOSTS];
struct plan_rank ranks[JOB_RANKS];
struct plan plan;
static struct hb_strv rank_env[JOB_RANKS];
static struct hb_log hush;
struct job_config config;
struct job *job;
int done, exit_code;
int out_fd[2], err_fd[2];
struct hb_buf out, err;

static void drop(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    if (level >= HB_LOG_WARNING)
        hb_buf_printf(&err, "log: %s\n", line);
}

static void on_done(void *arg, int code)
{
    (void)arg;
    ck_assert_int_eq(done, 0);
    done = 1;
    exit_code = code;
}

static void place(int rank, int host, int local)
{
    ranks[rank] = (struct plan_rank){.rank = rank,
                                     .local_rank = local,
                                     .local_size = 2,
                                     .cross_size = 1,
                                     .host = host,
                                     .is_bound = 1};
    ranks_of[2 * host + local] = rank;
}

static void place_all(int n, int by_node)
{
    for (int rank = 0; rank < 2 * n; rank++)
        if (by_node)
            place(rank, rank % n, rank / n);
        else
            place(rank, rank / 2, rank % 2);
    for (int i = 0; i < n; i++)
        hosts[i] = (struct plan_host){&entries[i], i, &ranks_of[2 * i], 2};
    plan = (struct plan){.ranks = ranks,
                         .size = 2 * n,
                         .hosts = hosts,
                         .host_count = n,
                         .np = 2 * n,
                         .host_cap = n};
}

void use_hosts(int n)
{
    place_all(n, 0);
}

void map_by_node(int n)
{
    place_all(n, 1);
}

static unsigned char elsewhere[JOB_HOSTS];
static struct remote_options options;
static struct remote *remote;

static void remove_ssh(void)
{
    char command[64];

    snprintf(command, sizeof(command), "rm -r %s", ssh_dir);
    if (ssh_dir[0])
        ck_assert_int_eq(system(command), 0);
    ssh_dir[0] = '\0';
}

static void use_remote(void)
{
    struct hb_error e = HB_ERROR_INIT;

    options.remote_agent = self;
    options.start_timeout_ms = 60000;
    ck_assert_int_eq(remote_new(&loop, &hush, &options, &remote, &e), 0);
    config.remote = remote;
    config.host_is_local = elsewhere;
}

void use_ssh(const char *script)
{
    char path[64], search[4200];
    FILE *f;

    strcpy(ssh_dir, "/tmp/hvd-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(ssh_dir));
    snprintf(path, sizeof(path), "%s/ssh", ssh_dir);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f,
            "#!/bin/sh\n"
            "dir=%s\n"
            "if [ \"$1\" = -G ]; then\n"
            "  for host; do :; done\n"
            "  printf 'hostname %%s\\nport 22\\nuser me\\n' \"$host\"\n"
            "  exit\n"
            "fi\n"
            "while [ \"$1\" != -- ]; do shift; done\n"
            "host=$2\n"
            "%s\n",
            ssh_dir, script);
    ck_assert_int_eq(fchmod(fileno(f), 0700), 0);
    ck_assert_int_eq(fclose(f), 0);
    snprintf(search, sizeof(search), "%s:%s", ssh_dir, getenv("PATH"));
    setenv("PATH", search, 1);
    options = (struct remote_options){.launcher = REMOTE_OPENSSH};
    use_remote();
}

void use_rsh(void)
{
    options = (struct remote_options){
        .launcher = REMOTE_RSH,
        .rsh = "env FAKE_HOST={host}",
    };
    use_remote();
}

void script_of(const char *name, const char *script)
{
    char variable[64];

    snprintf(variable, sizeof(variable), "FAKE_AGENT_%s", name);
    setenv(variable, script, 1);
}

static char barrier[32]; /* "": none */

void make_barrier(void)
{
    int fd;

    strcpy(barrier, "/tmp/hvd-test-XXXXXX");
    fd = mkstemp(barrier);
    ck_assert_int_ge(fd, 0);
    close(fd);
    setenv("FAKE_BARRIER", barrier, 1);
}

void pass_barrier(void)
{
    int fd = open(barrier, O_WRONLY | O_APPEND | O_CLOEXEC);

    ck_assert_int_eq(write(fd, "", 1), 1);
    close(fd);
}

static void setup(void)
{
    char *argv[] = {(char *)"true", NULL};

    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    for (int i = 0; i < 2; i++) {
        int *fds = i ? err_fd : out_fd;
        ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
        ck_assert_int_eq(dup2(fds[1], 1 + i), 1 + i);
        fcntl(fds[0], F_SETFL, O_NONBLOCK);
    }
    hush =
        (struct hb_log){.program = "test", .level = HB_LOG_TRACE, .sink = drop};
    use_hosts(1);
    config = (struct job_config){
        .loop = &loop,
        .log = &hush,
        .plan = &plan,
        .agent_path = self,
        .job_id = "00112233445566778899aabbccddeeff",
        .rank_env = rank_env,
        .cwd = "/",
        .spec.gpus_per_rank = 1,
        .spec.grace_ms = 60000,
        .start_timeout_ms = 60000,
        .stdin_rank = JOB_STDIN_NONE,
        .tag = 1,
    };
    hb_strv_add_all(&config.argv, argv);
}

static void teardown(void)
{
    hb_strv_free(&config.argv);
    job_free(job);
    job = NULL;
    remote_free(remote);
    remote = NULL;
    remove_ssh();
    if (barrier[0])
        unlink(barrier);
    hb_buf_free(&out);
    hb_buf_free(&err);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void read_all(int fd, struct hb_buf *into)
{
    char chunk[4096];
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        hb_buf_append(into, chunk, (size_t)n);
}

void start(const char *script)
{
    struct hb_error e = HB_ERROR_INIT;

    setenv("FAKE_AGENT", script, 1);
    ck_assert_msg(job_start(&config, on_done, NULL, &job, &e) == 0, "%s",
                  e.text);
    ck_assert_int_eq(done, 0);
}

/* Runs the loop to the end; all agents must have been waited for. */
static void run_to_the_end(int code)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(done, 1);
    read_all(out_fd[0], &out);
    read_all(err_fd[0], &err);
    ck_assert_msg(exit_code == code, "exit code %d: %s", exit_code,
                  hb_buf_data(&err));
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

void finish(int code, const char *want_out, const char *want_err)
{
    run_to_the_end(code);
    ck_assert_str_eq(hb_buf_data(&err), want_err);
    ck_assert_str_eq(hb_buf_data(&out), want_out);
}

void finish_saying(int code, const char *want_err_part)
{
    run_to_the_end(code);
    ck_assert_msg(strstr(hb_buf_data(&err), want_err_part) != NULL, "%s",
                  hb_buf_data(&err));
}

void wait_for_output(const char *text)
{
    while (!strstr(hb_buf_data(&out), text)) {
        uv_run(&loop, UV_RUN_ONCE);
        read_all(out_fd[0], &out);
    }
}

void wait_for_message(const char *text)
{
    while (!strstr(hb_buf_data(&err), text)) {
        uv_run(&loop, UV_RUN_ONCE);
        read_all(err_fd[0], &err);
    }
}

void read_messages(void)
{
    read_all(err_fd[0], &err);
}

void drain_output(void)
{
    while (!done) {
        read_all(out_fd[0], &out);
        uv_run(&loop, UV_RUN_ONCE);
    }
}

static int run_as_host(const char *name)
{
    char variable[64];

    snprintf(variable, sizeof(variable), "FAKE_AGENT_%s", name);
    return fake_agent_run(getenv(variable));
}

int job_util_main(const char *name, void (*add_tests)(TCase *tc), int argc,
                  char *argv[])
{
    Suite *suite;
    TCase *tc;

    if (getenv("FAKE_HOST"))
        return run_as_host(getenv("FAKE_HOST"));
    if (argc > 0 && strcmp(argv[0], "hvd-agent") == 0)
        return fake_agent_run(getenv("FAKE_AGENT"));
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return EXIT_FAILURE;
    suite = suite_create(name);
    tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_unchecked_fixture(tc, fixtures_setup, fixtures_teardown);
    tcase_add_checked_fixture(tc, setup, teardown);
    add_tests(tc);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
