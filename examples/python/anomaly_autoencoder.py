# SPDX-License-Identifier: Apache-2.0
"""Finds tumours that do not look benign, having seen only benign ones:

    hvdrun -np 4 python3 examples/python/anomaly_autoencoder.py

An autoencoder learns to reproduce benign rows; what it reproduces badly is
unusual.  A script for one process becomes one for many ranks by the lines
marked (1) to (5).
"""

import argparse
import pathlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import hvd.torch as hvd

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "breast_cancer.csv"
BENIGN = 1


def read_table(path):
    """Returns the features and the labels."""
    lines = path.read_text().splitlines()[1:]
    table = torch.tensor([[float(x) for x in line.split(",")] for line in lines])
    return table[:, :-1], table[:, -1].long()


def split(features, labels):
    """Holds out one benign row in five.  Returns training rows, and the rest."""
    benign = (labels == BENIGN).nonzero().flatten()
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    held_out[benign[::5]] = True
    train = (labels == BENIGN) & ~held_out
    mean, deviation = features[train].mean(0), features[train].std(0)
    features = (features - mean) / deviation
    return features[train], features[~train], labels[~train]


def area_under_curve(errors, labels):
    """The chance that a malignant row has a larger error than a benign one."""
    malignant, benign = errors[labels != BENIGN], errors[labels == BENIGN]
    difference = malignant.view(-1, 1) - benign.view(1, -1)
    return ((difference > 0).double() + 0.5 * (difference == 0)).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16, help="rows of one rank")
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    options = parser.parse_args()

    hvd.init()  # (1)
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    device = "cuda" if torch.cuda.is_available() else "cpu"

    train, rest, labels = split(*read_table(options.data))
    sampler = DistributedSampler(train, hvd.size(), hvd.rank())  # (2)
    loader = DataLoader(TensorDataset(train), options.batch, sampler=sampler)

    model = nn.Sequential(
        nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 6), nn.ReLU(),
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 30),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    optimizer = hvd.DistributedOptimizer(  # (3)
        optimizer, named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # (4)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for (rows,) in loader:
            rows = rows.to(device)
            optimizer.zero_grad()
            loss = (model(rows) - rows).pow(2).mean()
            loss.backward()
            optimizer.step()
            total += loss.detach().cpu()
        loss = hvd.allreduce(total / len(loader), name="loss").item()  # (5)
        if hvd.rank() == 0 and (epoch == 0 or (epoch + 1) % 10 == 0):
            print(f"epoch {epoch + 1:3}  loss {loss:.4f}", flush=True)

    mine = rest[hvd.rank() :: hvd.size()].to(device)
    with torch.no_grad():
        errors = (model(mine) - mine).pow(2).mean(1).cpu()
    errors = hvd.allgather(errors, name="errors")
    labels = torch.cat([labels[r :: hvd.size()] for r in range(hvd.size())])
    sums = [float(sum(p.double().sum() for p in model.parameters()))]
    equal = len(set(hvd.allgather_object(sums[0]))) == 1
    if hvd.rank() == 0:
        print(f"weights are {'equal' if equal else 'different'} on all ranks")
        print(f"ROC-AUC {area_under_curve(errors, labels):.3f}")


if __name__ == "__main__":
    main()
