#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validates manifests against the schemas of an API:  crds.py CRDS FOLDER

CRDS is a folder with the CustomResourceDefinitions (YAML) of JobSet and of the
MPI Operator's MPIJob.  Their schemas hold those of Jobs and pods, so Jobs are
validated with the former, and pods of StatefulSets with the latter.  A field
that a schema does not have is an error, as with `kubectl apply`.

Prints a line for each fault, and how many objects were validated; exits with 1
if there is a fault.  Needs python3-jsonschema.
"""
import os
import sys

import jsonschema
import yaml


def load(folder):
    for name in sorted(os.listdir(folder)):
        if name.endswith((".yaml", ".yml")):
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                for body in yaml.safe_load_all(file):
                    if body:
                        yield name, body


def strict(schema):
    """Returns the schema without Kubernetes' extensions to JSON schema: no
    unknown fields, and quantities that are numbers or strings."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: strict(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        result.pop("type", None)
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if (
        isinstance(schema.get("properties"), dict)
        and "additionalProperties" not in schema
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        result["additionalProperties"] = False
    return result


def schemas_of(folder):
    """Returns the strict schema of the spec for each "apiVersion Kind"."""
    schemas = {}
    for _, body in load(folder):
        if body.get("kind") != "CustomResourceDefinition":
            continue
        spec = body["spec"]
        for version in spec["versions"]:
            kind = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
            schema = version["schema"]["openAPIV3Schema"]
            schemas[kind] = strict(schema["properties"]["spec"])
    job_set = schemas["jobset.x-k8s.io/v1alpha2 JobSet"]["properties"]
    job = job_set["replicatedJobs"]["items"]["properties"]["template"]
    schemas["batch/v1 Job"] = job["properties"]["spec"]
    mpi_job = schemas["kubeflow.org/v2beta1 MPIJob"]["properties"]
    replica = mpi_job["mpiReplicaSpecs"]["additionalProperties"]
    template = replica["properties"]["template"]
    schemas["apps/v1 StatefulSet"] = {"properties": {"template": template}}
    return schemas


def main():
    crds, folder = sys.argv[1:]
    schemas = schemas_of(crds)
    validated = faults = 0
    for name, body in load(folder):
        kind = f"{body['apiVersion']} {body['kind']}"
        if kind not in schemas:
            continue
        validated += 1
        checker = jsonschema.Draft7Validator(schemas[kind])
        for fault in checker.iter_errors(body["spec"]):
            faults += 1
            at = ".".join(str(part) for part in ["spec", *fault.absolute_path])
            print(f"{name}: {kind}: {at}: {fault.message}")
    print(f"{validated} objects, {faults} faults")
    return faults > 0 or validated == 0


sys.exit(main())
