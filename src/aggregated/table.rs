//! A pool as the table that `kubectl get` prints: the CRD's columns.

use serde_json::{Value, json};

use super::API_VERSION;

/// A column: its name, its type, where its value stands, and whether only `-o wide` shows it.
const COLUMNS: [(&str, &str, &str, i32); 6] = [
    ("Name", "string", "/metadata/name", 0),
    ("Config", "string", "/spec/config/name", 0),
    ("Desired", "integer", "/spec/replicas", 0),
    ("Current", "integer", "/status/replicas", 0),
    ("Ready", "integer", "/status/readyReplicas", 0),
    ("Updated", "integer", "/status/updatedReplicas", 0),
];

/// The table of one pool, given as JSON.
pub(super) fn of(pool: &Value) -> Value {
    let mut columns: Vec<Value> = COLUMNS
        .iter()
        .map(|(name, kind, _, priority)| column(name, kind, *priority))
        .collect();
    let mut cells: Vec<Value> = COLUMNS
        .iter()
        .map(|(_, _, pointer, _)| pool.pointer(pointer).cloned().unwrap_or(Value::Null))
        .collect();
    // kubectl works out the age from the creation time of the row's object, as with every table of a CRD.
    columns.push(column("Age", "date", 0));
    cells.push(pool["metadata"]["creationTimestamp"].clone());
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": pool["metadata"]["resourceVersion"]},
        "columnDefinitions": columns,
        "rows": [{
            "cells": cells,
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": pool["metadata"],
            },
        }],
    })
}

fn column(name: &str, kind: &str, priority: i32) -> Value {
    json!({
        "name": name,
        "type": kind,
        "format": if name == "Name" { "name" } else { "" },
        "description": format!("As virtualmachinepools of {API_VERSION} have it."),
        "priority": priority,
    })
}
