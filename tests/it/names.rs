//! Names: of VMs, of their disks, and of what they refer to. Cases NR-*, matrix rows 15, 28 to 36, 86 to 88, 94.

use anyhow::{Result, ensure};

use crate::objects::{config, pool};
use crate::space::name;
use crate::{Kind, with_namespace};

#[test]
fn a_config_and_a_pool_become_numbered_vms() {
    with_namespace("names", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(3))?;
        ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        let vms = ns.list(Kind::Vm).await?;
        ensure!(vms.iter().map(name).eq(["web-1", "web-2", "web-3"]));
        Ok(())
    });
}
