/* SPDX-License-Identifier: Apache-2.0 */
/* A job's output and input: configures output.h and input.h, and handles their
 * events. */
#include "lib/job/job_impl.h"

#include "lib/job/output/xbuf.h"

#include <signal.h>

enum { EXIT_READER_GONE = 128 + SIGPIPE };

static void on_output_ack(void *arg, int host, size_t len)
{
    struct job *job = arg;

    job_host_ack(&job->hosts[host], len);
}

static void on_reader_gone(void *arg)
{
    struct job *job = arg;

    if (!job->has_verdict)
        job->silent = 1;
    job_verdict(job, EXIT_READER_GONE, NULL);
    job_event(job, JOB_EV_READER_GONE);
}

static void on_output_error(void *arg, const struct hb_error *err, int terminal)
{
    struct job *job = arg;

    hb_log(job->config->log, HB_LOG_ERROR, "%s%s", err->text,
           terminal ? "; the ranks go on, their output is lost" : "");
    job->output_failed = 1;
}

static void on_output_drained(void *arg)
{
    job_check_drained(arg);
}

static void on_input_data(void *arg, int rank, const void *bytes, size_t len)
{
    struct job *job = arg;
    struct hb_buf frame = HB_BUF_INIT;
    int host = job->config->plan->ranks[rank].host;

    hb_must(control_encode_stdin(&frame, rank, bytes, len));
    job_send(job, host, &frame);
    hb_buf_free(&frame);
}

static void on_input_error(void *arg, const struct hb_error *err)
{
    struct job *job = arg;

    hb_log(job->config->log, HB_LOG_WARNING, "%s", err->text);
}

void job_open_input(struct job *job)
{
    int rank = job->config->stdin_rank;
    struct input_config config = {
        .loop = job->config->loop,
        .fd = 0,
        .first_rank = rank == JOB_STDIN_ALL ? 0 : rank,
        .count = rank == JOB_STDIN_ALL ? job->config->plan->size : 1,
        .on_data = on_input_data,
        .on_error = on_input_error,
        .arg = job,
    };

    if (rank == JOB_STDIN_NONE)
        return;
    input_open(&config, &job->input);
    for (int i = 0; i < job->config->plan->size; i++)
        if (job->exited[i])
            input_rank_gone(job->input, i);
}

int job_open_output(struct job *job, struct hb_error *err)
{
    const struct job_config *c = job->config;
    struct output_config config = {
        .loop = c->loop,
        .fds = {1, 2},
        .ranks = c->plan->size,
        .np = c->plan->np,
        .hosts = c->plan->host_cap,
        .window = (size_t)job->window,
        .tag = c->tag,
        .timestamp = c->timestamp,
        .color = c->color,
        .dir = c->output_dir,
        .on_ack = on_output_ack,
        .on_reader_gone = on_reader_gone,
        .on_error = on_output_error,
        .on_drained = on_output_drained,
        .arg = job,
    };

    return output_open(&config, &job->output, err);
}
