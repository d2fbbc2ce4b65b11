//! vmpool
