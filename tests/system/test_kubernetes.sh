# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The manifests in examples/kubernetes, and what their commands do.

need_yaml() {
    command -v python3 >/dev/null || skip 'no python3'
    python3 -c 'import yaml' 2>/dev/null || skip 'no python3-yaml'
}

manifests() { # FOLDER [FILE]
    python3 "$ROOT/tests/kubernetes/manifests.py" "$1" \
        "$ROOT/man/hvdrun.1" "$HVDRUN" "${@:2}"
}

test_manifests() {
    need_yaml
    expect_exit 0 manifests "$ROOT/examples/kubernetes"
}

# HVD_TEST_CRDS names a folder with the CustomResourceDefinitions of JobSet and
# of the MPI Operator, as their repositories have them.
test_manifests_fit_the_schemas() {
    local check
    need_yaml
    [ -n "${HVD_TEST_CRDS:-}" ] || skip 'HVD_TEST_CRDS is not set'
    check=(/usr/bin/python3 "$ROOT/tests/kubernetes/crds.py" "$HVD_TEST_CRDS")
    expect_exit 0 "${check[@]}" "$ROOT/examples/kubernetes"
    grep -qx '7 objects, 0 faults' out || fail "$(cat out)"
    cp -r "$ROOT/examples/kubernetes" altered
    sed -i 's,backoffLimit: 3,backoffLimit: three,' altered/mpijob.yaml
    sed -i 's,mountPath: /tmp,mountPaht: /tmp,' altered/statefulset.yaml
    expect_exit 1 "${check[@]}" altered
    grep -q "mpijob.yaml: .* spec.runPolicy.backoffLimit: 'three'" out
    grep -q 'statefulset.yaml: .*mountPaht' out
}

# finds PATTERN FILE SED: the check finds what is wrong after the change.
finds() {
    rm -rf altered
    cp -r "$ROOT/examples/kubernetes" altered
    sed -i "$3" "altered/$2"
    ! cmp -s "altered/$2" "$ROOT/examples/kubernetes/$2" ||
        fail "no change: $3"
    expect_exit 1 manifests altered "$2"
    grep -Eq -- "^$2: .*$1" out || fail "'$1' is not found"
}

test_faults_in_jobs_are_found() {
    need_yaml
    finds 'unknown batch/v2 Job' job.yaml 's,batch/v1,batch/v2,'
    finds 'unknown field spec.backofLimit' job.yaml s,backoffLimit,backofLimit,
    finds 'spec.backoffLimit is ' job.yaml 's,backoffLimit: 3,backoffLimit: "3",'
    finds 'needs restartPolicy Never' job.yaml s,Policy:.Never,Policy:\ OnFailure,
    finds 'no exit code 76' job.yaml 's,\[75\],[76],'
    finds '75 comes of --stop-at-commit' job.yaml 's,\[75\],[125],'
    finds 'are not in order' job.yaml 's,\[2\, 126,[126\, 2,'
    finds 'FailJob is for' job.yaml 's,\[2\, 126,[2,'
    finds 'for another container' job.yaml 's,containerName: train,&er,'
    finds 'need 50 s to end' job.yaml 's,Seconds: 60,Seconds: 30,'
    finds 'unknown option --stop-at-comit' job.yaml s,at-commit,at-comit,
    finds 'there is no volume' job.yaml '0,/name: shm/s//name: shn/'
    finds 'more rights' job.yaml '/drop:/s/ALL/CHOWN/'
    finds 'no image with a version' job.yaml 's,hvdrun:1,hvdrun:latest,'
}

test_faults_between_objects_are_found() {
    need_yaml
    finds 'selects no pod' statefulset.yaml \
        '/^  selector:/,/app:/s,app: train-worker,app: x,'
    finds 'there is no Service ' statefulset.yaml 's,serviceName: ,&x,'
    finds 'there is no Role ' statefulset.yaml \
        '/^  kind: Role$/,/name:/s,name: ,&x,'
    finds 'there is no ServiceAccount ' launcher-elastic.yaml \
        's,serviceAccountName: ,&x,'
    finds 'there is no replicated job' jobset.yaml \
        's,targetReplicatedJobs: .launcher.,targetReplicatedJobs: [x],'
    finds '--min-np 2: the job has only' mpijob-elastic.yaml 's,-np 4 --min-np 2,-np 1 --min-np 2,'
    finds '4 ranks for 6 slots' mpijob.yaml 's,replicas: 2,replicas: 3,'
}

# Prints the words of the command of CONTAINER in an object of KIND, each ended by
# a zero byte.
command_of() { # FILE KIND CONTAINER
    python3 - "$ROOT/examples/kubernetes/$1" "$2" "$3" <<'END'
import sys
import yaml


def containers(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "containers":
                yield from inner
            else:
                yield from containers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from containers(inner)


file, kind, name = sys.argv[1:]
for body in yaml.safe_load_all(open(file, encoding="utf-8")):
    if body["kind"] == kind:
        for container in containers(body):
            if container["name"] == name:
                for word in container["command"]:
                    sys.stdout.write(word + "\0")
END
}

# A worker of the StatefulSet stays, after SIGTERM, until the agents in its pod
# have ended.  The pod here has processes of its own.
test_worker_waits_for_its_agents() {
    local command
    need_yaml
    need_root
    mapfile -d '' command < <(command_of statefulset.yaml StatefulSet worker)
    [ "${#command[@]}" -eq 3 ]
    cat >pod.sh <<'END'
cp "$(command -v sleep)" hvd-agent
./hvd-agent 600 &
agent=$!
"$@" &
worker=$!
touch ready
sleep 1
kill -TERM $worker
sleep 2
kill -0 $worker && touch waited
kill $agent
wait $worker
echo $? >status
END
    start pod unshare -pfm --mount-proc --kill-child sh pod.sh "${command[@]}"
    finish pod 0
    [ -e waited ] || fail 'it has not waited for the agent'
    [ "$(cat status)" = 0 ] || fail "exit $(cat status)"
}

# hvdrun is process 1 of its pod, and gets the SIGTERM for it.
test_hvdrun_is_process_1() {
    need_root
    start job unshare -pfm --mount-proc --kill-child "$HVDRUN" -np 2 \
        --no-tag-output --stop-at-commit --grace 20 \
        "$PROG/elastic_steps" 1000000 1000 fp
    wait_for 'grep -q "^working" job.out || ! alive '"$pid"
    # The child of unshare.
    kill -TERM "$(pgrep -P "$pid" -x hvdrun)"
    finish job 75
    [ "$(grep -c '^removed' job.out)" -eq 2 ]
}

# ssh as in jobset.yaml and mpijob.yaml: sshd and hvdrun with their options, and
# the keys that the comments make.  The key of the MPI Operator is ECDSA.
serve_and_run() { # FILE KIND FOLDER-OF-KEYS KEY
    local command launcher port=$((20000 + $$ % 20000))
    mapfile -d '' command < <(command_of "$1" "$2" worker)
    [ "${command[0]}" = /usr/sbin/sshd ] || fail "no sshd in $1"
    command=("${command[@]//$3/$PWD/keys}")
    start sshd "${command[@]/#2222/$port}" \
        -o "AuthorizedKeysFile=$PWD/keys/authorized_keys"
    wait_for 'grep -q "Server listening on" sshd.err'
    for launcher in auto openssh; do
        expect_exit 0 "$HVDRUN" -H 127.0.0.1:2 -p $port -i "keys/$4" \
            --ssh-known-hosts keys/known_hosts --agent "$HVD_AGENT" \
            --launcher $launcher --no-tag-output echo here
        [ "$(cat out)" = "$(printf 'here\nhere')" ] || fail "$(cat out)"
    done
    kill "$pid"
    finish sshd
}

keys() {
    rm -rf keys
    mkdir -m 700 keys
    ssh-keygen -q -N '' -C '' -f "keys/$1" "${@:2}"
    cp "keys/$1.pub" keys/authorized_keys
    echo "* $(cat "keys/$1.pub")" >keys/known_hosts
}

test_ssh_between_pods() {
    need_yaml
    need_root
    [ -x /usr/sbin/sshd ] || skip 'no sshd'
    mkdir -p /run/sshd
    export HOME=$PWD
    unset SSH_AUTH_SOCK
    keys id_ed25519 -t ed25519
    serve_and_run jobset.yaml JobSet /etc/train-ssh id_ed25519
    keys id_rsa -t ecdsa -b 521 -m PEM
    serve_and_run mpijob.yaml MPIJob /home/train/.ssh id_rsa
    rmdir /run/sshd 2>/dev/null || :
}

# The launcher of the elastic job, with kubectl's own answers: it takes a pod
# that comes, and leaves one that is deleted.
test_elastic_launcher() {
    local command api
    need_yaml
    command -v kubectl >/dev/null || skip 'kubectl is not installed'
    mkdir -p pods/train-worker-{0,1} home
    python3 "$ROOT/tests/kubernetes/api_server.py" pods port 2>api.err &
    api=$!
    wait_for '[ -s port ]'
    sed "s/PORT/$(cat port)/" >kubeconfig <<'END'
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:PORT"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
END
    export KUBECONFIG=$PWD/kubeconfig HOME=$PWD/home
    if ! kubectl exec -i train-worker-0 -- true 2>/dev/null; then
        kill $api
        skip 'this kubectl is older than 1.31'
    fi
    mapfile -d '' command < <(command_of launcher-elastic.yaml Job launcher)
    [ "${command[-1]}" = train_digits_elastic ]
    unset 'command[-1]'
    # The last of two values counts.
    start job "$HVDRUN" "${command[@]:1}" --agent "$HVD_AGENT" \
        --discovery-interval 1 --no-tag-output \
        "$PROG/elastic_steps" 1000000 1000 fp
    wait_for 'grep -q "^working" job.out || ! alive '"$pid"
    [ "$(job_pids job elastic_steps | wc -l)" -eq 8 ] || fail 'not 8 ranks'
    mkdir pods/train-worker-2
    wait_for 'grep -q -e "-> 12 ranks" job.err'
    touch pods/train-worker-0/deleted
    wait_for 'grep -q "12 -> 8 ranks" job.err'
    grep -Eq 'host train-worker-0 goes in 4[0-9] s \(preempt-script\)' job.err
    kill -TERM "$pid"
    finish job 75
    wait_for 'gone job'
    kill $api
}

# The files of the images, made as the Dockerfile makes them: what they hold
# works, and is small.  (No image is built: that needs docker and a registry.)
test_files_of_the_image() {
    local top=$PWD/files
    sanitized && skip "a sanitizer has no static form"
    [ -e "$BUILD/tests/static/hvdrun" ] || skip "no static libraries"
    make -C "$ROOT" --no-print-directory BUILD="$BUILD" DESTDIR="$top" \
        install-files >make.out 2>&1 || fail "$(tail -n 5 make.out)"
    cp "$BUILD/tests/static/hvdrun" "$top/usr/local/bin/hvdrun"
    sed -n '/^WORKDIR .files/,/^FROM/p' "$ROOT/examples/kubernetes/Dockerfile" |
        sed '1d; $d; s/^RUN //' >commands
    grep -q strip commands
    (cd "$top/usr/local" && sh -eu "$OLDPWD/commands")
    [ "$(du -sm "$top" | cut -f1)" -lt 50 ] || fail "$(du -m "$top")"
    expect_exit 0 env LD_LIBRARY_PATH="$top/usr/local/lib" \
        "$top/usr/local/bin/hvdrun" -np 2 --no-tag-output \
        "$top/usr/local/bin/train_digits_elastic"
    grep -q 'accuracy' out
}
