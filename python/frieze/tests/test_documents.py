"""The examples of the docstrings, and the Python blocks of the documents, run as they stand."""

import doctest
import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULES = ["frieze", "frieze.changes", "frieze.filesystem", "frieze.fsspec", "frieze.instants", "frieze.watch"]


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_give_what_they_say(module, fs):
    given = {"getfixture": lambda name: {"fs": fs}[name]}
    failed, tried = doctest.testmod(importlib.import_module(module), extraglobs=given, report=True)
    assert failed == 0, "the output above names the example"
    assert tried > 0


@pytest.mark.parametrize("document", ["README.md", "docs/python.md"])
def test_python_blocks_of_documents_run(document, fs):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    # README.md has another one, for Spark, which tests/hdfs runs.
    blocks = [block for block in blocks if "spark" not in block]
    assert blocks, f"{document} has no block of Python"
    names = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, document, "exec"), names)
    if document == "README.md":
        assert fs.read_text("/t.csv") == "a\n1\n2\n"
