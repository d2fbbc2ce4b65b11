//! Transitions of a store, and whom a change concerns.

use std::collections::HashSet;

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::affected::Concerns;
use super::*;

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

fn vm(name: &str, uid: &str, version: u64, owner: Option<&str>) -> VmView {
    let owners = owner.map(|uid| {
        json!([{
            "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool",
            "name": "web", "uid": uid, "controller": true,
        }])
    });
    VmView::read(&object(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {
            "namespace": "tests", "name": name, "uid": uid,
            "resourceVersion": version.to_string(), "ownerReferences": owners,
        },
        "spec": {"runStrategy": "Always"},
    })))
    .unwrap()
}

fn marked(mut vm: VmView, pool_uid: &str) -> VmView {
    vm.annotations
        .insert(api::annotations::MEMBER_OF.to_owned(), pool_uid.to_owned());
    vm
}

fn pool(name: &str, spec: Value) -> PoolEntry {
    PoolEntry::read(object(json!({
        "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool",
        "metadata": {
            "namespace": "tests", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "1", "generation": 1,
        },
        "spec": spec,
    })))
    .unwrap()
}

fn of_desktop() -> Value {
    json!({"replicas": 1, "config": {"name": "desktop"}})
}

fn names(views: &[Arc<VmView>]) -> Vec<&str> {
    views.iter().map(|vm| vm.name.as_str()).collect()
}

fn owned_by(uid: &str) -> Index {
    Index::Owner(uid.to_owned())
}

#[test]
fn cc_01_a_store_is_not_synced_before_its_first_list_is_complete() {
    let store = Store::default();
    assert!(!store.is_settled());
    store.take(Step::Init);
    store.take(Step::InitApply(vm("web-1", "a", 1, Some("p"))));
    assert!(!store.is_synced());
    assert!(store.is_empty(), "half a list is no list");
    let changes = store.take(Step::InitDone);
    assert!(store.is_synced());
    assert_eq!(changes.len(), 1);
    assert_eq!(names(&store.select(&owned_by("p"))), ["web-1"]);
}

#[test]
fn cc_06_a_reset_unsyncs_until_the_new_list_is_complete_and_loses_nothing() {
    let store = Store::default();
    store.take(Step::Init);
    for (name, uid) in [("web-1", "a"), ("web-2", "b"), ("web-3", "c")] {
        store.take(Step::InitApply(vm(name, uid, 1, Some("p"))));
    }
    store.take(Step::InitDone);

    // 1. The watch is reset: 410 Gone.
    store.take(Step::Init);
    assert!(!store.is_synced());
    assert_eq!(store.len(), 3, "what is known stays readable");
    // 2. The list fails half-way and begins anew.
    store.take(Step::InitApply(vm("web-9", "z", 4, Some("p"))));
    store.take(Step::Init);
    assert!(!store.is_synced());
    // 3. Meanwhile web-2 was deleted, web-3 replaced, web-4 created.
    store.take(Step::InitApply(vm("web-1", "a", 1, Some("p"))));
    store.take(Step::InitApply(vm("web-3", "d", 5, None)));
    store.take(Step::InitApply(vm("web-4", "e", 6, Some("p"))));
    let changes = store.take(Step::InitDone);
    assert!(store.is_synced());
    assert_eq!(changes.len(), 3, "web-1 is as it was");
    assert_eq!(names(&store.select(&owned_by("p"))), ["web-1", "web-4"]);
}

#[test]
fn an_index_follows_every_change() {
    let store = Store::default();
    store.take(Step::Apply(vm("web-1", "a", 1, Some("p"))));
    store.take(Step::Apply(vm("web-1", "a", 2, Some("q"))));
    assert_eq!(store.count(&owned_by("p")), 0);
    assert_eq!(store.count(&owned_by("q")), 1);
    store.take(Step::Delete(Key::new("tests", "web-1")));
    assert_eq!(store.count(&owned_by("q")), 0);
    assert!(store.get("tests", "web-1").is_none());
}

#[test]
fn the_same_object_again_is_no_change() {
    let store = Store::default();
    assert_eq!(store.take(Step::Apply(vm("a", "a", 1, None))).len(), 1);
    assert_eq!(store.take(Step::Apply(vm("a", "a", 1, None))).len(), 0);
    assert_eq!(store.take(Step::Delete(Key::new("tests", "b"))).len(), 0);
}

#[test]
fn what_the_watch_has_gone_past_has_been_seen() {
    let store = Store::default();
    assert!(!store.has_reached("1"));
    store.take(Step::Apply(vm("a", "a", 7, None)));
    assert!(store.has_reached("7") && !store.has_reached("8"));
    assert!(!store.has_reached("no number"));
    // A list shows newer versions of some before it shows that others are gone.
    store.take(Step::Init);
    store.take(Step::InitApply(vm("web-9", "z", 9, None)));
    assert!(!store.has_reached("9") && !store.has_reached("7"));
    store.take(Step::InitDone);
    assert!(store.has_reached("9"));
}

#[test]
fn iu_07_a_kind_that_is_not_installed_is_settled_and_one_that_comes_is_listed_first() {
    let store = Store::default();
    assert_eq!(store.installed(), None);
    store.take(Step::NotInstalled);
    assert!(store.is_settled() && !store.is_synced());
    store.take(Step::Init);
    store.take(Step::InitApply(vm("a", "a", 1, None)));
    store.take(Step::InitDone);
    assert_eq!(store.installed(), Some(true));
    assert!(store.is_synced());
    // And it is taken away again.
    assert_eq!(store.take(Step::NotInstalled).len(), 1);
    assert!(store.is_empty() && store.is_settled());
}

#[test]
fn cc_09_a_pool_that_cannot_be_decoded_is_kept_and_known_as_such() {
    let odd = pool(
        "odd",
        json!({"replicas": "many", "config": {"name": "desktop"}}),
    );
    assert!(odd.object.is_err());
    assert_eq!(odd.config, "desktop");
    let store = Store::default();
    store.take(Step::Apply(odd));
    store.take(Step::Apply(pool("fine", of_desktop())));
    assert_eq!(store.len(), 2);
}

#[test]
fn nothing_is_synced_before_everything_is() {
    let caches = Caches::default();
    let complete = |caches: &Caches| {
        caches.pools.take(Step::InitDone);
        caches.configs.take(Step::InitDone);
        caches.revisions.take(Step::InitDone);
        caches.vms.take(Step::InitDone);
        caches.vmis.take(Step::InitDone);
        caches.claims.take(Step::InitDone);
    };
    complete(&caches);
    assert_eq!(caches.waiting_for(), [Kind::DataVolumes]);
    caches.data_volumes.take(Step::NotInstalled);
    assert!(caches.is_synced() && caches.kubevirt_installed() && !caches.cdi_installed());
    caches.vms.take(Step::Init);
    assert!(!caches.is_synced());
}

fn concerned<V: Concerns + View>(
    caches: &Caches,
    old: Option<V>,
    new: Option<V>,
) -> HashSet<Affected> {
    let change = Change {
        old: old.map(Arc::new),
        new: new.map(Arc::new),
    };
    V::concerns(caches, &change).into_iter().collect()
}

fn pool_named(name: &str) -> Affected {
    Affected::Pool(Key::new("tests", name))
}

#[test]
fn a_vm_concerns_the_pool_that_had_it_and_the_one_that_has_it() {
    let caches = Caches::default();
    caches.pools.take(Step::Apply(pool("web", of_desktop())));
    caches.pools.take(Step::Apply(pool("other", of_desktop())));
    let concerned = |old, new| concerned(&caches, old, new);
    let of_web = || vm("web-1", "a", 1, Some("uid-web"));
    assert_eq!(concerned(None, Some(of_web())), [pool_named("web")].into());
    let moved = vm("web-1", "a", 2, Some("uid-other"));
    let both = [pool_named("web"), pool_named("other")].into();
    assert_eq!(concerned(Some(of_web()), Some(moved)), both);
    let stranger = vm("x", "x", 1, None);
    assert_eq!(concerned(None, Some(stranger)), [].into());
    let lost = marked(vm("web-1", "a", 3, None), "uid-web");
    assert_eq!(concerned(None, Some(lost)), [pool_named("web")].into());
    let left_behind = marked(vm("old-1", "b", 3, None), "uid-of-no-pool");
    assert_eq!(
        concerned(None, Some(left_behind)),
        [Affected::Former].into()
    );
}

#[test]
fn a_disk_concerns_the_pools_whose_vms_could_have_it() {
    let caches = Caches::default();
    caches.pools.take(Step::Apply(pool("web", of_desktop())));
    caches.pools.take(Step::Apply(pool("we", of_desktop())));
    let disk = |name: &str| DiskView {
        namespace: "tests".to_owned(),
        name: name.to_owned(),
        uid: "d".to_owned(),
        owners: Vec::new(),
        deleting: false,
        persistent_state_for: None,
        has_data: false,
    };
    let gone = concerned(&caches, Some(disk("web-1-root")), None);
    assert_eq!(gone, [pool_named("web")].into());
    let new = concerned(&caches, None, Some(disk("web-1-root")));
    assert_eq!(new, [pool_named("web")].into());
    let mut state = disk("persistent-state-for-x");
    state.persistent_state_for = Some("we-3".to_owned());
    let gone = concerned(&caches, Some(state), None);
    assert_eq!(gone, [pool_named("we")].into());
}

#[test]
fn a_pools_own_status_does_not_concern_its_config() {
    let caches = Caches::default();
    let plain = || pool("web", of_desktop());
    let config = Affected::Config(Key::new("tests", "desktop"));
    let created = concerned(&caches, None, Some(plain()));
    assert_eq!(created, [pool_named("web"), config.clone()].into());
    let mut counted = plain();
    counted.id.resource_version = "2".to_owned();
    let changed = concerned(&caches, Some(plain()), Some(counted));
    assert_eq!(changed, [pool_named("web")].into());
    let deleted = concerned(&caches, Some(plain()), None);
    assert_eq!(
        deleted,
        [pool_named("web"), config, Affected::Former].into()
    );
}

#[tokio::test]
async fn what_is_marked_twice_is_taken_once() {
    let dirty = Dirty::default();
    for _ in 0..1000 {
        dirty.mark([pool_named("web")]);
    }
    dirty.mark([Affected::Former]);
    let taken = dirty.take().await;
    assert_eq!(taken, [pool_named("web"), Affected::Former].into());
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(20), dirty.take());
    assert!(nothing.await.is_err());
}
