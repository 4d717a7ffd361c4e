//! Data planes of several nodes on simulated disks, with a network that loses, doubles, delays and reorders under a
//! seed.

mod few;
mod lives;
mod remains;
mod world;
