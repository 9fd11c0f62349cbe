/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the job's rendezvous store from a rank, without libhvd:
 *
 *     rdv COMMAND...
 *
 *     put KEY VALUE    get KEY (prints the value, or "none")    wait KEY
 *     watch KEY        waits for a newer value than the last one seen
 *     del KEY          fence NAME VALUE (prints all values, by rank)
 *     some NAME VALUE RANK,RANK...    a fence of those ranks
 *     time NAME        microseconds of a fence of all ranks
 *     big KEY BYTES    puts a value of that size
 *     rank             prints this rank
 *     sleep MS         junk (sends bytes that are no message)
 *
 * In arguments, % stands for this rank.  Prints a line for each result; exits 1
 * after a line on stderr when a command fails.
 */
#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/sys/clock.h"
#include "runtime/core/world/agent_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_S = 30 };

static struct hvd__agent agent = HVD__AGENT_INIT;
static struct worker_welcome welcome;
static uint64_t seen; /* the version of the last value */

static void die(const struct hb_error *err)
{
    fprintf(stderr, "rdv: %s\n", err->text);
    exit(1);
}

static uint64_t deadline(void)
{
    return hb_now_ns() + (uint64_t)WAIT_S * 1000000000;
}

static int print(void *arg, const struct rdv_reply *m)
{
    (void)arg;
    seen = m->version;
    if (m->status == HVD_ENOENT)
        printf("none\n");
    else if (m->status)
        fprintf(stderr, "rdv: %.*s\n", (int)m->len, (const char *)m->value);
    else
        printf("%.*s\n", (int)m->len, m->len ? (const char *)m->value : "");
    return m->status && m->status != HVD_ENOENT ? -m->status : 0;
}

static int print_records(void *arg, const struct rdv_reply *m)
{
    struct rdv_record record;
    struct hb_reader r;

    if (m->status)
        return print(arg, m);
    hb_reader_init(&r, m->value, m->len);
    while (rdv_next_record(&r, &record) > 0)
        printf("%u=%.*s ", record.rank, (int)record.len,
               (const char *)record.value);
    printf("\n");
    return 0;
}

static int hush(void *arg, const struct rdv_reply *m)
{
    return m->status ? print(arg, m) : 0;
}

static void ask(struct rdv_request *m,
                int (*take)(void *arg, const struct rdv_reply *m))
{
    struct hb_error err = HB_ERROR_INIT;

    if (hvd__agent_ask(&agent, m, take, NULL, deadline(), &err) < 0) {
        if (err.status)
            die(&err);
        exit(1);
    }
}

static struct rdv_request request(enum rdv_op op, const char *key,
                                  const char *value)
{
    struct rdv_request m = {
        .op = op, .value = value, .len = value ? strlen(value) : 0};

    snprintf(m.scope, sizeof(m.scope), "test");
    snprintf(m.key, sizeof(m.key), "%s", key);
    return m;
}

static int print_values(void *arg, const struct worker_value *values,
                        struct hb_error *err)
{
    (void)err;
    for (uint32_t i = 0; !arg && i < welcome.size; i++)
        printf("%u=%.*s ", values[i].rank, (int)values[i].len,
               (const char *)values[i].value);
    if (!arg)
        printf("\n");
    return 0;
}

/* Carries out a fence of all ranks; prints the values if `quiet` is NULL. */
static void fence(const char *name, const char *value, void *quiet)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__fence f = {.scope = name,
                           .value = value,
                           .len = strlen(value),
                           .size = welcome.size,
                           .take = print_values,
                           .arg = quiet};

    if (hvd__agent_fence(&agent, &f, deadline(), &err) < 0)
        die(&err);
}

static void fence_of_some(const char *name, const char *value,
                          const char *ranks)
{
    struct rdv_request m = request(RDV_FENCE, "", value);
    unsigned char members[4 * 64];

    snprintf(m.scope, sizeof(m.scope), "%s", name);
    for (; *ranks && m.member_count < 64; m.member_count++) {
        char *end;
        unsigned long rank = strtoul(ranks, &end, 10);
        unsigned char *p = members + (size_t)4 * m.member_count;

        p[0] = p[1] = 0;
        p[2] = (unsigned char)(rank >> 8);
        p[3] = (unsigned char)rank;
        ranks = *end ? end + 1 : end;
    }
    m.members = members;
    ask(&m, print_records);
}

/* Measures a fence that begins when an earlier one has let all ranks go. */
static void time_fence(const char *name)
{
    char again[64];
    uint64_t start;

    fence(name, "x", (void *)name);
    snprintf(again, sizeof(again), "%s.2", name);
    start = hb_now_ns();
    fence(again, "x", again);
    printf("%llu\n", (unsigned long long)(hb_now_ns() - start) / 1000);
}

static void put_big(const char *key, const char *bytes)
{
    size_t len = strtoul(bytes, NULL, 10);
    struct rdv_request m = request(RDV_PUT, key, NULL);

    m.value = hb_xcalloc(1, len + 1);
    m.len = len;
    ask(&m, hush);
    hb_free((void *)m.value);
}

static void send_junk(void)
{
    char bytes[512];
    ssize_t n;

    memset(bytes, 'x', sizeof(bytes));
    n = write(agent.fd, bytes, sizeof(bytes));
    n = n < 0 ? n : read(agent.fd, bytes, sizeof(bytes));
    printf("%s\n", n > 0 ? "answered" : "closed");
}

/* Returns a copy of arg in which the rank replaces each %. */
static char *expand(const char *arg)
{
    char *out = hb_xmalloc(strlen(arg) * 6 + 1), *p = out;

    for (; *arg; arg++) {
        if (*arg == '%')
            p += sprintf(p, "%u", welcome.rank);
        else
            *p++ = *arg;
    }
    *p = '\0';
    return out;
}

static const struct command {
    const char *name;
    int args;
} commands[] = {
    {"put", 2}, {"get", 1},   {"wait", 1},  {"watch", 1},
    {"del", 1}, {"fence", 2}, {"some", 3},  {"time", 1},
    {"big", 2}, {"rank", 0},  {"sleep", 1}, {"junk", 0},
};

static void run(int which, char *a[])
{
    struct rdv_request m;

    switch (which) {
    case 0:
        m = request(RDV_PUT, a[0], a[1]);
        ask(&m, hush);
        break;
    case 1:
        m = request(RDV_GET, a[0], NULL);
        ask(&m, print);
        break;
    case 2:
    case 3:
        m = request(RDV_GET, a[0], NULL);
        m.wait = 1;
        m.after = which == 3 ? seen : 0;
        ask(&m, print);
        break;
    case 4:
        m = request(RDV_DELETE, a[0], NULL);
        ask(&m, hush);
        break;
    case 5:
        fence(a[0], a[1], NULL);
        break;
    case 6:
        fence_of_some(a[0], a[1], a[2]);
        break;
    case 7:
        time_fence(a[0]);
        break;
    case 8:
        put_big(a[0], a[1]);
        break;
    case 9:
        printf("%u of %u on host %u of %u\n", welcome.rank, welcome.size,
               welcome.host_index, welcome.host_count);
        break;
    case 10:
        usleep((useconds_t)strtoul(a[0], NULL, 10) * 1000);
        break;
    default:
        send_junk();
        break;
    }
    fflush(stdout);
}

int main(int argc, char *argv[])
{
    struct hb_error err = HB_ERROR_INIT;
    const char *address = hb_knob("RENDEZVOUS");
    int64_t rank = -1;

    if (!address || hb_knob_i64("RANK", 0, INT32_MAX, &rank, &err) < 0 ||
        hvd__agent_open(&agent, address, (uint32_t)rank, deadline(), &welcome,
                        &err) < 0)
        die(&err);
    for (int i = 1; i < argc;) {
        size_t which = 0, count = sizeof(commands) / sizeof(commands[0]);
        char *args[3] = {NULL};

        while (which < count && strcmp(commands[which].name, argv[i]))
            which++;
        if (which == count || i + commands[which].args >= argc) {
            fprintf(stderr, "rdv: %s: what?\n", argv[i]);
            return 2;
        }
        i++;
        for (int k = 0; k < commands[which].args; k++)
            args[k] = expand(argv[i++]);
        run((int)which, args);
        for (int k = 0; k < 3; k++)
            hb_free(args[k]);
    }
    hvd__agent_close(&agent);
    return 0;
}
