/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ANSWER: how ps, kill and doctor read the objects that agents answer with.
 * Two hosts give the same answer, one gives none.
 */
#include "cmd/hvdrun/tools/doctor.h"
#include "cmd/hvdrun/tools/jobs.h"
#include "lib/base/alloc.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/query.h"
#include "tests/fuzz/fuzz.h"

enum { HOSTS = 3 };

/* Checks that a host's text cannot drive the terminal. */
static void check_text(struct hb_buf *text)
{
    fuzz_check_text(hb_buf_data(text));
    hb_buf_free(text);
}

static void use_jobs(const json_t *answer)
{
    struct jobs_answer answers[HOSTS] = {
        {"n1", answer}, {"n2", NULL}, {"n3", answer}};
    struct hb_strv ids = HB_STRV_INIT;
    struct hb_buf text = HB_BUF_INIT;

    jobs_table(answers, HOSTS, &text);
    check_text(&text);
    jobs_ended(&answers[0], 0, &text);
    jobs_removed(&answers[0], 1, &text);
    check_text(&text);
    json_decref(jobs_json(answers, HOSTS));
    FUZZ_CHECK(jobs_match(answers, HOSTS, NULL, &ids, NULL) == 0);
    for (size_t i = 0; i < ids.count; i++)
        FUZZ_CHECK(strspn(ids.items[i], "0123456789abcdef") == 32);
    hb_strv_free(&ids);
}

static void use_report(json_t *answer)
{
    struct doctor_host hosts[HOSTS] = {
        {.name = "n1", .error = "", .reached = 1, .report = answer},
        {.name = "n2", .error = "lost", .status = -HVD_ECLOSED},
        {.name = "n3", .error = "", .reached = 1, .report = answer},
    };
    struct findings f = FINDINGS_INIT;
    struct hb_buf text = HB_BUF_INIT;

    doctor_check_hosts(hosts, HOSTS, &f);
    FUZZ_CHECK(findings_wrong(&f, NULL) > 0);
    findings_format(&f, doctor_sections, &text);
    check_text(&text);
    json_decref(findings_json(&f));
    findings_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct hb_error err = HB_ERROR_INIT;
    json_t *answer = NULL;
    int rc = query_decode(copy, size, CONTROL_ANSWER, &answer, &err);

    fuzz_check_error(rc, &err);
    FUZZ_CHECK((answer != NULL) == (rc == 0));
    free(copy);
    if (rc < 0)
        return 0;
    use_jobs(answer);
    use_report(answer);
    json_decref(answer);
    return 0;
}
