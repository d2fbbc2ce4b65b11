//! What `cargo dev <command>` does, one file a command. Each is a thin shell over the library.

pub mod test;
pub mod up;
