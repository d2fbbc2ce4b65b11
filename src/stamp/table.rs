//! The table of names in a VM spec: every field of KubeVirt's and CDI's specs that refers to
//! something by name, and what a pool makes of it.
//!
//! It only says; [`references`](super::references) does. Read off KubeVirt's API at commit
//! d923fdb815, and checked against its CRD by a test: a reference that a newer one brings fails
//! there until it has a row. The second table is for values that are no names but must differ
//! between VMs.

use super::references::Flag::{ConfigMaps, Secrets, VolumeClaims};
use super::references::Row;
use super::references::{Kind as K, Rule as R};

const INSIDE: &str = "names a part of the same VM";
const READ_ONLY_SOURCE: &str = "sources are for reading, all VMs have the same";
const IMPORT_SECRET: &str = "for the import of the image, which is the same for all";

/// Every field of a VM spec that holds a name.
#[rustfmt::skip] // A row a line: it is a table.
pub static TABLE: &[Row] = &[
    // Volumes.
    Row::new("template.spec.volumes[].persistentVolumeClaim.claimName", K::Claim, R::Opt(VolumeClaims), "").or_disk(),
    Row::new("template.spec.volumes[].dataVolume.name", K::DataVolume, R::Opt(VolumeClaims), "").or_disk(),
    Row::new("template.spec.volumes[].ephemeral.persistentVolumeClaim.claimName", K::Claim, R::Shared, "the read-only backing of a copy-on-write disk").or_disk(),
    Row::new("template.spec.volumes[].configMap.name", K::ConfigMap, R::Opt(ConfigMaps), ""),
    Row::new("template.spec.volumes[].secret.secretName", K::Secret, R::Opt(Secrets), ""),
    Row::new("template.spec.volumes[].cloudInitNoCloud.secretRef.name", K::Secret, R::Opt(Secrets), "user data"),
    Row::new("template.spec.volumes[].cloudInitNoCloud.networkDataSecretRef.name", K::Secret, R::Opt(Secrets), "network data"),
    Row::new("template.spec.volumes[].cloudInitConfigDrive.secretRef.name", K::Secret, R::Opt(Secrets), "user data"),
    Row::new("template.spec.volumes[].cloudInitConfigDrive.networkDataSecretRef.name", K::Secret, R::Opt(Secrets), "network data"),
    Row::new("template.spec.volumes[].sysprep.secret.name", K::Secret, R::Opt(Secrets), "Windows' answer file"),
    Row::new("template.spec.volumes[].sysprep.configMap.name", K::ConfigMap, R::Opt(ConfigMaps), "Windows' answer file"),
    Row::new("template.spec.volumes[].serviceAccount.serviceAccountName", K::ServiceAccount, R::Shared, ""),
    Row::new("template.spec.volumes[].containerDisk.imagePullSecret", K::Secret, R::Shared, "the image is the same for all"),
    Row::new("template.spec.volumes[].memoryDump.claimName", K::Claim, R::RefusedInConfig, "set by KubeVirt's memory dump"),
    Row::new("template.spec.volumes[].hostDisk.path", K::HostPath, R::WarnShared, "VMs on one node would write to one file"),
    // The rest of the template.
    Row::new("template.spec.accessCredentials[].sshPublicKey.source.secret.secretName", K::Secret, R::Opt(Secrets), "list a key for all in sharedSecrets"),
    Row::new("template.spec.accessCredentials[].userPassword.source.secret.secretName", K::Secret, R::Opt(Secrets), ""),
    Row::new("template.spec.utilityVolumes[].claimName", K::Claim, R::RefusedInConfig, "set by KubeVirt for dumps and backups"),
    Row::new("template.spec.domain.firmware.kernelBoot.container.imagePullSecret", K::Secret, R::Shared, "the image is the same for all"),
    Row::new("template.spec.serviceAccountName", K::ServiceAccount, R::Shared, "of the launcher pod"),
    Row::new("template.spec.resourceClaims[].resourceClaimName", K::ResourceClaim, R::Exclusive, "use resourceClaimTemplateName, of which each VM gets its own"),
    Row::new("template.spec.resourceClaims[].resourceClaimTemplateName", K::ResourceClaimTemplate, R::Shared, "each VM gets a claim of its own from it"),
    Row::new("template.spec.networks[].multus.networkName", K::Network, R::Shared, ""),
    Row::new("template.spec.domain.devices.interfaces[].binding.name", K::ClusterScoped, R::Shared, "a network binding plugin"),
    Row::new("template.spec.priorityClassName", K::ClusterScoped, R::Shared, ""),
    Row::new("template.spec.schedulerName", K::ClusterScoped, R::Shared, ""),
    Row::new(r#"template.metadata.annotations["hooks.kubevirt.io/hookSidecars"]<json>[].configMap.name"#, K::ConfigMap, R::Shared, "inside a string, which is never rewritten"),
    Row::new(r#"template.metadata.annotations["hooks.kubevirt.io/hookSidecars"]<json>[].pvc.name"#, K::Claim, R::WarnShared, "inside a string, which is never rewritten; the sidecars of all VMs would write to it"),
    // Names of parts of the same spec.
    Row::new("template.spec.domain.devices.disks[].name", K::Internal, R::Internal, INSIDE),
    Row::new("template.spec.domain.devices.filesystems[].name", K::Internal, R::Internal, INSIDE),
    Row::new("template.spec.domain.firmware.acpi.slicNameRef", K::Internal, R::Internal, INSIDE),
    Row::new("template.spec.domain.firmware.acpi.msdmNameRef", K::Internal, R::Internal, INSIDE),
    Row::new("template.spec.domain.devices.gpus[].claimName", K::Internal, R::Internal, INSIDE),
    Row::new("template.spec.domain.devices.hostDevices[].claimName", K::Internal, R::Internal, INSIDE),
    Row::new("template.spec.domain.devices.interfaces[].name", K::Internal, R::Internal, INSIDE),
    Row::new("template.spec.networks[].resourceClaim.claimName", K::Internal, R::Internal, INSIDE),
    Row::new("instancetype.inferFromVolume", K::Internal, R::Internal, INSIDE),
    Row::new("preference.inferFromVolume", K::Internal, R::Internal, INSIDE),
    // Instance types and preferences.
    Row::new("instancetype.name", K::Instancetype, R::Shared, ""),
    Row::new("instancetype.revisionName", K::ControllerRevision, R::RefusedInConfig, "captured by KubeVirt, for each VM its own"),
    Row::new("preference.name", K::Preference, R::Shared, ""),
    Row::new("preference.revisionName", K::ControllerRevision, R::RefusedInConfig, "captured by KubeVirt, for each VM its own"),
    // Disk templates.
    Row::new("dataVolumeTemplates[].metadata.name", K::DataVolume, R::PerVm, "the whole VM name, or two pools of one config would fight over a disk"),
    Row::new("dataVolumeTemplates[].metadata.namespace", K::Namespace, R::RefusedInConfig, "a VM's disks are in its namespace"),
    Row::new("dataVolumeTemplates[].spec.source.http.secretRef", K::Secret, R::Shared, IMPORT_SECRET),
    Row::new("dataVolumeTemplates[].spec.source.s3.secretRef", K::Secret, R::Shared, IMPORT_SECRET),
    Row::new("dataVolumeTemplates[].spec.source.gcs.secretRef", K::Secret, R::Shared, IMPORT_SECRET),
    Row::new("dataVolumeTemplates[].spec.source.registry.secretRef", K::Secret, R::Shared, IMPORT_SECRET),
    Row::new("dataVolumeTemplates[].spec.source.imageio.secretRef", K::Secret, R::Shared, IMPORT_SECRET),
    Row::new("dataVolumeTemplates[].spec.source.vddk.secretRef", K::Secret, R::Shared, IMPORT_SECRET),
    Row::new("dataVolumeTemplates[].spec.source.http.secretExtraHeaders[]", K::Secret, R::Shared, IMPORT_SECRET),
    Row::new("dataVolumeTemplates[].spec.source.http.certConfigMap", K::ConfigMap, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.source.s3.certConfigMap", K::ConfigMap, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.source.registry.certConfigMap", K::ConfigMap, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.source.imageio.certConfigMap", K::ConfigMap, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.source.vddk.extraArgs", K::ConfigMap, R::Shared, "a ConfigMap, whatever it is called"),
    Row::new("dataVolumeTemplates[].spec.source.pvc.name", K::Claim, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.source.pvc.namespace", K::Namespace, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.source.snapshot.name", K::VolumeSnapshot, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.source.snapshot.namespace", K::Namespace, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.source.registry.imageStream", K::ImageStream, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.sourceRef.name", K::DataSource, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.sourceRef.namespace", K::Namespace, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.pvc.dataSource.name", K::PopulatorSource, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.pvc.dataSourceRef.name", K::PopulatorSource, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.pvc.dataSourceRef.namespace", K::Namespace, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.pvc.volumeName", K::PersistentVolume, R::Exclusive, "a volume binds to one claim"),
    Row::new("dataVolumeTemplates[].spec.pvc.storageClassName", K::ClusterScoped, R::Shared, ""),
    Row::new("dataVolumeTemplates[].spec.pvc.volumeAttributesClassName", K::ClusterScoped, R::Shared, ""),
    Row::new("dataVolumeTemplates[].spec.storage.dataSource.name", K::PopulatorSource, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.storage.dataSourceRef.name", K::PopulatorSource, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.storage.dataSourceRef.namespace", K::Namespace, R::Shared, READ_ONLY_SOURCE),
    Row::new("dataVolumeTemplates[].spec.storage.volumeName", K::PersistentVolume, R::Exclusive, "a volume binds to one claim"),
    Row::new("dataVolumeTemplates[].spec.storage.storageClassName", K::ClusterScoped, R::Shared, ""),
    Row::new("dataVolumeTemplates[].spec.priorityClassName", K::ClusterScoped, R::Shared, ""),
];

/// Values that are no names, but that two VMs must not both have: where, and what comes of it.
pub static PER_VM_VALUES: &[(&str, &str)] = &[
    (
        "template.spec.domain.firmware.uuid",
        "the VMs are one machine to their guests' software",
    ),
    (
        "template.spec.domain.firmware.serial",
        "the VMs are one machine to their guests' software",
    ),
    (
        "template.spec.domain.chassis.serial",
        "the VMs are one machine to their guests' software",
    ),
    (
        "template.spec.domain.devices.interfaces[].macAddress",
        "their frames go astray in a common network",
    ),
    (
        "template.spec.domain.devices.disks[].serial",
        "storage software takes their disks for one",
    ),
    (
        "template.spec.hostname",
        "they all call themselves the same; without it each is called by its VM's name",
    ),
    (
        "template.spec.domain.launchSecurity.sev.session",
        "a session belongs to the launch of one VM",
    ),
    (
        "template.spec.domain.launchSecurity.sev.dhCert",
        "a guest owner's certificate belongs to the launch of one VM",
    ),
];
