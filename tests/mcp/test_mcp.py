"""What agents do with frieze-mcp, by the official client."""

import os
import pathlib
import random
import tempfile
import unittest

import fixture

SEED = int(os.environ.get("SEED", "20261130"))
ROUNDS = int(os.environ.get("ROUNDS", "6"))
STEPS = int(os.environ.get("STEPS", "80"))
SHARED_BYTES = 2000


class Served(unittest.IsolatedAsyncioTestCase):
    """A server for each test."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="frieze-mcp-")
        self.addCleanup(self.scratch.cleanup)
        self.server = fixture.Server(pathlib.Path(self.scratch.name))
        self.addCleanup(self.server.stop)
        self.agents = []

    def tearDown(self):
        for agent in self.agents:
            agent.end()

    def agent(self, name):
        self.agents.append(fixture.Agent(self.server, name))
        return self.agents[-1]


class Protocol(Served):
    """The server as a client sees it."""

    async def test_clients_of_both_kinds_list_the_tools_and_call_one(self):
        for mode in ["legacy", "auto"]:
            async with fixture.tools(self.server.address, mode=mode) as tools:
                listed = {tool.name: tool for tool in (await tools.client.list_tools()).tools}
                names = ["changes", "checkpoint", "diff", "history", "read_at", "restore", "sessions", "undo"]
                self.assertEqual(sorted(listed), names, mode)
                self.assertTrue(listed["diff"].annotations.read_only_hint)
                self.assertTrue(listed["undo"].annotations.destructive_hint)
                self.assertFalse(listed["checkpoint"].annotations.destructive_hint)
                self.assertTrue(all(tool.output_schema and tool.description for tool in listed.values()))
                self.assertRegex((await tools.call("checkpoint"))["at"], "^hlc-[0-9a-f]{16}$")

    async def test_a_wrong_call_is_an_answer_that_the_model_reads(self):
        async with fixture.tools(self.server.address, "--read-only") as tools:
            self.assertIn("dryrun", await tools.refusal("undo", dryrun=False))
            self.assertIn("'..' is not allowed", await tools.refusal("read_at", path="/a/../b"))
            self.assertIn("lies in the future", await tools.refusal("read_at", at="2111-01-01T00:00:00Z"))
            self.assertIn("no session", await tools.refusal("undo", sessions=["nobody"]))
            self.assertIn("--read-only", await tools.refusal("undo", **{"from": "1m-ago"}, dry_run=False))

    async def test_a_server_that_is_down_is_named_and_used_again(self):
        async with fixture.tools(self.server.address, "--timeout", "1") as tools:
            at = (await tools.call("checkpoint"))["at"]
            self.server.stop()
            words = await tools.refusal("checkpoint")
            self.assertIn(self.server.address, words)
            self.assertIn("start the server", words)
            self.server.start()
            self.assertEqual((await tools.call("read_at", at=at))["entries"], [])

    async def test_many_calls_at_once_are_all_answered(self):
        import asyncio

        async with fixture.tools(self.server.address) as tools:
            found = await asyncio.gather(*(tools.call("checkpoint") for _ in range(100)))
            self.assertEqual(len({answer["at"] for answer in found}), 100)


class Turns(Served):
    """An agent's turn is a session: `frieze run --name`."""

    async def test_a_turn_is_undone_by_its_name_by_tool_and_by_command(self):
        turns = [self.agent("turn-1"), self.agent("turn-2"), self.agent("twice"), self.agent("twice")]
        for turn in turns:
            turn.edit("write", f"/{turn.session}", data=b"x")
        async with fixture.tools(self.server.address) as tools:
            listed = (await tools.call("sessions", name="turn-1"))["sessions"]
            self.assertEqual([item["session"] for item in listed], [turns[0].session])
            undone = await tools.call("undo", sessions=["turn-1"], dry_run=False)
            self.assertEqual(undone["left"], 0)
            self.assertIn("2 sessions are named", await tools.refusal("undo", sessions=["twice"]))
        self.assertIn("turn-2", self.server.frieze("sessions").stdout)
        self.assertIn('"name":"turn-2"', self.server.frieze("sessions", "--json", "--name", "turn-2").stdout)
        self.assertIn('"session_name":"turn-2"', self.server.frieze("log", "-R", "--json", "/").stdout)
        self.server.frieze("undo", "--session", "turn-2")
        refused = self.server.frieze("undo", "--session", "twice", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"{turns[2].session} (of ", refused.stderr)
        left = self.server.frieze("ls", "/").stdout.split()
        self.assertEqual(sorted(left), sorted(turn.session for turn in turns[2:]))
        self.assertRegex(self.agents.pop().end(), r"session \d+ ")

    async def test_a_number_or_a_space_cannot_name_a_turn(self):
        for name in ["123", "a b", ""]:
            refused = self.server.frieze("run", "--name", name, "--", "true", check=False)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("cannot name a session", refused.stderr)


class Model:
    """What two agents wrote, byte by byte: who wrote each, and what was there before.

    A byte or name is undone for an agent if its newest version is the agent's; then it is what any other agent, or the
    time before both, made of it last. That is the last version that is not the agent's, in both cases.
    """

    def __init__(self):
        self.shared = {}
        self.files = {"A": {}, "B": {}}

    def share(self, path, data):
        self.shared[path] = [[("", byte)] for byte in data]

    def write(self, agent, path, offset, data):
        for index, byte in enumerate(data):
            self.shared[path][offset + index].append((agent, byte))

    def without(self, agent, path):
        """The bytes of a shared file after an undo of an agent."""
        return bytes([version for version in byte if version[0] != agent][-1][1] for byte in self.shared[path])


class InterleavedAgents(Served):
    """Two agents edit one tree in a random order; one is undone; nothing of the other's is lost."""

    async def test_an_undo_of_one_agent_keeps_the_other_byte_for_byte(self):
        async with fixture.tools(self.server.address) as tools:
            agents = {"A": self.agent("agent-a"), "B": self.agent("agent-b")}
            for seed in range(SEED, SEED + ROUNDS):
                with self.subTest(f"SEED={seed} ROUNDS=1 STEPS={STEPS}"):
                    await self.round(tools, agents, random.Random(seed), f"/{seed}")

    async def round(self, tools, agents, rng, root):
        model, make = Model(), agents["A"].edit
        make("mkdir", root)
        for name in ["shared", "A", "B"]:
            make("mkdir", f"{root}/{name}")
        for number in range(3):
            data = rng.randbytes(SHARED_BYTES)
            make("write", f"{root}/shared/{number}", data=data)
            model.share(f"{root}/shared/{number}", data)
        for agent in "AB":
            for number in range(3):
                path, data = f"{root}/{agent}/old-{number}", rng.randbytes(300)
                make("write", path, data=data)
                model.files[agent][path] = data
        before = dict(model.files["A"])
        at = (await tools.call("checkpoint"))["at"]
        for step in range(STEPS):
            self.step(agents, rng, model, root, step)
        whole = await tools.tree(root)
        plan = await tools.call("undo", sessions=["agent-a"], path=root, **{"from": at})
        self.assertEqual(await tools.tree(root), whole, "a plan changes nothing")
        undone = await tools.call("undo", sessions=["agent-a"], path=root, **{"from": at}, dry_run=False)
        self.assertEqual((undone["changes"], undone["left"]), (plan["changes"], plan["left"]))
        now = await tools.tree(root)
        for path in model.shared:
            self.assertEqual(now.get(path), model.without("A", path), path)
        for path, data in model.files["B"].items():
            self.assertEqual(now.get(path), data, f"{path} is B's")
        # Of A's own files, which B never touched, there is what was there before.
        own = {path: data for path, data in now.items() if path.startswith(f"{root}/A/") and data is not None}
        self.assertEqual(own, {**before, **{path: data for path, data in model.files["B"].items() if path in own}})
        taken_back = await tools.call("undo", **undone["take_back"], dry_run=False)
        self.assertEqual(taken_back["left"], 0)
        self.assertEqual(await tools.tree(root), whole, "the undo is undone")
        # The other way round, with what is left of the first in place.
        await tools.call("undo", sessions=["agent-b"], path=root, **{"from": at}, dry_run=False)
        now = await tools.tree(root)
        for path in model.shared:
            self.assertEqual(now.get(path), model.without("B", path), path)
        for path, data in model.files["A"].items():
            self.assertEqual(now.get(path), data, f"{path} is A's")

    def step(self, agents, rng, model, root, step):
        """One edit by one of the agents."""
        who = rng.choice("AB")
        agent, files = agents[who], model.files[who]
        kind = rng.choice(["shared", "shared", "shared", "new", "whole", "append", "rename", "unlink", "deep"])
        if kind == "shared":
            path = rng.choice(list(model.shared))
            offset = rng.randrange(SHARED_BYTES - 1)
            data = rng.randbytes(rng.randint(1, min(400, SHARED_BYTES - offset)))
            agent.edit("write", path, offset=offset, data=data)
            model.write(who, path, offset, data)
            return
        path = rng.choice(sorted(files)) if files else None
        if kind == "new" or path is None:
            path, data = f"{root}/{who}/new-{step}", rng.randbytes(rng.randint(0, 5000))
            agent.edit("write", path, data=data)
            files[path] = data
        elif kind == "whole":
            files[path] = rng.randbytes(rng.randint(0, 500))
            agent.edit("write", path, whole=True, data=files[path])
        elif kind == "append":
            data = rng.randbytes(rng.randint(1, 200))
            agent.edit("write", path, append=True, data=data)
            files[path] += data
        elif kind == "rename":
            # Into the other agent's directory, too, under a name of one's own.
            to = f"{root}/{rng.choice('AB')}/{who}-renamed-{step}"
            agent.edit("rename", path, to=to)
            files[to] = files.pop(path)
        elif kind == "unlink":
            agent.edit("unlink", path)
            del files[path]
        else:
            # In a directory of the other agent's, which an undo of the other must not take along.
            other = "B" if who == "A" else "A"
            directory = f"{root}/made-by-{other}-{step}"
            agents[other].edit("mkdir", directory)
            data = rng.randbytes(50)
            agent.edit("write", f"{directory}/of-{who}", data=data)
            files[f"{directory}/of-{who}"] = data

    async def test_two_agents_are_undone_at_once(self):
        import asyncio

        agents = {"A": self.agent("agent-a"), "B": self.agent("agent-b")}
        rng = random.Random(SEED)
        async with fixture.tools(self.server.address) as one, fixture.tools(self.server.address) as other:
            agents["A"].edit("write", "/f", data=bytes(1000))
            at = (await one.call("checkpoint"))["at"]
            before = await one.tree()
            for step in range(60):
                who = rng.choice("AB")
                # Each in a half of the file: what both wrote goes back for both only in one undo.
                agents[who].edit("write", "/f", offset=500 * (who == "B") + rng.randrange(400), data=rng.randbytes(100))
                agents[who].edit("write", f"/{who}-{step}", data=b"x")
            calls = [
                tools.call("undo", sessions=[name], **{"from": at}, dry_run=False)
                for tools, name in [(one, "agent-a"), (other, "agent-b")]
            ]
            await asyncio.gather(*calls)
            self.assertEqual(await one.tree(), before)

    async def test_one_undo_of_both_agents_returns_to_the_checkpoint(self):
        agents = [self.agent("agent-a"), self.agent("agent-b")]
        rng = random.Random(SEED)
        async with fixture.tools(self.server.address) as tools:
            agents[0].edit("write", "/f", data=rng.randbytes(1000))
            at = (await tools.call("checkpoint"))["at"]
            before = await tools.tree()
            for step in range(60):
                agent = rng.choice(agents)
                agent.edit("write", "/f", offset=rng.randrange(900), data=rng.randbytes(100))
                agent.edit("write", f"/{step // 2}", whole=True, data=rng.randbytes(20))
            both = {"sessions": ["agent-a", "agent-b"], "from": at, "dry_run": False}
            self.assertEqual((await tools.call("undo", **both))["left"], 0)
            self.assertEqual(await tools.tree(), before)


if __name__ == "__main__":
    unittest.main()
