//! Admission of connections: how many a user may have open to a server, over all its gateways together.
//!
//! Guarantees: the number of connections is bounded; a part is reserved for root, the user that the server runs as and
//! the other servers of its cluster; of the rest a user has no more than are left for all others, so no user excludes
//! another; connections of other machines without proof share a quarter, and one address has no more of it than it
//! leaves to others. Refused connections are logged now and then.
//! Leaves to others: the identity of a peer (`peer_credentials`), the time limit for its proof, the reply to a refused
//! connection (the gateways).
//!
//! With k users that take what they can, the next one finds a 2^k-th part. Fixed shares would be exhausted by as many
//! users as there are shares, and would keep a single user from free connections.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use frieze_locks::{Mutex, MutexGuard, levels};

use crate::Proof;
use crate::log_throttle::LogThrottle;

/// One in so many connections is reserved for root and other servers: 256 of 4,096. PostgreSQL reserves 3 of 100.
const RESERVED: usize = 16;
/// One in so many is for peers of other machines without proof.
const UNPROVEN: usize = 4;

/// The owner of a connection, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// This user, proven by the kernel, a key or a token.
    User(u32),
    /// Another server of the cluster.
    Server,
    /// Unknown yet; the connection comes from this address.
    Unproven(IpAddr),
}

impl Origin {
    /// The owner of a connection from `address`, by the proof of the kernel.
    pub fn of(proof: Proof, address: IpAddr) -> Origin {
        match proof {
            Proof::User(uid) => Origin::User(uid),
            Proof::Unproven => Origin::Unproven(address),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::User(uid) => write!(f, "user {uid}"),
            Origin::Server => f.write_str("a server of the cluster"),
            Origin::Unproven(address) => write!(f, "{address}, which has not proven who it is,"),
        }
    }
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// All connections are in use.
    #[error("the server has {places_max} connections open, its limit: close some, or raise connections_max")]
    Full {
        /// The limit.
        places_max: usize,
    },
    /// The remaining connections are for other users.
    #[error(
        "{origin} has {count} connections open, and of {places_max} no more than are left for others: close some, or \
         raise connections_max"
    )]
    Share {
        /// The owner.
        origin: Origin,
        /// How many it has open.
        count: usize,
        /// The limit of all connections.
        places_max: usize,
    },
}

/// The connections of a server. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Admission(Arc<AdmissionState>);

#[derive(Debug)]
struct AdmissionState {
    places_max: usize,
    unproven_max: usize,
    /// The user that the server runs as.
    owner: u32,
    taken: Mutex<levels::Admission, SeatCounts>,
    refusals: Option<LogThrottle>,
}

#[derive(Debug, Default)]
struct SeatCounts {
    count: usize,
    unproven: usize,
    /// Connections of each owner that has any.
    of: BTreeMap<Origin, usize>,
}

/// The right of one connection to be open. Dropping it returns the right.
#[derive(Debug)]
pub struct Seat {
    places: Arc<AdmissionState>,
    origin: Origin,
}

impl Admission {
    /// Admits at most `places_max` connections.
    pub fn new(places_max: usize) -> Admission {
        Admission::owned_by(rustix::process::geteuid().as_raw(), places_max)
    }

    /// The same for a gateway of its own that needs no proof, and that logs refusals itself.
    pub fn unlogged(places_max: usize) -> Admission {
        let owner = rustix::process::geteuid().as_raw();
        Admission(Arc::new(AdmissionState {
            places_max,
            unproven_max: places_max,
            owner,
            taken: Mutex::default(),
            refusals: None,
        }))
    }

    fn owned_by(owner: u32, places_max: usize) -> Admission {
        let (unproven_max, refusals) = ((places_max / UNPROVEN).max(1), Some(LogThrottle::default()));
        Admission(Arc::new(AdmissionState { places_max, unproven_max, owner, taken: Mutex::default(), refusals }))
    }

    /// Admits a connection until the returned seat is dropped.
    ///
    /// # Errors
    /// `Full`, `Share`: send the peer the error, if its protocol can, and close the connection.
    pub fn enter(&self, origin: Origin) -> Result<Seat, AdmissionError> {
        self.0.take(origin).inspect_err(|refused| self.0.log(*refused))?;
        Ok(Seat { places: self.0.clone(), origin })
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.0.taken().count
    }
}

impl Seat {
    /// Sets the owner of the connection once it is known.
    ///
    /// # Errors
    /// `Share` if the owner has as many as it may: close the connection.
    pub fn belongs_to(&mut self, origin: Origin) -> Result<(), AdmissionError> {
        if origin == self.origin {
            return Ok(());
        }
        let mut taken = self.places.taken();
        taken.leave(self.origin);
        match self.places.admit(&mut taken, origin) {
            Ok(()) => {
                self.origin = origin;
                Ok(())
            }
            Err(refused) => {
                taken.enter(self.origin);
                drop(taken);
                self.places.log(refused);
                Err(refused)
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.places.taken().leave(self.origin);
    }
}

impl AdmissionState {
    #[track_caller]
    fn taken(&self) -> MutexGuard<'_, SeatCounts> {
        self.taken.lock()
    }

    fn take(&self, origin: Origin) -> Result<(), AdmissionError> {
        self.admit(&mut self.taken(), origin)
    }

    fn admit(&self, taken: &mut SeatCounts, origin: Origin) -> Result<(), AdmissionError> {
        let places_max = self.places_max;
        let may_have_all = match origin {
            Origin::User(uid) => uid == 0 || uid == self.owner,
            Origin::Server => true,
            Origin::Unproven(_) => false,
        };
        let shared_max = if may_have_all { places_max } else { places_max - places_max / RESERVED };
        if taken.count >= shared_max {
            return Err(AdmissionError::Full { places_max });
        }
        let left = shared_max - taken.count;
        let left = match origin {
            Origin::Unproven(_) => left.min(self.unproven_max.saturating_sub(taken.unproven)),
            _ => left,
        };
        let count = taken.of.get(&origin).copied().unwrap_or(0);
        if !may_have_all && count >= left {
            return Err(AdmissionError::Share { origin, count, places_max });
        }
        taken.enter(origin);
        Ok(())
    }

    fn log(&self, refused: AdmissionError) {
        if let Some(count) = self.refusals.as_ref().and_then(LogThrottle::happened) {
            tracing::warn!(count, "connections are refused; the last: {refused}");
        }
    }
}

impl SeatCounts {
    fn enter(&mut self, origin: Origin) {
        self.count += 1;
        self.unproven += usize::from(matches!(origin, Origin::Unproven(_)));
        *self.of.entry(origin).or_default() += 1;
    }

    fn leave(&mut self, origin: Origin) {
        self.count -= 1;
        self.unproven -= usize::from(matches!(origin, Origin::Unproven(_)));
        if let Some(count) = self.of.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 700;

    fn from(last: u8) -> Origin {
        Origin::Unproven(IpAddr::from([10, 0, 0, last]))
    }

    /// Opens as many connections as are admitted.
    fn fill(admission: &Admission, origin: Origin, places: &mut Vec<Seat>) -> (usize, AdmissionError) {
        let before = places.len();
        loop {
            match admission.enter(origin) {
                Ok(place) => places.push(place),
                Err(refused) => return (places.len() - before, refused),
            }
        }
    }

    #[test]
    fn a_user_has_no_more_than_it_leaves_to_others_and_root_has_a_reserve() {
        let admission = Admission::owned_by(OWNER, 4096);
        let mut places = Vec::new();
        let (first, refused) = fill(&admission, Origin::User(1001), &mut places);
        assert_eq!(first, 1920);
        let words = refused.to_string();
        assert!(words.starts_with("user 1001 has 1920 connections open, and of 4096"), "{words}");
        let of_others = [1002, 1003].map(|uid| fill(&admission, Origin::User(uid), &mut places).0);
        assert_eq!(of_others, [960, 480]);
        for uid in 2000..2100 {
            fill(&admission, Origin::User(uid), &mut places);
        }
        assert_eq!(admission.enter(Origin::User(3000)).unwrap_err(), AdmissionError::Full { places_max: 4096 });
        // An administrator is still admitted.
        for origin in [Origin::User(0), Origin::User(OWNER), Origin::Server] {
            places.push(admission.enter(origin).unwrap());
        }
        assert_eq!(fill(&admission, Origin::User(0), &mut places), (253, AdmissionError::Full { places_max: 4096 }));
        assert_eq!(admission.count(), 4096);
        drop(places);
        assert_eq!((admission.count(), admission.0.taken().of.len()), (0, 0));
    }

    #[test]
    fn unproven_remote_connections_share_a_quarter_and_one_address_half_of_the_rest() {
        let admission = Admission::owned_by(OWNER, 4096);
        let mut places = Vec::new();
        assert_eq!(fill(&admission, from(1), &mut places).0, 512);
        assert_eq!(fill(&admission, from(2), &mut places).0, 256);
        for last in 3..200 {
            fill(&admission, from(last), &mut places);
        }
        assert_eq!(places.len(), 1024);
        assert!(admission.enter(from(200)).is_err(), "the quarter is full");
        assert!(admission.enter(Origin::User(1001)).is_ok(), "which keeps no user out");
        // A connection with proof leaves room for the next one without.
        places[0].belongs_to(Origin::User(1001)).unwrap();
        places[1].belongs_to(Origin::Server).unwrap();
        places[1].belongs_to(Origin::Server).unwrap();
        assert!(admission.enter(from(200)).is_ok());
    }

    #[test]
    fn a_connection_that_is_proven_to_be_of_a_user_with_enough_of_them_ends() {
        let admission = Admission::owned_by(OWNER, 64);
        let mut places = Vec::new();
        let (count, _) = fill(&admission, Origin::User(1001), &mut places);
        let mut place = admission.enter(from(1)).unwrap();
        let error = place.belongs_to(Origin::User(1001)).unwrap_err();
        assert!(matches!(error, AdmissionError::Share { count: found, .. } if found == count));
        drop(place);
        assert_eq!(admission.count(), count);
    }

    #[test]
    fn few_places_are_all_for_the_owner_and_one_for_any_user() {
        for places_max in [1, 2, 8] {
            let admission = Admission::owned_by(OWNER, places_max);
            for (origin, most) in [(Origin::User(OWNER), places_max), (Origin::User(5), places_max.div_ceil(2))] {
                assert_eq!(fill(&admission, origin, &mut Vec::new()).0, most, "{origin} of {places_max}");
            }
        }
    }
}
