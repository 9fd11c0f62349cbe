/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real sshd for tests, and a libssh2 client for it.
 *
 * A directory holds keys and settings.  A child listens on 127.0.0.1 and gives
 * every connection to an `sshd -i` of its own, or misbehaves, as enum
 * server_mode says.  So no port is guessed and MaxStartups does not count.
 *
 *     server_start(&s, SERVER_SSHD, "MaxAuthTries 2", NULL);
 *     ssh_client_init(&c, &s);
 *     ssh_client_open(&c);
 *     ssh_client_run(&c, until_started);
 *     ...
 *     ssh_client_close(&c); ssh_client_fini(&c); server_stop(&s);
 *
 * Keys in the directory: host_ed25519, host_ecdsa, host_rsa.  Of the user, all
 * accepted by the server: ed25519, ecdsa, p521 (SEC1 PEM), rsa, and with the
 * passphrase LOCKED_PHRASE locked and locked_pem.  Not accepted: stranger.
 */
#ifndef TESTS_SSH_SERVER_H
#define TESTS_SSH_SERVER_H

#include "lib/base/buf.h"
#include "lib/ssh/ssh2.h"

#include <check.h>
#include <sys/types.h>

#define LOCKED_PHRASE "open sesame"

/* Runs a suite of one case.  Returns what main must return; 0 also if no sshd
 * is installed. */
int ssh_fixture_run(const char *name, void (*add_tests)(TCase *t));
/* Returns a path in the directory; valid until the eighth call after it. */
const char *ssh_file(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
void ssh_write(const char *name, mode_t mode, const char *text);
/* Returns the whole text of a file, "" if it does not exist; the caller frees
 * it. */
char *ssh_read(const char *name);
/* Runs a command in the directory; fails the test unless it succeeds. */
void ssh_shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Returns "ssh-ed25519 AAAA..." of a key in the directory, in static memory. */
const char *ssh_public(const char *name);

enum server_mode {
    SERVER_SSHD,    /* works */
    SERVER_SILENT,  /* never sends anything */
    SERVER_CLOSES,  /* closes at once */
    SERVER_GARBAGE, /* sends the text of `extra` */
    SERVER_FLOODS,  /* sends endless lines, none of them a banner */
    SERVER_CUTS,    /* an sshd whose line is cut after `extra` bytes */
    SERVER_NONE,    /* nobody listens */
};

struct ssh_server {
    int port;
    pid_t pid;
    char conf[32];
};

/* Starts a server.  The strings up to NULL are lines for sshd_config; for some
 * modes the first is the mode's `extra`. */
void server_start(struct ssh_server *s, enum server_mode mode, ...)
    __attribute__((sentinel));
void server_stop(struct ssh_server *s);
/* Starts an sshd on a socket pair; returns our end. */
int server_socket(struct ssh_server *s);

struct ssh_client {
    uv_loop_t own_loop, *loop;
    const struct ssh_client *joined; /* client whose loop and keys it shares */
    struct hb_log log;
    struct hb_buf logged;
    const struct ssh2_plugin *plugin;
    struct ssh2_shared *shared;
    struct ssh2_shared_options options;
    struct ssh_config config;       /* may be changed before ssh_client_open */
    struct transport_events events; /* likewise */
    struct transport *t;
    struct hb_buf out, err, stages;
    struct hb_error why; /* argument of on_end */
    int ends, closes, drains;
    const char *close_at; /* stage at which to close; or NULL */
    int asked;            /* number of passphrases asked for */
    const char *answer;
};

const struct ssh2_plugin *ssh_client_plugin(void);
/* Returns whether this libssh2 makes RSA signatures that servers accept.  Call
 * after ssh_client_plugin. */
int ssh_client_has_rsa(void);
/* Prepares a client that trusts the server's ed25519 key and logs in with the
 * user's. */
void ssh_client_init(struct ssh_client *c, const struct ssh_server *s);
/* Prepares a client with the loop, keys and settings of `other`. */
void ssh_client_join(struct ssh_client *c, const struct ssh_client *other);
/* Connects; makes c->shared if there is none. */
void ssh_client_open(struct ssh_client *c);
void ssh_client_open_fd(struct ssh_client *c, int fd);
void ssh_client_write(struct ssh_client *c, const char *text);
/* Runs the loop until `until` returns nonzero; fails the test after a
 * minute. */
void ssh_client_run(struct ssh_client *c,
                    int (*until)(const struct ssh_client *c));
void ssh_client_close(struct ssh_client *c);
void ssh_client_fini(struct ssh_client *c);
/* Closes the client and prepares it for the next ssh_client_open. */
void ssh_client_reset(struct ssh_client *c);

int until_end(const struct ssh_client *c);
int until_close(const struct ssh_client *c);
int until_drained(const struct ssh_client *c);
/* True once "ready" has come, which ssh_client_greet asks for. */
int until_ready(const struct ssh_client *c);
void ssh_client_greet(struct ssh_client *c);

void ssh_client_identity(struct ssh_client *c, const char *name); /* no other */
void ssh_client_known(struct ssh_client *c, const char *text); /* known_hosts */

/* Call ssh_client_open; the connection must work, or end with `status` and
 * `part` in its text. */
void expect_works(struct ssh_client *c);
void expect_fails(struct ssh_client *c, enum hvd_status status,
                  const char *part);

#endif
