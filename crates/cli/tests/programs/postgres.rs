//! PostgreSQL with its data directory on the mount: it is stopped in the middle, the file server is killed, and it
//! recovers to a state in which every account adds up.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use frieze_harness::requirements;
use frieze_testkit::wait::eventually;
use nix::sys::signal::Signal;
use nix::unistd::{Group, User, geteuid};

use crate::{mount_server, succeed};

/// Where PostgreSQL's programs are; says so if nowhere.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin")).find(|bin| bin.join("pgbench").exists());
    if found.is_none() {
        requirements::missing("postgresql", "PostgreSQL with pgbench", "`scripts/bootstrap.sh --tests` installs it");
    }
    found
}

/// PostgreSQL, run as a user that it accepts: it refuses the superuser.
struct Postgres {
    programs: PathBuf,
    data: PathBuf,
    socket: PathBuf,
    user: Option<(u32, u32)>,
}

impl Postgres {
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let program = self.programs.join(program);
        let mut command = match self.user {
            Some((uid, gid)) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
                command.arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(arguments).current_dir(&self.socket).env("PGHOST", &self.socket).env("PGDATA", &self.data);
        command.env("PGDATABASE", "postgres").env("PGUSER", "frieze");
        command
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        String::from_utf8(succeed(&mut self.command(program, arguments)).stdout).unwrap()
    }

    fn start(&self) {
        let options = format!("-k {} -h ''", self.socket.display());
        let log = self.log();
        // Its output goes to the log, or the server would hold this test's pipe for ever.
        self.run("pg_ctl", &["start", "-w", "-s", "-o", &options, "-l", log.to_str().unwrap()]);
    }

    fn log(&self) -> PathBuf {
        self.socket.join("log")
    }

    fn ask(&self, sql: &str) -> String {
        self.run("psql", &["-At", "-c", sql])
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Where a test ended at a surprise.
        let _ = self.command("pg_ctl", &["stop", "-m", "immediate", "-s"]).stderr(Stdio::null()).status();
    }
}

fn own(path: &Path, user: Option<(u32, u32)>) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
    if let Some((uid, gid)) = user {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}

#[test]
fn postgres_recovers_from_an_immediate_stop_and_a_killed_file_server() {
    let Some(programs) = programs() else { return };
    let Some(mut mounted) = mount_server() else { return };
    fs::set_permissions(mounted.server.local("."), Permissions::from_mode(0o755)).unwrap();
    let user = geteuid().is_root().then(|| {
        let uid = User::from_name("nobody").unwrap().unwrap().uid.as_raw();
        let group = Group::from_name("nogroup").unwrap().or(Group::from_name("nobody").unwrap());
        (uid, group.unwrap().gid.as_raw())
    });
    let (data, socket) = (mounted.mount.path("data"), mounted.server.local("socket-of-postgres"));
    own(&data, user);
    own(&socket, user);
    let postgres = Postgres { programs, data, socket, user };
    postgres.run("initdb", &["-A", "trust", "-U", "frieze", "--no-locale", "-E", "UTF8", "--no-sync"]);
    postgres.start();
    postgres.run("pgbench", &["-i", "-s", "1", "-q"]);

    // Without a vacuum at the start, which would forget the history of accounts.
    let load = ["-n", "-c", "4", "-j", "2", "-T", "600"];
    let mut load = postgres.command("pgbench", &load).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let done = || postgres.ask("select count(*) from pgbench_history").trim().parse::<u64>().unwrap();
    let before = eventually("transactions", || Some(done()).filter(|done| *done >= 200));
    postgres.run("pg_ctl", &["stop", "-m", "immediate", "-s"]);
    load.wait().unwrap();
    assert_eq!(mounted.server.restart(Signal::SIGKILL), None);

    postgres.start();
    let log = fs::read_to_string(postgres.log()).unwrap();
    assert!(log.contains("automatic recovery in progress"), "{log}");
    assert!(!log.contains("PANIC") && !log.contains("invalid page"), "{log}");
    let after = done();
    assert!(after >= before, "{before} transactions were seen committed, {after} are left");
    let sums = "select count(distinct sum) from (select sum(abalance) from pgbench_accounts union all select \
        sum(bbalance) \
                from pgbench_branches union all select sum(tbalance) from pgbench_tellers union all select sum(delta) \
                from \
                pgbench_history) sums";
    assert_eq!(postgres.ask(sums), "1\n");
    assert_eq!(postgres.ask("select count(*) from pgbench_accounts"), "100000\n");
    postgres.run("vacuumdb", &["-q", "--full"]);
    assert_eq!(postgres.ask(sums), "1\n");
    postgres.run("pg_ctl", &["stop", "-m", "fast", "-s"]);
    postgres.run("pg_controldata", &[]);
}
