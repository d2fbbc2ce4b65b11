//! The benchmark measures everything that it says it measures. What it measures here means nothing.

use anyhow::{Result, ensure};
use dev::bench::Part;
use dev::harness::Binary;

#[tokio::test(flavor = "multi_thread")]
async fn a_rehearsal_of_the_benchmark_measures_every_number() -> Result<()> {
    let results = dev::bench::rehearse(Binary::default(), &Part::BUILT).await?;
    println!("{results:#}");
    for (key, value) in results.as_object().into_iter().flatten() {
        let is_built = !["rollout", "writes_per_update", "restarts"]
            .iter()
            .any(|later| key.starts_with(later));
        ensure!(!value.is_null() || !is_built, "{key} was not measured");
    }
    // What doesn't depend on the machine.
    ensure!(
        results["writes_per_vm"] == 1.0,
        "{}",
        results["writes_per_vm"]
    );
    ensure!(results["idle_writes_per_min"] == 0.0, "it writes at rest");
    Ok(())
}
