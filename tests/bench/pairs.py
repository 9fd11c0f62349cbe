# SPDX-License-Identifier: Apache-2.0
"""What the measurements beside peers have in common.

A job is a run of hvd-bench, of a peer (mpi_peer, gloo_peer) or of the probe;
each prints JSON objects, one a line.  Jobs of libhvd and of a peer take turns,
so that both see the same machine.  BUILD names the build folder.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

BUILD = os.environ.get("BUILD", "build")
LIMIT_S = 300

MPI = {
    "openmpi": ("mpirun.openmpi", ["--allow-run-as-root", "--oversubscribe",
                                   "--bind-to", "none"], "Open MPI"),
    "mpich": ("mpiexec.hydra", [], "MPICH"),
}
PEERS = {"openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo"}


def die(text):
    sys.exit(f"{sys.argv[0]}: {text}")


def built(name):
    return os.path.join(BUILD, "bench", name)


def missing(peer):
    """Returns a text on what a peer lacks to run, or None."""
    program = built("gloo_peer" if peer == "gloo" else "mpi_peer." + peer)
    if not os.access(program, os.X_OK):
        return f"{program} was not built"
    if peer in MPI and not shutil.which(MPI[peer][0]):
        return f"{MPI[peer][0]} is missing"
    return None


def run_job(argv):
    """Returns the objects that a job prints; exits if the job fails."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, timeout=LIMIT_S,
                              capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        die(f"{' '.join(argv)}: not done after {LIMIT_S} s")
    if done.returncode != 0:
        die(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line]


def hvdrun(ranks):
    return [os.path.join(BUILD, "bin", "hvdrun"), "-np", str(ranks),
            "--no-tag-output"]


def bench(ranks, *args, mpi=None):
    """Runs hvd-bench, by the launcher of `mpi` or by hvdrun."""
    launcher = hvdrun(ranks)
    if mpi:
        launcher = [MPI[mpi][0]] + MPI[mpi][1] + ["-np", str(ranks)]
    return run_job(launcher +
                   [os.path.join(BUILD, "bin", "hvd-bench"), "--pin",
                    "--json"] + [str(arg) for arg in args])


def peer(name, ranks, collective, seconds, sizes):
    """Runs a collective of a peer at these sizes."""
    args = [str(seconds)] + [str(size) for size in sizes]
    if name == "gloo":
        with tempfile.TemporaryDirectory(prefix="hvd-bench-") as store:
            return run_job(hvdrun(ranks) + [built("gloo_peer"), store] + args)
    launcher, flags, _ = MPI[name]
    return run_job([launcher] + flags +
                   ["-np", str(ranks), built("mpi_peer." + name), collective] +
                   args)


def probe(*args):
    return run_job([built("machine_probe")] + [str(arg) for arg in args])[0]


def times(lines, which="median_us"):
    """Returns the time for each size: of several calls, the best."""
    found = {}
    for line in lines:
        if which in line:
            us_now = line[which]
            found[line["bytes"]] = min(us_now,
                                       found.get(line["bytes"], us_now))
    return found


def version(lines):
    return next(line["version"] for line in lines if "version" in line)


def quartiles(values):
    if len(values) == 1:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def human(size):
    for unit in (" B", " KiB", " MiB"):
        if size < 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size} GiB"


def us(value):
    if value >= 10000:
        return f"{value / 1000:.1f} ms"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"
