/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for the agent, and sending to it; see server.h. */
#include "cmd/hvd-pmix/server.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct server server = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- Sending ---------------------------------------------------------- */

void server_send_buf(const struct hb_buf *frame)
{
    const char *p = hb_buf_data(frame);
    size_t left = hb_buf_len(frame);

    pthread_mutex_lock(&server.lock);
    while (left > 0) {
        ssize_t n = send(server.fd, p, left, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(0); /* the agent is gone */
        p += n;
        left -= (size_t)n;
    }
    pthread_mutex_unlock(&server.lock);
}

void server_send(enum pmix_wire_type type, const struct pmix_wire_item *m)
{
    struct hb_buf out = HB_BUF_INIT;

    hb_must(pmix_wire_encode(&out, type, m));
    server_send_buf(&out);
    hb_buf_free(&out);
}

/* ---- Waiting ---------------------------------------------------------- */

/* Returns whether somebody waits for the data of that rank. */
static int is_awaited(uint32_t rank)
{
    for (const struct waiter *w = server.waiters; w; w = w->next)
        if (!w->is_fence && w->id == rank)
            return 1;
    return 0;
}

/* Adds a waiter: 1 if another one waits for the same data, else 0; or
 * -HVD_EPEER. */
static int add_waiter(const struct waiter *given, uint32_t *fence)
{
    struct waiter *w = hb_xcalloc(1, sizeof(*w));
    int lost, awaited;

    *w = *given;
    pthread_mutex_lock(&server.lock);
    lost = server.lost;
    awaited = !fence && is_awaited(w->id);
    if (!lost) {
        if (fence)
            *fence = w->id = ++server.fences;
        w->next = server.waiters;
        server.waiters = w;
    }
    pthread_mutex_unlock(&server.lock);
    if (lost)
        hb_free(w);
    return lost ? -HVD_EPEER : awaited;
}

int server_wait_fence(pmix_modex_cbfunc_t done, void *arg, uint32_t *id)
{
    const struct waiter w = {NULL, 1, 0, done, arg};

    return add_waiter(&w, id);
}

int server_wait_data(uint32_t rank, pmix_modex_cbfunc_t done, void *arg)
{
    const struct waiter w = {NULL, 0, rank, done, arg};

    return add_waiter(&w, NULL);
}

/* Takes the waiters that match off the list. */
static struct waiter *take(int all, int is_fence, uint32_t id)
{
    struct waiter **at = &server.waiters, *taken = NULL;

    pthread_mutex_lock(&server.lock);
    while (*at) {
        struct waiter *w = *at;

        if (!all && (w->is_fence != is_fence || w->id != id)) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        w->next = taken;
        taken = w;
    }
    pthread_mutex_unlock(&server.lock);
    return taken;
}

static pmix_status_t pmix_status(int32_t status)
{
    if (status == PMIX_WIRE_OK)
        return PMIX_SUCCESS;
    return status == PMIX_WIRE_NO_DATA ? PMIX_ERR_NOT_FOUND
                                       : PMIX_ERR_LOST_CONNECTION;
}

/* Answers with a copy of the data, which PMIx frees when it needs it no more.
 */
static void answer(struct waiter *w, const struct pmix_wire_item *m)
{
    char *copy = NULL;

    if (m->status == PMIX_WIRE_OK && m->len > 0) {
        copy = malloc(m->len);
        if (!copy)
            hb_die_oom();
        memcpy(copy, m->data, m->len);
    }
    w->done(pmix_status(m->status), copy, copy ? m->len : 0, w->arg, free,
            copy);
    hb_free(w);
}

static void answer_all(struct waiter *w, const struct pmix_wire_item *m)
{
    while (w) {
        struct waiter *next = w->next;

        answer(w, m);
        w = next;
    }
}

void server_answer(int is_fence, const struct pmix_wire_item *m)
{
    answer_all(take(0, is_fence, m->id), m);
}

void server_lose(void)
{
    const struct pmix_wire_item m = {.status = PMIX_WIRE_PEER_LOST};

    pthread_mutex_lock(&server.lock);
    server.lost = 1;
    pthread_mutex_unlock(&server.lock);
    answer_all(take(1, 0, 0), &m);
}
