/* SPDX-License-Identifier: Apache-2.0 */
/* Exit causes; see cause.h. */
#include "lib/agent/rank/cause.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CPU_SLACK_MS = 50 };

/* ---- Counters of the out-of-memory killer ---- */

/* Reads up to size - 1 bytes; returns their number, or -1. */
static ssize_t read_text(const char *root, const char *path, char *text,
                         size_t size)
{
    char full[PATH_MAX];
    size_t used = 0;
    ssize_t n = 0;
    int fd;

    snprintf(full, sizeof(full), "%s%s", root, path);
    fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    while (used < size - 1 && (n = read(fd, text + used, size - 1 - used)) > 0)
        used += (size_t)n;
    close(fd);
    text[used] = '\0';
    return n < 0 ? -1 : (ssize_t)used;
}

/* Returns the digits at s as a number; 0 if there are none or the number is too
 * large. */
static uint64_t number_at(char *s)
{
    int64_t v = 0;

    s[strspn(s, "0123456789")] = '\0';
    (void)hb_parse_i64(s, 0, INT64_MAX, &v, NULL);
    return (uint64_t)v;
}

/* Returns the number after `key` at the beginning of a line; 0 if there is no
 * such line. */
static uint64_t read_counter(const char *root, const char *path,
                             const char *key)
{
    char text[16384];
    size_t len = strlen(key);

    if (read_text(root, path, text, sizeof(text)) < 0)
        return 0;
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return number_at(line + len + 1);
    }
    return 0;
}

static uint64_t cgroup_kills(const struct cause *c)
{
    char path[PATH_MAX];

    if (!c->dir)
        return 0;
    snprintf(path, sizeof(path), "%s/%s", c->dir,
             c->version == 2 ? "memory.events" : "memory.oom_control");
    return read_counter(c->root, path, "oom_kill");
}

static uint64_t host_kills(const struct cause *c)
{
    return read_counter(c->root, "/proc/vmstat", "oom_kill");
}

/* Sets c->dir to the deepest directory between mount + path and mount that has
 * `file`: the controller may be enabled only further up, and in a container the
 * path may be the host's. */
static int try_dir(struct cause *c, int version, const char *mount,
                   const char *path, const char *file)
{
    char dir[PATH_MAX], full[PATH_MAX + 64];
    size_t top = strlen(mount);

    snprintf(dir, sizeof(dir), "%s%s", mount, strcmp(path, "/") ? path : "");
    for (;;) {
        snprintf(full, sizeof(full), "%s%s/%s", c->root, dir, file);
        if (access(full, R_OK) == 0)
            break;
        if (strlen(dir) <= top)
            return 0;
        *strrchr(dir, '/') = '\0';
    }
    c->dir = hb_xstrdup(dir);
    c->version = version;
    return 1;
}

/* Parses /proc/self/cgroup: "4:memory:/path" (v1), "0::/path" (v2). */
static void find_cgroup(struct cause *c)
{
    char text[8192], *rest = text, *line;

    if (read_text(c->root, "/proc/self/cgroup", text, sizeof(text)) < 0)
        return;
    while ((line = strsep(&rest, "\n"))) {
        char *controllers = strchr(line, ':'), *path;

        path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        controllers++;
        if (strcmp(controllers, "memory") == 0 &&
            try_dir(c, 1, "/sys/fs/cgroup/memory", path, "memory.oom_control"))
            return;
        if (controllers[0] == '\0' &&
            try_dir(c, 2, "/sys/fs/cgroup", path, "memory.events"))
            return;
    }
}

void cause_init(struct cause *c, const char *root)
{
    char path[PATH_MAX];

    memset(c, 0, sizeof(*c));
    c->root = hb_xstrdup(root);
    find_cgroup(c);
    c->cgroup_kills = cgroup_kills(c);
    c->host_kills = host_kills(c);
    snprintf(path, sizeof(path), "%s/dev/kmsg", root);
    c->kmsg_fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (c->kmsg_fd >= 0)
        (void)lseek(c->kmsg_fd, 0, SEEK_END);
}

void cause_fini(struct cause *c)
{
    if (c->root && c->kmsg_fd >= 0)
        close(c->kmsg_fd);
    hb_free(c->root);
    hb_free(c->dir);
    memset(c, 0, sizeof(*c));
}

/* Returns the smallest memory limit from c->dir upwards; 0: none. */
static uint64_t memory_limit(const struct cause *c)
{
    const char *file = c->version == 2 ? "memory.max" : "memory.limit_in_bytes";
    char dir[PATH_MAX], path[PATH_MAX + 32], text[64];
    uint64_t least = 0;

    snprintf(dir, sizeof(dir), "%s", c->dir ? c->dir : "");
    while (strlen(dir) > strlen("/sys/fs/cgroup")) {
        uint64_t v = 0;

        snprintf(path, sizeof(path), "%s/%s", dir, file);
        if (read_text(c->root, path, text, sizeof(text)) > 0)
            v = number_at(text); /* "max" gives 0 */
        if (v > 0 && v < (uint64_t)1 << 60 && (!least || v < least))
            least = v;
        *strrchr(dir, '/') = '\0';
    }
    return least;
}

/* Returns whether the kernel's log, from where it was last read, says that
 * `pid` was killed for lack of memory. */
static int kmsg_names(struct cause *c, pid_t pid)
{
    char record[2048], name[48];
    int found = 0;
    ssize_t n;

    if (c->kmsg_fd < 0)
        return 0;
    snprintf(name, sizeof(name), "Killed process %d (", (int)pid);
    /* EPIPE: records were overwritten; the next read continues after them. */
    while ((n = read(c->kmsg_fd, record, sizeof(record) - 1)) > 0 ||
           (n < 0 && errno == EPIPE)) {
        if (n < 0)
            continue;
        record[n] = '\0';
        found |= strstr(record, name) != NULL;
    }
    return found;
}

enum oom { OOM_NONE, OOM_CGROUP, OOM_HOST };

/* Takes one out-of-memory kill that no death has been attributed to yet. */
static enum oom take_oom(struct cause *c)
{
    uint64_t host = host_kills(c);

    if (cgroup_kills(c) > c->cgroup_kills) {
        c->cgroup_kills++;
        if (host > c->host_kills)
            c->host_kills++;
        return OOM_CGROUP;
    }
    if (c->dir || host <= c->host_kills)
        return OOM_NONE;
    c->host_kills++;
    return OOM_HOST;
}

static void put_bytes(struct hb_buf *b, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int u = 0;

    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    hb_buf_printf(b, "%.4g %s", v, units[u]);
}

static void put_oom(const struct cause *c, enum oom oom, struct hb_buf *b)
{
    uint64_t limit = oom == OOM_CGROUP ? memory_limit(c) : 0;

    hb_buf_puts(b, "out of memory");
    if (oom == OOM_HOST) {
        hb_buf_puts(b, ": the host's memory was used up");
    } else if (limit) {
        hb_buf_puts(b, ": cgroup limit ");
        put_bytes(b, limit);
    }
}

/* ---- Full file systems ---- */

/* Returns whether `type` is that of a network file system: statfs on one could
 * block the agent. */
static int is_remote(long type)
{
    static const unsigned long remote[] = {
        NFS_SUPER_MAGIC,
        SMB_SUPER_MAGIC,
        CODA_SUPER_MAGIC,
        AFS_SUPER_MAGIC,
        V9FS_MAGIC,
        FUSE_SUPER_MAGIC,
        CEPH_SUPER_MAGIC,
        CIFS_SUPER_MAGIC,
        SMB2_SUPER_MAGIC,
        0x0bd00bd0 /* Lustre */,
        0x47504653 /* GPFS */,
        0x19830326 /* BeeGFS */,
    };

    for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
        if ((unsigned long)type == remote[i])
            return 1;
    return 0;
}

static int is_full(const char *path)
{
    struct statfs s;

    if (!path || statfs(path, &s) < 0 || is_remote(s.f_type))
        return 0;
    return s.f_blocks > 0 &&
           (s.f_bavail == 0 || (s.f_files > 0 && s.f_ffree == 0));
}

/* Appends "; no space left on /tmp" for each full file system or, if none is,
 * what the rank itself said of a full disk or quota. */
static void put_full(const struct cause_facts *f, struct hb_buf *b)
{
    const char *const places[] = {
        f->cwd, f->tmpdir && f->tmpdir[0] ? f->tmpdir : "/tmp", "/dev/shm"};
    int said = 0;

    for (int i = 0; i < 3; i++)
        if (is_full(places[i])) {
            hb_buf_printf(b, "%sno space left on %s", hb_buf_len(b) ? "; " : "",
                          places[i]);
            said = 1;
        }
    if (said || !f->tail)
        return;
    if (strstr(f->tail, strerror(ENOSPC)) || strstr(f->tail, "ENOSPC"))
        hb_buf_printf(b, "%sit reported that a disk is full",
                      hb_buf_len(b) ? "; " : "");
    else if (strstr(f->tail, strerror(EDQUOT)) || strstr(f->tail, "EDQUOT"))
        hb_buf_printf(b, "%sit reported that a disk quota is used up",
                      hb_buf_len(b) ? "; " : "");
}

/* ---- Putting it together ---- */

/* Returns whether the limit on CPU time was reached.  The kernel sends SIGKILL
 * at the hard limit and SIGXCPU at the soft one, which it then raises by a
 * second. It counts in clock ticks, so that on a busy machine its count differs
 * a lot from cpu_ms; hence the tolerance of a quarter. */
static int cpu_is_used_up(const struct cause_facts *f, int signo)
{
    rlim_t limit_s = signo == SIGKILL ? f->cpu.rlim_max : f->cpu.rlim_cur;
    int64_t limit_ms;

    if (limit_s > INT32_MAX) /* RLIM_INFINITY, among others */
        return 0;
    if (signo == SIGXCPU && limit_s > 1)
        limit_s--;
    limit_ms = (int64_t)limit_s * 1000;
    return f->cpu_ms + CPU_SLACK_MS + limit_ms / 4 >= limit_ms;
}

static const char *const cpu_limit = "its limit on CPU time (ulimit -t)";

/* Returns whether a program raises the signal itself, or the kernel for a fault
 * of the program's: no other process sent it. */
static int is_own_fault(int signo)
{
    static const int own[] = {SIGSEGV, SIGBUS,    SIGFPE,   SIGILL,  SIGABRT,
                              SIGSYS,  SIGTRAP,   SIGPIPE,  SIGALRM, SIGPROF,
                              SIGIO,   SIGVTALRM, SIGSTKFLT};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (signo == own[i])
            return 1;
    return 0;
}

static void put_origin(const struct cause_facts *f, int signo, struct hb_buf *b)
{
    if (signo == SIGXCPU && cpu_is_used_up(f, signo))
        hb_buf_puts(b, cpu_limit);
    else if (signo == SIGXFSZ)
        hb_buf_puts(b, "its limit on file size (ulimit -f)");
    else if (!is_own_fault(signo))
        hb_buf_puts(b, "not sent by hvdrun");
}

/* Explains a SIGKILL that hvdrun did not send. */
static enum control_cause
explain_kill(struct cause *c, const struct cause_facts *f, struct hb_buf *b)
{
    enum oom oom = take_oom(c);

    if (oom == OOM_NONE && kmsg_names(c, f->pid))
        oom = OOM_HOST;
    if (oom != OOM_NONE) {
        put_oom(c, oom, b);
        return CONTROL_CAUSE_OOM;
    }
    if (cpu_is_used_up(f, SIGKILL)) {
        hb_buf_puts(b, cpu_limit);
        return CONTROL_CAUSE_SIGNAL;
    }
    hb_buf_puts(b, "by an unknown process: not by hvdrun, no out-of-memory "
                   "kill recorded");
    return CONTROL_CAUSE_SIGNAL;
}

static enum control_cause explain_signal(struct cause *c,
                                         const struct cause_facts *f, int signo,
                                         struct hb_buf *b)
{
    char name[HB_SIGNAL_NAME_MAX];

    if (f->sent >> signo & 1) {
        if (signo != SIGTERM && signo != SIGKILL)
            hb_buf_printf(b, "%s passed on by hvdrun",
                          hb_signal_name(signo, name));
        return CONTROL_CAUSE_HVDRUN;
    }
    if (signo == SIGKILL)
        return explain_kill(c, f, b);
    put_origin(f, signo, b);
    return CONTROL_CAUSE_SIGNAL;
}

/* Explains an exit with `code`.  128 + SIGKILL counts as a kill: a shell that
 * runs the program reports its child's death so. */
static enum control_cause explain_exit(struct cause *c,
                                       const struct cause_facts *f, int code,
                                       struct hb_buf *b)
{
    enum oom oom = f->ending ? OOM_NONE : take_oom(c);

    if (oom == OOM_NONE)
        return CONTROL_CAUSE_EXIT;
    put_oom(c, oom, b);
    if (code == 128 + SIGKILL)
        return CONTROL_CAUSE_OOM;
    hb_buf_puts(b, ", a process of this job was killed");
    return CONTROL_CAUSE_EXIT;
}

void cause_explain(struct cause *c, const struct cause_facts *f,
                   struct control_exited *out)
{
    const siginfo_t *info = f->info;
    struct hb_buf b = HB_BUF_INIT;

    out->signal = out->core_dumped = 0;
    out->cause = CONTROL_CAUSE_EXIT;
    if (info->si_code == CLD_EXITED) {
        out->exit_code = info->si_status & 0xff;
        if (out->exit_code)
            out->cause = explain_exit(c, f, out->exit_code, &b);
    } else {
        out->signal = info->si_status;
        out->core_dumped = info->si_code == CLD_DUMPED;
        out->exit_code = 128 + info->si_status;
        out->cause = explain_signal(c, f, info->si_status, &b);
    }
    if (out->exit_code && out->cause != CONTROL_CAUSE_HVDRUN && !f->ending)
        put_full(f, &b);
    out->detail = hb_xstrdup(hb_buf_data(&b));
    hb_buf_free(&b);
}
