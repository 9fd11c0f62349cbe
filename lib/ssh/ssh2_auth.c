/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Authenticates the user: with keys of the ssh-agent, then key files, in
 * OpenSSH's order; see ssh2_impl.h.
 *
 * A server counts the keys that it refuses (MaxAuthTries, 6) and may lock out a
 * user who offers too many, so only a few are tried; if an agent has more, some
 * tries are left for files.  A key with a passphrase is offered before the
 * passphrase is asked for.
 */
#include "lib/ssh/ssh2_impl.h"

#include "lib/base/alloc.h"
#include "lib/ssh/keys/ssh_agent.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    TRIES_MAX = 5,
    FILES_MIN = 3, /* tries left for files, if there are as many */
    AGENT_LIST_TIMEOUT_MS = 10000,
    AGENT_SIGN_TIMEOUT_MS = 120000, /* the agent may ask its user */
    TRIED_MAX = 200,
    BROKEN_MAX = 320,
};

/* A key to try: one of the agent's, or a file. */
struct candidate {
    const struct ssh_agent_key *agent_key;
    struct ssh2_key *file;
};

struct auth {
    struct ssh2_task *task;
    struct ssh_agent agent;
    struct ssh_agent_keys agent_keys;
    struct ssh2_key **files; /* existing ones */
    size_t file_count;
    struct candidate list[TRIES_MAX];
    size_t count;
    char *methods;           /* methods that the server accepts */
    char tried[TRIED_MAX];   /* "agent, ~/.ssh/id_ed25519" */
    int refused;             /* number of refused keys */
    char unable[TRIED_MAX];  /* a key that libssh2 cannot use, or "" */
    char locked[TRIED_MAX];  /* a key whose passphrase was not given, or "" */
    char broken[BROKEN_MAX]; /* an unreadable or exposed key, or "" */
};

enum outcome { ACCEPTED, REFUSED, GAVE_UP };

/* ---- Words ---- */

static int is_listed(const char *name, const char *list)
{
    size_t len = strlen(name);

    while (list && *list) {
        size_t n = strcspn(list, ",");
        if (n == len && memcmp(list, name, n) == 0)
            return 1;
        list += n + (list[n] == ',');
    }
    return 0;
}

/* Copies the path, with the home directory as "~". */
static void short_path(const struct auth *a, const char *path, char *out,
                       size_t size)
{
    const char *home = a->task->config.home;
    size_t n = strlen(home);

    if (n > 1 && strncmp(path, home, n) == 0 && path[n] == '/')
        snprintf(out, size, "~%s", path + n);
    else
        snprintf(out, size, "%s", path);
}

static void add_tried(struct auth *a, const char *what)
{
    size_t len = strlen(a->tried);

    if (len > 0 && strcmp(what, "agent") == 0)
        return;
    snprintf(a->tried + len, sizeof(a->tried) - len, "%s%s", len ? ", " : "",
             what);
}

/* ---- Which keys ---- */

/* Returns 1 if a key of that type can be used, 0 if the user does not want it,
 * -1 if libssh2 cannot. */
static int usable(struct auth *a, const char *type, const void *blob,
                  size_t len)
{
    const char *allowed = a->task->config.key_algorithms;
    int bits = blob ? ssh_key_rsa_bits(blob, len) : -1;

    if (bits >= 0 && bits < a->task->config.rsa_bits) {
        if (!a->broken[0])
            snprintf(a->broken, sizeof(a->broken),
                     "an RSA key has %d bits, and RequiredRSASize is %d", bits,
                     a->task->config.rsa_bits);
        return 0;
    }
    if (!*type) /* encrypted: libssh2 finds out */
        return 1;
    if (strstr(type, "-cert-") || strncmp(type, "sk-", 3) == 0)
        return -1;
    if (strcmp(type, "ssh-rsa") == 0)
        return ssh2_session_has_rsa_sha2() &&
                       (is_listed("rsa-sha2-256", allowed) ||
                        is_listed("rsa-sha2-512", allowed))
                   ? 1
                   : -1;
    return is_listed(type, allowed);
}

static void note_unable(struct auth *a, const char *type, const char *where)
{
    if (!a->unable[0])
        snprintf(a->unable, sizeof(a->unable), "the %s key %.100s", type,
                 where);
}

/* Notes in a->unable, for the error line, that a certificate lies beside the
 * key at `path`: ssh would use it, this client cannot. */
static void look_for_certificate(struct auth *a, const char *path)
{
    char *name = hb_xasprintf("%s-cert.pub", path);

    if (access(name, F_OK) == 0 && !a->unable[0])
        snprintf(a->unable, sizeof(a->unable), "the certificate %s", name);
    hb_free(name);
}

static int load_files(struct auth *a)
{
    const struct hb_strv *paths = &a->task->config.identities;
    char shown[TRIED_MAX];

    a->files = hb_xcalloc(paths->count + 1, sizeof(struct ssh2_key *));
    for (size_t i = 0; i < paths->count; i++) {
        struct ssh2_key *k;
        int rc = ssh2_key_get(a->task, paths->items[i], &k);

        if (rc < 0)
            return rc;
        short_path(a, k->path, shown, sizeof(shown));
        if (k->rc == 0)
            a->files[a->file_count++] = k;
        else if (k->rc != -HVD_ENOENT && !a->broken[0])
            snprintf(a->broken, sizeof(a->broken), "%.150s %s", shown,
                     k->rc == -HVD_EPERM ? "can be read by others"
                                         : "is no key");
        if (k->rc == 0)
            look_for_certificate(a, k->path);
    }
    return 0;
}

/* Lists the agent's keys; an agent that does not answer has none. */
static int ask_agent(struct auth *a)
{
    struct ssh2_task *t = a->task;
    int rc;

    if (!t->config.agent)
        return 0;
    rc = ssh_agent_open(t->config.agent, t->cancel_fd, &a->agent);
    if (rc == 0)
        rc = ssh_agent_list(&a->agent, AGENT_LIST_TIMEOUT_MS, &a->agent_keys);
    if (rc == -HVD_ENOMEM)
        hb_die_oom();
    if (rc < 0 && rc != -HVD_ENOENT && rc != -HVD_ESHUTDOWN)
        ssh2_task_note(t, HB_LOG_WARNING, "the ssh-agent at %s does not answer",
                       t->config.agent);
    return rc == -HVD_ESHUTDOWN ? rc : 0;
}

static int has_blob(const struct ssh2_key *k, const struct ssh_agent_key *key)
{
    return k->key.blob && k->key.blob_len == key->len &&
           memcmp(k->key.blob, key->blob, key->len) == 0;
}

/* Returns the file with the same key, or NULL. */
static const struct ssh2_key *file_of(const struct auth *a,
                                      const struct ssh_agent_key *key)
{
    for (size_t i = 0; i < a->file_count; i++)
        if (has_blob(a->files[i], key))
            return a->files[i];
    return NULL;
}

static int in_agent(const struct auth *a, const struct ssh2_key *k)
{
    for (size_t i = 0; i < a->agent_keys.count; i++)
        if (has_blob(k, &a->agent_keys.items[i]))
            return 1;
    return 0;
}

static void add_agent_keys(struct auth *a, int in_file, size_t max)
{
    for (size_t i = 0; i < a->agent_keys.count && a->count < max; i++) {
        const struct ssh_agent_key *key = &a->agent_keys.items[i];
        char type[SSH_KEY_TYPE_MAX];
        int can;

        if ((file_of(a, key) != NULL) != in_file)
            continue;
        known_hosts_key_type(key->blob, key->len, type, sizeof(type));
        can = usable(a, type, key->blob, key->len);
        if (can < 0)
            note_unable(a, type, "of the agent");
        if (can > 0)
            a->list[a->count++] = (struct candidate){key, NULL};
    }
}

static int is_file_candidate(struct auth *a, const struct ssh2_key *k)
{
    char shown[TRIED_MAX];
    int can = usable(a, k->key.type, k->key.blob, k->key.blob_len);

    short_path(a, k->path, shown, sizeof(shown));
    if (can < 0)
        note_unable(a, k->key.type, shown);
    return can > 0 && k->has_private && !in_agent(a, k);
}

static void choose(struct auth *a)
{
    size_t files = 0, max = TRIES_MAX;

    for (size_t i = 0; i < a->file_count; i++)
        files += (size_t)is_file_candidate(a, a->files[i]);
    max -= files < FILES_MIN ? files : FILES_MIN;
    add_agent_keys(a, 1, max);
    if (!a->task->config.identities_only)
        add_agent_keys(a, 0, max);
    for (size_t i = 0; i < a->file_count && a->count < TRIES_MAX; i++)
        if (is_file_candidate(a, a->files[i]))
            a->list[a->count++] = (struct candidate){NULL, a->files[i]};
}

/* ---- Trying a key of the agent ---- */

struct signer {
    struct auth *a;
    const struct ssh_agent_key *key;
    int rc;
};

/* Returns the agent's flags for the algorithm that libssh2 has put into the
 * data to be signed: after the session id, a byte, user, service, "publickey"
 * and a byte (RFC 4252, 7). */
static unsigned sign_flags(const unsigned char *data, size_t len)
{
    struct hb_reader r;
    const char *name;
    uint32_t n;

    hb_reader_init(&r, data, len);
    hb_read_bytes(&r, hb_read_u32(&r));
    hb_read_u8(&r);
    for (int i = 0; i < 3; i++)
        hb_read_bytes(&r, hb_read_u32(&r));
    hb_read_u8(&r);
    n = hb_read_u32(&r);
    name = hb_read_bytes(&r, n);
    if (!name || n != strlen("rsa-sha2-512"))
        return 0;
    return memcmp(name, "rsa-sha2-512", n) == 0   ? SSH_AGENT_RSA_SHA2_512
           : memcmp(name, "rsa-sha2-256", n) == 0 ? SSH_AGENT_RSA_SHA2_256
                                                  : 0;
}

static LIBSSH2_USERAUTH_PUBLICKEY_SIGN_FUNC(on_sign)
{
    struct signer *s = (struct signer *)abstract;
    struct ssh2_task *t = s->a->task;
    struct hb_buf answer = HB_BUF_INIT;
    struct hb_reader r;
    const void *bytes;
    uint32_t n;

    (void)session;
    s->rc = ssh_agent_sign(&s->a->agent, AGENT_SIGN_TIMEOUT_MS, s->key, data,
                           data_len, sign_flags(data, data_len), &answer);
    if (s->rc == -HVD_ENOMEM)
        hb_die_oom();
    hb_reader_init(&r, hb_buf_data(&answer), hb_buf_len(&answer));
    hb_read_bytes(&r, hb_read_u32(&r)); /* the algorithm */
    n = hb_read_u32(&r);
    bytes = hb_read_bytes(&r, n);
    *sig = s->rc == 0 && bytes ? ssh2_session_alloc(t->session, n) : NULL;
    if (*sig)
        memcpy(*sig, bytes, n);
    *sig_len = n;
    hb_buf_free(&answer);
    return *sig ? 0 : -1;
}

/* Returns whether the connection is lost.  If the server disconnects, libssh2
 * says so only in its text. */
static int is_lost(const struct ssh2_session *s, int rc)
{
    static const char sign[] = "Waiting for ";

    return s->closed ||
           (rc == LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED &&
            strncmp(ssh2_session_error(s), sign, sizeof(sign) - 1) == 0);
}

/* Interprets libssh2's result; err only for GAVE_UP. */
static enum outcome judge(struct auth *a, int rc, struct hb_error *err)
{
    struct ssh2_session *s = a->task->session;

    if (rc == 0)
        return ACCEPTED;
    if (is_lost(s, rc) && a->refused > 0) {
        hb_error_set(err, HVD_EPERM,
                     "ssh: its sshd closed the connection after %d keys that "
                     "it does not know (%s); name the right one with "
                     "--ssh-identity-file",
                     a->refused, a->tried);
        return GAVE_UP;
    }
    if (is_lost(s, rc) || rc == LIBSSH2_ERROR_ALLOC) {
        s->closed |= rc != LIBSSH2_ERROR_ALLOC;
        ssh2_failed(a->task, "the authentication", err);
        return GAVE_UP;
    }
    a->refused++;
    return REFUSED;
}

static enum outcome try_agent_key(struct auth *a,
                                  const struct ssh_agent_key *key,
                                  struct hb_error *err)
{
    struct ssh2_task *t = a->task;
    struct signer s = {a, key, 0};
    int rc;

    add_tried(a, "agent");
    while ((rc = libssh2_userauth_publickey(
                t->session->lib, t->config.user, key->blob, key->len, on_sign,
                (void **)&s)) == LIBSSH2_ERROR_EAGAIN)
        if (ssh2_wait(t, err) < 0)
            return GAVE_UP;
    if (s.rc == 0 || s.rc == -HVD_EPERM)
        return judge(a, rc, err);
    hb_error_set(err, s.rc == -HVD_ESHUTDOWN ? HVD_ESHUTDOWN : HVD_EPERM,
                 "ssh: the ssh-agent did not sign (%s)", t->config.agent);
    return GAVE_UP;
}

/* ---- Trying a file ---- */

static LIBSSH2_USERAUTH_PUBLICKEY_SIGN_FUNC(on_probe)
{
    int *would_do = (int *)abstract;

    (void)session;
    (void)sig;
    (void)sig_len;
    (void)data;
    (void)data_len;
    *would_do = 1;
    return -1;
}

/* Asks whether the server would accept the key, without a signature. */
static enum outcome probe(struct auth *a, const struct ssh2_key *k,
                          struct hb_error *err)
{
    struct ssh2_task *t = a->task;
    int would_do = 0, rc;

    while ((rc = libssh2_userauth_publickey(
                t->session->lib, t->config.user, k->key.blob, k->key.blob_len,
                on_probe, (void **)&would_do)) == LIBSSH2_ERROR_EAGAIN)
        if (ssh2_wait(t, err) < 0)
            return GAVE_UP;
    return would_do ? ACCEPTED : judge(a, rc, err);
}

static void note_trouble(struct auth *a, const struct ssh2_key *k)
{
    char shown[TRIED_MAX];

    short_path(a, k->path, shown, sizeof(shown));
    if (!a->broken[0])
        snprintf(a->broken, sizeof(a->broken), "%.120s %s", shown, k->trouble);
}

static enum outcome unlock(struct auth *a, struct ssh2_key *k,
                           struct hb_error *err)
{
    struct ssh2_task *t = a->task;
    int rc;

    ssh2_task_stage(t, "waiting for a passphrase");
    rc = ssh2_key_open(t, k);
    ssh2_step(t, "authenticating", SSH2_PHASE_TIMEOUT_MS);
    if (rc == 0)
        return ACCEPTED;
    if (rc == -HVD_ESHUTDOWN) {
        hb_error_set(err, HVD_ESHUTDOWN, "it was cancelled");
        return GAVE_UP;
    }
    if (k->trouble[0])
        note_trouble(a, k);
    else if (!a->locked[0])
        short_path(a, k->path, a->locked, sizeof(a->locked));
    return REFUSED;
}

static int is_file_error(int rc)
{
    return rc == LIBSSH2_ERROR_FILE ||
           rc == LIBSSH2_ERROR_KEYFILE_AUTH_FAILED ||
           rc == LIBSSH2_ERROR_PROTO || rc == LIBSSH2_ERROR_DECRYPT ||
           rc == LIBSSH2_ERROR_METHOD_NOT_SUPPORTED;
}

/* Signs in with the key.  libssh2 never gets NULL as the passphrase: its
 * libcrypto would ask on the terminal. */
static enum outcome sign_in(struct auth *a, struct ssh2_key *k,
                            struct hb_error *err)
{
    struct ssh2_task *t = a->task;
    const char *user = t->config.user;
    char shown[TRIED_MAX];
    int rc;

    while ((rc = libssh2_userauth_publickey_frommemory(
                t->session->lib, user, strlen(user), NULL, 0, k->key.text,
                k->key.text_len, k->passphrase ? k->passphrase : "")) ==
           LIBSSH2_ERROR_EAGAIN)
        if (ssh2_wait(t, err) < 0)
            return GAVE_UP;
    if (!is_file_error(rc) || t->session->closed)
        return judge(a, rc, err);
    short_path(a, k->path, shown, sizeof(shown));
    if (k->passphrase && !a->broken[0])
        snprintf(a->broken, sizeof(a->broken),
                 "%.120s cannot be read with that passphrase", shown);
    else if (!k->passphrase)
        note_unable(a, k->key.type, shown);
    return REFUSED;
}

static enum outcome try_file(struct auth *a, struct ssh2_key *k,
                             struct hb_error *err)
{
    enum outcome o = ACCEPTED;
    char shown[TRIED_MAX];

    short_path(a, k->path, shown, sizeof(shown));
    add_tried(a, shown);
    if (!ssh2_key_is_open(a->task, k)) {
        if (k->key.blob)
            o = probe(a, k, err);
        if (o == ACCEPTED)
            o = unlock(a, k, err);
    }
    return o == ACCEPTED ? sign_in(a, k, err) : o;
}

/* ---- No key was accepted ---- */

static int explain_methods(const struct auth *a, struct hb_error *err)
{
    const struct ssh_config *c = &a->task->config;

    if (c->gssapi && is_listed("gssapi-with-mic", a->methods))
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "ssh: its sshd also takes GSSAPI, which libssh2 "
                            "cannot do");
    if (!is_listed("publickey", a->methods))
        return hb_error_set(err, HVD_EPERM,
                            "ssh: its sshd takes no key, only %.80s, which "
                            "needs somebody at a terminal; allow "
                            "PubkeyAuthentication there",
                            a->methods);
    return 0;
}

static int explain(const struct auth *a, struct hb_error *err)
{
    const char *copy_id = a->task->config.copy_id;

    if (a->unable[0])
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "ssh: libssh2 %s cannot use %s", libssh2_version(0),
                            a->unable);
    if (explain_methods(a, err) < 0)
        return err->status;
    if (a->locked[0])
        return hb_error_set(err, HVD_EPERM,
                            "ssh: the key %s needs its passphrase, %s; use "
                            "ssh-add first",
                            a->locked,
                            ssh2_keys_forgotten(a->task->shared)
                                ? "which is asked for once only"
                                : "and nobody gave it");
    if (a->broken[0])
        return hb_error_set(err, HVD_EPERM, "ssh: no key was accepted: %s",
                            a->broken);
    if (a->count == 0)
        return hb_error_set(err, HVD_EPERM,
                            "ssh: there is no key to log in with: none in an "
                            "ssh-agent or in ~/.ssh; make one with "
                            "ssh-keygen, and add it with: %s",
                            copy_id);
    return hb_error_set(err, HVD_EPERM,
                        "ssh: no key was accepted (tried %s); add one with: %s",
                        a->tried, copy_id);
}

/* ---- All of it ---- */

/* Asks for the server's methods.  0; 1: the server accepts the user without
 * authentication; negative with err set. */
static int ask_methods(struct auth *a, struct hb_error *err)
{
    struct ssh2_task *t = a->task;
    LIBSSH2_SESSION *lib = t->session->lib;
    const char *user = t->config.user;
    const char *methods;

    while (
        !(methods = libssh2_userauth_list(lib, user, (unsigned)strlen(user)))) {
        if (libssh2_userauth_authenticated(lib))
            return 1;
        if (libssh2_session_last_errno(lib) != LIBSSH2_ERROR_EAGAIN)
            return ssh2_failed(t, "the authentication", err);
        if (ssh2_wait(t, err) < 0)
            return err->status;
    }
    a->methods = hb_xstrdup(methods);
    return 0;
}

static int try_all(struct auth *a, struct hb_error *err)
{
    int rc = ask_agent(a);

    if (rc == 0)
        rc = load_files(a);
    if (rc < 0)
        return hb_error_set(err, HVD_ESHUTDOWN, "it was cancelled");
    choose(a);
    ssh2_step(a->task, "authenticating", SSH2_PHASE_TIMEOUT_MS);
    for (size_t i = 0; i < a->count; i++) {
        const struct candidate *c = &a->list[i];
        enum outcome o = c->agent_key ? try_agent_key(a, c->agent_key, err)
                                      : try_file(a, c->file, err);
        if (o == ACCEPTED)
            return 0;
        if (o == GAVE_UP)
            return err->status;
    }
    return explain(a, err);
}

int ssh2_authenticate(struct ssh2_task *t, struct hb_error *err)
{
    struct auth a = {.task = t, .agent = {-1, -1}};
    int rc;

    ssh2_step(t, "authenticating", SSH2_PHASE_TIMEOUT_MS);
    rc = ask_methods(&a, err);
    if (rc == 0)
        rc = is_listed("publickey", a.methods) ? try_all(&a, err)
                                               : explain_methods(&a, err);
    ssh_agent_close(&a.agent);
    ssh_agent_keys_free(&a.agent_keys);
    hb_free(a.files);
    hb_free(a.methods);
    return rc < 0 ? rc : 0;
}
