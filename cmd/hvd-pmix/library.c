/* SPDX-License-Identifier: Apache-2.0 */
/* Loading libpmix; see library.h. */
#include "cmd/hvd-pmix/library.h"

#include <dlfcn.h>
#include <string.h>

/* Stores the address of a function.  By copying bytes: ISO C has no conversion
 * from a pointer to data. */
static int find(void *handle, const char *name, void *function)
{
    void *at = dlsym(handle, name);

    memcpy(function, &at, sizeof(at));
    return at != NULL;
}

/* Loads with local symbols: what libpmix needs must not be mixed with anything
 * else. */
int library_open(const char *name, struct library *lib, struct hb_error *err)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"PMIx_server_init", &lib->init},
        {"PMIx_server_register_nspace", &lib->register_nspace},
        {"PMIx_server_register_client", &lib->register_client},
        {"PMIx_server_setup_fork", &lib->setup_fork},
        {"PMIx_server_dmodex_request", &lib->dmodex_request},
        {"PMIx_generate_regex", &lib->generate_regex},
        {"PMIx_generate_ppn", &lib->generate_ppn},
        {"PMIx_Error_string", &lib->error_string},
        {"PMIx_Get_version", &lib->get_version},
    };

    if (!handle)
        return hb_error_set(err, HVD_ENOENT, "cannot load PMIx (%s)",
                            dlerror());
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (!find(handle, wanted[i].name, wanted[i].function))
            return hb_error_set(err, HVD_EUNSUPPORTED,
                                "%s has no %s: it is no library of PMIx 3 or "
                                "later",
                                name, wanted[i].name);
    (void)find(handle, "PMIx_Value_load", &lib->value_load);
    return 0;
}

int library_error(const struct library *lib, pmix_status_t rc, const char *what,
                  struct hb_error *err)
{
    return hb_error_set(err, HVD_ESYSTEM, "%s: %s (%s)", what,
                        lib->error_string(rc), lib->get_version());
}
