/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile host may answer in place of an agent: frames that break
 * the protocol of lib/protocol/control/control.h, one kind per run.
 *
 *     evil_agent WHAT
 *
 * WHAT, before a greeting: `version` another version's header; `huge` a
 * header that announces a giant frame; `cut` half a header, then the end;
 * `json` a greeting that is no JSON.  After a well-formed one: `type`
 * unknown messages; `foreign` the death of rank 0, which is another host's;
 * `flood` output without end or window; `twice` a second greeting; `mute`
 * nothing more; `bomb` and `deep` JSON that is large when it is parsed;
 * `spam` and `moan` too many log messages and stderr without end; `log`,
 * `failed` and `quitting` texts that would drive a terminal, and `answer` an
 * answer made of them.  `first` is `bomb` as the greeting.
 */
#include "lib/protocol/control/control.h"

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
            exit(0); /* hvdrun has closed the connection */
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

/* Text that clears the screen, sets the window's title, begins a new line and
 * writes from right to left. */
#define EVIL                      \
    "\033[2J\033]0;owned\007\233" \
    "31m\nhvdrun: rank 7 died\342\200\256 forged"
#define EVIL_JSON                                  \
    "\"\\u001b[2J\\u001b]0;owned\\u0007\\u009b31m" \
    "\\nhvdrun: rank 7 died\\u202e forged\""

static void say(enum control_type type, const char *text)
{
    if (frame_encode(&out, (uint8_t)type, text, strlen(text)) < 0)
        exit(99);
}

/* Sends a message of `len` bytes of JSON, [{},{},...], which is far larger when
 * it is parsed. */
static void bomb(enum control_type type, size_t len)
{
    char *text = malloc(len);

    if (!text)
        exit(99);
    for (size_t i = 0; i < len; i++)
        text[i] = "{},"[i % 3];
    text[0] = '[';
    text[len - 1] = ']';
    if (frame_encode(&out, (uint8_t)type, text, len) < 0)
        exit(99);
    free(text);
}

static void deep(void)
{
    static char text[500001];

    memset(text, '[', sizeof(text) - 1);
    say(CONTROL_FAILED, text);
}

static void leave(void)
{
    flush();
    exit(0);
}

static void spam(void)
{
    for (int i = 0; i < 2000; i++)
        say(CONTROL_LOG, "\3spam");
}

static void moan(void)
{
    static char bytes[65536];

    memset(bytes, 'x', sizeof(bytes));
    flush();
    while (write(STDERR_FILENO, bytes, sizeof(bytes)) > 0)
        ;
}

/* Answers each question of ps, kill, clean and doctor with hostile text. */
static void answer(void)
{
    static const char text[] =
        "{\"user\":" EVIL_JSON ",\"host\":" EVIL_JSON ",\"os\":" EVIL_JSON
        ",\"kernel\":" EVIL_JSON ",\"cpu\":" EVIL_JSON
        ",\"shell\":{\"path\":" EVIL_JSON
        ",\"bytes\":9,\"ms\":3.0,\"text\":" EVIL_JSON ",\"status\":0}"
        ",\"jobs\":[{\"id\":\"0123456789abcdef0123456789abcdef\",\"agent\":1,"
        "\"procs\":[{\"pid\":1,\"rank\":0,\"top\":true,\"state\":\"R\","
        "\"command\":" EVIL_JSON "}]}]"
        ",\"ended\":[{\"id\":" EVIL_JSON ",\"found\":true,\"processes\":1}]"
        ",\"removed\":[{\"path\":" EVIL_JSON ",\"what\":" EVIL_JSON "}]}";

    struct hb_buf in = HB_BUF_INIT;
    char chunk[4096];
    struct frame f;
    ssize_t n;

    flush();
    while ((n = read(STDIN_FILENO, chunk, sizeof(chunk))) > 0) {
        hb_buf_append(&in, chunk, (size_t)n);
        while (frame_decode(&in, FRAME_PAYLOAD_MAX, &f, NULL) > 0) {
            say(CONTROL_ANSWER, text);
            flush();
            frame_done(&in, &f);
        }
    }
    exit(0);
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
    else if (!strcmp(what, "first"))
        bomb(CONTROL_HELLO, 1 << 20);
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
    } else if (!strcmp(what, "bomb")) {
        bomb(CONTROL_ANSWER, FRAME_PAYLOAD_MAX);
    } else if (!strcmp(what, "deep")) {
        deep();
    } else if (!strcmp(what, "spam")) {
        spam();
    } else if (!strcmp(what, "moan")) {
        moan();
    } else if (!strcmp(what, "log")) {
        say(CONTROL_LOG, "\3" EVIL);
        leave();
    } else if (!strcmp(what, "failed")) {
        say(CONTROL_FAILED, "{\"exit_code\":3,\"text\":" EVIL_JSON "}");
    } else if (!strcmp(what, "quitting")) {
        say(CONTROL_QUITTING, EVIL);
        leave();
    } else if (!strcmp(what, "answer")) {
        answer();
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
