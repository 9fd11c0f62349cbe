#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks manifests:  manifests.py FOLDER MAN_PAGE HVDRUN [FILE]

Prints a line for each thing that is wrong in the folder, or in one FILE of it,
and exits with 1 if there is one.  It finds what an API server would refuse, and
what would not work: fields, names, selectors, volumes, exit codes that MAN_PAGE
does not have, command lines that HVDRUN does not accept, too little time to end.
It knows only the fields that the manifests use; add a new one to FIELDS.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

import yaml

POD_TEMPLATE = {"metadata": {"labels": dict}, "spec": "pod"}
JOB_SPEC = {
    "backoffLimit": int,
    "completionMode": str,
    "parallelism": int,
    "completions": int,
    "podFailurePolicy": {
        "rules": [
            {
                "action": ("Ignore", "FailJob", "Count"),
                "onPodConditions": [{"type": ("DisruptionTarget",)}],
                "onExitCodes": {
                    "containerName": str,
                    "operator": ("In",),
                    "values": [int],
                },
            }
        ]
    },
    "template": POD_TEMPLATE,
}
REPLICAS = {
    "replicas": int,
    "restartPolicy": ("Never", "OnFailure"),
    "template": POD_TEMPLATE,
}
CONTAINER = {
    "name": str,
    "image": str,
    "command": [str],
    "ports": [{"containerPort": int}],
    "readinessProbe": {"tcpSocket": {"port": int}, "periodSeconds": int},
    "resources": {"requests": dict, "limits": dict},
    "securityContext": {
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
        "capabilities": {"drop": [str]},
    },
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}],
}
POD = {
    "restartPolicy": ("Never", "OnFailure", "Always"),
    "serviceAccountName": str,
    "automountServiceAccountToken": bool,
    "terminationGracePeriodSeconds": int,
    "securityContext": {
        "runAsNonRoot": bool,
        "runAsUser": int,
        "runAsGroup": int,
        "fsGroup": int,
        "seccompProfile": {"type": ("RuntimeDefault",)},
    },
    "initContainers": [CONTAINER],
    "containers": [CONTAINER],
    "volumes": [
        {
            "name": str,
            "emptyDir": {"medium": ("Memory",), "sizeLimit": str},
            "secret": {"secretName": str, "defaultMode": int},
        }
    ],
}
FIELDS = {
    "v1 Service": {"spec": {"clusterIP": ("None",), "selector": dict}},
    "v1 ServiceAccount": {},
    "rbac.authorization.k8s.io/v1 Role": {
        "rules": [{"apiGroups": [str], "resources": [str], "verbs": [str]}]
    },
    "rbac.authorization.k8s.io/v1 RoleBinding": {
        "roleRef": {"apiGroup": str, "kind": str, "name": str},
        "subjects": [{"kind": str, "name": str}],
    },
    "apps/v1 StatefulSet": {
        "spec": {
            "serviceName": str,
            "replicas": int,
            "podManagementPolicy": ("Parallel", "OrderedReady"),
            "selector": {"matchLabels": dict},
            "template": POD_TEMPLATE,
        }
    },
    "batch/v1 Job": {"spec": JOB_SPEC},
    "jobset.x-k8s.io/v1alpha2 JobSet": {
        "spec": {
            "successPolicy": {
                "operator": ("All", "Any"),
                "targetReplicatedJobs": [str],
            },
            "failurePolicy": {
                "maxRestarts": int,
                "rules": [
                    {
                        "name": str,
                        "action": ("FailJobSet", "RestartJobSet"),
                        "onJobFailureReasons": [str],
                        "targetReplicatedJobs": [str],
                    }
                ],
            },
            "network": {"enableDNSHostnames": bool, "subdomain": str},
            "replicatedJobs": [
                {
                    "name": str,
                    "replicas": int,
                    "dependsOn": [
                        {"name": str, "status": ("Ready", "Complete")}
                    ],
                    "template": {"spec": JOB_SPEC},
                }
            ],
        }
    },
    "kubeflow.org/v2beta1 MPIJob": {
        "spec": {
            "slotsPerWorker": int,
            "sshAuthMountPath": str,
            "launcherCreationPolicy": ("AtStartup", "WaitForWorkersReady"),
            "runPolicy": {
                "cleanPodPolicy": ("None", "Running", "All"),
                "backoffLimit": int,
            },
            "mpiReplicaSpecs": {"Launcher": REPLICAS, "Worker": REPLICAS},
        }
    },
}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
WRONG_USE = {2, 126, 127}  # exit codes that another attempt will not change
STOPPED = 75
KUBECTL = "#!/bin/sh\necho train-worker-0:4\necho train-worker-1:4\n"


class Manifest:
    """One object, and what is wrong with it."""

    def __init__(self, file, body, codes):
        self.file = file
        self.codes = codes
        self.body = body
        self.kind = str(body.get("kind"))
        self.spec = body.get("spec") or {}
        self.name = body["metadata"]["name"]
        self.faults = []

    def fault(self, text):
        self.faults.append(f"{self.file}: {self.kind} {self.name}: {text}")

    # ---- Fields ----

    def check_fields(self):
        kind = f"{self.body.get('apiVersion')} {self.kind}"
        if kind not in FIELDS:
            self.fault(f"unknown {kind}")
            return
        rest = dict(self.body)
        for key in ("apiVersion", "kind"):
            rest.pop(key)
        self.match(rest.pop("metadata"), {"name": str}, "metadata")
        self.match(rest, FIELDS[kind], "")

    def match(self, value, rule, where):
        if rule == "pod":
            rule = POD
        if isinstance(rule, dict):
            if not isinstance(value, dict):
                self.fault(f"{where} is not a mapping")
                return
            for key, inner in value.items():
                at = f"{where}.{key}".lstrip(".")
                if key in rule:
                    self.match(inner, rule[key], at)
                else:
                    self.fault(f"unknown field {at}")
        elif isinstance(rule, list):
            if not isinstance(value, list) or not value:
                self.fault(f"{where} is not a list")
                return
            for i, item in enumerate(value):
                self.match(item, rule[0], f"{where}[{i}]")
        elif isinstance(rule, tuple):
            if value not in rule:
                self.fault(f"{where} is {value!r}, not one of {rule}")
        elif not isinstance(value, rule) or (
            rule is int and isinstance(value, bool)
        ):
            self.fault(f"{where} is {value!r}, no {rule.__name__}")

    # ---- Pods ----

    def jobs(self):
        """Yields the name and spec of each Job that comes of this object."""
        if self.kind == "Job":
            yield self.name, self.spec
        elif self.kind == "JobSet":
            for job in self.spec["replicatedJobs"]:
                yield job["name"], job["template"]["spec"]
        elif self.kind == "MPIJob":
            for name, replica in self.spec["mpiReplicaSpecs"].items():
                yield name, replica
        elif self.kind == "StatefulSet":
            yield self.name, self.spec

    def check_pods(self):
        for name, job in self.jobs():
            pod = job["template"]["spec"]
            containers = pod.get("initContainers", []) + pod["containers"]
            self.check_security(name, pod, containers)
            self.check_volumes(name, pod, containers)
            self.check_selector(job)
            self.check_restart(name, job, pod)
            for container in containers:
                self.check_container(name, container)

    def check_security(self, name, pod, containers):
        context = pod.get("securityContext", {})
        if not context.get("runAsNonRoot") or "seccompProfile" not in context:
            self.fault(f"{name}: the pod may run as root, or without seccomp")
        for container in containers:
            context = container.get("securityContext", {})
            if (
                context.get("allowPrivilegeEscalation") is not False
                or context.get("capabilities", {}).get("drop") != ["ALL"]
                or not context.get("readOnlyRootFilesystem")
            ):
                self.fault(f"{container['name']}: more rights than needed")

    def check_volumes(self, name, pod, containers):
        volumes = [volume["name"] for volume in pod.get("volumes", [])]
        mounted = []
        for container in containers:
            mounts = container.get("volumeMounts", [])
            mounted += [mount["name"] for mount in mounts]
            paths = [mount["mountPath"] for mount in mounts]
            if len(paths) != len(set(paths)):
                self.fault(f"{container['name']}: mounts twice at a path")
        for volume in set(mounted) - set(volumes):
            self.fault(f"{name}: there is no volume {volume}")
        for volume in set(volumes) - set(mounted):
            self.fault(f"{name}: volume {volume} is not used")
        for volume in pod.get("volumes", []):
            if len(volume) != 2:
                self.fault(f"{name}: volume {volume['name']} is not one thing")

    def check_container(self, name, container):
        image = container["image"]
        if not re.fullmatch(r"[a-z0-9./-]+:[0-9][0-9.]*", image):
            self.fault(f"{name}: {image} is no image with a version")
        resources = container.get("resources", {})
        requests = resources.get("requests", {})
        limits = resources.get("limits", {})
        if set(requests) != {"cpu", "memory"} or "memory" not in limits:
            self.fault(f"{name}: says not what it needs")

    def check_selector(self, job):
        wanted = job.get("selector", {}).get("matchLabels", {})
        labels = job["template"].get("metadata", {}).get("labels", {})
        if not wanted.items() <= labels.items():
            self.fault(f"selects {wanted}, and its pods have {labels}")

    # ---- The end of a pod ----

    def check_restart(self, name, job, pod):
        policy = job.get("podFailurePolicy")
        command = hvdrun_of(pod)
        if policy and pod.get("restartPolicy") != "Never":
            self.fault(f"{name}: podFailurePolicy needs restartPolicy Never")
        if self.kind in ("Job", "JobSet") and command and not policy:
            self.fault(f"{name}: has no podFailurePolicy")
        actions = {}
        for rule in policy["rules"] if policy else []:
            codes = rule.get("onExitCodes", {})
            values = codes.get("values", [])
            if ("onExitCodes" in rule) == ("onPodConditions" in rule):
                self.fault(f"{name}: a rule needs one kind of condition")
            if values != sorted(set(values)) or 0 in values:
                self.fault(f"{name}: exit codes {values} are not in order")
            if codes and codes.get("containerName") not in [
                container["name"] for container in pod["containers"]
            ]:
                self.fault(f"{name}: a rule is for another container")
            for value in values:
                if value not in self.codes:
                    self.fault(f"{name}: hvdrun has no exit code {value}")
                actions.setdefault(value, rule["action"])
        if command:
            self.check_end(name, pod, command, actions if policy else None)

    def check_end(self, name, pod, command, actions):
        stops = "--stop-at-commit" in command
        grace = float(command[command.index("--grace") + 1])
        least = 10 + (2 * grace if stops else grace)
        if pod.get("terminationGracePeriodSeconds", 30) < least:
            self.fault(f"{name}: its ranks need {least:.0f} s to end")
        if actions is None:
            return
        if {c for c, a in actions.items() if a == "FailJob"} != WRONG_USE:
            self.fault(f"{name}: FailJob is for {sorted(WRONG_USE)}")
        if (actions.get(STOPPED) == "Ignore") != stops:
            self.fault(f"{name}: {STOPPED} comes of --stop-at-commit")


def hvdrun_of(pod):
    """Returns the hvdrun command line of a pod as words, or None."""
    command = pod["containers"][0].get("command", [])
    if command[:2] == ["sh", "-c"] and "exec hvdrun" in command[2]:
        line = command[2][command[2].index("exec hvdrun") + 5 :]
        return shlex.split(line)
    return command if command[:1] == ["hvdrun"] else None


def exit_codes(page):
    """Returns the codes that the EXIT STATUS of a man page has."""
    with open(page, encoding="utf-8") as text:
        section = text.read().split(".Sh EXIT STATUS")[1].split(".Sh")[0]
    return {int(code) for code in re.findall(r"^\.It (\d+)$", section, re.M)}


# ---- Objects together ----


def check_references(manifests):
    """Finds names of objects that no manifest has."""
    names = {}
    for manifest in manifests:
        names.setdefault(manifest.kind, set()).add(manifest.name)
    for manifest in manifests:
        spec = manifest.spec
        if not NAME.match(manifest.name):
            manifest.fault("is no DNS label")
        if manifest.kind == "StatefulSet" and spec[
            "serviceName"
        ] not in names.get("Service", set()):
            manifest.fault(f"there is no Service {spec['serviceName']}")
        if manifest.kind == "RoleBinding":
            for one in [manifest.body["roleRef"], *manifest.body["subjects"]]:
                if one["name"] not in names.get(one["kind"], set()):
                    manifest.fault(f"there is no {one['kind']} {one['name']}")
        for name, job in manifest.jobs():
            account = job["template"]["spec"].get("serviceAccountName")
            if account and account not in names.get("ServiceAccount", set()):
                manifest.fault(f"{name}: there is no ServiceAccount {account}")
    check_services(manifests)


def check_services(manifests):
    labels = [
        job["template"].get("metadata", {}).get("labels", {}).items()
        for manifest in manifests
        for _, job in manifest.jobs()
    ]
    for manifest in manifests:
        if manifest.kind == "Service":
            selector = manifest.spec["selector"].items()
            if not any(selector <= one for one in labels):
                manifest.fault("selects no pod")
        if manifest.kind == "JobSet":
            jobs = {job["name"] for job in manifest.spec["replicatedJobs"]}
            spec = manifest.spec
            wanted = set(spec["successPolicy"]["targetReplicatedJobs"])
            for rule in spec["failurePolicy"]["rules"]:
                wanted |= set(rule["targetReplicatedJobs"])
            for job in spec["replicatedJobs"]:
                wanted |= {one["name"] for one in job.get("dependsOn", [])}
            for name in wanted - jobs:
                manifest.fault(f"there is no replicated job {name}")


# ---- Command lines ----


def slots_of(manifest):
    """Returns how many ranks fit the workers, or None if hvdrun is told."""
    if manifest.kind != "MPIJob":
        return None
    worker = manifest.spec["mpiReplicaSpecs"]["Worker"]
    return worker["replicas"] * manifest.spec["slotsPerWorker"]


def stand_ins(folder, manifest):
    """Makes the files that a command line names; returns their new paths."""
    slots = manifest.spec.get("slotsPerWorker", 1)
    hosts = [f"train-worker-{i}.train.default.svc" for i in (0, 1)]
    files = {
        "/etc/mpi/hostfile": "".join(f"{h} slots={slots}\n" for h in hosts),
        "/etc/mpi/discover_hosts.sh": "#!/bin/sh\n"
        + "".join(f"echo {h}\n" for h in hosts),
        "/tmp/known_hosts": "",
        "/etc/train-ssh/known_hosts": "",
        "/etc/train-ssh/id_ed25519": "",
        "kubectl": KUBECTL,
    }
    paths = {}
    for name, text in files.items():
        paths[name] = os.path.join(folder, os.path.basename(name))
        with open(paths[name], "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(paths[name], 0o700)
    return paths


def check_command(manifest, name, words, hvdrun):
    with tempfile.TemporaryDirectory() as folder:
        paths = stand_ins(folder, manifest)
        argv = [hvdrun, "--dry-run"] + [paths.get(w, w) for w in words[1:]]
        env = dict(os.environ, PATH=folder + ":" + os.environ["PATH"])
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=60
        )
    if done.returncode:
        manifest.fault(f"{name}: {done.stderr.strip()}")
        return
    ranks = len(re.findall(r"^\d+ ", done.stdout, re.M))
    want = slots_of(manifest)
    if ranks == 0 or (want is not None and ranks != want):
        manifest.fault(f"{name}: {ranks} ranks for {want} slots")


def main():
    folder, page, hvdrun, *only = sys.argv[1:]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    codes = exit_codes(page)
    manifests = []
    for file in sorted(os.listdir(folder)):
        if file.endswith(".yaml"):
            with open(os.path.join(folder, file), encoding="utf-8") as text:
                for body in yaml.load_all(text, loader):
                    manifests.append(Manifest(file, body, codes))
    for manifest in manifests:
        manifest.check_fields()
    if not any(manifest.faults for manifest in manifests):
        check_references(manifests)
        for manifest in manifests:
            if only and manifest.file not in only:
                continue
            manifest.check_pods()
            for name, job in manifest.jobs():
                words = hvdrun_of(job["template"]["spec"])
                if words:
                    check_command(manifest, name, words, hvdrun)
    faults = [fault for manifest in manifests for fault in manifest.faults]
    for fault in faults:
        print(fault)
    print(f"{len(manifests)} objects, {len(faults)} faults")
    return bool(faults) or not manifests


sys.exit(main())
