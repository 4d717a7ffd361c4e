#!/bin/sh
# Servers of one cluster (three, or -servers 5 -copies 3) with a mount of each; one after the other is killed, paused, cut off or made slow, while programs on
# the mounts work; the checker holds what they saw to one order, and cuts to causal order. Needs Go, /dev/fuse, and the frieze
# command (FRIEZE, or it is built). Arguments go to the checker: -seconds 3600 -round 25 -workers 2 -seed 1.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${FRIEZE:-}" ]; then
    (cd "$here/../.." && cargo build --quiet --package frieze-cli)
    FRIEZE=${CARGO_TARGET_DIR:-$here/../../target}/debug/frieze
fi
work=$(mktemp -d)
(cd "$here" && go build -o "$work/checker" .)
mkdir "$work/cluster"
"$work/checker" -frieze "$FRIEZE" -directory "$work/cluster" "$@"
rm -rf --one-file-system "$work"
