/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/transport/remote with stand-ins: the shell is a local one, reached
 * through an --rsh template or a script named ssh, and the agent that is
 * sent is this program itself, which plays the part that FAKE_AGENT names.
 */
#include "lib/transport/remote_impl.h"
#include "tests/unit/unit.h"

#include "lib/protocol/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOSTS_MAX = 40 };

static char self[4096], dir[4096], old_path[4096];
static uv_loop_t loop;
static struct hb_log hush;
static struct remote *remote;
static struct remote_options options;

/* What the caller of one transport saw. */
static struct seen {
    struct transport *t;
    struct hb_buf in, errs, stages;
    int reads, ends, closes;
    struct hb_error why;
    const char *close_at; /* stage */
    int keep;             /* does not close at the first bytes */
} seen[HOSTS_MAX];

static void on_read(void *arg, const char *bytes, size_t len)
{
    struct seen *s = arg;

    ck_assert_int_eq(s->ends, 0);
    hb_buf_append(&s->in, bytes, len);
    s->reads++;
    if (!s->keep)
        transport_close(s->t);
}

static void on_stderr(void *arg, const char *bytes, size_t len)
{
    struct seen *s = arg;

    ck_assert_int_eq(s->closes, 0);
    hb_buf_append(&s->errs, bytes, len);
}

static void on_end(void *arg, const struct hb_error *err)
{
    struct seen *s = arg;

    s->ends++;
    if (err)
        s->why = *err;
    transport_close(s->t);
    transport_close(s->t);
}

static void on_close(void *arg)
{
    struct seen *s = arg;

    s->closes++;
}

static void on_stage(void *arg, const char *stage)
{
    struct seen *s = arg;

    ck_assert_int_eq(s->reads, 0);
    hb_buf_printf(&s->stages, "%s\n", stage);
    if (s->close_at && strncmp(stage, s->close_at, strlen(s->close_at)) == 0)
        transport_close(s->t);
}

static void drop(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

/* ---- The private directory ---- */

static void file(const char *name, mode_t mode, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void file(const char *name, mode_t mode, const char *fmt, ...)
{
    char path[8192];
    va_list ap;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    va_start(ap, fmt);
    vfprintf(f, fmt, ap);
    va_end(ap);
    fclose(f);
    ck_assert_int_eq(chmod(path, mode), 0);
}

/* What a shell command prints, its last newline cut off. */
static const char *shell(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

static const char *shell(const char *fmt, ...)
{
    static char out[8192];
    char command[8192];
    va_list ap;
    size_t n;
    FILE *f;

    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    n = fread(out, 1, sizeof(out) - 1, f);
    pclose(f);
    if (n > 0 && out[n - 1] == '\n')
        n--;
    out[n] = '\0';
    return out;
}

/* ---- Fixture ---- */

static void setup(void)
{
    char path[9000];

    snprintf(dir, sizeof(dir), "/tmp/hvd test remote.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("HOME", dir, 1);
    setenv("TMPDIR", dir, 1);
    unsetenv("XDG_CACHE_HOME");
    snprintf(path, sizeof(path), "%s:%s", dir, old_path);
    setenv("PATH", path, 1);
    setenv("FAKE_AGENT", "hello", 1);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    hush = (struct hb_log){.sink = drop, .level = HB_LOG_DEBUG};
    memset(seen, 0, sizeof(seen));
    options = (struct remote_options){
        .launcher = REMOTE_RSH,
        .rsh = "sh -c 'exec /bin/sh'",
        .max_startups = 16,
        .agent_path = self,
        .plugin_dir = "/nonexistent",
        .start_timeout_ms = 60000,
    };
    remote = NULL;
}

static void teardown(void)
{
    remote_free(remote);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < HOSTS_MAX; i++) {
        hb_buf_free(&seen[i].in);
        hb_buf_free(&seen[i].errs);
        hb_buf_free(&seen[i].stages);
    }
    setenv("PATH", old_path, 1);
    shell("rm -rf '%s'", dir);
}

static void open_host(int i, char *name)
{
    struct host_entry entry = {.name = name};
    struct transport_config config = {
        .loop = &loop,
        .log = &hush,
        .host = name,
        .agent_path = self,
        .events = {on_read, on_stderr, on_end, on_close, on_stage, NULL},
        .arg = &seen[i],
        .exit_wait_ms = 20000,
    };
    struct hb_error err = HB_ERROR_INIT;

    if (!remote)
        ck_assert_msg(remote_new(&loop, &hush, &options, &remote, &err) == 0,
                      "%s", err.text);
    ck_assert_int_eq(
        transport_open_remote(remote, &entry, &config, &seen[i].t, &err), 0);
    ck_assert_int_eq(seen[i].ends + seen[i].closes, 0);
}

static void run(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < HOSTS_MAX; i++)
        ck_assert_int_eq(seen[i].closes, seen[i].t != NULL);
}

static void check_ran(int i)
{
    ck_assert_msg(seen[i].ends == 0, "host %d: %s", i, seen[i].why.text);
    ck_assert_uint_ge(hb_buf_len(&seen[i].in), FRAME_HEADER_BYTES);
    ck_assert_int_eq(memcmp(hb_buf_data(&seen[i].in), "hvD1", 4), 0);
}

static void check_failed(int i, int status, const char *text)
{
    ck_assert_int_eq(seen[i].ends, 1);
    ck_assert_int_eq(seen[i].reads, 0);
    ck_assert_msg(strstr(seen[i].why.text, text), "%s", seen[i].why.text);
    ck_assert_msg(seen[i].why.status == -status, "%s: %s",
                  hb_status_name(seen[i].why.status), seen[i].why.text);
}

static void runs(void)
{
    open_host(0, "n1");
    run();
    check_ran(0);
}

static void fails(int status, const char *text)
{
    open_host(0, "n1");
    run();
    check_failed(0, status, text);
}

static int said(int i, const char *stage)
{
    return strstr(hb_buf_data(&seen[i].stages), stage) != NULL;
}

/* For the next start of the same test. */
static void again(void)
{
    remote_free(remote);
    remote = NULL;
    for (int i = 0; i < HOSTS_MAX; i++) {
        hb_buf_free(&seen[i].in);
        hb_buf_free(&seen[i].errs);
        hb_buf_free(&seen[i].stages);
    }
    memset(seen, 0, sizeof(seen));
}

/* ---- Tests ---- */

START_TEST(is_sent_once)
{
    runs();
    ck_assert(said(0, "sending the agent, 100 %"));
    ck_assert_str_eq(shell("cd '%s/.cache/hvd'; ls -A | wc -l", dir), "1");
    ck_assert_str_eq(shell("ls -ld '%s/.cache/hvd' | cut -c1-10", dir),
                     "drwx------");
    again();
    runs();
    ck_assert(!said(0, "sending"));
}
END_TEST

START_TEST(echoes)
{
    setenv("FAKE_AGENT", "cat", 1);
    seen[0].keep = 1;
    open_host(0, "n1");
    ck_assert_int_eq(transport_write(seen[0].t, "early ", 6), 0);
    ck_assert_uint_eq(transport_write_queued(seen[0].t), 6);
    while (!seen[0].reads)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(transport_write(seen[0].t, "late", 4), 0);
    while (hb_buf_len(&seen[0].in) < FRAME_HEADER_BYTES + 10)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_str_eq(hb_buf_data(&seen[0].in) + FRAME_HEADER_BYTES,
                     "early late");
    transport_close(seen[0].t);
    ck_assert_int_eq(transport_write(seen[0].t, "x", 1), -HVD_ECLOSED);
    run();
    ck_assert_int_eq(seen[0].ends, 0);
}
END_TEST

/* A script as the ssh program; `ssh -G` also prints the file config. */
static void fake_ssh(const char *body)
{
    options.launcher = REMOTE_OPENSSH;
    file("config", 0600, "port 22\nuser me\n");
    file("ssh", 0700,
         "#!/bin/sh\n"
         "if [ \"$1\" = -G ]; then\n"
         "  for last; do :; done\n"
         "  echo \"hostname $last\"\n"
         "  exec cat \"$HOME/config\"\n"
         "fi\n"
         "%s\n",
         body);
}

START_TEST(ssh_runs_sh)
{
    fake_ssh("printf '%s|' \"$@\" >\"$HOME/args\"; exec /bin/sh");
    options.ssh_user = "alice";
    options.ssh_port = 2222;
    runs();
    ck_assert_str_eq(shell("cat '%s/args'", dir),
                     "-T|-x|-o|BatchMode=yes|-o|ServerAliveInterval=15|-o|"
                     "ConnectTimeout=15|-l|alice|-p|2222|--|n1|"
                     "exec /bin/sh|");
}
END_TEST

static const char dropping[] =
    "n=$(cat \"$HOME/count\" 2>/dev/null || echo 0)\n"
    "echo $((n + 1)) >\"$HOME/count\"\n"
    "[ $n -ge 3 ] || {\n"
    "  echo 'kex_exchange_identification: read: Connection reset by peer' >&2\n"
    "  exit 255; }\n"
    "exec /bin/sh";

START_TEST(drops_are_tried_again)
{
    fake_ssh(dropping);
    runs();
    ck_assert(said(0, "Connection reset by peer; trying again"));
    ck_assert_str_eq(shell("cat '%s/count'", dir), "4");
}
END_TEST

START_TEST(drops_end_at_the_deadline)
{
    fake_ssh("echo 'Connection closed by 10.0.0.1 port 22' >&2; exit 255");
    options.start_timeout_ms = 10;
    fails(HVD_ETIMEOUT, "Connection closed by 10.0.0.1 port 22 (tried");
}
END_TEST

START_TEST(silence_ends_at_the_deadline)
{
    options.rsh = "sh -c 'exec sleep 1000'";
    options.start_timeout_ms = 10;
    fails(HVD_ETIMEOUT, "no agent in time (connecting)");
}
END_TEST

START_TEST(final_errors_of_ssh)
{
    static const struct {
        const char *says;
        int status;
        const char *text;
    } cases[] = {
        {"alice@n1: Permission denied (publickey,password).", HVD_EPERM,
         "ssh: no key was accepted (alice@n1: Permission denied "
         "(publickey,password).); add one with ssh-copy-id n1"},
        {"Host key verification failed.", HVD_EPERM,
         "ssh: its host key is not known; see and accept it with: ssh n1"},
        {"ssh: Could not resolve hostname n1: Name or service not known",
         HVD_EINVAL, "ssh: Could not resolve hostname n1"},
        {"ssh: connect to host n1 port 22: Connection refused", HVD_ESYSTEM,
         "Connection refused; is sshd running there?"},
        {"something new", HVD_ESYSTEM,
         "its shell ended without an answer (it exited with code 255): "
         "something new"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char body[512];
        snprintf(body, sizeof(body), "echo '%s' >&2; exit 255", cases[i].says);
        fake_ssh(body);
        fails(cases[i].status, cases[i].text);
        again();
    }
}
END_TEST

START_TEST(no_such_program)
{
    options.rsh = "/nonexistent/rsh {host}";
    fails(HVD_ENOENT, "cannot start /nonexistent/rsh: there is no such");
}
END_TEST

START_TEST(names_that_look_like_options)
{
    fake_ssh("exec /bin/sh");
    open_host(0, "-oProxyCommand=true");
    run();
    check_failed(0, HVD_EINVAL, "ssh: the host '-oProxyCommand=true'");
    again();
    options.launcher = REMOTE_RSH;
    open_host(0, "-n1");
    run();
    check_failed(0, HVD_EINVAL, "--rsh: the host '-n1'");
}
END_TEST

START_TEST(bad_template)
{
    struct hb_error err = HB_ERROR_INIT;

    options.rsh = "sh -c 'exec";
    ck_assert_int_eq(remote_new(&loop, &hush, &options, &remote, &err),
                     -HVD_EINVAL);
    ck_assert_ptr_null(remote);
    ck_assert_str_eq(err.text, "--rsh: a ' is not closed");
}
END_TEST

START_TEST(no_agent_to_send)
{
    options.agent_path = "/nonexistent/hvd-agent";
    fails(HVD_ENOENT, "cannot read the agent /nonexistent/hvd-agent");
}
END_TEST

START_TEST(noise_is_skipped)
{
    options.rsh = "sh -c 'printf \"Welcome!\nhvD0\"; echo oops >&2; "
                  "exec /bin/sh'";
    runs();
    ck_assert_uint_eq(hb_buf_len(&seen[0].errs), 0);
}
END_TEST

START_TEST(noise_explains_a_failure)
{
    options.rsh = "sh -c 'echo hello; echo; printf \"not \33[31mavailable\"'";
    fails(HVD_ESYSTEM, "its shell ended without an answer: "
                       "hello; not ?[31mavailable");
    again();
    options.rsh = "sh -c 'echo hello; echo cannot >&2; exit 1'";
    fails(HVD_ESYSTEM, "(it exited with code 1): cannot");
}
END_TEST

START_TEST(endless_noise)
{
    options.rsh = "sh -c 'exec yes'";
    fails(HVD_EPROTO, "printed more than 64 KiB");
}
END_TEST

START_TEST(endless_stderr)
{
    options.rsh = "sh -c 'exec yes >&2'";
    fails(HVD_EPROTO, "printed more than");
}
END_TEST

START_TEST(agent_that_does_not_start)
{
    setenv("FAKE_AGENT", "mute", 1);
    fails(HVD_ESYSTEM, "the agent did not start: the agent cannot do it");
}
END_TEST

START_TEST(installed_agent)
{
    file("my agent's", 0700,
         "#!/bin/sh\nprintf 'hvD1\\1\\1\\0\\0\\0\\0\\0\\0'\n");
    options.remote_agent = "~/my agent's";
    runs();
    ck_assert_str_eq(shell("ls -A '%s'", dir), "my agent's");
    again();
    file("not", 0600, "x");
    options.remote_agent = "~/not";
    fails(HVD_EPERM, "not: may not be executed there");
    again();
    options.remote_agent = "nowhere-to-be-found";
    fails(HVD_ENOENT, "--agent nowhere-to-be-found: there is no such");
}
END_TEST

/* More than start at once; each one counts who else is starting. */
START_TEST(many_take_turns)
{
    char names[HOSTS_MAX][8];

    fake_ssh("mkdir \"$HOME/now\" 2>/dev/null\n"
             "touch \"$HOME/now/$$\"\n"
             "ls \"$HOME/now\" | wc -l >>\"$HOME/counts\"\n"
             "sleep 0.02\n"
             "rm \"$HOME/now/$$\"\n"
             "exec /bin/sh");
    options.max_startups = 5;
    for (int i = 0; i < HOSTS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i);
        open_host(i, names[i]);
    }
    run();
    for (int i = 0; i < HOSTS_MAX; i++)
        check_ran(i);
    ck_assert_str_eq(shell("sort -n '%s/counts' | tail -n 1 | tr -d ' '", dir),
                     "5");
}
END_TEST

START_TEST(closed_in_every_stage)
{
    static const char *const stages[] = {"reading", "waiting", "connecting",
                                         "sending", "starting"};

    options.max_startups = 1;
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        fake_ssh("exec /bin/sh");
        seen[0].close_at = seen[1].close_at = stages[i];
        open_host(0, "n1");
        open_host(1, "n2");
        run();
        ck_assert_int_eq(seen[0].ends + seen[1].ends, 0);
        for (int j = 0; j < 2; j++) /* the other may have sent it already */
            ck_assert_int_eq(seen[j].reads, !said(j, stages[i]));
        again();
        shell("rm -rf '%s/.cache'", dir);
    }
}
END_TEST

START_TEST(closed_at_once)
{
    open_host(0, "n1");
    transport_close(seen[0].t);
    transport_close(seen[0].t);
    run();
    ck_assert_int_eq(seen[0].ends + seen[0].reads, 0);
    ck_assert_uint_eq(hb_buf_len(&seen[0].stages), 0);
}
END_TEST

START_TEST(closed_while_pausing)
{
    fake_ssh("echo 'Connection reset by peer' >&2; exit 255");
    seen[0].close_at = "ssh: Connection reset";
    open_host(0, "n1");
    run();
    ck_assert_int_eq(seen[0].ends, 0);
}
END_TEST

/* Nothing of what a stubborn command started is left. */
START_TEST(closing_kills)
{
    options.rsh = "sh -c 'trap \"\" TERM; sleep 1000; :'";
    seen[0].close_at = "connecting";
    open_host(0, "n1");
    run();
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    ck_assert_int_eq(errno, ECHILD);
}
END_TEST

START_TEST(lost_connection)
{
    fake_ssh("/bin/sh; exit 255");
    setenv("FAKE_AGENT", "brief", 1);
    seen[0].keep = 1;
    open_host(0, "n1");
    run();
    ck_assert_int_eq(seen[0].reads, 1);
    ck_assert_int_eq(seen[0].ends, 1);
    ck_assert_str_eq(seen[0].why.text, "the ssh connection to it was lost");
}
END_TEST

START_TEST(configuration_that_ssh_refuses)
{
    fake_ssh("exec /bin/sh");
    file("ssh", 0700,
         "#!/bin/sh\necho \"config: line 1: Bad configuration "
         "option: foo\" >&2; exit 255\n");
    fails(HVD_EINVAL, "ssh: config: line 1: Bad configuration option: foo");
    again();
    file("ssh", 0700, "#!/bin/sh\necho 'no idea' >&2; exit 1\n");
    fails(HVD_EINVAL, "ssh -G n1 failed: no idea");
    again();
    file("ssh", 0700, "#!/bin/sh\necho nonsense\n");
    fails(HVD_EPROTO, "");
}
END_TEST

START_TEST(no_ssh)
{
    options.launcher = REMOTE_OPENSSH;
    setenv("PATH", dir, 1);
    fails(HVD_ENOENT, "there is no ssh program here");
    again();
    options.launcher = REMOTE_AUTO;
    fails(HVD_ENOENT, "there is no ssh program here, and libssh2 cannot be");
}
END_TEST

START_TEST(no_plugin)
{
    fake_ssh("exec /bin/sh");
    options.launcher = REMOTE_AUTO;
    runs();
    again();
    options.launcher = REMOTE_SSH2;
    fails(HVD_EUNSUPPORTED, "libssh2 cannot be used: /nonexistent/");
}
END_TEST

/* One behind another takes its turn, eight at a time. */
START_TEST(one_server_gets_eight_at_a_time)
{
    fake_ssh("mkdir \"$HOME/now\" 2>/dev/null\n"
             "touch \"$HOME/now/$$\"\n"
             "ls \"$HOME/now\" | wc -l >>\"$HOME/counts\"\n"
             "sleep 0.02\n"
             "rm \"$HOME/now/$$\"\n"
             "exec /bin/sh");
    file("config", 0600, "port 22\nuser me\nproxyjump j,%%d\n");
    options.max_startups = 32;
    for (int i = 0; i < 24; i++)
        open_host(i, "n1");
    run();
    for (int i = 0; i < 24; i++)
        check_ran(i);
    ck_assert_str_eq(shell("sort -n '%s/counts' | tail -n 1 | tr -d ' '", dir),
                     "8");
}
END_TEST

static const char *const state_names[] = {
    "new",     "queued config", "config", "queued", "starting",
    "pausing", "running",       "ended",  "closing"};

/* Failing and closing lead out of every state, and nothing back in. */
START_TEST(states_and_events)
{
    enum remote_state to;

    ck_assert_uint_eq(sizeof(state_names) / sizeof(state_names[0]),
                      REMOTE_STATES);
    for (int from = 0; from < REMOTE_STATES; from++)
        for (int event = 0; event < REMOTE_EVENTS; event++) {
            int rc = remote_step((enum remote_state)from,
                                 (enum remote_event)event, &to);
            if (rc == 0 && event == REMOTE_CLOSED)
                ck_assert_int_eq(to, REMOTE_CLOSING);
            else if (rc == 0 && event == REMOTE_FAILED)
                ck_assert_int_eq(to, REMOTE_ENDED);
            else if (event == REMOTE_CLOSED)
                ck_assert_msg(from == REMOTE_CLOSING, "%s", state_names[from]);
            else if (event == REMOTE_FAILED)
                ck_assert_msg(from >= REMOTE_ENDED, "%s", state_names[from]);
            else if (rc == 0)
                ck_assert_msg(from < REMOTE_RUNNING && to <= REMOTE_RUNNING,
                              "%s", state_names[from]);
        }
}
END_TEST

/* ---- The agent ---- */

static void hello(void)
{
    struct hb_buf b = HB_BUF_INIT;

    frame_encode(&b, 1, NULL, 0);
    if (write(1, hb_buf_data(&b), hb_buf_len(&b)) < 0)
        _exit(1);
    hb_buf_free(&b);
}

static int play(const char *part)
{
    char bytes[4096];
    ssize_t n;

    if (strcmp(part, "mute") == 0)
        return dprintf(2, "the agent cannot do it\n") < 0;
    hello();
    if (strcmp(part, "brief") == 0)
        return 0;
    while ((n = read(0, bytes, sizeof(bytes))) > 0)
        if (strcmp(part, "cat") == 0 && write(1, bytes, (size_t)n) != n)
            return 1;
    return 0;
}

static int agent_main(char *argv[])
{
    char hash[AGENT_HASH_HEX];

    if (strcmp(argv[1], "--check") == 0)
        return agent_hash_fd(open("/proc/self/exe", O_RDONLY), hash) ||
               strcmp(hash, argv[2]) != 0;
    return play(getenv("FAKE_AGENT"));
}

int main(int argc, char *argv[])
{
    Suite *suite;
    TCase *tc;

    if (argc == 3)
        return agent_main(argv);
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return EXIT_FAILURE;
    snprintf(old_path, sizeof(old_path), "%s", getenv("PATH"));
    suite = suite_create("remote");
    tc = tcase_create("all");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, is_sent_once);
    tcase_add_test(tc, echoes);
    tcase_add_test(tc, ssh_runs_sh);
    tcase_add_test(tc, drops_are_tried_again);
    tcase_add_test(tc, drops_end_at_the_deadline);
    tcase_add_test(tc, silence_ends_at_the_deadline);
    tcase_add_test(tc, final_errors_of_ssh);
    tcase_add_test(tc, no_such_program);
    tcase_add_test(tc, names_that_look_like_options);
    tcase_add_test(tc, bad_template);
    tcase_add_test(tc, no_agent_to_send);
    tcase_add_test(tc, noise_is_skipped);
    tcase_add_test(tc, noise_explains_a_failure);
    tcase_add_test(tc, endless_noise);
    tcase_add_test(tc, endless_stderr);
    tcase_add_test(tc, agent_that_does_not_start);
    tcase_add_test(tc, installed_agent);
    tcase_add_test(tc, many_take_turns);
    tcase_add_test(tc, closed_in_every_stage);
    tcase_add_test(tc, closed_at_once);
    tcase_add_test(tc, closed_while_pausing);
    tcase_add_test(tc, closing_kills);
    tcase_add_test(tc, lost_connection);
    tcase_add_test(tc, configuration_that_ssh_refuses);
    tcase_add_test(tc, no_ssh);
    tcase_add_test(tc, no_plugin);
    tcase_add_test(tc, one_server_gets_eight_at_a_time);
    tcase_add_test(tc, states_and_events);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
