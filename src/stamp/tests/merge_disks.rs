//! A member's volumes, disks and templates, and members of which nothing is known.

#![expect(
    clippy::too_many_lines,
    reason = "tables of what is done to a VM, and what it is to be after that"
)]

use super::merge::{Change, TEMPLATE, created, holds, merged, merged_blindly, set, spec, with};
use super::*;
use crate::api::annotations;

#[test]
fn m113_no_merge_points_a_disk_elsewhere() {
    let old = spec();
    let root = "/template/spec/volumes/0";
    let live_root = json!({"name": "root", "dataVolume": {"name": "a-1-root"}});
    let mut renamed = with(
        &old,
        "/dataVolumeTemplates/0/metadata/name",
        json!("system"),
    );
    set(
        &mut renamed,
        root,
        json!({"name": "root", "dataVolume": {"name": "system"}}),
    );
    let bigger = with(
        &old,
        "/dataVolumeTemplates/0/spec/storage/resources/requests/storage",
        json!("2Gi"),
    );
    let image = with(
        &old,
        root,
        json!({"name": "root", "containerDisk": {"image": "x"}}),
    );
    let mut gone = with(&old, "/dataVolumeTemplates", Value::Null);
    set(&mut gone, root, json!({"name": "root", "emptyDisk": {}}));
    for new in [&renamed, &bigger, &image, &gone] {
        let vm = merged(&old, new, |_| {});
        holds(
            &vm,
            &[
                ("/spec/template/spec/volumes/0", live_root.clone()),
                (
                    "/spec/dataVolumeTemplates",
                    created(&old, &inputs(json!({})))["spec"]["dataVolumeTemplates"].clone(),
                ),
            ],
        );
    }
    // A restored disk stays too, even where the config drops its volume.
    let restored = |vm: &mut Value| {
        set(
            vm,
            "/spec/template/spec/volumes/0/dataVolume/name",
            json!("restore-1"),
        );
    };
    let mut dropped = old.clone();
    dropped["template"]["spec"]["volumes"]
        .as_array_mut()
        .unwrap()
        .remove(0);
    dropped["template"]["spec"]["domain"]["devices"]["disks"]
        .as_array_mut()
        .unwrap()
        .remove(0);
    for new in [&image, &dropped, &renamed] {
        holds(
            &merged(&old, new, restored),
            &[
                (
                    "/spec/template/spec/volumes/0/dataVolume/name",
                    json!("restore-1"),
                ),
                (
                    "/spec/template/spec/domain/devices/disks/0/name",
                    json!("root"),
                ),
            ],
        );
    }
    // ... and is taken out with its volume where it is the config's.
    let vm = merged(&old, &dropped, |_| {});
    holds(
        &vm,
        &[
            ("/spec/template/spec/volumes/0/name", json!("image")),
            (
                "/spec/template/spec/domain/devices/disks/0/name",
                json!("image"),
            ),
            (
                "/spec/dataVolumeTemplates/0/metadata/name",
                json!("a-1-root"),
            ),
        ],
    );
}

#[test]
fn a_new_disk_is_added_with_its_template_unless_somebody_has_a_volume_of_that_name() {
    let old = spec();
    let mut new = old.clone();
    set(
        &mut new,
        "/dataVolumeTemplates/-",
        json!({"metadata": {"name": "data"}, "spec": {}}),
    );
    set(
        &mut new,
        "/template/spec/volumes/-",
        json!({"name": "data", "dataVolume": {"name": "data"}}),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/disks/-",
        json!({"name": "data", "disk": {"bus": "virtio"}}),
    );
    let vm = merged(&old, &new, |_| {});
    assert_eq!(vm, created(&new, &inputs(json!({}))));
    let users = json!({"name": "data", "persistentVolumeClaim": {"claimName": "mine", "hotpluggable": true}});
    let device = json!({"name": "data", "disk": {"bus": "scsi"}, "serial": "x"});
    let vm = merged(&old, &new, |vm| {
        set(vm, "/spec/template/spec/volumes/-", users.clone());
        set(
            vm,
            "/spec/template/spec/domain/devices/disks/-",
            device.clone(),
        );
    });
    holds(
        &vm,
        &[
            ("/spec/template/spec/volumes/3", users),
            ("/spec/template/spec/domain/devices/disks/3", device),
            ("/spec/dataVolumeTemplates/1", Value::Null),
        ],
    );
}

#[test]
fn a_volume_that_its_user_took_out_stays_out_with_its_device() {
    let old = spec();
    let mut new = with(
        &old,
        "/template/spec/volumes/1/containerDisk/image",
        json!("v2"),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/disks/1/disk/bus",
        json!("sata"),
    );
    let vm = merged(&old, &new, |vm| {
        for list in ["/volumes", "/domain/devices/disks"] {
            let list = vm.pointer_mut(&format!("{TEMPLATE}{list}")).unwrap();
            list.as_array_mut().unwrap().remove(1);
        }
    });
    let names = |list: &str| -> Vec<String> {
        let list = vm.pointer(&format!("{TEMPLATE}{list}")).unwrap();
        list.as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("/volumes"), ["root", "init"]);
    assert_eq!(names("/domain/devices/disks"), ["root", "init"]);
}

#[test]
fn which_templates_kept_disks_are_of_is_noted_until_they_are_the_configs_again() {
    let old = spec();
    let bigger = with(
        &old,
        "/dataVolumeTemplates/0/spec/storage/resources/requests/storage",
        json!("2Gi"),
    );
    let other = with(&bigger, "/template/spec/hostname", json!("b"));
    let inputs = inputs(json!({}));
    let change = |from, to| Change {
        from: Some((from, &inputs)),
        to: (to, &inputs),
        keeps_run_strategy: false,
    };
    let note = |vm: &Value| vm["metadata"]["annotations"][annotations::DISKS_OF].clone();
    let first = created(&old, &inputs);
    assert!(change(&old, &bigger).update(&first).keeps_disks);
    let second = change(&old, &bigger).done(&first);
    assert_eq!(note(&second), disks_hash(old.as_object().unwrap()));
    let third = change(&bigger, &other).done(&second);
    assert_eq!(note(&third), note(&second));
    let back = change(&other, &old).done(&third);
    assert_eq!(back, first);
    // A template more changes nothing about the disks that there are.
    let more = with(
        &old,
        "/dataVolumeTemplates/-",
        json!({"metadata": {"name": "x"}, "spec": {}}),
    );
    assert!(!change(&old, &more).update(&first).keeps_disks);
}

#[test]
fn the_order_is_the_configs_unless_somebody_has_changed_it() {
    let old = spec();
    let mut new = old.clone();
    let disks = new["template"]["spec"]["domain"]["devices"]["disks"]
        .as_array_mut()
        .unwrap();
    disks.swap(0, 2);
    disks.insert(1, json!({"name": "more", "disk": {}}));
    let names = |touch: &dyn Fn(&mut Vec<Value>)| -> String {
        let vm = merged(&old, &new, |vm| {
            let disks = vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"].as_array_mut();
            touch(disks.unwrap());
        });
        let disks = vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"].clone();
        let names: Vec<_> = disks
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["name"].as_str().unwrap().to_owned())
            .collect();
        names.join(" ")
    };
    assert_eq!(names(&|_| {}), "init more image root");
    assert_eq!(
        names(&|disks| disks.insert(1, json!({"name": "theirs"}))),
        "init more image root theirs"
    );
    assert_eq!(names(&|disks| disks.swap(0, 1)), "image root init more");
}

#[test]
fn without_a_base_nothing_that_can_not_be_made_again_is_touched() {
    let old = spec();
    let inputs = inputs(json!({}));
    let mut new = with(&old, "/runStrategy", json!("Halted"));
    set(
        &mut new,
        "/template/spec/domain/firmware",
        json!({"bootloader": {"bios": {}}}),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/interfaces/0/macAddress",
        json!("02:00:00:00:00:02"),
    );
    set(
        &mut new,
        "/dataVolumeTemplates/0/metadata/name",
        json!("system"),
    );
    set(
        &mut new,
        "/template/spec/volumes/0/dataVolume/name",
        json!("system"),
    );
    set(
        &mut new,
        "/template/spec/volumes/1/containerDisk/image",
        json!("v2"),
    );
    set(&mut new, "/template/spec/hostname", json!("b"));
    set(
        &mut new,
        "/dataVolumeTemplates/-",
        json!({"metadata": {"name": "data"}, "spec": {}}),
    );
    set(
        &mut new,
        "/template/spec/volumes/-",
        json!({"name": "data", "dataVolume": {"name": "data"}}),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/disks/-",
        json!({"name": "data", "disk": {}}),
    );
    set(
        &mut new,
        "/template/spec/volumes/-",
        json!({"name": "more", "emptyDisk": {}}),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/disks/-",
        json!({"name": "more", "disk": {}}),
    );
    let mut live = created(&old, &inputs);
    set(
        &mut live,
        "/spec/template/spec/domain/devices/interfaces/0/macAddress",
        json!("02:00:00:00:00:01"),
    );
    set(
        &mut live,
        "/spec/template/spec/domain/firmware",
        json!({"uuid": "f"}),
    );
    set(
        &mut live,
        "/metadata/annotations/vmpool.dev~1stamp",
        json!("gone"),
    );
    set(
        &mut live,
        "/metadata/annotations/restore.kubevirt.io~1lastRestoreUID",
        json!("r-1"),
    );
    let vm = merged_blindly(&new, &live);
    holds(
        &vm,
        &[
            ("/spec/runStrategy", json!("Always")),
            (
                "/spec/dataVolumeTemplates",
                live["spec"]["dataVolumeTemplates"].clone(),
            ),
            ("/spec/template/spec/domain/firmware", json!({"uuid": "f"})),
            (
                "/spec/template/spec/domain/devices/interfaces/0/macAddress",
                json!("02:00:00:00:00:01"),
            ),
            ("/spec/template/spec/hostname", json!("b")),
            (
                "/spec/template/spec/domain/devices/disks/3",
                json!({"name": "more", "disk": {}}),
            ),
            ("/spec/template/spec/domain/devices/disks/4", Value::Null),
        ],
    );
    let volumes = vm["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .unwrap();
    let before = live["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .unwrap();
    assert_eq!(volumes[..3], before[..]);
    assert_eq!(volumes[3..], [json!({"name": "more", "emptyDisk": {}})]);
    // It is at the new stamp now, and the restore is known.
    let mark = StampMark::parse(
        vm["metadata"]["annotations"][annotations::STAMP]
            .as_str()
            .unwrap(),
    );
    assert_eq!(mark.as_ref().unwrap().restored.as_deref(), Some("r-1"));
    assert_eq!(
        mark.unwrap().hash,
        stamp_hash(&revision_hash(new.as_object().unwrap()), &inputs)
    );
}
