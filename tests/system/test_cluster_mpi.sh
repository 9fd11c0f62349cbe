# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun --mpi on several hosts, which mpirun reaches by ssh.

# up_with MPI N: starts N hosts with HVD_MPIRUN set to the mpirun of MPI, or
# skips the test if that MPI is not installed.
up_with() {
    HVD_MPIRUN=mpirun.openmpi
    [ "$1" = openmpi ] || HVD_MPIRUN=mpiexec.hydra
    command -v $HVD_MPIRUN >/dev/null || skip "$HVD_MPIRUN is not installed"
    export HVD_MPIRUN
    cluster_up "$2"
}

# Skips the test unless libhvd's MPI plug-in was built with the MPI $1.
plane_is() {
    "$HVDRUN" --check-build --json | tr -d '\n' |
        grep -q "\"version\": \"$1[^}]*libhvd-mpi.so" ||
        skip "libhvd-mpi.so is not built with $1"
}

# shellcheck disable=SC2016
report='rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
[ "$rank" -ne 0 ] || cat >/dev/null
echo "$(hostname) $rank ${TOKEN-none} ${HOME-none} ${NOT_SET-none}"
for f in /proc/[0-9]*/cmdline; do
    case $(tr "\0" " " <"$f" 2>/dev/null) in
    *"$TOKEN"*) echo "seen: $(tr "\0" " " <"$f")" ;;
    esac
done'

# The ranks run where the plan puts them, and get the value of -x TOKEN without
# its showing on a command line.
hosts_and_environment() {
    export TOKEN=s3cret
    expect_exit 0 login "$HVDRUN" --mpi -H n1:2,n2:1 --no-tag-output \
        -x TOKEN sh -c "$report"
    sort out | diff - <(
        printf 'n1 %d s3cret /root none\n' 0 1
        echo 'n2 2 s3cret /root none'
    )
    expect_exit 0 login "$HVDRUN" --mpi -np 4 -H n1:2,n2:2 --map-by node \
        --no-tag-output sh -c "$report"
    grep -q '^n1 2 ' out
    grep -q '^n2 3 ' out
    expect_exit 5 login "$HVDRUN" --mpi -H n1,n2 sh -c "$report; exit 5"
}

test_mpi_hosts_openmpi() {
    up_with openmpi 2
    hosts_and_environment
    cluster_down
}

test_mpi_hosts_mpich() {
    up_with mpich 2
    hosts_and_environment
    cluster_down
}

# The options for port, user, key and known hosts of ssh each have their
# effect.
ssh_options() {
    login cat /root/.ssh/id_ed25519 >key
    login cat /root/.ssh/known_hosts >known
    chmod 600 key
    login mv /root/.ssh/id_ed25519 /root/.ssh/known_hosts /tmp
    expect_exit 0 login "$HVDRUN" --mpi -H n1,n2 -i "$PWD/key" \
        --ssh-known-hosts "$PWD/known" -p 22 --ssh-user alice \
        --start-timeout 20 --wdir / --no-tag-output sh -c "$report; id -un"
    [ "$(grep -c '^alice$' out)" -eq 2 ]
    login mv /tmp/id_ed25519 /tmp/known_hosts /root/.ssh
    expect_exit 0 login "$HVDRUN" --mpi -H alice@n1,alice@n2 --wdir / \
        --no-tag-output sh -c "$report; id -un"
    [ "$(grep -c '^alice$' out)" -eq 2 ]
}

test_mpi_ssh_options_openmpi() {
    up_with openmpi 2
    ssh_options
    cluster_down
}

test_mpi_ssh_options_mpich() {
    up_with mpich 2
    ssh_options
    cluster_down
}

# After a host that refuses the connection, and after a signal, nothing is left
# on any host.
test_mpi_faults() {
    local status=0
    up_with openmpi 2
    faulty sshd n2 stop
    login timeout 60 "$HVDRUN" --mpi -H n1,n2 touch "$PWD/started" \
        >out 2>err || status=$?
    [ $status -ne 0 ] && [ $status -ne 124 ]
    [ ! -e started ]
    faulty sshd n2 start
    start_on login job "$HVDRUN" --mpi -H n1,n2 \
        sh -c ': >up.$OMPI_COMM_WORLD_RANK; exec sleep 300'
    wait_for '[ -e up.0 ] && [ -e up.1 ]'
    kill -TERM "$(the job mpirun.openmpi)"
    finish job
    [ "$status" -ne 0 ]
    cluster_down
}

# A libhvd program finds the same ranks and hosts from MPI as hvdrun alone
# gives it.  Every collective works over MPI between hosts and in shared memory
# within a host.
test_mpi_libhvd() {
    local hosts
    up_with openmpi 3
    plane_is 'Open MPI'
    for hosts in n1:2,n2:2,n3:2 n1:2,n2:3,n3:1; do
        expect_exit 0 login "$HVDRUN" -H $hosts --no-tag-output \
            "$PROG/coll" topo
        sort out >hvdrun.out
        expect_exit 0 login "$HVDRUN" --mpi -H $hosts --no-tag-output \
            --network-interfaces eth0 "$PROG/coll" topo
        sort out | diff hvdrun.out -
    done
    expect_exit 0 login "$HVDRUN" --mpi -H n1:2,n2:1 --no-tag-output \
        --network-interfaces eth0 "$PROG/prop" 700 2 10
    [ "$(grep -c '^[1-9][0-9]* operations$' out)" -gt 0 ]
    expect_exit 0 login "$HVDRUN" --mpi -H n1:2,n2:2 \
        --network-interfaces eth0 "$HVD_BENCH" allreduce --sizes 8,100K \
        --iters 3 --process-set 0-1/2-3
    expect_exit 1 login "$HVDRUN" --mpi -H n1,n2 -x HVD_CPU_PLANE=native \
        --network-interfaces eth0 "$PROG/coll" topo
    grep -q 'HVD_CPU_PLANE: native serves one host, and the ranks are on 2' err
    cluster_down
}
