/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates the cost of a TCP group's algorithms and chooses the fastest.
 *
 * For n members, b bytes, a = alpha, B = beta, and reducing at G, where L is
 * log2 of the largest power of two P <= n; times in us:
 *
 *   recursive doubling  L (a + b/B + b/G)
 *   Rabenseifner        2 L a + (P-1)/P (2 b/B + b/G)
 *     both, unless n = P, and 2 (a + b/B) + b/G
 *   ring                2 (n-1) a + (n-1)/n (2 b/B + b/G)
 *   binomial tree       ceil(log2 n) (a + b/B)
 *   chain               (n-1) a + b/B + (n-2) min(b, PIPE)/B
 *
 * Sources: Thakur, Rabenseifner and Gropp, 2005; Patarasuk and Yuan,
 * Bandwidth optimal all-reduce algorithms, 2009.
 */
#include "runtime/plane/tcp/tcp.h"

static const double REDUCED_PER_US = 8000; /* bytes; one core, data in its
                                              cache */
static const double PIPE_BYTES = 64 << 10; /* what a chain passes on at once */

enum { RIDE_MIN_BYTES = 1 << 10, RIDE_MAX_BYTES = 256 << 10 };

struct fold {
    double logarithm, power, extra;
};

static struct fold fold_of(int n)
{
    struct fold f = {0, 1, 0};

    while (f.power * 2 <= n) {
        f.power *= 2;
        f.logarithm += 1;
    }
    f.extra = n > f.power;
    return f;
}

static double allreduce_us(const struct hvd__tcp_model *m, double b,
                           enum hvd__tcp_algorithm a)
{
    double n = m->members, wire = b / m->bytes_per_us;
    double reduce = b / REDUCED_PER_US;
    struct fold f = fold_of(m->members);
    double folding = f.extra * (2 * (m->alpha_us + wire) + reduce);

    if (a == HVD__TCP_RD)
        return f.logarithm * (m->alpha_us + wire + reduce) + folding;
    if (a == HVD__TCP_RABENSEIFNER)
        return 2 * f.logarithm * m->alpha_us +
               (f.power - 1) / f.power * (2 * wire + reduce) + folding;
    return 2 * (n - 1) * m->alpha_us + (n - 1) / n * (2 * wire + reduce);
}

enum hvd__tcp_algorithm
hvd__tcp_choose_allreduce(const struct hvd__tcp_model *m, size_t bytes)
{
    enum hvd__tcp_algorithm best = HVD__TCP_RD;

    for (int a = HVD__TCP_RD; a <= HVD__TCP_RING; a++)
        if (allreduce_us(m, (double)bytes, (enum hvd__tcp_algorithm)a) <
            allreduce_us(m, (double)bytes, best))
            best = (enum hvd__tcp_algorithm)a;
    return best;
}

enum hvd__tcp_algorithm
hvd__tcp_choose_broadcast(const struct hvd__tcp_model *m, size_t bytes)
{
    double n = m->members, wire = (double)bytes / m->bytes_per_us;
    double pipe = PIPE_BYTES / m->bytes_per_us;
    struct fold f = fold_of(m->members);
    double tree = (f.logarithm + f.extra) * (m->alpha_us + wire);
    double chain =
        (n - 1) * m->alpha_us + wire + (n - 2) * (pipe < wire ? pipe : wire);

    return chain < tree ? HVD__TCP_CHAIN : HVD__TCP_TREE;
}

/* Returns whether it is faster to carry `bytes` per member in an exchange,
 * which costs all other members' data on the wire and its reduction. */
static int rides_well(const struct hvd__tcp_model *m, size_t bytes)
{
    double b = (double)bytes, others = m->members - 1;
    double ride = others * (b / m->bytes_per_us + b / REDUCED_PER_US);

    return ride <= allreduce_us(m, b, hvd__tcp_choose_allreduce(m, bytes));
}

size_t hvd__tcp_ride_bytes(const struct hvd__tcp_model *m)
{
    size_t bytes = RIDE_MIN_BYTES;

    while (bytes < RIDE_MAX_BYTES && rides_well(m, 2 * bytes))
        bytes *= 2;
    return bytes;
}

const char *hvd__tcp_algorithm_name(enum hvd__tcp_algorithm a)
{
    static const char *const names[] = {
        [HVD__TCP_AUTO] = "tcp",
        [HVD__TCP_RD] = "tcp.rd",
        [HVD__TCP_RABENSEIFNER] = "tcp.rabenseifner",
        [HVD__TCP_RING] = "tcp.ring",
        [HVD__TCP_TREE] = "tcp.tree",
        [HVD__TCP_CHAIN] = "tcp.chain",
    };

    return names[a];
}
