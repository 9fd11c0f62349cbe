/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hvdrun doctor`: what an agent can tell of its host; see query.h.
 *
 * The answer: host, os, kernel, cpu, cpus, memory_bytes, available_bytes, shm
 * {size_bytes, free_bytes}, limits {name: [soft, hard], -1 unlimited}, rdma,
 * user, home, cache (place.h), shell {path, bytes, ms, text, status}, gpus,
 * driver, libraries, mpirun, program, files (progcheck.h), names {name:
 * [addresses]}.
 */
#include "lib/agent/query/agent_query.h"

#include "lib/agent/machine/gpu_list.h"
#include "lib/agent/query/account.h"
#include "lib/agent/query/capture.h"
#include "lib/agent/query/progcheck.h"
#include "lib/agent/rank/program.h"
#include "lib/agent/rank/tree.h"
#include "lib/base/alloc.h"
#include "lib/base/strv.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"
#include "lib/protocol/query.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

enum {
    SHELL_TIMEOUT_MS = 10000,
    SHELL_NOISE_MAX = 2048,
    NAMES_TIMEOUT_MS = 10000,
    NAMES_MAX = 64,
    FILES_MAX = 16,
};

static void put(json_t *out, const char *name, json_t *value)
{
    json_object_set_new(out, name, value);
}

/* ---- The machine ---- */

/* Reads the value of `NAME=value` or `Name: value` in a small text file; "" if
 * there is none. */
static void file_field(const char *path, const char *label, char *value,
                       size_t size)
{
    FILE *f = fopen(path, "re");
    char line[512];
    size_t len = strlen(label);

    value[0] = '\0';
    while (f && fgets(line, sizeof(line), f)) {
        const char *v = line + len;

        if (strncmp(line, label, len) != 0)
            continue;
        v += strspn(v, " \t\"");
        snprintf(value, size, "%.*s", (int)strcspn(v, "\"\n"), v);
        break;
    }
    if (f)
        fclose(f);
}

static json_int_t kib_field(const char *label)
{
    char value[64];
    long long kib = -1;

    file_field("/proc/meminfo", label, value, sizeof(value));
    if (sscanf(value, "%lld", &kib) != 1 || kib < 0)
        return -1;
    return (json_int_t)kib * 1024;
}

static void put_machine(json_t *out)
{
    char host[256] = "", text[256];
    struct utsname u;
    struct statvfs shm;
    cpu_set_t set;

    uname(&u);
    gethostname(host, sizeof(host) - 1);
    put(out, "host", query_text(host));
    put(out, "kernel", query_text(u.release));
    put(out, "cpu", query_text(u.machine));
    file_field("/etc/os-release", "PRETTY_NAME=", text, sizeof(text));
    put(out, "os", query_text(text));
    put(out, "cpus",
        json_integer(sched_getaffinity(0, sizeof(set), &set) == 0
                         ? CPU_COUNT(&set)
                         : (json_int_t)sysconf(_SC_NPROCESSORS_ONLN)));
    put(out, "memory_bytes", json_integer(kib_field("MemTotal:")));
    put(out, "available_bytes", json_integer(kib_field("MemAvailable:")));
    if (statvfs("/dev/shm", &shm) == 0)
        put(out, "shm",
            json_pack("{s:I, s:I}", "size_bytes",
                      (json_int_t)shm.f_blocks * (json_int_t)shm.f_frsize,
                      "free_bytes",
                      (json_int_t)shm.f_bavail * (json_int_t)shm.f_frsize));
}

static json_int_t limit_value(rlim_t v)
{
    return v == RLIM_INFINITY ? -1 : (json_int_t)v;
}

/* Reads the limits of the guardian, which are those that ranks get: the agent
 * has raised its own limit on descriptors.  This process is the agent's child,
 * so the guardian is its grandparent. */
static void put_limits(json_t *out)
{
    static const struct {
        const char *name;
        enum __rlimit_resource resource;
    } which[] = {
        {"nofile", RLIMIT_NOFILE},   {"nproc", RLIMIT_NPROC},
        {"memlock", RLIMIT_MEMLOCK}, {"core", RLIMIT_CORE},
        {"stack", RLIMIT_STACK},
    };
    json_t *limits = json_object();
    struct tree_proc agent;
    pid_t guardian = 0;
    struct rlimit r;

    if (tree_stat(getppid(), &agent))
        guardian = agent.ppid;
    for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
        if ((guardian > 1 &&
             prlimit(guardian, which[i].resource, NULL, &r) == 0) ||
            getrlimit(which[i].resource, &r) == 0)
            put(limits, which[i].name,
                json_pack("[I, I]", limit_value(r.rlim_cur),
                          limit_value(r.rlim_max)));
    put(out, "limits", limits);
    put(out, "rdma", json_boolean(access("/sys/class/infiniband", F_OK) == 0));
}

static void put_gpus(json_t *out)
{
    char version[256];
    struct gpu_list gpus;
    const char *word;

    gpu_list_read("", NULL, &gpus);
    put(out, "gpus", json_integer(gpus.count));
    gpu_list_fini(&gpus);
    file_field("/proc/driver/nvidia/version", "NVRM version:", version,
               sizeof(version));
    /* "NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug ..." */
    for (word = version; *word; word += strspn(word, " ")) {
        size_t len = strcspn(word, " ");

        if (strspn(word, "0123456789.") == len && len > 0) {
            version[(size_t)(word - version) + len] = '\0';
            put(out, "driver", query_text(word));
            return;
        }
        word += len;
    }
}

/* ---- The login shell ---- */

/* Sets env to that of a shell that sshd starts.  bash reads its start-up file
 * if it believes to be run by sshd. */
static void shell_env(struct hb_strv *env)
{
    for (char **e = environ; e && *e; e++)
        hb_strv_add(env, *e);
    hb_env_set(env, "SHLVL", NULL);
    hb_env_set(env, "BASH_ENV", NULL);
    if (!hb_env_get(env, "SSH_CLIENT"))
        hb_env_set(env, "SSH_CLIENT", "127.0.0.1 1 22");
}

static json_t *check_shell(void)
{
    const char *shell = account_env("SHELL");
    char command[] = "-c", word[] = "true";
    char *argv[] = {(char *)shell, command, word, NULL};
    struct hb_strv env = HB_STRV_INIT;
    struct capture run = {.argv = argv,
                          .timeout_ms = SHELL_TIMEOUT_MS,
                          .with_stderr = 1,
                          .cwd = account_env("HOME"),
                          .max_bytes = SHELL_NOISE_MAX};
    struct capture_result r;
    json_t *out;

    if (!shell || shell[0] != '/')
        return json_null();
    shell_env(&env);
    run.envp = env.items;
    if (run.cwd && access(run.cwd, X_OK) < 0)
        run.cwd = NULL;
    if (capture_run(&run, &r) < 0) {
        hb_strv_free(&env);
        return json_pack("{s:o, s:s}", "path", query_text(shell), "error",
                         "cannot be started");
    }
    hb_text_trim_cut(hb_buf_data(&r.out));
    out = json_pack("{s:o, s:I, s:f, s:o, s:i}", "path", query_text(shell),
                    "bytes", (json_int_t)r.bytes, "ms", r.ms, "text",
                    query_text(hb_buf_data(&r.out)), "status", r.status);
    hb_buf_free(&r.out);
    hb_strv_free(&env);
    return out;
}

/* ---- Names ---- */

/* Takes a line such as "10.0.0.7  STREAM n7"; lines of other kinds repeat the
 * address. */
static void take_address(json_t *list, char *line)
{
    char *kind = strpbrk(line, " \t");

    if (!kind)
        return;
    *kind++ = '\0';
    kind += strspn(kind, " \t");
    if (strncmp(kind, "STREAM", 6) == 0)
        json_array_append_new(list, query_text(line));
}

/* Resolves a name by running getent(1): the agent is static and cannot load
 * this host's name services. */
static json_t *resolve(const char *getent, const char *name, int timeout_ms)
{
    char words[] = "ahosts", end[] = "--";
    char *argv[] = {(char *)getent, words, end, (char *)name, NULL};
    struct capture run = {.argv = argv,
                          .envp = environ,
                          .timeout_ms = timeout_ms,
                          .max_bytes = 8192};
    json_t *list = json_array();
    struct capture_result r;
    char *save = NULL;

    if (capture_run(&run, &r) == 0) {
        for (char *line = strtok_r(hb_buf_data(&r.out), "\n", &save); line;
             line = strtok_r(NULL, "\n", &save))
            take_address(list, line);
        hb_buf_free(&r.out);
    }
    return list;
}

/* Returns {name: [addresses]}, without the names left when the time is over. */
static json_t *resolve_all(const json_t *names)
{
    uint64_t deadline = hb_now_ns() + (uint64_t)NAMES_TIMEOUT_MS * 1000000;
    char *getent = NULL;
    json_t *out = json_object(), *name;
    size_t i;
    int code;

    if (program_resolve("getent", account_env("PATH"), "/", &getent, &code,
                        NULL) < 0)
        return out;
    json_array_foreach(names, i, name)
    {
        uint64_t now = hb_now_ns();

        if (i == NAMES_MAX || now >= deadline)
            break;
        if (json_is_string(name))
            put(out, json_string_value(name),
                resolve(getent, json_string_value(name),
                        (int)((deadline - now) / 1000000) + 1));
    }
    hb_free(getent);
    return out;
}

/* ---- The user's program ---- */

static const char *string_or_null(const json_t *question, const char *name)
{
    return json_string_value(json_object_get(question, name));
}

/* Checks those of the arguments that are files: they matter as much as the
 * program, as in `python3 x.py`. */
static json_t *check_files(const json_t *argv, const char *cwd)
{
    json_t *files = json_object(), *word;
    size_t i;

    json_array_foreach(argv, i, word)
    {
        const char *name = json_string_value(word);
        json_t *file;

        if (i == 0 || i > FILES_MAX || !name || !*name)
            continue;
        file = progcheck_file(name, cwd);
        if (json_is_null(file))
            json_decref(file);
        else
            put(files, name, file);
    }
    return files;
}

static void put_program(json_t *out, const json_t *question)
{
    const json_t *argv = json_object_get(question, "argv");
    struct progcheck c = {
        .program = json_string_value(json_array_get(argv, 0)),
        .cwd = query_string(question, "cwd"),
        .path = string_or_null(question, "path"),
        .library_path = string_or_null(question, "library_path"),
    };

    put(out, "libraries", progcheck_libraries("", c.library_path));
    put(out, "mpirun", progcheck_tool("mpirun", c.path));
    if (!c.program || c.cwd[0] != '/')
        return;
    put(out, "program", progcheck_program(&c));
    put(out, "files", check_files(argv, c.cwd));
}

json_t *query_doctor(const json_t *question)
{
    json_t *out = json_object();

    put_machine(out);
    put_limits(out);
    put_gpus(out);
    put(out, "user", account_user());
    put(out, "home", account_home());
    put(out, "cache", account_cache());
    put(out, "shell", check_shell());
    put(out, "names", resolve_all(json_object_get(question, "names")));
    put_program(out, question);
    return out;
}
