//! Loads with the machine's ceilings beside them.
