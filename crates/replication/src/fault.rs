//! Faults that several steps of the data plane answer with.

use frieze_base::{Fault, Reason};

pub(crate) fn damaged() -> Fault {
    Fault::new(Reason::BadFrame, "the payload does not match its checksum: it was damaged on the way; send it again")
}

pub(crate) fn no_lease() -> Fault {
    Fault::new(
        Reason::Unavailable,
        "this server has no lease just now: it may have been replaced; ask for the chain's members and try there, or \
         again",
    )
}

pub(crate) fn no_answer() -> Fault {
    Fault::new(Reason::Unavailable, "the chain's other members do not answer just now: try again")
}
