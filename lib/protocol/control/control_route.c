/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces and the messages about routes; see control_route.h. */
#include "lib/protocol/control/control_route.h"

#include "lib/base/alloc.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/control/control_route_json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    INTERFACE_NAME_MAX = 64,
    SPEED_MAX_MBPS = 100000000,
    PORT_MAX = 65535,
};

/* ---- Arrays ---- */

/* Allocates the elements of an array of at most `most`, `size` bytes each; NULL
 * if there are none, or after a refusal. */
static void *take_array(struct control_fields *f, const char *name, size_t most,
                        size_t size, json_t **array, int *count)
{
    size_t n;
    void *items = NULL;

    *array = control_take(f, name);
    n = json_array_size(*array);
    if (*array && (!json_is_array(*array) || n > most))
        control_refuse(f, name, "is not an array of a possible length");
    if (f->rc == 0 && n > 0) {
        items = hb_calloc(n, size);
        if (!items)
            control_no_memory(f);
    }
    *count = items ? (int)n : 0;
    return items;
}

/* Opens element i, which must be an object.  End with close_element. */
static int open_element(struct control_fields *f, json_t *array, int i,
                        const char *name, struct control_fields *one)
{
    *one = (struct control_fields){json_array_get(array, (size_t)i), f->what,
                                   f->err, f->rc};
    if (!json_is_object(one->object))
        control_refuse(one, name, "holds something other than objects");
    f->rc = one->rc;
    return f->rc;
}

static void close_element(struct control_fields *f, struct control_fields *one)
{
    control_nothing_left(one);
    f->rc = one->rc;
}

/* Returns the builder's object as an element; NULL if building it failed. */
static json_t *builder_object(struct control_builder *b)
{
    if (!b->failed)
        return b->object;
    json_decref(b->object);
    return NULL;
}

/* ---- Interfaces ---- */

static void put_address(struct control_builder *b, const char *name,
                        const struct hb_netaddr *address)
{
    char text[HB_NETADDR_TEXT_MAX];

    control_put_string(b, name, hb_netaddr_format(address, text));
}

static json_t *encode_interface(const struct control_interface *i)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put_string(&b, "name", i->name);
    control_put_int(&b, "index", i->index);
    put_address(&b, "address", &i->address);
    control_put_int(&b, "prefix", i->prefix);
    control_put_int(&b, "speed", i->speed_mbps);
    control_put_bool(&b, "up", i->flags & CONTROL_INTERFACE_UP);
    control_put_bool(&b, "loopback", i->flags & CONTROL_INTERFACE_LOOPBACK);
    control_put_bool(&b, "virtual", i->flags & CONTROL_INTERFACE_VIRTUAL);
    return builder_object(&b);
}

json_t *control_json_interfaces(const struct control_interfaces *list)
{
    json_t *array = json_array();

    for (int i = 0; array && i < list->count; i++) {
        if (json_array_append_new(array, encode_interface(&list->items[i])) <
            0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

void control_interfaces_fini(struct control_interfaces *list)
{
    for (int i = 0; i < list->count; i++)
        hb_free(list->items[i].name);
    hb_free(list->items);
    memset(list, 0, sizeof(*list));
}

static void take_address(struct control_fields *f, const char *name,
                         struct hb_netaddr *address)
{
    char *text = control_take_string(f, name);

    if (text && hb_netaddr_parse(text, address) < 0)
        control_refuse(f, name, "is not a numeric address");
    hb_free(text);
}

static void decode_interface(struct control_fields *f,
                             struct control_interface *i)
{
    i->name = control_take_nonempty(f, "name");
    if (i->name && strlen(i->name) > INTERFACE_NAME_MAX)
        control_refuse(f, "name", "is too long");
    i->index = control_take_int(f, "index", 0, INT_MAX);
    take_address(f, "address", &i->address);
    i->prefix = control_take_int(f, "prefix", 0, hb_netaddr_bits(&i->address));
    i->speed_mbps = control_take_int(f, "speed", 0, SPEED_MAX_MBPS);
    if (control_take_bool(f, "up"))
        i->flags |= CONTROL_INTERFACE_UP;
    if (control_take_bool(f, "loopback"))
        i->flags |= CONTROL_INTERFACE_LOOPBACK;
    if (control_take_bool(f, "virtual"))
        i->flags |= CONTROL_INTERFACE_VIRTUAL;
}

void control_take_interfaces(struct control_fields *f, const char *name,
                             struct control_interfaces *list)
{
    json_t *array;

    list->items = take_array(f, name, CONTROL_INTERFACES_MAX,
                             sizeof(*list->items), &array, &list->count);
    for (int i = 0; i < list->count; i++) {
        struct control_fields one;

        if (open_element(f, array, i, name, &one) < 0)
            break;
        decode_interface(&one, &list->items[i]);
        close_element(f, &one);
    }
    json_decref(array);
}

/* ---- ROUTE_LISTEN ---- */

static const struct control_field listen_fields[] = {
    CONTROL_FIELD_INT(control_route_listen, host, 0, CONTROL_HOSTS_MAX - 1),
    CONTROL_FIELD(control_route_listen, reserve_port, CONTROL_BOOL),
    CONTROL_FIELDS_END,
};

int control_encode_route_listen(struct hb_buf *out,
                                const struct control_route_listen *m)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put(&b, "token", control_json_hex(m->token, sizeof(m->token)));
    control_put_table(&b, listen_fields, m);
    return control_builder_finish(&b, out, CONTROL_ROUTE_LISTEN);
}

void control_route_listen_fini(struct control_route_listen *m)
{
    explicit_bzero(m, sizeof(*m));
}

int control_decode_route_listen(const void *p, size_t len,
                                struct control_route_listen *m,
                                struct hb_error *err)
{
    struct control_fields f;
    char *hex;
    int rc;

    memset(m, 0, sizeof(*m));
    control_fields_open(&f, "route_listen", p, len, err);
    hex = control_take_string(&f, "token");
    if (hex && (strlen(hex) != 2 * sizeof(m->token) ||
                control_decode_hex(hex, sizeof(m->token), m->token) < 0))
        control_refuse(&f, "token", "is not 64 hex digits");
    if (hex)
        explicit_bzero(hex, strlen(hex));
    hb_free(hex);
    control_take_table(&f, listen_fields, m);
    rc = control_fields_close(&f);
    if (rc < 0)
        control_route_listen_fini(m);
    return rc;
}

/* ---- ROUTE_PORT ---- */

static const struct control_field route_port_fields[] = {
    CONTROL_FIELD_INT(control_route_port, port, 1, PORT_MAX),
    CONTROL_FIELD_INT(control_route_port, reserved, 0, PORT_MAX),
    CONTROL_FIELDS_END,
};

static const struct control_message route_port_message = {
    CONTROL_ROUTE_PORT, "route_port", sizeof(struct control_route_port),
    route_port_fields};

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

static const struct control_field probe_fields[] = {
    CONTROL_FIELD_WORD(control_route_probe, what, probe_words, PROBE_COUNT),
    CONTROL_FIELD_INT(control_route_probe, timeout_ms, 1, CONTROL_PROBE_MAX_MS),
    CONTROL_FIELDS_END,
};

static const struct control_field target_fields[] = {
    CONTROL_FIELD_INT(control_route_target, host, 0, CONTROL_HOSTS_MAX - 1),
    CONTROL_FIELD_INT(control_route_target, port, 1, PORT_MAX),
    CONTROL_FIELDS_END,
};

static json_t *encode_addresses(const struct hb_netaddr *addresses, int count)
{
    json_t *array = json_array();
    char text[HB_NETADDR_TEXT_MAX];

    for (int i = 0; array && i < count; i++) {
        hb_netaddr_format(&addresses[i], text);
        if (json_array_append_new(array, json_string(text)) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *encode_targets(const struct control_route_probe *m)
{
    json_t *array = json_array();

    for (int i = 0; array && i < m->count; i++) {
        const struct control_route_target *t = &m->targets[i];
        struct control_builder b;

        control_builder_init(&b);
        control_put_table(&b, target_fields, t);
        control_put(&b, "addresses", encode_addresses(t->addresses, t->count));
        if (json_array_append_new(array, builder_object(&b)) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

int control_encode_route_probe(struct hb_buf *out,
                               const struct control_route_probe *m)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put_table(&b, probe_fields, m);
    control_put(&b, "targets", encode_targets(m));
    return control_builder_finish(&b, out, CONTROL_ROUTE_PROBE);
}

void control_route_probe_fini(struct control_route_probe *m)
{
    for (int i = 0; i < m->count; i++)
        hb_free(m->targets[i].addresses);
    hb_free(m->targets);
    memset(m, 0, sizeof(*m));
}

static void decode_target(struct control_fields *f,
                          struct control_route_target *t)
{
    json_t *array;

    control_take_table(f, target_fields, t);
    t->addresses = take_array(f, "addresses", CONTROL_INTERFACES_MAX,
                              sizeof(*t->addresses), &array, &t->count);
    if (f->rc == 0 && t->count == 0)
        control_refuse(f, "addresses", "is empty");
    for (int i = 0; f->rc == 0 && i < t->count; i++) {
        const char *s = json_string_value(json_array_get(array, (size_t)i));

        if (!s || hb_netaddr_parse(s, &t->addresses[i]) < 0)
            control_refuse(f, "addresses",
                           "holds something other than addresses");
    }
    json_decref(array);
}

int control_decode_route_probe(const void *p, size_t len,
                               struct control_route_probe *m,
                               struct hb_error *err)
{
    struct control_fields f;
    json_t *array;
    int rc;

    memset(m, 0, sizeof(*m));
    control_fields_open(&f, "route_probe", p, len, err);
    control_take_table(&f, probe_fields, m);
    m->targets = take_array(&f, "targets", CONTROL_TARGETS_MAX,
                            sizeof(*m->targets), &array, &m->count);
    for (int i = 0; i < m->count; i++) {
        struct control_fields one;

        if (open_element(&f, array, i, "targets", &one) < 0)
            break;
        decode_target(&one, &m->targets[i]);
        close_element(&f, &one);
    }
    json_decref(array);
    rc = control_fields_close(&f);
    if (rc < 0)
        control_route_probe_fini(m);
    return rc;
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

static json_t *encode_answers(const struct control_route_result *m)
{
    json_t *array = json_array();

    for (int i = 0; array && i < m->count; i++) {
        struct control_builder b;

        control_builder_init(&b);
        control_put_table(&b, answer_fields, &m->answers[i]);
        if (json_array_append_new(array, builder_object(&b)) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

int control_encode_route_result(struct hb_buf *out,
                                const struct control_route_result *m)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put(&b, "answers", encode_answers(m));
    return control_builder_finish(&b, out, CONTROL_ROUTE_RESULT);
}

void control_route_result_fini(struct control_route_result *m)
{
    hb_free(m->answers);
    memset(m, 0, sizeof(*m));
}

int control_decode_route_result(const void *p, size_t len,
                                struct control_route_result *m,
                                struct hb_error *err)
{
    struct control_fields f;
    json_t *array;
    int rc;

    memset(m, 0, sizeof(*m));
    control_fields_open(&f, "route_result", p, len, err);
    m->answers =
        take_array(&f, "answers", CONTROL_TARGETS_MAX * CONTROL_INTERFACES_MAX,
                   sizeof(*m->answers), &array, &m->count);
    for (int i = 0; i < m->count; i++) {
        struct control_fields one;

        if (open_element(&f, array, i, "answers", &one) < 0)
            break;
        control_take_table(&one, answer_fields, &m->answers[i]);
        close_element(&f, &one);
    }
    json_decref(array);
    rc = control_fields_close(&f);
    if (rc < 0)
        control_route_result_fini(m);
    return rc;
}
