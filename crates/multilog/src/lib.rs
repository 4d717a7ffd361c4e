//! Records and segments of a device, the index that answers any range at any instant, and recovery.
