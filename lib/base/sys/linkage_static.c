/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a static program; see linkage.h.
 *
 * Its C library, too, would load shared objects that nsswitch.conf names: so
 * names of hosts and users are looked up only with the modules built into it
 * (glibc 2.34 and later).
 */
#include "lib/base/sys/linkage.h"

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
