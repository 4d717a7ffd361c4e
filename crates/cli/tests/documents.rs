//! What the README and the page for operators tell people to type works as it stands there: the blocks run word by
//! word, one after the other, on new machines.
//!
//! A block of `sh` runs; a block of `console` runs what stands behind `$ ` and is compared with what stands below it.
//! Numbers of sessions, instants and times differ from run to run: what a block shows stands for what it was in this
//! run. `make` is not run again here, but has to have such a target. `<!-- needs: PROGRAM -->` before a block leaves it
//! out where that program is missing; `<!-- file: PATH -->` says that it is a file, which only its user can read.
//! Indented blocks show what is said elsewhere, or what takes systemd (`make services`).
//!
//! A machine is one of namespaces: its own mounts, network and processes. `/mnt`, `/srv` and `/var/lib` are empty. What
//! ends with `# on db2` runs on another machine of that name, with mounts of its own, on the same network.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

use frieze_harness::requirements;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A fenced block of a document.
struct Block {
    line: usize,
    language: String,
    needs: Option<String>,
    /// The file that it is.
    file: Option<String>,
    text: String,
}

fn blocks_of(document: &str) -> Vec<Block> {
    let (mut blocks, mut open, mut needs, mut file) = (Vec::new(), None::<Block>, None, None);
    for (number, line) in document.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                let language = language.to_owned();
                open = Some(Block {
                    line: number + 1,
                    language,
                    needs: needs.take(),
                    file: file.take(),
                    text: String::new(),
                });
            }
            (None, None) => {
                let said = |what| line.strip_prefix(what).and_then(|line: &str| line.strip_suffix(" -->"));
                needs = said("<!-- needs: ").map(str::to_owned).or(needs.filter(|_| line.is_empty()));
                file = said("<!-- file: ").map(str::to_owned).or(file.filter(|_| line.is_empty()));
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
}

/// A shell on the new machine.
struct Shell {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Shell {
    fn start(work: &Path) -> Shell {
        for directory in ["mnt", "srv", "lib", "home", "here", "machines"] {
            fs::create_dir(work.join(directory)).unwrap();
        }
        let mut command = Command::new("unshare");
        command.args(user()).args(NAMESPACES).arg("bash");
        let path = format!("{}:{}", binaries().display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("HOME", work.join("home")).env_remove("FRIEZE_SERVER").env_remove("FRIEZE_KEY");
        command.env("TZ", "UTC").env("LC_ALL", "C").current_dir(work).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut shell = Shell { process, to, from };
        // Their names are those of the pages; what is written to /etc stays there.
        let names = "for n in 1 2 3; do echo 127.0.0.1$n db$n >>etc/hosts; done";
        let prepare = format!(
            "exec 2>&1; set -e; ip link set lo up; mount --bind mnt /mnt; mount --bind srv /srv; mount --bind lib \
             /var/lib; \
             cp -a /etc etc 2>/dev/null || true; {names}; mount --bind etc /etc; mkdir -p /etc/frieze; \
             cd here; set +e"
        );
        let (said, status) = shell.run(&prepare);
        assert_eq!(status, 0, "{said}");
        shell
    }

    /// A further machine: with mounts of its own, and the same network.
    fn machine(&mut self, name: &str) {
        // It is there as long as a process is in it.
        let begin = format!(
            "[ -e ../machines/{name} ] || {{ mkdir ../machines/{name}; mkfifo ../machines/{name}.ready; unshare \
             --mount --uts sh -c \
             'hostname {name}; mount --bind ../machines/{name} /srv; echo $$ >../machines/{name}.ready; exec tail -f \
             /dev/null' \
             >/dev/null 2>&1 & read pid <../machines/{name}.ready; echo $pid >../machines/{name}.pid; }}"
        );
        let (said, status) = self.run(&begin);
        assert_eq!(status, 0, "{name}: {said}");
    }

    /// Begins what goes on beside the commands, and waits until it says that it is ready, as people do.
    fn begin(&mut self, command: &str) {
        writeln!(self.to, "{command}").unwrap();
        let mut line = String::new();
        while !line.starts_with("ready ") {
            assert!(line.is_empty() || is_log(&line), "{command}: {line}");
            line.clear();
            self.from.read_line(&mut line).unwrap();
        }
    }

    /// What a command says, without what servers say that run beside it, and its exit status.
    fn run(&mut self, command: &str) -> (String, i32) {
        writeln!(self.to, "{command}\nprintf '\\n=%s=\\n' \"$?\"").unwrap();
        let (mut said, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the shell ended: {command}: {said}");
            let status = line.trim_end().strip_prefix('=').and_then(|line| line.strip_suffix('='));
            if let Some(status) = status.and_then(|status| status.parse().ok()) {
                // The line break before the mark is the mark's own, unless the last line had none.
                let said = said.strip_suffix('\n').unwrap_or(&said);
                return (said.to_owned(), status);
            }
            if !line.starts_with("ready ") && !is_log(&line) {
                said += &line;
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// True for a line of a server's log.
fn is_log(line: &str) -> bool {
    line.starts_with("20") && ["Z  INFO frieze", "Z  WARN frieze"].iter().any(|level| line.contains(level))
}

const NAMESPACES: [&str; 6] = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// A user other than root is root in namespaces of its own.
fn user() -> &'static [&'static str] {
    if nix::unistd::geteuid().is_root() { &[] } else { &["--map-root-user"] }
}

fn binaries() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_frieze")).parent().unwrap().to_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The words of a text that differ from run to run.
fn marks(text: &str) -> Vec<&str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.');
    let is_mark = |word: &&str| {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        word.starts_with("hlc-") && word.len() == 20 || digits >= 16 && digits == word.len()
    };
    text.split(|char| !is_part(char)).filter(is_mark).collect()
}

/// Runs a block of commands and what they say.
fn compare(shell: &mut Shell, block: &Block, place: &str) {
    let mut stands_for: BTreeMap<String, String> = BTreeMap::new();
    let mut lines = block.text.lines().peekable();
    while let Some(line) = lines.next() {
        let mut command =
            line.strip_prefix("$ ").unwrap_or_else(|| panic!("{place}: {line} is said by no command")).to_owned();
        let mut wanted = String::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
            wanted += &format!("{line}\n");
        }
        stands_for.iter().for_each(|(shown, real)| command = command.replace(shown, real));
        let (said, status) = shell.run(&command);
        let (shown, real) = (marks(&wanted), marks(&said));
        if shown.len() == real.len() {
            stands_for.extend(shown.into_iter().map(str::to_owned).zip(real.into_iter().map(str::to_owned)));
        }
        stands_for.iter().for_each(|(shown, real)| wanted = wanted.replace(shown, real));
        assert!(
            status == 0 && said == wanted,
            "{place}: {command}\nends with {status} and says:\n{said}instead of:\n{wanted}"
        );
    }
}

/// Runs a line of a block as a person types it.
fn type_line(shell: &mut Shell, line: &str, makefile: &str, place: &str) {
    if let Some(target) = line.strip_prefix("make ") {
        let target = target.split(' ').next().unwrap();
        assert!(makefile.contains(&format!("\n{target}:")), "{place}: make has no target {target}");
        return;
    }
    let (command, remark) = line.split_once("  #").unwrap_or((line, ""));
    let mut command = command.trim_end().to_owned();
    if let Some(machine) = remark.trim().strip_prefix("on ") {
        shell.machine(machine);
        command = format!("nsenter --target $(cat ../machines/{machine}.pid) --mount --uts {command}");
    }
    if command.ends_with('&') {
        return shell.begin(&command);
    }
    let (said, status) = shell.run(&command);
    assert_eq!(status, 0, "{place}: {command}\n{said}");
}

fn run(document: &str) {
    if !requirements::fuse() {
        return;
    }
    let namespaces = Command::new("unshare").args(user()).args(NAMESPACES).arg("true").output();
    if !namespaces.as_ref().is_ok_and(|done| done.status.success()) {
        let what = format!("namespaces for the commands of {document}: {namespaces:?}");
        requirements::missing("namespaces", &what, "allow the creation of user and mount namespaces");
        return;
    }
    let text = fs::read_to_string(root().join(document)).unwrap();
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let work = tempfile::tempdir().unwrap();
    let mut shell = Shell::start(work.path());
    let mut count = 0;
    for block in blocks_of(&text) {
        let place = format!("{document}, the block at line {}", block.line);
        if let Some(program) = &block.needs
            && shell.run(&format!("command -v {program}")).1 != 0
        {
            requirements::missing(program, &format!("{program}, for {place}"), "install it with the package manager");
            continue;
        }
        count += 1;
        if let Some(path) = &block.file {
            // Servers of this test that get no processor for seconds keep their leases: the pages show a calm machine.
            let longer = if path.ends_with("/server.toml") { "lease = \"10s\"\n" } else { "" };
            let text = format!("{longer}{}", block.text);
            let (said, status) = shell.run(&format!("(umask 077; cat >{path} <<'END'\n{text}END\n)"));
            assert_eq!(status, 0, "{place}: {said}");
            continue;
        }
        match &block.language[..] {
            "console" => compare(&mut shell, &block, &place),
            "sh" => block.text.lines().for_each(|line| type_line(&mut shell, line, &makefile, &place)),
            "python" => {}
            other => panic!("{place}: a block of {other:?} is neither run nor read"),
        }
    }
    assert!(count > 4, "{document} has {count} blocks");
    // Mounts end before what they are mounts of.
    shell.run("for at in /mnt/*; do frieze umount \"$at\"; done");
}

#[test]
fn the_readme_does_what_it_says() {
    run("README.md");
}

#[test]
fn what_the_page_for_operators_tells_them_to_type_works() {
    run("docs/operating.md");
}

#[test]
fn blocks_and_what_differs_from_run_to_run_are_found() {
    let blocks = blocks_of("a\n<!-- needs: hdfs -->\n```sh\none\ntwo\n```\n\n```console\n$ x\ny\n```\n");
    let found: Vec<_> =
        blocks.iter().map(|block| (block.line, &block.language[..], block.needs.as_deref(), &block.text[..])).collect();
    assert_eq!(found, [(3, "sh", Some("hdfs"), "one\ntwo\n"), (8, "console", None, "$ x\ny\n")]);
    assert_eq!(
        marks("session 7353611325287636992, at hlc-660d0db0d0260fff: 12"),
        ["7353611325287636992", "hlc-660d0db0d0260fff"]
    );
}
