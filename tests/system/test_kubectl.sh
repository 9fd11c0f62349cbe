# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Pods, which are reached by `kubectl exec` and have no ssh.  There is no
# cluster: the pods are folders (tests/kubernetes/pod.py).  Each test runs with a
# stand-in for kubectl, and again with the real kubectl, if it is installed,
# against a stand-in for the API server.

need_python() {
    command -v python3 >/dev/null || skip 'no python3'
}

# Writes ./kubeconfig for the API server at port $1.
write_kubeconfig() {
    cat >kubeconfig <<END
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:$1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
END
}

start_api() {
    python3 "$ROOT/tests/kubernetes/api_server.py" pods port >api.out \
        2>api.err &
    api=$!
    wait_for '[ -s port ]'
    write_kubeconfig "$(cat port)"
    export KUBECONFIG=$PWD/kubeconfig
}

stop_api() {
    kill "$api"
    wait "$api" 2>/dev/null || :
}

# each_kubectl CMD...: runs CMD in ./stand-in and in ./real, with the pods w-0,
# w-1 and w-2, which pods/* are; $kubectl says which kubectl it is.
each_kubectl() {
    need_python
    export HOME=$PWD/home KUBE_PODS=pods
    mkdir -p home stand-in/pods/w-{0,1,2} real/pods/w-{0,1,2}
    kubectl=stand-in
    cd stand-in
    PATH=$ROOT/tests/kubernetes:$PATH "$@"
    cd ..
    command -v kubectl >/dev/null || return 0
    kubectl=real
    cd real
    start_api
    # Before version 1.31 it speaks SPDY.
    if kubectl exec -i w-0 -- true 2>/dev/null; then
        "$@"
    fi
    stop_api
    cd ..
}

# The command line that the tests are for.
on_pods() {
    "$HVDRUN" --rsh 'kubectl exec -i {host} --' "$@"
}

start_on_pods() {
    start job "$HVDRUN" --rsh 'kubectl exec -i {host} --' --no-tag-output "$@"
}

# not_reached HOSTS PATTERN: fails unless hvdrun cannot start a job on HOSTS, says
# so in one line that names the last of them, and starts nothing.
not_reached() {
    expect_exit 125 on_pods -H "$1" touch "$PWD/started"
    one_line err
    grep -Eq "^hvdrun: host ${1##*,}: .*$2" err ||
        fail "stderr does not match '$2'"
    [ ! -e started ] || fail 'something was started'
}

# quiet WHAT: fails if WHAT, which must succeed in silence, has printed to stderr.
# kubectl itself says now and then that it ends: about 1 of 170 times on a busy
# machine.
quiet() {
    local said
    said=$(grep -v '"Unhandled Error" err="websocket: close sent"$' err) || :
    [ -z "$said" ] || fail "$1 prints to stderr: $said"
}

job_runs() {
    expect_exit 0 on_pods -H w-0:2,w-1 --no-tag-output \
        sh -c 'echo $HVD_RANK $HVD_LOCAL_SIZE; cat' <<<'not read'
    [ "$(sort out)" = "$(printf '0 2\n1 2\n2 1')" ] || fail "$(cat out)"
    quiet 'a successful job'
    expect_exit 7 on_pods -H w-0,w-1 sh -c 'exit $((HVD_RANK * 7))'
    grep -q 'rank 1 on host w-1 .*failed: .*7' err
    expect_exit 0 on_pods -H w-0:2,w-1:2,w-2:1 "$EXAMPLES/train_digits"
    expect_exit 0 on_pods -H w-0,w-1 --stdin 0 --no-tag-output \
        sh -c '[ "$HVD_RANK" = 1 ] || cat' < <(seq 100000)
    [ "$(tail -n 1 out)" = 100000 ] && [ "$(wc -l <out)" -eq 100000 ]
}

test_job() {
    each_kubectl job_runs
}

# The agents that only answer have not failed.
tools_run() {
    two_ranks
    expect_exit 0 "$HVDRUN" ps --rsh 'kubectl exec -i {host} --' -H w-0,w-2
    quiet ps
    grep -q w-0 out || fail "$(cat out)"
    kill -INT "$pid"
    finish job 130
    wait_for 'gone job'
    rm rank.*
}

test_ps() {
    each_kubectl tools_run
}

# The agent that a pod was sent first is there for the next job.
agent_stays() {
    expect_exit 0 on_pods -H w-1 true
    [ "$(count_files pods/w-1/home/.cache/hvd/hvd-agent-*)" -eq 1 ]
    expect_exit 0 on_pods -H w-1 --agent "$HVD_AGENT" true
    expect_exit 0 on_pods -H w-1 true
    [ "$(count_files pods/w-1/home/.cache/hvd/hvd-agent-*)" -eq 1 ]
}

test_agent_stays_in_the_pod() {
    each_kubectl agent_stays
}

pods_that_cannot() {
    not_reached w-0,w-9 'Error from server \(NotFound\): pods "w-9" not found'
    echo Pending >pods/w-1/phase
    not_reached w-0,w-1 'w-1 does not have a host assigned'
    echo Succeeded >pods/w-1/phase
    not_reached w-0,w-1 'in a completed pod; current phase is Succeeded'
    rm pods/w-1/phase
    touch pods/w-1/creating
    not_reached w-0,w-1 'container not found'
}

test_pods_that_cannot_be_reached() {
    each_kubectl pods_that_cannot
}

test_api_server_is_away() {
    command -v kubectl >/dev/null || skip 'kubectl is not installed'
    export HOME=$PWD
    # Nothing listens at port 1.
    write_kubeconfig 1
    KUBECONFIG=$PWD/kubeconfig not_reached w-1 'server 127.0.0.1:1 was refused'
}

# A pod that takes its time to answer.
slow_start() {
    echo 2 >pods/w-1/exec_delay
    expect_exit 0 on_pods -H w-0,w-1 --no-tag-output echo here
    [ "$(cat out)" = "$(printf 'here\nhere')" ]
    echo 60 >pods/w-1/exec_delay
    expect_exit 125 on_pods -H w-0,w-1 --start-timeout 1 \
        touch "$PWD/started"
    grep -q 'did not start within 1 s (--start-timeout)' err
    grep -q w-1 err || fail 'the pod is not named'
    [ ! -e started ]
}

test_slow_start() {
    each_kubectl slow_start
}

# Waits until both ranks of a job on w-0 and w-1 run, and sets $far to the pid of
# the one on w-1.
two_ranks() {
    start_on_pods -H w-0,w-1 "$@" sh -c 'echo $$ >"$0.$HVD_RANK"; exec sleep 600' \
        "$PWD/rank"
    wait_for '[ -s rank.0 ] && [ -s rank.1 ]'
    far=$(cat rank.1)
}

# A stream that drops in the middle is a lost host.
stream_drops() {
    two_ranks
    echo "$1" >pods/w-1/cut
    finish job 125
    grep -Eq '^hvdrun: host w-1: lost the agent' job.err || fail "$1"
    [ "$1" = silent ] || grep -q 'unexpected EOF' job.err ||
        fail "kubectl's words are not told"
    wait_for '! alive '"$far"
    wait_for 'gone job'
    rm -f pods/w-1/cut rank.*
}

streams_drop() {
    stream_drops loud
    [ $kubectl = real ] || stream_drops silent
}

test_stream_drops() {
    each_kubectl streams_drop
}

# With --min-np, the other pods go on.
elastic_goes_on() {
    start_on_pods -H w-0:2,w-1:1,w-2:1 --min-np 2 \
        "$PROG/elastic_steps" 1000000 1000 fp
    wait_for 'grep -q "^working" job.out || ! alive '"$pid"
    echo loud >pods/w-1/cut
    wait_for 'grep -q "4 -> 3 ranks (generation 2)" job.err'
    grep -q 'host w-1' job.err || fail 'the pod is not named'
    wait_for '[ "$(job_pids job elastic_steps | wc -l)" -eq 3 ]'
    kill -INT "$pid"
    finish job 130
    wait_for 'gone job'
    rm -f pods/w-1/cut
}

test_elastic_job_goes_on() {
    each_kubectl elastic_goes_on
}

# A pod that is deleted can leave its streams open, and silent.
silent_stream() {
    two_ranks --heartbeat 2
    touch pods/w-1/freeze
    finish job 125
    grep -Eq 'host w-1: lost the agent: .*nothing was heard' job.err
    # There, too, nobody is heard.
    wait_for '! alive '"$far"
    rm -f pods/w-1/freeze rank.*
    wait_for 'gone job'
}

test_silent_stream() {
    each_kubectl silent_stream
}

# The processes in a pod get no signal when kubectl ends.
kubectl_is_killed() {
    local p victim=
    two_ranks
    for p in $(survivors job); do
        case $(tr '\0' ' ' <"/proc/$p/cmdline") in
        *hvdrun*) ;;
        *'kubectl exec -i w-1 '*) victim=$p ;;
        esac
    done
    kill -KILL "$victim"
    finish job 125
    grep -q '^hvdrun: host w-1: lost the agent' job.err
    wait_for 'gone job'
    rm rank.*
}

test_kubectl_is_killed() {
    each_kubectl kubectl_is_killed
}

hvdrun_is_killed() {
    two_ranks
    kill -KILL "$pid"
    finish job 137
    wait_for 'gone job'
    rm rank.*
}

test_hvdrun_is_killed() {
    each_kubectl hvdrun_is_killed
}

# Ranks that ignore SIGTERM are gone soon after the grace time.
sigterm_ends_all() {
    local from
    start_on_pods -H w-0,w-1 --grace 1 \
        sh -c 'trap "" TERM; echo >"$0.$HVD_RANK"; while :; do sleep 1; done' \
        "$PWD/rank"
    wait_for '[ -s rank.0 ] && [ -s rank.1 ]'
    from=$(now_ms)
    kill -TERM "$pid"
    finish job 143
    [ $(($(now_ms) - from)) -lt 10000 ] || fail 'it took too long'
    wait_for 'gone job'
    rm rank.*
}

test_sigterm_ends_all() {
    each_kubectl sigterm_ends_all
}
