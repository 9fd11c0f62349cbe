/* SPDX-License-Identifier: Apache-2.0 */
/* Where the copies of shards lie; see shard_map.h. */
#include "runtime/core/api/shard_map.h"

/* ---- Keepers ------------------------------------------------------------- */

/* Sorts the ranks that take part by host, and by rank among equal ones.  takes:
 * those with this value in `leaves`.  Returns how many there are. */
static int sort_by_host(const int *host, const unsigned char *leaves,
                        unsigned char takes, int n, int *order, int *start)
{
    int count = 0;

    for (int h = 0; h < n; h++)
        start[h] = 0;
    for (int r = 0; r < n; r++)
        start[host[r]] += !leaves[r] == !takes;
    for (int h = 0; h < n; h++) {
        int ranks = start[h];

        start[h] = count;
        count += ranks;
    }
    for (int r = 0; r < n; r++)
        if (!leaves[r] == !takes)
            order[start[host[r]]++] = r;
    return count;
}

/* Finds the largest host of sorted ranks.  Returns how many ranks it has, and
 * sets where it begins, and whether all hosts have as many. */
static int largest_host(const int *host, const int *order, int n, int *begin,
                        int *equal)
{
    int largest = 0, first = 0;

    *begin = 0;
    *equal = 1;
    for (int i = 1; i <= n; i++) {
        if (i < n && host[order[i]] == host[order[first]])
            continue;
        *equal &= largest == 0 || largest == i - first;
        if (i - first > largest) {
            largest = i - first;
            *begin = first;
        }
        first = i;
    }
    return largest;
}

/* Returns the partner of position i, where `hosts` groups of `each` ranks are
 * paired. */
static int paired(int i, int each, int hosts)
{
    int group = i / each, partner = group ^ 1;

    if (hosts % 2 && group >= hosts - 3)
        partner = group == hosts - 1 ? hosts - 3 : group + 1;
    return partner * each + i % each;
}

/* Returns the partner of position i of n, where the ranks from `begin` on,
 * which are the majority, are on one host. */
static int against_majority(int i, int begin, int majority, int n)
{
    int others = n - majority, position = (i - begin + n) % n;

    position = position < majority ? majority + position % others
                                   : position - majority;
    return (begin + position) % n;
}

/* Chooses keepers among n sorted ranks, n > 0. */
static void pair_up(const int *host, const int *order, int n, int *keeper)
{
    int begin, equal, each = largest_host(host, order, n, &begin, &equal);

    if (each == n) /* one host: each rank counts as one */
        each = equal = 1;
    for (int i = 0; i < n; i++) {
        int to = (i + each) % n;

        if (n == 1)
            to = i;
        else if (equal)
            to = paired(i, each, n / each);
        else if (2 * each > n)
            to = against_majority(i, begin, each, n);
        keeper[order[i]] = order[to];
    }
}

void hvd__shard_keepers(const int *host, const unsigned char *leaves, int n,
                        int *keeper, int *scratch)
{
    int *order = scratch, *start = scratch + n;
    int count = sort_by_host(host, leaves, 0, n, order, start), next = 0;

    if (count == 0) { /* all leave */
        count = sort_by_host(host, leaves, 1, n, order, start);
        pair_up(host, order, count, keeper);
        return;
    }
    pair_up(host, order, count, keeper);
    for (int r = 0; r < n; r++)
        if (leaves[r])
            keeper[r] = order[next++ % count];
}

/* ---- What is left -------------------------------------------------------- */

uint64_t hvd__shard_newest(const struct hvd__shard_card *cards, int n)
{
    uint64_t newest = 0;

    for (int i = 0; i < n; i++)
        if (cards[i].confirmed > newest)
            newest = cards[i].confirmed;
    return newest;
}

int hvd__shard_slot_of(const struct hvd__shard_card *card, uint64_t seq)
{
    for (int i = 0; i < HVD__SHARD_SLOTS && seq; i++)
        if (card->seq[i] == seq)
            return i;
    return -1;
}

int hvd__shard_source(const struct hvd__shard_card *cards, int n, uint64_t seq)
{
    for (int i = 0; i < n; i++)
        if (hvd__shard_slot_of(&cards[i], seq) >= 0)
            return i;
    return -1;
}

void hvd__shard_holders(const struct hvd__shard_card *cards, int n,
                        uint64_t seq, const int *keeper, int old_n, int *holder,
                        int *at)
{
    for (int r = 0; r < old_n; r++)
        at[r] = -1;
    for (int i = 0; i < n; i++) {
        int slot = hvd__shard_slot_of(&cards[i], seq);

        if (slot >= 0 && cards[i].rank[slot] < (uint32_t)old_n)
            at[cards[i].rank[slot]] = i;
    }
    for (int r = 0; r < old_n; r++)
        holder[r] = at[r] >= 0 ? at[r] : at[keeper[r]];
}

/* ---- Dealing out --------------------------------------------------------- */

size_t hvd__shard_deal(const uint64_t *before, int old_n, const uint64_t *after,
                       int new_n, size_t stride,
                       struct hvd__shard_piece *pieces)
{
    uint64_t from_at = 0, to_at = 0;
    int from = 0, to = 0;
    size_t count = 0;

    while (from < old_n && to < new_n) {
        uint64_t had = before[(size_t)from * stride] - from_at;
        uint64_t wants = after[(size_t)to * stride] - to_at;
        uint64_t bytes = had < wants ? had : wants;

        if (bytes)
            pieces[count++] = (struct hvd__shard_piece){
                .from = from,
                .to = to,
                .from_at = from_at,
                .to_at = to_at,
                .bytes = bytes,
            };
        from_at += bytes;
        to_at += bytes;
        if (had == bytes) {
            from++;
            from_at = 0;
        }
        if (wants == bytes) {
            to++;
            to_at = 0;
        }
    }
    return count;
}

int hvd__shard_total(const uint64_t *bytes, size_t n, size_t stride,
                     uint64_t *total)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (bytes[i * stride] > SIZE_MAX - sum)
            return 0;
        sum += bytes[i * stride];
    }
    *total = sum;
    return 1;
}
