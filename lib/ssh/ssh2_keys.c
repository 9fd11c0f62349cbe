/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private keys that the hosts of one hvdrun share: each file is read, its
 * passphrase asked and its key decrypted once, by one thread, while the others
 * wait; see ssh2_impl.h.
 */
#include "lib/ssh/ssh2_impl.h"

#include "lib/base/alloc.h"
#include "lib/ssh/keys/passphrase.h"
#include "lib/ssh/keys/ssh_add.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

enum { ASK_TRIES = 3, PROMPT_MAX = 512 };

static void key_free(struct ssh2_key *k)
{
    ssh_key_free(&k->key);
    if (k->passphrase)
        sodium_memzero(k->passphrase, strlen(k->passphrase));
    hb_free(k->passphrase);
    hb_free(k->path);
    hb_free(k);
}

/* Frees all keys; the caller holds the lock. */
void ssh2_keys_free(struct ssh2_shared *s)
{
    if (s->keys && s->was_dumpable)
        prctl(PR_SET_DUMPABLE, 1);
    while (s->keys) {
        struct ssh2_key *k = s->keys;
        s->keys = k->next;
        key_free(k);
    }
}

/* ---- Reading ---- */

static struct ssh2_key *find_key(struct ssh2_shared *s, const char *path)
{
    struct ssh2_key *k = s->keys;

    while (k && strcmp(k->path, path) != 0)
        k = k->next;
    return k;
}

static struct ssh2_key *add_key(struct ssh2_shared *s, const char *path)
{
    struct ssh2_key *k = hb_xcalloc(1, sizeof(*k));

    if (!s->keys) {
        s->was_dumpable = prctl(PR_GET_DUMPABLE) == 1;
        prctl(PR_SET_DUMPABLE, 0);
    }
    k->path = hb_xstrdup(path);
    k->state = KEY_LOADING;
    k->next = s->keys;
    s->keys = k;
    return k;
}

int ssh2_key_get(struct ssh2_task *t, const char *path, struct ssh2_key **out)
{
    struct ssh2_shared *s = t->shared;
    struct ssh2_key *k;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    k = find_key(s, path);
    if (!k) {
        k = add_key(s, path);
        pthread_mutex_unlock(&s->lock);
        k->rc = ssh_key_load(path, &k->key);
        if (k->rc == -HVD_ENOMEM)
            hb_die_oom();
        pthread_mutex_lock(&s->lock);
        k->has_private = k->key.text != NULL;
        k->state = k->key.encrypted ? KEY_LOCKED : KEY_OPEN;
        pthread_cond_broadcast(&s->changed);
    }
    while (k->state == KEY_LOADING && rc == 0)
        rc = ssh2_task_wait_locked(t);
    pthread_mutex_unlock(&s->lock);
    *out = k;
    return rc;
}

int ssh2_key_is_open(struct ssh2_task *t, const struct ssh2_key *k)
{
    int open;

    pthread_mutex_lock(&t->shared->lock);
    open = k->state == KEY_OPEN;
    pthread_mutex_unlock(&t->shared->lock);
    return open;
}

/* ---- Passphrases ---- */

int ssh2_keys_forgotten(struct ssh2_shared *s)
{
    int forgotten;

    pthread_mutex_lock(&s->lock);
    forgotten = s->forget;
    pthread_mutex_unlock(&s->lock);
    return forgotten;
}

/* Asks for a passphrase, but not after forget_keys: the job may have run for
 * hours, and nobody may be at the terminal. */
static int ask(struct ssh2_task *t, const char *prompt, char *out)
{
    const struct ssh2_shared_options *o = &t->shared->options;

    if (ssh2_keys_forgotten(t->shared))
        return -HVD_ENOENT;
    if (o->ask)
        return o->ask(o->ask_arg, prompt, t->cancel_fd, out);
    if (!t->shared->may_ask)
        return -HVD_ENOENT;
    return passphrase_ask(prompt, t->cancel_fd, out, SSH2_PASSPHRASE_MAX);
}

/* Decrypts the key with ssh-add.  0; -HVD_EPERM if the passphrase is wrong;
 * -HVD_EPROTO with k->trouble; -HVD_ESHUTDOWN. */
static int decrypt(struct ssh2_task *t, struct ssh2_key *k, const char *program,
                   const char *passphrase)
{
    char why[SSH_ADD_WHY_MAX] = "it is damaged";
    struct hb_buf plain = HB_BUF_INIT;
    int rc = ssh_add_decrypt(program, k->path, passphrase, t->cancel_fd, &plain,
                             why);

    if (rc == 0)
        rc = ssh_key_set_private(&k->key, hb_buf_data(&plain),
                                 hb_buf_len(&plain));
    if (rc == -HVD_ENOMEM)
        hb_die_oom();
    if (rc == -HVD_EPROTO)
        snprintf(k->trouble, sizeof(k->trouble), "cannot be decrypted: %s",
                 why);
    sodium_memzero(hb_buf_data(&plain), hb_buf_len(&plain));
    hb_buf_free(&plain);
    return rc;
}

/* Asks for the passphrase and decrypts the key; called by the asking thread
 * only.  A key that is not in OpenSSH's format is left to libssh2, with the
 * passphrase. */
static int ask_and_decrypt(struct ssh2_task *t, struct ssh2_key *k)
{
    char answer[SSH2_PASSPHRASE_MAX], prompt[PROMPT_MAX];
    char *program = k->key.openssh ? ssh_add_find() : NULL;
    int rc = -HVD_EPERM;

    if (k->key.openssh && !program) {
        snprintf(k->trouble, sizeof(k->trouble),
                 "has a passphrase, and ssh-add, which decrypts it, is not "
                 "installed here; install OpenSSH's client programs");
        return -HVD_ENOENT;
    }
    for (int i = 0; i < ASK_TRIES && rc == -HVD_EPERM; i++) {
        snprintf(prompt, sizeof(prompt), "%snter passphrase for key '%s': ",
                 i ? "That is not it.  E" : "E", k->path);
        if (ask(t, prompt, answer) < 0)
            break;
        if (program)
            rc = decrypt(t, k, program, answer);
        else {
            k->passphrase = hb_xstrdup(answer);
            rc = 0;
        }
    }
    sodium_memzero(answer, sizeof(answer));
    hb_free(program);
    return rc;
}

int ssh2_key_open(struct ssh2_task *t, struct ssh2_key *k)
{
    struct ssh2_shared *s = t->shared;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    while (rc == 0 &&
           (k->state == KEY_ASKING || (k->state == KEY_LOCKED && s->asking)))
        rc = ssh2_task_wait_locked(t);
    if (rc == 0 && k->state == KEY_LOCKED) {
        k->state = KEY_ASKING;
        s->asking = 1;
        pthread_mutex_unlock(&s->lock);
        rc = ask_and_decrypt(t, k);
        pthread_mutex_lock(&s->lock);
        s->asking = 0;
        k->state = rc == 0 ? KEY_OPEN : t->cancelled ? KEY_LOCKED : KEY_REFUSED;
        pthread_cond_broadcast(&s->changed);
    }
    if (rc == 0 && k->state == KEY_REFUSED)
        rc = -HVD_EPERM;
    if (t->cancelled)
        rc = -HVD_ESHUTDOWN;
    pthread_mutex_unlock(&s->lock);
    return rc;
}
