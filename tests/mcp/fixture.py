"""A server in a directory of its own, agents on mounts of their own, and frieze-mcp behind the official client."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

from mcp import Client, StdioServerParameters

HERE = pathlib.Path(__file__).resolve().parent
FRIEZE, FRIEZE_MCP = os.environ["FRIEZE"], os.environ["FRIEZE_MCP"]
END_S = 60


class Server:
    """`frieze serve` at a free port of this machine."""

    def __init__(self, work):
        self.work, self.address = work, "127.0.0.1:0"
        self.start()

    def start(self):
        serve = [FRIEZE, "serve", "--json", "--dir", self.work / "data", "--listen", self.address]
        with open(self.work / "serve.log", "ab") as log:
            self.process = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log)
        ready = self.process.stdout.readline()
        if not ready:
            raise RuntimeError("the server does not start:\n" + (self.work / "serve.log").read_text()[-2000:])
        self.address = json.loads(ready)["addresses"][0]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=END_S)
        self.process.stdout.close()

    def frieze(self, *arguments, check=True):
        """Runs a command against it; returns what it printed."""
        command = [FRIEZE, "--server", self.address, *arguments]
        return subprocess.run(command, check=check, capture_output=True, text=True, timeout=END_S)


class Agent:
    """A program that edits files on a mount and a session of its own: `frieze run --name`."""

    def __init__(self, server, name):
        command = [FRIEZE, "--server", server.address, "run", "--name", name, "--", sys.executable, HERE / "agent.py"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        ready = self.process.stdout.readline()
        if not ready:
            raise RuntimeError(f"agent {name} does not start: {self.process.stderr.read()}")
        self.name, self.session = name, json.loads(ready)["session"]

    def edit(self, kind, path, **more):
        """Makes one edit and waits until it is done."""
        if "data" in more:
            more["data"] = more["data"].decode("latin-1")
        self.process.stdin.write(json.dumps({"edit": kind, "path": path, **more}) + "\n")
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise OSError(f"{self.name}: {kind} {path}: {answer['error']}")
        return answer["done"]

    def end(self):
        """Ends it; returns what `frieze run` printed."""
        out, error = self.process.communicate(timeout=END_S)
        return out + error


class ToolFailure(Exception):
    """A tool answered that it failed."""


class Tools:
    """The tools of frieze-mcp, by the official client, which compares each answer with the tool's schema."""

    def __init__(self, client):
        self.client = client

    async def call(self, tool, **arguments):
        """The structured answer."""
        result = await self.client.call_tool(tool, arguments)
        if result.is_error:
            raise ToolFailure(result.content[0].text)
        assert json.loads(result.content[1].text) == result.structured_content
        return result.structured_content

    async def refusal(self, tool, **arguments):
        """The words of a call that fails."""
        try:
            answer = await self.call(tool, **arguments)
        except ToolFailure as failure:
            return str(failure)
        raise AssertionError(f"{tool} {arguments} answers {answer}")

    async def tree(self, path="/"):
        """Every file below a directory, with its bytes, and every directory."""
        found = {}
        listed = await self.call("read_at", path=path, limit=1000)
        for entry in listed["entries"]:
            below = path.rstrip("/") + "/" + entry["name"]
            if entry["kind"] == "directory":
                found[below] = None
                found.update(await self.tree(below))
            else:
                found[below] = await self.bytes(below)
        return found

    async def bytes(self, path, **arguments):
        """The bytes of a file, all parts."""
        import base64

        data, offset = b"", 0
        while offset is not None:
            part = await self.call("read_at", path=path, offset=offset, **arguments)
            data += part["text"].encode() if "text" in part else base64.b64decode(part["base64"])
            offset = part.get("next_offset")
        return data


@contextlib.asynccontextmanager
async def tools(address, *options, mode="auto"):
    """frieze-mcp on a server, started by the client as an editor starts it."""
    command = StdioServerParameters(command=FRIEZE_MCP, args=["--server", address, *options])
    async with Client(command, mode=mode) as client:
        yield Tools(client)
