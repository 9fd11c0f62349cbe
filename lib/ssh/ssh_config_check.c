/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that libssh2 does not support; see ssh_config.h. */
#include "lib/ssh/ssh_config.h"

#include <sys/stat.h>

int ssh_config_check(const struct ssh_config *c, struct hb_error *err)
{
    struct stat st;

    if (c->unsupported)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "ssh: libssh2 cannot honour the setting %s",
                            c->unsupported);
    if (c->control_path && stat(c->control_path, &st) == 0 &&
        S_ISSOCK(st.st_mode))
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "ssh: a connection that ssh shares is there (%s)",
                            c->control_path);
    return 0;
}
