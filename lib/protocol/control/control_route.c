/* SPDX-License-Identifier: Apache-2.0 */
/* The messages about routes; see control_route.h. */
#include "lib/protocol/control/control_route.h"

#include "lib/protocol/control/control.h"
#include "lib/protocol/control/control_json.h"

#include <limits.h>

enum {
    PORT_MAX = 65535,
};

/* ---- ROUTE_LISTEN ---- */

static const struct control_field listen_fields[] = {
    CONTROL_FIELD(control_route_listen, token, CONTROL_HEX),
    CONTROL_FIELD_INT(control_route_listen, host, 0, CONTROL_HOSTS_MAX - 1),
    CONTROL_FIELD(control_route_listen, reserve_port, CONTROL_BOOL),
    CONTROL_FIELDS_END,
};

static const struct control_message listen_message = {
    CONTROL_ROUTE_LISTEN, "route_listen", sizeof(struct control_route_listen),
    listen_fields, NULL};

int control_encode_route_listen(struct hb_buf *out,
                                const struct control_route_listen *m)
{
    return control_encode_message(out, &listen_message, m);
}

void control_route_listen_fini(struct control_route_listen *m)
{
    control_message_fini(&listen_message, m);
}

int control_decode_route_listen(const void *p, size_t len,
                                struct control_route_listen *m,
                                struct hb_error *err)
{
    return control_decode_message(&listen_message, p, len, m, err);
}

/* ---- ROUTE_PORT ---- */

static const struct control_field route_port_fields[] = {
    CONTROL_FIELD_INT(control_route_port, port, 1, PORT_MAX),
    CONTROL_FIELD_INT(control_route_port, reserved, 0, PORT_MAX),
    CONTROL_FIELDS_END,
};

static const struct control_message route_port_message = {
    CONTROL_ROUTE_PORT, "route_port", sizeof(struct control_route_port),
    route_port_fields, NULL};

int control_encode_route_port(struct hb_buf *out,
                              const struct control_route_port *m)
{
    return control_encode_message(out, &route_port_message, m);
}

void control_route_port_fini(struct control_route_port *m)
{
    control_message_fini(&route_port_message, m);
}

int control_decode_route_port(const void *p, size_t len,
                              struct control_route_port *m,
                              struct hb_error *err)
{
    return control_decode_message(&route_port_message, p, len, m, err);
}

/* ---- ROUTE_PROBE ---- */

static const char *const probe_words[] = {
    [CONTROL_PROBE_REACH] = "reach",
    [CONTROL_PROBE_MEASURE] = "measure",
};
enum { PROBE_COUNT = sizeof(probe_words) / sizeof(probe_words[0]) };

static const struct control_field address_element[] = {
    CONTROL_ELEMENT(struct hb_netaddr, CONTROL_ADDRESS, 0, 0),
    CONTROL_FIELDS_END,
};

static const struct control_field target_fields[] = {
    CONTROL_FIELD_INT(control_route_target, host, 0, CONTROL_HOSTS_MAX - 1),
    CONTROL_FIELD_INT(control_route_target, port, 1, PORT_MAX),
    CONTROL_FIELD_ARRAY("addresses", control_route_target, addresses, count, 1,
                        CONTROL_INTERFACES_MAX, address_element),
    CONTROL_FIELDS_END,
};

static const struct control_field probe_fields[] = {
    CONTROL_FIELD_WORD(control_route_probe, what, probe_words, PROBE_COUNT),
    CONTROL_FIELD_INT(control_route_probe, timeout_ms, 1, CONTROL_PROBE_MAX_MS),
    CONTROL_FIELD_ARRAY("targets", control_route_probe, targets, count, 0,
                        CONTROL_TARGETS_MAX, target_fields),
    CONTROL_FIELDS_END,
};

static const struct control_message probe_message = {
    CONTROL_ROUTE_PROBE, "route_probe", sizeof(struct control_route_probe),
    probe_fields, NULL};

int control_encode_route_probe(struct hb_buf *out,
                               const struct control_route_probe *m)
{
    return control_encode_message(out, &probe_message, m);
}

void control_route_probe_fini(struct control_route_probe *m)
{
    control_message_fini(&probe_message, m);
}

int control_decode_route_probe(const void *p, size_t len,
                               struct control_route_probe *m,
                               struct hb_error *err)
{
    return control_decode_message(&probe_message, p, len, m, err);
}

/* ---- ROUTE_RESULT ---- */

static const struct control_field answer_fields[] = {
    CONTROL_FIELD_INT(control_route_answer, host, 0, CONTROL_HOSTS_MAX - 1),
    CONTROL_FIELD_INT(control_route_answer, address, 0,
                      CONTROL_INTERFACES_MAX - 1),
    CONTROL_FIELD_INT(control_route_answer, rtt_us, 0, INT_MAX),
    CONTROL_FIELD_INT(control_route_answer, bytes_per_s, 0, INT64_MAX),
    CONTROL_FIELDS_END,
};

static const struct control_field result_fields[] = {
    CONTROL_FIELD_ARRAY("answers", control_route_result, answers, count, 0,
                        CONTROL_TARGETS_MAX *CONTROL_INTERFACES_MAX,
                        answer_fields),
    CONTROL_FIELDS_END,
};

static const struct control_message result_message = {
    CONTROL_ROUTE_RESULT, "route_result", sizeof(struct control_route_result),
    result_fields, NULL};

int control_encode_route_result(struct hb_buf *out,
                                const struct control_route_result *m)
{
    return control_encode_message(out, &result_message, m);
}

void control_route_result_fini(struct control_route_result *m)
{
    control_message_fini(&result_message, m);
}

int control_decode_route_result(const void *p, size_t len,
                                struct control_route_result *m,
                                struct hb_error *err)
{
    return control_decode_message(&result_message, p, len, m, err);
}
