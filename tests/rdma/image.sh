#!/usr/bin/env bash
# Builds what the guest of run.sh boots: OUT/kernel, which is kept, and OUT/image, which is new in every run.
#
#   tests/rdma/image.sh OUT FRIEZE [UNIT...]      UNIT: executables with unit tests
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "$1" && pwd) frieze=$2
shift 2

fail() { printf 'rdma: %s\n' "$*" >&2; exit 1; }

# rdma_rxe asks the kernel for crc32 by name: crc32_generic is no dependency of the module. A server reads the user of a
# connection over loopback from tcp_diag, which the guest cannot load on demand.
modules="crc32_generic crc32c_generic dummy rdma_rxe ib_uverbs rdma_ucm sch_netem tcp_diag"
kernel=$out/kernel
if [ "$(cat "$kernel/wanted" 2>/dev/null)" != "$modules" ]; then
    # The package of the standard kernel: Debian's kernel for clouds has no rdma_rxe. The script does not install it.
    package=$(apt-cache depends linux-image-amd64 | awk '/Depends:/ && !known++ { print $2 }') || true
    [ -n "$package" ] || fail "apt has no linux-image-amd64: this test takes its kernel from Debian"
    echo "rdma: downloading $package"
    part=$out/kernel.part
    rm -rf "$part" "$kernel"
    mkdir -p "$part/files"
    # apt-get compares the package with the signed list. It runs as this user: its own user cannot write here.
    (cd "$part" && apt-get -qq -o APT::Sandbox::User=root download "$package") ||
        fail "apt-get could not download $package; if its list is old, run apt-get update"
    dpkg-deb -x "$part/$package"_*.deb "$part/files"
    version=$(ls "$part/files/lib/modules")
    depmod -b "$part/files" "$version"
    cp "$part/files/boot/vmlinuz-$version" "$part/vmlinuz"
    for module in $modules; do
        modprobe -d "$part/files" -S "$version" --show-depends "$module"
    done | awk '$1 == "insmod" && !known[$2]++ { print $2 }' >"$part/paths"
    mkdir "$part/modules"
    while read -r path; do
        cp "$path" "$part/modules/"
        basename "$path"
    done <"$part/paths" >"$part/modules/order"
    rm -rf "$part/files" "$part"/*.deb "$part/paths"
    # The last file: without it the next run begins anew.
    printf '%s\n' "$modules" >"$part/wanted"
    mv "$part" "$kernel"
fi

root=$out/root
rm -rf "$root"
mkdir -p "$root"/{dev,etc/libibverbs.d,proc,sys,tmp,units}

# put FILE PATH: copies a library or a program to PATH of the image, and the libraries that it is linked with to their
# own paths.
put() {
    install -D "$1" "$root$2"
    { ldd "$1" 2>/dev/null || true; } | { grep -oE '/[^ ]+' || true; } | while read -r library; do
        [ -e "$root$library" ] || install -D "$library" "$root$library"
    done
}
put "$(command -v busybox)" /bin/busybox
for applet in $("$root/bin/busybox" --list); do
    [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
done
for program in tc rdma ibv_devinfo rping fi_info fi_pingpong; do
    put "$(command -v "$program")" "/usr/bin/$program"
done
# No package of Debian has fabtests.
if fabtest=$(command -v fi_rma_bw); then put "$fabtest" /usr/bin/fi_rma_bw; fi
put "$frieze" /usr/bin/frieze
for unit in "$@"; do put "$unit" "/units/$(basename "$unit")"; done

# Libraries that are opened at run time, which ldd does not name: libfabric by frieze, the driver of rxe by libibverbs,
# libgcc_s by a thread that ends with pthread_exit.
cached() { ldconfig -p | awk -v name="$1" '$1 == name && /x86-64/ && !known++ { print $NF }'; }
for name in libfabric.so.1 libgcc_s.so.1; do
    library=$(cached $name)
    [ -n "$library" ] || fail "ldconfig does not know $name"
    put "$library" "$library"
done
driver=$(echo /usr/lib/*/libibverbs/librxe-rdmav*.so)
[ -e "$driver" ] || fail "librxe-rdmav*.so is missing (package ibverbs-providers)"
put "$driver" "$driver"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"

echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
echo 'hosts: files' >"$root/etc/nsswitch.conf"
cp -r "$kernel/modules" "$root/modules"
install -m 755 "$here/init" "$root/init"
install -m 644 "$here/tests.sh" "$root/tests.sh"
(cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | zstd -q -3) >"$out/image"
