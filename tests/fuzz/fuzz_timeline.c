/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks' timelines as agents send them, merged into the user's file; the first
 * byte says in which pieces they come.  The file stays a JSON array; each event
 * has its rank and a time of at least 0.
 */
#include "lib/job/trace/job_timeline.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <unistd.h>

static void check_event(const json_t *event, size_t i)
{
    json_int_t pid = json_integer_value(json_object_get(event, "pid"));
    const json_t *ts = json_object_get(event, "ts");

    FUZZ_CHECK(json_is_string(json_object_get(event, "name")));
    FUZZ_CHECK(i == 0 || pid >> TIMELINE_PID_BITS == 1 ||
               pid >> TIMELINE_PID_BITS == 2);
    FUZZ_CHECK(!ts || (json_is_number(ts) && json_number_value(ts) >= 0));
}

static void check_file(const char *path, uint64_t events)
{
    json_t *all = json_load_file(path, 0, NULL), *event;
    size_t i, count = 0;

    FUZZ_CHECK(json_is_array(all));
    json_array_foreach(all, i, event)
    {
        if (json_object_size(event) == 0)
            continue; /* the empty object at the end */
        check_event(event, i);
        count++;
    }
    FUZZ_CHECK(count == events + 1);
    json_decref(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct timeline_rank ranks[2] = {{.rank = 1}, {.rank = 2}};
    struct offset clock = {.known = 1, .ahead_ns = -5, .error_ns = 3};
    struct timeline t = {.file.fd = -1};
    char path[] = "/tmp/fuzz-timeline-XXXXXX", *copy;
    size_t step, at;
    int fd;

    if (size < 1 || (fd = mkstemp(path)) < 0)
        return 0;
    close(fd);
    FUZZ_CHECK(timeline_open(&t, path, NULL) == 0);
    step = data[0] ? data[0] : size;
    copy = fuzz_copy(data + 1, size - 1);
    for (at = 0; at < size - 1; at += step)
        timeline_feed(&t, &ranks[at / step % 2 && data[0] % 2], &clock,
                      copy + at, size - 1 - at < step ? size - 1 - at : step);
    timeline_end(&t, &ranks[0], &clock);
    timeline_end(&t, &ranks[1], &clock);
    FUZZ_CHECK(timeline_close(&t) == 0);
    check_file(path, ranks[0].events + ranks[1].events);
    unlink(path);
    free(copy);
    return 0;
}
