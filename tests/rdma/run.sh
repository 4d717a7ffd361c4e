#!/usr/bin/env bash
# Tests over RDMA on a machine without RDMA: QEMU (no KVM) boots a Debian kernel with soft-RoCE (rdma_rxe) and an image
# that has frieze, libfabric and tests.sh. The guest has no disk and no network beyond itself.
#
#   tests/rdma/run.sh                     every test
#   tests/rdma/run.sh info kill           these tests
#   WITH_FABRIC=0 tests/rdma/run.sh       servers and clients of put-get, kill and netem move bytes by TCP
#
# Installs missing packages (Debian 12). Uses FRIEZE, or builds the command. Ends after TIMEOUT_S, by default 1200 s.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$top/target}
out=$target/rdma
with_fabric=${WITH_FABRIC:-1}
timeout_s=${TIMEOUT_S:-1200}
# modprobe, ldconfig and tc are in /usr/sbin, which is not in the path of every user.
export PATH=$PATH:/usr/sbin:/sbin

fail() { printf 'rdma: %s\n' "$*" >&2; exit 1; }

# Names in tests.sh have a _ where the names of tests have a -.
tests=$(sed -n 's/^test_\([a-z_]*\)() {.*/\1/p' "$here/tests.sh" | tr _ -)
for name in "$@"; do
    grep -qx -- "$name" <<<"$tests" || fail "there is no test $name; the tests are $(xargs <<<"$tests")"
done
# shellcheck disable=SC2086  # one word a name
[ $# -gt 0 ] || set -- $tests
[ "$(uname -m)" = x86_64 ] || fail "the guest has the libraries of this machine and an x86_64 kernel: it needs x86_64"

"$top/scripts/bootstrap.sh" --rdma
[ -z "${FRIEZE:-}" ] || FRIEZE=$(realpath "$FRIEZE")
cd "$top"
if [ -z "${FRIEZE:-}" ]; then
    cargo build --quiet --release --package frieze-cli
    FRIEZE=$target/release/frieze
fi
units=()
if [ -e crates/fabric/Cargo.toml ] && [[ " $* " == *" units "* ]]; then
    messages=$(cargo test --package frieze-fabric --release --no-run --message-format=json-render-diagnostics)
    mapfile -t units < <(python3 -c '
import json, sys
for message in map(json.loads, sys.stdin):
    if message.get("executable") and message["profile"]["test"]:
        print(message["executable"])' <<<"$messages")
    [ ${#units[@]} -gt 0 ] || fail "cargo names no test executable of frieze-fabric"
fi
mkdir -p "$out"
"$here/image.sh" "$out" "$FRIEZE" "${units[@]}"

# The kernel passes parameters that it does not know to init as environment variables. A panic ends QEMU (-no-reboot).
# `max` has RDRAND, which seeds the kernel's generator: without it, reads of random bytes wait.
parameters="console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on"
parameters+=" TESTS=$(IFS=,; echo "$*") WITH_FABRIC=$with_fabric"
code=0
timeout --kill-after 5 "$timeout_s" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 2048 \
    -nic none -display none -monitor none -serial stdio -no-reboot \
    -kernel "$out/kernel/vmlinuz" -initrd "$out/image" -append "$parameters" </dev/null |
    sed -u 's/\r//g' | tee "$out/console" || code=$?
[ $code -ne 124 ] || fail "the guest did not end within $timeout_s s"
[ $code -eq 0 ] || fail "QEMU ended with code $code"
grep -qx 'RESULT ok' "$out/console" || fail "the guest did not print RESULT ok; its output is in $out/console"
