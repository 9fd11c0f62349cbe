/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --config-file, YAML and JSON: the first byte selects the name under which the
 * rest is read.  The settings are applied, too, except those that open files.
 */
#include "cmd/hvdrun/options/config.h"
#include "lib/base/alloc.h"
#include "tests/fuzz/fuzz.h"

static void check_settings(struct settings *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct setting *item = &s->items[i];

        FUZZ_CHECK(item->option != NULL && item->where != NULL);
        FUZZ_CHECK((item->option->arg == ARG_NONE) == (item->value == NULL));
    }
}

/* Drops settings that open files: the input would choose their names. */
static void drop_files(struct settings *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->count; i++) {
        struct setting item = s->items[i];

        if (item.option->call == apply_env_file ||
            item.option->call == apply_wdir) {
            hb_free(item.where);
            hb_free(item.value);
        } else {
            s->items[kept++] = item;
        }
    }
    s->count = kept;
}

static void apply(struct settings *s)
{
    struct options o;
    struct applier a = {.options = &o};
    struct hb_error err = HB_ERROR_INIT;

    options_init(&o);
    fuzz_check_error(settings_apply(&a, s, &err), &err);
    options_fini(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings s = {NULL, 0, 0};
    struct hb_error err = HB_ERROR_INIT;
    const char *path;
    char *text;
    int rc;

    if (size < 1)
        return 0;
    path = data[0] == 'j' ? "c.json" : "c";
    text = fuzz_copy(data + 1, size - 1);
    rc = config_parse(path, text, size - 1, &s, &err);
    free(text);
    fuzz_check_error(rc, &err);
    FUZZ_CHECK(rc == 0 || !strncmp(err.text, path, strlen(path)));
    check_settings(&s);
    drop_files(&s);
    apply(&s);
    settings_free(&s);
    return 0;
}
