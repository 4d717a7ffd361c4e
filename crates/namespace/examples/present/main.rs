//! Memory and CPU time of the present in memory, packed and as it was before.
//!
//! ```text
//! cargo run --release -p frieze-namespace --example present -- \
//!     --files 10000000 --name-bytes 20 --in-directory 500 --order ascending
//! ```
//!
//! `--only cold` follows `--only packed`, which leaves it a file.
//!
//! Each structure has a process of its own, so that memory is that of one. CPU time is that of the thread, from
//! `/proc/self/schedstat`, so that other programs on the machine disturb little.

mod cold;
mod unpacked;

use std::error::Error;
use std::hint::black_box;

use frieze_base::{InodeId, Rng};
use frieze_hlc::Hlc;
use frieze_namespace::{
    DirectoryTable, Inode, InodeNumbers, InodeTable, NameEntry, Namespace, NoReadSet, PackedInodes, PackedNames,
    PresentSnapshot,
};
use frieze_wire::message::FileKind;
use frieze_wire::txn::{Caller, Format, Make, MakeKind, Op, OpenSession, Target, Transaction};

use unpacked::{UnpackedInodes, UnpackedNames};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Questions of each kind.
const QUESTIONS: u64 = 1_000_000;
/// Snapshots: the CPU time of a thread is counted in steps of 4 ms.
const SNAPSHOTS: u32 = 100;
/// Entries of a page of a listing.
const LISTED: usize = 1000;

#[derive(Clone, Debug)]
struct Load {
    files: u64,
    name_bytes: usize,
    in_directory: u64,
    is_random: bool,
}

/// What both structures do.
trait Present {
    fn create(&mut self, id: InodeId, inode: Inode, directory: InodeId, name: &[u8]);
    fn find(&self, directory: InodeId, name: &[u8]) -> Option<NameEntry>;
    fn inode(&self, id: InodeId) -> Option<Inode>;
    fn list(&self, directory: InodeId, after: &[u8], visit: &mut dyn FnMut(&[u8], NameEntry));
}

#[derive(Default)]
struct PackedPresent {
    inodes: InodeTable,
    directories: DirectoryTable,
}

#[derive(Default)]
struct UnpackedPresent {
    inodes: UnpackedInodes,
    directories: frieze_base::FastMap<InodeId, UnpackedNames>,
}

impl Present for PackedPresent {
    fn create(&mut self, id: InodeId, inode: Inode, directory: InodeId, name: &[u8]) {
        let entry = NameEntry::new(id, FileKind::File, inode.from);
        self.inodes.insert(id, inode);
        self.directories.set(directory, name, entry);
        self.inodes.pack(id);
    }

    fn find(&self, directory: InodeId, name: &[u8]) -> Option<NameEntry> {
        self.directories.get(directory)?.get(name)
    }

    fn inode(&self, id: InodeId) -> Option<Inode> {
        self.inodes.get(id).map(std::borrow::Cow::into_owned)
    }

    fn list(&self, directory: InodeId, after: &[u8], visit: &mut dyn FnMut(&[u8], NameEntry)) {
        let Some(names) = self.directories.get(directory) else { return };
        let mut cursor = names.cursor_after(after);
        for _ in 0..LISTED {
            let Some((name, entry)) = cursor.next_name() else { return };
            visit(name, entry);
        }
    }
}

impl Present for UnpackedPresent {
    fn create(&mut self, id: InodeId, inode: Inode, directory: InodeId, name: &[u8]) {
        let entry = NameEntry::new(id, FileKind::File, inode.from);
        self.inodes.insert(id, inode);
        self.directories.entry(directory).or_default().set(name, entry);
    }

    fn find(&self, directory: InodeId, name: &[u8]) -> Option<NameEntry> {
        self.directories.get(&directory)?.get(name)
    }

    fn inode(&self, id: InodeId) -> Option<Inode> {
        self.inodes.get(id).cloned()
    }

    fn list(&self, directory: InodeId, after: &[u8], visit: &mut dyn FnMut(&[u8], NameEntry)) {
        if let Some(names) = self.directories.get(&directory) {
            names.page(after, LISTED, visit);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut load = Load { files: 1_000_000, name_bytes: 20, in_directory: 500, is_random: false };
    let mut only = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or(format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--files" => load.files = value.parse()?,
            "--name-bytes" => load.name_bytes = value.parse()?,
            "--in-directory" => load.in_directory = value.parse()?,
            "--order" => load.is_random = value == "random",
            "--only" => only = Some(value),
            _ => return Err(format!("{argument} is not known").into()),
        }
    }
    match only.as_deref() {
        Some("packed") => measure_packed(&load),
        Some("cold") => cold::measure_cold(&load),
        Some(_) => measure(&load, &mut UnpackedPresent::default()).map(drop),
        None => {
            println!("{load:?}");
            for structure in ["unpacked", "packed", "cold"] {
                println!("{structure}:");
                let mut child = std::process::Command::new(std::env::current_exe()?);
                child.args(std::env::args().skip(1)).args(["--only", structure]);
                if !child.status()?.success() {
                    return Err(format!("the run of {structure} failed").into());
                }
            }
            Ok(())
        }
    }
}

/// A file, made by a transaction: a sample for all.
fn sample() -> Result<Inode, Box<dyn Error>> {
    let (mut namespace, mut session, mut id) = (Namespace::new(), 0, 0);
    let open = OpenSession { command: String::new(), host: String::new(), uid: 0, keeps: false };
    let make =
        Make { target: Target::path("/file"), mode: 0o644, kind: Some(MakeKind::File(false)), ..Make::default() };
    let format = Format { chunk_bytes: 1 << 20, chain_count: 8, uid: 0, gid: 0, mode: 0o755 };
    for (stamp, op) in [Op::Format(format), Op::OpenSession(open), Op::Make(make)].into_iter().enumerate() {
        let stamp = Hlc::first_of_micros(stamp as u64 + 1);
        let txn = Transaction { session, seq: 0, acked: 0, caller: Caller::root(), must_see: 0, op: Some(op) };
        let outcome = namespace.apply(&txn, stamp, &mut Vec::new(), &NoReadSet).into_result()?;
        (session, id) = (outcome.id, outcome.id);
    }
    Ok(namespace.current(InodeId(id)).ok_or("the file was made")?.into_owned())
}

impl Load {
    fn directory(&self, file: u64) -> InodeId {
        // Directories have numbers of their own, as if each was made before its files.
        InodeId(1 + file / self.in_directory * (self.in_directory + 1))
    }

    fn id(&self, file: u64) -> InodeId {
        InodeId(self.directory(file).0 + 1 + file % self.in_directory)
    }

    /// `name_bytes` bytes: a counter, or as good as random.
    fn name(&self, file: u64, name: &mut Vec<u8>) {
        name.clear();
        let number =
            if self.is_random { file.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ file } else { file };
        let digits = if self.is_random { format!("{number:016x}") } else { format!("{number:010}") };
        let rest = self.name_bytes.saturating_sub(digits.len());
        match self.is_random {
            true => {
                name.extend_from_slice(digits.as_bytes());
                name.extend(std::iter::repeat_n(b'-', rest));
            }
            false => {
                name.extend(std::iter::repeat_n(b'n', rest));
                name.extend_from_slice(digits.as_bytes());
            }
        }
    }
}

/// Fills a present, asks it, and returns its memory before and after.
fn measure(load: &Load, present: &mut dyn Present) -> Result<(), Box<dyn Error>> {
    let sample = sample()?;
    let mut name = Vec::new();
    let names_ns = cpu_ns()?;
    (0..load.files).for_each(|file| {
        load.name(file, &mut name);
        black_box(&name);
    });
    let names_ns = cpu_ns()? - names_ns;
    let (rss, start) = (rss_bytes()?, cpu_ns()?);
    for file in 0..load.files {
        load.name(file, &mut name);
        let stamp = Hlc::first_of_micros(1_700_000_000_000_000 + file * 20);
        let mut inode = sample.clone();
        (inode.from, inode.born, inode.ctime, inode.mtime_stamp, inode.size_as_of) =
            (stamp, stamp, stamp, stamp, stamp);
        (inode.mtime_ns, inode.atime_ns, inode.parent) = (stamp.unix_ns(), stamp.unix_ns(), load.directory(file));
        present.create(load.id(file), inode, load.directory(file), &name);
    }
    let create_ns = cpu_ns()? - start - names_ns;
    let bytes = rss_bytes()?.saturating_sub(rss);
    report("memory a file, bytes", bytes as f64 / load.files as f64);
    report("create, ns", create_ns as f64 / load.files as f64);
    let mut rng = Rng::new(1);
    let files: Vec<u64> = (0..QUESTIONS).map(|_| rng.below(load.files)).collect();
    let names: Vec<Vec<u8>> = files
        .iter()
        .map(|file| {
            load.name(*file, &mut name);
            name.clone()
        })
        .collect();
    for which in ["look a name up", "the same again"] {
        let start = cpu_ns()?;
        for (file, name) in files.iter().zip(&names) {
            let found = present.find(load.directory(*file), name);
            if found.map(NameEntry::inode) != Some(load.id(*file)) {
                return Err("a name is lost".into());
            }
        }
        report(&format!("{which}, ns"), (cpu_ns()? - start) as f64 / QUESTIONS as f64);
    }
    let start = cpu_ns()?;
    for (file, name) in files.iter().zip(&names).take(10).cycle().take(QUESTIONS as usize) {
        black_box(present.find(load.directory(*file), name));
    }
    report("look one of ten names up, ns", (cpu_ns()? - start) as f64 / QUESTIONS as f64);
    let start = cpu_ns()?;
    for file in &files {
        black_box(present.inode(load.id(*file)));
    }
    report("copy of an inode, ns", (cpu_ns()? - start) as f64 / QUESTIONS as f64);
    let start = cpu_ns()?;
    for file in files.iter().take(10).cycle().take(QUESTIONS as usize) {
        black_box(present.inode(load.id(*file)));
    }
    report("copy of one of ten inodes, ns", (cpu_ns()? - start) as f64 / QUESTIONS as f64);
    let (start, mut listed, mut last) = (cpu_ns()?, 0u64, Vec::new());
    for file in (0..load.files).step_by(load.in_directory as usize) {
        last.clear();
        loop {
            let before = listed;
            present.list(load.directory(file), &last.clone(), &mut |name, _| {
                listed += 1;
                last.clear();
                last.extend_from_slice(name);
            });
            if listed == before {
                break;
            }
        }
    }
    if listed != load.files {
        return Err("a listing is not whole".into());
    }
    report("list, ns a name", (cpu_ns()? - start) as f64 / listed as f64);
    Ok(())
}

fn measure_packed(load: &Load) -> Result<(), Box<dyn Error>> {
    let mut present = PackedPresent::default();
    measure(load, &mut present)?;
    let start = cpu_ns()?;
    (0..SNAPSHOTS).for_each(|_| {
        drop(black_box(PresentSnapshot::of(&InodeNumbers::default(), &present.inodes, &present.directories)))
    });
    report("snapshot, ms", (cpu_ns()? - start) as f64 / 1e6 / f64::from(SNAPSHOTS));
    let snapshot = PresentSnapshot::of(&InodeNumbers::default(), &present.inodes, &present.directories);
    let (mut pieces, mut bytes) = (Vec::new(), 0);
    let start = cpu_ns()?;
    snapshot.inode_pieces(&mut |piece| {
        bytes += piece.len();
        true
    });
    snapshot.name_pieces(&mut |piece| {
        bytes += piece.len();
        true
    });
    report("bytes of all pieces, a file", bytes as f64 / load.files as f64);
    report("copy of all pieces, ns a file", (cpu_ns()? - start) as f64 / load.files as f64);
    cold::write_pieces(&snapshot)?;
    let changed = load.files.div_ceil(QUESTIONS / 10);
    let start = cpu_ns()?;
    for file in (0..load.files).step_by(changed as usize) {
        let inode = present.inodes.get_mut(load.id(file)).ok_or("an inode is lost")?;
        inode.size += 1;
        present.inodes.pack(load.id(file));
    }
    report("change beside a snapshot, ns", (cpu_ns()? - start) as f64 / load.files.div_ceil(changed) as f64);
    drop(present);
    let (mut inodes, mut names) = (PackedInodes::default(), PackedNames::default());
    snapshot.inode_pieces(&mut |piece| {
        pieces.push(piece.to_vec());
        true
    });
    snapshot.name_pieces(&mut |piece| {
        pieces.push(piece.to_vec());
        true
    });
    let start = cpu_ns()?;
    for piece in &pieces {
        match piece.first() {
            Some(b'N') => names.load(piece)?,
            _ => inodes.load(piece)?,
        }
    }
    report("read of all pieces, ns a file", (cpu_ns()? - start) as f64 / load.files as f64);
    Ok(())
}

fn report(what: &str, value: f64) {
    println!("  {what:<32} {value:>10.1}");
}

/// CPU time of this thread, ns.
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?)
}

/// Resident memory.
fn rss_bytes() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    Ok(text.split_whitespace().nth(1).ok_or("statm is short")?.parse::<u64>()? * 4096)
}
