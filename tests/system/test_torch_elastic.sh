# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvd.torch.elastic in elastic jobs (--min-np): the cases of
# tests/python/torch_elastic.py, which checks every result itself.
#
# HVD_TEST_ELASTIC names a folder with Horovod's own scripts, such as
# examples/elastic/pytorch of its repository, and HVD_TEST_TORCH a Python with
# PyTorch, torchvision and filelock for these.

PYTHON3=${PYTHON:-/usr/bin/python3}

need_torch() {
    sanitized && skip "Python is not built with sanitizers"
    [ -e "$BUILD/python/hvd/_hvd.abi3.so" ] || skip "needs make python"
    "$PYTHON3" -c 'import importlib.util as u, sys
sys.exit(u.find_spec("torch") is None)' || skip "needs python3-torch"
}

# Runs a case on $1 ranks, which must end well.
elastic() {
    local np=$1
    need_torch
    expect_exit 0 "$HVDRUN" -np "$np" --min-np 1 --no-tag-output \
        -x "PYTHONPATH=$BUILD/python" -x OMP_NUM_THREADS=1 \
        "$PYTHON3" -B "$ROOT/tests/python/torch_elastic.py" "${@:2}"
}

# Demands that $1 ranks are left, and that each has seen the sizes $2.
left() {
    [ "$(grep -c "of $1; \[$2\]$" out)" -eq "$1" ]
}

test_killed_in_backward() {
    elastic 3 every_step 1:7:backward
    left 2 2
}

test_killed_in_step() {
    elastic 3 every_third 2:10:step
    left 2 2
}

test_killed_around_a_commit() {
    elastic 3 every_step 2:5:commit 1:9:save
    left 1 '2, 1'
}

test_rank_0_and_another_are_killed() {
    elastic 4 every_step 0:6:backward 2:13:step
    left 2 '3, 2'
}

test_killed_at_any_moment() {
    local ms=$((RANDOM % 20))
    echo "after $ms ms"
    elastic 3 every_third "$((RANDOM % 3)):9:$ms"
    left 2 2
}

test_exceptions_without_a_death() {
    elastic 3 throws
}

test_sampler() {
    elastic 3 sampler 1:4:step
    grep -q '^all rows, 2 ranks$' out
}

test_process_sets() {
    elastic 4 sets 1:3:step
    [ "$(grep -c '^the pair is \[0, 2\]$' out)" -eq 3 ]
}

test_leaves_and_enters_itself() {
    elastic 3 rejoins
    [ "$(grep -c '^rejoined$' out)" -eq 2 ]
}

test_script_for_horovod() {
    need_torch
    PYTHONPATH=$BUILD/python expect_exit 0 "$HVDRUN" --horovod=force -np 3 --min-np 2 \
        -x PYTHONPATH -x DIE_RANK=0 -x OMP_NUM_THREADS=1 \
        "$PYTHON3" -B "$ROOT/tests/python/horovod_elastic.py"
    [ "$(grep -c ' of 2: epoch 6, loss 0\.' out)" -eq 2 ]
}

# A rank joins the training: with discovery, as horovodrun is called.
test_script_for_horovod_grows() {
    need_torch
    echo 2 >slots
    PYTHONPATH=$BUILD/python start job "$HVDRUN" --horovod=force -np 2 --min-np 2 \
        --max-np 3 --host-discovery-script 'echo localhost:$(cat slots)' \
        -x PYTHONPATH -x DIE_RANK=9 -x WAIT_FOR=3 -x OMP_NUM_THREADS=1 \
        "$PYTHON3" -B "$ROOT/tests/python/horovod_elastic.py"
    wait_for 'grep -q "size 2" job.out'
    echo 3 >slots
    finish job 0
    [ "$(grep -c ' of 3: epoch 6, loss 0\.' job.out)" -eq 3 ] ||
        fail "$(cat job.out job.err)"
    grep -q '2 -> 3 ranks (generation 2)' job.err
}

# killed_in SCRIPT SIGN OPTION...: runs one of Horovod's own scripts on 3 ranks,
# and kills one as soon as a line of the output matches SIGN.
killed_in() {
    local python=${HVD_TEST_TORCH:-$PYTHON3} script=${HVD_TEST_ELASTIC:-}/$1
    local victims
    [ "${HVD_TEST_ELASTIC:-}" ] || skip "set HVD_TEST_ELASTIC to Horovod's scripts"
    need_torch
    [ -e "$script" ] || fail "there is no $script"
    "$python" -B -c 'import torchvision, filelock' ||
        fail "$python needs torchvision and filelock; set HVD_TEST_TORCH"
    # HOME, because the script leaves a file there.
    HOME=$PWD PYTHONPATH=$BUILD/python start job "$HVDRUN" --horovod=force \
        -np 3 --min-np 2 -x PYTHONPATH -x HOME -x OMP_NUM_THREADS=1 \
        -x PYTHONUNBUFFERED=1 "$python" -B "$script" --no-cuda "${@:3}"
    wait_for -t 120 "grep -q '$2' job.out || ! alive $pid"
    mapfile -t victims < <(job_pids job "${python##*/}")
    kill -KILL "${victims[RANDOM % ${#victims[@]}]}"
    finish job 0
    grep -q '3 -> 2 ranks (generation 2)' job.err
}

# Writes the digits of the examples to data/, in the format of MNIST.
make_mnist() {
    mkdir -p data/MNIST/raw
    "$PYTHON3" - "$ROOT/examples/data/digits.csv" data/MNIST/raw <<'END'
import struct, sys

rows = [[int(x) for x in line.split(",")] for line in open(sys.argv[1])]
for name, part in ("train", rows[300:]), ("t10k", rows[:300]):
    with open(f"{sys.argv[2]}/{name}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 2049, len(part)))
        f.write(bytes(row[64] for row in part))
    with open(f"{sys.argv[2]}/{name}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">IIII", 2051, len(part), 28, 28))
        for row in part:  # 8 x 8 pixels of 3 x 3, with an edge of 2
            pixels = [row[y // 3 * 8 + x // 3] * 15 for y in range(24) for x in range(24)]
            lines = [bytes(pixels[i : i + 24]).center(28, b"\0") for i in range(0, 576, 24)]
            f.write(b"".join(lines).center(784, b"\0"))
END
}

# 1497 rows make 32 steps on each rank.  After a kill the script repeats the step
# of the last commit, as it does under Horovod, and perhaps an uncommitted one.
test_mnist_of_horovod() {
    make_mnist
    killed_in pytorch_mnist_elastic.py 'Epoch: 2 .*(1.%)' --data-dir data \
        --epochs 12 --batch-size 16 --log-interval 1
    grep -q 'Test set: .*Accuracy: [89][0-9]\.' job.out || fail "$(cat job.out)"
    sed -n 's/^\[\(.\)\].*Epoch: \([0-9]*\) .*/\1 \2/p' job.out | sort | uniq -c >steps
    awk '$1 >= 32 { epochs[$2]++; steps[$2] += $1 }
        END {
            for (r in steps)
                n += epochs[r] == 12 && steps[r] > 12 * 32 && steps[r] <= 12 * 32 + 2
            exit n != 2
        }' steps || fail "steps, rank, epoch: $(cat steps)"
}

test_benchmark_of_horovod() {
    killed_in pytorch_synthetic_benchmark_elastic.py 'Iter #2' \
        --model squeezenet1_1 --batch-size 1 --num-warmup-batches 1 \
        --num-batches-per-iter 1 --num-iters 12
    grep -q 'Iter #11: ' job.out
    grep -q 'Total img/sec on 2 CPU(s): ' job.out
}
