//! Data planes of several nodes on simulated disks, with a network that loses, duplicates, delays and reorders messages
//! under a seed.

mod catch_up;
mod few;
mod fills;
mod lives;
mod remains;
mod replica_cluster;
mod writing;
