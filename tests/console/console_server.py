"""A server with its console and something to look at."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

FRIEZE = os.environ["FRIEZE"]
SECONDS_MAX = 60
VIEWS = {
    "files": "/files/",
    "files-then": "/files/?at={then}",
    "names": "/files/names",
    "text": "/files/reports/may.txt",
    "text-then": "/files/reports/may.txt?at={then}",
    "table": "/files/sensors/hall.csv",
    "picture": "/files/site/film.png",
    "binary": "/files/site/blob.bin",
    "link": "/files/latest",
    "absent": "/files/nothing",
    "compare": "/compare/reports/may.txt?from={then}",
    "compare-table": "/compare/sensors/hall.csv?from={then}",
    "compare-pictures": "/compare/site/film.png?from={then}",
    "changes": "/changes/reports",
    "changes-since": "/changes/?from={then}",
    "deleted": "/deleted/reports",
    "sessions": "/sessions",
    "session": "/sessions/{session}",
    "space": "/space/",
    "cluster": "/cluster",
    "restore": "/restore/reports?to={then}",
    "undo": "/undo/reports?from={then}",
    "refusal": "/files/?at=2999-01-01T00:00:00Z",
}


class ConsoleServer:
    """`frieze serve --console` on a directory of its own."""

    def __init__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="frieze-console-")
        self.folder = pathlib.Path(self.scratch.name)
        self.process = None
        self.start()

    def start(self):
        """Starts the server; it is ready when this returns."""
        listen = ["--listen", "127.0.0.1:0", "--console", "127.0.0.1:0"]
        command = [FRIEZE, "--json", "serve", "--dir", self.folder / "data", *listen]
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        assert line, (self.folder / "log").read_text()
        ready = json.loads(line)
        self.address = ready["addresses"][0]
        self.url = ready["console"].rstrip("/")
        self.host = self.url.removeprefix("http://")

    def kill(self):
        """Ends the server at once."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS_MAX)

    def close(self):
        """Ends the server and removes its directory."""
        self.process.terminate()
        self.process.wait(SECONDS_MAX)
        self.process.stdout.close()
        self.scratch.cleanup()

    def run(self, *arguments):
        """Runs a command on this server: what it prints."""
        # History names the command as it was typed: by its name, in its folder.
        done = subprocess.run(
            ["frieze", *map(str, arguments)],
            executable=FRIEZE,
            cwd=self.folder,
            env={**os.environ, "FRIEZE_SERVER": self.address},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def put(self, content, path):
        """Stores a file."""
        source = pathlib.PurePath(path).name.replace("<", "").replace("/", "")
        (self.folder / source).write_bytes(content)
        self.run("put", source, path)

    def link(self):
        """A link that signs a browser in."""
        return json.loads(self.run("console", "login", "--console", self.host, "--json"))["url"]

    def now(self):
        """An exact instant."""
        return json.loads(self.run("now", "--json"))["at"]

    def fill(self, pictures):
        """Something to look at: what the addresses of the views are about."""
        self.run("mkdir", "/reports", "/sensors", "/site", "/names")
        self.put(b"Quarterly report\n\nRevenue rose.\nCosts fell.\n", "/reports/may.txt")
        rows = ["t,celsius,hall"] + [f"2026-11-30T10:{minute:02}:00Z,2{minute % 7}.{minute % 10},north" for minute in range(40)]
        self.put("\n".join(rows).encode(), "/sensors/hall.csv")
        self.put(pictures[0].read_bytes(), "/site/film.png")
        for number in range(1, 7):
            self.put(b"draft\n", f"/reports/draft-{number}.txt")
            self.rest()
        self.then = self.now()
        self.rest()
        self.put(b"Quarterly report\n\nRevenue rose by a tenth.\nCosts fell.\nOutlook: good.\n", "/reports/may.txt")
        rows[7] = rows[7].replace("north", "south")
        self.put("\n".join(rows).encode(), "/sensors/hall.csv")
        self.put(pictures[1].read_bytes(), "/site/film.png")
        self.rest()
        self.run("rm", "/reports/draft-3.txt")
        self.run("mv", "/reports/draft-4.txt", "/reports/final.txt")
        self.put(bytes(range(256)) * 4, "/site/blob.bin")
        self.put(b"<script>alert('content')</script>", "/site/<img src=x onerror=alert('name')>")
        self.run("ln", "-s", "/reports/may.txt", "/latest")
        folder = self.folder / "many"
        folder.mkdir()
        for number in range(450):
            (folder / f"record-{number:03}.bin").touch()
        self.rest()
        self.run("put", "-r", *(f"many/{path.name}" for path in sorted(folder.iterdir())), "/names")
        self.session = json.loads(self.run("sessions", "--json").splitlines()[0])["session"]

    def rest(self):
        """For pictures changes lie apart from each other."""
        if os.environ.get("PICTURES"):
            time.sleep(3)

    def views(self):
        """The addresses of all views by name."""
        return {name: self.url + path.format(then=self.then, session=self.session) for name, path in VIEWS.items()}
