/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of PMI-1, the wire protocol by which MPICH and Intel MPI talk to
 * their launcher: for the ranks of one host.
 *
 * A message is a line of KEY=VALUE words, of at most PMI1_LINE_MAX bytes.  Each
 * request gets one line as its reply, except barrier_in, which is answered by
 * barrier_out when all ranks of the job are there, and abort.  A rank begins
 * with init and ends with finalize.  Versions 1.0 to 1.2 are understood; the
 * server speaks 1.1.
 *
 * Pure: bytes in, lines and events out, through callbacks, which must not call
 * the server, except for on_broken, on_abort and on_barrier, which are the last
 * thing that a call does.
 */
#ifndef HVD_AGENT_WIREUP_PMI1_SERVER_H
#define HVD_AGENT_WIREUP_PMI1_SERVER_H

#include "lib/agent/wireup/pmi1/pmi1_kvs.h"
#include "lib/protocol/control/control.h"

enum {
    PMI1_LINE_MAX = 1024, /* bytes of a line with its end */
    /* what ranks are told is the longest value: with it, the longest key and
     * the name of the space, a PUT fits a line */
    PMI1_VALUE_OFFER = 880,
    PMI1_RANK_KEYS_MAX = 4096,
    PMI1_RANK_BYTES_MAX = 1 << 20, /* of keys and values that a rank has put */
};

struct pmi1_events {
    /* Sends a line, which ends with '\n', to a rank. */
    void (*on_line)(void *arg, int slot, const char *line, size_t len);
    void (*on_connected)(void *arg, int slot);
    void (*on_finished)(void *arg, int slot);
    void (*on_abort)(void *arg, int slot, int exit_code);
    /* The rank wanted to spawn processes, which was refused. */
    void (*on_spawn)(void *arg, int slot);
    /* The rank broke the protocol: nothing more of it is read. */
    void (*on_broken)(void *arg, int slot, const char *why);
    /* All ranks of this host are in the barrier: exchange server->kvs.news with
     * the other hosts, if there are any, then call pmi1_server_release. */
    void (*on_barrier)(void *arg);
};

struct pmi1_rank {
    struct hb_buf in;
    int greeted, finished, broken, in_barrier;
    /* Between mcmd=spawn and endcmd: which of how many such blocks it is, the
     * last of which gets the reply. */
    int in_spawn, spawn, spawns;
    int key_count;
    size_t key_bytes;
};

struct pmi1_server {
    const struct pmi1_events *events;
    void *arg;
    int size, rank_count; /* ranks of the job, of this host */
    struct pmi1_rank *ranks;
    int waiting;   /* ranks in the barrier */
    char name[64]; /* of the key-value space */
    char *mapping; /* value of PMI_process_mapping, or NULL */
    struct pmi1_kvs kvs;
};

void pmi1_server_init(struct pmi1_server *s, const struct control_launch *job,
                      const struct pmi1_events *events, void *arg);
void pmi1_server_fini(struct pmi1_server *s);

/* Handles what the rank in `slot` has sent. */
void pmi1_server_input(struct pmi1_server *s, int slot, const char *bytes,
                       size_t len);
/* Lets all ranks out of the barrier. */
void pmi1_server_release(struct pmi1_server *s);

/*
 * Returns which ranks share a host, in the form of PMI_process_mapping, as a
 * heap string: "(vector,(0,2,4))" says that two hosts from host 0 on have four
 * consecutive ranks each.  MPICH repeats the list until all ranks have a host.
 * NULL if it would be longer than PMI1_VALUE_MAX: MPICH then compares the names
 * of hosts.  `hosts` has the host of each rank.
 */
char *pmi1_mapping(const int *hosts, int size);

#endif
