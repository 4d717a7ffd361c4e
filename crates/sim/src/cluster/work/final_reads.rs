//! Reads after the last operation: all cells, now and at remembered instants, at each server; all logs.

use frieze_base::Fault;
use frieze_hlc::Hlc;

use super::super::client::Route;
use super::super::history::{Cells, FileInfo};
use super::{CELL_BYTES, CELLS, CELLS_PER_CHUNK, FILES, Worker, offset_of};
use crate::violation::{Rule, broken};

impl Worker {
    /// Final reads: all cells, now and at remembered instants, at each node; all logs.
    pub(in crate::cluster) fn look_back(mut self) {
        if let Err(fault) = self.try_to_look_back() {
            let what = format!("looking back was refused: {:?}: {fault}", fault.reason);
            self.history().note::<()>(broken(Rule::PromisedErrors, what));
        }
        self.client.port().doing.clear();
    }

    fn try_to_look_back(&mut self) -> Result<(), Fault> {
        self.client.open_session()?;
        for node in self.client.nodes().to_vec() {
            for file in 0..FILES {
                let FileInfo { path, inode } = self.file(file);
                let capability = self.capability(inode, &path)?;
                for first in (0..CELLS).step_by(CELLS_PER_CHUNK as usize) {
                    for (first, count) in [(first, CELLS_PER_CHUNK - 1), (first + CELLS_PER_CHUNK - 1, 1)] {
                        let cells = Cells { file, first, count };
                        let invoked_us = self.client.now_us();
                        let read = self.bytes(Route::At(node), &capability, offset_of(first), count * CELL_BYTES)?;
                        if !self.note_read(cells, invoked_us, read) {
                            return Ok(());
                        }
                    }
                }
            }
            let remembered: Vec<(usize, u64, Hlc)> = self.history().cells_at.keys().copied().collect();
            let every = (remembered.len() / 40).max(1) as u64;
            for (file, cell, at) in remembered {
                if self.client.rng.chance(every) {
                    self.read_at(Cells { file, first: cell, count: 1 }, at, node)?;
                }
            }
            let remembered: Vec<Hlc> = self.history().names_at.keys().copied().collect();
            let every = (remembered.len() / 10).max(1) as u64;
            for at in remembered {
                if self.client.rng.chance(every) {
                    self.list_at(at, node)?;
                }
            }
            self.look_at_logs(node)?;
        }
        self.list()
    }
}
