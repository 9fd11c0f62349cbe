/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SSH by libssh2: a stream to /bin/sh on a host, in this process.
 *
 * It lives in a plug-in, transport-ssh2.so, so that a job on one machine does
 * not load the cryptography.  The plug-in exports ssh2_plugin:
 *
 *     ssh2_plugin_fn *get = (ssh2_plugin_fn *)dlsym(so, SSH2_PLUGIN_SYMBOL);
 *     const struct ssh2_plugin *ssh2 = get(SSH2_PLUGIN_ABI);   or NULL
 *     shared = ssh2->shared_new(&options);
 *     ssh2->open(shared, &transport_config, &open, &t, &err);
 *     ... transport_write, transport_close, on_close of all ...
 *     ssh2->shared_free(shared);
 *
 * Threads resolve names, connect, exchange keys and authenticate, for several
 * hosts at a time; then the session moves to the loop, which does all its I/O.
 * Callbacks come on the loop only.
 *
 * on_end's err->status:
 *   HVD_ETIMEOUT, HVD_ECLOSED   it may be tried again
 *   HVD_EUNSUPPORTED            libssh2 cannot, the ssh program may
 *   HVD_EPEER                   the shell was reached and has ended ("it
 *                               exited with code 127"); NULL err: with 0
 *   others                      final: HVD_EPERM (host key, authentication),
 *                               HVD_EINVAL (no such name), HVD_ESYSTEM,
 *                               HVD_EPROTO (not an ssh server)
 * The text is a phrase after "host NAME: ".
 *
 * The shared object holds what hosts share: the number of simultaneous
 * handshakes, and keys, whose passphrases are asked once and which forget_keys
 * and shared_free wipe.  While there are keys, this process writes no core
 * file.
 *
 * Threads that hang because a name server is silent are abandoned: the plug-in
 * is never unloaded (-z nodelete), and dlclose is not needed.
 */
#ifndef HVD_TRANSPORT_SSH2_H
#define HVD_TRANSPORT_SSH2_H

#include "lib/ssh/ssh_config.h"
#include "lib/transport/transport.h"

#define SSH2_PLUGIN_FILE "transport-ssh2.so"
#define SSH2_PLUGIN_SYMBOL "ssh2_plugin"

enum { SSH2_PLUGIN_ABI = 3, SSH2_PASSPHRASE_MAX = 1024 };

struct ssh2_shared;

struct ssh2_shared_options {
    const struct hb_log *log; /* used on the loop's thread only */
    int max_startups;         /* handshakes at a time; 0: 16 */
    /* Asks the user.  0 with a string in out, or negative if nobody can be
     * asked or there is no answer.  Called on a thread, one call at a time;
     * returns early when cancel_fd becomes readable.  NULL: ask on /dev/tty,
     * unless CI is set in the environment. */
    int (*ask)(void *arg, const char *prompt, int cancel_fd,
               char out[SSH2_PASSPHRASE_MAX]);
    void *ask_arg;
};

struct ssh2_open {
    const struct ssh_config *config; /* copied */
    /* A connection to the server (a proxy's socket), or -1.  The transport
     * closes it, and so does open if it fails. */
    int fd;
};

struct ssh2_plugin {
    struct ssh2_shared *(*shared_new)(const struct ssh2_shared_options *o);
    /* Call it after on_close of every transport. */
    void (*shared_free)(struct ssh2_shared *shared);
    /* Call it when no host is being reached any more: wipes keys as soon as no
     * thread uses them.  Hosts opened later read keys again, but no passphrase
     * is asked then. */
    void (*forget_keys)(struct ssh2_shared *shared);
    /* 0, or negative with err set and no callback. */
    int (*open)(struct ssh2_shared *shared,
                const struct transport_config *config,
                const struct ssh2_open *open, struct transport **out,
                struct hb_error *err);
};

/* Returns NULL for another abi. */
typedef const struct ssh2_plugin *ssh2_plugin_fn(int abi);
ssh2_plugin_fn ssh2_plugin;

#endif
