//! vmpool

pub mod stamp;
