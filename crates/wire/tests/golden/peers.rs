//! What servers tell each other, one of each kind.

use frieze_wire::peer::{Alive, Told};

pub(super) fn told() -> Vec<(&'static str, Told)> {
    vec![("alive", Told::Alive(Alive {}))]
}
