/* SPDX-License-Identifier: Apache-2.0 */
/* lib/remote/remote.h with stand-ins for hosts (remote_util.h). */
#include "tests/unit/remote_util.h"

#include "lib/protocol/frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

START_TEST(is_sent_once)
{
    far_runs();
    ck_assert(far_said(0, "sending the agent, 100 %"));
    ck_assert_str_eq(far_shell("cd '%s/.cache/hvd'; ls -A | wc -l", far_dir),
                     "1");
    ck_assert_str_eq(far_shell("ls -ld '%s/.cache/hvd' | cut -c1-10", far_dir),
                     "drwx------");
    far_again();
    far_runs();
    ck_assert(!far_said(0, "sending"));
}
END_TEST

START_TEST(echoes)
{
    setenv("FAKE_AGENT", "cat", 1);
    far_seen[0].keep = 1;
    far_open(0, "n1");
    ck_assert_int_eq(transport_write(far_seen[0].t, "early ", 6), 0);
    ck_assert_uint_eq(transport_write_queued(far_seen[0].t), 6);
    while (!far_seen[0].reads)
        uv_run(&far_loop, UV_RUN_ONCE);
    ck_assert_int_eq(transport_write(far_seen[0].t, "late", 4), 0);
    while (hb_buf_len(&far_seen[0].in) < FRAME_HEADER_BYTES + 10)
        uv_run(&far_loop, UV_RUN_ONCE);
    ck_assert_str_eq(hb_buf_data(&far_seen[0].in) + FRAME_HEADER_BYTES,
                     "early late");
    transport_close(far_seen[0].t);
    ck_assert_int_eq(transport_write(far_seen[0].t, "x", 1), -HVD_ECLOSED);
    far_run();
    ck_assert_int_eq(far_seen[0].ends, 0);
}
END_TEST

START_TEST(ssh_runs_sh)
{
    far_ssh("printf '%s|' \"$@\" >\"$HOME/args\"; exec /bin/sh");
    far_options.ssh_user = "alice";
    far_options.ssh_port = 2222;
    far_runs();
    ck_assert_str_eq(
        far_shell("cat '%s/args'", far_dir),
        "-T|-a|-x|-o|ClearAllForwardings=yes|-o|"
        "PermitLocalCommand=no|-o|BatchMode=yes|-o|"
        "ServerAliveInterval=15|-o|ConnectTimeout=15|-l|alice|-p|2222|--|n1|"
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
    far_ssh(dropping);
    far_runs();
    ck_assert(far_said(0, "Connection reset by peer; trying again"));
    ck_assert_str_eq(far_shell("cat '%s/count'", far_dir), "4");
}
END_TEST

START_TEST(drops_end_at_the_deadline)
{
    far_ssh("echo 'Connection closed by 10.0.0.1 port 22' >&2; exit 255");
    far_options.start_timeout_ms = 2000; /* for one attempt at least */
    far_fails(HVD_ETIMEOUT, "Connection closed by 10.0.0.1 port 22 (tried");
}
END_TEST

START_TEST(silence_after_a_drop_ends_at_the_deadline)
{
    far_ssh("[ -e \"$HOME/dropped\" ] && exec sleep 1000\n"
            ">\"$HOME/dropped\"\n"
            "echo 'Connection closed by 10.0.0.1 port 22' >&2; exit 255");
    far_options.start_timeout_ms = 2000;
    far_fails(HVD_ETIMEOUT, "Connection closed by 10.0.0.1 port 22 "
                            "(tried 1 time; now connecting)");
}
END_TEST

START_TEST(silence_ends_at_the_deadline)
{
    far_options.rsh = "sh -c 'exec sleep 1000'";
    far_options.start_timeout_ms = 10;
    far_fails(HVD_ETIMEOUT, "no agent in time (connecting)");
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
         "(publickey,password).); add one with: ssh-copy-id n1"},
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
        far_ssh(body);
        far_fails(cases[i].status, cases[i].text);
        far_again();
    }
}
END_TEST

START_TEST(no_such_program)
{
    far_options.rsh = "/nonexistent/rsh {host}";
    far_fails(HVD_ENOENT, "cannot start /nonexistent/rsh: there is no such");
}
END_TEST

START_TEST(names_that_look_like_options)
{
    far_ssh("exec /bin/sh");
    far_open(0, "-oProxyCommand=true");
    far_run();
    far_failed(0, HVD_EINVAL, "ssh: the host '-oProxyCommand=true'");
    far_again();
    far_options.launcher = REMOTE_RSH;
    far_open(0, "-n1");
    far_run();
    far_failed(0, HVD_EINVAL, "--rsh: the host '-n1'");
}
END_TEST

START_TEST(bad_template)
{
    struct hb_error err = HB_ERROR_INIT;

    far_options.rsh = "sh -c 'exec";
    ck_assert_int_eq(
        remote_new(&far_loop, &far_log, &far_options, &far_remote, &err),
        -HVD_EINVAL);
    ck_assert_ptr_null(far_remote);
    ck_assert_str_eq(err.text, "--rsh: a ' is not closed");
}
END_TEST

START_TEST(no_agent_to_send)
{
    far_options.agent_path = "/nonexistent/hvd-agent";
    far_fails(HVD_ENOENT, "cannot read the agent /nonexistent/hvd-agent");
}
END_TEST

START_TEST(noise_is_skipped)
{
    far_options.rsh = "sh -c 'printf \"Welcome!\nhvD0\"; echo oops >&2; "
                      "exec /bin/sh'";
    far_runs();
    ck_assert_uint_eq(hb_buf_len(&far_seen[0].errs), 0);
}
END_TEST

START_TEST(noise_explains_a_failure)
{
    far_options.rsh =
        "sh -c 'echo hello; echo; printf \"not \33[31mavailable\"'";
    far_fails(HVD_ESYSTEM, "its shell ended without an answer: "
                           "hello; not ?[31mavailable");
    far_again();
    far_options.rsh = "sh -c 'echo hello; echo cannot >&2; exit 1'";
    far_fails(HVD_ESYSTEM, "(it exited with code 1): cannot");
}
END_TEST

START_TEST(endless_noise)
{
    far_options.rsh = "sh -c 'exec yes'";
    far_fails(HVD_EPROTO, "printed more than 64 KiB");
}
END_TEST

START_TEST(endless_stderr)
{
    far_options.rsh = "sh -c 'exec yes >&2'";
    far_fails(HVD_EPROTO, "printed more than");
}
END_TEST

START_TEST(agent_that_does_not_start)
{
    setenv("FAKE_AGENT", "mute", 1);
    far_fails(HVD_ESYSTEM, "the agent did not start: the agent cannot do it");
}
END_TEST

START_TEST(installed_agent)
{
    far_file("my agent's", 0700,
             "#!/bin/sh\nprintf 'hvD1\\1\\1\\0\\0\\0\\0\\0\\0'\n");
    far_options.remote_agent = "~/my agent's";
    far_runs();
    ck_assert_str_eq(far_shell("ls -A '%s'", far_dir), "my agent's");
    far_again();
    far_file("not", 0600, "x");
    far_options.remote_agent = "~/not";
    far_fails(HVD_EPERM, "not: may not be executed there");
    far_again();
    far_options.remote_agent = "nowhere-to-be-found";
    far_fails(HVD_ENOENT, "--agent nowhere-to-be-found: there is no such");
}
END_TEST

/* Waits until n have been started, so that all that may start are running; then
 * counts them and leaves. */
static void fake_ssh_counting(int n)
{
    char body[512];

    snprintf(body, sizeof(body),
             "touch \"$HOME/now/$$\" \"$HOME/ever/$$\"\n"
             "while [ $(ls \"$HOME/ever\" | wc -l) -lt %d ]; do\n"
             "  sleep 0.01\n"
             "done\n"
             "ls \"$HOME/now\" | wc -l >>\"$HOME/counts\"\n"
             "rm \"$HOME/now/$$\"\n"
             "exec /bin/sh",
             n);
    far_ssh(body);
    far_shell("mkdir '%s/now' '%s/ever'", far_dir, far_dir);
}

START_TEST(many_take_turns)
{
    char names[FAR_HOSTS][8];

    fake_ssh_counting(5);
    far_options.max_startups = 5;
    for (int i = 0; i < FAR_HOSTS; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i);
        far_open(i, names[i]);
    }
    far_run();
    for (int i = 0; i < FAR_HOSTS; i++)
        far_ran(i);
    ck_assert_str_eq(
        far_shell("sort -n '%s/counts' | tail -n 1 | tr -d ' '", far_dir), "5");
}
END_TEST

START_TEST(closed_in_every_stage)
{
    static const char *const stages[] = {"reading", "waiting", "connecting",
                                         "sending", "starting"};

    far_options.max_startups = 1;
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        far_ssh("exec /bin/sh");
        far_seen[0].close_at = far_seen[1].close_at = stages[i];
        far_open(0, "n1");
        far_open(1, "n2");
        far_run();
        ck_assert_int_eq(far_seen[0].ends + far_seen[1].ends, 0);
        for (int j = 0; j < 2; j++) /* the other may have sent it already */
            ck_assert_int_eq(far_seen[j].reads, !far_said(j, stages[i]));
        far_again();
        far_shell("rm -rf '%s/.cache'", far_dir);
    }
}
END_TEST

START_TEST(closed_at_once)
{
    far_open(0, "n1");
    transport_close(far_seen[0].t);
    transport_close(far_seen[0].t);
    far_run();
    ck_assert_int_eq(far_seen[0].ends + far_seen[0].reads, 0);
    ck_assert_uint_eq(hb_buf_len(&far_seen[0].stages), 0);
}
END_TEST

START_TEST(closed_while_pausing)
{
    far_ssh("echo 'Connection reset by peer' >&2; exit 255");
    far_seen[0].close_at = "ssh: Connection reset";
    far_open(0, "n1");
    far_run();
    ck_assert_int_eq(far_seen[0].ends, 0);
}
END_TEST

/* Closing leaves no process of a stubborn command. */
START_TEST(closing_kills)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    far_options.rsh = "sh -c 'trap \"\" TERM; sleep 1000; :'";
    far_seen[0].close_at = "connecting";
    far_open(0, "n1");
    far_run();
    while (waitpid(-1, NULL, 0) > 0) /* hangs if one was left */
        continue;
    ck_assert_int_eq(errno, ECHILD);
}
END_TEST

START_TEST(lost_connection)
{
    far_ssh("/bin/sh; exit 255");
    setenv("FAKE_AGENT", "brief", 1);
    far_seen[0].keep = 1;
    far_open(0, "n1");
    far_run();
    ck_assert_int_eq(far_seen[0].reads, 1);
    ck_assert_int_eq(far_seen[0].ends, 1);
    ck_assert_str_eq(far_seen[0].why.text, "the ssh connection to it was lost");
}
END_TEST

START_TEST(configuration_that_ssh_refuses)
{
    far_ssh("exec /bin/sh");
    far_file("ssh", 0700,
             "#!/bin/sh\necho \"config: line 1: Bad configuration "
             "option: foo\" >&2; exit 255\n");
    far_fails(HVD_EINVAL, "ssh: config: line 1: Bad configuration option: foo");
    far_again();
    far_file("ssh", 0700, "#!/bin/sh\necho 'no idea' >&2; exit 1\n");
    far_fails(HVD_EINVAL, "ssh -G n1 failed: no idea");
    far_again();
    far_file("ssh", 0700, "#!/bin/sh\necho nonsense\n");
    far_fails(HVD_EPROTO, "");
}
END_TEST

START_TEST(no_ssh)
{
    far_options.launcher = REMOTE_OPENSSH;
    setenv("PATH", far_dir, 1);
    far_fails(HVD_ENOENT, "there is no ssh program here");
    far_again();
    far_options.launcher = REMOTE_AUTO;
    far_fails(HVD_ENOENT,
              "there is no ssh program here, and libssh2 cannot be");
}
END_TEST

START_TEST(no_plugin)
{
    far_ssh("exec /bin/sh");
    far_options.launcher = REMOTE_AUTO;
    far_runs();
    far_again();
    far_options.launcher = REMOTE_SSH2;
    far_fails(HVD_EUNSUPPORTED, "libssh2 cannot be used: /nonexistent/");
}
END_TEST

START_TEST(one_server_gets_eight_at_a_time)
{
    fake_ssh_counting(8);
    far_file("config", 0600, "port 22\nuser me\nproxyjump j,%%d\n");
    far_options.max_startups = 32;
    for (int i = 0; i < 24; i++)
        far_open(i, "n1");
    far_run();
    for (int i = 0; i < 24; i++)
        far_ran(i);
    ck_assert_str_eq(
        far_shell("sort -n '%s/counts' | tail -n 1 | tr -d ' '", far_dir), "8");
}
END_TEST

static const char *const state_names[] = {
    "new",     "queued config", "config", "queued", "starting",
    "pausing", "running",       "ended",  "closing"};

/* Failure and closing lead out of every state, and no event leads back. */
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

static Suite *suite(void)
{
    Suite *s = suite_create("remote");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, far_setup, far_teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, is_sent_once);
    tcase_add_test(tc, echoes);
    tcase_add_test(tc, ssh_runs_sh);
    tcase_add_test(tc, drops_are_tried_again);
    tcase_add_test(tc, drops_end_at_the_deadline);
    tcase_add_test(tc, silence_after_a_drop_ends_at_the_deadline);
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
    suite_add_tcase(s, tc);
    return s;
}

int main(int argc, char *argv[])
{
    return far_main(argc, argv, suite);
}
