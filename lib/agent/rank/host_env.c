/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that hvdrun leaves to the host; see host_env.h and
 * lib/job/worker_env.h. */
#include "lib/agent/rank/host_env.h"

#include "lib/base/env.h"

#include <string.h>

static const char *find(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; env && *env; env++)
        if (!strncmp(*env, name, len) && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

int host_env_complete(struct hb_strv *env, char *const *own)
{
    static const char *const names[] = {
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TMPDIR",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "ZE_AFFINITY_MASK",
    };
    int rc = 0;

    for (size_t i = 0; !rc && i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = find(own, names[i]);

        if (value && !hb_env_get(env, names[i]))
            rc = hb_env_set(env, names[i], value);
    }
    return rc;
}
