//! The kinds the stand-in watches and writes: paths, and how much of each it needs.
//!
//! Only a table. A kind that is not served yet (a CRD installed later) is the watch's business.

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    ConfigMap,
    ControllerRevision,
    DataVolume,
    Node,
    PersistentVolumeClaim,
    Pod,
    Secret,
    VirtualMachine,
    VirtualMachineInstance,
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::ConfigMap,
        Self::ControllerRevision,
        Self::DataVolume,
        Self::Node,
        Self::PersistentVolumeClaim,
        Self::Pod,
        Self::Secret,
        Self::VirtualMachine,
        Self::VirtualMachineInstance,
    ];

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::ControllerRevision => "apps/v1",
            Self::DataVolume => "cdi.kubevirt.io/v1beta1",
            Self::VirtualMachine | Self::VirtualMachineInstance => "kubevirt.io/v1",
            Self::ConfigMap
            | Self::Node
            | Self::PersistentVolumeClaim
            | Self::Pod
            | Self::Secret => "v1",
        }
    }

    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::ControllerRevision => "ControllerRevision",
            Self::DataVolume => "DataVolume",
            Self::Node => "Node",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Pod => "Pod",
            Self::Secret => "Secret",
            Self::VirtualMachine => "VirtualMachine",
            Self::VirtualMachineInstance => "VirtualMachineInstance",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::ControllerRevision => "controllerrevisions",
            Self::DataVolume => "datavolumes",
            Self::Node => "nodes",
            Self::PersistentVolumeClaim => "persistentvolumeclaims",
            Self::Pod => "pods",
            Self::Secret => "secrets",
            Self::VirtualMachine => "virtualmachines",
            Self::VirtualMachineInstance => "virtualmachineinstances",
        }
    }

    /// Whether names and owners are all that is needed, so that contents never leave the server.
    pub(super) const fn is_metadata_only(self) -> bool {
        matches!(
            self,
            Self::ConfigMap | Self::ControllerRevision | Self::Secret
        )
    }

    /// Further query parameters of list and watch.
    pub(super) const fn selector(self) -> &'static str {
        match self {
            Self::Pod => "&labelSelector=kubevirt.io%3Dvirt-launcher",
            Self::ConfigMap
            | Self::ControllerRevision
            | Self::DataVolume
            | Self::Node
            | Self::PersistentVolumeClaim
            | Self::Secret
            | Self::VirtualMachine
            | Self::VirtualMachineInstance => "",
        }
    }

    /// The path of all objects, of one namespace's when it is not empty.
    pub(super) fn collection(self, namespace: &str) -> String {
        let version = self.api_version();
        let root = if version == "v1" { "/api" } else { "/apis" };
        let plural = self.plural();
        if namespace.is_empty() {
            format!("{root}/{version}/{plural}")
        } else {
            format!("{root}/{version}/namespaces/{namespace}/{plural}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_every_kind_at_its_index() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
        }
    }

    #[test]
    fn paths() {
        assert_eq!(Kind::Pod.collection("a"), "/api/v1/namespaces/a/pods");
        assert_eq!(Kind::Node.collection(""), "/api/v1/nodes");
        assert_eq!(
            Kind::VirtualMachine.collection(""),
            "/apis/kubevirt.io/v1/virtualmachines"
        );
    }
}
