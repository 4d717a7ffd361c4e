#!/usr/bin/env bash
# Three servers on this machine, which are one cluster, until Enter or Ctrl-C.
#
#   scripts/cluster.sh          on ports 7471 to 7473, in a new directory that is removed when they end
set -euo pipefail
cd "$(dirname "$0")/.."

frieze=target/release/frieze
directory=$(mktemp -d "${TMPDIR:-/tmp}/frieze-cluster.XXXXXX")
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$directory"
}
trap finish EXIT

for number in 1 2 3; do
    join=()
    [ "$number" -gt 1 ] && join=(--join 127.0.0.1:7471)
    "$frieze" serve --dir "$directory/$number" --listen "127.0.0.1:747$number" --name "db$number" --memory 512 "${join[@]}" \
        >"$directory/$number.out" 2>"$directory/$number.log" &
    pids+=($!)
    for _ in $(seq 300); do
        grep -q ready "$directory/$number.out" && break
        kill -0 "${pids[-1]}" 2>/dev/null || { cat "$directory/$number.log" >&2; exit 1; }
        sleep 0.1
    done
done
for _ in $(seq 300); do
    "$frieze" --server 127.0.0.1:7473 cluster | grep -q "servers  3: 3 up" &&
        "$frieze" --server 127.0.0.1:7473 cluster chains --json | python3 -c '
import json, sys
chains = [json.loads(line) for line in sys.stdin]
sys.exit(not all(sum(t["state"] == "serving" for t in chain["targets"]) == 3 for chain in chains))' && break
    sleep 0.1
done
"$frieze" --server 127.0.0.1:7471 cluster
echo
"$frieze" --server 127.0.0.1:7471 cluster nodes
echo
echo "try:  target/release/frieze --server 127.0.0.1:7472 put README.md /"
echo "      kill -9 ${pids[0]}    and: target/release/frieze --server 127.0.0.1:7473 cluster nodes"
[ -t 0 ] && read -r -p "Enter ends them: " _
exit 0
