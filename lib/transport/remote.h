/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents on other hosts: what transport_open_remote does to reach one.
 *
 * It asks `ssh -G` what the user's configuration says, chooses a launcher
 * (libssh2 in this process, the ssh program, or a command template), opens a
 * stream to /bin/sh on the host, brings the agent there if it is missing
 * (bootstrap.h), and from the agent's first byte on is a plain transport.
 *
 * struct remote is shared by all hosts of one hvdrun: options, the agent's
 * image, the queue that bounds simultaneous handshakes, the passphrase that
 * was asked once.  Errors reach on_end as a phrase after "host NAME: ".
 * Dropped connections are tried again, with growing and random pauses,
 * until the start time-out; refusals, unknown names, host keys and failed
 * authentication are final.
 */
#ifndef HVD_TRANSPORT_REMOTE_H
#define HVD_TRANSPORT_REMOTE_H

#include "lib/hosts/hostlist.h"
#include "lib/transport/transport.h"

enum remote_launcher {
    REMOTE_AUTO, /* ssh2, where it can serve; else openssh */
    REMOTE_SSH2,
    REMOTE_OPENSSH,
    REMOTE_RSH,
};

struct remote_options {
    enum remote_launcher launcher;
    const char *rsh; /* REMOTE_RSH: "kubectl exec -i {host} --" */
    int ssh_port;    /* 0: as configured */
    const char *ssh_user, *ssh_identity, *ssh_config, *ssh_known_hosts;
    int max_startups;         /* simultaneous handshakes */
    const char *agent_path;   /* hvd-agent of this build, to be sent */
    const char *remote_agent; /* an installed one to use; NULL: send ours */
    const char *plugin_dir;   /* where transport-ssh2.so is */
    int64_t start_timeout_ms; /* from remote_new */
};

struct remote;

/* The options are borrowed until remote_free.  0, or -HVD_EINVAL for an
 * --rsh template that is none, with err set. */
int remote_new(uv_loop_t *loop, const struct hb_log *log,
               const struct remote_options *options, struct remote **out,
               struct hb_error *err);
/* After on_close of every transport opened with it. */
void remote_free(struct remote *r);

/* The entry gives name, user and port.  As transport_open_local; what goes
 * wrong later is told by on_end. */
int transport_open_remote(struct remote *r, const struct host_entry *entry,
                          const struct transport_config *config,
                          struct transport **out, struct hb_error *err);

#endif
