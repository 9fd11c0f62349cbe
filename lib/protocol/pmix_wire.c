/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs of pmix_wire.h.  A name, path or variable is a u16 length and its
 * bytes; data reach to the end of the message.
 */
#include "lib/protocol/pmix_wire.h"

#include "lib/base/alloc.h"

#include <string.h>

enum { ITEM_BYTES = 8 };

static size_t text_bytes(const char *s)
{
    return 2 + strlen(s);
}

static void put_text(struct hb_buf *out, const char *s)
{
    size_t len = strlen(s);

    hb_buf_put_u16(out, (uint16_t)len);
    hb_buf_append(out, s, len);
}

static void read_text(struct hb_reader *r, char *out, size_t size)
{
    hb_read_text(r, hb_read_u16(r), out, size);
}

/* ---- SETUP ------------------------------------------------------------ */

void pmix_setup_fini(struct pmix_setup *m)
{
    hb_strv_free(&m->hosts);
    hb_free(m->host_of);
    m->host_of = NULL;
}

/* Returns whether the name can be in a list that is separated by commas and
 * semicolons. */
static int is_name(const char *s)
{
    return *s && strlen(s) < PMIX_WIRE_NAME_MAX && !strpbrk(s, ",;");
}

/* Checks everything but that the names of hosts differ. */
static int setup_is_valid(const struct pmix_setup *m)
{
    size_t hosts = m->hosts.count;

    if (m->size < 1 || m->size > PMIX_WIRE_RANKS_MAX || hosts < 1 ||
        hosts > PMIX_WIRE_RANKS_MAX || m->host_index >= hosts ||
        !is_name(m->nspace) || !m->library[0] || m->dir[0] != '/')
        return 0;
    for (size_t i = 0; i < hosts; i++)
        if (!is_name(m->hosts.items[i]))
            return 0;
    for (uint32_t i = 0; i < m->size; i++)
        if (m->host_of[i] >= hosts)
            return 0;
    return 1;
}

static size_t setup_bytes(const struct pmix_setup *m)
{
    size_t len = text_bytes(m->nspace) + text_bytes(m->library) +
                 text_bytes(m->dir) + 5 * 4 + 4 * (size_t)m->size;

    for (size_t i = 0; i < m->hosts.count; i++)
        len += text_bytes(m->hosts.items[i]);
    return len;
}

int pmix_wire_encode_setup(struct hb_buf *out, const struct pmix_setup *m)
{
    int rc;

    if (!setup_is_valid(m))
        return -HVD_EINVAL;
    rc = frame_begin(out, PMIX_WIRE_SETUP, setup_bytes(m));
    if (rc < 0)
        return rc;
    put_text(out, m->nspace);
    put_text(out, m->library);
    put_text(out, m->dir);
    hb_buf_put_u32(out, m->uid);
    hb_buf_put_u32(out, m->gid);
    hb_buf_put_u32(out, m->host_index);
    hb_buf_put_u32(out, (uint32_t)m->hosts.count);
    for (size_t i = 0; i < m->hosts.count; i++)
        put_text(out, m->hosts.items[i]);
    hb_buf_put_u32(out, m->size);
    for (uint32_t i = 0; i < m->size; i++)
        hb_buf_put_u32(out, m->host_of[i]);
    return 0;
}

static int read_hosts(struct hb_reader *r, struct pmix_setup *m)
{
    uint32_t count = hb_read_u32(r);
    char name[PMIX_WIRE_NAME_MAX];
    int rc = 0;

    if (count > PMIX_WIRE_RANKS_MAX)
        r->bad = 1;
    for (uint32_t i = 0; i < count && !r->bad && rc == 0; i++) {
        name[0] = '\0';
        read_text(r, name, sizeof(name));
        rc = hb_strv_add(&m->hosts, name);
    }
    return rc;
}

static int read_host_of(struct hb_reader *r, struct pmix_setup *m)
{
    m->size = hb_read_u32(r);
    /* Compared with what is there before memory is taken for it. */
    if (r->bad || r->left != 4 * (size_t)m->size) {
        r->bad = 1;
        return 0;
    }
    m->host_of = hb_calloc((size_t)m->size + 1, sizeof(*m->host_of));
    if (!m->host_of)
        return -HVD_ENOMEM;
    for (uint32_t i = 0; i < m->size; i++)
        m->host_of[i] = hb_read_u32(r);
    return 0;
}

int pmix_wire_decode_setup(const void *p, size_t len, struct pmix_setup *m)
{
    struct hb_reader r;
    int rc;

    memset(m, 0, sizeof(*m));
    hb_reader_init(&r, p, len);
    read_text(&r, m->nspace, sizeof(m->nspace));
    read_text(&r, m->library, sizeof(m->library));
    read_text(&r, m->dir, sizeof(m->dir));
    m->uid = hb_read_u32(&r);
    m->gid = hb_read_u32(&r);
    m->host_index = hb_read_u32(&r);
    rc = read_hosts(&r, m);
    if (rc == 0)
        rc = read_host_of(&r, m);
    if (rc == 0 && (r.bad || r.left || !setup_is_valid(m)))
        rc = -HVD_EPROTO;
    if (rc < 0) {
        pmix_setup_fini(m);
        memset(m, 0, sizeof(*m));
    }
    return rc;
}

/* ---- READY ------------------------------------------------------------ */

void pmix_ready_fini(struct pmix_ready *m)
{
    for (uint32_t i = 0; m->ranks && i < m->count; i++)
        hb_strv_free(&m->ranks[i].env);
    hb_free(m->ranks);
    m->ranks = NULL;
    m->count = 0;
}

/* Returns whether the text is NAME=VALUE with a usual name. */
static int is_variable(const char *s)
{
    size_t name = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "abcdefghijklmnopqrstuvwxyz_0123456789");

    return name > 0 && s[name] == '=' && strlen(s) < PMIX_WIRE_ENV_BYTES;
}

static int rank_env_is_valid(const struct pmix_rank_env *m)
{
    if (m->rank >= PMIX_WIRE_RANKS_MAX || m->env.count > PMIX_WIRE_ENV_MAX)
        return 0;
    for (size_t i = 0; i < m->env.count; i++)
        if (!is_variable(m->env.items[i]))
            return 0;
    return 1;
}

int pmix_wire_encode_ready(struct hb_buf *out, const struct pmix_ready *m)
{
    size_t len = 4;
    int rc;

    if (m->count > PMIX_WIRE_LOCAL_MAX)
        return -HVD_EINVAL;
    for (uint32_t i = 0; i < m->count; i++) {
        if (!rank_env_is_valid(&m->ranks[i]))
            return -HVD_EINVAL;
        len += 4 + 2;
        for (size_t j = 0; j < m->ranks[i].env.count; j++)
            len += text_bytes(m->ranks[i].env.items[j]);
    }
    rc = frame_begin(out, PMIX_WIRE_READY, len);
    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        const struct hb_strv *env = &m->ranks[i].env;

        hb_buf_put_u32(out, m->ranks[i].rank);
        hb_buf_put_u16(out, (uint16_t)env->count);
        for (size_t j = 0; j < env->count; j++)
            put_text(out, env->items[j]);
    }
    return 0;
}

static int read_rank_env(struct hb_reader *r, struct pmix_rank_env *m)
{
    char text[PMIX_WIRE_ENV_BYTES];
    uint16_t count;
    int rc = 0;

    m->rank = hb_read_u32(r);
    count = hb_read_u16(r);
    if (count > PMIX_WIRE_ENV_MAX)
        r->bad = 1;
    for (uint16_t i = 0; i < count && !r->bad && rc == 0; i++) {
        text[0] = '\0';
        read_text(r, text, sizeof(text));
        rc = hb_strv_add(&m->env, text);
    }
    if (rc == 0 && !rank_env_is_valid(m))
        r->bad = 1;
    return rc;
}

int pmix_wire_decode_ready(const void *p, size_t len, struct pmix_ready *m)
{
    struct hb_reader r;
    uint32_t count;
    int rc = 0;

    memset(m, 0, sizeof(*m));
    hb_reader_init(&r, p, len);
    count = hb_read_u32(&r);
    if (r.bad || count > PMIX_WIRE_LOCAL_MAX)
        return -HVD_EPROTO;
    m->ranks = hb_calloc((size_t)count + 1, sizeof(*m->ranks));
    if (!m->ranks)
        return -HVD_ENOMEM;
    m->count = count;
    for (uint32_t i = 0; i < count && !r.bad && rc == 0; i++)
        rc = read_rank_env(&r, &m->ranks[i]);
    if (rc == 0 && (r.bad || r.left))
        rc = -HVD_EPROTO;
    if (rc < 0)
        pmix_ready_fini(m);
    return rc;
}

/* ---- The others ------------------------------------------------------- */

/* What a message may hold. */
static const struct rule {
    int known;
    size_t data_max;
    int is_text;
    int any_status; /* else enum pmix_wire_status, or 0 without data */
} rules[] = {
    [PMIX_WIRE_FENCE_DONE] = {1, PMIX_WIRE_DATA_MAX, 0, 0},
    [PMIX_WIRE_WANTED] = {1, PMIX_WIRE_DATA_MAX, 0, 0},
    [PMIX_WIRE_ASK] = {1, 0, 0, 0},
    [PMIX_WIRE_LOST] = {1, 0, 0, 0},
    [PMIX_WIRE_FAILED] = {1, PMIX_WIRE_TEXT_MAX - 1, 1, 0},
    [PMIX_WIRE_CONNECTED] = {1, 0, 0, 0},
    [PMIX_WIRE_FINALIZED] = {1, 0, 0, 0},
    [PMIX_WIRE_FENCE] = {1, PMIX_WIRE_DATA_MAX, 0, 0},
    [PMIX_WIRE_WANT] = {1, 0, 0, 0},
    [PMIX_WIRE_ANSWER] = {1, PMIX_WIRE_DATA_MAX, 0, 0},
    [PMIX_WIRE_ABORT] = {1, PMIX_WIRE_TEXT_MAX - 1, 1, 1},
    [PMIX_WIRE_SPAWN] = {1, 0, 0, 0},
};
enum { RULES = sizeof(rules) / sizeof(rules[0]) };

static int item_is_valid(unsigned type, const struct pmix_wire_item *m)
{
    const struct rule *rule = &rules[type < RULES ? type : 0];

    if (!rule->known || m->len > rule->data_max)
        return 0;
    if (rule->is_text && m->len && memchr(m->data, 0, m->len))
        return 0;
    if (rule->any_status)
        return 1;
    if (rule->data_max == 0 || rule->is_text)
        return m->status == 0;
    return m->status >= PMIX_WIRE_OK && m->status <= PMIX_WIRE_NO_DATA;
}

int pmix_wire_encode(struct hb_buf *out, enum pmix_wire_type type,
                     const struct pmix_wire_item *m)
{
    int rc;

    if (!item_is_valid(type, m))
        return -HVD_EINVAL;
    rc = frame_begin(out, (uint8_t)type, ITEM_BYTES + m->len);
    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, m->id);
    hb_buf_put_u32(out, (uint32_t)m->status);
    return m->len ? hb_buf_append(out, m->data, m->len) : 0;
}

int pmix_wire_decode(uint8_t type, const void *p, size_t len,
                     struct pmix_wire_item *m)
{
    struct pmix_wire_item got;
    struct hb_reader r;

    memset(m, 0, sizeof(*m));
    hb_reader_init(&r, p, len);
    got.id = hb_read_u32(&r);
    got.status = (int32_t)hb_read_u32(&r);
    got.len = r.left;
    got.data = hb_read_bytes(&r, got.len);
    if (r.bad || !item_is_valid(type, &got))
        return -HVD_EPROTO;
    *m = got;
    return 0;
}
