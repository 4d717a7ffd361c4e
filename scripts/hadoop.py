"""Parts to run Hadoop's programs beside frieze: jars of Maven Central, settings, a server with the HDFS gateway, HDFS itself.

Used by scripts/peer-hdfs.py, tests/hdfs and examples/hbase, examples/spark; runs nothing by itself.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = "3.4.1"
# jackson-core: a newer one that Maven would choose kills the NameNode.
ARTIFACTS = [
    f"org.apache.hadoop:hadoop-hdfs:{VERSION}",
    f"org.apache.hadoop:hadoop-client:{VERSION}",
    "com.fasterxml.jackson.core:jackson-core:2.12.7",
]
HDFS = "org.apache.hadoop.hdfs.server"
# How long Maven may take to fetch jars: some hundred of them, once.
FETCHING_S = 600


def needs(what, *programs):
    """Ends with words if a program is missing."""
    for program in programs:
        if shutil.which(program) is None:
            sys.exit(f"{what}: {program} is missing. Needed are a JDK and Maven (Debian: default-jdk-headless maven).")


def end_orderly():
    """Told to end, a script ends as it does after a failure: with everything that it started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))


def command(given=None, profile="release"):
    """The frieze command: the one that is given, else that build of it, which is brought up to date first."""
    if given is not None:
        return given
    build = ["cargo", "build", "--quiet", "--package", "frieze-cli"] + (["--release"] if profile == "release" else [])
    subprocess.run(build, cwd=ROOT, check=True)
    return str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / profile / "frieze")


def cache(name):
    """A folder of the user's for what is fetched once."""
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "frieze" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def python_with(*packages):
    """An interpreter that has these packages of PyPI, in a virtual environment of the user's cache; made once."""
    folder = cache("-".join(packages).replace("==", "-"))
    python, done = folder / "venv" / "bin" / "python", folder / "installed"
    if not done.exists():
        venv.create(folder / "venv", with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
        done.touch()
    return python


def dependency(artifact, inside=""):
    group, name, version, *kind = artifact.split(":")
    inside = "".join(f"<type>{kind}</type>" for kind in kind) + inside
    return f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{inside}</dependency>"


def pom(artifacts, pinned=(), alone=()):
    """What Maven is asked for: artifacts as group:name:version or group:name:version:type, the versions of what these need that are not to
    be others, and artifacts that are wanted without what they need."""
    nothing = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    all_of_them = [*map(dependency, artifacts), *(dependency(artifact, nothing) for artifact in alone)]
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>frieze</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencyManagement><dependencies>{''.join(map(dependency, pinned))}</dependencies></dependencyManagement>"
        f"<dependencies>{''.join(all_of_them)}</dependencies></project>\n"
    )


def fetched(folder, text):
    """The jars that Maven has for a pom, in `lib` of a folder: fetched once, and again when the pom is another one."""
    done = folder / "fetched"
    if not done.exists() or done.read_text() != text:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "lib", ignore_errors=True)
        (folder / "pom.xml").write_text(text)
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        subprocess.run(copy, cwd=folder, check=True, timeout=FETCHING_S)
        done.write_text(text)
    return f"{folder}/lib/*"


def jars():
    """The class path of HDFS, its servers included."""
    folder = cache(f"hdfs-{VERSION}")
    # Their pages, which the jars lack, are looked for at the start.
    for page in ["hdfs", "datanode"]:
        (folder / "webapps" / page).mkdir(parents=True, exist_ok=True)
    return f"{fetched(folder, pom(ARTIFACTS))}:{folder}"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def configuration(properties):
    text = "".join(f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items())
    return f"<configuration>{text}</configuration>"


def site(folder, **properties):
    """A folder of settings: `_` stands for a dot in their names, `__` for a dash."""
    folder.mkdir(parents=True)
    text = configuration({name.replace("__", "-").replace("_", "."): value for name, value in properties.items()})
    for name in ["core-site.xml", "hdfs-site.xml"]:
        (folder / name).write_text(text)
    (folder / "log4j.properties").write_text(
        "log4j.rootLogger=WARN,err\nlog4j.appender.err=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.err.target=System.err\nlog4j.appender.err.layout=org.apache.log4j.SimpleLayout\n"
    )


@contextlib.contextmanager
def served(frieze, work, *options, port=0, data_port=0, killed=False):
    """A server with its Hadoop gateway: yields its ready line. If the body fails, or the server does not end well, prints the end of its log.
    `killed`: the server is killed, not stopped."""
    gateways = ["--hdfs", f"127.0.0.1:{port}", "--hdfs-data", f"127.0.0.1:{data_port}"]
    serve = [frieze, "serve", "--json", "--dir", work / "data", "--listen", "127.0.0.1:0", *gateways, *options]
    with open(work / "serve.log", "wb") as log:
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log)

    def log_end():
        return (work / "serve.log").read_text()[-4000:]

    try:
        ready = server.stdout.readline()
        if not ready:
            sys.exit(f"the server does not start:\n{log_end()}")
        try:
            yield json.loads(ready)
        except SystemExit as failed:
            sys.exit(f"{failed.code}\nThe server logged:\n{log_end()}")
        server.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
        if server.wait(timeout=60) != (-signal.SIGKILL if killed else 0):
            sys.exit(f"the server ended with {server.returncode}:\n{log_end()}")
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def cpu_s(pid):
    """Seconds of the processors that a process has had."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Cluster:
    """Three servers on three loopback addresses, which are one cluster, each with a gateway at the same ports."""

    def __init__(self, frieze, work):
        self.frieze, self.work = frieze, work
        self.name_port, self.data_port = free_port(), free_port()
        self.servers, self.addresses = {}, {}
        (work / "settings.toml").write_text('lease = "1s"\n')
        try:
            for number in [1, 2, 3]:
                self.start(number)
        except BaseException:
            self.end()
            raise

    def start(self, number):
        host = f"127.0.0.{number}"
        command = [self.frieze, "serve", "--json", "--dir", self.work / str(number), "--name", f"db{number}", "--memory", "256"]
        command += ["--config", self.work / "settings.toml", "--listen", self.addresses.get(number, f"{host}:0")]
        command += ["--hdfs", f"{host}:{self.name_port}", "--hdfs-data", f"{host}:{self.data_port}"]
        if number > 1 and number not in self.addresses:
            command += ["--join", self.addresses[1]]
        log = open(self.work / f"{number}.log", "ab")
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        ready = server.stdout.readline()
        if not ready:
            sys.exit("a server does not start:\n" + (self.work / f"{number}.log").read_text()[-2000:])
        self.servers[number] = server
        self.addresses[number] = json.loads(ready)["addresses"][0]

    def await_whole(self):
        """Until every chain is served by all three."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            command = [self.frieze, "--server", self.addresses[1], "cluster", "chains", "--json"]
            asked = subprocess.run(command, capture_output=True)
            chains = [json.loads(line) for line in asked.stdout.splitlines()]
            if chains and all(sum(t["state"] == "serving" for t in chain["targets"]) == 3 for chain in chains):
                return
            time.sleep(0.2)
        sys.exit("the cluster does not become whole")

    def kill(self, number):
        self.servers[number].kill()
        self.servers.pop(number).wait()

    def end(self):
        for server in self.servers.values():
            server.send_signal(signal.SIGTERM)
        for server in self.servers.values():
            try:
                server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def names(self):
        """The properties by which a client knows every server as a name node of one service."""
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        properties = {"fs_defaultFS": "hdfs://frieze", "dfs_nameservices": "frieze", "dfs_ha_namenodes_frieze": "db1,db2,db3"}
        properties["dfs_client_failover_proxy_provider_frieze"] = provider
        for number in [1, 2, 3]:
            properties[f"dfs_namenode_rpc__address_frieze_db{number}"] = f"127.0.0.{number}:{self.name_port}"
        return properties


class Hdfs:
    """HDFS itself: a NameNode and some DataNodes, each a process, in a directory of their own."""

    def __init__(self, work, classpath, datanodes=3, heap="512m", **properties):
        self.work, self.classpath, self.heap, self.processes = work, classpath, heap, []
        port = free_port()
        self.address = f"hdfs://127.0.0.1:{port}"
        common = {
            "fs_defaultFS": self.address,
            "dfs_replication": datanodes,
            "dfs_namenode_http__address": "127.0.0.1:0",
            "dfs_namenode_name_dir": f"file://{work}/name",
            "dfs_namenode_datanode_registration_ip__hostname__check": "false",
            "dfs_datanode_address": "127.0.0.1:0",
            "dfs_datanode_http_address": "127.0.0.1:0",
            "dfs_datanode_ipc_address": "127.0.0.1:0",
            "dfs_blocksize": 64 << 20,
            **properties,
        }
        site(work / "conf-name", **common)
        self.java("conf-name", f"{HDFS}.namenode.NameNode", "-format", "-nonInteractive").wait()
        try:
            self.start_names()
            for number in range(datanodes):
                site(work / f"conf-{number}", **common, dfs_datanode_data_dir=f"file://{work}/data-{number}")
                self.processes.append(self.java(f"conf-{number}", f"{HDFS}.datanode.DataNode"))
            self.await_datanodes(datanodes)
        except BaseException:
            self.end()
            raise

    def start_names(self):
        """Starts the NameNode, the first of the processes."""
        self.processes.insert(0, self.java("conf-name", f"{HDFS}.namenode.NameNode"))

    def end_names(self):
        """Ends the NameNode as a crash would, after it has written down all names, so that its next start has no edits to play."""
        for words in [["-safemode", "enter"], ["-saveNamespace"], ["-safemode", "leave"]]:
            if self.java("conf-name", "org.apache.hadoop.hdfs.tools.DFSAdmin", *words).wait() != 0:
                sys.exit(f"dfsadmin {words[0]} failed:\n" + (self.work / "conf-name.log").read_text()[-2000:])
        names = self.processes.pop(0)
        names.kill()
        names.wait()

    def java(self, conf, *arguments, **pipes):
        log = open(self.work / f"{conf}.log", "ab")
        command = ["java", f"-Xmx{self.heap}", "-cp", f"{self.work / conf}:{self.classpath}", *arguments]
        return subprocess.Popen(command, stderr=log, cwd=self.work, **{"stdout": log, **pipes})

    def await_datanodes(self, count):
        until = time.monotonic() + 120
        while time.monotonic() < until:
            asked = self.java("conf-name", "org.apache.hadoop.hdfs.tools.DFSAdmin", "-report", "-live", stdout=subprocess.PIPE)
            if asked.communicate()[0].count(b"\nName: ") == count:
                return
            if any(process.poll() is not None for process in self.processes):
                break
        sys.exit("HDFS does not start:\n" + (self.work / "conf-name.log").read_text()[-2000:])

    def cpu_s(self):
        return sum(cpu_s(process.pid) for process in self.processes)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Report:
    """What was found, as lines or as a document."""

    def __init__(self, as_json, about):
        self.as_json, self.about, self.steps, self.begun = as_json, about, [], time.monotonic()

    def step(self, words, **found):
        seconds = time.monotonic() - self.begun
        self.begun = time.monotonic()
        self.steps.append({"step": words, "seconds": round(seconds, 2), **found})
        if not self.as_json:
            figures = "  ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items())
            print(f"ok {seconds:6.1f} s  {words}" + (f"\n             {figures}" if figures else ""), flush=True)

    def end(self, words):
        if self.as_json:
            print(json.dumps({**self.about, "holds": True, "steps": self.steps}))
        else:
            print(f"all holds: {words}")
