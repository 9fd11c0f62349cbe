/* SPDX-License-Identifier: Apache-2.0 */
/* The PMIx library, loaded when hvd-pmix runs: the host's own. */
#ifndef HVD_PMIX_LIBRARY_H
#define HVD_PMIX_LIBRARY_H

#include "lib/base/error.h"

#include <pmix.h>
#include <pmix_server.h>

/* The functions of libpmix that are used. */
struct library {
    __typeof__(PMIx_server_init) *init;
    __typeof__(PMIx_server_register_nspace) *register_nspace;
    __typeof__(PMIx_server_register_client) *register_client;
    __typeof__(PMIx_server_setup_fork) *setup_fork;
    __typeof__(PMIx_server_dmodex_request) *dmodex_request;
    __typeof__(PMIx_generate_regex) *generate_regex;
    __typeof__(PMIx_generate_ppn) *generate_ppn;
    __typeof__(PMIx_Error_string) *error_string;
    __typeof__(PMIx_Get_version) *get_version;
    /* NULL in PMIx 3 */
    pmix_status_t (*value_load)(pmix_value_t *value, const void *data,
                                pmix_data_type_t type);
};

/* Loads the library at a path, or found by the loader by its file's name.  0,
 * or negative with err set. */
int library_open(const char *name, struct library *lib, struct hb_error *err);

/* Describes a status of PMIx in err.  Returns a negative status. */
int library_error(const struct library *lib, pmix_status_t rc, const char *what,
                  struct hb_error *err);

#endif
