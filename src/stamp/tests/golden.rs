//! Stamps as released versions made them. A file of a release is never edited: a change of a stamp
//! would look like a new revision to every VM there is, and restart them all.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::*;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Golden {
    input: GoldenInput,
    vm: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GoldenInput {
    namespace: String,
    pool: String,
    pool_uid: String,
    config: String,
    inputs: PoolInputs,
    ordinal: u32,
    spec: Map<String, Value>,
}

fn stamp_of(input: &GoldenInput) -> Value {
    let content_hash = revision_hash(&input.spec);
    stamp(&StampInput {
        namespace: &input.namespace,
        pool: PoolIdentity {
            name: &input.pool,
            uid: &input.pool_uid,
        },
        config: &input.config,
        revision: Revision {
            name: &revision_name(&input.config, &content_hash),
            content_hash: &content_hash,
            spec: &input.spec,
        },
        inputs: &input.inputs,
        ordinal: input.ordinal,
    })
}

#[test]
fn stamps_are_what_they_were_in_every_release() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stamp/testdata");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 4, "the golden stamps are gone");
    let mut failures = Vec::new();
    for file in files {
        let golden: Golden = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let vm = stamp_of(&golden.input);
        if golden.vm.as_ref() != Some(&vm) {
            failures.push(format!("{} has this stamp now:\n{vm:#}", file.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
