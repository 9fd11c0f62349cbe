/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of `ssh -G`; see ssh_config.h.
 *
 * Every line is "keyword value", keywords in lower case.  Settings that affect
 * trust or authentication and that libssh2 does not support are noted as
 * reasons to leave the host to ssh.
 */
#include "lib/ssh/ssh_config.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/env.h"
#include "lib/ssh/ssh_expand.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 64 << 10, SECONDS_MAX = 1000000 };

/* OpenSSH's own defaults, as far as any libssh2 supports them. */
static const char default_kex[] =
    "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,"
    "ecdh-sha2-nistp384,ecdh-sha2-nistp521,"
    "diffie-hellman-group-exchange-sha256,diffie-hellman-group16-sha512,"
    "diffie-hellman-group18-sha512,diffie-hellman-group14-sha256";
static const char default_ciphers[] =
    "chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,"
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com";
static const char default_macs[] =
    "hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,"
    "hmac-sha2-256,hmac-sha2-512,hmac-sha1";
static const char default_keys[] =
    "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,"
    "ecdsa-sha2-nistp521,rsa-sha2-512,rsa-sha2-256";

/* ---- The struct ---- */

/* The struct's strings and lists, for freeing and copying. */
static const size_t strings[] = {
    offsetof(struct ssh_config, name),
    offsetof(struct ssh_config, hostname),
    offsetof(struct ssh_config, home),
    offsetof(struct ssh_config, login),
    offsetof(struct ssh_config, copy_id),
    offsetof(struct ssh_config, user),
    offsetof(struct ssh_config, proxy_command),
    offsetof(struct ssh_config, proxy_jump),
    offsetof(struct ssh_config, host_key_alias),
    offsetof(struct ssh_config, agent),
    offsetof(struct ssh_config, kex),
    offsetof(struct ssh_config, ciphers),
    offsetof(struct ssh_config, macs),
    offsetof(struct ssh_config, host_key_algorithms),
    offsetof(struct ssh_config, key_algorithms),
    offsetof(struct ssh_config, control_path),
    offsetof(struct ssh_config, unsupported),
};

static const size_t lists[] = {
    offsetof(struct ssh_config, user_known_hosts),
    offsetof(struct ssh_config, global_known_hosts),
    offsetof(struct ssh_config, identities),
};

enum {
    STRINGS = sizeof(strings) / sizeof(strings[0]),
    LISTS = sizeof(lists) / sizeof(lists[0]),
};

static char **string_at(struct ssh_config *c, size_t offset)
{
    return (char **)((char *)c + offset);
}

static struct hb_strv *list_at(struct ssh_config *c, size_t offset)
{
    return (struct hb_strv *)((char *)c + offset);
}

void ssh_config_fini(struct ssh_config *c)
{
    for (size_t i = 0; i < STRINGS; i++)
        hb_free(*string_at(c, strings[i]));
    for (size_t i = 0; i < LISTS; i++)
        hb_strv_free(list_at(c, lists[i]));
    memset(c, 0, sizeof(*c));
}

/* Overwrites *to without freeing it. */
int ssh_config_copy(const struct ssh_config *from, struct ssh_config *to)
{
    struct ssh_config source = *from;
    int rc = 0;

    *to = source;
    for (size_t i = 0; i < STRINGS; i++)
        *string_at(to, strings[i]) = NULL;
    for (size_t i = 0; i < LISTS; i++)
        memset(list_at(to, lists[i]), 0, sizeof(struct hb_strv));
    for (size_t i = 0; i < STRINGS && rc == 0; i++) {
        const char *s = *string_at(&source, strings[i]);
        if (s && !(*string_at(to, strings[i]) = hb_strdup(s)))
            rc = -HVD_ENOMEM;
    }
    for (size_t i = 0; i < LISTS && rc == 0; i++)
        if (list_at(&source, lists[i])->count > 0)
            rc = hb_strv_add_all(list_at(to, lists[i]),
                                 list_at(&source, lists[i])->items);
    if (rc < 0)
        ssh_config_fini(to);
    return rc;
}

static int set_string(char **field, const char *value)
{
    char *copy = hb_strdup(value);

    if (!copy)
        return -HVD_ENOMEM;
    hb_free(*field);
    *field = copy;
    return 0;
}

/* Notes why libssh2 cannot be used; the first reason is kept. */
static int set_unsupported(struct ssh_config *c, const char *reason)
{
    return c->unsupported ? 0 : set_string(&c->unsupported, reason);
}

/* ---- Values ---- */

static int is_none(const char *value)
{
    return !*value || strcasecmp(value, "none") == 0;
}

static int is_yes(const char *value)
{
    return strcmp(value, "yes") == 0 || strcmp(value, "true") == 0;
}

static int is_no(const char *value)
{
    return strcmp(value, "no") == 0 || strcmp(value, "false") == 0;
}

static int read_strict(struct ssh_config *c, const char *value)
{
    if (is_no(value) || strcmp(value, "off") == 0)
        c->strict = SSH_STRICT_OFF;
    else if (strcmp(value, "accept-new") == 0)
        c->strict = SSH_STRICT_ACCEPT_NEW;
    else
        c->strict = SSH_STRICT_YES;
    if (is_yes(value))
        c->never_asks = 1;
    return 0;
}

static int read_batch(struct ssh_config *c, const char *value)
{
    if (is_yes(value))
        c->never_asks = 1;
    return 0;
}

static int read_family(struct ssh_config *c, const char *value)
{
    c->family = strcmp(value, "inet") == 0    ? AF_INET
                : strcmp(value, "inet6") == 0 ? AF_INET6
                                              : AF_UNSPEC;
    return 0;
}

/* Returns seconds; 0 if it is not a number ("none"). */
static int seconds(const char *value)
{
    int64_t n = 0;

    return hb_parse_i64(value, 0, SECONDS_MAX, &n, NULL) < 0 ? 0 : (int)n;
}

static int read_port(struct ssh_config *c, const char *value)
{
    int64_t port;

    if (hb_parse_i64(value, 1, 65535, &port, NULL) < 0)
        return -HVD_EPROTO;
    c->port = (int)port;
    return 0;
}

/* Checks that the list has publickey, the only method supported here. */
static int read_methods(struct ssh_config *c, const char *value)
{
    static const char name[] = "publickey";

    while (*value) {
        size_t n = strcspn(value, ", \t");
        if (n == sizeof(name) - 1 && memcmp(value, name, n) == 0)
            return 0;
        value += n + strspn(value + n, ", \t");
    }
    return set_unsupported(c, "preferredauthentications");
}

static int read_rsa_size(struct ssh_config *c, const char *value)
{
    int64_t bits;

    if (hb_parse_i64(value, 0, INT32_MAX, &bits, NULL) < 0)
        return -HVD_EPROTO;
    c->rsa_bits = (int)bits;
    return 0;
}

/* Reads the words of a line; ssh prints no quotes. */
static int read_words(struct hb_strv *list, const char *value)
{
    int rc = 0;

    hb_strv_free(list);
    while (rc == 0 && *(value += strspn(value, " \t"))) {
        size_t len = strcspn(value, " \t");
        rc = hb_strv_addf(list, "%.*s", (int)len, value);
        value += len;
    }
    return rc;
}

/* ---- Keywords ---- */

enum kind {
    KIND_NAME,     /* a string field */
    KIND_STRING,   /* the same; "none" empties it */
    KIND_WORDS,    /* a list on one line */
    KIND_APPEND,   /* a list on several lines */
    KIND_BOOL,     /* an int field */
    KIND_SECONDS,  /* the same */
    KIND_CALL,     /* a function */
    KIND_REFUSED,  /* only ssh supports it, unless it is "none" */
    KIND_MUST_NOT, /* only ssh supports it, if it is switched on */
    KIND_MUST,     /* only ssh supports it, if it is switched off */
};

static const struct keyword {
    const char *name;
    enum kind kind;
    size_t field;
    int (*call)(struct ssh_config *c, const char *value);
} keywords[] = {
#define FIELD(name) offsetof(struct ssh_config, name), NULL
    {"hostname", KIND_NAME, FIELD(hostname)},
    {"user", KIND_NAME, FIELD(user)},
    {"port", KIND_CALL, 0, read_port},
    {"addressfamily", KIND_CALL, 0, read_family},
    {"proxycommand", KIND_STRING, FIELD(proxy_command)},
    {"proxyjump", KIND_STRING, FIELD(proxy_jump)},
    {"hostkeyalias", KIND_STRING, FIELD(host_key_alias)},
    {"stricthostkeychecking", KIND_CALL, 0, read_strict},
    {"batchmode", KIND_CALL, 0, read_batch},
    {"userknownhostsfile", KIND_WORDS, FIELD(user_known_hosts)},
    {"globalknownhostsfile", KIND_WORDS, FIELD(global_known_hosts)},
    {"hashknownhosts", KIND_BOOL, FIELD(hash_known_hosts)},
    {"identityfile", KIND_APPEND, FIELD(identities)},
    {"identitiesonly", KIND_BOOL, FIELD(identities_only)},
    {"identityagent", KIND_STRING, FIELD(agent)},
    {"gssapiauthentication", KIND_BOOL, FIELD(gssapi)},
    {"connecttimeout", KIND_SECONDS, FIELD(connect_timeout_ms)},
    {"serveraliveinterval", KIND_SECONDS, FIELD(alive_interval_s)},
    {"kexalgorithms", KIND_STRING, FIELD(kex)},
    {"ciphers", KIND_STRING, FIELD(ciphers)},
    {"macs", KIND_STRING, FIELD(macs)},
    {"hostkeyalgorithms", KIND_STRING, FIELD(host_key_algorithms)},
    {"pubkeyacceptedalgorithms", KIND_STRING, FIELD(key_algorithms)},
    {"pubkeyacceptedkeytypes", KIND_STRING, FIELD(key_algorithms)},
    {"controlpath", KIND_STRING, FIELD(control_path)},
#undef FIELD
    {"certificatefile", KIND_REFUSED, 0, NULL},
    {"pkcs11provider", KIND_REFUSED, 0, NULL},
    {"revokedhostkeys", KIND_REFUSED, 0, NULL},
    {"knownhostscommand", KIND_REFUSED, 0, NULL},
    {"remotecommand", KIND_REFUSED, 0, NULL},
    {"preferredauthentications", KIND_CALL, 0, read_methods},
    {"requiredrsasize", KIND_CALL, 0, read_rsa_size},
    {"bindaddress", KIND_REFUSED, 0, NULL},
    {"bindinterface", KIND_REFUSED, 0, NULL},
    {"hostbasedauthentication", KIND_MUST_NOT, 0, NULL},
    {"gssapikeyexchange", KIND_MUST_NOT, 0, NULL},
    {"proxyusefdpass", KIND_MUST_NOT, 0, NULL},
    {"verifyhostkeydns", KIND_MUST_NOT, 0, NULL},
    {"nohostauthenticationforlocalhost", KIND_MUST_NOT, 0, NULL},
    {"pubkeyauthentication", KIND_MUST, 0, NULL},
};

static const struct keyword *find_keyword(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
        if (strncmp(keywords[i].name, name, len) == 0 &&
            keywords[i].name[len] == '\0')
            return &keywords[i];
    return NULL;
}

static int read_string(char **field, const char *value)
{
    if (!is_none(value))
        return set_string(field, value);
    hb_free(*field);
    *field = NULL;
    return 0;
}

static int apply(struct ssh_config *c, const struct keyword *k,
                 const char *value)
{
    void *field = (char *)c + k->field;

    switch (k->kind) {
    case KIND_NAME:
        return *value ? set_string(field, value) : -HVD_EPROTO;
    case KIND_STRING:
        return read_string(field, value);
    case KIND_WORDS:
        return read_words(field, value);
    case KIND_APPEND:
        return hb_strv_add(field, value);
    case KIND_BOOL:
        *(int *)field = is_yes(value);
        return 0;
    case KIND_SECONDS:
        *(int *)field = seconds(value);
        return 0;
    case KIND_CALL:
        return k->call(c, value);
    case KIND_REFUSED:
        return is_none(value) ? 0 : set_unsupported(c, k->name);
    case KIND_MUST_NOT:
        return is_no(value) ? 0 : set_unsupported(c, k->name);
    case KIND_MUST:
        return is_no(value) ? set_unsupported(c, k->name) : 0;
    }
    return 0;
}

/* Reads one line, without its end.  ssh prints keywords in lower case, except
 * one ("canonicalizePermittedcnames") that is not needed here. */
static int read_line(struct ssh_config *c, char *line, struct hb_error *err)
{
    size_t len = strcspn(line, " \t");
    const struct keyword *k = find_keyword(line, len);
    const char *value = line + len + strspn(line + len, " \t");
    int rc;

    if (!k)
        return 0;
    rc = apply(c, k, value);
    if (rc == -HVD_EPROTO)
        hb_error_set(err, HVD_EPROTO,
                     "ssh: `ssh -G` printed a line that makes no sense: "
                     "%.100s",
                     line);
    return rc;
}

static int read_text(struct ssh_config *c, const char *text, size_t len,
                     struct hb_error *err)
{
    const char *end = text + len;
    int rc = 0;

    while (rc == 0 && text < end) {
        const char *eol = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((eol ? eol : end) - text);
        char *line;

        if (n > LINE_MAX_BYTES || memchr(text, '\0', n))
            return hb_error_set(err, HVD_EPROTO,
                                "ssh: `ssh -G` printed something else than "
                                "a configuration");
        line = hb_strndup(text, n);
        if (!line)
            return -HVD_ENOMEM;
        if (n > 0 && line[n - 1] == '\r')
            line[n - 1] = '\0';
        rc = read_line(c, line, err);
        hb_free(line);
        text += n + 1;
    }
    return rc;
}

/* ---- "~" and % ---- */

/* Expands the value, or makes ssh the launcher if a token cannot be
 * replaced. */
static int expand_or_leave(struct ssh_config *c, const struct ssh_user *u,
                           const char *what, char **value, int is_file)
{
    int rc = *value ? ssh_expand(c, u, is_file, value) : 0;

    return rc == -HVD_ENOENT ? set_unsupported(c, what) : rc;
}

/* Expands the known_hosts files.  Most versions of ssh print them with
 * everything replaced, but do not quote blanks in names: an item that does not
 * begin like a path may be the rest of such a name. */
static int expand_files(struct ssh_config *c, const struct ssh_user *u,
                        struct hb_strv *list)
{
    int rc = 0;

    for (size_t i = 0; i < list->count && rc == 0; i++)
        if (list->items[i][0] == '/' || is_none(list->items[i]))
            continue;
        else if (!strchr("~%$", list->items[i][0]))
            rc = set_unsupported(c, "userknownhostsfile");
        else
            rc =
                expand_or_leave(c, u, "userknownhostsfile", &list->items[i], 1);
    /* For example %j without ProxyJump. */
    for (size_t i = 0; i < list->count && rc == 0; i++)
        if (!list->items[i][0])
            rc = set_unsupported(c, "userknownhostsfile");
    return rc;
}

static int expand_agent(struct ssh_config *c, const struct ssh_user *u)
{
    if (!c->agent)
        return 0;
    if (strcmp(c->agent, "SSH_AUTH_SOCK") != 0)
        return c->agent[0] == '$'
                   ? set_unsupported(c, "identityagent")
                   : expand_or_leave(c, u, "identityagent", &c->agent, 1);
    hb_free(c->agent);
    c->agent = NULL;
    return u->agent ? set_string(&c->agent, u->agent) : 0;
}

static int expand_all(struct ssh_config *c, const struct ssh_user *u)
{
    int rc = expand_agent(c, u);

    for (size_t i = 0; i < c->identities.count && rc == 0; i++)
        rc = expand_or_leave(c, u, "identityfile", &c->identities.items[i], 1);
    if (rc == 0)
        rc = expand_files(c, u, &c->user_known_hosts);
    if (rc == 0)
        rc = expand_files(c, u, &c->global_known_hosts);
    if (rc == 0)
        rc = expand_or_leave(c, u, "proxycommand", &c->proxy_command, 0);
    return rc;
}

/* ---- Reading ---- */

static int set_defaults(struct ssh_config *c, const struct openssh_options *o,
                        const struct ssh_user *u)
{
    static const struct {
        size_t field;
        const char *value;
    } defaults[] = {
        {offsetof(struct ssh_config, kex), default_kex},
        {offsetof(struct ssh_config, ciphers), default_ciphers},
        {offsetof(struct ssh_config, macs), default_macs},
        {offsetof(struct ssh_config, host_key_algorithms), default_keys},
        {offsetof(struct ssh_config, key_algorithms), default_keys},
        {offsetof(struct ssh_config, agent), "SSH_AUTH_SOCK"},
    };
    int rc = 0;

    c->strict = SSH_STRICT_YES;
    c->rsa_bits = SSH_CONFIG_DEFAULT_RSA_BITS;
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]) && rc == 0;
         i++)
        rc = set_string(string_at(c, defaults[i].field), defaults[i].value);
    if (rc == 0)
        rc = set_string(&c->name, o->host);
    if (rc == 0)
        rc = set_string(&c->hostname, o->host);
    if (rc == 0)
        rc = set_string(&c->home, u->home);
    if (rc == 0)
        rc = set_string(&c->user, o->user ? o->user : u->name);
    c->port = o->port ? o->port : SSH_CONFIG_DEFAULT_PORT;
    return rc;
}

/* Adds the files that `ssh -G` would print without any configuration. */
static int add_default_files(struct ssh_config *c,
                             const struct openssh_options *o)
{
    static const char *const names[] = {"id_rsa", "id_ecdsa", "id_ed25519"};
    int rc = read_words(&c->user_known_hosts,
                        "~/.ssh/known_hosts ~/.ssh/known_hosts2");

    if (rc == 0)
        rc = read_words(&c->global_known_hosts,
                        "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2");
    if (o->identity)
        return rc == 0 ? hb_strv_add(&c->identities, o->identity) : rc;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && rc == 0; i++)
        rc = hb_strv_addf(&c->identities, "~/.ssh/%s", names[i]);
    return rc;
}

/* Sets the known_hosts file that an option gave; its name may contain
 * blanks. */
static int set_known_hosts(struct ssh_config *c, const char *path)
{
    hb_strv_free(&c->user_known_hosts);
    return hb_strv_add(&c->user_known_hosts, path);
}

/* Sets the commands for messages. */
static int set_words(struct ssh_config *c, const struct openssh_options *o)
{
    struct openssh_options own = *o;
    struct hb_buf login = HB_BUF_INIT, copy_id = HB_BUF_INIT;
    int rc;

    own.never_asks = c->never_asks;
    rc = openssh_words("ssh", &own, &login);
    if (rc == 0)
        rc = openssh_words("ssh-copy-id", &own, &copy_id);
    if (rc == 0)
        rc = set_string(&c->login, hb_buf_data(&login));
    if (rc == 0)
        rc = set_string(&c->copy_id, hb_buf_data(&copy_id));
    hb_buf_free(&login);
    hb_buf_free(&copy_id);
    return rc;
}

static int drop_none(struct hb_strv *list)
{
    if (list->count == 1 && is_none(list->items[0]))
        hb_strv_free(list);
    return 0;
}

/* Returns whether a line of the text begins with `start`. */
static int has_line(const char *text, size_t len, const char *start)
{
    size_t n = strlen(start);

    while (len >= n) {
        const char *newline = memchr(text, '\n', len);

        if (memcmp(text, start, n) == 0)
            return 1;
        if (!newline)
            return 0;
        len -= (size_t)(newline + 1 - text);
        text = newline + 1;
    }
    return 0;
}

/* Leaves the host to ssh if the user has set CheckHostIP, because only ssh
 * checks the key of the host's address.  Before OpenSSH 8.5, "yes" is the
 * default, and does not show what the user wants.  These versions are told from
 * later ones by a setting that 8.5 renamed to PubkeyAcceptedAlgorithms. */
static int check_host_ip(struct ssh_config *c, const char *text, size_t len)
{
    return has_line(text, len, "checkhostip yes") &&
                   has_line(text, len, "pubkeyacceptedalgorithms ")
               ? set_unsupported(c, "checkhostip")
               : 0;
}

int ssh_config_read(const char *text, size_t len,
                    const struct openssh_options *o, const struct ssh_user *u,
                    struct ssh_config *out, struct hb_error *err)
{
    int rc;

    memset(out, 0, sizeof(*out));
    rc = set_defaults(out, o, u);
    if (rc == 0 && !text)
        rc = add_default_files(out, o);
    if (rc == 0 && text)
        rc = read_text(out, text, len, err);
    if (rc == 0 && text && !has_line(text, len, "hostname "))
        rc =
            hb_error_set(err, HVD_EPROTO, "ssh: `ssh -G` printed no host name");
    if (rc == 0)
        rc = check_host_ip(out, text, len);
    if (o->known_hosts)
        hb_strv_free(&out->user_known_hosts);
    if (rc == 0)
        rc = expand_all(out, u);
    if (rc == 0 && o->known_hosts)
        rc = set_known_hosts(out, o->known_hosts);
    drop_none(&out->user_known_hosts);
    drop_none(&out->global_known_hosts);
    drop_none(&out->identities);
    if (rc == 0)
        rc = set_words(out, o);
    out->connect_timeout_ms *= 1000;
    return rc;
}
