/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/ssh_config.h: what `ssh -G` prints. */
#include "lib/ssh/ssh_config.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct ssh_user user = {(char *)"me", (char *)"/home/me",
                               (char *)"/run/agent"};
static struct openssh_options options = {.host = "n1"};
static struct ssh_config config;
static struct hb_error err;

static void setup(void)
{
    static const struct hb_error none = HB_ERROR_INIT;

    err = none;
    memset(&config, 0, sizeof(config));
    options = (struct openssh_options){.host = "n1"};
}

static void teardown(void)
{
    ssh_config_fini(&config);
}

static int read_text(const char *text)
{
    ssh_config_fini(&config);
    return ssh_config_read(text, strlen(text), &options, &user, &config, &err);
}

static void reads(const char *lines)
{
    char text[4096];

    snprintf(text, sizeof(text), "hostname h1\n%s", lines);
    ck_assert_msg(read_text(text) == 0, "%s", err.text);
}

static const char *joined(const struct hb_strv *v)
{
    static char text[1024];

    text[0] = '\0';
    for (size_t i = 0; i < v->count; i++) {
        strcat(text, i ? "|" : "");
        strcat(text, v->items[i]);
    }
    return text;
}

START_TEST(defaults)
{
    ck_assert_int_eq(ssh_config_read(NULL, 0, &options, &user, &config, &err),
                     0);
    ck_assert_str_eq(config.name, "n1");
    ck_assert_str_eq(config.hostname, "n1");
    ck_assert_str_eq(config.user, "me");
    ck_assert_str_eq(config.home, "/home/me");
    ck_assert_str_eq(config.agent, "/run/agent");
    ck_assert_int_eq(config.port, 22);
    ck_assert_int_eq(config.family, AF_UNSPEC);
    ck_assert_int_eq(config.strict, SSH_STRICT_YES);
    ck_assert_int_eq(config.connect_timeout_ms, 0);
    ck_assert_ptr_null(config.proxy_jump);
    ck_assert_ptr_null(config.proxy_command);
    ck_assert_ptr_null(config.host_key_alias);
    ck_assert_ptr_null(config.unsupported);
    ck_assert_str_eq(joined(&config.user_known_hosts),
                     "/home/me/.ssh/known_hosts|/home/me/.ssh/known_hosts2");
    ck_assert_str_eq(joined(&config.global_known_hosts),
                     "/etc/ssh/ssh_known_hosts|/etc/ssh/ssh_known_hosts2");
    ck_assert_str_eq(joined(&config.identities),
                     "/home/me/.ssh/id_rsa|/home/me/.ssh/id_ecdsa|"
                     "/home/me/.ssh/id_ed25519");
    ck_assert_ptr_nonnull(strstr(config.kex, "curve25519-sha256"));
    ck_assert_ptr_nonnull(strstr(config.host_key_algorithms, "ssh-ed25519"));
    ck_assert_int_eq(ssh_config_check(&config, &err), 0);
}
END_TEST

START_TEST(defaults_with_options)
{
    options = (struct openssh_options){.host = "n1",
                                       .user = "al",
                                       .port = 2222,
                                       .identity = "~/my key",
                                       .known_hosts = "/a b/known"};
    ck_assert_int_eq(ssh_config_read(NULL, 0, &options, &user, &config, &err),
                     0);
    ck_assert_str_eq(config.user, "al");
    ck_assert_int_eq(config.port, 2222);
    ck_assert_str_eq(joined(&config.identities), "/home/me/my key");
    ck_assert_str_eq(joined(&config.user_known_hosts), "/a b/known");
}
END_TEST

/* A setting that only ssh can honour is reported by its name. */
START_TEST(settings_about_trust)
{
    static const struct {
        const char *line, *unsupported;
    } cases[] = {
        {"requiredrsasize 1024", NULL},
        {"requiredrsasize 3072", NULL},
        {"preferredauthentications gssapi-with-mic,publickey,password", NULL},
        {"preferredauthentications publickey", NULL},
        {"preferredauthentications password", "preferredauthentications"},
        {"preferredauthentications publickeys", "preferredauthentications"},
        {"remotecommand none", NULL},
        {"remotecommand tmux", "remotecommand"},
        {"userknownhostsfile /a b/known /c", "userknownhostsfile"},
        {"userknownhostsfile ~/known /c", NULL},
        {"userknownhostsfile none", NULL},
        {"globalknownhostsfile /a b", "userknownhostsfile"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        reads(cases[i].line);
        if (cases[i].unsupported)
            ck_assert_str_eq(config.unsupported, cases[i].unsupported);
        else
            ck_assert_ptr_null(config.unsupported);
    }
    /* some distributions set it by default */
    reads("requiredrsasize 2048");
    ck_assert_int_eq(config.rsa_bits, 2048);
    reads("port 22");
    ck_assert_int_eq(config.rsa_bits, 1024);
}
END_TEST

/* The key of the host's address is checked by ssh only.  Versions before 8.5
 * say "yes" by default, and call a list of algorithms a list of key types. */
START_TEST(the_key_of_the_address)
{
    reads("checkhostip yes\npubkeyacceptedalgorithms ssh-ed25519");
    ck_assert_str_eq(config.unsupported, "checkhostip");
    ck_assert_int_eq(ssh_config_check(&config, NULL), -HVD_EUNSUPPORTED);
    reads("checkhostip no\npubkeyacceptedalgorithms ssh-ed25519");
    ck_assert_ptr_null(config.unsupported);
    reads("checkhostip yes\npubkeyacceptedkeytypes ssh-ed25519");
    ck_assert_ptr_null(config.unsupported);
    ck_assert_int_eq(ssh_config_check(&config, NULL), 0);
}
END_TEST

/* Blanks in the path are allowed if the file is given by an option of
 * hvdrun. */
START_TEST(a_known_hosts_file_with_blanks)
{
    options.known_hosts = "a b/known";
    reads("userknownhostsfile a b/known");
    ck_assert_str_eq(joined(&config.user_known_hosts), "a b/known");
    ck_assert_ptr_null(config.unsupported);
}
END_TEST

START_TEST(words_that_ask)
{
    options.port = 23;
    reads("stricthostkeychecking ask");
    ck_assert_str_eq(config.login, "ssh -p 23 n1");
    ck_assert_str_eq(config.copy_id, "ssh-copy-id -p 23 n1");
    reads("stricthostkeychecking true");
    ck_assert_str_eq(config.login, "ssh -p 23 -o BatchMode=no -o "
                                   "StrictHostKeyChecking=ask n1");
    reads("batchmode yes");
    ck_assert_int_eq(config.never_asks, 1);
}
END_TEST

START_TEST(the_usual)
{
    reads("host n1\r\n"
          "user al\n"
          "port 2222\n"
          "addressfamily inet6\n"
          "connecttimeout 7\n"
          "serveraliveinterval 30\n"
          "identitiesonly yes\n"
          "hashknownhosts yes\n"
          "gssapiauthentication yes\n"
          "hostkeyalias h\n"
          "stricthostkeychecking accept-new\n"
          "identityfile ~/.ssh/id_x\n"
          "identityfile /a b\n"
          "userknownhostsfile /u1  /u2\n"
          "globalknownhostsfile /g\n"
          "proxyjump a@b:2,c\n"
          "ciphers aes128-ctr\n"
          "macs hmac-sha2-256\n"
          "kexalgorithms k\n"
          "hostkeyalgorithms hk\n"
          "pubkeyacceptedalgorithms pk\n"
          "canonicalizePermittedcnames none\n"
          "unknownkeyword whatever\n"
          "\n"
          "noeol");
    ck_assert_str_eq(config.name, "n1");
    ck_assert_str_eq(config.hostname, "h1");
    ck_assert_str_eq(config.user, "al");
    ck_assert_int_eq(config.port, 2222);
    ck_assert_int_eq(config.family, AF_INET6);
    ck_assert_int_eq(config.connect_timeout_ms, 7000);
    ck_assert_int_eq(config.alive_interval_s, 30);
    ck_assert_int_eq(config.identities_only, 1);
    ck_assert_int_eq(config.hash_known_hosts, 1);
    ck_assert_int_eq(config.gssapi, 1);
    ck_assert_int_eq(config.strict, SSH_STRICT_ACCEPT_NEW);
    ck_assert_str_eq(config.host_key_alias, "h");
    ck_assert_str_eq(config.proxy_jump, "a@b:2,c");
    ck_assert_str_eq(joined(&config.identities), "/home/me/.ssh/id_x|/a b");
    ck_assert_str_eq(joined(&config.user_known_hosts), "/u1|/u2");
    ck_assert_str_eq(joined(&config.global_known_hosts), "/g");
    ck_assert_str_eq(config.ciphers, "aes128-ctr");
    ck_assert_str_eq(config.macs, "hmac-sha2-256");
    ck_assert_str_eq(config.kex, "k");
    ck_assert_str_eq(config.host_key_algorithms, "hk");
    ck_assert_str_eq(config.key_algorithms, "pk");
    ck_assert_str_eq(config.agent, "/run/agent");
    ck_assert_int_eq(ssh_config_check(&config, &err), 0);
}
END_TEST

START_TEST(values_that_mean_nothing)
{
    reads("connecttimeout none\nproxyjump none\nproxycommand none\n"
          "identityagent none\nuserknownhostsfile none\n"
          "globalknownhostsfile none\nidentityfile none\nhostkeyalias \n"
          "addressfamily any\ncontrolpath none\ncertificatefile none\n"
          "pkcs11provider none\n");
    ck_assert_int_eq(config.connect_timeout_ms, 0);
    ck_assert_ptr_null(config.proxy_jump);
    ck_assert_ptr_null(config.proxy_command);
    ck_assert_ptr_null(config.agent);
    ck_assert_ptr_null(config.host_key_alias);
    ck_assert_uint_eq(config.user_known_hosts.count, 0);
    ck_assert_uint_eq(config.global_known_hosts.count, 0);
    ck_assert_uint_eq(config.identities.count, 0);
    ck_assert_int_eq(ssh_config_check(&config, &err), 0);
}
END_TEST

START_TEST(host_key_checking)
{
    static const struct {
        const char *line;
        enum ssh_strict strict;
    } cases[] = {
        {"stricthostkeychecking ask\n", SSH_STRICT_YES},
        {"stricthostkeychecking true\n", SSH_STRICT_YES},
        {"stricthostkeychecking yes\n", SSH_STRICT_YES},
        {"stricthostkeychecking something-new\n", SSH_STRICT_YES},
        {"stricthostkeychecking accept-new\n", SSH_STRICT_ACCEPT_NEW},
        {"stricthostkeychecking false\n", SSH_STRICT_OFF},
        {"stricthostkeychecking no\n", SSH_STRICT_OFF},
        {"stricthostkeychecking off\n", SSH_STRICT_OFF},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        reads(cases[i].line);
        ck_assert_int_eq(config.strict, cases[i].strict);
    }
}
END_TEST

START_TEST(tokens)
{
    reads("user al\nport 23\nhostkeyalias key\n"
          "identityfile ~/%h-%n-%p-%r-%u-%d-%k-%%\n"
          "identityfile %d/.ssh/id\n"
          "identityagent ~/agent-%h\n"
          "userknownhostsfile ~/known_%h /k%h\n"
          "proxycommand nc -x 'a  b' %h %p # ~ ${X}\n");
    ck_assert_str_eq(joined(&config.identities),
                     "/home/me/h1-n1-23-al-me-/home/me-key-%|"
                     "/home/me/.ssh/id");
    ck_assert_str_eq(config.agent, "/home/me/agent-h1");
    ck_assert_str_eq(joined(&config.user_known_hosts),
                     "/home/me/known_h1|/k%h");
    ck_assert_str_eq(config.proxy_command, "nc -x 'a  b' h1 23 # ~ ${X}");
    ck_assert_int_eq(ssh_config_check(&config, &err), 0);
}
END_TEST

START_TEST(agents)
{
    reads("identityagent SSH_AUTH_SOCK\n");
    ck_assert_str_eq(config.agent, "/run/agent");
    reads("identityagent /other/agent\n");
    ck_assert_str_eq(config.agent, "/other/agent");
    user.agent = NULL;
    reads("");
    ck_assert_ptr_null(config.agent);
    user.agent = (char *)"/run/agent";
}
END_TEST

START_TEST(what_only_ssh_can_do)
{
    static const char *const lines[] = {
        "certificatefile ~/cert\n",
        "pkcs11provider /lib/p11.so\n",
        "revokedhostkeys /krl\n",
        "knownhostscommand /bin/x %h\n",
        "bindaddress 10.0.0.1\n",
        "bindinterface eth0\n",
        "hostbasedauthentication yes\n",
        "gssapikeyexchange yes\n",
        "proxyusefdpass yes\n",
        "verifyhostkeydns true\n",
        "nohostauthenticationforlocalhost yes\n",
        "pubkeyauthentication false\n",
        "pubkeyauthentication no\n",
        "identityagent $OTHER\n",
        "identityfile ~/${X}\n",
        "identityfile ~other/key\n",
        "identityfile %C\n",
        "proxycommand nc %T\n",
        "proxycommand nc %",
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char name[64];

        reads(lines[i]);
        hb_error_clear(&err);
        ck_assert_msg(ssh_config_check(&config, &err) == -HVD_EUNSUPPORTED,
                      "%s", lines[i]);
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(lines[i], " "),
                 lines[i]);
        ck_assert_msg(strstr(err.text, name) != NULL, "%s: %s", lines[i],
                      err.text);
    }
    hb_error_clear(&err);
    reads("hostbasedauthentication no\npubkeyauthentication true\n"
          "pubkeyauthentication unbound\nverifyhostkeydns false\n");
    ck_assert_int_eq(ssh_config_check(&config, &err), 0);
}
END_TEST

/* A connection that ssh shares needs no authentication. */
START_TEST(a_shared_connection)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char line[200];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "/tmp/hvd-mux-%d", (int)getpid());
    snprintf(line, sizeof(line), "controlpath %s\n", a.sun_path);
    reads(line);
    ck_assert_int_eq(ssh_config_check(&config, &err), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    ck_assert_int_eq(ssh_config_check(&config, &err), -HVD_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, a.sun_path));
    close(fd);
    unlink(a.sun_path);
}
END_TEST

START_TEST(rubbish)
{
    static const char *const texts[] = {
        "",
        "user al\n",
        "hostname\n",
        "hostname \n",
        "xhostname h\n",
        "hostname h\nport x\n",
        "hostname h\nport 0\n",
        "hostname h\nport 65536\n",
        "hostname h\nuser\n",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        hb_error_clear(&err);
        ck_assert_int_eq(read_text(texts[i]), -HVD_EPROTO);
        ck_assert_ptr_nonnull(strstr(err.text, "ssh -G"));
    }
    hb_error_clear(&err);
    ssh_config_fini(&config);
    ck_assert_int_eq(ssh_config_read("hostname h\nuser \0x\n", 20, &options,
                                     &user, &config, &err),
                     -HVD_EPROTO);
}
END_TEST

START_TEST(copies)
{
    struct ssh_config copy;

    reads("user al\nidentityfile /a\nidentityfile /b\nproxyjump j\nport 9\n");
    ck_assert_int_eq(ssh_config_copy(&config, &copy), 0);
    ck_assert_str_eq(copy.user, "al");
    ck_assert_ptr_ne(copy.user, config.user);
    ck_assert_str_eq(copy.proxy_jump, "j");
    ck_assert_ptr_null(copy.proxy_command);
    ck_assert_int_eq(copy.port, 9);
    ck_assert_str_eq(joined(&copy.identities), "/a|/b");
    ssh_config_fini(&copy);
    ck_assert_ptr_null(copy.user);
}
END_TEST

static int attempt(void *arg)
{
    struct ssh_config read, copy;
    int rc;

    (void)arg;
    rc = ssh_config_read("hostname h\nidentityfile ~/%h\nproxycommand nc %h\n"
                         "userknownhostsfile ~/x y\nbindaddress 1\n",
                         86, &options, &user, &read, NULL);
    if (rc == 0) {
        rc = ssh_config_copy(&read, &copy);
        if (rc == 0)
            ssh_config_fini(&copy);
    }
    ssh_config_fini(&read);
    return rc;
}

START_TEST(out_of_memory)
{
    unit_fail_each(attempt, NULL);
}
END_TEST

START_TEST(who_runs_it)
{
    struct ssh_user u;

    ck_assert_int_eq(setenv("HOME", "/somewhere", 1), 0);
    ck_assert_int_eq(setenv("SSH_AUTH_SOCK", "/sock", 1), 0);
    ck_assert_int_eq(ssh_user_init(&u), 0);
    ck_assert_str_eq(u.home, "/somewhere");
    ck_assert_str_eq(u.agent, "/sock");
    ck_assert_ptr_nonnull(u.name);
    ssh_user_fini(&u);
    ck_assert_int_eq(unsetenv("HOME"), 0);
    ck_assert_int_eq(setenv("SSH_AUTH_SOCK", "", 1), 0);
    ck_assert_int_eq(ssh_user_init(&u), 0);
    ck_assert_ptr_null(u.agent);
    ck_assert_int_eq(u.home[0], '/');
    ssh_user_fini(&u);
}
END_TEST

/* The output of this machine's ssh can be read. */
START_TEST(a_real_one)
{
    static char text[1 << 16];
    FILE *f = popen("command -v ssh >/dev/null && "
                    "ssh -F none -G -p 23 n1 2>/dev/null",
                    "r");
    size_t n;

    ck_assert_ptr_nonnull(f);
    n = fread(text, 1, sizeof(text) - 1, f);
    if (pclose(f) != 0)
        return; /* ssh is not installed */
    text[n] = '\0';
    ck_assert_msg(read_text(text) == 0, "%s", err.text);
    ck_assert_str_eq(config.hostname, "n1");
    ck_assert_int_eq(config.port, 23);
    ck_assert_uint_gt(config.identities.count, 0);
    ck_assert_uint_gt(config.user_known_hosts.count, 0);
    ck_assert_msg(ssh_config_check(&config, &err) == 0, "%s", err.text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ssh_config");
    TCase *t = tcase_create("all");

    suite_add_tcase(s, t);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, defaults);
    tcase_add_test(t, defaults_with_options);
    tcase_add_test(t, settings_about_trust);
    tcase_add_test(t, the_key_of_the_address);
    tcase_add_test(t, a_known_hosts_file_with_blanks);
    tcase_add_test(t, words_that_ask);
    tcase_add_test(t, the_usual);
    tcase_add_test(t, values_that_mean_nothing);
    tcase_add_test(t, host_key_checking);
    tcase_add_test(t, tokens);
    tcase_add_test(t, agents);
    tcase_add_test(t, what_only_ssh_can_do);
    tcase_add_test(t, a_shared_connection);
    tcase_add_test(t, rubbish);
    tcase_add_test(t, copies);
    tcase_add_test(t, out_of_memory);
    tcase_add_test(t, who_runs_it);
    tcase_add_test(t, a_real_one);
    return unit_run(s);
}
