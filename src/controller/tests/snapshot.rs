//! What a decision reads.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::expectations::{Expectations, Overdue};
use super::super::fixtures::{NAMESPACE, Object, caches, config, disk, pool, revision, vm, vmi};
use super::super::snapshot::{Remembered, View, build};
use crate::api::labels;
use crate::cache::{Caches, Step};
use crate::plan::{Config, Limits, Occupied};
use crate::stamp;

fn spec(memory: &str) -> Value {
    json!({
        "runStrategy": "Always",
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {}}],
        "template": {"spec": {"domain": {"memory": {"guest": memory}}}},
    })
}

fn view_with(caches: &Caches, pool: &Object, remembered: &Remembered) -> View {
    let entry = pool.pool_entry();
    let object = entry.object.clone().unwrap();
    build(caches, &entry, &object, remembered, Limits { burst: 250 })
}

fn view(caches: &Caches, pool: &Object) -> View {
    view_with(caches, pool, &Remembered::default())
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

#[test]
fn dt_05_only_the_uid_in_the_controller_reference_makes_a_member() {
    let web = pool("web", "uid-web");
    let kubevirts_own = vm("web-4").set(
        "/metadata/ownerReferences",
        json!([{
            "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
            "name": "web", "uid": "uid-web", "controller": true,
        }]),
    );
    let labelled = vm("web-5").label("vmpool.dev/pool-uid", "uid-web");
    let filled = caches()
        .pool(web.clone())
        .vm(vm("web-1").owner("web", "uid-web"))
        .vm(vm("web-2").owner("web", "uid-older"))
        .vm(vm("web-3"))
        .vm(kubevirts_own)
        .vm(labelled)
        .done();
    let members = view(&filled, &web).snapshot.members;
    let names: Vec<_> = members.iter().map(|member| &member.vm.name).collect();
    assert_eq!(names, ["web-1"]);
    assert_eq!(members[0].ordinal, Some(1));
}

#[test]
fn a_vm_of_another_namespace_is_no_member_whatever_its_owner_says() {
    let web = pool("web", "uid-web");
    let elsewhere = vm("web-1")
        .owner("web", "uid-web")
        .set("/metadata/namespace", "elsewhere".into());
    let caches = caches().pool(web.clone()).vm(elsewhere).done();
    assert!(view(&caches, &web).snapshot.members.is_empty());
}

#[test]
fn an_instance_counts_only_with_the_uid_of_its_vm() {
    let web = pool("web", "uid-web");
    let member = vm("web-1").owner("web", "uid-web");
    let caches_with = |vm: Object| caches().pool(web.clone()).vm(vm).vmi(vmi("web-1")).done();
    let own = caches_with(member.clone());
    assert!(view(&own, &web).snapshot.members[0].vmi.is_some());
    let of_predecessor = caches_with(member.uid("uid-newer"));
    assert!(
        view(&of_predecessor, &web).snapshot.members[0]
            .vmi
            .is_none()
    );
}

#[test]
fn m17_a_vm_that_lost_its_owner_is_a_former_member() {
    let web = pool("web", "uid-web");
    let filled = caches()
        .pool(web.clone())
        .vm(vm("web-1").owner("web", "uid-web").member_of("uid-web"))
        .vm(vm("web-2").member_of("uid-web"))
        .vm(vm("web-3").member_of("uid-web").deleting())
        .vm(vm("web-4").owner("other", "uid-other").member_of("uid-web"))
        .done();
    let former = view(&filled, &web).snapshot.former;
    let names: Vec<_> = former.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["web-2"]);
}

#[test]
fn dt_07_an_announced_member_is_one_until_the_pool_is_in_a_later_version_than_was_judged() {
    let member = |mark: &str| {
        let marks = json!({"vmpool.dev/member-of": "uid-web", "vmpool.dev/detaching": mark});
        let vm = vm("web-1").owner("web", "uid-web");
        vm.set("/metadata/annotations", marks)
    };
    for (mark, pool_version, counts) in [
        ("100", 99, true),
        ("100", 100, true),
        ("100", 101, false),
        ("99", 100, false),
        ("1000", 999, true),
        ("junk", 100, false),
        ("", 100, false),
    ] {
        let web = pool("web", "uid-web").version(pool_version);
        let caches = caches().pool(web.clone()).vm(member(mark)).done();
        let announced = view(&caches, &web).snapshot.intents.announced;
        let expected = counts.then(|| ("uid-web-1".to_owned(), mark.to_owned()));
        assert_eq!(
            announced,
            expected.into_iter().collect(),
            "{mark} {pool_version}"
        );
    }
}

#[test]
fn the_target_is_the_revision_of_the_configs_spec_and_none_is_pending() {
    let web = pool("web", "uid-web");
    let filled = || {
        caches()
            .pool(web.clone())
            .config(config("desktop", spec("2Gi")))
            .revision(revision("desktop", spec("1Gi"), 1))
    };
    let pending = view(&filled().done(), &web).snapshot;
    assert_eq!(pending.config, Config::Pending);
    let ready = filled()
        .revision(revision("desktop", spec("2Gi"), 2))
        .done();
    let ready = view(&ready, &web);
    assert_eq!(ready.snapshot.config, Config::Ready);
    let target = ready.snapshot.target.unwrap();
    assert!(target.has_disk_templates);
    let expected = revision("desktop", spec("2Gi"), 2).revision_entry().id.name;
    assert_eq!(target.revision, expected);
}

#[test]
fn a_pinned_pool_keeps_its_revision_and_an_unknown_pin_is_no_target() {
    let first = revision("desktop", spec("1Gi"), 1);
    let name = first.revision_entry().id.name;
    let filled = caches()
        .config(config("desktop", spec("2Gi")))
        .revision(first)
        .revision(revision("desktop", spec("2Gi"), 2))
        .done();
    let pinned = |to: &str| pool("web", "uid-web").set("/spec/config/revision", to.into());
    let target = view(&filled, &pinned(&name)).snapshot.target.unwrap();
    assert_eq!(target.revision, name);
    assert_eq!(
        view(&filled, &pinned("desktop-unknown")).snapshot.target,
        None
    );
}

#[test]
fn without_its_config_a_pool_goes_on_with_the_newest_revision_that_it_owns() {
    let web = pool("web", "uid-web");
    let owned = |number, memory| {
        revision("desktop", spec(memory), number).owned_by(
            "vmpool.dev/v1alpha1",
            "VirtualMachinePool",
            "web",
            "uid-web",
        )
    };
    let filled = caches()
        .pool(web.clone())
        .revision(owned(1, "1Gi"))
        .revision(owned(2, "2Gi"))
        .revision(revision("desktop", spec("3Gi"), 3))
        .done();
    let snapshot = view(&filled, &web).snapshot;
    assert_eq!(snapshot.config, Config::Missing);
    let expected = owned(2, "2Gi").revision_entry().id.name;
    assert_eq!(snapshot.target.unwrap().revision, expected);
}

#[test]
fn numbers_are_looked_at_until_enough_are_free_and_not_at_all_at_rest() {
    let foreign = |n: u32| vm(&format!("web-{n}"));
    let filled = caches()
        .pool(pool("web", "uid-web"))
        .vm(vm("web-1").owner("web", "uid-web"))
        .vm(foreign(2))
        .vm(foreign(4))
        .vm(foreign(9))
        .claim(disk("web-5-root"))
        .config(config("desktop", spec("1Gi")))
        .revision(revision("desktop", spec("1Gi"), 1))
        .done();
    let occupied = |replicas| {
        let snapshot = view(&filled, &pool("web", "uid-web").replicas(replicas)).snapshot;
        snapshot.occupied.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(occupied(1), [0; 0]);
    assert_eq!(occupied(2), [2]);
    assert_eq!(occupied(3), [2, 4, 5], "3 and 6 are free");
}

#[test]
fn a_number_that_is_wanted_back_is_looked_at_however_high_it_is() {
    let filled = caches()
        .pool(pool("web", "uid-web"))
        .vm(vm("web-1").owner("web", "uid-web"))
        .claim(disk("web-7-root"))
        .config(config("desktop", spec("1Gi")))
        .revision(revision("desktop", spec("1Gi"), 1))
        .done();
    let mut remembered = Remembered::default();
    remembered.plan.vacated.extend([1, 7]);
    let occupied = |replicas| {
        let web = pool("web", "uid-web").replicas(replicas);
        let snapshot = view_with(&filled, &web, &remembered).snapshot;
        snapshot.occupied.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(occupied(1), [0; 0]);
    assert_eq!(occupied(2), [7]);
}

#[test]
fn a_member_whose_delete_was_answered_leaves_a_number_to_be_looked_for() {
    let web = pool("web", "uid-web").replicas(2);
    let filled = caches()
        .pool(web.clone())
        .vm(vm("web-1").owner("web", "uid-web"))
        .vm(vm("web-2"))
        .vm(vm("web-3").owner("web", "uid-web"))
        .done();
    let mut remembered = Remembered::default();
    let occupied = |remembered: &Remembered| {
        let snapshot = view_with(&filled, &web, remembered).snapshot;
        snapshot.occupied.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(occupied(&remembered), [0; 0]);
    let expectations = &mut remembered.expectations;
    expectations.expect_delete("uid-web-3", "web-3", time(0));
    assert_eq!(occupied(&remembered)[0], 2);
}

#[test]
fn what_was_read_live_counts_until_the_cache_moves() {
    let web = pool("web", "uid-web").replicas(2);
    let filled = caches()
        .pool(web.clone())
        .vm(vm("web-1").owner("web", "uid-web").version(5))
        .done();
    let mut remembered = Remembered::default();
    let newer = vm("web-1").owner("web", "uid-web").version(6);
    let foreign = vm("web-2").version(7);
    for vm in [&newer, &foreign] {
        let view = vm.vm_view();
        remembered
            .live
            .keep(&filled, NAMESPACE, &view.name.clone(), Some(view), time(0));
    }
    let seen = view_with(&filled, &web, &remembered).snapshot;
    assert_eq!(seen.members[0].vm.resource_version, "6");
    assert!(matches!(
        seen.occupied.get(&2),
        Some(Occupied::Taken { .. })
    ));

    filled.vms.take(Step::Apply(
        vm("web-1").owner("web", "uid-web").version(8).vm_view(),
    ));
    remembered.live.observe(&filled, NAMESPACE, time(1));
    let seen = view_with(&filled, &web, &remembered).snapshot;
    assert_eq!(seen.members[0].vm.resource_version, "8");
    remembered.live.observe(&filled, NAMESPACE, time(31));
    let seen = view_with(&filled, &web, &remembered).snapshot;
    assert_eq!(seen.occupied.len(), 0, "what never shows up is gone");
}

#[test]
fn cc_02_a_create_is_expected_until_the_cache_has_shown_it() {
    let filled = caches().done();
    let mut expectations = Expectations::default();
    let observed = |expectations: &mut Expectations| {
        expectations.observe(&filled, NAMESPACE);
        expectations.creates()
    };
    for (ordinal, name) in [(1, "web-1"), (2, "web-2"), (3, "web-3")] {
        expectations.expect_create(ordinal, name, time(0));
    }
    expectations.created(1, "uid-web-1", "11");
    expectations.created(2, "uid-web-2", "12");
    expectations.undo_create(3);
    assert_eq!(observed(&mut expectations), [1, 2]);
    filled
        .vms
        .take(Step::Apply(vm("web-1").version(11).vm_view()));
    assert_eq!(observed(&mut expectations), [2]);
    // web-2 was shown and is gone again: later events say that it must have been.
    filled
        .vms
        .take(Step::Apply(vm("other").version(20).vm_view()));
    assert_eq!(observed(&mut expectations), [0_u32; 0]);
}

#[test]
fn cc_02_a_delete_is_expected_until_the_cache_shows_it() {
    let filled = caches().vm(vm("web-1")).vm(vm("web-2")).done();
    let mut expectations = Expectations::default();
    expectations.expect_delete("uid-web-1", "web-1", time(0));
    expectations.expect_delete("uid-web-2", "web-2", time(0));
    expectations.observe(&filled, NAMESPACE);
    assert_eq!(expectations.deletes(), ["uid-web-1", "uid-web-2"]);
    filled
        .vms
        .take(Step::Apply(vm("web-1").deleting().version(101).vm_view()));
    // Gone and made again under the same name.
    filled.vms.take(Step::Apply(
        vm("web-2").uid("uid-new").version(102).vm_view(),
    ));
    expectations.observe(&filled, NAMESPACE);
    assert_eq!(expectations.deletes(), [""; 0]);
}

#[test]
fn what_stays_open_too_long_is_asked_for_once_per_period() {
    let mut expectations = Expectations::default();
    expectations.expect_create(1, "web-1", time(0));
    expectations.created(1, "uid-web-1", "11");
    assert_eq!(expectations.overdue(time(29)), []);
    let due = time(0) + SignedDuration::from_secs(30);
    assert_eq!(expectations.next_due(), Some(due));
    let overdue = Overdue::Create {
        ordinal: 1,
        name: "web-1".to_owned(),
    };
    assert_eq!(expectations.overdue(due), [overdue]);
    assert_eq!(expectations.overdue(time(31)), []);
}

#[test]
fn an_accepted_detach_is_not_over_as_long_as_the_cache_may_still_show_the_member() {
    use crate::plan::intents::Progress;
    let intent = json!([{"verb": "detach", "name": "web-2", "uid": "uid-web-2", "version": "150"}]);
    let intent = json!({"vmpool.dev/intent": intent.to_string()});
    let web = pool("web", "uid-web").set("/metadata/annotations", intent);
    let caches = caches().pool(web.clone()).vm(vm("web-1")).done();
    let mut remembered = Remembered::default();
    let now = crate::clock::now();
    remembered.live.keep(&caches, NAMESPACE, "web-2", None, now);
    let progress = |remembered: &Remembered| {
        let intents = view_with(&caches, &web, remembered).snapshot.intents;
        intents.detach[0].progress
    };
    assert_eq!(progress(&remembered), Progress::Unseen);
    // A VM of that name before it says nothing of it.
    caches.vms.take(Step::Apply(
        vm("web-2").uid("uid-older").version(120).vm_view(),
    ));
    remembered.live.keep(&caches, NAMESPACE, "web-2", None, now);
    assert_eq!(progress(&remembered), Progress::Unseen);
    caches
        .vms
        .take(Step::Apply(vm("web-2").version(150).vm_view()));
    remembered.live.keep(&caches, NAMESPACE, "web-2", None, now);
    assert_eq!(progress(&remembered), Progress::Over);
}

#[test]
fn revisions_are_alike_that_differ_in_nothing_that_kubevirt_compares() {
    let old = json!({"runStrategy": "Always", "template": {"spec": {"domain": {}}}});
    let disks = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    for (pointer, value, is_alike) in [
        ("/runStrategy", json!("Manual"), true),
        ("/template/metadata", json!({"labels": {"a": "b"}}), true),
        ("/dataVolumeTemplates", disks, true),
        ("/template/spec/hostname", json!("x"), false),
        ("/instancetype", json!({"name": "big"}), false),
    ] {
        let new = config("desktop", old.clone()).set(&format!("/spec{pointer}"), value);
        let new = new.0["spec"].clone();
        let name = revision("desktop", old.clone(), 1).revision_entry().id.name;
        let web = pool("web", "uid-web");
        let filled = caches()
            .pool(web.clone())
            .config(config("desktop", new.clone()))
            .revision(revision("desktop", old.clone(), 1))
            .revision(revision("desktop", new, 2))
            .vm(vm("web-1").owner("web", "uid-web").member_of("uid-web"))
            .vmi(vmi("web-1").label(labels::REVISION, &name));
        let target = view(&filled.done(), &web).snapshot.target.unwrap();
        let hash = stamp::revision_hash(old.as_object().unwrap());
        let old_stamp = stamp::stamp_hash(&hash, &target.inputs);
        assert_eq!(target.alike.contains(&old_stamp), is_alike, "{pointer}");
        assert_eq!(target.alike.len(), usize::from(is_alike), "{pointer}");
    }
}
