# One line each: `make help`. Continuous integration runs the same commands.

export PATH := $(HOME)/.cargo/bin:$(PATH)
CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help demo cluster build install check test fuzz wheel bench-python sanitize hdfs spark hbase films linearizability lab soak kill-cycles long-run services figures bench bench-hdfs libcachesim test-analyze test-python test-pytorch test-fabric test-rdma paper-hbase test-mcp bench-agents test-console bench-console packages test-packages check-rules

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## install what is missing, build, and show the wave and a rescued directory (under 4 minutes after the build)
	@scripts/demo.sh

cluster: build ## three servers on this machine as one cluster, until Enter
	@scripts/cluster.sh

build: ## build the frieze command: target/release/frieze
	$(CARGO) build --release --package frieze-cli

PREFIX ?= /usr/local
install: ## build, and put frieze and frieze-mcp into PREFIX/bin (PREFIX=/usr/local); installs Rust if there is none
	@scripts/bootstrap.sh
	$(MAKE) build
	$(CARGO) build --release --package frieze-mcp
	install -D -m 755 $${CARGO_TARGET_DIR:-target}/release/frieze $(DESTDIR)$(PREFIX)/bin/frieze
	install -D -m 755 $${CARGO_TARGET_DIR:-target}/release/frieze-mcp $(DESTDIR)$(PREFIX)/bin/frieze-mcp

packages: ## out/packages: .deb and .rpm with completion, man pages and units, a bill of materials and SHA256SUMS; out/container: the context of an image
	@scripts/bootstrap.sh --packages
	@scripts/packages.py

check: ## formatting, lints, arrows between crates, tidy rules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) xtask deps
	$(CARGO) xtask tidy

# Fuzz targets play the same inputs in every run of the tests; `make fuzz` draws new ones.
test: export BOLERO_RANDOM_SEED ?= 7470
test: ## Hadoop's own client on a server (where there are a JDK and Maven), the analysis of traces, the Python package, the tools for agents and the console in a browser (where PyPI and npm are), the packages (where a mirror of Debian is), and every test of every crate; the ten slowest in the end (FRIEZE_STRICT=1: a test that would be skipped fails)
	@status=0; \
	tests/hdfs/messages.py --where-possible || status=1; \
	tests/hdfs/run.py --where-possible || status=1; \
	python/test.py --where-possible || status=1; \
	python/wheel_test.py --where-possible || status=1; \
	tests/mcp/run.py --where-possible || status=1; \
	tests/console/run.py --where-possible || status=1; \
	tests/packages/run.py --where-possible || status=1; \
	$(CARGO) xtask test --workspace --no-fail-fast || status=1; \
	exit $$status

test-analyze: ## the analysis of traces: figures of traces made by hand, bad input, Spark beside DuckDB (packages of PyPI; Spark needs a JDK; about 1 min)
	@python/test.py

wheel: ## the Python package: out/wheels/frieze-*.whl, for Python 3.11 and newer (maturin comes from PyPI)
	python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir out/wheels python/frieze

test-python: ## the Python package by its wheel: fsspec's suites, pandas, pyarrow, dask, zarr, DuckDB, forks, bad input (packages of PyPI; about 2 min)
	@python/wheel_test.py

test-pytorch: ## PyTorch's loader with forked workers (3 GB of packages of PyPI; not in CI)
	@python/wheel_test.py --pytorch

bench-python: build ## reads and listings in Python beside the Rust client, in one run (packages of PyPI; about 2 min; not in CI)
	@bench/python.py --frieze target/release/frieze

test-mcp: ## frieze-mcp driven by the official client of the Model Context Protocol: two agents on mounts, one undone (FUSE; packages of PyPI; about 1 min)
	@tests/mcp/run.py

test-console: ## every page of the console in Chromium: by keyboard, at 320 px, without scripts, axe without a finding (Chromium, npm, PyPI; about 2 min)
	@tests/console/run.py

bench-console: build ## slider, weight and first listing of the console beside frieze ls (Chromium, npm, PyPI; about 2 min; not in CI)
	@tests/console/run.py --figures

test-packages: ## the packages of the debug build: installed into clean roots, served, mounted, upgraded and removed; the container (root, FUSE, a mirror of Debian; about 2 min)
	@tests/packages/run.py

check-rules: ## the alerts of contrib/prometheus by promtool, and their examples (package prometheus of Debian)
	cd contrib/prometheus && promtool check rules frieze.rules.yml && promtool test rules frieze.rules.test.yml

fuzz: ## every decoder on hostile bytes, by libFuzzer where there are a nightly toolchain and cargo-bolero (SECONDS=60 each, ONLY=identity; not in CI)
	@scripts/fuzz.py --seconds $(or $(SECONDS),60) $(ONLY)

sanitize: ## unsafe code under AddressSanitizer and Miri (needs a nightly toolchain; about 1 min)
	@scripts/sanitize.sh

hdfs: ## unmodified Hadoop clients, shell and library, and hdfs-native, by hdfs:// and webhdfs://, on servers of their own, and on three of which one is killed (needs a JDK and Maven; about 3 min)
	@tests/hdfs/messages.py
	@tests/hdfs/run.py
	@tests/hdfs/native.py
	@tests/hdfs/webhdfs.py
	@tests/hdfs/failing.py
	@tests/hdfs/contract.py

spark: ## PySpark on a directory that is being written, at a hundred instants, and tables of now and of past instants (needs a JDK; about 2 min)
	@examples/spark/run.py

hbase: ## HBase with all its files on frieze: a load, a kill -9, and its table as it was (needs a JDK and Maven; about 2 min)
	@examples/hbase/run.py

films: ## the films of the wave beside those from snapshots of HDFS itself, and a picture (needs a JDK and Maven; about 2 min)
	@examples/wave/beside_hdfs.py

linearizability: ## load on three mounts, and Porcupine over their histories (needs Go; about 20 s)
	@tests/linearizability/run.sh

lab: ## an hour of faults on three servers under load on three mounts, and Porcupine over it (SECONDS=3600; needs Go; not in CI)
	@tests/linearizability/lab.sh -seconds $(or $(SECONDS),3600)

soak: ## ten minutes of stress-ng on two mounts of one server (SECONDS_EACH=600; needs stress-ng; not in CI)
	@SECONDS_EACH=$${SECONDS_EACH:-600} tests/soak/run.sh

services: ## the units of contrib/systemd under a systemd of their own (needs root and systemd; about 20 s; not in CI)
	@tests/systemd/run.sh

test-fabric: ## the suites of clients and of clusters with payloads by libfabric's provider tcp, instead of TCP (needs libfabric; about 6 min; not in CI)
	FRIEZE_FABRIC=tcp FRIEZE_FABRIC_ADDRESS=127.0.0.1 $(CARGO) test --package frieze-cli --test command --test cluster --test several --test posix -- --skip fabric::

test-rdma: ## RDMA by soft-RoCE in a virtual machine without KVM (TESTS="info kill", WITH_FABRIC=0: by TCP; Debian, x86_64; about 4 min; not in CI)
	@tests/rdma/run.sh $(TESTS)

kill-cycles: ## kill -9 the server under mixed load, CYCLES=500 times, and check every answer that it gave (SEED= for another plan)
	FRIEZE_PATIENCE=600 FRIEZE_KILLS=$(or $(CYCLES),500) FRIEZE_SEED=$(or $(SEED),20261121) $(CARGO) test --release --package frieze-cli --test kill \
		every_answer_to_a_client_holds_after_any_number_of_kills -- --nocapture

long-run: ## 30 minutes of writes and reads of the past with two restarts: memory flat, scrub clean (SECONDS=1800 PACE=1)
	FRIEZE_PATIENCE=600 FRIEZE_SECONDS=$(or $(SECONDS),1800) FRIEZE_PACE=$(or $(PACE),1) $(CARGO) test --release --package frieze-cli --test long -- --nocapture

libcachesim: ## cache policies beside those of libCacheSim, from PyPI in an environment of its own (about 2 min; not in CI)
	@crates/whatif/tests/libcachesim/run.py

paper-hbase: build ## every number of "Analysis of HDFS Under HBase" beside ours (ten minutes; not in CI)
	@bench/papers/hdfs_under_hbase.py --frieze target/release/frieze --out out/paper-hbase

bench-hdfs: build ## the same stock Hadoop client on real HDFS and on frieze, in turn (needs a JDK and Maven; about 10 min)
	@bench/hdfs/run.py --frieze target/release/frieze

bench-agents: build ## checkpoint and undo of one of two agents in 100,000 files, beside git in the same tree (FUSE, git, PyPI; about 10 min; not in CI)
	@bench/agents.py

figures: build ## measure everything on this machine, in one run, and write docs/figures.md and the baselines (FIGURES=--help for options)
	@scripts/bench.py --keep --page --repeat 3 $(FIGURES)

bench: build ## measure everything beside the machine's ceilings and bench/baselines/ (BENCH=--help for options)
	@scripts/bench.py $(BENCH)
