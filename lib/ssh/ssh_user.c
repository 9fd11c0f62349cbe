/* SPDX-License-Identifier: Apache-2.0 */
/* The user who runs hvdrun, for ssh; see ssh_config.h. */
#include "lib/ssh/ssh_config.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <pwd.h>
#include <unistd.h>

int ssh_user_init(struct ssh_user *u)
{
    const struct hb_strv env = {environ, 0, 0};
    struct hb_strv counted = env;
    const struct passwd *me = getpwuid(getuid());
    const char *home, *agent;
    int failed;

    while (environ && environ[counted.count])
        counted.count++;
    home = hb_env_get(&counted, "HOME");
    agent = hb_env_get(&counted, "SSH_AUTH_SOCK");
    if (!home || !*home)
        home = me && me->pw_dir ? me->pw_dir : "/";
    u->home = hb_strdup(home);
    u->name = hb_strdup(me ? me->pw_name : "");
    u->agent = agent && *agent ? hb_strdup(agent) : NULL;
    failed = !u->home || !u->name || (agent && *agent && !u->agent);
    if (failed)
        ssh_user_fini(u);
    return failed ? -HVD_ENOMEM : 0;
}

void ssh_user_fini(struct ssh_user *u)
{
    hb_free(u->name);
    hb_free(u->home);
    hb_free(u->agent);
    u->name = u->home = u->agent = NULL;
}
