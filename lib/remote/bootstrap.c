/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a shell's streams into an agent's; see bootstrap.h. */
#include "lib/remote/bootstrap.h"

#include "lib/base/text.h"
#include "lib/protocol/frame.h"

#include <stdio.h>
#include <string.h>

/* The script is a file of its own, for its readers and for tools that check
 * scripts. */
__asm__(".section .rodata\n"
        "bootstrap_sh:\n"
        ".incbin \"lib/remote/bootstrap.sh\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char bootstrap_sh[] __attribute__((visibility("hidden")));

enum { WORDS_LINE_MAX = 160 };

void bootstrap_init(struct bootstrap *b, const struct agent_image *image,
                    const char *marker)
{
    memset(b, 0, sizeof(*b));
    b->image = image;
    b->marker = marker;
}

void bootstrap_fini(struct bootstrap *b)
{
    hb_buf_free(&b->in);
    hb_buf_free(&b->noise);
    hb_buf_free(&b->errs);
}

/* ---- The script ---- */

static int put_quoted(struct hb_buf *out, const char *s)
{
    int rc = hb_buf_putc(out, '\'');

    for (; rc == 0 && *s; s++)
        rc = *s == '\'' ? hb_buf_puts(out, "'\\''") : hb_buf_putc(out, *s);
    return rc < 0 ? rc : hb_buf_puts(out, "'\n");
}

/* Strips comments and indentation, which nobody reads there. */
static int put_script(struct hb_buf *out)
{
    const char *line = bootstrap_sh;
    int rc = 0;

    while (rc == 0 && *line) {
        const char *end = strchr(line, '\n');
        line += strspn(line, " \n");
        if (line > end)
            continue;
        if (*line != '#')
            rc = hb_buf_append(out, line, (size_t)(end + 1 - line));
        line = end + 1;
    }
    return rc;
}

int bootstrap_script(const struct bootstrap *b, const char *agent,
                     struct hb_buf *out)
{
    static const struct agent_image none = AGENT_IMAGE_INIT;
    const struct agent_image *image = b->image ? b->image : &none;
    int rc;

    rc = hb_buf_printf(out,
                       "{\nm=%s n=%zu h=%s a=hvd-agent-%s\n"
                       "cpu() { case $1 in %s) ;; *) false ;; esac; }\np=",
                       b->marker, image->len, image->hash, image->hash,
                       image->cpu ? image->cpu : "*");
    if (rc == 0)
        rc = put_quoted(out, agent ? agent : "");
    if (rc == 0)
        rc = put_script(out);
    return rc < 0 ? rc : hb_buf_puts(out, "}\n");
}

/* ---- States ---- */

int bootstrap_step(enum bootstrap_state from, enum bootstrap_event event,
                   enum bootstrap_state *to)
{
    enum { NO = BOOTSTRAP_STATES };
    static const unsigned char next[BOOTSTRAP_STATES][BOOTSTRAP_EVENTS] = {
        [BOOTSTRAP_ASKING] = {BOOTSTRAP_SENDING, BOOTSTRAP_STARTING,
                              BOOTSTRAP_FAILED, NO},
        [BOOTSTRAP_SENDING] = {BOOTSTRAP_SENDING, BOOTSTRAP_STARTING,
                               BOOTSTRAP_FAILED, NO},
        [BOOTSTRAP_STARTING] = {NO, NO, NO, BOOTSTRAP_RUNNING},
        [BOOTSTRAP_RUNNING] = {NO, NO, NO, NO},
        [BOOTSTRAP_FAILED] = {NO, NO, NO, NO},
    };
    unsigned char state = next[from][event];

    if (state == NO)
        return -HVD_EPROTO;
    *to = (enum bootstrap_state)state;
    return 0;
}

/* ---- What the host says ---- */

static int failed(struct bootstrap *b, struct hb_error *err)
{
    b->state = BOOTSTRAP_FAILED;
    return err->status;
}

static int flooded(struct hb_error *err)
{
    return hb_error_set(err, HVD_EPROTO,
                        "its shell printed more than %d KiB and did not "
                        "start the agent; see its start-up files",
                        BOOTSTRAP_NOISE_MAX >> 10);
}

/* Explains `fail WORD TEXT` as a phrase with what to try. */
static int explain_fail(const char *word, const char *text,
                        struct hb_error *err)
{
    static const struct {
        const char *word;
        enum hvd_status status;
        const char *phrase; /* with the text */
    } reasons[] = {
        {"cpu", HVD_ESYSTEM,
         "its CPU type is %s, and the agent of this hvdrun is for another; "
         "install hvd-agent there and give --agent PATH"},
        {"os", HVD_ESYSTEM, "it runs %s; the agent needs Linux"},
        {"tty", HVD_EINVAL,
         "the shell's stdin is a terminal%.0s; the --rsh command must not "
         "make one (leave out -t)"},
        {"noagent", HVD_ENOENT, "--agent %s: there is no such file there"},
        {"noexec", HVD_EPERM, "--agent %s: may not be executed there"},
        {"place", HVD_ESYSTEM,
         "no directory takes the agent (set XDG_CACHE_HOME there, or install "
         "it and give --agent PATH): %s"},
    };

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (strcmp(word, reasons[i].word) == 0) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            return hb_error_set(err, reasons[i].status, reasons[i].phrase,
                                text);
#pragma GCC diagnostic pop
        }
    return hb_error_set(err, HVD_ESYSTEM, "the agent cannot start: %s %s", word,
                        text);
}

/* Handles an answer's line, whose words are separated by single spaces;
 * modifies it. */
static int take_answer(struct bootstrap *b, char *line, struct hb_error *err)
{
    static const char *const words[] = {"want", "run", "fail"};
    char *detail = strchr(line, ' '), *text;
    unsigned event = 0;
    int early =
        b->state == BOOTSTRAP_SENDING && b->image && b->sent < b->image->len;

    if (detail)
        *detail++ = '\0';
    while (event < BOOTSTRAP_MAGIC && strcmp(line, words[event]) != 0)
        event++;
    if (event == BOOTSTRAP_MAGIC || (early && event != BOOTSTRAP_FAIL) ||
        (event == BOOTSTRAP_WANT &&
         (!b->image || b->pushes == BOOTSTRAP_PUSH_MAX)) ||
        bootstrap_step(b->state, (enum bootstrap_event)event, &b->state) < 0)
        return hb_error_set(err, HVD_EPROTO,
                            "the shell gave an answer that makes no sense "
                            "(%.20s)",
                            line);
    if (event == BOOTSTRAP_WANT) {
        b->sent = 0;
        b->pushes++;
    }
    if (event != BOOTSTRAP_FAIL)
        return 0;
    text = detail ? strchr(detail, ' ') : NULL;
    if (text)
        *text++ = '\0';
    return explain_fail(detail ? detail : "", text ? text : "", err);
}

/* Moves len bytes that belong to no answer from the front of b->in to
 * b->noise. */
static int drop_noise(struct bootstrap *b, size_t len, struct hb_error *err)
{
    if (hb_buf_len(&b->noise) + len > BOOTSTRAP_NOISE_MAX)
        return flooded(err);
    if (hb_buf_append(&b->noise, hb_buf_data(&b->in), len) < 0)
        return hb_error_set(err, HVD_ENOMEM, "out of memory");
    hb_buf_consume(&b->in, len);
    b->searched = 0;
    return 0;
}

/* Looks for an answer: 1 if one was handled, 0 if more bytes are needed. */
static int find_answer(struct bootstrap *b, struct hb_error *err)
{
    char sign[BOOTSTRAP_MARKER_BYTES + 8];
    size_t sign_len =
        (size_t)snprintf(sign, sizeof(sign), "hvd:%s ", b->marker);
    size_t len = hb_buf_len(&b->in);
    char *data = hb_buf_data(&b->in);
    char *at = memmem(data + b->searched, len - b->searched, sign, sign_len);
    char *end;
    int rc;

    if (!at) {
        b->searched = len < sign_len ? 0 : len - sign_len + 1;
        if (len > BOOTSTRAP_NOISE_MAX)
            return flooded(err);
        return 0;
    }
    rc = drop_noise(b, (size_t)(at - data), err);
    if (rc < 0)
        return rc;
    data = hb_buf_data(&b->in) + sign_len;
    len = hb_buf_len(&b->in) - sign_len;
    end = memchr(data, '\n', len);
    if (!end)
        return len > BOOTSTRAP_LINE_MAX ? flooded(err) : 0;
    *end = '\0';
    if (end > data && end[-1] == '\r')
        end[-1] = '\0';
    len = sign_len + (size_t)(end - data) + 1;
    rc = take_answer(b, data, err);
    hb_buf_consume(&b->in, len);
    return rc < 0 ? rc : 1;
}

static int find_magic(struct bootstrap *b, struct hb_error *err)
{
    int rc = frame_sync(&b->in, &b->noise, BOOTSTRAP_NOISE_MAX);

    if (rc == -HVD_EPROTO)
        return flooded(err);
    if (rc < 0)
        return hb_error_set(err, HVD_ENOMEM, "out of memory");
    if (rc == 1)
        bootstrap_step(b->state, BOOTSTRAP_MAGIC, &b->state);
    return 0;
}

int bootstrap_read(struct bootstrap *b, const char *bytes, size_t len,
                   struct hb_error *err)
{
    struct hb_error own = HB_ERROR_INIT;
    struct hb_error *e = err ? err : &own;
    int rc = 1;

    if (b->state == BOOTSTRAP_FAILED)
        return hb_error_set(e, HVD_ECLOSED, "the start has failed");
    if (hb_buf_append(&b->in, bytes, len) < 0)
        rc = hb_error_set(e, HVD_ENOMEM, "out of memory");
    while (rc == 1 && b->state < BOOTSTRAP_STARTING)
        rc = find_answer(b, e);
    if (rc >= 0 && b->state == BOOTSTRAP_STARTING)
        rc = find_magic(b, e);
    return rc < 0 ? failed(b, e) : 0;
}

int bootstrap_stderr(struct bootstrap *b, const char *bytes, size_t len,
                     struct hb_error *err)
{
    size_t max = BOOTSTRAP_NOISE_MAX, held = hb_buf_len(&b->errs);

    b->errs_total += len;
    if (b->errs_total > BOOTSTRAP_STDERR_MAX) {
        flooded(err);
        b->state = BOOTSTRAP_FAILED;
        return -HVD_EPROTO;
    }
    if (len > max) {
        bytes += len - max;
        len = max;
    }
    if (held + len > max)
        hb_buf_consume(&b->errs, held + len - max);
    if (hb_buf_append(&b->errs, bytes, len) < 0)
        return hb_error_set(err, HVD_ENOMEM, "out of memory");
    return 0;
}

size_t bootstrap_next(struct bootstrap *b, size_t max, const char **bytes)
{
    size_t left;

    if (b->state != BOOTSTRAP_SENDING)
        return 0;
    left = b->image->len - b->sent;
    if (max > left)
        max = left;
    *bytes = b->image->bytes + b->sent;
    b->sent += max;
    return max;
}

/* ---- Why it failed ---- */

/* Copies the last two lines that are not blank, joined by "; ". */
static void last_lines(const struct hb_buf *b, char *out, size_t size)
{
    const char *data = hb_buf_data(b);
    size_t at = hb_buf_len(b);
    char line[WORDS_LINE_MAX], joined[2 * WORDS_LINE_MAX + 2];

    out[0] = '\0';
    for (int found = 0; found < 2 && at > 0;) {
        size_t end = at, begin, len;
        while (at > 0 && data[at - 1] != '\n')
            at--;
        len = end - at;
        while (len > 0 && strchr(" \t\r", data[at + len - 1]))
            len--;
        begin = at;
        at -= at > 0;
        while (len > 0 && strchr(" \t\r", data[begin])) {
            begin++;
            len--;
        }
        snprintf(line, sizeof(line), "%.*s", (int)len, data + begin);
        if (!line[0])
            continue;
        hb_text_trim_cut(line);
        hb_text_sanitize(line);
        snprintf(joined, sizeof(joined), "%s%s%s", line, found ? "; " : "",
                 out);
        snprintf(out, size, "%s", joined);
        found++;
    }
}

void bootstrap_last_words(const struct bootstrap *b, char *out, size_t size)
{
    last_lines(&b->errs, out, size);
    if (!out[0])
        last_lines(hb_buf_len(&b->in) > 0 ? &b->in : &b->noise, out, size);
}

int bootstrap_ended(const struct bootstrap *b, const char *why,
                    struct hb_error *err)
{
    static const char *const what[BOOTSTRAP_STATES] = {
        [BOOTSTRAP_ASKING] = "its shell ended without an answer",
        [BOOTSTRAP_SENDING] = "its shell ended while the agent was being sent",
        [BOOTSTRAP_STARTING] = "the agent did not start",
        [BOOTSTRAP_RUNNING] = "the agent ended",
        [BOOTSTRAP_FAILED] = "the start has failed",
    };
    char words[2 * WORDS_LINE_MAX + 2];

    bootstrap_last_words(b, words, sizeof(words));
    return hb_error_set(err, HVD_ESYSTEM, "%s%s%s%s%s%s", what[b->state],
                        why ? " (" : "", why ? why : "", why ? ")" : "",
                        words[0] ? ": " : "", words);
}
