#!/usr/bin/env python3
"""The console in Debian's Chromium, driven by Playwright (PyPI), judged by axe (npm): every view, wide and narrow, light
and dark, by keyboard alone, and without scripts.

    tests/console/run.py                     with the debug build; builds it first
    tests/console/run.py --where-possible    ends well, and says so, where a browser or the packages cannot be had; with
                                             FRIEZE_STRICT=1 it fails there (scripts/requirements.py)
    tests/console/run.py --pictures          also writes the screenshots of docs/pictures
    tests/console/run.py --figures           measures instead: slider, weight, first listing (release build; make bench-console)
    tests/console/run.py Views Slider        some of the tests

Needs Chromium, and Node with npm. About a minute beside the build.
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

SECONDS_MAX = 900
PLAYWRIGHT = "playwright==1.65.2"


def missing(tag, what, remedy, where_possible):
    """Ends the run: something is not there."""
    if not where_possible:
        sys.exit(f"tests/console: needs {what}: {remedy}")
    requirements.skip(tag, what, remedy)


def packages():
    """The folder with the packages of the lock file, installed once for each lock."""
    lock = (HERE / "package-lock.json").read_bytes()
    folder = hadoop.cache("console-tests")
    if not (folder / "package-lock.json").exists() or (folder / "package-lock.json").read_bytes() != lock:
        shutil.copy(HERE / "package.json", folder)
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        (folder / "package-lock.json").write_bytes(lock)
        try:
            subprocess.run(["npm", "ci", *quiet], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        except BaseException:
            (folder / "package-lock.json").unlink()
            raise
    return folder / "node_modules"


def main():
    """Runs all tests, or those that are named."""
    options = {argument for argument in sys.argv[1:] if argument.startswith("-")}
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    unknown = options - {"--where-possible", "--pictures", "--figures"}
    if unknown:
        sys.exit(f"tests/console: unknown option {' '.join(sorted(unknown))}\n{__doc__}")
    where_possible = "--where-possible" in options
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        missing("chromium", "the browser Chromium", "apt-get install chromium", where_possible)
    if shutil.which("npm") is None:
        missing("node", "Node with npm", "apt-get install npm", where_possible)
    try:
        python, modules = hadoop.python_with(PLAYWRIGHT), packages()
    except (subprocess.CalledProcessError, OSError) as error:
        missing("pypi", f"{PLAYWRIGHT} from PyPI and axe-core from npm", f"give pip and npm a network ({error})", where_possible)
    frieze = hadoop.command(profile="release" if "--figures" in options else "debug")
    environment = {**os.environ, "FRIEZE": str(frieze), "CHROMIUM": chromium, "NODE_MODULES": str(modules)}
    environment["PICTURES"] = str(HERE.parent.parent / "docs" / "pictures") if "--pictures" in options else ""
    for variable in ["FRIEZE_SERVER", "FRIEZE_KEY", "FRIEZE_CLIENT", "FRIEZE_CONSOLE"]:
        environment.pop(variable, None)
    if "--figures" in options:
        command = [python, "figures.py"]
    else:
        command = [python, "-m", "unittest", "--verbose", *([f"test_console.{name}" for name in wanted] or ["test_console"])]
    return subprocess.run(command, cwd=HERE, env=environment, timeout=SECONDS_MAX).returncode


if __name__ == "__main__":
    sys.exit(main())
