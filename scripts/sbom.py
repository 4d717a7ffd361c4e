#!/usr/bin/env python3
"""What the binaries are linked from, as CycloneDX 1.5 JSON on standard output, made of Cargo.lock and `cargo metadata`.

    scripts/sbom.py [PACKAGE ...]    of these packages of the workspace; by default frieze-cli and frieze-mcp

The same commit gives the same bytes: the date is that of the commit (SOURCE_DATE_EPOCH), and the serial number is made
of the content. Libraries of the system (libc) are not part of it.
"""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["frieze-cli", "frieze-mcp"]


def source_date():
    """Seconds since 1970 of the last commit, or SOURCE_DATE_EPOCH."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    log = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if log.returncode != 0:
        sys.exit("the date of the sources is unknown: there is no git repository; set SOURCE_DATE_EPOCH")
    return int(log.stdout)


def metadata():
    """The workspace as cargo resolves it for this machine."""
    target = f"{platform.machine()}-unknown-linux-gnu"
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


def linked(graph, names):
    """Crates that `names` are linked from, themselves included: each id with its dependencies, tests' left out."""
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    waiting = [package["id"] for package in graph["packages"] if package["name"] in names]
    found = {}
    while waiting:
        node = nodes[waiting.pop()]
        if node["id"] not in found:
            is_linked = [dep["pkg"] for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
            found[node["id"]] = sorted(is_linked)
            waiting += is_linked
    return found


def component(package, checksums):
    """A crate as CycloneDX has it."""
    name, version = package["name"], package["version"]
    purl = f"pkg:cargo/{name}@{version}"
    entry = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if package.get("license"):
        # Older crates write MIT/Apache-2.0.
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = checksums.get((name, version))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


def document(names):
    """The whole bill of materials."""
    graph = metadata()
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}
    packages = {package["id"]: package for package in graph["packages"]}
    tree = linked(graph, names)
    entries = {key: component(packages[key], checksums) for key in tree}
    version = next(packages[key]["version"] for key in tree if packages[key]["name"] in names)
    date = datetime.datetime.fromtimestamp(source_date(), datetime.timezone.utc)
    body = {
        "components": sorted(entries.values(), key=lambda entry: entry["bom-ref"]),
        "dependencies": sorted(
            ({"ref": entries[key]["bom-ref"], "dependsOn": [entries[dep]["bom-ref"] for dep in deps]}
             for key, deps in tree.items()),
            key=lambda entry: entry["ref"],
        ),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"frieze {version} {json.dumps(body, sort_keys=True)}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": "frieze", "name": "frieze", "version": version},
        },
        **body,
    }


if __name__ == "__main__":
    print(json.dumps(document(sys.argv[1:] or PACKAGES), indent=1))
