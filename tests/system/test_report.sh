# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# hvdrun --report: however a job ends, its files say what has happened, are
# valid, and are complete or not there.

REPORTS=(--report r.json --report r.xml --report r.html)

# check ASSERTION...: checks the files r.json, r.xml and r.html.  Each ASSERTION
# is Python, for which j is the JSON, x the test suite, and page the text of the
# HTML file without its tags.
check() {
    python3 - "$@" <<'END'
import html.parser
import json
import sys
import xml.etree.ElementTree

VOID = {"meta"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.names, self.texts = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs), attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data):
        self.texts.append(data)


def count(suite, tag):
    return sum(1 for case in suite.iter("testcase") if case.find(tag) is not None)


j = json.load(open("r.json", encoding="utf-8"))
x = xml.etree.ElementTree.parse("r.xml").getroot().find("testsuite")
parser = Page()
parser.feed(open("r.html", encoding="utf-8").read())
parser.close()
page = "".join(parser.texts)
assert not parser.open, parser.open
assert parser.names <= set(
    "html head meta title style body main header section footer div span h1 h2 "
    "p code pre b i svg rect line text details summary table thead tbody tr th "
    "td".split()), parser.names
assert j["format"] == 1
assert 0 <= j["duration"] == j["phases"]["ended"]
assert int(x.get("tests")) == len(x.findall("testcase"))
assert int(x.get("failures")) == count(x, "failure")
assert int(x.get("errors")) == count(x, "error")
assert int(x.get("skipped")) == count(x, "skipped")
assert (count(x, "failure") + count(x, "error") > 0) == (j["exit_code"] != 0)
for rank in j["ranks"]:
    last = 0
    for run in rank["runs"]:
        assert last <= run["start"], run
        last = run["end"] or run["start"]
        assert run["start"] <= last <= j["duration"], run
for assertion in sys.argv[1:]:
    assert eval(f"({assertion})"), (assertion, json.dumps(j, indent=1), page)
END
    [ -z "$(find . -name '.hvd-report*')" ] || fail "a temporary file is left"
}

test_good_job() {
    expect_exit 0 "$HVDRUN" -np 3 "${REPORTS[@]}" "$PROG/coll" sum 1000 20
    [ ! -s err ] # no table of statistics
    check 'j["exit_code"] == 0 and j["cause"] is None and j["culprit"] is None' \
        'j["command"][1:] == ["sum", "1000", "20"]' \
        'j["phases"]["connected"] <= j["phases"]["started"]' \
        'j["phases"]["started"] <= j["phases"]["ending"]' \
        '[r["rank"] for r in j["ranks"]] == [0, 1, 2]' \
        'all(r["runs"][0]["exit_code"] == 0 for r in j["ranks"])' \
        'all(r["runs"][0]["pid"] > 0 for r in j["ranks"])' \
        'all(r["collectives"]["calls"] >= 20 for r in j["ranks"])' \
        'j["statistics"]["ranks"] == 3' \
        'len(j["hosts"]) == 1 and j["hosts"][0]["local"]' \
        'j["hosts"][0]["agent"] == j["hvdrun"]' \
        'x.get("tests") == "3"' \
        '"Succeeded" in page and "Collectives" in page'
    expect_exit 0 "$HVDRUN" -np 2 "${REPORTS[@]}" -x HVD_STATS=0 \
        "$PROG/coll" sum 1000 20
    check 'len(j["ranks"]) == 2 and j["statistics"] is None'
}

test_config_file() {
    echo 'report: [r.json, r.xml]' >c.yaml
    expect_exit 0 "$HVDRUN" --config-file c.yaml -np 1 --report r.html true
    check 'j["command"] == ["true"]'
}

test_failed_rank() {
    # shellcheck disable=SC2016 # the ranks expand it
    expect_exit 3 "$HVDRUN" -np 3 "${REPORTS[@]}" --grace 1 sh -c '
        [ "$HVD_RANK" = 1 ] || exec sleep 1000
        echo "Traceback (most recent call last):" >&2
        echo "  File \"a.py\", line 1, in <module>" >&2
        echo "ValueError: 1 < 2 && \"x\"" >&2
        exit 3'
    check 'j["exit_code"] == 3 and j["culprit"]["rank"] == 1' \
        'j["culprit"]["exit_code"] == 3' \
        'j["culprit"]["last_lines"][2] == "ValueError: 1 < 2 && \"x\""' \
        'j["cause"].startswith("rank 1 on host ")' \
        'j["cause"].endswith("failed: exit code 3")' \
        '[r["runs"][0]["ended_by"] for r in j["ranks"]] ==
            ["hvdrun", "itself", "hvdrun"]' \
        'j["ranks"][0]["runs"][0]["signal"] == 15' \
        'x.get("failures") == "1" and x.get("skipped") == "2"' \
        '"ValueError: 1 < 2" in x.find(".//failure").text' \
        '"Why it failed" in page and "ValueError: 1 < 2 && \"x\"" in page'
}

# What a rank writes is shown as text, and only as that.
test_hostile_output() {
    # shellcheck disable=SC2016 # the ranks expand it
    expect_exit 1 "$HVDRUN" -np 1 "${REPORTS[@]}" sh -c '
        printf "</pre><script>alert(1)</script>]]>&#x41;&amp;\001\033[31m" >&2
        printf "\377\300\257\355\240\200\357\277\276 end\n" >&2
        exit 1' "--><img src=x onerror='alert(1)'>"
    check '"<script>alert(1)</script>]]>&#x41;&amp;?" in page' \
        '"<script>" in x.find(".//failure").text' \
        'j["culprit"]["last_lines"][0].endswith(" end")' \
        "j['command'][3].startswith('--><img')"
}

test_unknown_program() {
    expect_exit 127 "$HVDRUN" -np 2 "${REPORTS[@]}" ./no-such-program
    check 'j["exit_code"] == 127 and "no-such-program" in j["cause"]' \
        '"no-such-program" in j["hosts"][0]["trouble"]' \
        'all(r["runs"] == [] for r in j["ranks"]) and len(j["ranks"]) == 2' \
        'x.get("errors") == "1" and x.get("skipped") == "2"' \
        '"no-such-program" in x.find(".//error").get("message")'
}

test_unreachable_host() {
    expect_exit 125 "$HVDRUN" -H good,bad --rsh \
        "sh -c 'test \$0 = good || { echo no way to \$0 >&2; exit 5; }
                exec sh' {host}" "${REPORTS[@]}" true
    check '[h["name"] for h in j["hosts"]] == ["good", "bad"]' \
        'j["hosts"][1]["trouble"] and j["hosts"][1]["reached"] is None' \
        '"bad" in j["cause"] and j["phases"]["started"] is None' \
        'x.get("errors") == "1"' \
        '"host not reached" in page'
}

test_interrupted() {
    local signal code
    for signal in INT:130 TERM:143; do
        code=${signal#*:} signal=${signal%:*}
        start job "$HVDRUN" -np 2 "${REPORTS[@]}" --no-tag-output \
            sh -c 'echo runs; exec sleep 1000'
        wait_for '[ "$(grep -c runs job.out)" = 2 ]'
        kill -"$signal" "$pid"
        finish job "$code"
        check "j['exit_code'] == $code and j['culprit'] is None" \
            "j['cause'] == 'SIG$signal ended the job'" \
            'all(r["runs"][0]["ended_by"] == "hvdrun" for r in j["ranks"])' \
            'x.get("errors") == "1"' \
            "any('SIG$signal' in e['text'] for e in j['events'])" \
            '"Interrupted" in page'
        rm r.json r.xml r.html
    done
}

test_time_limit() {
    expect_exit 124 "$HVDRUN" -np 1 "${REPORTS[@]}" --timeout 1 sleep 1000
    check '"--timeout" in j["cause"] and j["culprit"] is None' \
        '"Timed out" in page'
}

# A job that goes on: its restarts and deaths are in the report, and the test
# cases pass.
test_elastic_job() {
    start job "$HVDRUN" -np 3 --min-np 1 --restart-failed 1 --no-tag-output \
        "${REPORTS[@]}" "$PROG/elastic_steps" 1000:2 100 fp
    wait_for 'grep -q "^working" job.out'
    kill -KILL "$(job_pids job elastic_steps | sort -n | sed -n 2p)"
    finish job 0
    check 'sum(len(r["runs"]) for r in j["ranks"]) >= 3' \
        '[1 for r in j["ranks"] for u in r["runs"] if u["signal"] == 9]' \
        'any("SIGKILL" in e["text"] for e in j["events"])' \
        'any("starts again" in e["text"] for e in j["events"])' \
        'j["culprit"] is None and j["cause"] is None' \
        'x.get("failures") == "0"'
}

# An elastic job has gone on without a rank, and is then interrupted: that rank is
# not why it failed.
test_interrupted_after_a_death() {
    start job "$HVDRUN" -np 3 --min-np 1 --grace 1 --no-tag-output \
        "${REPORTS[@]}" "$PROG/elastic_steps" 1000000 100 fp
    wait_for 'grep -q "^working" job.out'
    kill -KILL "$(job_pids job elastic_steps | sort -n | sed -n 2p)"
    wait_for 'grep -q "3 -> 2 ranks" job.err'
    kill -INT "$pid"
    finish job 130
    check "j['culprit'] is None and j['cause'] == 'SIGINT ended the job'" \
        'x.get("failures") == "0" and x.get("errors") == "1"'
}

# Ranks of a later generation are blamed by the numbers that hvdrun gave them.
test_late_after_a_death() {
    start job "$HVDRUN" -np 3 --min-np 1 --no-tag-output "${REPORTS[@]}" \
        "$PROG/elastic_steps" 600:2 100 fw
    wait_for 'grep -q "^working" job.out'
    kill -KILL "$(job_pids job elastic_steps | while read -r p; do
        ! grep -szqx HVD_RANK=0 "/proc/$p/environ" || echo "$p"
    done)"
    finish job 0
    check 'j["late"][0]["rank"] == 2' \
        'j["ranks"][1]["waited_for"] < j["ranks"][2]["waited_for"]'
}

test_refused() {
    refused "^hvdrun: error: --report 'r.txt': the name must end in " \
        -np 1 --report r.json --report r.txt
    refused '^hvdrun: error: --report missing/r.json: .*missing/: No such file' \
        -np 1 --report missing/r.json
    echo old >t.json
    refused '^hvdrun: error: --report t.json: this is the file of the timeline' \
        -np 1 --report t.json --timeline-filename t.json
    refused '^hvdrun: error: --report missing/r.json: ' \
        -np 1 --report missing/r.json --timeline-filename t.json
    [ "$(cat t.json)" = old ]
    rm t.json
    mkdir r.xml
    refused '^hvdrun: error: --report r.xml: r.xml is not a regular file' \
        -np 1 --report r.xml
    [ "$(ls)" = "$(printf 'err\nout\nr.xml')" ] || fail "files: $(ls -a)"
}

# An old report is replaced at once, or stays: not even a full disk leaves half
# of one, and it does not change the exit code.
test_full_disk() {
    echo old >r.json
    expect_exit 7 bash -c 'ulimit -f 1; exec "$@"' - "$HVDRUN" -np 2 \
        --report r.json sh -c 'exit 7'
    grep -q '^hvdrun: report r.json was not written: write: File too' err
    [ "$(cat r.json)" = old ]
    [ "$(ls -A)" = "$(printf 'err\nout\nr.json')" ] || fail "files: $(ls -A)"
    expect_exit 7 "$HVDRUN" -np 2 "${REPORTS[@]}" sh -c 'exit 7'
    check 'j["exit_code"] == 7'
}

# browse ARG...: opens r.html in a browser that has no screen; what the page's
# console says is in ./console.
browse() {
    mkdir -p home
    HOME=$PWD/home TMPDIR=$PWD/home timeout 120 "$browser" --headless \
        --no-sandbox --disable-gpu --hide-scrollbars --disable-crash-reporter \
        --user-data-dir="$PWD/home/profile" --window-size=1200,1600 \
        --blink-settings=preferredColorScheme=1 --enable-logging=stderr \
        "$@" "file://$PWD/r.html" 2>log
    grep CONSOLE log >console || :
}

# pixels COLOUR...: fails unless the picture r.png has enough pixels of each
# colour, RRGGBB.
pixels() {
    python3 - "$@" <<'END'
import struct
import sys
import zlib

data = open("r.png", "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n"
chunks, at = {}, 8
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    chunks[kind] = chunks.get(kind, b"") + data[at + 8:at + 8 + size]
    at += size + 12
width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
assert depth == 8 and colour in (2, 6)
step = 3 if colour == 2 else 4
raw, row, seen = zlib.decompress(chunks[b"IDAT"]), bytearray(width * step), {}
for y in range(height):
    start = y * (width * step + 1)
    kind, line = raw[start], bytearray(raw[start + 1:start + 1 + width * step])
    for i in range(len(line)):
        left = line[i - step] if i >= step else 0
        above, corner = row[i], row[i - step] if i >= step else 0
        if kind == 1:
            line[i] = (line[i] + left) & 255
        elif kind == 2:
            line[i] = (line[i] + above) & 255
        elif kind == 3:
            line[i] = (line[i] + (left + above) // 2) & 255
        elif kind == 4:
            p = left + above - corner
            near = min((abs(p - left), 0, left), (abs(p - above), 1, above),
                       (abs(p - corner), 2, corner))
            line[i] = (line[i] + near[2]) & 255
    row = line
    for i in range(0, len(line), step):
        pixel = bytes(line[i:i + 3]).hex()
        seen[pixel] = seen.get(pixel, 0) + 1
for pixel in sys.argv[1:]:
    assert seen.get(pixel, 0) > 2000, (pixel, seen.get(pixel))
END
}

# A real browser shows the page, and finds nothing wrong with it: the bars of
# the rank that has failed, of those that hvdrun has ended and of the
# connections are there as coloured areas.
test_browser() {
    browser=$(command -v chromium || command -v chromium-browser ||
        command -v google-chrome) || skip 'no Chromium'
    # shellcheck disable=SC2016 # the ranks expand it
    expect_exit 3 "$HVDRUN" -np 3 "${REPORTS[@]}" --grace 1 sh -c '
        [ "$HVD_RANK" = 1 ] || exec sleep 1000
        sleep 1 # as the picture must show
        echo "</pre><script>console.log(1)</script><img src=x>" >&2
        exit 3'
    browse --screenshot="$PWD/r.png"
    [ ! -s console ] || fail "the console says: $(cat console)"
    pixels ffffff cf3339 a9b4c0
    browse --dump-dom >dom
    [ "$(grep -o "<rect class=.r-end" dom | wc -l)" = 2 ]
    [ "$(grep -o "<rect class=.r-fail" dom | wc -l)" = 1 ]
    absent '<script' dom
    absent '<img' dom
}
