#!/usr/bin/env bash
# Runs a command beside a MooseFS on this machine: {} in it becomes a directory of its mount.
#
#   scripts/peer-moosefs.sh target/release/frieze bench mount --ops 4000 --peer {}
#
# Needs root, /dev/fuse and the packages moosefs-master, moosefs-chunkserver and moosefs-client (Debian, Ubuntu). Master, one
# chunk server (one copy of everything) and mount live in a network namespace and a temporary directory of their own, and end
# with the command.
set -euo pipefail

fail() { printf 'peer-moosefs: %s\n' "$*" >&2; exit 1; }
[ $# -gt 0 ] || fail "what is to be run? See the head of this file"
[ "$(id -u)" = 0 ] || fail "a network namespace and a mount need root"
for program in mfsmaster mfschunkserver mfsmount ip nsenter; do
    command -v "$program" >/dev/null || fail "$program is missing (packages moosefs-master, moosefs-chunkserver, moosefs-client, iproute2)"
done

# MooseFS does not talk to itself by 127.0.0.1.
address=10.97.0.1
space="frieze-peer-$$"
work=$(mktemp -d)
mkdir "$work"/{master,chunks,disk,mount}

end() {
    set +e
    mountpoint -q "$work/mount" && umount "$work/mount"
    mfschunkserver -c "$work/chunkserver.cfg" stop >/dev/null 2>&1
    mfsmaster -c "$work/master.cfg" stop >/dev/null 2>&1
    ip netns delete "$space" 2>/dev/null
    rm -rf "$work"
}
trap end EXIT

printf 'MFSM NEW' > "$work/master/metadata.mfs"
echo '* / rw,alldirs,admin,maproot=0:0' > "$work/exports.cfg"
: > "$work/topology.cfg"
echo "$work/disk" > "$work/disks.cfg"
cat > "$work/master.cfg" <<CFG
WORKING_USER=root
WORKING_GROUP=root
DATA_PATH=$work/master
EXPORTS_FILENAME=$work/exports.cfg
TOPOLOGY_FILENAME=$work/topology.cfg
MATOML_LISTEN_HOST=$address
MATOCS_LISTEN_HOST=$address
MATOCL_LISTEN_HOST=$address
CFG
cat > "$work/chunkserver.cfg" <<CFG
WORKING_USER=root
WORKING_GROUP=root
DATA_PATH=$work/chunks
MASTER_HOST=$address
CSSERV_LISTEN_HOST=$address
HDD_CONF_FILENAME=$work/disks.cfg
CFG

ip netns add "$space"
ip -n "$space" link set lo up
ip -n "$space" address add "$address/32" dev lo
inside() { nsenter --net="/run/netns/$space" "$@"; }
{
    inside mfsmaster -c "$work/master.cfg" start
    inside mfschunkserver -c "$work/chunkserver.cfg" start
} >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "MooseFS does not start"; }
# The chunk server registers with the master within some seconds; until then nothing can be written.
for _ in $(seq 60); do
    mountpoint -q "$work/mount" || inside mfsmount "$work/mount" -H "$address" >>"$work/log" 2>&1 || true
    mkdir -p "$work/mount/peer" 2>/dev/null && echo ready 2>/dev/null > "$work/mount/peer/.ready" && break
    sleep 0.5
done
[ -s "$work/mount/peer/.ready" ] || { cat "$work/log" >&2; fail "the mount of MooseFS cannot be written to"; }
mfssetgoal -r 1 "$work/mount" >>"$work/log" 2>&1 || true

"${@//\{\}/$work/mount/peer}"
