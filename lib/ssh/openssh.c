/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines for ssh, and its messages; see openssh.h. */
#include "lib/ssh/openssh.h"

#include "lib/base/alloc.h"
#include "lib/base/quote.h"

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

/* Quotes a file name for an option that takes several names and replaces %. */
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

/* Appends a flag and its value, unless that is NULL. */
static int add_flag(struct hb_strv *argv, const char *flag, const char *value)
{
    int rc = 0;

    if (value)
        rc = hb_strv_add(argv, flag);
    if (value && rc == 0)
        rc = hb_strv_add(argv, value);
    return rc;
}

/* Appends all options but the user, which ssh-copy-id takes only before the
 * host. */
static int add_options(const struct openssh_options *o, struct hb_strv *argv)
{
    int rc = add_flag(argv, "-F", o->config);

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
    /* Forwarding that is configured for other uses is disabled: a forwarded
     * agent would let every host log in elsewhere as this user. */
    static const char *const first[] = {"ssh", "-T",
                                        "-a",  "-x",
                                        "-o",  "ClearAllForwardings=yes",
                                        "-o",  "PermitLocalCommand=no",
                                        "-o",  "BatchMode=yes",
                                        "-o",  NULL};
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
        rc = add_flag(argv, "-l", o->user);
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
        rc = add_flag(argv, "-l", o->user);
    if (rc == 0)
        rc = add_options(o, argv);
    if (rc == 0)
        rc = add_words(argv, (const char *[]){"--", o->host, NULL});
    return rc;
}

int openssh_words(const char *program, const struct openssh_options *o,
                  struct hb_buf *out)
{
    struct hb_strv words = HB_STRV_INIT;
    int rc = hb_strv_add(&words, program);

    if (rc == 0)
        rc = add_options(o, &words);
    if (rc == 0 && o->never_asks)
        rc = add_words(&words,
                       (const char *[]){"-o", "BatchMode=no", "-o",
                                        "StrictHostKeyChecking=ask", NULL});
    if (rc == 0)
        rc = o->user ? hb_strv_addf(&words, "%s@%s", o->user, o->host)
                     : hb_strv_add(&words, o->host);
    for (size_t i = 0; i < words.count && rc == 0; i++) {
        if (i > 0)
            rc = hb_buf_putc(out, ' ');
        if (rc == 0)
            rc = hb_quote_word(words.items[i], out);
    }
    hb_strv_free(&words);
    return rc;
}

/* A hop of a jump list: "[ssh://][user@]host[:port]" or "[v6]:port". */
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

/* Refuses a jump list with a hop that is empty or that ssh could take for an
 * option. */
static int check_hops(const char *hops, struct hb_error *err)
{
    for (;;) {
        size_t len = strcspn(hops, ",");
        char *one = hb_strndup(hops, len);
        struct hop hop;
        int rc = one ? split_hop(one, &hop, err) : -HVD_ENOMEM;

        hb_free(one);
        if (rc < 0 || !hops[len])
            return rc;
        hops += len + 1;
    }
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
    if (rc == 0 && comma)
        rc = check_hops(hops, err);
    if (rc == 0)
        rc = split_hop(comma ? comma + 1 : hops, &hop, err);
    if (rc == 0)
        rc =
            add_words(argv, (const char *[]){"ssh", "-o", "BatchMode=yes", "-o",
                                             "PermitLocalCommand=no", NULL});
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

/* Copies the line of `said` that contains `sign`, without "ssh: ", cut to
 * fit. */
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

/* Copies the word that begins with `sign`, or "". */
static void copy_word(const char *said, const char *sign, char out[WORD_MAX])
{
    const char *at = strstr(said, sign);

    snprintf(out, WORD_MAX, "%.*s", at ? (int)strcspn(at, " \r\n.,") : 0,
             at ? at : "");
}

/* Copies the text between `before` and the next `after` on its line, or "". */
static void copy_between(const char *said, const char *before,
                         const char *after, char out[WORD_MAX])
{
    const char *at = strstr(said, before), *end = NULL;

    if (at) {
        at += strlen(before);
        end = strstr(at, after);
    }
    if (!end || memchr(at, '\n', (size_t)(end - at)))
        end = at;
    snprintf(out, WORD_MAX, "%.*s", at ? (int)(end - at) : 0, at ? at : "");
}

/* Explains a changed key: from "Offending ED25519 key in FILE:LINE" and the
 * host's name in the file. */
static int explain_changed(const char *said, const char *print,
                           const struct openssh_options *o,
                           struct hb_error *err)
{
    char kind[WORD_MAX], sign[WORD_MAX + 32], file[WORD_MAX], name[WORD_MAX];
    struct hb_buf command = HB_BUF_INIT;
    int rc;

    copy_between(said, "Offending ", " key in ", kind);
    snprintf(sign, sizeof(sign), "Offending %s key in ", kind);
    copy_between(said, sign, ":", file);
    copy_between(said, "Host key for ", " has changed", name);
    rc = hb_buf_puts(&command, "ssh-keygen");
    if (rc == 0 && file[0])
        rc = hb_buf_puts(&command, " -f ");
    if (rc == 0 && file[0])
        rc = hb_quote_word(file, &command);
    if (rc == 0)
        rc = hb_buf_puts(&command, " -R ");
    if (rc == 0)
        rc = hb_quote_word(name[0] ? name : o->host, &command);
    if (rc == 0)
        rc = hb_error_set(err, HVD_EPERM,
                          "ssh: its host key has changed, to %s; if that is "
                          "right, remove the old one with: %s",
                          print, hb_buf_data(&command));
    else
        rc = hb_error_set(err, HVD_ENOMEM, "ssh: no memory");
    hb_buf_free(&command);
    return rc;
}

static int explain_host_key(const char *said, const struct openssh_options *o,
                            struct hb_error *err)
{
    struct hb_buf command = HB_BUF_INIT;
    char print[WORD_MAX];
    int rc;

    copy_word(said, "SHA256:", print);
    if (strstr(said, "REVOKED HOST KEY"))
        return hb_error_set(err, HVD_EPERM,
                            "ssh: its host key is marked as revoked");
    if (strstr(said, "IDENTIFICATION HAS CHANGED"))
        return explain_changed(said, print, o, err);
    if (openssh_words("ssh", o, &command) < 0)
        rc = hb_error_set(err, HVD_ENOMEM, "ssh: no memory");
    else
        rc = hb_error_set(err, HVD_EPERM,
                          "ssh: its host key is not known%s%s; see and accept "
                          "it with: %s true",
                          print[0] ? ": " : "", print, hb_buf_data(&command));
    hb_buf_free(&command);
    return rc;
}

static int explain_no_key(const char *line, const struct openssh_options *o,
                          struct hb_error *err)
{
    struct hb_buf command = HB_BUF_INIT;
    int rc = openssh_words("ssh-copy-id", o, &command);

    if (rc < 0)
        rc = hb_error_set(err, HVD_ENOMEM, "ssh: no memory");
    else
        rc = hb_error_set(err, HVD_EPERM,
                          "ssh: no key was accepted (%s); add one with: %s",
                          line, hb_buf_data(&command));
    hb_buf_free(&command);
    return rc;
}

static const struct cause {
    const char *sign;
    enum hvd_status status;
    enum hb_stage stage;
    const char *advice; /* after the line */
} causes[] = {
    {"Temporary failure in name resolution", HVD_ETIMEOUT, HB_STAGE_NAME, ""},
    {"Could not resolve hostname", HVD_EINVAL, HB_STAGE_NAME,
     "; check the name and DNS"},
    {"Permission denied (", HVD_EPERM, HB_STAGE_LOGIN, NULL},
    {"Too many authentication failures", HVD_EPERM, HB_STAGE_LOGIN,
     "; name the key with --ssh-identity-file"},
    {"Bad configuration option", HVD_EINVAL, HB_STAGE_NONE, ""},
    {"Cannot execute command-line and remote command", HVD_EINVAL,
     HB_STAGE_NONE, "; set RemoteCommand none for it"},
    {"Bad owner or permissions on", HVD_EINVAL, HB_STAGE_NONE, ""},
    {"Can't open user config file", HVD_EINVAL, HB_STAGE_NONE,
     " (see --ssh-config)"},
    {"no matching host key type found", HVD_ESYSTEM, HB_STAGE_HOST_KEY, ""},
    {"no matching key exchange method found", HVD_ESYSTEM, HB_STAGE_NONE, ""},
    {"no matching cipher found", HVD_ESYSTEM, HB_STAGE_NONE, ""},
    {"no matching MAC found", HVD_ESYSTEM, HB_STAGE_NONE, ""},
    {"Connection refused", HVD_ESYSTEM, HB_STAGE_CONNECT,
     "; is sshd running there?"},
    {"No route to host", HVD_ESYSTEM, HB_STAGE_CONNECT, ""},
    {"Network is unreachable", HVD_ESYSTEM, HB_STAGE_CONNECT, ""},
    {"administratively prohibited", HVD_EPERM, HB_STAGE_LOGIN,
     " (by the jump host)"},
    {"Name or service not known", HVD_EINVAL, HB_STAGE_NAME,
     "; check the name and DNS"},
    {"Connection timed out", HVD_ETIMEOUT, HB_STAGE_CONNECT, ""},
    {"Operation timed out", HVD_ETIMEOUT, HB_STAGE_CONNECT, ""},
    {"Connection reset", HVD_ECLOSED, HB_STAGE_CONNECT, ""},
    {"Not allowed at this time", HVD_ECLOSED, HB_STAGE_CONNECT, ""},
    {"kex_exchange_identification", HVD_ECLOSED, HB_STAGE_CONNECT, ""},
    {"ssh_exchange_identification", HVD_ECLOSED, HB_STAGE_CONNECT, ""},
    {"Connection closed by", HVD_ECLOSED, HB_STAGE_CONNECT, ""},
    {"banner exchange", HVD_ECLOSED, HB_STAGE_CONNECT, ""},
    {"Broken pipe", HVD_ECLOSED, HB_STAGE_CONNECT, ""},
    {"Timeout, server", HVD_ETIMEOUT, HB_STAGE_CONNECT, ""},
};

static int is_known(const char *line, size_t len)
{
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
        if (memmem(line, len, causes[i].sign, strlen(causes[i].sign)))
            return 1;
    return len == 0 || strncmp(line, "Warning:", 8) == 0;
}

/* Sets err to the proxy's own message and returns 1 if the connection through a
 * proxy ended; 0 if it did not, or said nothing. */
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
        hb_error_stage(err, HB_STAGE_CONNECT);
        return 1;
    }
    return 0;
}

/* Explains what ssh said.  Final causes come before temporary ones: when a jump
 * host refuses, the connection through it is closed as well. */
int openssh_explain(const char *said, const struct openssh_options *o,
                    struct hb_error *err)
{
    char line[WORD_MAX];

    if (strstr(said, "Host key verification failed") ||
        strstr(said, "IDENTIFICATION HAS CHANGED")) {
        explain_host_key(said, o, err);
        hb_error_stage(err, HB_STAGE_HOST_KEY);
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
            explain_no_key(line, o, err);
        hb_error_stage(err, c->stage);
        return 1;
    }
    return 0;
}
