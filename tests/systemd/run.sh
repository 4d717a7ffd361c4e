#!/usr/bin/env bash
# The units of contrib/systemd under a systemd of their own: in new namespaces, on a copy of this machine's files that goes when they
# end. Needs root, systemd, an overlay file system, /dev/fuse, and the frieze command (FRIEZE, or it is built). About 20 s.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
if [ "${1:-}" != inside ]; then
    if [ -z "${FRIEZE:-}" ]; then
        (cd "$top" && cargo build --quiet --package frieze-cli)
        FRIEZE=${CARGO_TARGET_DIR:-$top/target}/debug/frieze
    fi
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    # systemd ends by a signal on power off.
    FRIEZE=$FRIEZE WORK=$work timeout 180 \
        unshare --pid --mount --cgroup --net --uts --ipc --fork --kill-child "$here/run.sh" inside >"$work/console" 2>&1 || true
    cat "$work/said" 2>/dev/null || true
    grep -qx 'all is well' "$work/said" && exit 0
    tail -20 "$work/console" >&2
    exit 1
fi

mkdir "$WORK/root" "$WORK/layer"
mount -t tmpfs tmpfs "$WORK/layer"
mkdir "$WORK/layer/upper" "$WORK/layer/work"
root=$WORK/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$WORK/layer/upper,workdir=$WORK/layer/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount --rbind /dev "$root/dev"
mkdir "$root/run/systemd"
ip link set lo up

# As docs/operating.md says.
install -m 755 "$FRIEZE" "$root/usr/local/bin/frieze"
mkdir -p "$root/usr/lib/sysusers.d" "$root/etc/systemd/system" "$root/etc/default"
install -m 644 "$top/contrib/systemd/frieze.sysusers" "$root/usr/lib/sysusers.d/frieze.conf"
chroot "$root" systemd-sysusers
install -m 644 "$top"/contrib/systemd/*.service "$root/etc/systemd/system/"
echo 'FRIEZE_OPTIONS=--listen 127.0.0.1:7470 --metrics 127.0.0.1:9470' >"$root/etc/default/frieze"

cat >"$root/etc/systemd/system/look.service" <<'UNIT'
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/bash /look.sh
TimeoutStartSec=150
UNIT
install -m 644 "$here/look.sh" "$root/look.sh"
touch "$WORK/said" "$root/said"
mount --bind "$WORK/said" "$root/said"
# As systemd has it on a machine: what is unmounted goes from the namespaces of all services.
mount --make-rshared "$root"
exec chroot "$root" env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=look.service --log-target=console --show-status=no
