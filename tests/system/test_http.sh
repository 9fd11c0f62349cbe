# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun --http: who may read the status of a job, what it says, and what
# clients cannot do: change anything, see it without the token, use up memory,
# or delay the job.

TOKEN=0123456789abcdef-test
PYTHON=/usr/bin/python3 # has Prometheus' client
# The command of ranks that run until the file `go` is there.
GATE='until [ -e go ]; do sleep 0.05; done'

need_server() {
    [ -e "$BUILD/lib/hvd/status-http.so" ] || skip 'no libmicrohttpd'
    command -v curl >/dev/null || skip 'no curl'
}

# serve [ARG...]: starts hvdrun with these arguments as job `j`, whose token is
# $TOKEN, and sets $url to where its status is.
serve() {
    need_server
    export HVD_HTTP_TOKEN=$TOKEN
    start j "$HVDRUN" --http 0 "$@"
    wait_for "grep -q '^hvdrun: status at ' j.err"
    url=$(sed -n 's|^hvdrun: status at \(.*\)/$|\1|p' j.err)
}

# get PATH [ARG...]: prints what curl gets with the token.
get() {
    curl -sS -m 60 -H "Authorization: Bearer $TOKEN" "${@:2}" "$url$1"
}

# status [ARG...]: prints the status of a response, whose body is in ./body.
status() {
    curl -sS -m 60 -o body -w '%{http_code}' "$@"
}

# has LINE: gets the metrics into ./m; succeeds if they have that line.
has() {
    get /metrics >m && grep -qFx "$1" m
}

run_now() { # NUMBER
    wait_for "has 'hvdrun_ranks{state=\"running\"} $1'"
}

end() {
    touch go
    finish j "${1:-0}"
}

test_only_with_the_token() {
    need_server
    start j "$HVDRUN" --http 0 -np 1 sh -c "$GATE"
    wait_for "grep -q '^hvdrun: status at ' j.err"
    one_line j.err
    full=$(sed -n 's/^hvdrun: status at //p' j.err)
    [[ $full =~ ^http://127\.0\.0\.1:[0-9]+/\?token=[0-9a-f]{32}$ ]] ||
        fail "the address is $full"
    url=${full%/*} token=${full#*token=}
    for path in / /events /job.json /metrics /none '/?token=' "/?token=x$token" \
        "/?tokens=$token" "/metrics?token=${token%?}"; do
        [ "$(status "$url$path")" = 401 ] || fail "$path is served"
        grep -q '^the token is missing or wrong$' body
    done
    for path in / /job.json /metrics; do
        [ "$(status "$url$path?token=$token")" = 200 ]
        [ "$(status -H "Authorization: Bearer $token" "$url$path")" = 200 ]
        [ "$(status -H "Authorization: Basic $token" "$url$path")" = 401 ]
        [ "$(status -I "$url$path?token=$token")" = 200 ]
        for method in POST PUT DELETE OPTIONS; do
            [ "$(status -X $method -d x=1 "$url$path?token=$token")" = 405 ]
        done
    done
    [ "$(status -I "$url/events?token=$token")" = 200 ]
    [ "$(status "$url/none?token=$token")" = 404 ]
    [ "$(status "$url/healthz")" = 200 ]
    [ "$(cat body)" = ok ]
    end
}

# The user's own token is not shown, and not passed on; what is written at the
# end does not have it.
test_own_token() {
    serve -np 1 --report r.json --report r.html sh -c "env >env; $GATE"
    one_line j.err
    [ "$(status "$url/?token=$TOKEN")" = 200 ]
    [ "$(status "$url/?token=x$TOKEN")" = 401 ]
    run_now 1
    get /job.json >job.json
    for pid in $(job_pids j hvd-agent); do
        tr '\0' '\n' <"/proc/$pid/environ" >"environ.$pid"
        absent "$TOKEN" "environ.$pid"
    done
    ls environ.*
    end
    grep -q '^HVD_RANK=0$' env
    for file in j.err env job.json r.json r.html; do
        absent "$TOKEN" "$file"
    done
}

test_made_token_is_in_no_report() {
    need_server
    start j "$HVDRUN" --http 0 -np 1 --report r.json --report r.html \
        sh -c "$GATE"
    wait_for "grep -q '^hvdrun: status at ' j.err"
    token=$(sed 's/.*token=//' j.err)
    end
    absent "$token" r.json
    absent "$token" r.html
}

test_refused() {
    serve -np 1 sh -c "$GATE"
    port=${url##*:}
    refused "^hvdrun: error: --http $port: cannot listen on port $port: .*in use" \
        -np 1 --http "$port"
    refused "^hvdrun: error: --http 'localhost:1': it must be PORT, ADDRESS:" \
        -np 1 --http localhost:1
    refused '^hvdrun: error: --http 192.0.2.1:0: cannot listen on port 0: ' \
        -np 1 --http 192.0.2.1:0
    # What fails after the server was opened ends it, too.
    refused '^hvdrun: error: ' -np 1 --http 0 --output-filename /dev/null/x
    export HVD_HTTP_TOKEN=short
    refused '^hvdrun: error: --http 0: HVD_HTTP_TOKEN: the token must have 16 to ' \
        -np 1 --http 0
    end
}

# An hvdrun without the plug-in says so.
test_without_the_plugin() {
    mkdir -p x/bin
    cp "$HVDRUN" "$HVD_AGENT" x/bin
    expect_exit 2 x/bin/hvdrun --http 0 -np 1 touch "$PWD/started"
    check_refusal '^hvdrun: error: --http 0: this hvdrun was built without '
    mkdir -p x/lib/hvd
    echo >x/lib/hvd/status-http.so
    expect_exit 2 x/bin/hvdrun --http 0 -np 1 touch "$PWD/started"
    check_refusal '^hvdrun: error: --http 0: .*status-http.so: file too short'
}

test_other_addresses() {
    serve --http 127.0.0.2:0 -np 1 sh -c "$GATE"
    [[ $url == http://127.0.0.2:* ]] || fail "the address is $url"
    [ "$(get /healthz)" = ok ]
    end
    rm go
    grep -q ' lo$' /proc/net/if_inet6 2>/dev/null || return 0
    serve --http '[::1]:0' -np 1 sh -c "$GATE"
    [[ $url == 'http://[::1]:'* ]] || fail "the address is $url"
    [ "$(get /healthz -g)" = ok ]
    end
}

need_parser() {
    need_server
    $PYTHON -c 'import prometheus_client' 2>/dev/null ||
        skip 'no python3-prometheus-client'
}

# parsed FILE [ASSERTION...]: reads metrics, also by Prometheus' own parser; each
# ASSERTION is Python, for which v(NAME, LABEL=VALUE...) is a value.
parsed() {
    $PYTHON - "$@" <<'END'
import re
import sys
import time

from prometheus_client.parser import text_string_to_metric_families

text = open(sys.argv[1], encoding="utf-8").read()
values, described = {}, None
assert text.endswith("\n")
for line in text[:-1].split("\n"):
    m = re.fullmatch(r"# (HELP|TYPE) (hvdrun_[a-z_]+) (.+)", line)
    if m and m[1] == "HELP":
        assert m[2] not in (name for name, _ in values), line
        described = m[2]
        continue
    if m:
        assert described == m[2] and m[3] in ("counter", "gauge"), line
        assert (m[3] == "counter") == m[2].endswith("_total"), line
        continue
    m = re.fullmatch(
        r'(hvdrun_[a-z_]+)(?:\{((?:[a-z_]+="[^"\\]*",?)+)\})? (\S+)', line)
    assert m and m[1] == described, line
    key = m[1], tuple(sorted(re.findall(r'([a-z_]+)="([^"]*)"', m[2] or "")))
    assert key not in values, line
    values[key] = float(m[3])
theirs = {(s.name, tuple(sorted(s.labels.items()))): s.value
          for f in text_string_to_metric_families(text) for s in f.samples}
assert theirs == values, (theirs, values)


def v(name, **labels):
    return values["hvdrun_" + name, tuple(sorted(labels.items()))]


for assertion in sys.argv[2:]:
    assert eval(f"({assertion})"), (assertion, text)
END
}

test_metrics() {
    need_parser
    serve -np 3 sh -c "\"$PROG/coll\" sum 1000 20 && $GATE"
    run_now 3
    parsed m 'v("ranks", state="waiting") == 0' 'v("deaths_total") == 0' \
        'abs(v("start_time_seconds") - time.time()) < 600'
    get /metrics -D head >m
    grep -qi '^content-type: text/plain; version=0.0.4' head
    end
}

# Numbers of collectives grow while the ranks run.
test_live_numbers() {
    need_parser
    serve -np 2 "$PROG/coll" sum 1000 1000000000
    wait_for "has 'hvdrun_errors_total 0' &&
        grep -q '^hvdrun_operations_total{rank=\"1\"}' m"
    cp m first
    calls() {
        sed -n 's/^hvdrun_operations_total{rank="1"} //p' "$1"
    }
    more() {
        get /metrics >m && [ "$(calls m)" -gt "$(calls first)" ]
    }
    wait_for more
    parsed m 'v("operations_total", rank="0") > 0' \
        'v("bytes_total", rank="0") > 4000 * v("operations_total", rank="0") / 2' \
        'v("waiting_seconds_total", rank="1") >= 0'
    get /job.json >job.json
    python3 -c 'import json
ranks = json.load(open("job.json"))["ranks"]
assert all(r["collectives"]["calls"] > 0 for r in ranks), ranks'
    get / >page
    grep -q '<td>1</td><td>[^<]*</td><td class=.n.>[0-9][0-9]*</td>' page
    kill -TERM "$(cat j.pid)"
    finish j 143
}

# Restarts, deaths and generations of an elastic job.
test_metrics_of_an_elastic_job() {
    need_parser
    # shellcheck disable=SC2016 # the rank expands it
    serve -np 2 --min-np 1 --restart-failed 1 sh -c '
        if [ "$HVD_RANK" = 1 ] && mkdir died 2>/dev/null; then exit 3; fi
        until [ -e go ]; do sleep 0.05; done'
    wait_for "has 'hvdrun_restarts_total 1'"
    parsed m 'v("deaths_total") == 1' 'v("generation") >= 0'
    end
}

# The stream of events ends with the job, with what was reported about it.
test_events_until_the_end() {
    serve -np 2 sh -c "$GATE; exit 3"
    run_now 2
    get /events -N >events &
    curl=$!
    wait_for "grep -q '^data: .*>Running</span>' events"
    end 3
    wait "$curl"
    [ "$(tail -n 3 events)" = "$(printf 'event: end\ndata: ')" ]
    grep -q '^data: .*>Failed</span>' events
    grep -q '^data: .*failed: exit code 3' events
}

test_many_clients() {
    serve -np 1 sh -c "$GATE"
    for i in $(seq 100); do
        get /job.json -o "body.$i" -w '%{http_code}\n' >"code.$i" &
        curls[i]=$!
    done
    wait "${curls[@]}"
    [ "$(cat code.* | sort | uniq -c | tr -d ' ')" = 100200 ] ||
        fail "$(cat code.* | sort | uniq -c)"
    end
}

# As many connections as the server takes, which end all at once, leave it able
# to take others.
test_connections_come_and_go() {
    serve -np 1 sh -c "$GATE"
    for n in 31 32 33 40; do
        python3 -c 'import socket, sys, time
all = [socket.create_connection(("127.0.0.1", int(sys.argv[1])))
       for _ in range(int(sys.argv[2]))]
time.sleep(0.2)
for s in all:
    s.close()' "${url##*:}" $n
        [ "$(get /healthz -m 10)" = ok ] || fail "no answer after $n"
    done
    end
}

# hog PORT: opens more connections than the server takes, which say nothing, too
# little, too much, or never read; creates ./hogs when they are open, and ends
# when ./go is there.
hog() {
    python3 - "$1" "$TOKEN" <<'END'
import os
import socket
import sys
import time

get = b"GET /%%s?token=%s HTTP/1.1\r\nHost: x\r\n\r\n" % sys.argv[2].encode()
said = [b"", b"GET / HT", b"GET /" + b"x" * 100000, get % b"events",
        b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 20000,
        (get % b"job.json") * 500]
socks = []
for i in range(60):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.connect(("127.0.0.1", int(sys.argv[1])))
    s.setblocking(False)
    try:
        s.send(said[i % len(said)])
    except OSError:
        pass
    socks.append(s)
open("hogs", "w").close()
while not os.path.exists("go"):
    time.sleep(0.1)
END
}

# Clients that do not read or write are dropped after a while; until then they
# cost little, and they do not delay the end of the job.
test_slow_clients() {
    serve -np 2 sh -c "$GATE"
    run_now 2
    hog "${url##*:}" &
    hog=$!
    wait_for "[ -e hogs ]"
    [ "$(get /healthz)" = ok ]
    hvdrun=$(cat j.pid)
    [ "$(find "/proc/$hvdrun/fd" | wc -l)" -lt 80 ]
    # user and system time, in hundredths of a second
    ticks=$(awk '{ print $14 + $15 }' "/proc/$hvdrun/stat")
    if ! sanitized; then
        [ "$(rss_kib "$hvdrun")" -lt 100000 ]
        [ "$ticks" -lt 300 ] || fail "hvdrun has used $ticks ticks"
    fi
    before=$(now_ms)
    end
    [ $(($(now_ms) - before)) -lt 15000 ] || fail 'the job ended late'
    wait "$hog"
}

# browse URL EXPRESSION...: opens a page in a browser that has no screen, and
# waits until each expression of JavaScript in turn is true; before the last,
# lets the ranks go.  Fails if the page's console says anything.
browse() {
    mkdir -p home
    HOME=$PWD/home TMPDIR=$PWD/home python3 - "$browser" "$@" <<'END'
import json
import os
import subprocess
import sys
import time

browser, url, *wanted = sys.argv[1:]
ours_in, theirs_out = os.pipe()
theirs_in, ours_out = os.pipe()


def pipes():
    a, b = os.dup(theirs_in), os.dup(theirs_out)
    os.dup2(a, 3)
    os.dup2(b, 4)


child = subprocess.Popen(
    [browser, "--headless", "--no-sandbox", "--disable-gpu",
     "--disable-crash-reporter", "--user-data-dir=" + os.environ["HOME"] + "/p",
     "--remote-debugging-pipe", "about:blank"],
    close_fds=False, preexec_fn=pipes, stderr=open("browser.log", "w"))
os.close(theirs_in)
os.close(theirs_out)
stream, number, said = os.fdopen(ours_in, "rb"), 0, []


def receive():
    data = bytearray()
    while (c := stream.read(1)) != b"\0":
        assert c, "the browser has ended"
        data += c
    m = json.loads(data)
    if m.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown",
                           "Runtime.consoleAPICalled"):
        said.append(m["params"])
    return m


def call(method, session=None, **params):
    global number
    number += 1
    m = {"id": number, "method": method, "params": params}
    if session:
        m["sessionId"] = session
    os.write(ours_out, json.dumps(m).encode() + b"\0")
    while (m := receive()).get("id") != number:
        pass
    assert "error" not in m, m
    return m["result"]


try:
    target = call("Target.createTarget", url="about:blank")["targetId"]
    page = call("Target.attachToTarget", targetId=target,
                flatten=True)["sessionId"]
    for domain in "Log", "Runtime", "Page":
        call(domain + ".enable", page)
    call("Page.navigate", page, url=url)
    for i, expression in enumerate(wanted):
        if i == len(wanted) - 1:
            open("go", "w").close()
        limit = time.monotonic() + 60
        while call("Runtime.evaluate", page,
                   expression=expression)["result"].get("value") is not True:
            if time.monotonic() > limit:
                print(call("Runtime.evaluate", page, expression="document."
                           "documentElement.outerHTML")["result"])
                sys.exit("not true: " + expression)
            time.sleep(0.1)
    assert not said, said
    call("Browser.close")
finally:
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
END
}

# A real browser shows the page, and what changes; what a rank says is shown as
# text.
test_browser() {
    browser=$(command -v chromium || command -v chromium-browser ||
        command -v google-chrome) || skip 'no Chromium'
    # shellcheck disable=SC2016 # the ranks expand it
    serve -np 2 --grace 1 sh -c '
        until [ -e go ]; do sleep 0.05; done
        [ "$HVD_RANK" = 1 ] || exec sleep 1000
        echo "</pre><script>console.log(1)</script><img src=x>" >&2
        exit 3' "--><img src=x onerror='console.log(1)'>"
    run_now 2
    browse "$url/?token=$TOKEN" \
        'document.title.startsWith("Running: ")' \
        'document.querySelectorAll("rect.r-alive").length == 2' \
        '!(document.querySelector("details").open = false)' \
        '!!(document.getElementById("note").textContent = "x")' \
        'document.getElementById("note").textContent == "" &&
            !document.querySelector("details").open' \
        'document.querySelector(".state").textContent == "Failed" &&
            document.getElementById("note").textContent ==
                "The job has ended." &&
            document.querySelectorAll("rect.r-fail").length == 1 &&
            document.querySelectorAll("img").length == 0 &&
            document.body.textContent.includes("</script><img src=x>")'
    finish j 3
}

# --status redraws a line on a terminal, and removes it at the end.
test_status_line() {
    expect_exit 143 "$PROG/pty" 'expect:2 ranks on 1 host, 0:0' \
        'expect:\r' 'expect: operations/s' "touch:$PWD/seen" wait -- \
        "$HVDRUN" -np 2 --status sh -c "\"$PROG/coll\" sum 1000 1000000000 &
            until [ -e seen ]; do sleep 0.05; done; kill \$!
            [ \$HVD_RANK = 0 ] && kill -TERM \$\$; sleep 1000"
}

test_status_line_needs_a_terminal() {
    expect_exit 0 "$HVDRUN" -np 2 --status "$PROG/coll" sum 1000 20
    [ ! -s err ]
}
