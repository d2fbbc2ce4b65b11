//! What is read of objects that are too deep, and of those that are not.

use kube::core::{ObjectList, WatchEvent};
use serde_json::json;

use super::*;

#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
struct Request {
    object: Bounded,
}

/// A VM whose spec has `levels` maps one in the other.
fn deep(name: &str, levels: usize) -> String {
    let (open, close) = (r#"{"x":"#.repeat(levels), "}".repeat(levels));
    format!(
        r#"{{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{{"name":"{name}",
        "namespace":"tests","uid":"u","resourceVersion":"7","labels":{{"a":"b"}},
        "managedFields":[{{"fieldsV1":{open}1{close}}}]}},"spec":{open}1{close}}}"#
    )
}

#[test]
fn cc_06_one_undecodable_vm_leaves_the_list_and_the_watch_readable() {
    for levels in [127, 200, 5000] {
        let (odd, plain) = (deep("odd", levels), deep("plain", 3));
        let list = format!(r#"{{"metadata":{{}},"items":[{odd},{plain}]}}"#);
        let list: ObjectList<Object> = serde_json::from_str(&list).unwrap();
        assert!(list.items[0].is_cut && !list.items[1].is_cut, "{levels}");
        assert_eq!(
            list.items[0].object.metadata.name.as_deref(),
            Some("odd"),
            "what is not too deep is read"
        );
        let event = format!(r#"{{"type":"ADDED","object":{odd}}}"#);
        let event: WatchEvent<Object> = serde_json::from_str(&event).unwrap();
        let WatchEvent::Added(object) = event else {
            panic!("{event:?}")
        };
        assert_eq!(
            object.object.metadata.resource_version.as_deref(),
            Some("7")
        );
        let list = format!(r#"{{"metadata":{{}},"items":[{odd}]}}"#);
        let list: ObjectList<Head> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items[0].metadata.labels.as_ref().unwrap()["a"], "b");
    }
}

#[test]
fn what_is_not_too_deep_is_read_as_serde_json_reads_it() {
    let value = json!({
        "apiVersion": "v1", "kind": "X",
        "metadata": {"name": "a", "annotations": {"managedFields": "kept"}},
        "spec": {"n": [null, true, -1, u64::MAX, 1.5, 1e300, "ä\"\n", [], {}, [[{}]]]},
    });
    let bounded: Bounded = serde_json::from_str(&value.to_string()).unwrap();
    assert_eq!(bounded.value, value);
    assert!(!bounded.is_cut);
    assert_eq!(serde_json::to_value(&bounded).unwrap(), value);
    let object: Object = serde_json::from_str(&value.to_string()).unwrap();
    assert_eq!(serde_json::to_value(&object.object).unwrap(), value);
}

#[test]
fn the_last_level_that_is_read_is_the_hundredth() {
    // The object is the first level, its spec the second.
    let at = |levels| serde_json::from_str::<Bounded>(&deep("a", levels)).unwrap();
    assert!(!at(MAX_DEPTH - 1).is_cut);
    assert!(at(MAX_DEPTH).is_cut);
    let at = |levels| serde_json::from_str::<Object>(&deep("a", levels)).unwrap();
    assert!(!at(READ_DEPTH - 1).is_cut);
    assert!(at(READ_DEPTH).is_cut);
    // Inside an AdmissionReview the object is the third.
    let review = format!(r#"{{"request":{{"object":{}}}}}"#, deep("a", MAX_DEPTH - 1));
    let review: Review = serde_json::from_str(&review).unwrap();
    assert!(!review.request.object.is_cut);
}

#[test]
fn sizes_are_those_that_the_api_server_stores() {
    assert_eq!(
        stored_size(&json!({"a": [1, "b"]})),
        r#"{"a":[1,"b"]}"#.len()
    );
    assert_eq!(stored_size(&json!("<&>ä")), 2 + 3 * 6 + 2);
}

#[test]
fn odd_metadata_lose_no_more_than_themselves() {
    let odd = r#"{"metadata":{"name":"a","namespace":"b","uid":"c","labels":7},"spec":{}}"#;
    let object: Object = serde_json::from_str(odd).unwrap();
    assert_eq!(object.object.metadata.uid.as_deref(), Some("c"));
    let head: Head = serde_json::from_str(odd).unwrap();
    assert_eq!(head.metadata.name.as_deref(), Some("a"));
}
