#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An API server with pods that are folders:  api_server.py PODS PORTFILE

Serves what `kubectl exec` asks for, so that the real kubectl can be run where
there is no cluster: discovery, a pod, and its exec as a WebSocket with the
protocol v5.channel.k8s.io.  The command of an exec runs on this machine, as a
session of its own, with the environment of pod.start.

The port is written to PORTFILE.  A pod is a folder PODS/NAME; pod.py says which
files in it make it fail, and how.
"""
import base64
import hashlib
import http.server
import json
import os
import select
import socket
import struct
import sys
import threading
import time
import urllib.parse

import pod

STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT_MAX = 1 << 20

DISCOVERY = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {
                "name": "pods",
                "singularName": "",
                "namespaced": True,
                "kind": "Pod",
                "verbs": ["get", "list"],
                "shortNames": ["po"],
            }
        ],
    },
}


def status(code, reason, message):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def describe(name):
    metadata = {"name": name, "namespace": "default"}
    if pod.has(name, "deleted"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": pod.phase(name)},
    }


def read_exactly(conn, count):
    data = b""
    while len(data) < count:
        more = conn.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def read_frame(conn):
    """Returns the opcode and the payload of a client's frame."""
    first, second = read_exactly(conn, 2)
    length = second & 127
    if length == 126:
        (length,) = struct.unpack(">H", read_exactly(conn, 2))
    elif length == 127:
        (length,) = struct.unpack(">Q", read_exactly(conn, 8))
    if length > TEXT_MAX:
        raise EOFError
    mask = read_exactly(conn, 4)
    data = read_exactly(conn, length)
    keys = (mask * (length // 4 + 1))[:length]
    whole = int.from_bytes(data, "big") ^ int.from_bytes(keys, "big")
    return first & 15, whole.to_bytes(length, "big")


class Stream:
    """One exec: a WebSocket and the process in the pod."""

    def __init__(self, conn, name, process):
        self.conn = conn
        self.name = name
        self.process = process
        self.lock = threading.Lock()

    def frame(self, opcode, data):
        if len(data) < 126:
            head = bytes([128 | opcode, len(data)])
        else:
            head = struct.pack(">BBQ", 128 | opcode, 127, len(data))
        with self.lock:
            self.conn.sendall(head + data)

    def send(self, channel, data):
        self.frame(2, bytes([channel]) + data)

    def read_client(self):
        """Passes stdin on until the client closes it or goes away."""
        stdin = self.process.stdin
        try:
            while True:
                opcode, data = read_frame(self.conn)
                if opcode == 8:
                    break
                if opcode == 9:
                    self.frame(10, data)
                elif data[:1] == bytes([STDIN]):
                    stdin.write(data[1:])
                elif data == bytes([CLOSE, STDIN]):
                    stdin.close()
        except (EOFError, OSError, ValueError):
            pass
        if not pod.has(self.name, "freeze"):
            try:
                stdin.close()
            except OSError:
                pass

    def broken(self):
        """Obeys a file `cut` or `freeze`."""
        if pod.has(self.name, "cut"):
            self.conn.shutdown(socket.SHUT_RDWR)
            return True
        while pod.has(self.name, "freeze"):
            time.sleep(0.05)
        return False

    def write_client(self):
        """Sends the process's output; returns False if the stream broke."""
        channels = {
            self.process.stdout.fileno(): STDOUT,
            self.process.stderr.fileno(): STDERR,
        }
        while channels:
            ready = select.select(list(channels), [], [], 0.05)[0]
            if self.broken():
                return False
            for fd in ready:
                data = os.read(fd, 1 << 16)
                if data:
                    self.send(channels[fd], data)
                else:
                    del channels[fd]
        return True

    def end(self):
        code = pod.exit_code(self.process.wait())
        if code == 0:
            done = {"metadata": {}, "status": "Success"}
        else:
            done = status(
                500,
                "NonZeroExitCode",
                "command terminated with non-zero exit code: "
                f"command terminated with exit code {code}",
            )
            done["details"] = {
                "causes": [{"reason": "ExitCode", "message": str(code)}]
            }
            del done["code"]
        self.send(ERROR, json.dumps(done).encode())
        self.frame(8, struct.pack(">H", 1000))

    def run(self):
        reader = threading.Thread(target=self.read_client, daemon=True)
        reader.start()
        try:
            if self.write_client():
                self.end()
        except OSError:
            pass
        self.process.wait()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def upgrade(self):
        key = self.headers["Sec-WebSocket-Key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.send_header("Sec-WebSocket-Protocol", "v5.channel.k8s.io")
        self.end_headers()
        self.wfile.flush()

    def list(self, query):
        """Answers with the pods of a phase; deleted ones have a file `deleted`."""
        wanted = query.get("fieldSelector", ["="])[0].partition("=")[2]
        pods = [describe(name) for name in pod.names()]
        if wanted:
            pods = [p for p in pods if p["status"]["phase"] == wanted]
        self.answer(200, {"kind": "PodList", "apiVersion": "v1", "items": pods})

    def exec(self, name, query):
        if pod.phase(name) == "Pending":
            text = f"pod {name} does not have a host assigned"
            return self.answer(400, status(400, "BadRequest", text))
        if pod.has(name, "creating"):
            text = 'unable to upgrade connection: container not found ("c")'
            return self.answer(500, status(500, "InternalError", text))
        if pod.has(name, "exec_delay"):
            time.sleep(pod.number(name, "exec_delay"))
        self.close_connection = True
        process = pod.start(name, query["command"])
        self.upgrade()
        Stream(self.connection, name, process).run()
        return None

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        words = url.path.strip("/").split("/")
        if url.path in DISCOVERY:
            return self.answer(200, DISCOVERY[url.path])
        if words[:2] != ["api", "v1"] or words[4:5] != ["pods"]:
            return self.answer(404, status(404, "NotFound", url.path))
        query = urllib.parse.parse_qs(url.query)
        if not words[5:]:
            return self.list(query)
        name = words[5]
        if pod.has(name, "get_delay"):
            time.sleep(pod.number(name, "get_delay"))
        if not pod.exists(name):
            text = f'pods "{name}" not found'
            return self.answer(404, status(404, "NotFound", text))
        if words[6:] == ["exec"]:
            return self.exec(name, query)
        return self.answer(200, describe(name))

    do_POST = do_GET


def main():
    pod.PODS, portfile = sys.argv[1:]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with open(portfile + ".new", "w", encoding="ascii") as out:
        out.write(str(server.server_port))
    os.rename(portfile + ".new", portfile)
    server.serve_forever()


main()
