#!/usr/bin/env python3
"""Every fuzz target of the workspace for some time each: the tests named any_bytes_... or any_text_... of the crates that use frieze-harness.

    scripts/fuzz.py                      60 s each
    scripts/fuzz.py --seconds 600 identity    those whose names hold this text
    scripts/fuzz.py --list               their names

With a nightly toolchain and cargo-bolero (`cargo install cargo-bolero`), libFuzzer drives them under AddressSanitizer: it follows
coverage, and keeps what it learnt in __fuzz__ beside the tests. Else, or with --engine random, bolero's random engine drives the
same targets. The exit code is 1 if a target failed; its input is printed, and belongs into a test.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def packages():
    """Folders of the crates whose tests may be targets."""
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        text = manifest.read_text()
        if "frieze-harness.workspace" in text and any("fuzz!(" in source.read_text() for source in manifest.parent.rglob("*.rs")):
            yield re.search(r'^name = "(.*)"', text, re.M)[1]


def targets(package):
    """Binary and name of each target of a package. Builds its tests."""
    listed = subprocess.run(
        ["cargo", "test", "--package", package, "--lib", "--tests", "--", "--list", "--format", "terse"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    if listed.returncode != 0:
        sys.exit(listed.stdout)
    binary = None
    for line in listed.stdout.splitlines():
        if running := re.match(r"\s+Running \S+.* \((\S+)\)", line):
            binary = running[1]
        elif (name := line.removesuffix(": test")) != line and name.split("::")[-1].startswith(("any_bytes_", "any_text_")):
            yield binary, name


def has(*command):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="", help="targets whose names hold this text")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--engine", choices=["libfuzzer", "random"], help="default: libfuzzer, where it can be had")
    parser.add_argument("--list", action="store_true", help="print the targets")
    options = parser.parse_args()
    engine = options.engine
    if engine is None:
        engine = "libfuzzer" if has("cargo", "bolero", "--version") and has("cargo", "+nightly", "--version") else "random"
    if not options.list:
        why = "" if engine == "libfuzzer" or options.engine else ": coverage needs a nightly toolchain and cargo-bolero"
        print(f"fuzz: {options.seconds} s for each target, by {engine}{why}", flush=True)
    count, failed = 0, []
    for package in packages():
        for binary, name in targets(package):
            if options.only not in f"{package} {name}":
                continue
            count += 1
            if options.list:
                print(package, name)
                continue
            print(f"fuzz: {package} {name}", flush=True)
            if engine == "libfuzzer":
                command = ["cargo", "bolero", "test", "--engine", "libfuzzer", "--toolchain", "nightly", "--package", package]
                command += ["-T", f"{options.seconds}s", name]
                environment = {}
            else:
                command = [ROOT / binary, "--exact", name, "--nocapture"]
                environment = {"BOLERO_RANDOM_TEST_TIME_MS": str(options.seconds * 1000)}
            folder = ROOT / "crates" / package.removeprefix("frieze-")
            run = subprocess.run(command, cwd=folder if engine == "random" else ROOT, env={**os.environ, **environment})
            if run.returncode != 0:
                failed.append(f"{package} {name}")
    if count == 0:
        sys.exit(f"fuzz: no target is named {options.only}")
    for name in failed:
        print(f"fuzz: failed: {name}", file=sys.stderr)
    if not options.list:
        print(f"fuzz: {count - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
