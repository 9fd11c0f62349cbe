/* SPDX-License-Identifier: Apache-2.0 */
/* See reach.h. */
#include "cmd/hvdrun/reach.h"

#include "cmd/hvdrun/libdirs.h"
#include "cmd/hvdrun/run_job.h"
#include "lib/base/alloc.h"
#include "lib/base/sys/trust.h"
#include "lib/ssh/ssh2.h"
#include "lib/transport/localname.h"

#include <errno.h>
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

/* Looks beside hvdrun, as in the build tree, then where make install puts it.
 * A missing agent is reported when it is started. */
char *reach_agent_path(const struct options *o, struct hb_error *err)
{
    static const char *const places[] = {"hvd-agent", "../libexec/hvd-agent",
                                         "../libexec/hvd/hvd-agent"};
    struct hb_error why = HB_ERROR_INIT;
    char *dir, *path = NULL, real[PATH_MAX];

    if (o->agent_path)
        return hb_xstrdup(o->agent_path);
    dir = run_program_dir();
    for (size_t i = 0; !path && i < sizeof(places) / sizeof(places[0]); i++) {
        char *name = hb_xasprintf("%s/%s", dir, places[i]);

        if (access(name, X_OK) == 0 &&
            hb_check_trust(name, "/proc/self/exe", real, &why) == 0)
            path = hb_xstrdup(real);
        hb_free(name);
    }
    if (!path && why.status)
        hb_error_set(err, HVD_EPERM,
                     "the agent is not used: %s, or name one with --agent",
                     why.text);
    else if (!path)
        path = hb_xasprintf("%s/%s", dir, places[0]);
    hb_free(dir);
    return path;
}

char *reach_plugin(const char *file)
{
    char *dir = run_program_dir(), *name = hb_xasprintf("hvd/%s", file);
    char *path = libdirs_find(dir, name);

    if (!path)
        path = hb_xasprintf("%s/../lib/%s", dir, name);
    hb_free(name);
    hb_free(dir);
    return path;
}

char *reach_plugin_dir(void)
{
    char *path = reach_plugin(SSH2_PLUGIN_FILE);

    *strrchr(path, '/') = '\0';
    return path;
}

int reach_check_files(const struct options *o, struct hb_error *err)
{
    const struct {
        const char *option, *path, *advice;
    } files[] = {
        {"-i", o->ssh_identity, "give the private key to log in with"},
        {"--ssh-config", o->ssh_config,
         "give one in the form of ~/.ssh/config"},
        {"--ssh-known-hosts", o->ssh_known_hosts,
         "make an empty one with touch, if no host is known yet"},
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (files[i].path && access(files[i].path, R_OK) < 0)
            return hb_error_set(err, HVD_EINVAL, "%s '%s': %s; %s",
                                files[i].option, files[i].path, strerror(errno),
                                files[i].advice);
    return 0;
}

/* Returns whether the host needs no connection.  A port or another user means a
 * server, even on this machine. */
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
