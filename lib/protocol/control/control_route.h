/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages that find the addresses over which the hosts of a job reach
 * each other; included by control.h, and with its rules.
 *
 *     agent  -> HELLO           with the host's interfaces
 *     hvdrun -> ROUTE_LISTEN    as soon as that host has said HELLO
 *     agent  -> ROUTE_PORT      its probe listener's port
 *     hvdrun -> ROUTE_PROBE     when all hosts are there: whom to try
 *     agent  -> ROUTE_RESULT    which addresses answered
 *
 * The token proves to a listener and to its caller that the other is an agent
 * of the same job; it has no other use.  LAUNCH closes the listener.
 * ROUTE_PROBE may be sent again after its result.
 */
#ifndef HVD_PROTOCOL_CONTROL_ROUTE_H
#define HVD_PROTOCOL_CONTROL_ROUTE_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/base/sys/netaddr.h"

enum {
    CONTROL_HOSTS_MAX = 65536,
    CONTROL_INTERFACES_MAX = 64, /* addresses of one host */
    CONTROL_TARGETS_MAX = 64,    /* hosts in one ROUTE_PROBE */
    CONTROL_TOKEN_BYTES = 32,
    CONTROL_PROBE_MAX_MS = 30000,
};

enum {
    CONTROL_INTERFACE_UP = 1u << 0,
    CONTROL_INTERFACE_LOOPBACK = 1u << 1,
    /* No hardware is behind it: docker0, a tunnel, a veth.  A bond, bridge or
     * VLAN over hardware is not virtual. */
    CONTROL_INTERFACE_VIRTUAL = 1u << 2,
};

/* One address of one interface. */
struct control_interface {
    char *name;
    int index; /* in the host's kernel */
    struct hb_netaddr address;
    int prefix;     /* bits of its network */
    int speed_mbps; /* 0: unknown */
    unsigned flags;
};

struct control_interfaces {
    struct control_interface *items;
    int count;
};

void control_interfaces_fini(struct control_interfaces *list);

struct control_route_listen {
    unsigned char token[CONTROL_TOKEN_BYTES];
    int host;         /* the agent's index in the plan */
    int reserve_port; /* keep a MASTER_PORT for rank 0 */
};

struct control_route_port {
    int port;
    int reserved; /* 0 if not asked for */
};

enum control_probe {
    CONTROL_PROBE_REACH,   /* which addresses answer */
    CONTROL_PROBE_MEASURE, /* and how fast; one address per target */
};

struct control_route_target {
    int host, port;
    struct hb_netaddr *addresses; /* best first */
    int count;                    /* 1 .. CONTROL_INTERFACES_MAX */
};

struct control_route_probe {
    enum control_probe what;
    int timeout_ms;
    struct control_route_target *targets;
    int count;
};

/* An address that answered. */
struct control_route_answer {
    int host;
    int address;         /* index into the target's addresses */
    int rtt_us;          /* of the first exchange; MEASURE: the median */
    int64_t bytes_per_s; /* MEASURE only; 0: not known */
};

struct control_route_result {
    struct control_route_answer *answers;
    int count;
};

int control_encode_route_listen(struct hb_buf *out,
                                const struct control_route_listen *m);
int control_decode_route_listen(const void *p, size_t len,
                                struct control_route_listen *m,
                                struct hb_error *err);
void control_route_listen_fini(struct control_route_listen *m);

int control_encode_route_port(struct hb_buf *out,
                              const struct control_route_port *m);
int control_decode_route_port(const void *p, size_t len,
                              struct control_route_port *m,
                              struct hb_error *err);
void control_route_port_fini(struct control_route_port *m);

int control_encode_route_probe(struct hb_buf *out,
                               const struct control_route_probe *m);
int control_decode_route_probe(const void *p, size_t len,
                               struct control_route_probe *m,
                               struct hb_error *err);
void control_route_probe_fini(struct control_route_probe *m);

int control_encode_route_result(struct hb_buf *out,
                                const struct control_route_result *m);
int control_decode_route_result(const void *p, size_t len,
                                struct control_route_result *m,
                                struct hb_error *err);
void control_route_result_fini(struct control_route_result *m);

#endif
