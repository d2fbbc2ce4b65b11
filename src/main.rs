//! The `vmpool` program: prints its CRDs for now.
fn main() -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(&vmpool::api::crds())?);
    Ok(())
}
