/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/openssh.h: command lines for ssh, and its error messages. */
#include "lib/ssh/openssh.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct hb_strv argv;

static void setup(void)
{
    memset(&argv, 0, sizeof(argv));
}

static void teardown(void)
{
    hb_strv_free(&argv);
}

static const char *joined(void)
{
    static char text[2048];

    text[0] = '\0';
    for (size_t i = 0; i < argv.count; i++) {
        strcat(text, i ? "|" : "");
        strcat(text, argv.items[i]);
    }
    hb_strv_free(&argv);
    return text;
}

START_TEST(command_lines)
{
    struct openssh_options o = {.host = "n1"};

    ck_assert_int_eq(openssh_argv(&o, &argv, NULL), 0);
    ck_assert_str_eq(joined(), "ssh|-T|-a|-x|-o|ClearAllForwardings=yes|-o|"
                               "PermitLocalCommand=no|-o|BatchMode=yes|-o|"
                               "ServerAliveInterval=15|--|n1|exec /bin/sh");
    o = (struct openssh_options){.host = "n1",
                                 .user = "al",
                                 .port = 23,
                                 .identity = "/my key",
                                 .config = "/etc/c",
                                 .known_hosts = "/a b%c",
                                 .connect_timeout_s = 7};
    ck_assert_int_eq(openssh_argv(&o, &argv, NULL), 0);
    ck_assert_str_eq(
        joined(),
        "ssh|-T|-a|-x|-o|ClearAllForwardings=yes|-o|"
        "PermitLocalCommand=no|-o|BatchMode=yes|-o|ServerAliveInterval=15|-o|"
        "ConnectTimeout=7|-l|al|-F|/etc/c|-i|/my key|-p|23|-o|"
        "UserKnownHostsFile=\"/a b%%c\"|--|n1|exec /bin/sh");
    ck_assert_int_eq(openssh_config_argv(&o, &argv, NULL), 0);
    ck_assert_str_eq(joined(), "ssh|-G|-l|al|-F|/etc/c|-i|/my key|-p|23|-o|"
                               "UserKnownHostsFile=\"/a b%%c\"|--|n1");
}
END_TEST

static const char *jump(const char *config, const char *hops)
{
    struct openssh_options o = {.host = "n1", .config = config};

    ck_assert_int_eq(openssh_jump_argv(&o, hops, "10.0.0.1", 22, &argv, NULL),
                     0);
    return joined();
}

START_TEST(jump_hosts)
{
    struct openssh_options o = {.host = "n1"};

    ck_assert_str_eq(
        jump(NULL, "j"),
        "ssh|-o|BatchMode=yes|-o|PermitLocalCommand=no|-W|10.0.0.1:22|--|j");
    ck_assert_str_eq(jump("/c", "al@j:23"),
                     "ssh|-o|BatchMode=yes|-o|PermitLocalCommand=no|-F|/"
                     "c|-l|al|-p|23|-W|10.0.0.1:22|"
                     "--|j");
    ck_assert_str_eq(jump(NULL, "a,b@c:9,ssh://d@[::1]:24"),
                     "ssh|-o|BatchMode=yes|-o|PermitLocalCommand=no|-l|d|-p|24|"
                     "-J|a,b@c:9|-W|"
                     "10.0.0.1:22|--|::1");
    ck_assert_str_eq(jump(NULL, "fd66::1"),
                     "ssh|-o|BatchMode=yes|-o|PermitLocalCommand=no|-W|10.0.0."
                     "1:22|--|fd66::1");
    ck_assert_int_eq(openssh_jump_argv(&o, "j", "fd66::2", 22, &argv, NULL), 0);
    ck_assert_str_eq(
        joined(),
        "ssh|-o|BatchMode=yes|-o|PermitLocalCommand=no|-W|[fd66::2]:22|--|j");
}
END_TEST

START_TEST(names_that_look_like_options)
{
    static const char *const jumps[] = {
        "",   "a,", "-oX",  "al@-oX",  "-l@host", "host:-1", "a,-b",
        "@j", "j:", "-p,a", "a,-oX,b", ",a",      "a,,b",    "ssh://@a,b"};
    struct openssh_options o = {.host = "-oX"};
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(openssh_argv(&o, &argv, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "ssh: the host '-oX' is not valid");
    ck_assert_int_eq(openssh_config_argv(&o, &argv, NULL), -HVD_EINVAL);
    o = (struct openssh_options){.host = "n1", .user = "-x"};
    ck_assert_int_eq(openssh_argv(&o, &argv, NULL), -HVD_EINVAL);
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++)
        ck_assert_msg(openssh_jump_argv(&o, jumps[i], "n1", 22, &argv, NULL) ==
                          -HVD_EINVAL,
                      "%s", jumps[i]);
}
END_TEST

static int attempt(void *arg)
{
    struct hb_buf words = HB_BUF_INIT;
    struct openssh_options o = {
        .host = "n1", .user = "al", .port = 23, .known_hosts = "/k"};
    int rc;

    (void)arg;
    teardown();
    rc = openssh_words("ssh", &o, &words);
    hb_buf_free(&words);
    if (rc == 0)
        rc = openssh_argv(&o, &argv, NULL);
    return rc < 0 ? rc : openssh_jump_argv(&o, "a,b", "n1", 22, &argv, NULL);
}

START_TEST(out_of_memory)
{
    unit_fail_each(attempt, NULL);
}
END_TEST

/* Messages of ssh 9.2; the last line is not always the cause. */
static const struct {
    const char *said;
    int status;
    const char *text;
} complaints[] = {
    {"ssh: Could not resolve hostname n1: Name or service not known\r\n",
     HVD_EINVAL,
     "ssh: Could not resolve hostname n1: Name or service not known; check "
     "the name and DNS"},
    {"ssh: Could not resolve hostname n1: Temporary failure in name "
     "resolution\r\n",
     HVD_ETIMEOUT,
     "ssh: Could not resolve hostname n1: Temporary failure in name "
     "resolution"},
    {"ssh: connect to host n1 port 22: Connection timed out\r\n", HVD_ETIMEOUT,
     "ssh: connect to host n1 port 22: Connection timed out"},
    {"Connection timed out during banner exchange\r\n"
     "Connection to 10.0.0.1 port 22 timed out\r\n",
     HVD_ETIMEOUT, "ssh: Connection timed out during banner exchange"},
    {"ssh: connect to host n1 port 22: No route to host\r\n", HVD_ESYSTEM,
     "ssh: connect to host n1 port 22: No route to host"},
    {"kex_exchange_identification: Connection closed by remote host\r\n"
     "Connection closed by 10.0.0.1 port 22\r\n",
     HVD_ECLOSED,
     "ssh: kex_exchange_identification: Connection closed by remote host"},
    {"Unable to negotiate with 10.0.0.1 port 22: no matching host key type "
     "found. Their offer: ssh-rsa\r\n",
     HVD_ESYSTEM,
     "ssh: Unable to negotiate with 10.0.0.1 port 22: no matching host key "
     "type found. Their offer: ssh-rsa"},
    {"Received disconnect from 10.0.0.1 port 22:2: Too many authentication "
     "failures\r\nDisconnected from 10.0.0.1 port 22\r\n",
     HVD_EPERM,
     "ssh: Received disconnect from 10.0.0.1 port 22:2: Too many "
     "authentication failures; name the key with --ssh-identity-file"},
    {"al@j: Permission denied (publickey).\r\n"
     "kex_exchange_identification: Connection closed by remote host\r\n",
     HVD_EPERM,
     "ssh: no key was accepted (al@j: Permission denied (publickey).); add "
     "one with: ssh-copy-id n1"},
    {"no way\n"
     "kex_exchange_identification: Connection closed by remote host\r\n"
     "Connection closed by UNKNOWN port 65535\r\n",
     HVD_ESYSTEM, "ssh: its proxy failed: no way"},
    {"Warning: Permanently added 'j' (ED25519) to the list of known hosts.\r\n"
     "kex_exchange_identification: Connection closed by remote host\r\n"
     "Connection closed by UNKNOWN port 65535\r\n",
     HVD_ECLOSED,
     "ssh: kex_exchange_identification: Connection closed by remote host"},
    {"channel 0: open failed: connect failed: Connection refused\r\n"
     "stdio forwarding failed\r\n"
     "kex_exchange_identification: Connection closed by remote host\r\n"
     "Connection closed by UNKNOWN port 65535\r\n",
     HVD_ESYSTEM,
     "ssh: channel 0: open failed: connect failed: Connection refused; is "
     "sshd running there?"},
    {"/root/.ssh/config: line 3: Bad configuration option: foo\r\n", HVD_EINVAL,
     "ssh: /root/.ssh/config: line 3: Bad configuration option: "
     "foo"},
    {"No ED25519 host key is known for n1 and you have requested strict "
     "checking.\r\nHost key verification failed.\r\n",
     HVD_EPERM,
     "ssh: its host key is not known; see and accept it with: ssh n1 true"},
    {"@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
     "The fingerprint for the ED25519 key sent by the remote host is\r\n"
     "SHA256:abc+/=.\r\nPlease contact your system administrator.\r\n"
     "Host key verification failed.\r\n",
     HVD_EPERM,
     "ssh: its host key has changed, to SHA256:abc+/=; if that is right, "
     "remove the old one with: ssh-keygen -R n1"},
    {"@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
     "The fingerprint for the ED25519 key sent by the remote host is\r\n"
     "SHA256:abc.\r\nOffending ECDSA key in /home/me too/hosts:3\r\n"
     "Host key for [n1]:2222 has changed and you have requested strict "
     "checking.\r\nHost key verification failed.\r\n",
     HVD_EPERM,
     "ssh: its host key has changed, to SHA256:abc; if that is right, remove "
     "the old one with: ssh-keygen -f '/home/me too/hosts' -R '[n1]:2222'"},
    {"@       WARNING: REVOKED HOST KEY DETECTED!               @\r\n"
     "Host key verification failed.\r\n",
     HVD_EPERM, "ssh: its host key is marked as revoked"},
};

START_TEST(explains)
{
    struct openssh_options o = {.host = "n1"};
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(openssh_explain(complaints[_i].said, &o, &err), 1);
    ck_assert_str_eq(err.text, complaints[_i].text);
    ck_assert_int_eq(err.status, -complaints[_i].status);
}
END_TEST

START_TEST(stages)
{
    static const struct {
        const char *said;
        enum hb_stage stage;
    } cases[] = {
        {"ssh: Could not resolve hostname n1: x\r\n", HB_STAGE_NAME},
        {"ssh: connect to host n1 port 22: Connection refused\r\n",
         HB_STAGE_CONNECT},
        {"no way\nConnection closed by UNKNOWN port 65535\r\n",
         HB_STAGE_CONNECT},
        {"Host key verification failed.\r\n", HB_STAGE_HOST_KEY},
        {"al@n1: Permission denied (publickey).\r\n", HB_STAGE_LOGIN},
        {"/c: line 3: Bad configuration option: foo\r\n", HB_STAGE_NONE},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct openssh_options o = {.host = "n1"};
        struct hb_error err = HB_ERROR_INIT;

        ck_assert_int_eq(openssh_explain(cases[i].said, &o, &err), 1);
        ck_assert_int_eq(err.stage, cases[i].stage);
    }
}
END_TEST

/* The advised command reaches the same server, with the same files. */
START_TEST(advice_with_the_options_given)
{
    struct openssh_options o = {.host = "n1",
                                .user = "al",
                                .port = 23,
                                .identity = "/my key",
                                .config = "/etc/c",
                                .known_hosts = "/a b",
                                .never_asks = 1};
    struct hb_error err = HB_ERROR_INIT;

    openssh_explain("Host key verification failed.\r\n", &o, &err);
    ck_assert_str_eq(
        err.text,
        "ssh: its host key is not known; see and accept it with: "
        "ssh -F /etc/c -i '/my key' -p 23 -o 'UserKnownHostsFile=\"/a b\"' "
        "-o BatchMode=no -o StrictHostKeyChecking=ask al@n1 true");
    hb_error_clear(&err);
    o = (struct openssh_options){.host = "n1", .user = "al", .port = 23};
    openssh_explain("al@n1: Permission denied (publickey).\r\n", &o, &err);
    ck_assert_str_eq(err.text,
                     "ssh: no key was accepted (al@n1: Permission denied "
                     "(publickey).); add one with: ssh-copy-id -p 23 al@n1");
}
END_TEST

START_TEST(does_not_explain)
{
    struct openssh_options o = {.host = "n1"};
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(openssh_explain("", &o, &err), 0);
    ck_assert_int_eq(openssh_explain("bash: no job control\n", &o, &err), 0);
    ck_assert_int_eq(err.status, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openssh");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, command_lines);
    tcase_add_test(tc, jump_hosts);
    tcase_add_test(tc, names_that_look_like_options);
    tcase_add_test(tc, out_of_memory);
    tcase_add_loop_test(tc, explains, 0,
                        sizeof(complaints) / sizeof(complaints[0]));
    tcase_add_test(tc, stages);
    tcase_add_test(tc, advice_with_the_options_given);
    tcase_add_test(tc, does_not_explain);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
