/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile host may answer in place of an agent: frames that break
 * the protocol of lib/protocol/control.h, one kind per run.
 *
 *     evil_agent WHAT
 *
 * WHAT, before a greeting: `version` another version's header; `huge` a
 * header that announces a giant frame; `cut` half a header, then the end;
 * `json` a greeting that is no JSON.  After a well-formed one: `type`
 * unknown messages; `foreign` the death of rank 0, which is another host's;
 * `flood` output without end or window; `twice` a second greeting; `mute`
 * nothing more.
 */
#include "lib/protocol/control.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct hb_buf out = HB_BUF_INIT;

static void flush(void)
{
    size_t sent = 0;

    while (sent < hb_buf_len(&out)) {
        ssize_t n = write(STDOUT_FILENO, hb_buf_data(&out) + sent,
                          hb_buf_len(&out) - sent);

        if (n < 0)
            exit(0); /* hvdrun has had enough */
        sent += (size_t)n;
    }
    hb_buf_free(&out);
}

static void greet(void)
{
    struct control_hello hello = {.version = (char *)HVD_VERSION,
                                  .host = (char *)"evil",
                                  .cpu = (char *)"x86_64",
                                  .pid = getpid(),
                                  .cpus = 1};

    if (control_encode_hello(&out, &hello) < 0)
        exit(99);
    flush();
}

static void header(unsigned char offset, unsigned char value, size_t count)
{
    unsigned char bytes[FRAME_HEADER_BYTES];

    frame_header(bytes, CONTROL_HELLO, 0);
    memset(bytes + offset, value, count);
    hb_buf_append(&out, bytes, sizeof(bytes));
}

static void death_of(int rank)
{
    struct control_exited m = {.rank = rank,
                               .pid = 1,
                               .exit_code = 3,
                               .detail = (char *)"",
                               .stderr_tail = (char *)"\033[2Jgone\n"};

    if (control_encode_exited(&out, &m) < 0)
        exit(99);
}

static int before_greeting(const char *what)
{
    if (!strcmp(what, "version"))
        header(4, 0x7f, 1);
    else if (!strcmp(what, "huge"))
        header(8, 0xff, 4);
    else if (!strcmp(what, "json"))
        frame_encode(&out, CONTROL_HELLO, "{\"version\":", 11);
    else if (!strcmp(what, "cut")) {
        hb_buf_append(&out, "HVD", 3);
        flush();
        exit(0);
    } else
        return 0;
    return 1;
}

static void after_greeting(const char *what)
{
    static char bytes[CONTROL_OUTPUT_CHUNK];

    if (!strcmp(what, "type")) {
        for (int i = 0; i < 50; i++)
            frame_encode(&out, (uint8_t)(200 + i), "x", 1);
    } else if (!strcmp(what, "foreign")) {
        death_of(0);
    } else if (!strcmp(what, "twice")) {
        greet();
    } else if (!strcmp(what, "flood")) {
        memset(bytes, 'x', sizeof(bytes));
        for (;;) {
            control_encode_output(&out, 1, 1, bytes, sizeof(bytes));
            flush();
        }
    } else if (strcmp(what, "mute")) {
        fprintf(stderr, "usage: evil_agent WHAT\n");
        exit(99);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 99;
    signal(SIGPIPE, SIG_IGN);
    if (!before_greeting(argv[1])) {
        greet();
        after_greeting(argv[1]);
    }
    flush();
    /* until hvdrun hangs up */
    while (read(STDIN_FILENO, &(char){0}, 1) > 0)
        ;
    return 0;
}
