# One line each: `make help`. What these run is what continuous integration runs.

export PATH := $(HOME)/.cargo/bin:$(PATH)
CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help demo build check test linearizability soak bench

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## install what is missing, build, and show the wave and a rescued directory (under 4 minutes after the build)
	@scripts/demo.sh

build: ## build the frieze command: target/release/frieze
	$(CARGO) build --release --package frieze-cli

check: ## formatting, lints, arrows between crates, tidy rules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) xtask deps
	$(CARGO) xtask tidy

test: ## every test of every crate
	$(CARGO) test --workspace --no-fail-fast

linearizability: ## load on three mounts, and Porcupine over what they saw (needs Go; about 20 s)
	@tests/linearizability/run.sh

soak: ## ten minutes of stress-ng on two mounts of one server (SECONDS_EACH=600; needs stress-ng; not in CI)
	@SECONDS_EACH=$${SECONDS_EACH:-600} tests/soak/run.sh

bench: build ## measure everything beside the machine's ceilings and bench/baselines/ (BENCH=--help for options)
	@scripts/bench.py $(BENCH)
