/* SPDX-License-Identifier: Apache-2.0 */
/* What the listener answers; see route_talk.h. */
#include "lib/agent/route/route_talk.h"

#include <string.h>

static int answer_call(struct route_talk *t)
{
    unsigned char answer[ROUTE_ANSWER_BYTES];
    struct route_call call;

    if (route_auth_read_call(t->token, t->call, &call) < 0 ||
        route_auth_answer(t->token, t->call, t->host, answer) < 0)
        return -1;
    t->proved = 1;
    t->mode = call.mode;
    return t->say(t->arg, answer, sizeof(answer));
}

int route_talk_take(struct route_talk *t, const char *bytes, size_t len)
{
    size_t want = ROUTE_CALL_BYTES - t->got;
    size_t n = len < want ? len : want;

    memcpy(t->call + t->got, bytes, n);
    t->got += n;
    if (n > 0 && t->got == ROUTE_CALL_BYTES && answer_call(t) < 0)
        return -1;
    if (len == n)
        return 0;
    t->bytes += len - n;
    switch (t->mode) {
    case ROUTE_MODE_ECHO:
        return t->bytes > ROUTE_ECHO_MAX_BYTES
                   ? -1
                   : t->say(t->arg, bytes + n, len - n);
    case ROUTE_MODE_SINK:
        return t->bytes > ROUTE_SINK_MAX_BYTES ? -1 : 0;
    default:
        return -1;
    }
}

void route_talk_end(struct route_talk *t)
{
    unsigned char count[8];

    if (!t->proved || t->mode != ROUTE_MODE_SINK)
        return;
    for (int i = 0; i < 8; i++)
        count[i] = (unsigned char)(t->bytes >> (56 - 8 * i));
    (void)t->say(t->arg, count, sizeof(count));
}
