//! One object that nobody can read stops no other. Case CC-09; that a panic is caught is tested in
//! `src/controller`.

use anyhow::{Result, ensure};
use dev::harness::Options;
use serde_json::json;

use crate::lax::Rules;
use crate::objects::{config, pool};
use crate::{Kind, Space, with_own};

const HEALTHY: usize = 20;

async fn all_have(ns: &Space<'_>, replicas: usize) -> Result<()> {
    ns.eventually(
        &format!("every healthy pool has {replicas} members"),
        async || {
            let vms = ns.list(Kind::Vm).await?;
            for number in 0..HEALTHY {
                let name = format!("healthy-{number}");
                let label = json!(name);
                let of_pool =
                    |vm: &&serde_json::Value| vm["metadata"]["labels"]["vmpool.dev/pool"] == label;
                let count = vms.iter().filter(of_pool).count();
                ensure!(count == replicas, "{name} has {count}");
            }
            Ok(())
        },
    )
    .await
}

#[test]
fn cc_09_objects_that_can_not_be_read_stop_no_pool_at_any_time() {
    let options = Options {
        without_standin: true,
        ..Options::default()
    };
    with_own(options, async |cluster| {
        let restarts = cluster.vmpool().restarts();
        let ns = Space::new(&*cluster, "cc-09").await?;
        ns.accepts(config("cfg"))?;
        for number in 0..HEALTHY {
            ns.accepts(pool(&format!("healthy-{number}"), "cfg").replicas(1))?;
        }
        all_have(&ns, 1).await?;

        // 1. Pools come that no Rust type can hold.
        let rules = Rules::relax(&ns.client).await?;
        for (name, bad) in [
            ("text", pool("text", "cfg").with("/spec/paused", "perhaps")),
            ("number", pool("number", "cfg").with("/spec/config", 7)),
            ("empty", pool("empty", "cfg").with("/spec", json!({}))),
            (
                "absurd",
                pool("absurd", "cfg").with("/spec/maxUnavailable", i64::MAX),
            ),
        ] {
            let what = format!("{name} is stored under laxer rules");
            ns.eventually(&what, async || ns.accepts(&bad).map(drop))
                .await?;
        }
        rules.restore().await?;
        ns.eventually("the webhooks are back", async || {
            let made = pool("probe", "cfg").with("/spec/autohealing", json!({}));
            let made = ns.run_with("create --dry-run=server -f -", &made.to_string())?;
            ensure!(made.stderr.contains("not supported yet"), "{}", made.stderr);
            Ok(())
        })
        .await?;

        // 2. The others go on while the program runs, and when it starts with the bad ones there.
        for replicas in [2, 3] {
            for number in 0..HEALTHY {
                ns.kubectl(&format!(
                    "scale vpool healthy-{number} --replicas={replicas}"
                ))?;
            }
            all_have(&ns, replicas).await?;
            ensure!(
                cluster.vmpool().restarts() == restarts + replicas as u32 - 2,
                "it ended by itself"
            );
            if replicas == 2 {
                cluster.restart_vmpool().await?;
            }
        }

        // 3. They can be deleted.
        ns.kubectl("delete vpool --all")?;
        ns.eventually("everything is gone", async || {
            let vms = ns.names(Kind::Vm).await?;
            ensure!(vms.is_empty(), "{vms:?}");
            Ok(())
        })
        .await
    });
}
