#!/usr/bin/env python3
"""Packages made of the debug build, installed into clean roots, used, upgraded and removed; and the container.

    tests/packages/run.py                     makes and tries everything; builds what is missing
    tests/packages/run.py --where-possible    ends well, and says so, where the machine lacks something; with
                                              FRIEZE_STRICT=1 it fails there (scripts/requirements.py)
    tests/packages/run.py Deb                 the tests of one class (test_packages.py)

The clean root is Debian's essential packages by mmdebstrap, from the mirror that this machine's apt uses: a copy of
this machine's own files would have every library, and so prove no dependency. Needs root, FUSE, mmdebstrap, rpm,
buildah, zsh and fish.
About two minutes beside the build.
"""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

import requirements  # noqa: E402

# What the tests use, and the tag by which FRIEZE_WITHOUT names it.
PROGRAMS = {
    "dpkg-shlibdeps": "dpkg",
    "rpmbuild": "rpm",
    "mmdebstrap": "mmdebstrap",
    "man": "man",
    "zsh": "zsh",
    "fish": "fish",
    "buildah": "buildah",
}
SECONDS_MAX = 600


def without(where_possible, tag, what, remedy):
    """Ends the script: it lacks `what`."""
    if not where_possible:
        sys.exit(f"tests/packages: needs {what}: {remedy}")
    requirements.skip(tag, what, remedy)


def clean_root(folder):
    """Debian's essential packages and apt, of this machine's release and mirror; None if no mirror answers."""
    root = folder / "clean"
    release = platform.freedesktop_os_release()
    sources = [path for path in pathlib.Path("/etc/apt").rglob("*") if path.suffix in (".list", ".sources")]
    command = ["mmdebstrap", "--quiet", "--variant=apt", "--skip=cleanup/apt", release["VERSION_CODENAME"], root]
    made = subprocess.run([*command, *sources], stderr=subprocess.PIPE, text=True)
    if made.returncode != 0:
        print(made.stderr, file=sys.stderr)
        return None
    return root


def main():
    """Runs all tests, or those that are named."""
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    where_possible = "--where-possible" in sys.argv[1:]
    if os.getuid() != 0:
        without(where_possible, "root", "the rights of root, for roots of their own", "run it as root")
    if not os.path.exists("/dev/fuse"):
        without(where_possible, "fuse", "FUSE", "load the module fuse")
    for program, tag in PROGRAMS.items():
        if shutil.which(program) is None:
            without(where_possible, tag, f"the program {program}", "run scripts/bootstrap.sh --tests")
    with tempfile.TemporaryDirectory(prefix="frieze-packages-") as folder:
        root = clean_root(pathlib.Path(folder))
        if root is None:
            without(where_possible, "mirror", "a mirror of Debian", "give apt a mirror that answers")
        environment = {**os.environ, "FRIEZE_CLEAN_ROOT": str(root)}
        names = [f"test_packages.{name}" for name in wanted] or ["test_packages"]
        tests = [sys.executable, "-m", "unittest", "--verbose", *names]
        return subprocess.run(tests, cwd=HERE, env=environment, timeout=SECONDS_MAX).returncode


if __name__ == "__main__":
    sys.exit(main())
