//! The latency of a bare program that sends a little of an old state that is not in memory: it gets a request over a
//! connection, has the pieces read from the disk at once, and sends them.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use frieze_base::{Rng, crc32c};
use rustix::fs::{Advice, fadvise};

use super::streamed::{CHECKSUM_BYTES, checked};
use super::{UNPACED, other_end, pair_with};
use crate::stopwatch::Stopwatch;

/// Pieces of an answer, each somewhere else.
const PIECES: usize = 2;
/// Bytes of each.
const PIECE_BYTES: usize = 32 << 10;
/// What lies before a piece and is read with it, as the header of a record.
const HEAD_BYTES: usize = 100;
/// Files that are shorter hold something else.
const FILE_BYTES_MIN: u64 = 16 << 20;
/// Where the pieces are: the number of the file and the place in it, of each.
const QUESTION_BYTES: usize = PIECES * 16;

/// A bare program on the files of a directory, and its one client.
pub(crate) struct FetchCeiling {
    near: TcpStream,
    /// Lengths of the files.
    lens: Vec<u64>,
    answer: Vec<u8>,
    serving: JoinHandle<Result<()>>,
}

impl FetchCeiling {
    /// Serves the large files in `directory`, which are read and left as they are.
    pub(crate) fn start(directory: &Path) -> Result<FetchCeiling> {
        let (mut files, mut lens) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let len = entry.metadata()?.len();
            if entry.file_type()?.is_file() && len >= FILE_BYTES_MIN {
                let file = File::open(entry.path())?;
                fadvise(&file, 0, None, Advice::Random)?;
                files.push(file);
                lens.push(len);
            }
        }
        anyhow::ensure!(!files.is_empty(), "no large files in {}", directory.display());
        let (near, far) = pair_with(Some(UNPACED))?;
        let serving = other_end(move || serve(far, &files));
        Ok(FetchCeiling { near, lens, answer: vec![0; CHECKSUM_BYTES + PIECES * PIECE_BYTES], serving })
    }

    /// Milliseconds until the pieces of a place drawn are there and checked.
    pub(crate) fn read(&mut self, rng: &mut Rng) -> Result<f64> {
        let mut question = [0; QUESTION_BYTES];
        for part in question.chunks_exact_mut(16) {
            let file = rng.below(self.lens.len() as u64);
            let at = rng.below(self.lens[file as usize] - (HEAD_BYTES + PIECE_BYTES) as u64);
            part[..8].copy_from_slice(&file.to_le_bytes());
            part[8..].copy_from_slice(&at.to_le_bytes());
        }
        let one = Stopwatch::start();
        self.near.write_all(&question)?;
        self.near.read_exact(&mut self.answer)?;
        checked(&self.answer)?;
        Ok(one.seconds() * 1e3)
    }

    /// Ends the program.
    pub(crate) fn end(self) -> Result<()> {
        drop(self.near);
        self.serving.join().ok().context("the serving end panicked")?
    }
}

/// Answers until the connection ends.
fn serve(mut far: TcpStream, files: &[File]) -> Result<()> {
    let mut question = [0; QUESTION_BYTES];
    let mut piece = vec![0; HEAD_BYTES + PIECE_BYTES];
    let mut answer = vec![0; CHECKSUM_BYTES + PIECES * PIECE_BYTES];
    let len = NonZeroU64::new(piece.len() as u64);
    loop {
        match far.read_exact(&mut question) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let places = question.as_chunks::<16>().0.iter().map(|part| {
            let [file, at] = [0, 8].map(|from| u64::from_le_bytes(part.as_chunks().0[from / 8]));
            (&files[file as usize], at)
        });
        places.clone().try_for_each(|(file, at)| fadvise(file, at, len, Advice::WillNeed))?;
        let (head, bytes) = answer.split_at_mut(CHECKSUM_BYTES);
        for ((file, at), part) in places.clone().zip(bytes.chunks_exact_mut(PIECE_BYTES)) {
            file.read_exact_at(&mut piece, at)?;
            part.copy_from_slice(&piece[HEAD_BYTES..]);
        }
        head.copy_from_slice(&crc32c(bytes).to_le_bytes());
        far.write_all(&answer)?;
        // The next read of the same place has to come from the disk again.
        places.clone().try_for_each(|(file, at)| fadvise(file, at, len, Advice::DontNeed))?;
    }
}
