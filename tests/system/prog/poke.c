/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks the socket on which an agent serves its workers, or a TCP port:
 *
 *     poke [-u UID] unix:@NAME|unix:PATH|tcp:ADDRESS:PORT WHAT
 *
 * WHAT: `junk` sends random bytes; `huge` a header that announces a giant
 * frame; `cut` half a header, then the end; `flood` valid headers of unknown
 * types; `hello` a well-formed greeting as rank 0; `idle` makes a hundred
 * silent connections.  Prints `refused` if the connection is refused or closed
 * without a byte, `welcome` if it is accepted as that rank, `answer N` if N
 * other bytes came back.  Exits 0 in each of these cases.
 */
#include "lib/base/env.h"
#include "lib/protocol/worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
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

static int connect_to(const struct sockaddr *a, size_t len)
{
    struct timeval limit = {.tv_sec = 10};
    int fd = socket(a->sa_family, SOCK_STREAM, 0);

    if (fd < 0)
        die("socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, a, (socklen_t)len)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int dial_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t len = strlen(path);

    if (len >= sizeof(a.sun_path))
        die(path);
    memcpy(a.sun_path, path, len);
    if (path[0] == '@')
        a.sun_path[0] = '\0';
    else
        len++;
    return connect_to((struct sockaddr *)&a,
                      offsetof(struct sockaddr_un, sun_path) + len);
}

static int dial_tcp(const char *where)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    char address[INET_ADDRSTRLEN];
    const char *colon = strchr(where, ':');
    int64_t port = 0;

    if (!colon || colon - where >= (ptrdiff_t)sizeof(address))
        die(where);
    memcpy(address, where, (size_t)(colon - where));
    address[colon - where] = '\0';
    if (inet_pton(AF_INET, address, &a.sin_addr) != 1 ||
        hb_parse_i64(colon + 1, 1, 65535, &port, NULL) < 0)
        die(where);
    a.sin_port = htons((uint16_t)port);
    return connect_to((struct sockaddr *)&a, sizeof(a));
}

static int dial(const char *where)
{
    if (!strncmp(where, "unix:", 5))
        return dial_unix(where + 5);
    if (!strncmp(where, "tcp:", 4))
        return dial_tcp(where + 4);
    die(where);
    return -1;
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

static int is_welcome(const char *bytes, ssize_t n)
{
    struct hb_buf in = HB_BUF_INIT;
    struct frame f;
    int found;

    hb_buf_append(&in, bytes, (size_t)n);
    found = frame_decode(&in, WORKER_PAYLOAD_MAX, &f, NULL) == 1 &&
            f.type == WORKER_WELCOME;
    hb_buf_free(&in);
    return found;
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
            dial(argv[1]); /* stays open until the end */
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
    if (got && n > 0 && is_welcome(bytes, n))
        puts("welcome");
    else if (got)
        printf("answer %zd\n", got);
    else
        puts(n < 0 && errno == EAGAIN ? "silence" : "refused");
    return 0;
}
