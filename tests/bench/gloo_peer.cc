/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gloo as a peer of `hvd-bench allreduce --pin --json`: gloo::allreduce of
 * floats, summed, out of place, over TCP on the loopback interface, with its
 * default algorithm (the ring) and settings.  The ranks are not pinned, because
 * Gloo's own thread would share the CPU with its caller and be slower.  hvdrun
 * starts the ranks, which find each other by files in DIR.
 *
 *     hvdrun -np N gloo_peer DIR SECONDS BYTES...
 */
#include "tests/bench/peer.h"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

namespace
{

using Context = std::shared_ptr<gloo::Context>;

Context &context_of(struct peer *p)
{
    return *static_cast<Context *>(p->context);
}

template <typename T>
using Function = void (*)(void *, const void *, const void *, size_t);

template <typename T>
void reduce(struct peer *p, T *in, T *out, size_t count, Function<T> fn)
{
    gloo::AllreduceOptions options(context_of(p));

    options.setInput(in, count);
    options.setOutput(out, count);
    options.setReduceFunction(fn);
    gloo::allreduce(options);
}

void call(struct peer *p)
{
    reduce<float>(p, p->send, p->recv, p->send_count, &gloo::sum<float>);
}

void barrier(struct peer *p)
{
    gloo::BarrierOptions options(context_of(p));

    gloo::barrier(options);
}

void maximum(struct peer *p, double *v, int count)
{
    reduce<double>(p, v, v, static_cast<size_t>(count), &gloo::max<double>);
}

int number(const char *name)
{
    const char *text = std::getenv(name);

    if (!text)
        peer_die("not started by hvdrun");
    return std::atoi(text);
}

Context connect(int rank, int size, const char *dir)
{
    gloo::transport::tcp::attr attr;
    attr.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    gloo::rendezvous::FileStore store(dir);

    context->connectFullMesh(store, device);
    return context;
}

int run(int argc, char **argv)
{
    struct peer peer = {};
    double seconds = argc > 3 ? std::strtod(argv[2], nullptr) : 0;

    if (seconds <= 0)
        peer_die("usage: gloo_peer DIR SECONDS BYTES...");
    peer.rank = number("HVD_RANK");
    peer.size = number("HVD_SIZE");
    Context context = connect(peer.rank, peer.size, argv[1]);
    peer.kind = PEER_ALLREDUCE;
    peer.context = &context;
    peer.call = call;
    peer.barrier = barrier;
    peer.maximum = maximum;
    if (peer.rank == 0)
        std::printf("{\"version\":\"Gloo\"}\n");
    for (int i = 3; i < argc; i++)
        peer_run(&peer, seconds, std::strtoul(argv[i], nullptr, 10));
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run(argc, argv);
    } catch (const std::exception &e) {
        peer_die(e.what());
    }
}
