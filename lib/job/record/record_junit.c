/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a job as JUnit's XML, which CI systems show: one test case per
 * rank, of its last process.
 *
 * The file agrees with the exit code: ranks that have failed are failures only
 * if that has ended the job, and of a job that has failed for another reason,
 * the test case "job" has the error.  Ranks that were not started, that hvdrun
 * has ended, and that a job has gone on without are skipped.
 */
#include "lib/job/record/record_data.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <string.h>

#define xprintf(out, ...) hb_must(hb_buf_printf(out, __VA_ARGS__))

enum outcome { PASSED, FAILED, SKIPPED };

static enum outcome outcome_of(const struct record *r,
                               const struct record_run *run)
{
    if (!run || run->ended == RECORD_BY_HVDRUN)
        return SKIPPED;
    if (record_failed(run))
        return r->culprit >= 0 ? FAILED : SKIPPED;
    return run->ended == RECORD_ITSELF ? PASSED : SKIPPED;
}

static void put_attribute(struct hb_buf *out, const char *name,
                          const char *text)
{
    char *clean = record_clean(text);

    for (char *p = clean; *p; p++)
        if (*p == '\n')
            *p = ' ';
    xprintf(out, " %s=\"", name);
    record_escape(out, clean);
    xbuf_puts(out, "\"");
    hb_free(clean);
}

static double seconds(int64_t ns)
{
    return ns > 0 ? (double)ns / 1e9 : 0;
}

static void put_message(struct hb_buf *out, const struct record_run *run,
                        enum outcome outcome)
{
    const char *why = !run                             ? "was not started"
                      : run->ended == RECORD_BY_HVDRUN ? "ended by hvdrun"
                                                       : record_how(run);

    xbuf_puts(out, outcome == FAILED ? "      <failure" : "      <skipped");
    put_attribute(out, "message", why);
    if (outcome == SKIPPED) {
        xbuf_puts(out, "/>\n");
        return;
    }
    put_attribute(out, "type", run->signal ? "signal" : "exit");
    xbuf_puts(out, ">");
    record_escape(out, run->tail);
    xbuf_puts(out, "</failure>\n");
}

static void put_rank(struct hb_buf *out, const struct record *r, int rank)
{
    const struct record_run *run = record_last_run(r, rank);
    enum outcome outcome = outcome_of(r, run);
    int host = run ? run->host : r->ranks[rank].host;
    int64_t took_ns = 0;

    if (run && run->end_ns >= 0)
        took_ns = run->end_ns - run->start_ns;
    xprintf(out, "    <testcase name=\"rank %d\"", rank);
    put_attribute(out, "classname", host < 0 ? "" : r->hosts[host].name);
    xprintf(out, " time=\"%.6f\"", seconds(took_ns));
    if (outcome == PASSED) {
        xbuf_puts(out, "/>\n");
        return;
    }
    xbuf_puts(out, ">\n");
    put_message(out, run, outcome);
    xbuf_puts(out, "    </testcase>\n");
}

static void put_job(struct hb_buf *out, const struct record *r)
{
    char *why = r->cause ? hb_xstrdup(r->cause)
                         : hb_xasprintf("exit code %d", r->exit_code);

    xprintf(out,
            "    <testcase name=\"job\" classname=\"hvdrun\" time=\"%.6f\">\n"
            "      <error type=\"exit code %d\"",
            seconds(record_duration_ns(r)), r->exit_code);
    put_attribute(out, "message", why);
    xbuf_puts(out, ">");
    record_escape(out, r->report);
    xbuf_puts(out, "</error>\n    </testcase>\n");
    hb_free(why);
}

struct counts {
    int tests, failures, errors, skipped;
};

static struct counts count(const struct record *r)
{
    struct counts n = {0, 0, 0, 0};

    for (int rank = 0; rank < r->rank_count; rank++) {
        enum outcome outcome;

        if (!record_has_rank(r, rank))
            continue;
        outcome = outcome_of(r, record_last_run(r, rank));
        n.tests++;
        n.failures += outcome == FAILED;
        n.skipped += outcome == SKIPPED;
    }
    n.errors = r->exit_code != 0 && n.failures == 0;
    n.tests += n.errors;
    return n;
}

static void put_counts(struct hb_buf *out, const struct record *r,
                       const struct counts *n)
{
    xprintf(out,
            " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" "
            "time=\"%.6f\"",
            n->tests, n->failures, n->errors, n->skipped,
            seconds(record_duration_ns(r)));
}

static void put_properties(struct hb_buf *out, const struct record *r)
{
    struct hb_buf command = HB_BUF_INIT;

    record_command(&command, r);
    xbuf_puts(out, "    <properties>\n      <property name=\"command\"");
    put_attribute(out, "value", hb_buf_data(&command));
    xbuf_puts(out, "/>\n      <property name=\"job_id\"");
    put_attribute(out, "value", r->job_id);
    xbuf_puts(out, "/>\n      <property name=\"hvdrun\" value=\"" HVD_VERSION
                   "\"/>\n");
    xprintf(out, "      <property name=\"exit_code\" value=\"%d\"/>\n",
            r->exit_code);
    xbuf_puts(out, "    </properties>\n");
    hb_buf_free(&command);
}

void record_junit(struct hb_buf *out, const struct record *r)
{
    struct counts n = count(r);
    struct hb_buf when = HB_BUF_INIT;

    record_time(&when, r->wall_ns);
    xbuf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                   "<testsuites name=\"hvdrun\"");
    put_counts(out, r, &n);
    xbuf_puts(out, ">\n  <testsuite");
    put_attribute(out, "name", r->argv.count ? r->argv.items[0] : "hvdrun");
    put_counts(out, r, &n);
    put_attribute(out, "timestamp", hb_buf_data(&when));
    xbuf_puts(out, ">\n");
    put_properties(out, r);
    for (int rank = 0; rank < r->rank_count; rank++)
        if (record_has_rank(r, rank))
            put_rank(out, r, rank);
    if (n.errors)
        put_job(out, r);
    if (r->report) {
        xbuf_puts(out, "    <system-err>");
        record_escape(out, r->report);
        xbuf_puts(out, "</system-err>\n");
    }
    xbuf_puts(out, "  </testsuite>\n</testsuites>\n");
    hb_buf_free(&when);
}
