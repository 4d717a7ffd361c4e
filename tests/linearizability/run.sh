#!/bin/sh
# One server, three mounts of it, load on all, and the checker over what was recorded. Needs Go, /dev/fuse, and the frieze
# command (FRIEZE, or it is built). Arguments go to the checker: -seconds 10 -workers 2 -seed 1.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${FRIEZE:-}" ]; then
    (cd "$here/../.." && cargo build --quiet --package frieze-cli)
    FRIEZE=${CARGO_TARGET_DIR:-$here/../../target}/debug/frieze
fi
work=$(mktemp -d)
mounts="$work/one,$work/two,$work/three"
cleanup() {
    for mount in one two three; do
        "$FRIEZE" umount --lazy "$work/$mount" 2>/dev/null || true
    done
    [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT INT TERM
(cd "$here" && go build -o "$work/checker" .)
"$FRIEZE" serve --dir "$work/data" --listen "unix:$work/socket" >"$work/ready" &
server=$!
until [ -s "$work/ready" ]; do sleep 0.05; done
for mount in one two three; do
    mkdir "$work/$mount"
    "$FRIEZE" --quiet --server "unix:$work/socket" mount "$work/$mount"
done
"$work/checker" -mounts "$mounts" "$@"
