//! Disk templates that a member doesn't have though its config has had them for long.

use super::merge::{holds, merged, set, spec, with};
use super::*;

fn names(vm: &Value) -> Vec<&str> {
    let templates = vm["spec"]["dataVolumeTemplates"].as_array().unwrap();
    let names = templates.iter().map(|one| one["metadata"]["name"].as_str());
    names.map(Option::unwrap).collect()
}

/// With one more volume and its disk.
fn plus(spec: &Value, name: &str, template: &str) -> Value {
    let mut spec = spec.clone();
    let volume = json!({"name": name, "dataVolume": {"name": template}});
    set(&mut spec, "/template/spec/volumes/-", volume);
    let disk = json!({"name": name, "disk": {"bus": "virtio"}});
    set(&mut spec, "/template/spec/domain/devices/disks/-", disk);
    spec
}

#[test]
fn a_renamed_template_comes_with_the_first_volume_that_needs_it() {
    let old = spec();
    let mut renamed = with(
        &old,
        "/dataVolumeTemplates/0/metadata/name",
        json!("system"),
    );
    let root = json!({"name": "root", "dataVolume": {"name": "system"}});
    set(&mut renamed, "/template/spec/volumes/0", root);
    // The root stays on its disk, so that the template is of no use to this member.
    let kept = merged(&old, &renamed, |_| {});
    assert_eq!(names(&kept), ["a-1-root"]);
    let vm = merged(&renamed, &plus(&renamed, "more", "system"), |vm| {
        *vm = kept.clone();
    });
    assert_eq!(names(&vm), ["a-1-root", "a-1-system"]);
    holds(
        &vm,
        &[
            (
                "/spec/template/spec/volumes/0/dataVolume/name",
                json!("a-1-root"),
            ),
            (
                "/spec/template/spec/volumes/3/dataVolume/name",
                json!("a-1-system"),
            ),
        ],
    );
}

#[test]
fn a_template_that_its_user_took_out_comes_back_only_with_a_new_volume_that_needs_it() {
    let mut base = spec();
    let data = json!({"metadata": {"name": "data"}, "spec": {}});
    set(&mut base, "/dataVolumeTemplates/-", data);
    let old = plus(&base, "data", "data");
    let take_out = |vm: &mut Value| {
        for list in [
            "/spec/dataVolumeTemplates",
            "/spec/template/spec/volumes",
            "/spec/template/spec/domain/devices/disks",
        ] {
            vm.pointer_mut(list).unwrap().as_array_mut().unwrap().pop();
        }
    };
    let with_more = plus(&old, "more", "data");
    let vm = merged(&old, &with_more, take_out);
    assert_eq!(names(&vm), ["a-1-root", "a-1-data"]);
    let vm = merged(
        &old,
        &with(&old, "/template/spec/hostname", json!("x")),
        take_out,
    );
    assert_eq!(names(&vm), ["a-1-root"]);
    // Its disk goes on without it.
    let vm = merged(&old, &with_more, |vm| {
        let templates = vm.pointer_mut("/spec/dataVolumeTemplates").unwrap();
        templates.as_array_mut().unwrap().pop();
    });
    assert_eq!(names(&vm), ["a-1-root"]);
}
