//! The server: drivers that run the cores.
