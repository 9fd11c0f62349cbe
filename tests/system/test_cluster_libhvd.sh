# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# libhvd between hosts: topology, results, errors, deaths, and the examples.

test_libhvd_hosts_topology() {
    cluster_up 3
    expect_exit 0 login "$HVDRUN" -H n1:2,n2:3,n3:1 --no-tag-output \
        "$PROG/coll" topo
    sort out >sorted
    diff - sorted <<'END'
rank 0/6 local 0/2 cross 0/3
rank 1/6 local 1/2 cross 0/2
rank 2/6 local 0/3 cross 1/3
rank 3/6 local 1/3 cross 1/2
rank 4/6 local 2/3 cross 0/1
rank 5/6 local 0/1 cross 2/3
END
    cluster_down
}

test_libhvd_hosts_allreduce() {
    local hosts
    cluster_up 4
    for hosts in n1:2,n2:2 n1,n2,n3,n4 n1:3,n2:1 n1:1,n2:2,n3:3; do
        login "$HVDRUN" -H $hosts "$PROG/coll" sum 0 2
        login "$HVDRUN" -H $hosts "$PROG/coll" sum 1 50
        login "$HVDRUN" -H $hosts "$PROG/coll" sum 300007 2
    done
    login "$HVDRUN" -H n1:2,n2:2 --map-by node "$PROG/coll" sum 10007 5
    login "$HVDRUN" -H n1:2,n2:2 "$PROG/coll" again 3
    cluster_down
}

test_libhvd_hosts_bench_checks_results() {
    local kind
    cluster_up 2
    for kind in allreduce broadcast allgather barrier alltoall \
        reducescatter; do
        expect_exit 0 login "$HVDRUN" -H n1:2,n2:1 --no-tag-output \
            "$HVD_BENCH" $kind --iters 3 --sizes 8,4096,1000000 --json
        [ -s out ]
    done
    cluster_down
}

# Collectives of every kind, dtype, op and process set give right results in
# random orders.
test_libhvd_hosts_properties() {
    local hosts
    cluster_up 4
    for hosts in n1,n2 n1:2,n2:2 n1:1,n2:3 n1:3,n2:2,n3:1 n1,n2,n3,n4; do
        login "$HVDRUN" -H $hosts "$PROG/prop" 11 2 4
    done
    cluster_down
}

test_libhvd_hosts_ipv6() {
    cluster_up 2 --ipv6
    login "$HVDRUN" -H n1:2,n2:1 "$PROG/coll" sum 300007 2
    login "$HVDRUN" -H n1:2,n2:2 "$PROG/prop" 13 1 4
    cluster_down
}

test_libhvd_hosts_mismatch() {
    local what
    cluster_up 2
    for what in count dtype op root scale kind; do
        expect_exit 0 login "$HVDRUN" -H n1,n2 --no-tag-output \
            "$PROG/coll" mismatch $what
        [ "$(grep -c 'rank [01]: ' out)" -eq 2 ]
        grep -q 'n1' out
        grep -q 'n2' out
    done
    cluster_down
}

# When a rank dies inside a collective, the others soon get an error that names
# it and its host.
test_libhvd_hosts_death() {
    local how delay
    cluster_up 2
    for how in kill segv 3; do
        expect_exit "$(case $how in kill) echo 137 ;; segv) echo 139 ;;
            *) echo 3 ;; esac)" login "$HVDRUN" --grace 4 -H n1:2,n2:2 \
            --no-tag-output sh -c 'ulimit -c 0; exec "$@"' x \
            "${unchecked_leaks[@]}" \
            "$PROG/coll" lose large $how 3 2 "$PWD/when" ||
            fail "$how"
        [ "$(grep -c 'rank [012]: .*after' out)" -eq 3 ] || fail "$(cat out)"
        grep -q 'rank 0: .*rank 3' out
        grep -q 'rank 0: .*n2' out
        tells 'rank 3 .*n2'
        rm -f when
    done
    cluster_down
}

test_libhvd_hosts_examples() {
    sanitized && skip "too slow with sanitizers"
    local example
    cluster_up 2
    for example in train_digits anomaly_autoencoder; do
        login "$HVDRUN" -np 4 --no-tag-output "$EXAMPLES/$example" >one
        login "$HVDRUN" -np 4 -H n1:2,n2:2 --no-tag-output \
            "$EXAMPLES/$example" >two
        last_figures one >figures.one
        last_figures two >figures.two
        [ -s figures.one ]
        # sums are added in another order, so the last digits may differ
        paste figures.one figures.two | awk '
            { d = $1 - $2; if (d < 0) d = -d; if (d > 1) exit 1 }' ||
            fail "$example: $(paste figures.one figures.two)"
        expect_exit 0 login "$HVDRUN" -np 4 -H n1:2,n2:2 --no-tag-output \
            "$EXAMPLES/$example"
        last_figures out | diff figures.two -
    done
    cluster_down
}

# Prints the accuracies and AUCs in file $1, which, unlike times, do not vary.
last_figures() {
    grep -oE '(accuracy|AUC)[^0-9]*[0-9.]+' "$1" | grep -oE '[0-9.]+$' |
        sed 's/[.]$//' | tail -n 1
}

# A rank's port is open to the network.  A process outside the job that
# connects to it learns nothing and disturbs nothing.
test_libhvd_hosts_scanned_ports() {
    local host port what
    cluster_up 2
    start_on login job "$HVDRUN" --grace 1 -H n1:2,n2:2 \
        "$PROG/coll" spin small "$PWD/up"
    wait_for '[ "$(count_files up.?)" -eq 4 ]'
    listening n1 >ports
    listening n2 >>ports
    for port in $(sort -u ports); do
        for host in 10.66.0.1 10.66.0.2; do
            for what in junk huge flood cut hello; do
                login "$PROG/poke" "tcp:$host:$port" $what >answer
                # a random challenge is all that such a process sees
                grep -Eq '^(refused|silence|answer ..)$' answer ||
                    fail "$host:$port $what: $(cat answer)"
            done
        done
    done
    alive "$(the job hvdrun)"
    kill -TERM "$(the job hvdrun)"
    finish job 143
    ours job.err >log
    absent 'failed' log
    cluster_down
}

# A port scan while the ranks connect to each other does not disturb them.
test_libhvd_hosts_scanned_while_connecting() {
    local i port
    cluster_up 2
    for i in 1 2 3; do
        start_on login "job$i" "$HVDRUN" -H n1:2,n2:2 sh -c '
            [ $HVD_RANK = 3 ] && sleep 1
            exec "$PROG/coll" sum 1000 5'
        wait_for '[ -n "$(listening n1)" ] || ! alive "$pid"'
        for port in $(listening n1); do
            login "$PROG/poke" "tcp:10.66.0.1:$port" junk >answer
            login "$PROG/poke" "tcp:10.66.0.1:$port" idle >answer
        done
        finish "job$i" 0
    done
    cluster_down
}
