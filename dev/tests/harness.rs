//! The harness itself, without `vmpool`: what it installs, and that VMs are played.

use std::time::Duration;

use anyhow::{Result, ensure};
use dev::harness::{Harness, Options, eventually};

const VM: &str = r"
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: lone}
spec:
  runStrategy: Always
  dataVolumeTemplates:
  - metadata: {name: lone-data}
    spec:
      storage: {resources: {requests: {storage: 64Mi}}}
      source: {blank: {}}
  template:
    spec:
      domain: {devices: {disks: [{name: data, disk: {bus: virtio}}]}, memory: {guest: 64Mi}}
      volumes: [{name: data, dataVolume: {name: lone-data}}]
";

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_is_not_ours_runs_and_goes_while_vmpool_is_down() -> Result<()> {
    let harness = Harness::start(Options {
        without_vmpool: true,
        ..Options::default()
    })
    .await?;
    let namespace = harness.namespace("lone").await?;
    let kubectl = harness.kubectl();
    kubectl.run_ok_with_input(&["-n", &namespace, "apply", "-f", "-"], VM)?;
    let ready = "wait vm/lone --for=condition=Ready --timeout=60s";
    let args = [vec!["-n", &namespace], ready.split(' ').collect()].concat();
    kubectl.run_ok(&args)?;
    kubectl.run_ok(&["-n", &namespace, "delete", "vm", "lone"])?;
    let timeout = Duration::from_secs(60);
    eventually("nothing of the VM is left", timeout, async || {
        let kinds = "vm,vmi,datavolumes.cdi.kubevirt.io,pvc,pods";
        let left = kubectl.run_ok(&["-n", &namespace, "get", kinds, "-o", "name"])?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await
}
