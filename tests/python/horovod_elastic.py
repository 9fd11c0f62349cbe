# SPDX-License-Identifier: Apache-2.0
"""An elastic training as programs for Horovod have it; it knows nothing of hvd.

    hvdrun --horovod -np 3 --min-np 2 python3 horovod_elastic.py

The rank that DIE_RANK names kills itself in the second epoch.  While the job
has fewer ranks than WAIT_FOR, it goes on with the first epoch.
"""

import os
import signal
import time

import horovod.torch as hvd
import torch
import torch.nn.functional as F

hvd.init()
torch.manual_seed(1 + hvd.rank())

me = hvd.rank()
features = torch.randn(90, 4)
data = torch.utils.data.TensorDataset(features, features.sum(1, keepdim=True))
model = torch.nn.Linear(4, 1)
lr = 0.02
optimizer = torch.optim.SGD(model.parameters(), lr=lr * hvd.size())
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters()
)
sampler = hvd.elastic.ElasticSampler(data, shuffle=True)
loader = torch.utils.data.DataLoader(data, batch_size=5, sampler=sampler)


@hvd.elastic.run
def train(state):
    offset = state.batch
    while state.epoch < 6:
        for i, (x, y) in enumerate(loader):
            if (state.epoch, i, me) == (1, 3, int(os.environ["DIE_RANK"])):
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            state.batch = offset + i
            state.sampler.record_batch(i, len(x))
            if i % 2 == 0:
                state.commit()
            else:
                state.check_host_updates()
        if hvd.size() < int(os.environ.get("WAIT_FOR", 0)):
            print(f"size {hvd.size()}", flush=True)
            time.sleep(0.05)
        else:
            state.epoch += 1
        state.batch = offset = 0
        state.sampler.set_epoch(state.epoch)
        state.commit()
    return hvd.allreduce(loss.detach(), name="loss").item()


def on_state_reset():
    for group in optimizer.param_groups:
        group["lr"] = lr * hvd.size()


state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, batch=0, epoch=0)
state.register_reset_callbacks([on_state_reset])
final = train(state)
print(f"rank {hvd.rank()} of {hvd.size()}: epoch {state.epoch}, loss {final:.4f}")
assert final < 0.5
