/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents on other hosts: how transport_open_remote reaches them.
 *
 * It asks `ssh -G` for the user's configuration, chooses a launcher (libssh2 in
 * this process, the ssh program, or a command template), opens a stream to
 * /bin/sh on the host, sends the agent if it is missing there (bootstrap.h),
 * and is a plain transport from the agent's first byte on.
 *
 * struct remote is shared by all hosts of one hvdrun: options, the agent's
 * image, the queue that limits simultaneous handshakes, and passphrases, each
 * asked for once.  Errors reach on_end as a phrase after "host NAME: ".
 * Dropped connections are tried again, with growing and random pauses, until
 * the start time-out; refusals, unknown names, host keys and failed
 * authentication are final.
 */
#ifndef HVD_TRANSPORT_REMOTE_H
#define HVD_TRANSPORT_REMOTE_H

#include "lib/hosts/hostlist.h"
#include "lib/remote/launchers.h"
#include "lib/transport/transport.h"

struct remote_options {
    enum remote_launcher launcher;
    const char *rsh; /* REMOTE_RSH: "kubectl exec -i {host} --" */
    int ssh_port;    /* 0: as configured */
    const char *ssh_user, *ssh_identity, *ssh_config, *ssh_known_hosts;
    int max_startups;         /* simultaneous handshakes */
    const char *agent_path;   /* this build's hvd-agent, to be sent */
    const char *remote_agent; /* path of an installed agent; NULL: send ours */
    const char *plugin_dir;   /* holds transport-ssh2.so */
    int64_t start_timeout_ms; /* from remote_new */
};

struct remote;

/* Creates *out.  The options are borrowed until remote_free.  0, or -HVD_EINVAL
 * with err set for an invalid --rsh template. */
int remote_new(uv_loop_t *loop, const struct hb_log *log,
               const struct remote_options *options, struct remote **out,
               struct hb_error *err);
/* Wipes the keys when no host is being reached; until this call they are kept,
 * because the hosts may have to be reached again. */
void remote_release_keys(struct remote *r);
/* Sets how long transports opened from now on may try. */
void remote_try_for(struct remote *r, int64_t timeout_ms);
/* Frees r; to be called after on_close of every transport opened with r. */
void remote_free(struct remote *r);

/* Opens a transport to the host of `entry` (name, user and port).  As
 * transport_open_local; later errors reach on_end. */
int transport_open_remote(struct remote *r, const struct host_entry *entry,
                          const struct transport_config *config,
                          struct transport **out, struct hb_error *err);

#endif
