//! The present with all of it in a file: memory, and look-ups of cold inodes.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use frieze_base::Rng;
use frieze_namespace::{ColdFile, ColdSource, Namespace, PackedInodes, PackedNames, PieceWindow, PresentSnapshot};

use crate::{Load, report, rss_bytes};

/// Length of a piece, before it.
const HEAD_BYTES: usize = 4;
const LOOKUPS: u64 = 2_000;

/// The file of pieces.
#[derive(Debug)]
struct StoredPieces(File);

impl ColdSource for StoredPieces {
    fn read<'a>(&self, offset: u64, piece_bytes: usize, window: &'a mut PieceWindow) -> &'a [u8] {
        window.bytes.resize(piece_bytes, 0);
        self.0.read_exact_at(&mut window.bytes, offset).expect("the file of pieces was just written");
        &window.bytes
    }
}

fn path() -> PathBuf {
    // Not in memory, as a temporary directory may be.
    Path::new("target").join("present.pieces")
}

/// Writes what [`measure_cold`] reads.
pub(crate) fn write_pieces(snapshot: &PresentSnapshot) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(File::create(path())?);
    let mut failed = None;
    let mut put = |piece: &[u8]| {
        let head = (piece.len() as u32).to_le_bytes();
        failed = out.write_all(&head).and_then(|()| out.write_all(piece)).err();
        failed.is_none()
    };
    let _all = snapshot.inode_pieces(&mut put) && snapshot.name_pieces(&mut put);
    failed.map_or(Ok(()), Err)?;
    Ok(out.flush()?)
}

/// A present of which all is cold.
pub(crate) fn measure_cold(load: &Load) -> Result<(), Box<dyn Error>> {
    let before = rss_bytes()?;
    let mut namespace = Namespace::new();
    read_pieces(&mut namespace)?;
    report("memory a cold file, bytes", (rss_bytes()? - before) as f64 / load.files as f64);
    look_up(load, &namespace, "look-up, file in page cache, us")?;
    drop(namespace);
    let mut namespace = Namespace::new();
    read_pieces(&mut namespace)?;
    // Drops the file's page cache.
    let target = format!("of={}", path().display());
    Command::new("dd").args([&target, "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"]).status()?;
    look_up(load, &namespace, "look-up, file on disk alone, us")?;
    Ok(std::fs::remove_file(path())?)
}

fn read_pieces(namespace: &mut Namespace) -> Result<(), Box<dyn Error>> {
    let file = File::open(path())?;
    let mut from = BufReader::new(file.try_clone()?);
    let file = ColdFile::new(Box::new(StoredPieces(file)), &Arc::default());
    let (mut inodes, mut names) = (PackedInodes::of_file(&file, 0), PackedNames::of_file(&file, 0));
    let (mut head, mut piece, mut offset) = ([0; HEAD_BYTES], Vec::new(), 0);
    while from.read_exact(&mut head).is_ok() {
        piece.resize(u32::from_le_bytes(head) as usize, 0);
        from.read_exact(&mut piece)?;
        offset += HEAD_BYTES as u64;
        match piece.first() {
            Some(b'N') => names.load_at(&piece, offset)?,
            _ => inodes.load_at(&piece, offset)?,
        }
        offset += piece.len() as u64;
    }
    namespace.take_present(inodes, names);
    Ok(())
}

/// Time of look-ups of inodes of different pages.
fn look_up(load: &Load, namespace: &Namespace, what: &str) -> Result<(), Box<dyn Error>> {
    let mut rng = Rng::new(7);
    #[expect(clippy::disallowed_methods, reason = "a measurement waits for the disk, which CPU time does not show")]
    let start = Instant::now();
    for _ in 0..LOOKUPS {
        black_box(namespace.current(load.id(rng.below(load.files))).ok_or("an inode is lost")?);
    }
    let loads = namespace.names_memory().loads.max(1);
    report(what, start.elapsed().as_secs_f64() * 1e6 / loads as f64);
    Ok(())
}
