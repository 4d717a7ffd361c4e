//! A whole frieze in one thread under a seed.
