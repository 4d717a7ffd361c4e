//! Storage drivers: devices of files, the clock of the machine, and their simulated twins.
