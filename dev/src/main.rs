//! The `cargo dev` command.

fn main() {}
