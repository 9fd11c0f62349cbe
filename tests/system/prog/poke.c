/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks the socket on which an agent serves its workers:
 *
 *     poke [-u UID] unix:@NAME|unix:PATH WHAT
 *
 * WHAT: `junk` random bytes; `huge` a header that announces a giant frame;
 * `cut` half a header, then the end; `flood` valid headers of unknown
 * types; `hello` a well-formed greeting as rank 0; `idle` a hundred silent
 * connections.  Prints `refused` when the connection is refused or closed
 * without a byte, `answer N` when N bytes came back; exit 0 for both.
 */
#include "lib/base/env.h"
#include "lib/protocol/worker.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static void die(const char *what)
{
    fprintf(stderr, "poke: %s: %s\n", what, strerror(errno));
    exit(99);
}

static int dial(const char *where)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = 10};
    size_t len;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (fd < 0)
        die("socket");
    if (strncmp(where, "unix:", 5) || strlen(where) > sizeof(a.sun_path))
        die(where);
    where += 5;
    len = strlen(where);
    memcpy(a.sun_path, where, len);
    if (where[0] == '@')
        a.sun_path[0] = '\0';
    else
        len++;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&a,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len))) {
        close(fd);
        return -1;
    }
    return fd;
}

static void compose(const char *what, struct hb_buf *out)
{
    unsigned char header[FRAME_HEADER_BYTES];
    struct worker_hello hello = {WORKER_ABI, 0, (uint32_t)getpid()};

    if (!strcmp(what, "junk")) {
        for (uint32_t i = 0, x = 1; i < 100000; i++, x = x * 1664525 + 1)
            hb_buf_put_u8(out, (uint8_t)(x >> 24));
    } else if (!strcmp(what, "huge")) {
        frame_header(header, WORKER_HELLO, 0);
        memset(header + 8, 0xff, 4);
        hb_buf_append(out, header, sizeof(header));
    } else if (!strcmp(what, "cut")) {
        frame_header(header, WORKER_HELLO, 12);
        hb_buf_append(out, header, 5);
    } else if (!strcmp(what, "flood")) {
        for (int i = 0; i < 1000; i++)
            frame_encode(out, 200, "x", 1);
    } else if (!strcmp(what, "hello")) {
        worker_encode_hello(out, &hello);
    }
}

int main(int argc, char **argv)
{
    struct hb_buf out = HB_BUF_INIT;
    char bytes[4096];
    int64_t uid = 0;
    ssize_t n = 0, got = 0;
    int fd;

    if (argc == 5 && !strcmp(argv[1], "-u")) {
        if (hb_parse_i64(argv[2], 1, INT32_MAX, &uid, NULL) < 0 ||
            setgid((gid_t)uid) || setuid((uid_t)uid))
            die("uid");
        argv += 2;
    } else if (argc != 3) {
        fprintf(stderr, "usage: poke [-u UID] ADDRESS WHAT\n");
        return 99;
    }
    if (!strcmp(argv[2], "idle"))
        for (int i = 0; i < 99; i++)
            dial(argv[1]); /* open until the end */
    fd = dial(argv[1]);
    if (fd < 0) {
        puts("refused");
        return 0;
    }
    compose(argv[2], &out);
    if (hb_buf_len(&out) &&
        send(fd, hb_buf_data(&out), hb_buf_len(&out), MSG_NOSIGNAL) < 0 &&
        errno != EPIPE && errno != ECONNRESET)
        die("send");
    hb_buf_free(&out);
    if (strcmp(argv[2], "hello"))
        shutdown(fd, SHUT_WR);
    while ((n = read(fd, bytes, sizeof(bytes))) > 0) {
        got += n;
        if (!strcmp(argv[2], "hello"))
            break;
    }
    if (got)
        printf("answer %zd\n", got);
    else
        puts(n < 0 && errno == EAGAIN ? "silence" : "refused");
    return 0;
}
