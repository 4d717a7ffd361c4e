# What run.sh has a systemd do with the units: each line says what was looked at.
exec >/said 2>&1
set -uo pipefail
# Whatever is found, this systemd ends.
trap 'systemctl poweroff --force --force' EXIT
is() {
    local what=$1 out
    shift
    if out=$("$@" 2>&1); then
        echo "ok    $what"
    else
        echo "WRONG $what: $*"
        tail -5 <<<"$out"
        systemctl status --no-pager --full frieze frieze-mount@mnt-f | tail -30
        exit 1
    fi
}
within() { # seconds, command
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.1
    done
}
main() { systemctl show --property MainPID --value frieze; }

is 'a server starts and says when it serves' systemctl start frieze
is 'it runs as user frieze' test "$(stat -c %U "/proc/$(main)")" = frieze
is 'its directory is nobody else’s to read' test "$(stat -c '%U %a' /var/lib/frieze)" = 'frieze 711'
is 'root administers it' frieze put /etc/os-release /there
is 'it serves metrics to Prometheus' bash -c 'exec 3<>/dev/tcp/127.0.0.1/9470; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; grep -q ^frieze_ <&3'
is 'a mount starts and is ready when its files are there' systemctl start frieze-mount@mnt-f
is 'the files are there' cmp /etc/os-release /mnt/f/there
is 'they can be written to' bash -c 'echo before >/mnt/f/file && sync /mnt/f/file'
before=$(main)
is 'the server is killed' kill -9 "$before"
is 'it is started again' within 20 bash -c '[ "$(systemctl is-active frieze)" = active ] && [ "$(systemctl show --property MainPID --value frieze)" != '"$before"' ]'
is 'the mount goes on' grep -qx before /mnt/f/file
is 'the mount is stopped' systemctl stop frieze-mount@mnt-f
is 'and gone' bash -c '! mountpoint --quiet /mnt/f'
is 'the server is stopped' systemctl stop frieze
is 'and ended by itself, without an error' test "$(systemctl show --property Result --value frieze)" = success
echo 'FRIEZE_OPTIONS=--no-such-option' >/etc/default/frieze
is 'one whose options are wrong does not start' bash -c '! systemctl start frieze'
# One that is tried again waits for that in state `activating`.
is 'and is not tried again' test "$(systemctl show --property ActiveState --value frieze)" = failed
echo 'all is well'
