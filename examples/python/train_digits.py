# SPDX-License-Identifier: Apache-2.0
"""Learns to read handwritten digits on several ranks at once, with PyTorch:

    hvdrun -np 2 python3 examples/python/train_digits.py

The same training as examples/train_digits.c, with the same initial parameters
and the same order of rows, so that the accuracies can be compared.  What makes
it data-parallel is marked (1) to (5).
"""

import argparse
import math
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

import hvd.torch as hvd

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv"
BATCH_PER_RANK = 32
WARMUP_EPOCHS = 3


class Random:
    """SplitMix64, which the C examples use."""

    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53

    def shuffle(self, items):
        for i in range(len(items) - 1, 0, -1):
            j = int(self.uniform() * (i + 1))
            items[i], items[j] = items[j], items[i]


def make_net(random):
    """Two layers with He's initialisation, uniform; biases are 0."""
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    with torch.no_grad():
        for layer in (net[0], net[2]):
            rows, columns = layer.weight.shape
            bound = math.sqrt(6 / columns)
            values = [(2 * random.uniform() - 1) * bound for _ in range(rows * columns)]
            layer.weight.copy_(torch.tensor(values).view(columns, rows).t())
            layer.bias.zero_()
    return net


def read_digits(path):
    """Returns images, labels, and the numbers of training and test rows."""
    lines = path.read_text().splitlines()
    table = torch.tensor([[float(x) for x in line.split(",")] for line in lines])
    rows = range(len(table))
    train = [r for r in rows if r % 5 != 0]
    test = [r for r in rows if r % 5 == 0]
    return table[:, :-1] / 16, table[:, -1].long(), train, test


def my_part(rows):
    """This rank's share of a list."""
    first = len(rows) * hvd.rank() // hvd.size()
    return rows[first : len(rows) * (hvd.rank() + 1) // hvd.size()]


def scaled_rate(rate, batch, epoch):
    """The learning rate grows with the batch, gradually at first.

    Source: Goyal et al., Accurate, Large Minibatch SGD (2017).
    """
    scale = batch / BATCH_PER_RANK
    return rate * (1 + (scale - 1) * min(epoch / WARMUP_EPOCHS, 1))


def train_epoch(net, optimizer, data, order, options, epoch):
    """Trains on all rows once.  Returns this rank's sums of loss and hits."""
    images, labels = data
    totals = torch.zeros(3, dtype=torch.float64)
    for at in range(0, len(order), options.batch):
        batch = order[at : at + options.batch]
        mine = my_part(batch)
        for group in optimizer.param_groups:
            group["lr"] = scaled_rate(
                options.lr, options.batch, epoch + at / len(order)
            )
        optimizer.zero_grad()
        output = net(images[mine])
        loss = F.cross_entropy(output, labels[mine], reduction="sum")
        (loss / len(batch)).backward()  # (4) reduced on the way
        optimizer.step()
        hits = (output.argmax(1) == labels[mine]).sum()
        totals += torch.tensor([loss.item(), hits.item(), len(mine)])
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, help="rows per step, all ranks")
    parser.add_argument("--lr", type=float, default=0.05, help="for a batch of 32")
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    options = parser.parse_args()

    hvd.init()  # (1)
    torch.set_num_threads(1)
    options.batch = options.batch or BATCH_PER_RANK * hvd.size()
    images, labels, train, test = read_digits(options.data)

    net = make_net(Random(hvd.rank() + 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=options.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(  # (2) sums gradients over the ranks
        optimizer, named_parameters=net.named_parameters(), op=hvd.Sum
    )
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)  # (3)

    random = Random(1)  # the same order on every rank
    for epoch in range(options.epochs):
        random.shuffle(train)
        totals = train_epoch(net, optimizer, (images, labels), train, options, epoch)
        loss, hits, rows = hvd.allreduce(totals, op=hvd.Sum).tolist()  # (5)
        if hvd.rank() == 0:
            print(
                f"epoch {epoch + 1:2}  loss {loss / rows:.4f}  "
                f"training accuracy {100 * hits / rows:.1f} %",
                flush=True,
            )

    mine = my_part(test)
    with torch.no_grad():
        hits = (net(images[mine]).argmax(1) == labels[mine]).sum()
    hits = hvd.allreduce(hits, op=hvd.Sum).item()
    if hvd.rank() == 0:
        print(f"test accuracy {100 * hits / len(test):.1f} %")


if __name__ == "__main__":
    main()
