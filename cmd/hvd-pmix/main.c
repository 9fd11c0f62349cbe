/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd-pmix: serves PMIx to the ranks of one host, so that Open MPI's programs
 * find each other without mpirun.
 *
 * It is a process of its own because the agent is linked statically and cannot
 * load libpmix, and so that a crash of libpmix does not end the agent.
 * The agent carries this program in itself and starts it with a socket as
 * stdin (lib/protocol/pmix_wire.h); nobody calls it by hand.  It ends when the
 * socket does, leaving its files to the agent.
 */
#include "cmd/hvd-pmix/server.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, EXIT_TROUBLE = 125, EXIT_USAGE = 2 };

/* Ignores the signals that end ranks: the agent decides when this program
 * ends. */
static void set_signals(void)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
}

/* ---- The agent's messages --------------------------------------------- */

static int on_setup(const struct frame *f)
{
    struct hb_error err = HB_ERROR_INIT;
    struct pmix_wire_item m = {0};

    if (server.job.size ||
        pmix_wire_decode_setup(f->payload, f->len, &server.job) < 0)
        return -HVD_EPROTO;
    if (server_open(&err) < 0) {
        m.data = err.text;
        m.len = strlen(err.text);
        server_send(PMIX_WIRE_FAILED, &m);
    }
    return 0;
}

static int on_item(const struct frame *f)
{
    struct pmix_wire_item m;

    if (!server.job.size ||
        pmix_wire_decode(f->type, f->payload, f->len, &m) < 0)
        return -HVD_EPROTO;
    switch (f->type) {
    case PMIX_WIRE_FENCE_DONE:
        server_answer(1, &m);
        return 0;
    case PMIX_WIRE_WANTED:
        server_answer(0, &m);
        return 0;
    case PMIX_WIRE_ASK:
        server_ask(m.id);
        return 0;
    case PMIX_WIRE_LOST:
        server_lose();
        return 0;
    default:
        return -HVD_EPROTO;
    }
}

/* Handles all whole messages in the buffer. */
static int handle(struct hb_buf *in, struct hb_error *err)
{
    struct frame f;
    int rc;

    while ((rc = frame_decode(in, FRAME_PAYLOAD_MAX, &f, err)) > 0) {
        rc = f.type == PMIX_WIRE_SETUP ? on_setup(&f) : on_item(&f);
        if (rc < 0)
            return hb_error_set(err, HVD_EPROTO, "malformed message of type %d",
                                f.type);
        frame_done(in, &f);
    }
    return rc;
}

static int serve(void)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf in = HB_BUF_INIT;
    char bytes[READ_BYTES];
    ssize_t n;

    while (handle(&in, &err) == 0) {
        n = recv(server.fd, bytes, sizeof(bytes), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        hb_must(hb_buf_append(&in, bytes, (size_t)n));
    }
    dprintf(2, "hvd-pmix: %s\n", err.text);
    return EXIT_TROUBLE;
}

/* Leaves by _exit: PMIx's threads run, and nothing needs to be written. */
int main(int argc, char **argv)
{
    (void)argv;
    if (argc != 1) {
        dprintf(2, "hvd-pmix: takes no arguments; hvd-agent starts it\n");
        return EXIT_USAGE;
    }
    prctl(PR_SET_NAME, "hvd-pmix");
    set_signals();
    /* One form for all clients, and no files of shared memory. */
    setenv("PMIX_MCA_gds", "hash", 0);
    server.fd = 0;
    _exit(serve());
}
