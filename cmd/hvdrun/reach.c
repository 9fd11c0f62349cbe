/* SPDX-License-Identifier: Apache-2.0 */
/* See reach.h. */
#include "cmd/hvdrun/reach.h"

#include "cmd/hvdrun/run.h"
#include "lib/base/alloc.h"
#include "lib/transport/localname.h"

#include <libgen.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

char *run_program_dir(void)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    const char *name = (const char *)getauxval(AT_EXECFN);

    if (n >= 0)
        path[n] = '\0';
    else if (!name || !realpath(name, path)) /* without /proc */
        return hb_xstrdup("/");
    return hb_xstrdup(dirname(path));
}

/* Beside hvdrun, as in the build tree; else where make install puts it.
 * A program that is nowhere is reported when it is started. */
char *reach_agent_path(const struct options *o)
{
    static const char *const places[] = {"hvd-agent", "../libexec/hvd-agent",
                                         "../libexec/hvd/hvd-agent"};
    char *dir, *path = NULL;

    if (o->agent_path)
        return hb_xstrdup(o->agent_path);
    dir = run_program_dir();
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        path = hb_xasprintf("%s/%s", dir, places[i]);
        if (access(path, X_OK) == 0)
            break;
        hb_free(path);
        path = NULL;
    }
    if (!path)
        path = hb_xasprintf("%s/%s", dir, places[0]);
    hb_free(dir);
    return path;
}

char *reach_plugin_dir(void)
{
    char *dir = run_program_dir();
    char *path = hb_xasprintf("%s/../lib/hvd", dir);

    hb_free(dir);
    return path;
}

/* A port or another user means a server, even on this machine. */
int reach_is_local(const struct host_entry *e, const char *hostname)
{
    const struct passwd *me = e->user ? getpwuid(geteuid()) : NULL;

    if (e->port || (e->user && !(me && strcmp(me->pw_name, e->user) == 0)))
        return 0;
    return transport_name_is_local(e->name, hostname);
}

void reach_options(const struct options *o, const char *agent_path,
                   const char *plugin_dir, struct remote_options *out)
{
    *out = (struct remote_options){
        .launcher = o->launcher,
        .rsh = o->rsh,
        .ssh_port = o->ssh_port,
        .ssh_user = o->ssh_user,
        .ssh_identity = o->ssh_identity,
        .ssh_config = o->ssh_config,
        .ssh_known_hosts = o->ssh_known_hosts,
        .max_startups = o->max_startups,
        .agent_path = agent_path,
        .remote_agent = o->agent_path,
        .plugin_dir = plugin_dir,
        .start_timeout_ms = o->start_timeout_ms,
    };
}
