//! Appends: reserve, fill, publish in order.
//!
//! Guarantees: a record is visible when it and all records before it are whole; of a failed append nothing becomes
//! visible, and the appends behind it fail too; a crash leaves a prefix of the log with everything published in it. No
//! lock is held while bytes are copied. Leaves to others: the order in which places are reserved, and stamps
//! (`replication`); the places (`multilog`).
//!
//! # How
//! [`Device::reserve`] finds the place of a group under the lock of the index. [`Device::fill`] writes the bytes there,
//! by any thread, several at once. [`Device::await_turn`] waits until all places before it have ended, and
//! [`Device::publish`] makes the group visible. A flush waits for the places that were reserved before it. The rules
//! and what each of them prevents are a model: `tests/append_model.rs`.

use std::sync::atomic::Ordering;

use frieze_base::{Fault, Reason, SegmentId};
use frieze_multilog::{LogPosition, RecordHeader, Reservation, ReservationId};

use super::segment_file::erase_header;
use super::{Device, FileKey, SENDFILE_BYTES_MIN, checksum_cache};
use crate::few::Few;

/// A place in the log for the records of one group. It ends with [`Device::publish`], whether it was filled or not:
/// until then nothing behind it becomes visible, and no flush returns.
#[must_use = "nothing behind it becomes visible until it is published"]
pub struct ReservedAppend {
    metas: Few<RecordHeader>,
    reservation: Reservation,
    /// Bytes written, or why they were not; `None` before the fill.
    filled: Option<Result<u64, Fault>>,
}

impl ReservedAppend {
    /// Bytes of its payloads.
    pub fn payload_bytes(&self) -> u64 {
        self.metas.iter().map(|meta| u64::from(meta.payload_len())).sum()
    }
}

impl Device {
    /// Appends the records of one group and makes them visible. The caller holds no lock that [`Device::publish`] of
    /// another thread waits for.
    ///
    /// `block_crcs[i]` are the checksums of the blocks of `payloads[i]`. Returns the end of the last record.
    ///
    /// # Errors
    /// `NoSpace` if no segment can be added; `InputOutput` from the disk, or if an append before it failed. Then
    /// nothing is visible, and the space is reused.
    pub fn append(
        &self,
        metas: &[RecordHeader],
        payloads: &[&[u8]],
        block_crcs: &[Vec<u32>],
    ) -> Result<LogPosition, Fault> {
        let mut reserved = loop {
            match self.reserve(metas)? {
                Some(reserved) => break reserved,
                None => self.await_reserved(),
            }
        };
        self.fill(&mut reserved, payloads, block_crcs);
        self.await_turn(&reserved);
        self.publish(reserved)
    }

    /// Reserves a place for the records of one group, behind everything that is reserved. `None` if a place before it
    /// has to end first: wait by [`Device::await_reserved`], or publish it, and retry.
    ///
    /// # Errors
    /// `NoSpace` if no segment can be added; the disk's. Then nothing is reserved.
    ///
    /// # Cost
    /// A microsecond; if a segment is added, the creation or renaming of a file.
    pub fn reserve(&self, metas: &[RecordHeader]) -> Result<Option<ReservedAppend>, Fault> {
        self.erase_failed()?;
        let reservation = self.log.write().reserve(metas);
        let Some(reservation) = reservation else { return Ok(None) };
        self.served.fetch_add(1, Ordering::Relaxed);
        if let Some(roll) = &reservation.roll
            && let Err(fault) = self.add_segment(roll.id, &roll.header)
        {
            // It is the only one: a segment is added when nothing is reserved.
            self.abandon(reservation);
            return Err(fault);
        }
        Ok(Some(ReservedAppend { metas: metas.into(), reservation, filled: None }))
    }

    /// Writes the bytes of a group to its place. `block_crcs[i]` are the checksums of the blocks of `payloads[i]`. If
    /// it fails, [`Device::publish`] returns the fault.
    pub fn fill(&self, reserved: &mut ReservedAppend, payloads: &[&[u8]], block_crcs: &[Vec<u32>]) {
        reserved.filled = Some(self.write_group(reserved, payloads, block_crcs));
    }

    fn write_group(
        &self,
        ReservedAppend { metas, reservation, .. }: &ReservedAppend,
        payloads: &[&[u8]],
        block_crcs: &[Vec<u32>],
    ) -> Result<u64, Fault> {
        let mut bytes = 0;
        for (index, ((meta, spot), (payload, crcs))) in
            metas.iter().zip(&reservation.spots).zip(payloads.iter().zip(block_crcs)).enumerate()
        {
            let head = reservation.head(index, meta, crcs);
            let began = self.tiers.trace().start();
            let _span = self.tiers.trace().append_span(head.len() + payload.len());
            self.file(spot.segment)?.write_at(spot.offset, &[&head, payload])?;
            let written = (head.len() + payload.len()) as u64;
            self.tiers.trace().append(began, FileKey::Segment(spot.segment), spot.offset, written);
            bytes += written;
            // After the write, and before the record is visible: a flush that takes the mark syncs these bytes, and one
            // that does not see it yet does not count the record.
            self.dirty.lock().segments.insert(spot.segment);
            // Readers request a recent write as a whole more often than in parts: its checksum need not be read back
            // for that.
            let len = payload.len() as u64;
            if len >= SENDFILE_BYTES_MIN {
                let span = checksum_cache::CachedSpan::whole(spot.segment, spot.data_offset, len, meta.stamp);
                self.checksums.put(span, checksum_cache::combined(crcs, len, self.settings.block_bytes.into()));
            }
        }
        Ok(bytes)
    }

    /// Waits until all places before this one have ended.
    pub fn await_turn(&self, reserved: &ReservedAppend) {
        self.await_log(|log| log.is_first(reserved.reservation.id));
    }

    /// Waits until all places that are reserved now have ended.
    pub fn await_reserved(&self) {
        let below: ReservationId = self.log().next_reservation();
        self.await_log(|log| log.has_ended(below));
    }

    fn await_log(&self, is_due: impl Fn(&frieze_multilog::MultiLog) -> bool) {
        if is_due(&self.log()) {
            return;
        }
        let mut lock = self.turn_lock.lock();
        while !is_due(&self.log()) {
            lock = self.turn.wait(lock);
        }
    }

    /// Makes a group visible whose turn it is ([`Device::await_turn`]). Returns the end of its last record.
    ///
    /// # Errors
    /// That of the fill; `InputOutput` if an append before it failed. Then nothing is visible, the appends behind it
    /// fail, and the space is reused.
    ///
    /// # Panics
    /// If it is not its turn.
    pub fn publish(&self, reserved: ReservedAppend) -> Result<LogPosition, Fault> {
        let ReservedAppend { metas, reservation, filled } = reserved;
        let mut log = self.log.write();
        assert!(log.is_first(reservation.id), "a group is published before the one that it lies behind");
        let filled = match filled {
            _ if log.has_failed(reservation.id) => Err(Fault::new(
                Reason::InputOutput,
                "the write before it in the log of the device failed, and this one with it: retry",
            )),
            Some(filled) => filled,
            None => Err(Fault::new(Reason::Internal, "a place in the log was not filled")),
        };
        let published = match filled {
            Ok(bytes) => {
                for (meta, spot) in metas.iter().zip(&reservation.spots) {
                    log.publish(meta, spot);
                }
                // Before the new end can be read: what names it is flushed after these bytes.
                self.dirty_bytes.fetch_add(bytes, Ordering::Relaxed);
                drop(log);
                self.since_checkpoint.fetch_add(bytes, Ordering::Relaxed);
                Ok(reservation.end())
            }
            Err(fault) => {
                drop(log);
                self.abandon(reservation);
                Err(fault)
            }
        };
        // Locked once, so that no thread misses it between its look and its wait.
        drop(self.turn_lock.lock());
        self.turn.notify_all();
        published
    }

    fn abandon(&self, reservation: Reservation) {
        for spot in &reservation.spots {
            self.erase(spot.segment, spot.offset);
        }
        self.log.write().abandon(reservation);
    }

    /// Erases the head of a failed record: all of it may have been written. If the process failed before its space is
    /// reused, recovery would find it and show a write that the server refused.
    fn erase(&self, segment: SegmentId, offset: u64) {
        // A segment whose creation failed holds nothing.
        let Ok(file) = self.file(segment) else { return };
        if let Err(why) = erase_header(&*file, offset) {
            self.unerased.lock().push((segment, offset, why));
            self.has_unerased.store(true, Ordering::SeqCst);
        }
        self.dirty.lock().segments.insert(segment);
    }

    /// Erases failed records that could not be erased at once, before anything is appended or made durable.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn erase_failed(&self) -> Result<(), Fault> {
        if !self.has_unerased.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut unerased = self.unerased.lock();
        while let Some((segment, offset, why)) = unerased.last() {
            erase_header(&*self.file(*segment)?, *offset).map_err(|_| why.clone())?;
            unerased.pop();
        }
        self.has_unerased.store(false, Ordering::SeqCst);
        Ok(())
    }
}
