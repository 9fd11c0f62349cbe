/* SPDX-License-Identifier: Apache-2.0 */
/* In the bracket style of horovodrun --check-build. */
#include "cmd/hvdrun/check_build.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>
#include <yaml.h>

#ifdef __clang__
#define COMPILER __VERSION__ /* says Clang itself */
#else
#define COMPILER "gcc " __VERSION__
#endif

/* The first of the places that holds a readable file, as a clean path. */
static char *find(const char *dir, const char *const *places)
{
    for (; *places; places++) {
        char *path = hb_xasprintf("%s/%s", dir, *places);
        char *clean = realpath(path, NULL);
        char *found = NULL;

        if (clean && access(clean, R_OK) == 0)
            found = hb_xstrdup(clean);
        free(clean);
        hb_free(path);
        if (found)
            return found;
    }
    return NULL;
}

static void put(struct hb_buf *out, int built, const char *what,
                const char *note)
{
    hb_buf_printf(out, "    [%c] %s%s%s\n", built ? 'X' : ' ', what,
                  note ? ": " : "", note ? note : "");
}

char *check_build_text(const char *program_dir)
{
    static const char *const libraries[] = {
        "../lib/libhvd.so.0", "../lib/libhvd.so", "../lib64/libhvd.so.0", NULL};
    static const char *const agents[] = {"hvd-agent", "../libexec/hvd-agent",
                                         "../libexec/hvd/hvd-agent", NULL};
    static const char *const ssh2[] = {"../lib/hvd/transport-ssh2.so", NULL};
    char *library = find(program_dir, libraries);
    char *agent = find(program_dir, agents);
    char *ssh = find(program_dir, ssh2);
    struct hb_buf out = HB_BUF_INIT;
    char *text;

    hb_buf_printf(&out, "hvdrun %s\n\nBuilt with:\n", HVD_VERSION);
    hb_buf_printf(&out, "    %s\n    libuv %s, jansson %s, libyaml %s\n",
                  COMPILER, uv_version_string(), jansson_version_str(),
                  yaml_get_version_string());
    hb_buf_puts(&out, "\nParts:\n");
    put(&out, agent != NULL, "hvd-agent", agent ? agent : "not found");
    put(&out, library != NULL, "libhvd", library ? library : "not found");
    hb_buf_puts(&out, "\nAvailable controllers:\n");
    put(&out, 1, "hvd-agent on this machine", NULL);
    put(&out, ssh != NULL, "ssh, by libssh2",
        ssh ? ssh : "transport-ssh2.so not found");
    put(&out, 1, "ssh, by the openssh client", NULL);
    put(&out, 0, "MPI", "not in this version");
    hb_buf_puts(&out, "\nAvailable tensor operations:\n");
    put(&out, library != NULL, "native, shared memory", NULL);
    put(&out, library != NULL, "native, TCP", NULL);
    put(&out, 0, "MPI", "not in this version");
    put(&out, 0, "NCCL", "not in this version");
    text = hb_buf_detach(&out);
    hb_free(library);
    hb_free(agent);
    hb_free(ssh);
    return text ? text : hb_xstrdup("");
}
