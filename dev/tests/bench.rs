//! The benchmark measures everything that it says it measures. What it measures here means nothing.

use anyhow::{Result, ensure};
use dev::bench::Part;
use dev::harness::Binary;

#[tokio::test(flavor = "multi_thread")]
async fn a_rehearsal_of_the_benchmark_measures_every_number() -> Result<()> {
    let results = dev::bench::rehearse(Binary::default(), &Part::ALL).await?;
    println!("{results:#}");
    for (key, value) in results.as_object().into_iter().flatten() {
        ensure!(!value.is_null(), "{key} was not measured");
    }
    // What doesn't depend on the machine.
    ensure!(
        results["writes_per_vm"] == 1.0,
        "{}",
        results["writes_per_vm"]
    );
    for each in ["writes_per_update", "restarts_per_update"] {
        ensure!(results[each] == 1.0, "{each}: {}", results[each]);
    }
    ensure!(results["idle_writes_per_min"] == 0.0, "it writes at rest");
    Ok(())
}
