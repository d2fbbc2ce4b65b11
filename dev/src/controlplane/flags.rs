//! The flags of the three servers, each with its reason. Pure: paths and ports in, arguments out.

use std::path::Path;

/// The files and ports of one control plane.
pub(super) struct Layout<'a> {
    pub(super) dir: &'a Path,
    pub(super) etcd_port: u16,
    pub(super) apiserver_port: u16,
    pub(super) controller_manager_port: u16,
}

impl Layout<'_> {
    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

pub(super) fn etcd(layout: &Layout<'_>) -> Vec<String> {
    let client_url = format!("http://127.0.0.1:{}", layout.etcd_port);
    vec![
        format!("--data-dir={}", layout.file("etcd")),
        format!("--listen-client-urls={client_url}"),
        format!("--advertise-client-urls={client_url}"),
        // There are no peers; the port only has to be free.
        "--listen-peer-urls=http://127.0.0.1:0".into(),
        // The data does not outlive the folder, so that waiting for the disk buys nothing.
        "--unsafe-no-fsync=true".into(),
        // The default of 2 GiB ends a benchmark with many revisions of large VMs.
        "--quota-backend-bytes=8589934592".into(),
        "--log-level=warn".into(),
    ]
}

pub(super) fn apiserver(layout: &Layout<'_>) -> Vec<String> {
    let mut flags = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", layout.etcd_port),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={}", layout.apiserver_port),
        // A loopback address may not be an endpoint of the `kubernetes` Service.
        "--endpoint-reconciler-type=none".into(),
        "--service-cluster-ip-range=10.96.0.0/24".into(),
        // Launcher pods are privileged for some features.
        "--allow-privileged=true".into(),
        // So that blockOwnerDeletion without rights to the owner's finalizers fails here as it
        // does where an administrator has turned the plugin on (OpenShift has).
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".into(),
        // Priority and fairness stays on; its shares are of the sum of these two. The defaults,
        // 400 and 200, would make the API server the limit of a benchmark on one machine.
        "--max-requests-inflight=3000".into(),
        "--max-mutating-requests-inflight=1000".into(),
        "--delete-collection-workers=10".into(),
        "--profiling=false".into(),
    ];
    flags.extend(apiserver_identity(layout));
    flags.extend(apiserver_aggregation(layout));
    flags.extend([
        format!("--audit-policy-file={}", layout.file("audit-policy.yaml")),
        format!("--audit-log-path={}", layout.file("audit.log")),
        // In MiB; one file, for what counts writes reads one.
        "--audit-log-maxsize=8192".into(),
    ]);
    flags
}

/// Who it is, and how it knows others.
fn apiserver_identity(layout: &Layout<'_>) -> [String; 8] {
    [
        format!("--tls-cert-file={}", layout.file("apiserver.crt")),
        format!("--tls-private-key-file={}", layout.file("apiserver.key")),
        format!("--client-ca-file={}", layout.file("ca.crt")),
        "--authorization-mode=Node,RBAC".into(),
        format!("--service-account-key-file={}", layout.file("sa.pub")),
        format!(
            "--service-account-signing-key-file={}",
            layout.file("sa.key")
        ),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        // The certificate that kubelets would ask for; there are none.
        format!("--cert-dir={}", layout.file("generated")),
    ]
}

/// How it names the caller to an aggregated API server, and proves to be the one who does.
fn apiserver_aggregation(layout: &Layout<'_>) -> [String; 8] {
    [
        format!(
            "--requestheader-client-ca-file={}",
            layout.file("front-proxy-ca.crt")
        ),
        "--requestheader-allowed-names=front-proxy-client".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-uid-headers=X-Remote-Uid".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!(
            "--proxy-client-cert-file={}",
            layout.file("front-proxy-client.crt")
        ),
        format!(
            "--proxy-client-key-file={}",
            layout.file("front-proxy-client.key")
        ),
    ]
}

/// Controllers whose work is played by others here, or needs nodes that are real.
const CONTROLLERS_OFF: &str = "*,\
    -node-lifecycle-controller,-taint-eviction-controller,\
    -persistentvolume-binder-controller,-persistentvolume-attach-detach-controller,\
    -persistentvolume-expander-controller,\
    -node-ipam-controller,-node-route-controller,-service-lb-controller,\
    -cloud-node-lifecycle-controller";

pub(super) fn controller_manager(layout: &Layout<'_>) -> Vec<String> {
    let kubeconfig = layout.file("controller-manager.kubeconfig");
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", layout.controller_manager_port),
        format!("--cert-dir={}", layout.file("generated")),
        // There is one, and waiting for a lease would only slow the start.
        "--leader-elect=false".into(),
        // Each controller as its own service account, as the audit log and RBAC should see it.
        "--use-service-account-credentials=true".into(),
        format!(
            "--service-account-private-key-file={}",
            layout.file("sa.key")
        ),
        format!("--root-ca-file={}", layout.file("ca.crt")),
        format!("--controllers={CONTROLLERS_OFF}"),
        // 15 s by default: a test that follows an autoscaler would take minutes.
        "--horizontal-pod-autoscaler-sync-period=3s".into(),
        "--horizontal-pod-autoscaler-downscale-stabilization=3s".into(),
        "--horizontal-pod-autoscaler-cpu-initialization-period=3s".into(),
        // Deleted owners and namespaces at the speed of the machine, not of 20 requests a second.
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=2000".into(),
        "--concurrent-gc-syncs=30".into(),
        "--concurrent-namespace-syncs=30".into(),
        "--profiling=false".into(),
    ]
}

/// What is logged: who wrote what with which outcome, once the outcome is known. Reads are many
/// and answer no question of ours; a body at each write would make the log the bottleneck.
pub(super) const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_listens_on_loopback() {
        let layout = Layout {
            dir: Path::new("/tmp/x"),
            etcd_port: 1,
            apiserver_port: 2,
            controller_manager_port: 3,
        };
        for flags in [apiserver(&layout), controller_manager(&layout)] {
            assert!(flags.contains(&"--bind-address=127.0.0.1".to_owned()));
        }
        let urls = etcd(&layout);
        let mut urls = urls.iter().filter(|flag| flag.contains("urls="));
        assert!(urls.all(|flag| flag.contains("=http://127.0.0.1:")));
    }
}
