#!/usr/bin/env python3
"""Checkpoint, and undo of one of two interleaved agents, in a tree of 100,000 files, beside git in the same tree.

    bench/agents.py                      with the release build; builds it first
    bench/agents.py --files 10000 --repeat 1

Two agents, each a session of its own (`frieze run --name`), make 1,000 edits in turn: 500 each, in files of either.
frieze-mcp undoes one of them, by the official client. git does the same job in the same tree on the same mount: `git
add -A` and `git commit` note the state, `git checkout HEAD~1 -- FILES` takes back the files of one agent (git knows
files, no authors: the script names the files, and an agent's part of a shared file cannot be taken back by itself).
The same commands in a directory of this machine's own file system are printed for comparison.

Needs FUSE, git, and PyPI for the client (tests/mcp/requirements.txt). The tree takes minutes to make, mostly in git.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent / "tests" / "mcp"
sys.path[:0] = [str(HERE.parent / "scripts"), str(TESTS)]

FILES_IN_DIRECTORY = 1000
FILE_BYTES = 1024
EDITS = 1000
CHECKPOINTS = 500


def options():
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000, help="files in the tree (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of edits and undos (default %(default)s)")
    parser.add_argument("--dir", default=None, help="directory for the server and the peer (default: a temporary one)")
    parser.add_argument("--frieze", default=None, help="directory of the commands (default: the release build)")
    return parser.parse_args()


def within_environment(chosen):
    """Starts this script again where the client's packages are."""
    import hadoop

    python = hadoop.python_with(*(TESTS / "requirements.txt").read_text().split())
    frieze = pathlib.Path(chosen.frieze or pathlib.Path(hadoop.command()).parent)
    if chosen.frieze is None:
        build = ["cargo", "build", "--quiet", "--release", "--package", "frieze-mcp"]
        subprocess.run(build, cwd=HERE.parent, check=True)
    environment = {**os.environ, "FRIEZE": str(frieze / "frieze"), "FRIEZE_MCP": str(frieze / "frieze-mcp")}
    os.execve(python, [str(python), *sys.argv], environment)


def paths(files):
    """The names of the tree."""
    return [f"d{number // FILES_IN_DIRECTORY:03}/f{number % FILES_IN_DIRECTORY:03}" for number in range(files)]


def make_tree(root, names):
    """Files of random bytes."""
    rng = random.Random(1)
    for directory in sorted({name.split("/")[0] for name in names}):
        (root / directory).mkdir()
    for name in names:
        (root / name).write_bytes(rng.randbytes(FILE_BYTES))


def git(root, *arguments):
    """Runs git in a tree; returns how long it took."""
    began = time.perf_counter()
    subprocess.run(["git", "-C", root, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def git_tree(root):
    """A repository in the tree, with all of it committed."""
    git(root, "init", "--quiet")
    for name, value in [("user.name", "bench"), ("user.email", "bench@localhost"), ("gc.auto", "0")]:
        git(root, "config", name, value)
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "all")
    # The index has the attributes of all files as they are.
    git(root, "status", "--porcelain")


def git_round(root, of_one):
    """What git takes to note the edits and to take back those of one agent."""
    seconds = {"add": git(root, "add", "-A"), "commit": git(root, "commit", "--quiet", "-m", "edits")}
    with tempfile.NamedTemporaryFile("w") as listed:
        listed.write("\n".join(of_one))
        listed.flush()
        seconds["checkout"] = git(root, "checkout", "--quiet", "HEAD~1", f"--pathspec-from-file={listed.name}")
    git(root, "commit", "--quiet", "-m", "taken back")
    return seconds


def plan_edits(rng, names):
    """Edits in turn: (agent, file, offset, bytes). A tenth of the files are edited by both agents."""
    chosen = rng.sample(names, EDITS)
    shared, own = chosen[: EDITS // 10], {"A": chosen[EDITS // 10 : EDITS // 2], "B": chosen[EDITS // 2 :]}
    edits = []
    for number in range(EDITS):
        agent = "AB"[number % 2]
        name = rng.choice(shared) if rng.random() < 0.1 else rng.choice(own[agent])
        half = 0 if agent == "A" else FILE_BYTES // 2
        edits.append((agent, name, half + rng.randrange(FILE_BYTES // 2 - 100), rng.randbytes(100)))
    return edits


def raw_checkpoints(address):
    """Checkpoints by lines of JSON on a pipe, as any client sends them: the seconds of each."""
    process = subprocess.Popen(
        [os.environ["FRIEZE_MCP"], "--server", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    out = process.stdout

    def ask(number, method, parameters):
        line = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
        process.stdin.write(json.dumps(line).encode() + b"\n")
        reply = b""
        while not reply.endswith(b"\n"):
            reply += out.read(1 << 16)
        return json.loads(reply)

    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    ask(0, "initialize", about)
    process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    seconds = []
    for number in range(CHECKPOINTS):
        began = time.perf_counter()
        answer = ask(number + 1, "tools/call", {"name": "checkpoint", "arguments": {}})
        seconds.append(time.perf_counter() - began)
        assert answer["result"]["structuredContent"]["at"].startswith("hlc-"), answer
    process.stdin.close()
    process.wait(timeout=60)
    return seconds


def data_bytes(directory):
    """Bytes on disk of everything that the server keeps."""
    return sum(path.stat().st_blocks * 512 for path in (directory / "data").rglob("*") if path.is_file())


def settled_bytes(directory):
    """The same, when the server has done its work after the load."""
    size = -1
    while size != (size := data_bytes(directory)):
        time.sleep(2)
    return size


def line(what, *values):
    print(f"{what:58}" + "".join(f"{value:>14}" for value in values), flush=True)


def ms(seconds):
    return f"{seconds * 1000:.2f} ms"


async def measure(chosen, work):
    import fixture

    names, rng = paths(chosen.files), random.Random(2)
    server = fixture.Server(work)
    mount = work / "mount"
    mount.mkdir()
    mounted = subprocess.Popen([fixture.FRIEZE, "--server", server.address, "mount", "--foreground", mount])
    agents = []
    try:
        while not os.path.ismount(mount):
            if mounted.poll() is not None:
                sys.exit("the mount ended")
            time.sleep(0.05)
        tree, peer = mount / "tree", work / "peer"
        for root in [tree, peer]:
            root.mkdir()
            make_tree(root, names)
            git_tree(root)
        async with fixture.tools(server.address) as tools:
            seconds = raw_checkpoints(server.address)
            client_s = []
            size = settled_bytes(work)
            for _ in range(CHECKPOINTS):
                began = time.perf_counter()
                await tools.call("checkpoint")
                client_s.append(time.perf_counter() - began)
            grown = data_bytes(work) - size
            rounds = []
            for number in range(chosen.repeat):
                edits = plan_edits(rng, names)
                agents = [fixture.Agent(server, f"agent-{agent}-{number}") for agent in "AB"]
                at = (await tools.call("checkpoint"))["at"]
                before = {name: (tree / name).read_bytes() for _, name, _, _ in edits}
                for agent, name, offset, data in edits:
                    agents["AB".index(agent)].edit("write", f"/tree/{name}", offset=offset, data=data)
                    with open(peer / name, "r+b") as file:
                        file.seek(offset)
                        file.write(data)
                taken = {"plan": time.perf_counter()}
                arguments = {"sessions": [f"agent-A-{number}"], "from": at}
                await tools.call("undo", **arguments)
                taken["plan"] = time.perf_counter() - taken["plan"]
                began = time.perf_counter()
                undone = await tools.call("undo", **arguments, dry_run=False)
                taken["undo"] = time.perf_counter() - began
                for name, data in before.items():
                    expected = bytearray(data)
                    for agent, edited, offset, written in edits:
                        if agent == "B" and edited == name:
                            expected[offset : offset + len(written)] = written
                    assert (tree / name).read_bytes() == bytes(expected), f"{name} is not as B left it"
                # git gets the state with both agents' edits back.
                await tools.call("undo", **undone["take_back"], dry_run=False)
                of_one = sorted({name for agent, name, _, _ in edits if agent == "A"})
                taken["mount"], taken["local"] = git_round(tree, of_one), git_round(peer, of_one)
                rounds.append(taken)
                for agent in agents:
                    agent.end()
                agents = []
        report(chosen, seconds, client_s, grown, rounds)
    finally:
        for agent in agents:
            agent.end()
        subprocess.run(["umount", mount], check=False)
        mounted.wait(timeout=60)
        server.stop()


def report(chosen, seconds, client_s, grown, rounds):
    """The figures, the goals beside them."""
    median = statistics.median
    line(f"{chosen.files} files, {EDITS} edits by two agents, {chosen.repeat} rounds", "median", "p99 or max")
    line("checkpoint, lines of JSON on a pipe (goal 1 ms)", ms(median(seconds)), ms(sorted(seconds)[-5]))
    line("checkpoint, official Python client", ms(median(client_s)), ms(sorted(client_s)[-5]))
    line(f"bytes that {CHECKPOINTS} checkpoints added on disk (goal 0)", grown)
    for what in ["plan", "undo"]:
        of = [taken[what] for taken in rounds]
        line(f"{what} of one agent's {EDITS // 2} edits", ms(median(of)), ms(max(of)))
    for where in ["mount", "local"]:
        for what in ["add", "commit", "checkout"]:
            of = [taken[where][what] for taken in rounds]
            place = "same mount" if where == "mount" else "local file system"
            line(f"git {what}, {place}", ms(median(of)), ms(max(of)))
    undo = median(taken["undo"] for taken in rounds)
    for where, goal in [("mount", " (goal 20)"), ("local", "")]:
        git_s = median(sum(taken[where].values()) for taken in rounds)
        noted_s = median(taken[where]["add"] + taken[where]["commit"] for taken in rounds)
        line(f"git add, commit, checkout by undo, {where}{goal}", f"{git_s / undo:.1f}")
        line(f"git add, commit by checkpoint, {where}", f"{noted_s / median(seconds):.0f}")


def main():
    chosen = options()
    if "FRIEZE_MCP" not in os.environ:
        within_environment(chosen)
    with tempfile.TemporaryDirectory(prefix="frieze-agents-", dir=chosen.dir) as work:
        asyncio.run(measure(chosen, pathlib.Path(work)))


if __name__ == "__main__":
    main()
