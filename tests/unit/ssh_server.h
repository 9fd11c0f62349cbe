/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real sshd for tests, and a client on libssh2 for it.
 *
 * A directory holds keys and settings.  A child listens on 127.0.0.1 and
 * gives every connection to an `sshd -i` of its own, or does something
 * worse with it, so that no port is guessed and MaxStartups does not count.
 *
 *     server_start(&s, SERVER_SSHD, "MaxAuthTries 2", NULL);
 *     ssh_client_init(&c, &s);
 *     ssh_client_open(&c);
 *     ssh_client_run(&c, until_started);
 *     ...
 *     ssh_client_close(&c); ssh_client_fini(&c); server_stop(&s);
 *
 * Keys in the directory: host_ed25519, host_ecdsa, host_rsa; the user's
 * ed25519, ecdsa, p521 (SEC1 PEM), rsa, locked (passphrase LOCKED_PHRASE),
 * locked_pem (likewise), all of which the server accepts, and stranger,
 * which it does not.
 */
#ifndef TESTS_SSH_SERVER_H
#define TESTS_SSH_SERVER_H

#include "lib/base/buf.h"
#include "lib/transport/ssh2.h"

#include <check.h>
#include <sys/types.h>

#define LOCKED_PHRASE "open sesame"

/* A suite of one case: what its main returns, 0 too if there is no sshd for
 * tests here. */
int ssh_fixture_run(const char *name, void (*add_tests)(TCase *t));
/* A path in the directory; valid until the eighth call after. */
const char *ssh_file(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
void ssh_write(const char *name, mode_t mode, const char *text);
/* The whole text of a file, "" when there is none; on the heap. */
char *ssh_read(const char *name);
/* Runs a command in the directory; it must succeed. */
void ssh_shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "ssh-ed25519 AAAA..." of a key in the directory; static. */
const char *ssh_public(const char *name);

enum server_mode {
    SERVER_SSHD,    /* does what it should */
    SERVER_SILENT,  /* never says a word */
    SERVER_CLOSES,  /* at once */
    SERVER_GARBAGE, /* says the text of `extra` */
    SERVER_FLOODS,  /* lines without end, none of them a banner */
    SERVER_CUTS,    /* an sshd whose line is cut after `extra` bytes */
    SERVER_NONE,    /* nobody listens */
};

struct ssh_server {
    int port;
    pid_t pid;
    char conf[32];
};

/* extra, and more strings up to NULL: lines for sshd_config; for some modes
 * the first has another meaning. */
void server_start(struct ssh_server *s, enum server_mode mode, ...)
    __attribute__((sentinel));
void server_stop(struct ssh_server *s);
/* An sshd on a socket pair; returns our end. */
int server_socket(struct ssh_server *s);

struct ssh_client {
    uv_loop_t own_loop, *loop;
    const struct ssh_client *joined; /* whose loop and keys it uses */
    struct hb_log log;
    struct hb_buf logged;
    const struct ssh2_plugin *plugin;
    struct ssh2_shared *shared;
    struct ssh2_shared_options options;
    struct ssh_config config;       /* may be changed before ssh_client_open */
    struct transport_events events; /* likewise */
    struct transport *t;
    struct hb_buf out, err, stages;
    struct hb_error why; /* of on_end */
    int ends, closes, drains;
    const char *close_at; /* a stage at which to close */
    int asked;            /* passphrases */
    const char *answer;
};

const struct ssh2_plugin *ssh_client_plugin(void);
/* Can this libssh2 use RSA keys as servers want it?  After the above. */
int ssh_client_has_rsa(void);
/* Trusts the server's ed25519 key, and logs in with the ed25519 key. */
void ssh_client_init(struct ssh_client *c, const struct ssh_server *s);
/* With the loop, the keys and the settings of another. */
void ssh_client_join(struct ssh_client *c, const struct ssh_client *other);
/* Makes shared if there is none. */
void ssh_client_open(struct ssh_client *c);
void ssh_client_open_fd(struct ssh_client *c, int fd);
void ssh_client_write(struct ssh_client *c, const char *text);
/* Runs the loop until `until` holds, then returns; fails after a minute. */
void ssh_client_run(struct ssh_client *c,
                    int (*until)(const struct ssh_client *c));
void ssh_client_close(struct ssh_client *c);
void ssh_client_fini(struct ssh_client *c);
/* ssh_client_close, and a new start for the next ssh_client_open. */
void ssh_client_reset(struct ssh_client *c);

int until_end(const struct ssh_client *c);
int until_close(const struct ssh_client *c);
int until_drained(const struct ssh_client *c);
/* "ready" has come; ssh_client_greet asks for it. */
int until_ready(const struct ssh_client *c);
void ssh_client_greet(struct ssh_client *c);

void ssh_client_identity(struct ssh_client *c,
                         const char *name); /* the only one */
void ssh_client_known(struct ssh_client *c, const char *text); /* known_hosts */

/* ssh_client_open, then it must get as far, or end like that. */
void expect_works(struct ssh_client *c);
void expect_fails(struct ssh_client *c, enum hvd_status status,
                  const char *part);

#endif
