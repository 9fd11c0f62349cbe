/* SPDX-License-Identifier: Apache-2.0 */
/* `ssh -G`: its output is read completely, and a copy of the result is
 * equal. */
#include "lib/ssh/ssh_config.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct openssh_options options = {.host = "n1"};
    const struct ssh_user user = {(char *)"me", (char *)"/home/me", NULL};
    struct ssh_config config, copy;
    struct hb_error err = HB_ERROR_INIT, why = HB_ERROR_INIT;
    char *text = fuzz_copy(data, size);
    int rc = ssh_config_read(text, size, &options, &user, &config, &err);

    free(text);
    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(config.hostname && *config.hostname);
        FUZZ_CHECK(config.user && *config.user);
        FUZZ_CHECK(config.port >= 1 && config.port <= 65535);
        FUZZ_CHECK(config.connect_timeout_ms >= 0);
        FUZZ_CHECK(!config.proxy_jump || *config.proxy_jump);
        for (size_t i = 0; i < config.user_known_hosts.count; i++)
            FUZZ_CHECK(*config.user_known_hosts.items[i] || config.unsupported);
        if (config.control_path)
            config.control_path[0] = '\0'; /* do not look at real files */
        rc = ssh_config_check(&config, &why);
        fuzz_check_error(rc, &why);
        FUZZ_CHECK((rc < 0) == (config.unsupported != NULL));
        FUZZ_CHECK(ssh_config_copy(&config, &copy) == 0);
        FUZZ_CHECK(strcmp(copy.hostname, config.hostname) == 0);
        FUZZ_CHECK(copy.identities.count == config.identities.count);
        ssh_config_fini(&copy);
    }
    ssh_config_fini(&config);
    return 0;
}
