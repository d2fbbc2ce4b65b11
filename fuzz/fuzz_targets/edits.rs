//! Edits of a JSON value as bytes: four of them say which part is changed, and how.

use serde_json::{Value, json};

/// Most edits of one input: more only make what is tried harder to read.
const MOST: usize = 8;

/// Makes the edits that `bytes` say; whatever they are, they say something.
pub fn make(value: &mut Value, bytes: &[u8]) {
    for edit in bytes.chunks_exact(4).take(MOST) {
        let all = paths(value);
        let path = &all[usize::from(u16::from_be_bytes([edit[0], edit[1]])) % all.len()];
        let other = &all[usize::from(edit[3]) % all.len()];
        let (parent, key) = path.rsplit_once('/').unwrap_or_default();
        let (parent, key) = (parent.to_owned(), key.replace("~1", "/").replace("~0", "~"));
        let what = usize::from(edit[2]);
        match what % 4 {
            0 => remove(value, &parent, &key),
            1 => {
                let new = odd(usize::from(edit[3]));
                put(value, path, new);
            }
            // What stands elsewhere, here.
            2 => {
                let copy = value.pointer(other).cloned().unwrap_or_default();
                put(value, path, copy);
            }
            // A field from elsewhere beside this one.
            _ => {
                let name = other.rsplit('/').next().unwrap_or_default().to_owned();
                let new = odd(what / 4);
                if let Some(Value::Object(fields)) = value.pointer_mut(&parent) {
                    fields.insert(name, new);
                }
            }
        }
    }
}

/// JSON pointers of all parts.
fn paths(value: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut next = 0;
    while next < found.len() {
        let path = found[next].clone();
        match value.pointer(&path) {
            Some(Value::Object(fields)) => found.extend(fields.keys().map(|key| {
                let key = key.replace('~', "~0").replace('/', "~1");
                format!("{path}/{key}")
            })),
            Some(Value::Array(items)) => {
                found.extend((0..items.len()).map(|at| format!("{path}/{at}")));
            }
            _ => {}
        }
        next += 1;
    }
    found
}

fn put(value: &mut Value, path: &str, new: Value) {
    if let Some(part) = value.pointer_mut(path) {
        *part = new;
    }
}

fn remove(value: &mut Value, parent: &str, key: &str) {
    match value.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(key)),
        Some(Value::Array(items)) => {
            if let Some(at) = key.parse().ok().filter(|at| *at < items.len()) {
                items.remove(at);
            }
        }
        _ => {}
    }
}

fn odd(which: usize) -> Value {
    let all = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(i64::MAX),
        json!(0.5),
        json!(""),
        json!("a"),
        json!("web"),
        json!("desktop"),
        json!("CREATE"),
        json!("UPDATE"),
        json!("DELETE"),
        json!("100%"),
        json!("a/b~c."),
        json!("x".repeat(300)),
        json!([]),
        json!([null]),
        json!({}),
        json!({"a": null}),
        json!({"name": "root"}),
    ];
    all[which % all.len()].clone()
}
