#!/usr/bin/env python3
"""What a test script needs from its machine, and what happens where the machine lacks it.

The counterpart of crates/harness/src/requirements.rs: a script that lacks something prints a line that begins with `skipped:`
and ends well. If FRIEZE_STRICT is 1, it fails instead, unless FRIEZE_WITHOUT lists the tag of the requirement.

    scripts/requirements.py TAG WHAT REMEDY    for shell scripts: exit code 1 if the run is strict
"""

import os
import sys


def refuses(tag):
    """True if this run fails where the requirement is missing."""
    without = [listed.strip() for listed in os.environ.get("FRIEZE_WITHOUT", "").split(",")]
    return os.environ.get("FRIEZE_STRICT", "") not in ("", "0") and tag not in without


def skip(tag, what, remedy):
    """Ends the script: it lacks `what`."""
    if refuses(tag):
        sys.exit(f"FRIEZE_STRICT: this test would be skipped, for it needs {what}: {remedy}, or list {tag} in FRIEZE_WITHOUT")
    print(f"skipped: needs {what}: {remedy}", flush=True)
    sys.exit(0)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    skip(*sys.argv[1:])
