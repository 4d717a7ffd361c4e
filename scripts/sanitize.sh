#!/usr/bin/env bash
# The tests of all crates with `unsafe` code, under what finds its faults.
#
#   crates/disk, crates/net,  AddressSanitizer: their unsafe code is system calls and shared mappings, which Miri has not
#   crates/trace
#   crates/fabric             AddressSanitizer, without leaks: libfabric keeps what it made until the process ends
#   crates/harness            Miri: an allocator
#   crates/python             not here: python/wheel_test.py runs under Python's debug hooks, which put guard bytes around
#                             every object and buffer and check them when it is freed
#   crates/cli                one name that the allocator looks for, and variables that are set before any thread runs
#
# Needs a nightly toolchain; Miri needs its components miri and rust-src (`rustup component add --toolchain nightly miri rust-src`).
# A part that cannot run says so, and fails if FRIEZE_STRICT is set (tags nightly, miri).
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_INCREMENTAL=0
if ! cargo +nightly --version >/dev/null 2>&1; then
    scripts/requirements.py nightly "a nightly toolchain" "rustup toolchain install nightly --component miri --component rust-src"
    exit 0
fi
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
# Everything with unsafe code of ours is listed above: a crate that is not fails here.
found=$(grep -rlE '\bunsafe (\{|impl|fn|extern)' crates --include='*.rs' | cut -d/ -f2 | sort -u | tr '\n' ' ')
[ "$found" = "cli disk fabric harness net python trace " ] || { echo "sanitize: unsafe code in crates/{${found% }}: add its tests to scripts/sanitize.sh" >&2; exit 1; }

echo "sanitize: crates/disk, crates/net and crates/trace under AddressSanitizer"
# The target is named so that build scripts and macros stay as they are. Leaks are looked for as well.
RUSTFLAGS="-Zsanitizer=address" RUSTDOCFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitize" \
    cargo +nightly test --quiet --target "$host" --package frieze-disk --package frieze-net --package frieze-trace --lib --tests

echo "sanitize: crates/fabric under AddressSanitizer"
ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS="-Zsanitizer=address" RUSTDOCFLAGS="-Zsanitizer=address" \
    CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitize" \
    cargo +nightly test --quiet --target "$host" --package frieze-fabric --lib --tests

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    scripts/requirements.py miri "Miri" "rustup component add --toolchain nightly miri rust-src"
    exit 0
fi
echo "sanitize: crates/harness under Miri"
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri" cargo +nightly miri test --quiet --package frieze-harness --lib allocations
