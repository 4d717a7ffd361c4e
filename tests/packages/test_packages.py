"""What the packages promise; run.py makes the clean root, and runs these tests."""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import packages  # noqa: E402

CLEAN = pathlib.Path(os.environ["FRIEZE_CLEAN_ROOT"])
# The packages of this commit, made again, and of a later version whose settings have another default.
MADE, AGAIN, NEWER = (CLEAN.parent / name for name in ["made", "again", "newer"])
VERSION = packages.workspace_version()
NEWER_VERSION = "99.0"
DATA = "var/lib/frieze"


def setUpModule():
    """Makes all packages that the tests read."""
    packages.make("debug", VERSION, MADE / "packages", MADE / "container", quiet=True)
    packages.make("debug", VERSION, AGAIN / "packages", AGAIN / "container", quiet=True)
    settings = CLEAN.parent / "frieze.toml"
    settings.write_text((ROOT / "contrib/frieze.toml").read_text() + "# A later version says more.\n")
    kept = packages.FILES.pop("contrib/frieze.toml")
    packages.FILES[settings] = kept
    packages.make("debug", NEWER_VERSION, NEWER / "packages", NEWER / "container", quiet=True)


def package(folder, kind):
    """The only package of a kind in a folder."""
    (found,) = (folder / "packages").glob(f"*.{kind}")
    return found


def output(*command):
    """What a program prints; fails with what it says."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def files_of_deb(path):
    """Files of a package for Debian, from the root."""
    listing = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], stdout=subprocess.PIPE, check=True).stdout
    names = subprocess.run(["tar", "t"], input=listing, stdout=subprocess.PIPE, check=True).stdout.decode().split()
    return sorted(name.removeprefix("./") for name in names if not name.endswith("/"))


def files_of_rpm(path):
    """Files of a package for rpm, from the root."""
    listing = output("rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]", path)
    return sorted(line.split()[1].lstrip("/") for line in listing.splitlines() if not line.startswith("d"))


# Namespaces of its own: what it starts and mounts ends with it, and its loopback has every port free.
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
MOUNTS = """
root=$1
mkdir -p "$root/dev" "$root/proc"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
"""


def within(root, script, network=False):
    """Runs a script of bash in a root; `network` is this machine's, for apt."""
    loopback = "" if network else "ip link set lo up\n"
    enter = f'{MOUNTS}{loopback}exec chroot "$root" env -i DEBIAN_FRONTEND=noninteractive PATH=$PATH bash -euc "$2"'
    namespaces = NAMESPACES + ([] if network else ["--net"])
    return output(*namespaces, "bash", "-euc", enter, "enter", root, script)


# Starts the server as frieze.service does, and mounts as a line of /etc/fstab does.
SERVE = r"""
unit=/usr/lib/systemd/system/frieze.service
value() { sed -n "s/^$1=//p" "$unit"; }
install -d -o "$(value User)" -g "$(value Group)" -m "$(value StateDirectoryMode)" "/var/lib/$(value StateDirectory)"
STATE_DIRECTORY=/var/lib/$(value StateDirectory)
FRIEZE_OPTIONS=$(sed -n 's/^FRIEZE_OPTIONS=//p' "$(value EnvironmentFile | sed 's/^-//')")
: >/tmp/server.log
eval "exec setpriv --reuid $(value User) --regid $(value Group) --init-groups --no-new-privs $(value ExecStart)" \
    >/tmp/server.log 2>&1 &
server=$!
tail --pid=$server -f /tmp/server.log | grep -q -m 1 ^ready || { cat /tmp/server.log; exit 1; }
mkdir -p /mnt/f
mount -t fuse.frieze 127.0.0.1:7470 /mnt/f
"""
STOP = """
umount /mnt/f
kill $server
wait $server || { cat /tmp/server.log; exit 1; }
"""
FIRST_USE = f"""
{SERVE}
echo v1 >/mnt/f/file
frieze now >/var/tmp/instant
echo v2 >/mnt/f/file
[ "$(cat /mnt/f/file)" = v2 ]
[ "$(frieze cat --at "$(cat /var/tmp/instant)" /file)" = v1 ]
[ "$(cat "/mnt/f/.at/$(cat /var/tmp/instant)/file")" = v1 ]
{STOP}
echo '# edited' >>/etc/frieze/frieze.toml
[ "$(stat -c '%U:%G %a' /etc/frieze/frieze.toml)" = 'root:frieze 640' ]
"""
LATER_USE = f"""
grep -q '^# edited' /etc/frieze/frieze.toml
[ "$(stat -c '%U:%G %a' /etc/frieze/frieze.toml)" = 'root:frieze 640' ]
{SERVE}
[ "$(cat /mnt/f/file)" = v2 ]
[ "$(cat "/mnt/f/.at/$(cat /var/tmp/instant)/file")" = v1 ]
{STOP}
"""


class InstalledPackage:
    """The life of a package in a root of its own; the classes below say how it is installed and removed."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=CLEAN.parent)
        self.root = pathlib.Path(self.folder.name) / "root"
        output("cp", "--archive", CLEAN, self.root)

    def tearDown(self):
        self.folder.cleanup()

    def present(self, names):
        return [name for name in names if (self.root / name).exists()]

    def used_and_upgraded(self, files):
        """Works as it is installed, and after an upgrade with the data and the settings from before."""
        self.assertEqual(self.present(files), files)
        self.assertTrue((self.root / "usr/share/man/man1/frieze.1.gz").exists())
        within(self.root, FIRST_USE)
        self.upgrade()
        within(self.root, LATER_USE)
        self.data = sorted(path.relative_to(self.root) for path in (self.root / DATA).rglob("*"))
        self.assertTrue(self.data)

    def data_are_there(self):
        """Everything that the server wrote, and its user."""
        data = sorted(path.relative_to(self.root) for path in (self.root / DATA).rglob("*"))
        self.assertEqual(data, self.data)
        self.assertIn("\nfrieze:", (self.root / "etc/passwd").read_text())


class Deb(InstalledPackage, unittest.TestCase):
    """By apt, which installs what the package depends on."""

    def install(self, package):
        shutil.copy(package, self.root / "tmp/frieze.deb")
        keeps = "-o Dpkg::Options::=--force-confold"
        return within(self.root, f"apt-get install --yes {keeps} /tmp/frieze.deb", network=True)

    def upgrade(self):
        self.install(package(NEWER, "deb"))
        installed = within(self.root, "dpkg-query --show --showformat='${Version}' frieze")
        self.assertEqual(installed, NEWER_VERSION)

    def test_a_server_and_a_mount_work_and_data_outlive_the_package(self):
        self.install(package(MADE, "deb"))
        files = files_of_deb(package(MADE, "deb"))
        self.used_and_upgraded(files)
        within(self.root, "dpkg -r frieze")
        self.assertEqual(self.present(files), packages.CONFIGURATION)
        self.data_are_there()
        said = within(self.root, "dpkg -P frieze")
        self.assertIn("the data stay in /var/lib/frieze", said)
        self.assertEqual(self.present([*files, "etc/frieze", "usr/share/doc/frieze"]), [])
        self.data_are_there()


class Rpm(InstalledPackage, unittest.TestCase):
    """By rpm --root. The root has no database of rpm, so --nodeps: what the package requires is looked for as files."""

    def rpm(self, *words):
        # Debian's rpm has its database in the user's home.
        return output("rpm", "--root", self.root, "--dbpath", "/var/lib/rpm", *words)

    def upgrade(self):
        self.rpm("--upgrade", "--nodeps", package(NEWER, "rpm"))
        self.assertEqual(self.rpm("--query", "--queryformat", "%{VERSION}", "frieze"), NEWER_VERSION)
        self.assertTrue((self.root / "etc/frieze/frieze.toml.rpmnew").exists())

    def test_a_server_and_a_mount_work_and_data_outlive_the_package(self):
        self.rpm("--initdb")
        self.rpm("--install", "--nodeps", package(MADE, "rpm"))
        # What its weak dependency would install.
        within(self.root, "apt-get install --yes fuse3", network=True)
        files = files_of_rpm(package(MADE, "rpm"))
        self.used_and_upgraded(files)
        said = self.rpm("--erase", "frieze")
        self.assertIn("the data stay in /var/lib/frieze", said)
        self.assertEqual(self.present([*files, "usr/share/doc/frieze"]), [])
        # As rpm does with every edited file.
        self.assertIn("# edited", (self.root / "etc/frieze/frieze.toml.rpmsave").read_text())
        self.data_are_there()

    def test_what_it_requires_is_in_a_clean_root(self):
        required = output("rpm", "-qp", "--requires", package(MADE, "rpm")).split("\n")
        wanted = sorted({line.split("(")[0] for line in required if ".so" in line})
        self.assertIn("libc.so.6", wanted)
        for name in wanted:
            found = [*CLEAN.glob(f"usr/lib/*/{name}"), *CLEAN.glob(f"usr/lib64/{name}")]
            self.assertTrue(found, f"{name} is not in the clean root")
        self.assertIn("/usr/sbin/useradd", required)
        self.assertIn("fuse3", output("rpm", "-qp", "--recommends", package(MADE, "rpm")).split())


class Made(unittest.TestCase):
    """The files in out/packages."""

    def test_two_runs_write_the_same_bytes(self):
        first, second = ((folder / "packages/SHA256SUMS").read_text() for folder in [MADE, AGAIN])
        self.assertEqual(first, second)
        self.assertEqual(len(first.splitlines()), 3)
        output("diff", "--recursive", MADE / "container", AGAIN / "container")

    def test_sums_are_those_of_the_files(self):
        output("sh", "-c", "cd $1 && sha256sum --check --strict SHA256SUMS", "sh", MADE / "packages")

    def test_both_packages_have_the_same_files(self):
        files = files_of_deb(package(MADE, "deb"))
        self.assertEqual(files, files_of_rpm(package(MADE, "rpm")))
        for name in ["usr/bin/frieze", "usr/bin/frieze-mcp", "usr/sbin/mount.fuse.frieze", *packages.CONFIGURATION,
                     *packages.COMPLETIONS.values(), "usr/lib/systemd/system/frieze.service"]:
            self.assertIn(name, files)

    def test_no_unit_names_a_local_installation(self):
        for name in ["frieze.service", "frieze-mount@.service"]:
            unit = output("bash", "-c", f"dpkg-deb --fsys-tarfile $0 | tar xO ./usr/lib/systemd/system/{name}",
                          package(MADE, "deb"))
            self.assertIn("ExecStart=/usr/bin/frieze ", unit)
            self.assertNotIn("/usr/local", unit)

    def test_the_bill_of_materials_has_what_is_linked_and_no_tool_of_tests(self):
        (path,) = (MADE / "packages").glob("*.cdx.json")
        names = {entry["name"] for entry in json.loads(path.read_text())["components"]}
        self.assertLessEqual({"frieze-cli", "clap", "fuser", "rmcp", "raft"}, names)
        self.assertFalse({"proptest", "bolero", "frieze-testkit", "frieze-sim"} & names)

    def test_each_linked_crate_has_its_licence_in_the_package(self):
        text = gzip.decompress(subprocess.run(
            ["bash", "-c", "dpkg-deb --fsys-tarfile $0 | tar xO ./usr/share/doc/frieze/third-party-licenses.gz",
             package(MADE, "deb")], stdout=subprocess.PIPE, check=True).stdout).decode()
        for name in ["clap 4", "raft 0", "tikv-jemalloc-sys 0"]:
            self.assertIn(f"{name}.", text)

    def refused(self, environment, *words):
        done = subprocess.run([sys.executable, ROOT / "scripts/packages.py", *words], stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **environment})
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_what_cannot_be_made_is_refused_with_the_reason(self):
        self.assertIn("'1-rc 2' is no version of a package", self.refused({}, "--version", "1-rc 2"))
        missing = self.refused({"PATH": str(CLEAN.parent)})
        self.assertIn("rpmbuild cannot be found: run scripts/bootstrap.sh --packages", missing)


class Shells(unittest.TestCase):
    """Completion scripts and manual pages, as programs read them."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(dir=CLEAN.parent)
        cls.tree = pathlib.Path(cls.folder.name)
        output("dpkg-deb", "--extract", package(MADE, "deb"), cls.tree)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def script(self, shell):
        return self.tree / packages.COMPLETIONS[shell]

    def test_bash_completes_commands_and_options(self):
        ask = """source "$0"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_frieze frieze "${@: -1}" "${@: -2:1}"
echo "${COMPREPLY[@]}"
"""
        for typed, expected in [(["frieze", "ser"], "serve"), (["frieze", "serve", "--web"], "--webhdfs"),
                                (["frieze", "completion", "f"], "fish"), (["frieze", "bench", "seq-w"], "seq-write")]:
            said = output("bash", "--norc", "-euc", ask, self.script("bash"), *typed)
            self.assertEqual(said.strip(), expected)

    def test_zsh_loads_the_script(self):
        load = """fpath=("$0" $fpath)
autoload -Uz compinit && compinit -u -D
print -r -- $_comps[frieze]
autoload +X _frieze
"""
        said = output("zsh", "-f", "-e", "-c", load, self.script("zsh").parent)
        self.assertEqual(said.strip(), "_frieze")

    def test_fish_completes_commands_and_options(self):
        for typed, expected in [("frieze ser", "serve"), ("frieze serve --webh", "--webhdfs")]:
            said = output("fish", "--no-config", "-c", f"source {self.script('fish')}; complete -C '{typed}'")
            self.assertEqual([line.split("\t")[0] for line in said.splitlines()], [expected])

    def test_manual_pages_render_without_a_warning(self):
        pages = sorted((self.tree / "usr/share/man/man1").iterdir())
        self.assertGreater(len(pages), 50)
        environment = "LC_ALL=C.UTF-8 MANWIDTH=120"
        for page in pages:
            warnings = output("sh", "-c", f'{environment} man --warnings -l "$0" 2>&1 >/dev/null', page)
            self.assertEqual(warnings, "", page.name)
        text = output("sh", "-c", f'{environment} man -l "$0"', self.tree / "usr/share/man/man1/frieze-serve.1.gz")
        self.assertRegex(text, r"frieze serve --dir /srv/frieze +--listen|frieze serve --dir /srv/frieze\n")


class Container(unittest.TestCase):
    """The image of contrib/container/Containerfile, built by buildah without a registry and entered by chroot."""

    def buildah(self, *words):
        store = ["--storage-driver", "vfs", "--root", f"{self.folder}/store", "--runroot", f"{self.folder}/run"]
        return output("buildah", *store, *words)

    def built(self):
        """The image's root, its user and the command that a container of it runs."""
        self.buildah("bud", "--quiet", "--isolation", "chroot", "--tag", "frieze", MADE / "container")
        said = json.loads(self.buildah("inspect", "--type", "image", "frieze"))["OCIv1"]["config"]
        self.assertEqual(list(said["Volumes"]), [f"/{DATA}"])
        # With the driver vfs this mounts nothing: it is a folder.
        self.buildah("from", "--quiet", "--name", "container", "frieze")
        root = self.buildah("mount", "container").strip()
        return root, said["User"], said["Entrypoint"] + said["Cmd"]

    def test_a_server_runs_in_it_as_its_own_user_and_answers_for_the_past(self):
        with tempfile.TemporaryDirectory(dir=CLEAN.parent) as self.folder:
            root, user, command = self.built()
            said = output(*NAMESPACES, "--net", "bash", "-euc", MOUNTS + r"""
ip link set lo up
user=$2 log=$3
shift 3
enter() { env -i PATH="$PATH" chroot --userspec="$user" "$root" "$@"; }
: >"$log"
exec_in_it() { exec env -i PATH="$PATH" chroot --userspec="$user" "$root" "$@"; }
exec_in_it "$@" >"$log" 2>&1 &
server=$!
tail --pid=$server -f "$log" | grep -q -m 1 ^ready || { cat "$log"; exit 1; }
echo v1 | enter /usr/bin/frieze put - /file
instant=$(enter /usr/bin/frieze now)
echo v2 | enter /usr/bin/frieze put - /file
enter /usr/bin/frieze cat /file
enter /usr/bin/frieze cat --at "$instant" /file
kill $server
wait $server || { cat "$log"; exit 1; }
""", "enter", root, user, CLEAN.parent / "container.log", *command)
            self.assertEqual(said, "v2\nv1\n")
