"""A real server on loopback, in a scratch directory, for all tests of a run; `FRIEZE` names the command."""

import json
import os
import subprocess

import pytest

import frieze

READY_S = 30


class Served:
    """A server and its address. It ends with the run, by its process."""

    def __init__(self, scratch, listen="127.0.0.1:0"):
        self.log = scratch / "serve.log"
        command = [os.environ["FRIEZE"], "serve", "--json", "--dir", scratch / "data", "--listen", listen]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        ready = self.process.stdout.readline()
        if not ready:
            raise RuntimeError(f"the server does not start:\n{self.log.read_text()[-4000:]}")
        self.address = json.loads(ready)["addresses"][0]

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=READY_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("served"))
    os.environ["FRIEZE_SERVER"] = served.address
    os.environ["FRIEZE_CLIENT"] = ""
    yield served
    served.end()


@pytest.fixture(scope="session")
def fs(served):
    fs = frieze.connect(served.address)
    fs.makedirs("/doc")
    return fs


@pytest.fixture
def place(fs, request):
    """A directory of the test's own."""
    path = "/" + request.node.nodeid.rpartition("::")[2].replace("/", "-")
    fs.makedirs(path)
    return path
