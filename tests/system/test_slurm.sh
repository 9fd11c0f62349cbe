# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A real Slurm: munged, slurmctld and a slurmd for each of two nodes, all on
# this machine, with files in the test's directory and ports of their own.

# Prints N free TCP ports.
free_ports() {
    python3 - "$1" <<'END'
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in sockets))
END
}

# Ends the daemons, slurmctld last: a slurmd tells it that it ends.  After a
# failure, shows what they have said.
slurm_end() {
    local status=$? p
    if [ $status -ne 0 ]; then
        { scontrol show nodes | grep -E 'NodeName|State|Reason' || :
            tail -n 20 daemons.log; } >&2
    fi
    for p in "${daemons[@]}"; do
        kill "$p" 2>/dev/null || :
        wait "$p" 2>/dev/null || :
    done
}

# Runs a daemon in the background.
daemon() {
    "$@" </dev/null >>daemons.log 2>&1 &
    daemons=("$!" ${daemons[@]+"${daemons[@]}"})
}

# Starts Slurm with nodes node01 and node02, each of 4 processors and 2 GPUs.
slurm_start() {
    local tool me ports
    for tool in munged slurmctld slurmd sbatch salloc srun scancel scontrol; do
        PATH=$PATH:/usr/sbin command -v $tool >/dev/null ||
            skip "there is no $tool here (packages slurmctld, slurmd, slurm-client and munge)"
    done
    grep -q -- '-N node' < <(slurmd -h 2>&1) ||
        skip "this slurmd cannot be one of several on a machine"
    PATH=$PATH:/usr/sbin
    me=$(id -un)
    read -ra ports <<<"$(free_ports 3)"
    mkdir state spool.node01 spool.node02
    head -c 64 /dev/urandom >munge.key
    chmod 400 munge.key
    cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
AuthInfo=socket=$PWD/munge.socket
SlurmctldPort=${ports[0]}
SlurmctldPidFile=$PWD/slurmctld.pid
SlurmdPidFile=$PWD/%n.pid
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/spool.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
MpiDefault=none
KillWait=5
GresTypes=gpu
NodeName=node01 NodeHostname=localhost NodeAddr=127.0.0.2 Port=${ports[1]} CPUs=4 Gres=gpu:2
NodeName=node02 NodeHostname=localhost NodeAddr=127.0.0.3 Port=${ports[2]} CPUs=4 Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=10
END
    cat >gres.conf <<END
NodeName=node[01-02] Name=gpu File=/dev/null
NodeName=node[01-02] Name=gpu File=/dev/zero
END
    export SLURM_CONF=$PWD/slurm.conf
    daemons=()
    trap slurm_end EXIT
    daemon munged --force --foreground --key-file="$PWD/munge.key" \
        --socket="$PWD/munge.socket" --pid-file="$PWD/munged.pid" \
        --log-file="$PWD/munged.log" --seed-file="$PWD/munged.seed"
    wait_for '[ -S munge.socket ]'
    daemon slurmctld -D
    daemon slurmd -D -N node01
    daemon slurmd -D -N node02
    wait_for '[ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]'
}

# Runs ./job.sh in the test's directory as a job of Slurm with OPTIONS; its
# output goes to ./job.out.  (sbatch --wait looks only every few seconds.)
batch() { # OPTION...
    sbatch -Q -o job.out "$@" job.sh
    wait_for '[ -s job.code ]'
    [ "$(cat job.code)" = 0 ] || fail "the job failed: $(cat job.out)"
}

test_slurm_batch() {
    slurm_start
    cat >job.sh <<'END'
#!/bin/bash
trap 'echo $? >job.code' EXIT
set -e
run() { "$HVDRUN" --launcher slurm --no-tag-output "$@"; }
run --verbose sh -c 'echo $HVD_RANK $HVD_HOSTNAME $HVD_LOCAL_RANK' >ranks 2>log
run -np 3 sh -c 'echo $HVD_RANK $HVD_HOSTNAME' >three
rc=0; run -np 5 touch started 2>five || rc=$?
[ $rc -eq 2 ]
run -np 5 --oversubscribe true
run --allocation none -np 2 sh -c 'echo $HVD_HOSTNAME' >here
run -H node02:1 sh -c 'echo $HVD_HOSTNAME' >second
run "$PROG/coll" sum 100003 3
srun -N 1 -n 1 -w node02 "$HVDRUN" --launcher slurm --no-tag-output \
    sh -c 'echo $HVD_HOSTNAME' >step
"$HVDRUN" --rsh 'env PLAYED={host}' --no-tag-output "$PROG/coll" topo >topo
"$HVDRUN" ps --launcher slurm >ps 2>ps.err
head -c 3000001 /dev/urandom >data
run -np 4 --stdin 3 sh -c 'if [ $HVD_RANK = 3 ]; then cat; fi' <data |
    cmp - data
END
    batch -N 2 --ntasks-per-node=2 --gres=gpu:2 -t 5
    [ "$(sort ranks)" = "0 node01 0
1 node01 1
2 node02 0
3 node02 1" ] || fail "ranks: $(cat ranks)"
    grep -q "^hvdrun: info: Slurm job [0-9]*: 2 hosts (node\[01-02\]), 4 slots, 2 GPUs on this host" log
    [ "$(sort three)" = "0 node01
1 node01
2 node02" ] || fail "three: $(cat three)"
    [ "$(wc -l <five)" = 1 ]
    grep -Eq '^hvdrun: error: -np 5: Slurm job [0-9]+ has 4 slots \(node01:2, node02:2\); lower -np' five
    [ ! -e started ]
    [ ! -s ps.err ] || fail "ps: $(cat ps.err)"
    [ "$(cat second)" = node02 ]
    [ "$(cat step)" = node02 ]
    [ "$(wc -l <here)" = 2 ]
    absent node0 here
    [ "$(wc -l <topo)" = 4 ]
}

test_slurm_components() {
    slurm_start
    cat >job.sh <<'END'
#!/bin/bash
#SBATCH -N 1 -n 3 --exclusive
#SBATCH hetjob
#SBATCH -N 1 -n 1 --exclusive
"$HVDRUN" --launcher slurm --no-tag-output --verbose \
    sh -c 'echo $HVD_RANK $HVD_HOSTNAME' >ranks 2>log
echo $? >job.code
END
    batch
    [ "$(sort ranks)" = "0 node01
1 node01
2 node01
3 node02" ] || fail "ranks: $(cat ranks)"
    grep -q 'Slurm job [0-9]*: 2 hosts (node\[01-02\]), 4 slots' log
    # salloc sets no variables but those of the components.
    salloc -Q -N 1 -n 1 --exclusive : -N 1 -n 2 --exclusive "$HVDRUN" \
        --dry-run cmd >plan
    [ "$(grep -Ec '^[012] +node0[12] ' plan)" -eq 3 ]
}


# The step of an agent has all GPUs of the job on its host, however the job asked
# for them.
test_slurm_gpus() {
    local how
    slurm_start
    for how in --gres=gpu:2 --gpus-per-node=2 --gpus-per-task=1 --gpus=4; do
        salloc -Q -N 2 --ntasks-per-node=2 -c 2 $how "$HVDRUN" --launcher slurm \
            --no-tag-output sh -c \
            'tr "\0" "\n" </proc/$PPID/environ | grep ^SLURM_STEP_GPUS=' >gpus
        [ "$(sort gpus | uniq -c | tr -s ' ')" = ' 4 SLURM_STEP_GPUS=0,1' ] ||
            fail "$how: $(cat gpus)"
    done
}

# Ranks get the GPU that Slurm gave to the job, also where it hides no other.
test_slurm_gives_gpus() {
    slurm_start
    salloc -Q -N 2 --ntasks-per-node=1 --gres=gpu:1 "$HVDRUN" --launcher slurm \
        --no-tag-output sh -c 'echo "GPU $CUDA_VISIBLE_DEVICES"' >gpus
    [ "$(cat gpus)" = "GPU 0
GPU 0" ] || fail "$(cat gpus)"
}

# scancel ends the ranks with SIGTERM, on both hosts.
test_slurm_cancel() {
    local id
    slurm_start
    cat >job.sh <<'END'
#!/bin/bash
"$HVDRUN" --launcher slurm --no-tag-output sh -c '
    trap "echo TERM >ended.$HVD_RANK; exit 0" TERM
    touch up.$HVD_RANK
    while :; do sleep 0.1; done' >ranks 2>log
echo $? >code
END
    id=$(sbatch --parsable -N 2 --ntasks-per-node=2 -o job.out job.sh)
    wait_for '[ "$(count_files up.*)" = 4 ]'
    scancel "$id"
    wait_for '[ -z "$(squeue -h)" ]'
    [ "$(count_files ended.*)" = 4 ]
}

# A signal for the job's script alone reaches the ranks, if hvdrun took the
# script's place.
test_slurm_signal() {
    local id
    slurm_start
    cat >job.sh <<'END'
#!/bin/bash
exec "$HVDRUN" --launcher slurm --no-tag-output sh -c '
    trap "touch usr1.$HVD_RANK; exit 0" USR1
    touch up.$HVD_RANK
    while :; do sleep 0.1; done' 2>log
END
    id=$(sbatch --parsable -N 2 --ntasks-per-node=1 -o job.out job.sh)
    wait_for '[ "$(count_files up.*)" = 2 ]'
    scancel --batch --signal=USR1 "$id"
    wait_for '[ "$(count_files usr1.*)" = 2 ]'
    wait_for '[ -z "$(squeue -h)" ]'
    grep -q 'JobState=COMPLETED ' < <(scontrol show job "$id")
}

# An elastic job stops at a commit on the signal that Slurm sends before the time
# limit (sbatch --signal=B:TERM@...), which is sent at once here.
test_slurm_stop_at_commit() {
    local id
    slurm_start
    cat >job.sh <<'END'
#!/bin/bash
exec "$HVDRUN" --launcher slurm --min-np 2 --stop-at-commit --grace 60 \
    --no-tag-output "$PROG/elastic_steps" 100000000 1000 fp >ranks 2>log
END
    id=$(sbatch --parsable -N 2 --ntasks-per-node=1 -o job.out job.sh)
    wait_for 'grep -q "^working" ranks'
    scancel --batch --signal=TERM "$id"
    wait_for '[ -z "$(squeue -h)" ]'
    grep -q 'ExitCode=75:0' < <(scontrol show job "$id") || fail "$(cat log)"
    grep -q '2 ranks have stopped at a commit: exit code 75' log
}

# hvdrun reads a list of nodes as Slurm does.  (It writes one bracket for a name,
# and expands three or more in another order.)
test_slurm_lists() {
    local list count
    slurm_start
    while read -r list; do
        scontrol show hostnames "$list" >want
        count=$(wc -l <want)
        env SLURM_JOB_NODELIST="$list" SLURM_TASKS_PER_NODE="1(x$count)" \
            "$HVDRUN" --dry-run cmd | awk '$1 ~ /^[0-9]+$/ { print $2 }' >got
        diff want got || fail "$list"
        # What Slurm makes of the names is read as the names, too.
        list=$(scontrol show hostlist "$(paste -sd, want)")
        env SLURM_JOB_NODELIST="$list" SLURM_TASKS_PER_NODE="1(x$count)" \
            "$HVDRUN" --dry-run cmd | awk '$1 ~ /^[0-9]+$/ { print $2 }' >got
        diff want got || fail "$list"
    done <<'END'
node01
node[01-02]
n[0-15]
n[8-11],m[098-101]
n[08-101]
n[1,3,5-7],login,gpu[007-009]
r[1-2]n[01-03]
r[9-10]-ib[0-1]
a1-2,b
END
}
