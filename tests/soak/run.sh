#!/bin/bash
# One server, two mounts of it, and stress-ng's file stressors on both, in one tree, for SECONDS_EACH (300) seconds: nothing
# hangs, the server says nothing of errors, and in the end both mounts show one tree, now and at an instant in the middle.
# Needs stress-ng, /dev/fuse, and the frieze command (FRIEZE, or it is built). Not part of continuous integration.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seconds=${SECONDS_EACH:-300}
# Longest time that a small call may take on a mount that is under load, seconds.
stall_s=${STALL_S:-60}
if [ -z "${FRIEZE:-}" ]; then
    (cd "$here/../.." && cargo build --quiet --package frieze-cli)
    FRIEZE=${CARGO_TARGET_DIR:-$here/../../target}/debug/frieze
fi
work=$(mktemp -d)
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for mount in one two; do "$FRIEZE" umount --lazy "$work/$mount" >/dev/null 2>&1 || true; done
    [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT INT TERM
fail() { printf 'soak: %s\n' "$*" >&2; exit 1; }

"$FRIEZE" serve --dir "$work/data" --listen "unix:$work/socket" >"$work/ready" 2>"$work/server.log" &
server=$!
until [ -s "$work/ready" ]; do kill -0 "$server" || fail "the server does not start"; sleep 0.05; done
for mount in one two; do
    mkdir "$work/$mount"
    "$FRIEZE" --quiet --server "unix:$work/socket" mount "$work/$mount" >/dev/null
done
mkdir "$work/one/shared" "$work/one/left" "$work/one/right"

# Stressors of files, names, attributes and locks. Each makes a directory of its own below the path it is given, so what
# both mounts have in common is worked on by the loop further down.
stressors=(access chmod chown copy-file dentry dir dirdeep fallocate fcntl filename fiemap flock fpunct hdd link lockf
    mknod open rename seek symlink touch utime xattr)
# Those that this stress-ng knows.
known=$(stress-ng --stressors)
options=()
for stressor in "${stressors[@]}"; do
    case " $known " in *" $stressor "*) options+=("--$stressor" 1) ;; esac
done
for place in one/left one/shared two/right two/shared; do
    # Refusals (a full table, a missing right) are part of stress; what counts is below.
    stress-ng --temp-path "$work/$place" --timeout "${seconds}s" --hdd-bytes 4m --fallocate-bytes 4m \
        --copy-file-bytes 4m --seek-size 4m --fpunch-bytes 4m "${options[@]}" >"$work/stress-${place/\//-}.log" 2>&1 &
    pids+=($!)
done

# Both mounts on the same names.
churn() {
    local root=$1 end=$((SECONDS + seconds)) name
    cd "$root/shared"
    while [ "$SECONDS" -lt "$end" ]; do
        name=$((RANDOM % 20))
        case $((RANDOM % 7)) in
            0) mkdir -p "d$name" ;;
            1) echo "$RANDOM $root" >>"f$name" ;;
            2) mv -f "f$name" "d$((RANDOM % 20))/" ;;
            3) rm -rf "d$name" ;;
            4) truncate -s $((RANDOM)) "f$name" ;;
            5) cat -- f* ;;
            6) ls -lR . ;;
        esac >/dev/null 2>&1 || true
    done
}
churn "$work/one" & pids+=($!)
churn "$work/two" & pids+=($!)

# The stall detector: a small call on either mount ends in time.
started=$SECONDS middle="" slowest=0
while [ $((SECONDS - started)) -lt "$seconds" ]; do
    for mount in one two; do
        before=$(date +%s%N)
        timeout -k 5 "$stall_s" sh -c "echo here >'$work/$mount/probe-$mount' && cat '$work/one/probe-$mount' '$work/two/probe-$mount' && ls '$work/$mount/shared'" >/dev/null ||
            fail "mount $mount did not answer within $stall_s s after $((SECONDS - started)) s: $work/server.log: $(tail -n 5 "$work/server.log")"
        took=$((($(date +%s%N) - before) / 1000000))
        [ "$took" -le "$slowest" ] || slowest=$took
    done
    kill -0 "$server" || fail "the server is gone: $(tail -n 5 "$work/server.log")"
    if [ -z "$middle" ] && [ $((SECONDS - started)) -ge $((seconds / 2)) ]; then
        middle=$("$FRIEZE" --server "unix:$work/socket" now --json | sed -n 's/.*"\(hlc-[0-9a-f]*\)".*/\1/p' | head -n 1)
    fi
    sleep 1
done
# Stressors end by themselves; what does not end hangs.
for pid in "${pids[@]}"; do
    for _ in $(seq $((stall_s * 2))); do kill -0 "$pid" 2>/dev/null || break; sleep 1; done
    ! kill -0 "$pid" 2>/dev/null || fail "process $pid ($(ps -o args= -p "$pid" | head -c 200)) does not end"
done
pids=()

# The same tree on both: names, kinds, modes, lengths, links, and bytes.
tree() {
    (cd "$1" && find . -printf '%p %y %m %s %n %l\n' | sort && find . -type f -print0 | sort -z | xargs -0 -r sha256sum)
}
[ -n "$middle" ] || fail "no instant in the middle"
for path in "" "/.at/$middle"; do
    tree "$work/one$path" >"$work/tree-one"
    tree "$work/two$path" >"$work/tree-two"
    cmp "$work/tree-one" "$work/tree-two" || fail "the mounts show different trees at ${path:-now}"
    printf 'soak: %s entries and files are the same on both mounts at %s\n' "$(wc -l <"$work/tree-one")" "${path:-now}"
done
! grep -iE 'panic|error|corrupt|read-only' "$work/server.log" || fail "the server spoke of errors"
"$FRIEZE" --server "unix:$work/socket" status | grep -qi healthy || fail "the server is not healthy"
printf 'soak: %s s, slowest probe %s ms\n' "$seconds" "$slowest"
