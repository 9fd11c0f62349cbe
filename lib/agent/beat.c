/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's half of the heartbeat: it answers PING, and ends the job when
 * hvdrun has been silent for as long as its last PING said.
 *
 * hvdrun sends three PINGs in that time.  Silence is counted in turns of a
 * timer, not by the clock: an agent that was stopped, or a machine that slept,
 * misses one turn, however long it took, and then reads what hvdrun has sent
 * meanwhile.  Any message counts as a sign of life.
 */
#include "lib/agent/agent_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { BEAT_TURNS = 3 };

/* Tells hvdrun why its ranks end: it may only be asleep, and read this
 * later. */
static void tell_silence(struct agent *a)
{
    char *why = hb_xasprintf("its agent heard nothing from hvdrun for %g s",
                             a->silence_ms / 1e3);

    if (a->state < AGENT_TERMINATING) {
        frame_encode(&a->link.out, CONTROL_QUITTING, why, strlen(why));
        link_flush(&a->link);
    }
    if (hb_buf_len(&a->link.out) > 0)
        dprintf(2, "hvd-agent: %s\n", why);
    hb_free(why);
}

static void on_beat(uv_timer_t *timer)
{
    struct agent *a = timer->data;

    if (a->beats_missed++ < BEAT_TURNS)
        return;
    uv_timer_stop(timer);
    if (a->gone)
        return;
    tell_silence(a);
    agent_hang_up(a);
}

static void start_beat(struct agent *a, uint32_t silence_ms)
{
    uint64_t turn_ms = silence_ms / BEAT_TURNS + 1;

    if (silence_ms == a->silence_ms)
        return;
    a->silence_ms = silence_ms;
    if (a->config.silence_ms)
        atomic_store(a->config.silence_ms, silence_ms);
    if (silence_ms)
        uv_timer_start(&a->beat, on_beat, turn_ms, turn_ms);
    else
        uv_timer_stop(&a->beat);
}

int agent_on_ping(struct agent *a, const struct frame *f, struct hb_error *err)
{
    uint64_t sent_ns;
    uint32_t silence_ms;
    int rc =
        control_decode_ping(f->payload, f->len, &sent_ns, &silence_ms, err);

    if (rc < 0 || a->gone)
        return rc;
    control_encode_pong(&a->link.out, sent_ns, hb_now_ns());
    start_beat(a, silence_ms);
    return 0;
}
