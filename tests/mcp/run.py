#!/usr/bin/env python3
"""frieze-mcp driven by the official client of the Model Context Protocol (PyPI: mcp), with agents on their own mounts.

    tests/mcp/run.py                     with the debug build; builds it first
    tests/mcp/run.py --where-possible    ends well, and says so, where the client or a mount cannot be had; with
                                         FRIEZE_STRICT=1 it fails there (scripts/requirements.py)
    SEED=7 ROUNDS=1 STEPS=80 tests/mcp/run.py InterleavedAgents
                                         plays one random interleaving again, as a failure prints it

Needs Python 3.10 or newer and FUSE; the client's packages come from PyPI at the first run and stay in the user's cache.
About half a minute beside the build.
"""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

import hadoop  # noqa: E402
import requirements  # noqa: E402

SECONDS_MAX = 600


def main():
    """Runs all tests, or those that are named."""
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    where_possible = "--where-possible" in sys.argv[1:]
    if not os.path.exists("/dev/fuse") or (os.getuid() != 0 and shutil.which("fusermount3") is None):
        if not where_possible:
            sys.exit("tests/mcp: needs FUSE: the device /dev/fuse, and fusermount3 for users other than root")
        requirements.skip("fuse", "FUSE", "load the module fuse, and install fuse3")
    pins = (HERE / "requirements.txt").read_text().split()
    try:
        python = hadoop.python_with(*pins)
    except (subprocess.CalledProcessError, OSError) as error:
        if not where_possible:
            sys.exit(f"tests/mcp: the client cannot be installed: {error}")
        requirements.skip("pypi", "the official client of the Model Context Protocol, from PyPI", "give pip a network")
    frieze = pathlib.Path(hadoop.command(profile="debug"))
    subprocess.run(["cargo", "build", "--quiet", "--package", "frieze-mcp"], cwd=hadoop.ROOT, check=True)
    environment = {**os.environ, "FRIEZE": str(frieze), "FRIEZE_MCP": str(frieze.parent / "frieze-mcp")}
    for variable in ["FRIEZE_SERVER", "FRIEZE_KEY", "FRIEZE_CLIENT"]:
        environment.pop(variable, None)
    names = [f"test_mcp.{name}" for name in wanted] or ["test_mcp"]
    tests = [python, "-m", "unittest", "--verbose", *names]
    return subprocess.run(tests, cwd=HERE, env=environment, timeout=SECONDS_MAX).returncode


if __name__ == "__main__":
    sys.exit(main())
