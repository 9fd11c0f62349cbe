/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines for ssh and what it says; see openssh.h. */
#include "lib/transport/openssh.h"

#include "lib/base/alloc.h"

#include <stdio.h>
#include <string.h>

enum { ALIVE_INTERVAL_S = 15, WORD_MAX = 256 };

/* ---- Command lines ---- */

static int check_name(const char *what, const char *name, struct hb_error *err)
{
    if (name && (!*name || *name == '-'))
        return hb_error_set(err, HVD_EINVAL, "ssh: %s '%s' is not valid", what,
                            name);
    return 0;
}

/* A file name for an ssh option that takes several, and replaces %. */
static int add_known_hosts(struct hb_strv *argv, const char *path)
{
    size_t len = 0;
    char *quoted = hb_malloc(2 * strlen(path) + 1);
    int rc;

    if (!quoted)
        return -HVD_ENOMEM;
    for (; *path; path++) {
        quoted[len++] = *path;
        if (*path == '%')
            quoted[len++] = '%';
    }
    quoted[len] = '\0';
    rc = strpbrk(quoted, " \t")
             ? hb_strv_addf(argv, "UserKnownHostsFile=\"%s\"", quoted)
             : hb_strv_addf(argv, "UserKnownHostsFile=%s", quoted);
    hb_free(quoted);
    return rc;
}

/* A flag and its value; nothing where there is none. */
static int add_flag(struct hb_strv *argv, const char *flag, const char *value)
{
    int rc = 0;

    if (value)
        rc = hb_strv_add(argv, flag);
    if (value && rc == 0)
        rc = hb_strv_add(argv, value);
    return rc;
}

static int add_options(const struct openssh_options *o, struct hb_strv *argv)
{
    int rc = add_flag(argv, "-F", o->config);

    if (rc == 0)
        rc = add_flag(argv, "-l", o->user);
    if (rc == 0)
        rc = add_flag(argv, "-i", o->identity);
    if (rc == 0 && o->port)
        rc = hb_strv_add(argv, "-p");
    if (rc == 0 && o->port)
        rc = hb_strv_addf(argv, "%d", o->port);
    if (rc == 0 && o->known_hosts)
        rc = hb_strv_add(argv, "-o");
    if (rc == 0 && o->known_hosts)
        rc = add_known_hosts(argv, o->known_hosts);
    return rc;
}

static int add_words(struct hb_strv *argv, const char *const *words)
{
    int rc = 0;

    while (rc == 0 && *words)
        rc = hb_strv_add(argv, *words++);
    return rc;
}

static int check_names(const struct openssh_options *o, struct hb_error *err)
{
    int rc = check_name("the host", o->host, err);

    return rc < 0 ? rc : check_name("the user", o->user, err);
}

int openssh_argv(const struct openssh_options *o, struct hb_strv *argv,
                 struct hb_error *err)
{
    static const char *const first[] = {"ssh",           "-T", "-x", "-o",
                                        "BatchMode=yes", "-o", NULL};
    int rc = check_names(o, err);

    if (rc == 0)
        rc = add_words(argv, first);
    if (rc == 0)
        rc = hb_strv_addf(argv, "ServerAliveInterval=%d", ALIVE_INTERVAL_S);
    if (rc == 0 && o->connect_timeout_s)
        rc = hb_strv_add(argv, "-o");
    if (rc == 0 && o->connect_timeout_s)
        rc = hb_strv_addf(argv, "ConnectTimeout=%d", o->connect_timeout_s);
    if (rc == 0)
        rc = add_options(o, argv);
    if (rc == 0)
        rc = add_words(argv,
                       (const char *[]){"--", o->host, "exec /bin/sh", NULL});
    return rc;
}

int openssh_config_argv(const struct openssh_options *o, struct hb_strv *argv,
                        struct hb_error *err)
{
    int rc = check_names(o, err);

    if (rc == 0)
        rc = add_words(argv, (const char *[]){"ssh", "-G", NULL});
    if (rc == 0)
        rc = add_options(o, argv);
    if (rc == 0)
        rc = add_words(argv, (const char *[]){"--", o->host, NULL});
    return rc;
}

/* Splits the last hop, "[ssh://][user@]host[:port]" or "[v6]:port", off a
 * jump list; cuts it up. */
struct hop {
    char *user, *host, *port;
};

static int split_hop(char *s, struct hop *hop, struct hb_error *err)
{
    char *at, *colon;

    if (strncmp(s, "ssh://", 6) == 0)
        s += 6;
    at = strrchr(s, '@');
    hop->user = at ? s : NULL;
    if (at)
        *at = '\0';
    hop->host = at ? at + 1 : s;
    colon = strrchr(hop->host, ':');
    if (hop->host[0] == '[' && strchr(hop->host, ']')) {
        char *end = strchr(++hop->host, ']');
        colon = end[1] == ':' ? end + 1 : NULL;
        *end = '\0';
    } else if (colon && strchr(hop->host, ':') != colon) {
        colon = NULL; /* a bare IPv6 address */
    }
    hop->port = colon ? colon + 1 : NULL;
    if (colon)
        *colon = '\0';
    if (check_name("the jump host", hop->host, err) < 0 ||
        check_name("the user", hop->user, err) < 0 ||
        check_name("the port", hop->port, err) < 0)
        return -HVD_EINVAL;
    return 0;
}

int openssh_jump_argv(const struct openssh_options *o, const char *jump,
                      const char *target_host, int target_port,
                      struct hb_strv *argv, struct hb_error *err)
{
    char *hops = hb_strdup(jump);
    char *comma = hops ? strrchr(hops, ',') : NULL;
    struct hop hop = {NULL, NULL, NULL};
    int v6 = strchr(target_host, ':') != NULL;
    int rc = hops ? 0 : -HVD_ENOMEM;

    if (comma)
        *comma = '\0';
    if (rc == 0)
        rc = split_hop(comma ? comma + 1 : hops, &hop, err);
    if (rc == 0)
        rc = add_words(argv,
                       (const char *[]){"ssh", "-o", "BatchMode=yes", NULL});
    if (rc == 0)
        rc = add_flag(argv, "-F", o->config);
    if (rc == 0)
        rc = add_flag(argv, "-l", hop.user);
    if (rc == 0)
        rc = add_flag(argv, "-p", hop.port);
    if (rc == 0 && comma)
        rc = add_flag(argv, "-J", hops);
    if (rc == 0)
        rc = hb_strv_add(argv, "-W");
    if (rc == 0)
        rc = hb_strv_addf(argv, v6 ? "[%s]:%d" : "%s:%d", target_host,
                          target_port);
    if (rc == 0)
        rc = add_words(argv, (const char *[]){"--", hop.host, NULL});
    hb_free(hops);
    return rc;
}

/* ---- What it says ---- */

/* The line of `said` that has `sign`, without "ssh: ", cut to fit. */
static void copy_line(const char *said, const char *sign, char out[WORD_MAX])
{
    const char *at = strstr(said, sign);
    size_t len;

    while (at > said && at[-1] != '\n')
        at--;
    if (strncmp(at, "ssh: ", 5) == 0)
        at += 5;
    len = strcspn(at, "\r\n");
    snprintf(out, WORD_MAX, "%.*s", (int)len, at);
}

/* The word that begins with `sign`, or "". */
static void copy_word(const char *said, const char *sign, char out[WORD_MAX])
{
    const char *at = strstr(said, sign);

    snprintf(out, WORD_MAX, "%.*s", at ? (int)strcspn(at, " \r\n.,") : 0,
             at ? at : "");
}

static int explain_host_key(const char *said, const char *host,
                            struct hb_error *err)
{
    char print[WORD_MAX];

    copy_word(said, "SHA256:", print);
    if (strstr(said, "REVOKED HOST KEY"))
        return hb_error_set(err, HVD_EPERM,
                            "ssh: its host key is marked as revoked");
    if (strstr(said, "IDENTIFICATION HAS CHANGED"))
        return hb_error_set(err, HVD_EPERM,
                            "ssh: its host key has changed, to %s; if that "
                            "is right, remove the old one with "
                            "ssh-keygen -R %s",
                            print, host);
    return hb_error_set(err, HVD_EPERM,
                        "ssh: its host key is not known%s%s; see and accept "
                        "it with: ssh %s true",
                        print[0] ? ": " : "", print, host);
}

static const struct cause {
    const char *sign;
    enum hvd_status status;
    const char *advice; /* after the line */
} causes[] = {
    {"Temporary failure in name resolution", HVD_ETIMEOUT, ""},
    {"Could not resolve hostname", HVD_EINVAL, "; check the name and DNS"},
    {"Permission denied (", HVD_EPERM, NULL},
    {"Too many authentication failures", HVD_EPERM,
     "; name the key with --ssh-identity-file"},
    {"Bad configuration option", HVD_EINVAL, ""},
    {"Bad owner or permissions on", HVD_EINVAL, ""},
    {"Can't open user config file", HVD_EINVAL, " (see --ssh-config)"},
    {"no matching host key type found", HVD_ESYSTEM, ""},
    {"no matching key exchange method found", HVD_ESYSTEM, ""},
    {"no matching cipher found", HVD_ESYSTEM, ""},
    {"no matching MAC found", HVD_ESYSTEM, ""},
    {"Connection refused", HVD_ESYSTEM, "; is sshd running there?"},
    {"No route to host", HVD_ESYSTEM, ""},
    {"Network is unreachable", HVD_ESYSTEM, ""},
    {"administratively prohibited", HVD_EPERM, " (by the jump host)"},
    {"Name or service not known", HVD_EINVAL, "; check the name and DNS"},
    {"Connection timed out", HVD_ETIMEOUT, ""},
    {"Operation timed out", HVD_ETIMEOUT, ""},
    {"Connection reset", HVD_ECLOSED, ""},
    {"Not allowed at this time", HVD_ECLOSED, ""},
    {"kex_exchange_identification", HVD_ECLOSED, ""},
    {"ssh_exchange_identification", HVD_ECLOSED, ""},
    {"Connection closed by", HVD_ECLOSED, ""},
    {"banner exchange", HVD_ECLOSED, ""},
    {"Broken pipe", HVD_ECLOSED, ""},
    {"Timeout, server", HVD_ETIMEOUT, ""},
};

static int is_known(const char *line, size_t len)
{
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
        if (memmem(line, len, causes[i].sign, strlen(causes[i].sign)))
            return 1;
    return len == 0 || strncmp(line, "Warning:", 8) == 0;
}

/* The connection through a proxy ended: what the proxy said, if anything,
 * is why. */
static int explain_proxy(const char *said, struct hb_error *err)
{
    const char *line = said;
    size_t len;

    if (!strstr(said, "closed by UNKNOWN port"))
        return 0;
    for (; *line; line += len + (line[len] != '\0')) {
        size_t text;
        len = strcspn(line, "\n");
        text = len > 0 && line[len - 1] == '\r' ? len - 1 : len;
        if (is_known(line, text))
            continue;
        hb_error_set(err, HVD_ESYSTEM, "ssh: its proxy failed: %.*s", (int)text,
                     line);
        return 1;
    }
    return 0;
}

/* Final causes stand before those that pass: when a jump host refuses, the
 * connection through it is closed as well. */
int openssh_explain(const char *said, const char *host, struct hb_error *err)
{
    char line[WORD_MAX];

    if (strstr(said, "Host key verification failed") ||
        strstr(said, "IDENTIFICATION HAS CHANGED")) {
        explain_host_key(said, host, err);
        return 1;
    }
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        const struct cause *c = &causes[i];
        if (!strstr(said, c->sign))
            continue;
        if (c->status == HVD_ECLOSED && explain_proxy(said, err))
            return 1;
        copy_line(said, c->sign, line);
        if (c->advice)
            hb_error_set(err, c->status, "ssh: %s%s", line, c->advice);
        else
            hb_error_set(err, c->status,
                         "ssh: no key was accepted (%s); add one with "
                         "ssh-copy-id %s",
                         line, host);
        return 1;
    }
    return 0;
}
