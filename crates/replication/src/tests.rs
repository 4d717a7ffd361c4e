//! Data planes of several nodes on simulated disks, with a network that loses, duplicates, delays and reorders messages
//! under a seed.

mod few;
mod fills;
mod lives;
mod remains;
mod replica_cluster;
mod writing;
