"""An agent that edits files as it is told, in $FRIEZE_MOUNT: a JSON line for each edit, a JSON line when it is done.

Runs by `frieze run --name NAME`, so that all of its edits are one session. Bytes are latin-1 text.
"""

import json
import os
import sys


def done(edit, path):
    """Makes one edit."""
    kind = edit["edit"]
    if kind == "write":
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if edit.get("whole") else 0), 0o644)
        try:
            data, offset = edit["data"].encode("latin-1"), edit.get("offset", 0)
            if edit.get("append"):
                offset = os.fstat(descriptor).st_size
            os.pwrite(descriptor, data, offset)
        finally:
            os.close(descriptor)
        return offset
    if kind == "rename":
        return os.rename(path, os.environ["FRIEZE_MOUNT"] + edit["to"])
    return {"unlink": os.unlink, "mkdir": os.mkdir}[kind](path)


def main():
    """Edits until standard input ends."""
    mount = os.environ["FRIEZE_MOUNT"]
    print(json.dumps({"session": os.environ["FRIEZE_SESSION"], "mount": mount}), flush=True)
    for line in sys.stdin:
        edit = json.loads(line)
        try:
            answer = {"done": done(edit, mount + edit["path"])}
        except OSError as error:
            answer = {"error": error.strerror}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
