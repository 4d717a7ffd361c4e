//! The clock of one server: Kulkarni's hybrid logical clock, and the judgement whether it may be trusted.
//!
//! Guarantees: a stamp is greater than every stamp, every closed instant and every remote stamp that this clock has
//! seen, and never above the persisted bound, so that a restarted clock starts above all of them. Stamps that were
//! given are never taken back; a clock that cannot be trusted gives none (it is *fenced*) and recovers by itself.
//! Leaves to others: reading the machine's clocks (`disk`), making the bound durable (`node`), leases (`cluster`).
//!
//! The rules, after Kulkarni et al. (Logical Physical Clocks, 2014): a stamp is max(wall clock, newest + 1); a remote
//! stamp raises `newest`. Departures: the counter carries into the microseconds when it is full, so that one u64 orders
//! everything; and reads tick nothing, but closing an instant moves the clock past it (FFFS §4.1).
//!
//! The wall clock is checked against the monotonic clock from look to look. As long as they agree, the wall clock is
//! believed. When it jumps, time goes on by the monotonic clock, and the server is fenced until the new time has held
//! for `settle_us` (then it is believed) or the old one has come back. A believed clock that lies behind the stamps
//! already given fences too, until it has caught up to within `max_clock_offset_us`.

use frieze_base::MonoTime;

use crate::error::Error;
use crate::fence::Fence;
use crate::stamp::Hlc;

/// One look at the machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Wall clock: microseconds since the Unix epoch.
    pub wall_us: u64,
    /// Monotonic clock, read together with the wall clock.
    pub mono: MonoTime,
    /// How far the wall clock can be from true time, in microseconds, as the kernel estimates it; `None` if nothing
    /// disciplines the clock, so that it is unknown.
    pub error_us: Option<u64>,
}

/// What to do while the machine does not know how wrong its clock is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownError {
    /// Serve: right for one server, whose stamps need not agree with another clock. The default.
    #[default]
    Serve,
    /// Fence: right where several servers stamp.
    Fence,
}

/// The limits within which a clock is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockSettings {
    /// How far a remote stamp, or the stamps already given, may lie ahead of the wall clock, in microseconds. Default
    /// 500,000. More tolerates worse clocks; less keeps instants nearer to true time.
    pub max_clock_offset_us: u64,
    /// Largest error bound of the machine's clock under which stamps are given, in microseconds. Default 500,000.
    pub error_us_max: u64,
    /// What an unknown error bound means. Default: serve.
    pub unknown_error: UnknownError,
    /// How far wall and monotonic clock may drift apart between two looks (a jump or a pause of the machine), in
    /// microseconds, beyond the slewing that the kernel does. Default 500,000.
    pub pause_us_max: u64,
    /// How long a wall clock that has jumped must run on evenly before it is believed, in microseconds. Default
    /// 5,000,000. More delays writes after a wanted jump; less believes a wrong jump sooner.
    pub settle_us: u64,
    /// How far the persisted bound is kept ahead of the stamps, in microseconds. Default 1,000,000. More writes the
    /// bound less often; less shortens the wait at restart.
    pub bound_ahead_us: u64,
    /// How long after the start a large or unknown error bound and jumps are forgiven, in microseconds, because the
    /// clock is still being set. Default 30,000,000.
    pub boot_grace_us: u64,
    /// How far above the wall clock and its error an instant may lie and still be closed, in microseconds: covers the
    /// time a reading is old. Default 1,000.
    pub future_us_max: u64,
}

impl Default for ClockSettings {
    fn default() -> Self {
        ClockSettings {
            max_clock_offset_us: 500_000,
            error_us_max: 500_000,
            unknown_error: UnknownError::Serve,
            pause_us_max: 500_000,
            settle_us: 5_000_000,
            bound_ahead_us: 1_000_000,
            boot_grace_us: 30_000_000,
            future_us_max: 1_000,
        }
    }
}

/// The state of a clock, for `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockHealth {
    /// Why no stamps are given; `None` when the clock is trusted.
    pub fenced: Option<Fence>,
    /// How far the wall clock can be from true time, in microseconds; `None` if unknown.
    pub error_us: Option<u64>,
    /// How far the newest stamp lies ahead of the wall clock, in microseconds.
    pub ahead_us: u64,
}

/// The hybrid logical clock of one server. The driver keeps it behind one lock: the serialisation point of stamps.
#[derive(Clone, Debug)]
pub struct HlcClock {
    settings: ClockSettings,
    newest: Hlc,
    closed: Hlc,
    bound: Hlc,
    /// Wall and monotonic clock when they were last looked at and believed.
    anchor: Option<Anchor>,
    jump: Option<Jump>,
    started: Option<MonoTime>,
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    wall_us: u64,
    mono: MonoTime,
}

/// A wall clock that has left the anchor and is on probation.
#[derive(Clone, Copy, Debug)]
struct Jump {
    since: MonoTime,
    /// The new time as last seen: it must run evenly from here.
    seen: Anchor,
}

impl HlcClock {
    /// The clock of a server whose stamps so far all lie at or below `bound`, the bound read back from stable storage
    /// (or [`Hlc::ZERO`] for a new one). Every stamp lies above it.
    pub fn new(settings: ClockSettings, bound: Hlc) -> HlcClock {
        HlcClock { settings, newest: bound, closed: bound, bound, anchor: None, jump: None, started: None }
    }

    /// A fresh stamp, greater than everything seen. Take it once, at the serialisation point.
    ///
    /// # Errors
    /// `Fenced`: the clock is not trusted now. `BoundNeeded`: make that bound durable, report it, tick again.
    pub fn tick(&mut self, reading: ClockReading) -> Result<Hlc, Error> {
        self.tick_many(reading, 1)
    }

    /// The first of `count` consecutive stamps, all greater than everything seen.
    ///
    /// # Errors
    /// As [`HlcClock::tick`].
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn tick_many(&mut self, reading: ClockReading, count: u64) -> Result<Hlc, Error> {
        assert!(count > 0, "a batch of no stamps");
        self.look(reading);
        if let Some(fence) = self.fence(reading) {
            return Err(Error::Fenced(fence));
        }
        let first = self.newest.next().max(Hlc::first_of_micros(self.wall_us(reading)));
        let last = Hlc(first.0.saturating_add(count - 1));
        self.within_bound(last)?;
        self.newest = last;
        Ok(first)
    }

    /// Adopts the newest stamp of another process: what is stamped from now on lies above it.
    ///
    /// # Errors
    /// `RemoteAhead` if it lies more than `max_clock_offset_us` ahead; nothing was adopted.
    pub fn observe(&mut self, reading: ClockReading, remote: Hlc) -> Result<(), Error> {
        self.look(reading);
        if remote <= self.newest {
            return Ok(());
        }
        let ahead_us = remote.micros().saturating_sub(self.wall_us(reading));
        let max_us = self.settings.max_clock_offset_us;
        if ahead_us > max_us {
            return Err(Error::RemoteAhead { remote, ahead_us, max_us });
        }
        self.newest = remote;
        Ok(())
    }

    /// As [`HlcClock::observe`], of a stamp that must lie within the bound before anything is done with it.
    ///
    /// # Errors
    /// As [`HlcClock::observe`]. `BoundNeeded`: make that bound durable, report it, adopt again.
    pub fn adopt(&mut self, reading: ClockReading, remote: Hlc) -> Result<(), Error> {
        self.observe(reading, remote)?;
        self.within_bound(remote)
    }

    /// Promises that every stamp from now on lies above `at`. Works while fenced: the past stays readable.
    ///
    /// # Errors
    /// `Future` if `at` has not come yet. `BoundNeeded`: make that bound durable, report it, close again.
    pub fn close(&mut self, reading: ClockReading, at: Hlc) -> Result<(), Error> {
        self.look(reading);
        if at <= self.closed {
            return Ok(());
        }
        let newest = self.newest_closable(reading);
        if at > newest {
            return Err(Error::Future { asked: at, newest });
        }
        self.within_bound(at)?;
        self.closed = at;
        self.newest = self.newest.max(at);
        Ok(())
    }

    /// Takes in a look at the machine's clocks. Every call that changes the clock does it; a driver also calls it about
    /// once a second, so that an idle server notices a jump when it happens and recovers without a write.
    pub fn look(&mut self, reading: ClockReading) {
        self.started.get_or_insert(reading.mono);
        let seen = Anchor { wall_us: reading.wall_us, mono: reading.mono };
        let Some(anchor) = self.anchor else {
            self.anchor = Some(seen);
            return;
        };
        if reading.mono < anchor.mono {
            return; // taken before the newest look by another thread: it tells nothing new
        }
        if self.in_grace(reading) || self.agree(anchor, seen) {
            self.anchor = Some(seen);
            self.jump = None;
            return;
        }
        let Some(jump) = self.jump else {
            self.jump = Some(Jump { since: reading.mono, seen });
            return;
        };
        if reading.mono < jump.seen.mono {
            return;
        }
        if !self.agree(jump.seen, seen) {
            self.jump = Some(Jump { since: reading.mono, seen }); // it jumped again: probation starts over
            return;
        }
        if reading.mono.since_ns(jump.since) / 1000 >= self.settings.settle_us {
            self.anchor = Some(seen);
            self.jump = None;
            return;
        }
        self.jump = Some(Jump { since: jump.since, seen });
    }

    /// The bound that [`Error::BoundNeeded`] or [`HlcClock::wants_bound`] asked for is on stable storage.
    pub fn bound_persisted(&mut self, bound: Hlc) {
        self.bound = self.bound.max(bound);
    }

    /// The instant that covers everything stamped so far and the wall clock. Ticks nothing.
    pub fn now(&self, reading: ClockReading) -> Hlc {
        self.newest.max(Hlc::last_of_micros(self.wall_us(reading)))
    }

    /// The newest stamp given, adopted or closed.
    pub fn newest(&self) -> Hlc {
        self.newest
    }

    /// The newest instant promised: no stamp at or below it will be given any more.
    pub fn closed(&self) -> Hlc {
        self.closed
    }

    /// The bound known to be on stable storage.
    pub fn bound(&self) -> Hlc {
        self.bound
    }

    /// The bound to persist in the background now, if half of the lead is used up: it keeps writers from waiting for
    /// it. An idle clock wants none, so an idle server writes nothing; its first stamp then asks by `BoundNeeded`.
    pub fn wants_bound(&self, reading: ClockReading) -> Option<Hlc> {
        let lead = self.bound.micros().saturating_sub(self.newest.micros());
        (lead < self.settings.bound_ahead_us.div_ceil(2))
            .then(|| self.bound_above(self.newest.micros().max(self.wall_us(reading))))
    }

    /// Microseconds until the wall clock has passed every stamp this server can have given in an earlier life; 0 when
    /// it has. A server waits it out before it serves writes, so that its instants stay near true time.
    pub fn restart_wait_us(&self, reading: ClockReading) -> u64 {
        if self.newest == Hlc::ZERO {
            return 0;
        }
        (self.newest.micros() + 1).saturating_sub(self.wall_us(reading))
    }

    /// Whether the clock is trusted, and how exact it is.
    pub fn health(&self, reading: ClockReading) -> ClockHealth {
        ClockHealth {
            fenced: self.fence(reading),
            error_us: reading.error_us,
            ahead_us: self.newest.micros().saturating_sub(self.wall_us(reading)),
        }
    }

    fn fence(&self, reading: ClockReading) -> Option<Fence> {
        if let (Some(jump), Some(anchor)) = (self.jump, self.anchor) {
            let held_us = reading.mono.since_ns(jump.since) / 1000;
            return Some(Fence::Jumped {
                by_us: jump.seen.wall_us as i64 - anchor.at(jump.seen.mono) as i64,
                remaining_us: self.settings.settle_us.saturating_sub(held_us),
            });
        }
        let behind_us = self.newest.micros().saturating_sub(self.wall_us(reading));
        let max_us = self.settings.max_clock_offset_us;
        if behind_us > max_us {
            return Some(Fence::Behind { behind_us, max_us });
        }
        if self.in_grace(reading) {
            return None;
        }
        let max_us = self.settings.error_us_max;
        match (reading.error_us, self.settings.unknown_error) {
            (Some(error_us), _) if error_us > max_us => Some(Fence::ErrorTooLarge { error_us, max_us }),
            (None, UnknownError::Fence) => Some(Fence::ErrorUnknown),
            _ => None,
        }
    }

    fn in_grace(&self, reading: ClockReading) -> bool {
        self.started.is_none_or(|started| reading.mono.since_ns(started) / 1000 < self.settings.boot_grace_us)
    }

    /// The time that is believed: the wall clock, or when it has jumped, the time it would show without the jump.
    fn wall_us(&self, reading: ClockReading) -> u64 {
        let Some(anchor) = self.anchor else { return reading.wall_us };
        let seen = Anchor { wall_us: reading.wall_us, mono: reading.mono };
        let jumped = self.jump.is_some() || !(self.in_grace(reading) || self.agree(anchor, seen));
        if jumped { anchor.at(reading.mono) } else { reading.wall_us }
    }

    /// True if the wall clock went from `earlier` to `later` as the monotonic clock did.
    fn agree(&self, earlier: Anchor, later: Anchor) -> bool {
        let elapsed_us = later.mono.since_ns(earlier.mono) / 1000;
        let slewed_us = elapsed_us / 1000 * SLEW_PPM_MAX / 1000;
        earlier.at(later.mono).abs_diff(later.wall_us) <= self.settings.pause_us_max + slewed_us
    }

    fn newest_closable(&self, reading: ClockReading) -> Hlc {
        let error_us = reading.error_us.unwrap_or(0).min(self.settings.max_clock_offset_us);
        let wall = self.wall_us(reading).saturating_add(error_us).saturating_add(self.settings.future_us_max);
        self.newest.max(Hlc::last_of_micros(wall))
    }

    fn within_bound(&self, stamp: Hlc) -> Result<(), Error> {
        if stamp <= self.bound {
            return Ok(());
        }
        Err(Error::BoundNeeded(self.bound_above(stamp.micros())))
    }

    fn bound_above(&self, micros: u64) -> Hlc {
        Hlc::last_of_micros(micros.saturating_add(self.settings.bound_ahead_us))
    }
}

impl Anchor {
    /// What the wall clock shows at `mono` if it runs evenly.
    fn at(self, mono: MonoTime) -> u64 {
        self.wall_us.saturating_add(mono.since_ns(self.mono) / 1000)
    }
}

/// How fast the kernel may slew the wall clock: 500 ppm by adjtime, doubled for the quartz itself.
const SLEW_PPM_MAX: u64 = 1_000;

#[cfg(test)]
mod tests;
