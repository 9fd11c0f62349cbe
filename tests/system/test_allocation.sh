# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Jobs of batch systems that are not installed here, by the variables and files
# that they document.  test_slurm.sh has a real Slurm.

# Expects that hvdrun, with variables NAME=VALUE..., runs these ranks: a line
# `RANK HOST` for each.
ranks() { # LINES NAME=VALUE...
    local want=$1
    shift
    expect_exit 0 env "$@" "$HVDRUN" --rsh 'env PLAYED={host}' \
        --no-tag-output sh -c 'echo $HVD_RANK $HVD_HOSTNAME'
    [ "$(sort out)" = "$want" ] || fail "$*: $(cat out)"
}

four='0 n1
1 n1
2 n2
3 n2'

test_allocation_pbs() {
    printf '%s\n' n1 n1 n2 n2 >nodes
    ranks "$four" PBS_NODEFILE="$PWD/nodes" PBS_JOBID=7.server
    expect_exit 2 env PBS_NODEFILE="$PWD/nodes" PBS_JOBID=7.server \
        "$HVDRUN" -np 5 touch started
    check_refusal '^hvdrun: error: -np 5: PBS job 7\.server has 4 slots \(n1:2, n2:2\); lower -np or ask for more, or give --oversubscribe$'
    printf 'n1\nn2;\n' >nodes
    expect_exit 2 env PBS_NODEFILE="$PWD/nodes" "$HVDRUN" touch started
    check_refusal "^hvdrun: error: PBS_NODEFILE: .*/nodes:2:3: ';' is not allowed"
}

test_allocation_lsf() {
    ranks "$four" LSB_MCPU_HOSTS='n1 2 n2 2' LSB_JOBID=3
    printf '%s\n' n1 n2 n1 n2 >hosts
    ranks "$four" LSB_DJOB_HOSTFILE="$PWD/hosts"
    expect_exit 2 env LSB_MCPU_HOSTS='n1 two' "$HVDRUN" touch started
    check_refusal '^hvdrun: error: LSB_MCPU_HOSTS: column 4: slots: not a whole number$'
}

test_allocation_sge() {
    printf '%s\n' 'n1 2 all.q@n1 UNDEFINED' 'n2 2 all.q@n2 <NULL>' >pe
    ranks "$four" PE_HOSTFILE="$PWD/pe" JOB_ID=9 NSLOTS=4
}

# A script plays `flux`; it notes how it was called.
test_allocation_flux() {
    mkdir bin
    cat >bin/flux <<'END'
#!/bin/sh
echo "$*" >asked
[ -z "$FLUX_FAILS" ] || { echo "flux: cannot connect" >&2; exit 1; }
echo 'flux: a warning' >&2
cat <<'R'
{"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}], "starttime": 0.0, "expiration": 0.0, "nodelist": ["n[1-2]"]}}
R
END
    chmod +x bin/flux
    ranks "$four" FLUX_URI=local:///run/flux PATH="$PWD/bin:$PATH"
    [ "$(cat asked)" = 'resource R' ]
    ranks "$four" FLUX_URI=local:///run/flux FLUX_JOB_ID=f3 \
        PATH="$PWD/bin:$PATH"
    [ "$(cat asked)" = 'job info f3 R' ]
    expect_exit 2 env FLUX_URI=x FLUX_FAILS=1 PATH="$PWD/bin:$PATH" \
        "$HVDRUN" touch started
    check_refusal '^hvdrun: error: FLUX_URI is set, but flux resource R said: flux: cannot connect$'
    expect_exit 2 env FLUX_URI=x PATH=/nonexistent "$HVDRUN" touch started
    check_refusal '^hvdrun: error: FLUX_URI is set: there is no program flux in PATH; give -H, or --allocation none$'
}

# Options come before the batch system, and one can be chosen.
test_allocation_choice() {
    local both=(env SLURM_JOB_NODELIST=n1 LSB_MCPU_HOSTS='n2 3')
    expect_exit 0 "${both[@]}" "$HVDRUN" --dry-run cmd
    grep -Eq '^0 +n1 ' out
    expect_exit 0 "${both[@]}" "$HVDRUN" --allocation lsf --dry-run cmd
    grep -Eq '^2 +n2 ' out
    expect_exit 0 "${both[@]}" "$HVDRUN" -H n3 --dry-run cmd
    grep -Eq '^0 +n3 ' out
    expect_exit 2 "${both[@]}" "$HVDRUN" --allocation none touch started
    check_refusal 'how many ranks'
    refused '^hvdrun: error: --allocation: this is no job of SGE: PE_HOSTFILE is not set$' \
        --allocation sge touch started
}

# A job on this machine alone leaves -np as it is without a batch system.
test_allocation_of_this_machine() {
    expect_exit 0 env LSB_MCPU_HOSTS="$(hostname) 2" "$HVDRUN" echo here
    [ "$(wc -l <out)" = 2 ]
    expect_exit 0 env LSB_MCPU_HOSTS="$(hostname) 2" "$HVDRUN" -np 3 \
        --verbose echo here
    [ "$(wc -l <out)" = 3 ]
    grep -q '^hvdrun: info: the LSF job: 1 host (.*), 2 slots$' err
}

test_allocation_with_mpi() {
    each_mpirun sees_hosts_of_lsf
}

sees_hosts_of_lsf() {
    expect_exit 0 env LSB_MCPU_HOSTS='n1 2 n2 1' "$HVDRUN" --mpi --dry-run cmd
    grep -Eq -- 'n1:2,n2:1' out
}

# in_job LEFT ARG...: starts hvdrun as job `j` in an allocation of this machine
# that ends LEFT seconds from now.
in_job() {
    start j env SLURM_JOB_ID=17 SLURM_JOB_NODELIST="$(hostname)" \
        SLURM_TASKS_PER_NODE=2 \
        SLURM_JOB_END_TIME=$(($(date +%s) + $1)) "$HVDRUN" "${@:2}"
}

test_allocation_that_ends() {
    in_job 61 -np 2 --report r.json sleep 1000
    wait_for "grep -q '^hvdrun: Slurm job 17 ends in [0-9]* s$' j.err"
    kill -TERM "$(cat j.pid)"
    finish j 143
    grep -q '"cause": "SIGTERM ended the job; Slurm job 17 had [0-9]* s left"' \
        r.json || fail "$(cat r.json)"
    in_job 1000 -np 2 true
    finish j 0
    [ ! -s j.err ]
}
