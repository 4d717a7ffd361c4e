#!/usr/bin/env python3
"""Packages of frieze for Debian and for rpm, their bill of materials, and the context of the container image.

    scripts/packages.py                        builds the release and writes out/packages and out/container
    scripts/packages.py --profile debug        of the debug build: quick to make, for the tests
    scripts/packages.py --version 0.2.0        as this version instead of the workspace's
    scripts/packages.py --packages DIR --container DIR

Both packages are made of one staged tree, as `make install` with DESTDIR would fill it, so they have the same files.
The same commit and binaries give the same bytes: every date is that of the last commit (SOURCE_DATE_EPOCH).
Needs dpkg-dev, rpm and binutils (scripts/bootstrap.sh --packages).
"""

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import sbom

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "contrib" / "packages"
BINARIES = {"frieze": "frieze-cli", "frieze-mcp": "frieze-mcp"}
# The administrator edits these: an upgrade keeps them.
CONFIGURATION = ["etc/default/frieze", "etc/default/frieze-mount", "etc/frieze/frieze.toml"]
# Where systemd, mount(8) and shells look. /lib and /sbin are links into /usr on every system that both formats are for.
FILES = {
    "contrib/frieze.toml": "etc/frieze/frieze.toml",
    "contrib/packages/default.frieze": "etc/default/frieze",
    "contrib/packages/default.frieze-mount": "etc/default/frieze-mount",
    "README.md": "usr/share/doc/frieze/README.md",
    "LICENSE": "usr/share/doc/frieze/copyright",
}
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/frieze",
    "zsh": "usr/share/zsh/site-functions/_frieze",
    "fish": "usr/share/fish/vendor_completions.d/frieze.fish",
}
# Levels of xz, which every dpkg and rpm reads: of 46 MB of frieze, level 6 makes 10.9 MB in 26 s, zstd's level 19 makes
# 11.8 MB in 31 s. Packages of the debug build are made to be installed once.
COMPRESSION_LEVEL = {"release": 6, "debug": 0}
# The user of the container image, which no user of the host is likely to be.
CONTAINER_ID = 7470


def run(*command, folder=None):
    """What a program prints; ends with its error if it fails, and drops its warnings if not."""
    # Not for cargo: crates that compile C depend on the variable, and would be compiled again.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(sbom.source_date())}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        said = "\n".join(text.strip() for text in [done.stdout, done.stderr] if text.strip())
        sys.exit(f"packages: {command[0]} failed with exit status {done.returncode}:\n{said}")
    return done.stdout


def needs(*programs):
    """Ends with words if a program is missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        sys.exit(f"packages: {', '.join(missing)} cannot be found: run scripts/bootstrap.sh --packages")


def workspace_version():
    """The version in the root Cargo.toml."""
    found = re.search(r'^\[workspace\.package\]\nversion = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    return found.group(1)


def build(profile):
    """Both binaries of `profile`, brought up to date."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / profile
    release = ["--release"] if profile == "release" else []
    # One by one, as `make test` builds them: together they would share features, and be compiled again.
    for name in BINARIES.values():
        subprocess.run(["cargo", "build", "--quiet", "--locked", *release, "--package", name], cwd=ROOT, check=True)
    return {name: target / name for name in BINARIES}


def write(path, content, mode=0o644):
    """A file of the staged tree, with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)


def zipped(content):
    """The same bytes for the same content: no name and no date in the header."""
    return gzip.compress(content if isinstance(content, bytes) else content.encode(), mtime=0)


def notices():
    """Licences and notices of the crates that are linked, each text once, below the crates that have it."""
    graph = sbom.metadata()
    linked = sbom.linked(graph, sbom.PACKAGES)
    texts = {}
    for package in graph["packages"]:
        if package["id"] not in linked or package["source"] is None:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        files = [path for path in folder.iterdir() if re.match(r"(licen[cs]e|copying|notice)", path.name.lower())]
        for path in sorted(path for path in files if path.is_file()):
            crates = texts.setdefault(path.read_text(errors="replace").strip(), set())
            crates.add(f"{package['name']} {package['version']} ({package['license']})")
    parts = [f"{', '.join(sorted(crates))}\n\n{text}\n" for text, crates in texts.items()]
    return f"\n{'=' * 80}\n".join(sorted(parts))


def stage(tree, binaries, epoch):
    """Fills `tree` with every file of the packages."""
    for name, path in binaries.items():
        installed = tree / "usr/bin" / name
        installed.parent.mkdir(parents=True, exist_ok=True)
        # Names of functions stay, for backtraces.
        run("strip", "--strip-debug", "-o", installed, path)
        installed.chmod(0o755)
    frieze = tree / "usr/bin/frieze"
    for source, target in FILES.items():
        write(tree / target, (ROOT / source).read_bytes())
    write(tree / "usr/sbin/mount.fuse.frieze", (ROOT / "contrib/mount.fuse.frieze").read_bytes(), 0o755)
    for unit in sorted((ROOT / "contrib/systemd").glob("*.service")):
        # An administrator's copy in /usr/local is not of the package.
        text = unit.read_text().replace("/usr/local/bin/", "/usr/bin/")
        write(tree / "usr/lib/systemd/system" / unit.name, text)
    for shell, target in COMPLETIONS.items():
        write(tree / target, run(frieze, "completion", shell))
    with tempfile.TemporaryDirectory() as folder:
        run(frieze, "man", "--dir", folder)
        for page in sorted(pathlib.Path(folder).iterdir()):
            write(tree / "usr/share/man/man1" / f"{page.name}.gz", zipped(page.read_bytes()))
    documents = tree / "usr/share/doc/frieze"
    write(documents / "CHANGELOG.md.gz", zipped((ROOT / "CHANGELOG.md").read_bytes()))
    write(documents / "third-party-licenses.gz", zipped(notices()))
    for path in [tree, *tree.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (epoch, epoch))


def files_of(tree):
    """Every file of a tree, from its root, in order."""
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir())


def filled(name, **values):
    """A file of contrib/packages with its @NAMES@ replaced."""
    text = (SOURCES / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def libraries(tree):
    """Packages of Debian that the binaries load libraries of, as `libc6 (>= 2.34), ...`."""
    with tempfile.TemporaryDirectory() as folder:
        # dpkg-shlibdeps asks for the sources of a package.
        write(pathlib.Path(folder) / "debian/control", "Source: frieze\n\nPackage: frieze\nArchitecture: any\n")
        binaries = [f"-e{tree / 'usr/bin' / name}" for name in BINARIES]
        needed = run("dpkg-shlibdeps", "-O", *binaries, folder=folder)
    return needed.strip().removeprefix("shlibs:Depends=")


def deb(tree, folder, version, level):
    """The package for Debian and Ubuntu."""
    architecture = run("dpkg", "--print-architecture").strip()
    package = folder / f"frieze_{version}_{architecture}.deb"
    size = sum(-(-(tree / name).stat().st_size // 1024) for name in files_of(tree))
    sums = "".join(f"{hashlib.md5((tree / name).read_bytes()).hexdigest()}  {name}\n" for name in files_of(tree))
    with tempfile.TemporaryDirectory() as copy:
        copy = pathlib.Path(copy) / "tree"
        shutil.copytree(tree, copy)
        control = filled(
            "control", VERSION=version, ARCHITECTURE=architecture, INSTALLED_KIB=size, LIBRARIES=libraries(tree)
        )
        write(copy / "DEBIAN/control", control)
        write(copy / "DEBIAN/conffiles", "".join(f"/{name}\n" for name in CONFIGURATION))
        write(copy / "DEBIAN/md5sums", sums)
        for script in ["postinst", "prerm", "postrm"]:
            write(copy / "DEBIAN" / script, (SOURCES / script).read_bytes(), 0o755)
        # One thread: the number of threads changes the bytes.
        run("dpkg-deb", "--root-owner-group", "-Zxz", f"-z{level}", "--threads-max=1", "--build", copy, package)
    return package


def listed(name):
    """A file of the tree as a line of %files."""
    if name in CONFIGURATION:
        # After the installation the server's group may read the settings.
        return f"%attr(0644, root, root) %config(noreplace) %verify(not mode group) /{name}"
    kind = "%doc " if name.startswith(("usr/share/doc/", "usr/share/man/")) else ""
    mode = "0755" if name.startswith(("usr/bin/", "usr/sbin/")) else "0644"
    return f"%attr({mode}, root, root) {kind}/{name}"


def rpm(tree, folder, version, level):
    """The package for Fedora, RHEL and openSUSE."""
    directories = ["etc/frieze", "usr/share/doc/frieze"]
    files = [f"%dir %attr(0755, root, root) /{name}" for name in directories]
    files += [listed(name) for name in files_of(tree)]
    with tempfile.TemporaryDirectory() as top:
        spec = pathlib.Path(top) / "frieze.spec"
        payload = f"w{level}.xzdio"
        names = {"STAGE": tree, "SCRIPTS": SOURCES, "FILES": "\n".join(files)}
        write(spec, filled("frieze.spec", VERSION=version, PAYLOAD=payload, **names))
        file = f"frieze-{version}-1.{platform.machine()}.rpm"
        defines = {"_topdir": top, "_rpmdir": folder, "_rpmfilename": file}
        options = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
        run("rpmbuild", "-bb", "--quiet", *options, spec)
    return folder / file


def loaded(binary):
    """Libraries that the system's loader maps into `binary`, the loader included."""
    return sorted(set(re.findall(r"(/\S+) \(0x", run("ldd", binary))))


def container(tree, folder):
    """The context of contrib/container/Containerfile: root/ and state/."""
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "root"
    shutil.copytree(ROOT / "contrib/container", folder)
    write(root / "usr/bin/frieze", (tree / "usr/bin/frieze").read_bytes(), 0o755)
    for library in loaded(root / "usr/bin/frieze"):
        write(root / library.lstrip("/"), pathlib.Path(library).read_bytes(), 0o755)
    # glibc 2.34 and newer reads files and asks DNS without a library of its own.
    write(root / "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    users = f"root:x:0:0:root:/:/usr/bin/frieze\nfrieze:x:{CONTAINER_ID}:{CONTAINER_ID}:frieze:/:/usr/bin/frieze\n"
    write(root / "etc/passwd", users)
    write(root / "etc/group", f"root:x:0:\nfrieze:x:{CONTAINER_ID}:\n")
    for name in ["copyright", "third-party-licenses.gz"]:
        write(root / "usr/share/doc/frieze" / name, (tree / "usr/share/doc/frieze" / name).read_bytes())
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (folder / "state/frieze").mkdir(parents=True)


def sums(folder):
    """SHA256SUMS of the files of a folder."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(lines))


def make(profile, version, packages, context, quiet=False):
    """Writes everything; the folder `packages` has nothing else afterwards."""
    needs("cargo", "strip", "ldd", "dpkg-deb", "dpkg-shlibdeps", "rpmbuild")
    epoch = sbom.source_date()
    os.umask(0o022)
    binaries = build(profile)
    shutil.rmtree(packages, ignore_errors=True)
    packages.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        stage(tree, binaries, epoch)
        level = COMPRESSION_LEVEL[profile]
        deb(tree, packages, version, level)
        rpm(tree, packages, version, level)
        container(tree, context)
    bill = json.dumps(sbom.document(sbom.PACKAGES), indent=1) + "\n"
    (packages / f"frieze-{version}.cdx.json").write_text(bill)
    sums(packages)
    for path in [] if quiet else sorted(packages.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path}")


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=sorted(COMPRESSION_LEVEL), default="release")
    parser.add_argument("--version", default=workspace_version())
    parser.add_argument("--packages", type=pathlib.Path, default=ROOT / "out/packages", metavar="DIR")
    parser.add_argument("--container", type=pathlib.Path, default=ROOT / "out/container", metavar="DIR")
    given = parser.parse_args()
    # What both formats accept: rpm has no `-` in a version.
    if not re.fullmatch(r"[0-9][A-Za-z0-9.+~]*", given.version):
        sys.exit(f"packages: {given.version!r} is no version of a package: digits first, then letters, digits, '.+~'")
    make(given.profile, given.version, given.packages.resolve(), given.container.resolve())


if __name__ == "__main__":
    main()
