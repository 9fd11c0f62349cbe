# SPDX-License-Identifier: Apache-2.0
"""An elastic training that knows only Horovod's interface, for tests/bench/elastic.

Adds up ones, a commit a step, until it is killed.  After each change of the world
each rank adds a line to the file that the argument names: the number of ranks, its
process, and the time of its first right sum in microseconds.
"""

import os
import sys
import time

import horovod.torch as hvd
import torch

hvd.init()


@hvd.elastic.run
def train(state):
    is_first = True
    while True:
        total = hvd.allreduce(torch.ones(1), op=hvd.Sum, name="x")
        assert total.item() == hvd.size()
        if is_first:
            line = f"{hvd.size()} {os.getpid()} {time.time_ns() // 1000}\n"
            os.write(lines, line.encode())
            is_first = False
        state.step += 1
        state.commit()
        time.sleep(0.001)


lines = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
train(hvd.elastic.TorchState(step=0))
