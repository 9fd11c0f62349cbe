/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host lists: an input that begins with '-' is the argument of -H (without the
 * '-'), any other a hostfile.  An accepted list keeps the promises of
 * hostlist.h and a plan can be made of it.
 */
#include "lib/hosts/slot_plan.h"
#include "tests/fuzz/fuzz.h"

static void check_name(const char *s)
{
    FUZZ_CHECK(s[0] != '\0' && s[0] != '-');
    FUZZ_CHECK(strlen(s) <= HOSTS_NAME_MAX);
    for (; *s; s++)
        FUZZ_CHECK(*s > ' ' && *s < 0x7f && !strchr(",;[]@/\\'\"$`", *s));
}

static void check_list(const struct hostlist *l)
{
    size_t i;

    FUZZ_CHECK(l->count >= 1 && l->count <= HOSTS_COUNT_MAX);
    for (i = 0; i < l->count; i++) {
        const struct host_entry *e = &l->entries[i];

        check_name(e->name);
        if (e->user)
            check_name(e->user);
        FUZZ_CHECK(e->slots >= 0 && e->slots <= HOSTS_SLOTS_MAX);
        FUZZ_CHECK(e->max_slots >= 0 && e->max_slots <= HOSTS_SLOTS_MAX);
        FUZZ_CHECK(e->max_slots == 0 || e->slots <= e->max_slots);
        FUZZ_CHECK(e->port >= 0 && e->port <= 65535);
    }
}

static void check_plan(const struct hostlist *l, struct plan_options o)
{
    int num_proc = o.num_proc;
    struct hb_error err = HB_ERROR_INIT;
    struct plan p;
    int i, rc;

    rc = plan_make(l, &o, &p, &err);
    fuzz_check_error(rc, &err);
    if (rc < 0)
        return;
    FUZZ_CHECK(p.size >= 1 && (num_proc == 0 || p.size == num_proc));
    for (i = 0; i < p.size; i++) {
        const struct plan_rank *r = &p.ranks[i];

        FUZZ_CHECK(r->rank == i && r->host < p.host_count);
        FUZZ_CHECK(r->local_rank < r->local_size);
        FUZZ_CHECK(r->cross_rank < r->cross_size);
        FUZZ_CHECK(r->cross_size <= p.host_count);
        FUZZ_CHECK(p.hosts[r->host].ranks[r->local_rank] == i);
    }
    plan_free(&p);
}

static int parse_argument(const uint8_t *data, size_t size, struct hostlist *l,
                          struct hb_error *err)
{
    char *text = fuzz_string(data, size);
    int rc = hostlist_parse(text, l, err);

    FUZZ_CHECK(rc == 0 || strncmp(err->text, "-H: ", 4) == 0);
    free(text);
    return rc;
}

static int parse_file(const uint8_t *data, size_t size, struct hostlist *l,
                      struct hb_error *err)
{
    char *text = fuzz_copy(data, size);
    int rc = hostlist_parse_file_text("f", text, size, l, err);

    FUZZ_CHECK(rc == 0 || strncmp(err->text, "f:", 2) == 0);
    free(text);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    if (size > 0 && data[0] == '-')
        rc = parse_argument(data + 1, size - 1, &l, &err);
    else
        rc = parse_file(data, size, &l, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0) {
        check_list(&l);
        check_plan(&l, (struct plan_options){.num_proc = 0});
        check_plan(&l, (struct plan_options){.num_proc = 2});
        check_plan(&l, (struct plan_options){.num_proc = 9,
                                             .map = PLAN_MAP_NODE,
                                             .npernode = 3,
                                             .oversubscribe = 1});
        hosts_name_is_local(l.entries[0].name, "n1.cluster");
    } else {
        FUZZ_CHECK(!l.entries && l.count == 0);
    }
    hostlist_free(&l);
    return 0;
}
