#!/usr/bin/env python3
"""The Python package: its wheel is built, installed, and tested on a server of its own.

    python/wheel_test.py
    python/wheel_test.py --where-possible     ends well, and says so, where the packages cannot be had; with
                                              FRIEZE_STRICT=1 it fails there
    python/wheel_test.py --pytorch            PyTorch's loader too
    python/wheel_test.py -- -k zarr           arguments of pytest
    python/wheel_test.py --frieze COMMAND     another server than the debug build of this tree

Needs Python 3.11 or newer; its packages, maturin among them, come from PyPI at the first run and stay in the user's
cache. The wheel is of the debug build, which shares its libraries with the tests of the crates; `--profile release`
builds the one that users get. About 1 min after the build.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE / "frieze"
sys.path.insert(0, str(HERE.parent / "scripts"))

import hadoop  # noqa: E402
import requirements  # noqa: E402

SECONDS_MAX = 1800
VERSION_MIN = (3, 11)


def pins(*names):
    """Packages and versions."""
    lines = [line.strip() for name in names for line in (PACKAGE / name).read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def interpreter(options):
    """A Python that has the packages."""
    if sys.version_info < VERSION_MIN:
        skip(options, "python311", "Python 3.11", "run it by a newer python3")
    files = ["requirements-tests.txt"] + (["requirements-pytorch.txt"] if options.pytorch else [])
    try:
        return hadoop.python_with(*pins(*files))
    except (subprocess.CalledProcessError, OSError) as error:
        skip(options, "pypi", "packages of PyPI for the tests of the wheel", f"give pip a network ({error})")


def skip(options, tag, what, remedy):
    """Ends the run, well or not."""
    if not options.where_possible:
        sys.exit(f"python/wheel_test.py: needs {what}: {remedy}")
    requirements.skip(tag, what, remedy)


def built(python, profile, folder):
    """The wheel, installed in a folder of its own."""
    build = ["-m", "maturin", "build", "--quiet", "--profile", profile, "--interpreter", python]
    # Its own machine runs it, so it may use whatever libraries are here.
    build += ["--compatibility", "linux", "--out", folder / "wheels"]
    subprocess.run([python, *build], cwd=PACKAGE, check=True, timeout=SECONDS_MAX)
    (wheel,) = (folder / "wheels").glob("*.whl")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([python, *install, "--target", folder / "site", wheel], check=True)
    return folder / "site"


def main():
    """Builds, and runs all tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where-possible", action="store_true")
    parser.add_argument("--pytorch", action="store_true")
    parser.add_argument("--frieze")
    parser.add_argument("--profile", default="dev")
    parser.add_argument("pytest", nargs="*")
    options = parser.parse_args()
    python = interpreter(options)
    frieze = os.path.abspath(hadoop.command(options.frieze, "debug"))
    with tempfile.TemporaryDirectory(prefix="frieze-wheel-") as scratch:
        site = built(python, options.profile, pathlib.Path(scratch))
        tests = options.pytest or (["test_torch.py"] if options.pytorch else ["--ignore=test_torch.py"])
        run = ["-m", "pytest", "-q", "--durations=10", "-p", "no:cacheprovider", f"--basetemp={scratch}/tests"]
        # `-P`: the package is that of the wheel, not of the folder.
        environment = {**os.environ, "PYTHONPATH": str(site), "FRIEZE": frieze, "PYTHONWARNINGS": "ignore"}
        # Guard bytes around each object: the native half writes into buffers of Python (crates/python/src/buffers.rs).
        environment["PYTHONMALLOC"] = "debug"
        return subprocess.run(
            [python, "-P", *run, "--rootdir", PACKAGE / "tests", *tests],
            cwd=PACKAGE / "tests",
            env=environment,
            timeout=SECONDS_MAX,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
