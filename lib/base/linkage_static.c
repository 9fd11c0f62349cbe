/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of a static program; see linkage.h.
 *
 * Its C library would load shared objects, too, for what nsswitch.conf
 * names: only what is built into it (glibc 2.34 and later) may be asked for
 * names of hosts and users.
 */
#include "lib/base/linkage.h"

#include <nss.h>

int hb_may_load(struct hb_error *err)
{
    return hb_error_set(err, HVD_EUNSUPPORTED,
                        "this hvdrun is linked statically and loads no "
                        "libraries");
}

static __attribute__((constructor)) void use_built_in_names(void)
{
    (void)__nss_configure_lookup("hosts", "files dns");
    (void)__nss_configure_lookup("passwd", "files");
}
