# SPDX-License-Identifier: Apache-2.0
"""Pods that are folders PODS/NAME, for api_server.py and kubectl.

Files in a pod's folder that make it fail:

deleted     it is about to go
phase       what `kubectl get` would show, if it is not Running
creating    its container does not run yet
get_delay   seconds until the server answers for this pod
exec_delay  seconds until an exec begins
cut         streams to it end now, with no closing handshake
freeze      streams to it carry nothing while this file exists
"""
import os
import subprocess

PODS = "pods"


def path(name, *file):
    return os.path.join(PODS, os.path.basename(name), *file)


def names():
    return sorted(os.listdir(PODS))


def exists(name):
    return os.path.isdir(path(name))


def has(name, file):
    return os.path.exists(path(name, file))


def read(name, file):
    with open(path(name, file), encoding="utf-8") as data:
        return data.read().strip()


def number(name, file):
    return float(read(name, file))


def phase(name):
    return read(name, "phase") if has(name, "phase") else "Running"


def start(name, command):
    """Starts a command as a container runtime does: in a session of its own,
    with the environment of the container and none of the caller's."""
    home = path(name, "home")
    os.makedirs(home, exist_ok=True)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": os.path.abspath(home),
        "HOSTNAME": name,
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    }
    for key in ("HVD_TEST_TOKEN", "HVD_TEST_JOB", "TMPDIR"):
        if key in os.environ:
            env[key] = os.environ[key]
    return subprocess.Popen(
        command,
        bufsize=0,
        env=env,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def exit_code(status):
    return 128 - status if status < 0 else status
