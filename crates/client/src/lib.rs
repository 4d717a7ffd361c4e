//! The client library: paths, handles and views of time.
