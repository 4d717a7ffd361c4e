"""Analysis of frieze traces: tables, pictures and words from the events of a file system.

`python -m frieze_traces TRACE... --out OUT` is the command; `pipeline.analyze` is the same as a function.
The format of a trace is in `contract`, each stage is a pure function of Ibis tables in `stages`.
"""

VERSION = "0.1.0"
