/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for a rank of Horovod 0.28.1 with Gloo, and repeats what such a
 * rank says to its rendezvous in hvd.init(): the bytes, and their order, were
 * captured from real ranks.
 *
 *     horovod_rank [rounds N] [slow RANK MS] [die RANK] [time]
 *
 * rounds: so many times hvd.init(), one after the other.  slow: that rank waits
 * so long before each DELETE.  die: that rank kills itself before it puts its
 * address the second time.  time: rank 0 prints the milliseconds of all rounds.
 *
 * In each context the ranks meet at a barrier over TCP, as in Gloo, at the
 * address that the rank 0 of the context has put.  So an address of an earlier
 * round is refused or never answered.  Prints "ok RANK", or exits 1 after a
 * line on stderr.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    ENTRY =
        136, /* an address as Gloo puts it: sockaddr_storage, and a number */
    PEERS_MAX = 1024,
    BODY_MAX = ENTRY * PEERS_MAX,
    POLL_MS = 10,
    WAIT_S = 30,
};

struct context {
    char scope[256];
    int rank, size;
};

static struct sockaddr_in rendezvous;
static int slow_rank = -1, slow_ms, die_rank = -1, my_rank, addresses_put;
static char reply[BODY_MAX + 4096];

static void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void die(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "horovod_rank: rank %d: ", my_rank);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void sleep_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

static int number(const char *name)
{
    const char *value = getenv(name);

    if (!value)
        die("%s is not set", name);
    return atoi(value);
}

/* ---- HTTP ---- */

static int connect_to(const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
        die("connect to port %d: %s", ntohs(to->sin_port), strerror(errno));
    return fd;
}

static void send_all(int fd, const void *bytes, size_t len)
{
    const char *p = bytes;

    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

        if (n < 0)
            die("send: %s", strerror(errno));
        p += n;
        len -= (size_t)n;
    }
}

/* Reads a reply as Horovod's client does: until as many bytes have come as
 * Content-Length says, whose name it compares with regard to case.  Returns the
 * code, with the body's place. */
static int read_reply(int fd, char **body, size_t *body_len)
{
    size_t got = 0, want = 0;

    *body = NULL;
    while (!*body || got < want) {
        ssize_t n = recv(fd, reply + got, sizeof(reply) - 1 - got, 0);
        char *length;

        if (n <= 0)
            die("the connection ended after %zu bytes", got);
        got += (size_t)n;
        reply[got] = '\0';
        if (*body || !strstr(reply, "\r\n\r\n"))
            continue;
        *body = strstr(reply, "\r\n\r\n") + 4;
        length = strstr(reply, "\r\nContent-Length: ");
        if (!length || length > *body)
            die("a reply without Content-Length: %.80s", reply);
        *body_len = strtoul(length + strlen("\r\nContent-Length: "), NULL, 10);
        want = (size_t)(*body - reply) + *body_len;
    }
    return atoi(reply + strlen("HTTP/1.1 "));
}

/* Sends a request in the bytes of Horovod's client; returns the code. */
static int request(const char *method, const char *scope, const char *key,
                   const void *bytes, size_t len, char **body, size_t *body_len)
{
    static char out[BODY_MAX + 1024];
    int fd = connect_to(&rendezvous), code;
    size_t head = (size_t)snprintf(out, 1024,
                                   "%s /%s/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                   "Content-Length: %zu\r\n\r\n",
                                   method, scope, key, len);

    if (len)
        memcpy(out + head, bytes, len);
    send_all(fd, out, head + len);
    code = read_reply(fd, body, body_len);
    close(fd);
    return code;
}

static void must(const char *method, const char *scope, const char *key,
                 const void *bytes, size_t len)
{
    size_t body_len;
    char *body;
    int code = request(method, scope, key, bytes, len, &body, &body_len);

    if (code != 200)
        die("%s /%s/%s: %d", method, scope, key, code);
}

/* Gets a key until it is there, and then once more. */
static char *wait_for(const char *scope, const char *key, size_t len)
{
    double until = now_ms() + WAIT_S * 1e3;
    size_t body_len = 0;
    char *body = NULL;
    int code, times = 0;

    while (times < 2) {
        code = request("GET", scope, key, NULL, 0, &body, &body_len);
        if (code == 200)
            times++;
        else if (code != 404)
            die("GET /%s/%s: %d", scope, key, code);
        else if (now_ms() > until)
            die("GET /%s/%s: it never came", scope, key);
        else
            sleep_ms(POLL_MS);
    }
    if (body_len != len)
        die("GET /%s/%s: %zu bytes instead of %zu", scope, key, body_len, len);
    return body;
}

/* ---- One context ---- */

/* Returns the address of HOROVOD_GLOO_IFACE, as Gloo does. */
static struct in_addr own_address(void)
{
    const char *name = getenv("HOROVOD_GLOO_IFACE");
    struct in_addr found = {htonl(INADDR_LOOPBACK)};
    struct ifaddrs *all;

    if (!name || getifaddrs(&all) < 0)
        return found;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
            strcmp(i->ifa_name, name) == 0)
            found = ((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
    freeifaddrs(all);
    return found;
}

static int listen_here(struct sockaddr_in *at)
{
    socklen_t len = sizeof(*at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *at =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = own_address()};
    if (fd < 0 || bind(fd, (struct sockaddr *)at, len) < 0 ||
        listen(fd, PEERS_MAX) < 0 ||
        getsockname(fd, (struct sockaddr *)at, &len) < 0)
        die("listen: %s", strerror(errno));
    return fd;
}

/* Rank 0 answers all others when the last of them has come. */
static void barrier(const struct context *c, int listener,
                    const struct sockaddr_in *root)
{
    int fds[PEERS_MAX];
    char byte = 'b';

    if (c->rank > 0) {
        fds[0] = connect_to(root);
        if (recv(fds[0], &byte, 1, 0) != 1)
            die("%s: the barrier broke", c->scope);
        close(fds[0]);
        return;
    }
    for (int i = 0; i < c->size - 1; i++)
        if ((fds[i] = accept(listener, NULL, NULL)) < 0)
            die("accept: %s", strerror(errno));
    for (int i = 0; i < c->size - 1; i++) {
        send_all(fds[i], &byte, 1);
        close(fds[i]);
    }
}

/* Puts an entry for each peer: this rank's address, its rank and the peer's. */
static void put_addresses(const struct context *c,
                          const struct sockaddr_in *own, const char *key)
{
    static char bytes[BODY_MAX];
    int at = 0;

    memset(bytes, 0, sizeof(bytes));
    for (int peer = 0; peer < c->size; peer++) {
        char *entry = bytes + ENTRY * at;

        if (peer == c->rank)
            continue;
        memcpy(entry, own, sizeof(*own));
        memcpy(entry + ENTRY - 8, &c->rank, sizeof(int));
        memcpy(entry + ENTRY - 4, &peer, sizeof(int));
        at++;
    }
    if (die_rank == my_rank && addresses_put++ > 0)
        raise(SIGKILL);
    must("PUT", c->scope, key, bytes, ENTRY * (size_t)at);
}

/* Checks the entry for this rank in what the peer has put. */
static void check_entry(const struct context *c, int peer, const char *body,
                        struct sockaddr_in *out)
{
    const char *entry = body + ENTRY * (c->rank - (c->rank > peer));
    int from, to;

    memcpy(out, entry, sizeof(*out));
    memcpy(&from, entry + ENTRY - 8, sizeof(int));
    memcpy(&to, entry + ENTRY - 4, sizeof(int));
    if (from != peer || to != c->rank)
        die("/%s/%d: the entry is from %d to %d", c->scope, peer, from, to);
}

static void connect_context(const struct context *c)
{
    struct sockaddr_in own, there, root;
    int listener = listen_here(&own);
    char host[256], key[32];
    size_t len;
    char *body;

    gethostname(host, sizeof(host));
    snprintf(key, sizeof(key), "rank_%d", c->rank);
    must("PUT", c->scope, key, host, strlen(host));
    for (int i = 0; i < c->rank; i++) {
        snprintf(key, sizeof(key), "rank_%d", i);
        request("GET", c->scope, key, NULL, 0, &body, &len);
    }
    snprintf(key, sizeof(key), "%d", c->rank);
    put_addresses(c, &own, key);
    root = own;
    for (int i = 0; i < c->size; i++) {
        if (i == c->rank)
            continue;
        snprintf(key, sizeof(key), "%d", i);
        body = wait_for(c->scope, key, ENTRY * (size_t)(c->size - 1));
        check_entry(c, i, body, &there);
        if (i == 0)
            root = there;
    }
    barrier(c, listener, &root);
    close(listener);
    if (my_rank == slow_rank)
        sleep_ms(slow_ms);
    snprintf(key, sizeof(key), "%d", c->rank);
    must("DELETE", c->scope, key, NULL, 0);
}

/* ---- hvd.init() ---- */

static void init(void)
{
    const char *host = getenv("HOROVOD_HOSTNAME");
    const char *suffixes[] = {"", "_process_set_hash_7d48533536350577"};
    int local_rank = number("HOROVOD_LOCAL_RANK");

    for (int i = 0; i < 2; i++) {
        struct context c[] = {
            {"global", my_rank, number("HOROVOD_SIZE")},
            {"local_", local_rank, number("HOROVOD_LOCAL_SIZE")},
            {"cross_", number("HOROVOD_CROSS_RANK"),
             number("HOROVOD_CROSS_SIZE")},
        };

        snprintf(c[0].scope, sizeof(c[0].scope), "global%s", suffixes[i]);
        snprintf(c[1].scope, sizeof(c[1].scope), "local_%s%s",
                 host ? host : "localhost", suffixes[i]);
        snprintf(c[2].scope, sizeof(c[2].scope), "cross_%d%s", local_rank,
                 suffixes[i]);
        for (int k = 0; k < 3; k++)
            connect_context(&c[k]);
    }
}

static void read_environment(void)
{
    const char *address = getenv("HOROVOD_GLOO_RENDEZVOUS_ADDR");

    my_rank = number("HOROVOD_RANK");
    rendezvous.sin_family = AF_INET;
    rendezvous.sin_port =
        htons((unsigned short)number("HOROVOD_GLOO_RENDEZVOUS_PORT"));
    if (!address || inet_pton(AF_INET, address, &rendezvous.sin_addr) != 1)
        die("HOROVOD_GLOO_RENDEZVOUS_ADDR is %s", address ? address : "unset");
    if (number("HOROVOD_SIZE") > PEERS_MAX)
        die("more than %d ranks", PEERS_MAX);
}

int main(int argc, char **argv)
{
    int rounds = 1, timed = 0;
    double begin;

    read_environment();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "rounds") == 0 && i + 1 < argc)
            rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "die") == 0 && i + 1 < argc)
            die_rank = atoi(argv[++i]);
        else if (strcmp(argv[i], "slow") == 0 && i + 2 < argc) {
            slow_rank = atoi(argv[++i]);
            slow_ms = atoi(argv[++i]);
        } else if (strcmp(argv[i], "time") == 0)
            timed = 1;
        else
            die("unknown argument %s", argv[i]);
    }
    begin = now_ms();
    for (int i = 0; i < rounds; i++)
        init();
    if (timed && my_rank == 0)
        printf("%.0f ms\n", now_ms() - begin);
    printf("ok %d\n", my_rank);
    return 0;
}
