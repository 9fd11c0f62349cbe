/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds what is wrong with hosts; see doctor.h.  Reports come from the hosts
 * and are not trusted: every field may be missing or malformed.
 */
#include "cmd/hvdrun/tools/doctor.h"

#include "cmd/hvdrun/tools/table.h"
#include "lib/base/alloc.h"
#include "lib/protocol/query.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CLOCK_MAX_MS = 100,
    SHELL_SLOW_MS = 500,
    FILES_MIN = 1024,
    PROCESSES_MIN = 1024,
    MIB = 1 << 20,
    SHM_MIN_MIB = 128,
    MEMLOCK_MIN_MIB = 64,
    TEXT_SHOWN = 80,
};

const char *const doctor_sections[] = {
    "dns",   "tcp",  "host key", "login",   "agent",   "names",
    "shell", "home", "clock",    "system",  "limits",  "gpu",
    "cuda",  "nccl", "mpi",      "program", "network", NULL};

struct checks {
    const struct doctor_host *hosts;
    size_t count;
    struct findings *f;
};

static json_t *part(const struct doctor_host *h, const char *name)
{
    return json_object_get(h->report, name);
}

/* ---- Reaching them ---- */

struct failure {
    const char *section, *fix;
};

/* Chooses the advice by the stage at which reaching the host failed. */
static const struct failure *classify(const struct doctor_host *h)
{
    static const struct failure agent = {
        "agent", "try: ssh HOST 'echo $0; df -h ~/.cache /tmp; uname -m'"};
    static const struct failure hangs = {
        "agent", "something hangs there, perhaps a file server: try: ssh HOST "
                 "df; see also its system log"};
    static const struct failure ended = {
        "agent", "the agent or its connection ended while it answered: was it "
                 "a signal, or lack of memory? See the host's system log"};
    static const struct failure stages[] = {
        [HB_STAGE_NAME] = {"dns",
                           "correct the name, or add it to DNS or /etc/hosts"},
        [HB_STAGE_CONNECT] = {"tcp",
                              "is it up, is its ssh server running (or see "
                              "-p), does a firewall drop the port?"},
        [HB_STAGE_HOST_KEY] = {"host key",
                               "compare the fingerprint with one from a "
                               "trusted source, then accept it with ssh"},
        [HB_STAGE_LOGIN] = {"login",
                            "install a key there (ssh-copy-id), load it "
                            "(ssh-add), or name it (-i); see also --ssh-user"},
    };
    enum hb_stage stage = h->stage;

    if (h->reached && h->status == -HVD_ETIMEOUT)
        return &hangs;
    if (h->reached && h->status == -HVD_ECLOSED)
        return &ended;
    if (h->reached)
        return &agent;
    if (stage == HB_STAGE_NONE && h->status == -HVD_ETIMEOUT)
        stage = HB_STAGE_CONNECT;
    if (stage == HB_STAGE_CONNECT && h->dns_failed)
        stage = HB_STAGE_NAME;
    return stage == HB_STAGE_NONE ? &agent : &stages[stage];
}

static void check_reach(const struct checks *c)
{
    double slowest = 0;
    const char *who = "";
    size_t reached = 0;

    for (size_t i = 0; i < c->count; i++) {
        const struct doctor_host *h = &c->hosts[i];

        if (h->error[0]) {
            const struct failure *why = classify(h);

            findings_add(c->f, FINDING_WRONG, why->section, h->name, why->fix,
                         "%s", h->error);
        }
        reached += (size_t)h->reached;
        if (h->reached && h->connect_ms > slowest) {
            slowest = h->connect_ms;
            who = h->name;
        }
    }
    if (reached > 0)
        findings_add(c->f, FINDING_OK, "agent", NULL, "",
                     "runs on %zu of %zu host%s, the slowest, %s, after %.2f s",
                     reached, c->count, c->count == 1 ? "" : "s", who,
                     slowest / 1000);
}

/* Checks name resolution here.  A name that ssh's configuration maps to an
 * address needs no DNS. */
static void check_dns(const struct checks *c)
{
    size_t known = 0;

    for (size_t i = 0; i < c->count; i++) {
        const struct doctor_host *h = &c->hosts[i];

        known += !h->dns_failed;
        if (h->dns_failed && h->reached && !h->is_local)
            findings_add(c->f, FINDING_NOTE, "dns", h->name, "",
                         "not known to this machine (%s), but reached",
                         h->dns_error);
    }
    if (known > 0)
        findings_add(c->f, FINDING_OK, "dns", NULL, "",
                     "this machine knows the addresses of %zu of %zu", known,
                     c->count);
}

/* Checks that hosts resolve each other's names, as MPI, for one, needs. */
static void check_names(const struct checks *c)
{
    size_t asked = 0, wrong = 0;

    for (size_t i = 0; i < c->count; i++) {
        const char *name;
        json_t *addresses;

        json_object_foreach(part(&c->hosts[i], "names"), name, addresses)
        {
            asked++;
            if (json_array_size(addresses) > 0)
                continue;
            wrong++;
            findings_add(c->f, FINDING_NOTE, "names", c->hosts[i].name,
                         "add it to DNS or their /etc/hosts if the program "
                         "uses host names",
                         "cannot resolve %s", name);
        }
    }
    if (asked > 0 && wrong == 0)
        findings_add(c->f, FINDING_OK, "names", NULL, "",
                     "the hosts know each other's names");
}

/* ---- Each in itself ---- */

static void check_shell(const struct checks *c)
{
    double slowest = 0;
    size_t asked = 0;

    for (size_t i = 0; i < c->count; i++) {
        const struct doctor_host *h = &c->hosts[i];
        const json_t *shell = part(h, "shell");
        json_int_t bytes = query_int(shell, "bytes", 0);
        double ms = json_number_value(json_object_get(shell, "ms"));

        if (!json_is_object(shell) || h->is_local)
            continue;
        asked++;
        slowest = ms > slowest ? ms : slowest;
        if (bytes > 0)
            findings_add(c->f, FINDING_WRONG, "shell", h->name,
                         "print only when interactive: [ -t 1 ] || return, at "
                         "the top of the start-up file",
                         "the login shell prints %lld bytes by itself: %.*s",
                         (long long)bytes, TEXT_SHOWN,
                         query_string(shell, "text"));
        if (query_int(shell, "status", 0) != 0)
            findings_add(c->f, FINDING_WRONG, "shell", h->name,
                         "look at its start-up files, and at what HOME and "
                         "SHELL are there",
                         "%s -c true exits with %lld",
                         query_string(shell, "path"),
                         (long long)query_int(shell, "status", 0));
        if (ms > SHELL_SLOW_MS)
            findings_add(c->f, FINDING_WRONG, "shell", h->name,
                         "skip slow set-up (conda, module) when not "
                         "interactive",
                         "the login shell takes more than %.1f s to start",
                         SHELL_SLOW_MS / 1000.0);
    }
    if (asked > 0 && findings_wrong(c->f, "shell") == 0)
        findings_add(c->f, FINDING_OK, "shell", NULL, "",
                     "login shells are silent and start within %.0f ms",
                     ceil(slowest));
}

static void check_home(const struct checks *c)
{
    size_t asked = 0;

    for (size_t i = 0; i < c->count; i++) {
        const struct doctor_host *h = &c->hosts[i];
        const json_t *home = part(h, "home"), *cache = part(h, "cache");

        if (json_is_object(home) && !query_true(home, "writable"))
            findings_add(c->f, FINDING_WRONG, "home", h->name,
                         "mount it, free space or quota, or correct its owner",
                         "%s cannot be written: %s", query_string(home, "path"),
                         query_string(home, "error"));
        if (!json_is_object(cache))
            continue;
        asked++;
        if (!query_true(cache, "usable"))
            findings_add(c->f, FINDING_WRONG, "home", h->name,
                         "set XDG_CACHE_HOME to a private directory that "
                         "programs can be run from, or see --agent",
                         "the agent cannot be kept in %s: %s",
                         query_string(cache, "path"),
                         query_true(cache, "noexec")
                             ? "it is mounted noexec"
                             : query_string(cache, "error"));
    }
    if (asked > 0 && findings_wrong(c->f, "home") == 0)
        findings_add(c->f, FINDING_OK, "home", NULL, "",
                     "can be written, and the agent is kept");
}

static void check_clock(const struct checks *c)
{
    double most = 0;
    size_t asked = 0;

    for (size_t i = 0; i < c->count; i++) {
        const struct doctor_host *h = &c->hosts[i];
        double off = fabs(h->offset_ms);

        if (!h->has_clock)
            continue;
        asked++;
        most = off > most ? off : most;
        if (off > CLOCK_MAX_MS + h->offset_error_ms)
            findings_add(c->f, FINDING_WRONG, "clock", h->name,
                         "run chrony or ntpd there",
                         "%.1f s %s of this machine", off / 1000,
                         h->offset_ms > 0 ? "ahead" : "behind");
    }
    if (asked > 0 && findings_wrong(c->f, "clock") == 0)
        findings_add(c->f, FINDING_OK, "clock", NULL, "",
                     "within %.1f ms of this machine's", most);
}

/* Returns a soft limit; -1: none; -2: unknown. */
static json_int_t limit_of(const struct doctor_host *h, const char *name)
{
    json_t *pair = json_object_get(part(h, "limits"), name);
    const json_t *soft = json_array_get(pair, 0);

    return json_is_integer(soft) ? json_integer_value(soft) : -2;
}

static void check_limits(const struct checks *c)
{
    size_t asked = 0;

    for (size_t i = 0; i < c->count; i++) {
        const struct doctor_host *h = &c->hosts[i];
        json_int_t files = limit_of(h, "nofile");
        json_int_t processes = limit_of(h, "nproc");
        json_int_t locked = limit_of(h, "memlock");

        if (!json_is_object(part(h, "limits")))
            continue;
        asked++;
        if (files >= 0 && files < FILES_MIN)
            findings_add(c->f, FINDING_WRONG, "limits", h->name,
                         "ulimit -n 65536; nofile in "
                         "/etc/security/limits.conf",
                         "only %lld open files", (long long)files);
        if (processes >= 0 && processes < PROCESSES_MIN)
            findings_add(c->f, FINDING_WRONG, "limits", h->name,
                         "ulimit -u unlimited; nproc in "
                         "/etc/security/limits.conf",
                         "only %lld processes", (long long)processes);
        if (query_true(h->report, "rdma") && locked >= 0 &&
            locked < (json_int_t)MEMLOCK_MIN_MIB * MIB)
            findings_add(c->f, FINDING_WRONG, "limits", h->name,
                         "ulimit -l unlimited; memlock in "
                         "/etc/security/limits.conf",
                         "RDMA needs locked memory, the limit is %lld KiB",
                         (long long)locked / 1024);
    }
    if (asked > 0 && findings_wrong(c->f, "limits") == 0)
        findings_add(c->f, FINDING_OK, "limits", NULL, "",
                     "open files, processes and locked memory suffice");
}

static void check_shm(const struct checks *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct doctor_host *h = &c->hosts[i];
        const json_t *shm = part(h, "shm");
        json_int_t size = query_int(shm, "size_bytes", 0);
        json_int_t free_bytes = query_int(shm, "free_bytes", 0);
        json_int_t least = (json_int_t)SHM_MIN_MIB * MIB;
        char *text;

        if (!h->report || (size >= least && free_bytes >= least))
            continue;
        text = table_bytes(size < least ? size : free_bytes);
        findings_add(c->f, FINDING_WRONG, "system", h->name,
                     size < least ? "mount it larger (docker run --shm-size=1g)"
                                  : "remove what was left in it",
                     "/dev/shm %s %s: NCCL and data loaders need more",
                     size < least ? "has" : "has left", text);
        hb_free(text);
    }
}

/* ---- Compared with each other ---- */

/* Compares the strings that take() makes of each report; NULL: absent. */
static int compare(const struct checks *c, enum finding_kind kind,
                   const char *section, const char *what, const char *fix,
                   char *(*take)(const struct doctor_host *h, const char *key),
                   const char *key)
{
    const char **hosts = hb_xcalloc(c->count + 1, sizeof(*hosts));
    char **values = hb_xcalloc(c->count + 1, sizeof(*values));
    size_t n = 0;
    int agree;

    for (size_t i = 0; i < c->count; i++) {
        if (!c->hosts[i].report)
            continue;
        hosts[n] = c->hosts[i].name;
        values[n++] = take(&c->hosts[i], key);
    }
    agree = findings_compare(c->f, kind, section, what, fix, hosts,
                             (const char *const *)values, n);
    for (size_t i = 0; i < n; i++)
        hb_free(values[i]);
    hb_free(values);
    hb_free(hosts);
    return agree;
}

static char *or_null(const char *s)
{
    return *s ? hb_xstrdup(s) : NULL;
}

static char *take_string(const struct doctor_host *h, const char *key)
{
    return or_null(query_string(h->report, key));
}

static char *take_number(const struct doctor_host *h, const char *key)
{
    json_int_t v = query_int(h->report, key, -1);

    return v < 0 ? NULL : hb_xasprintf("%lld", (long long)v);
}

/* Takes a number of bytes in GiB, as equal machines differ by some
 * megabytes. */
static char *take_gib(const struct doctor_host *h, const char *key)
{
    json_int_t v = query_int(h->report, key, -1);

    return v < 0 ? NULL : hb_xasprintf("%.0f GiB", (double)v / (1 << 30));
}

static char *take_version(const struct doctor_host *h, const char *key)
{
    const json_t *lib = json_object_get(part(h, "libraries"), key);

    return or_null(query_string(lib, "version"));
}

static char *take_mpirun(const struct doctor_host *h, const char *key)
{
    return or_null(query_string(part(h, key), "version"));
}

static char *take_hash(const struct doctor_host *h, const char *key)
{
    return or_null(query_string(part(h, key), "hash"));
}

static char *take_file(const struct doctor_host *h, const char *key)
{
    return or_null(
        query_string(json_object_get(part(h, "files"), key), "hash"));
}

static char *take_library(const struct doctor_host *h, const char *key)
{
    const json_t *libs = json_object_get(part(h, "program"), "libraries");

    return or_null(query_string(libs, key));
}

static void check_system(const struct checks *c)
{
    const json_t *report = NULL;
    char *memory;
    int agree;

    for (size_t i = 0; i < c->count && !report; i++)
        report = c->hosts[i].report;
    if (!report)
        return;
    check_shm(c);
    agree = compare(c, FINDING_WRONG, "system", "the machine type",
                    "use hosts of one kind: programs are not portable between "
                    "them",
                    take_string, "cpu");
    agree &=
        compare(c, FINDING_NOTE, "system", "the system", "", take_string, "os");
    agree &= compare(c, FINDING_NOTE, "system", "the number of processors", "",
                     take_number, "cpus");
    agree &= compare(c, FINDING_NOTE, "system", "the memory", "", take_gib,
                     "memory_bytes");
    if (!agree)
        return;
    memory = take_gib(&(struct doctor_host){.report = (json_t *)report},
                      "memory_bytes");
    findings_add(c->f, FINDING_OK, "system", NULL, "",
                 "%s, %s, %lld processors, %s", query_string(report, "os"),
                 query_string(report, "cpu"),
                 (long long)query_int(report, "cpus", 0), memory ? memory : "");
    hb_free(memory);
}

/* Reports a version that all hosts share, if any has one. */
static void tell_version(const struct checks *c, const char *section,
                         char *(*take)(const struct doctor_host *h,
                                       const char *key),
                         const char *key, const char *what)
{
    char *v = NULL;

    for (size_t i = 0; i < c->count && !v; i++)
        if (c->hosts[i].report)
            v = take(&c->hosts[i], key);
    if (v)
        findings_add(c->f, FINDING_OK, section, NULL, "", "%s %s", what, v);
    hb_free(v);
}

static void check_versions(const struct checks *c)
{
    static const char fix[] = "install one version on all hosts, or put the "
                              "right one first in LD_LIBRARY_PATH (-x)";
    static const struct {
        const char *section, *what, *key;
        char *(*take)(const struct doctor_host *h, const char *key);
    } which[] = {
        {"gpu", "the NVIDIA driver", "driver", take_string},
        {"cuda", "the CUDA runtime", "cuda", take_version},
        {"nccl", "NCCL", "nccl", take_version},
        {"mpi", "libmpi", "mpi", take_version},
        {"mpi", "mpirun", "mpirun", take_mpirun},
    };

    for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
        if (compare(c, FINDING_WRONG, which[i].section, which[i].what, fix,
                    which[i].take, which[i].key))
            tell_version(c, which[i].section, which[i].take, which[i].key,
                         which[i].what);
    if (compare(c, FINDING_NOTE, "gpu", "the number of GPUs", "", take_number,
                "gpus"))
        tell_version(c, "gpu", take_number, "gpus", "GPUs on each host:");
}

/* ---- The user's program ---- */

static void check_program_of(const struct checks *c,
                             const struct doctor_host *h)
{
    const json_t *p = part(h, "program");
    json_t *name;
    size_t i;

    if (*query_string(p, "error"))
        findings_add(c->f, FINDING_WRONG, "program", h->name,
                     "copy it there, or give its directory in PATH (-x PATH)",
                     "%s", query_string(p, "error"));
    if (query_true(p, "interpreter_missing"))
        findings_add(c->f, FINDING_WRONG, "program", h->name,
                     "install it there", "%s needs %s, which is not there",
                     query_string(p, "path"), query_string(p, "interpreter"));
    json_array_foreach(json_object_get(p, "missing"), i,
                       name) if (json_is_string(name))
        findings_add(c->f, FINDING_WRONG, "program", h->name,
                     "install it there, or give its directory in "
                     "LD_LIBRARY_PATH (-x)",
                     "%s needs %s, which is not found", query_string(p, "path"),
                     json_string_value(name));
}

/* Compares the values of every key that any host reports. */
static void compare_keys(const struct checks *c, const char *what,
                         const char *fix, enum finding_kind kind,
                         json_t *(*object)(const struct doctor_host *h),
                         char *(*take)(const struct doctor_host *h,
                                       const char *key))
{
    json_t *seen = json_object();

    for (size_t i = 0; i < c->count; i++) {
        const char *key;
        json_t *value;

        json_object_foreach(object(&c->hosts[i]), key, value)
        {
            char *text;

            if (json_object_get(seen, key))
                continue;
            json_object_set_new(seen, key, json_true());
            text = hb_xasprintf("%s%s", what, key);
            compare(c, kind, "program", text, fix, take, key);
            hb_free(text);
        }
    }
    json_decref(seen);
}

static json_t *files_of(const struct doctor_host *h)
{
    return part(h, "files");
}

static json_t *libraries_of(const struct doctor_host *h)
{
    return json_object_get(part(h, "program"), "libraries");
}

static void check_program(const struct checks *c)
{
    static const char fix[] = "copy one build to all hosts";
    size_t asked = 0;

    for (size_t i = 0; i < c->count; i++) {
        asked += json_is_object(part(&c->hosts[i], "program"));
        check_program_of(c, &c->hosts[i]);
    }
    if (asked == 0)
        return;
    compare(c, FINDING_WRONG, "program", "the content of the program", fix,
            take_hash, "program");
    compare_keys(c, "the content of ", fix, FINDING_WRONG, files_of, take_file);
    compare_keys(c, "", "", FINDING_NOTE, libraries_of, take_library);
    if (findings_wrong(c->f, "program") == 0)
        findings_add(c->f, FINDING_OK, "program", NULL, "",
                     "found, the same everywhere, with its libraries");
}

void doctor_check_hosts(const struct doctor_host *hosts, size_t count,
                        struct findings *f)
{
    struct checks c = {hosts, count, f};

    check_reach(&c);
    check_dns(&c);
    check_names(&c);
    check_shell(&c);
    check_home(&c);
    check_clock(&c);
    check_limits(&c);
    check_system(&c);
    check_versions(&c);
    check_program(&c);
}
