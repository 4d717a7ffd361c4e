//! The metadata state machine: every version of every name and inode.
