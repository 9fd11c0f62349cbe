/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and delivers an operation's elements by ranges, whichever parts hold
 * them and whatever their wire dtype; see op.h.
 */
#include "runtime/plane/kernels/cast.h"
#include "runtime/plane/op.h"

/* Returns the index of the part that holds an element. */
static size_t find_part(const struct hvd__op *op, size_t elem)
{
    size_t low = 0, high = op->nparts;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (op->parts[mid].first <= elem)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Copies elements of a part, converted to the wire dtype. */
static void pack_part(const struct hvd__op *op, void *dst, const void *src,
                      size_t count)
{
    if (op->part_dtype == op->dtype)
        hvd__copy(dst, src, count * op->elem_bytes, 0);
    else
        hvd__cast_get(op->dtype, op->part_dtype)(dst, src, count, op->prescale);
}

static void unpack_part(const struct hvd__op *op, void *dst, const void *src,
                        size_t count, int stream)
{
    if (op->part_dtype == op->dtype)
        hvd__copy(dst, src, count * op->elem_bytes, stream);
    else
        hvd__cast_get(op->part_dtype, op->dtype)(dst, src, count, 1.0);
}

void hvd__op_pack_piece(const struct hvd__op *op, void *dst, size_t first,
                        size_t count)
{
    size_t part_bytes = hvd_dtype_size(op->part_dtype);
    unsigned char *to = dst;

    if (hvd__op_direct(op)) {
        hvd__copy(dst,
                  (const unsigned char *)op->sendbuf + first * op->elem_bytes,
                  count * op->elem_bytes, 0);
        return;
    }
    for (size_t i = find_part(op, first); count > 0; i++) {
        const struct hvd__part *part = &op->parts[i];
        size_t skip = first - part->first, n = part->count - skip;

        if (n > count)
            n = count;
        if (n > 0)
            pack_part(op, to,
                      (const unsigned char *)part->sendbuf + skip * part_bytes,
                      n);
        to += n * op->elem_bytes;
        first += n;
        count -= n;
    }
}

void hvd__op_pack(const struct hvd__op *op, void *dst, size_t first,
                  size_t count)
{
    uint64_t began_ns = hvd__op_copy_begin(op);

    hvd__op_pack_piece(op, dst, first, count);
    hvd__op_copy_end(op, HVD__COPY_IN, began_ns);
}

static void unpack(const struct hvd__op *op, const void *src, size_t first,
                   size_t count, int stream)
{
    size_t part_bytes = hvd_dtype_size(op->part_dtype);
    const unsigned char *from = src;

    if (hvd__op_direct(op)) {
        hvd__copy((unsigned char *)op->recvbuf + first * op->elem_bytes, src,
                  count * op->elem_bytes, stream);
        return;
    }
    for (size_t i = find_part(op, first); count > 0; i++) {
        const struct hvd__part *part = &op->parts[i];
        size_t skip = first - part->first, n = part->count - skip;

        if (n > count)
            n = count;
        if (n > 0)
            unpack_part(op, (unsigned char *)part->recvbuf + skip * part_bytes,
                        from, n, stream);
        from += n * op->elem_bytes;
        first += n;
        count -= n;
    }
}

void hvd__op_unpack(const struct hvd__op *op, const void *src, size_t first,
                    size_t count, int stream)
{
    uint64_t began_ns = hvd__op_copy_begin(op);

    unpack(op, src, first, count, stream);
    hvd__op_copy_end(op, HVD__COPY_OUT, began_ns);
}

struct hvd__share hvd__op_share(const struct hvd__op *op, int rank, int n)
{
    size_t rows = op->count / op->row_elems, r = (size_t)rank;
    size_t each = rows / (size_t)n, rest = rows % (size_t)n;
    struct hvd__share s = {(r * each + (r < rest ? r : rest)) * op->row_elems,
                           (each + (r < rest)) * op->row_elems};

    return s;
}
