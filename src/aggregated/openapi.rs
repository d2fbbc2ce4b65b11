//! The OpenAPI documents, made from the types themselves: what `kubectl explain` shows, and what the API
//! server merges into its own. Open to everybody, as discovery is.
//!
//! Version 2 knows less than version 3: what it doesn't know (unions, fields of two types) is left out of it,
//! as the API server does for CRDs.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::options::{DetachOptions, DetachResult};
use super::{API_VERSION, DETACH_KIND};
use crate::api::{POOL_KIND, POOL_PLURAL, SUBRESOURCES_GROUP, VERSION, crds};

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Name of the pool's schema.
const POOL_SCHEMA: &str = "dev.vmpool.subresources.v1alpha1.VirtualMachinePool";

/// What the autoscaler and kubectl scale.
const SCALE: (&str, &str, &str) = ("autoscaling", "v1", "Scale");

/// One thing that can be done at a path.
struct Operation {
    method: &'static str,
    id: &'static str,
    summary: &'static str,
    subresource: Option<&'static str>,
    kind: (&'static str, &'static str, &'static str),
    consumes: &'static [&'static str],
    body: Body,
    answer: String,
}

/// What an operation takes.
#[derive(Clone, Copy)]
enum Body {
    Nothing,
    Options,
    Patch,
    Scale,
}

/// Where schemas stand in a document, and in which form.
#[derive(Clone, Copy, PartialEq)]
enum Edition {
    V2,
    V3,
}

/// `/openapi/v2`.
pub(super) fn v2() -> Value {
    let mut definitions = schemas(Edition::V2);
    for schema in definitions.values_mut() {
        reduce(schema);
    }
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths(Edition::V2),
        "definitions": definitions,
    })
}

/// `/openapi/v3`: where the document of each version is.
pub(super) fn v3_index() -> Value {
    let url = format!("/openapi/v3/apis/{API_VERSION}");
    json!({"paths": {format!("apis/{API_VERSION}"): {"serverRelativeURL": url}}})
}

/// `/openapi/v3/apis/<group>/<version>`.
pub(super) fn v3() -> Value {
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths(Edition::V3),
        "components": {"schemas": schemas(Edition::V3)},
    })
}

fn info() -> Value {
    json!({"title": SUBRESOURCES_GROUP, "version": env!("CARGO_PKG_VERSION")})
}

/// All schemas, by name.
fn schemas(edition: Edition) -> Map<String, Value> {
    let mut settings = SchemaSettings::openapi3();
    settings.definitions_path = edition.definitions().into();
    let mut generator = settings.into_generator();
    let meta = generator.subschema_for::<ObjectMeta>().to_value();
    generator.subschema_for::<Scale>();
    generator.subschema_for::<DetachOptions>();
    generator.subschema_for::<DetachResult>();
    let mut schemas = generator.take_definitions(true);
    schemas.insert(POOL_SCHEMA.to_owned(), pool(meta));
    let ours = [
        (POOL_SCHEMA.to_owned(), gvk(our_kind(POOL_KIND))),
        (name_of::<DetachOptions>(), gvk(our_kind(DETACH_KIND))),
    ];
    for (name, kind) in ours {
        schemas[&name]["x-kubernetes-group-version-kind"] = json!([kind]);
    }
    schemas
}

/// The schema of the CRD, in our group.
fn pool(meta: Value) -> Value {
    let crd = crds()
        .into_iter()
        .find(|crd| crd.spec.names.kind == POOL_KIND);
    let version = crd.and_then(|crd| crd.spec.versions.into_iter().next());
    let schema = version.and_then(|version| version.schema?.open_api_v3_schema);
    let mut schema = serde_json::to_value(schema).expect("a schema is JSON");
    let string = |description: &str| json!({"type": "string", "description": description});
    let properties = &mut schema["properties"];
    properties["apiVersion"] = string(API_VERSION);
    properties["kind"] = string(POOL_KIND);
    properties["metadata"] = meta;
    schema
}

/// Every path, and what can be done there.
fn paths(edition: Edition) -> Map<String, Value> {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations() {
        let mut path =
            format!("/apis/{API_VERSION}/namespaces/{{namespace}}/{POOL_PLURAL}/{{name}}");
        if let Some(subresource) = operation.subresource {
            path = format!("{path}/{subresource}");
        }
        let item = paths.entry(path).or_insert_with(|| {
            let parameters = ["name", "namespace"].map(|name| edition.parameter(name, "path"));
            json!({"parameters": parameters})
        });
        item[operation.method] = edition.operation(&operation);
    }
    paths
}

fn operations() -> Vec<Operation> {
    let json_only = &["application/json"][..];
    vec![
        read(
            "readSubresourcesVmpoolDevV1alpha1NamespacedVirtualMachinePool",
            "read the specified VirtualMachinePool",
            None,
            our_kind(POOL_KIND),
            POOL_SCHEMA.to_owned(),
        ),
        read(
            "readSubresourcesVmpoolDevV1alpha1NamespacedVirtualMachinePoolScale",
            "read scale of the specified VirtualMachinePool",
            Some("scale"),
            SCALE,
            name_of::<Scale>(),
        ),
        write_scale(
            "put",
            "replaceSubresourcesVmpoolDevV1alpha1NamespacedVirtualMachinePoolScale",
            "replace scale of the specified VirtualMachinePool",
            json_only,
            Body::Scale,
        ),
        write_scale(
            "patch",
            "patchSubresourcesVmpoolDevV1alpha1NamespacedVirtualMachinePoolScale",
            "partially update scale of the specified VirtualMachinePool",
            &[
                "application/json-patch+json",
                "application/merge-patch+json",
            ],
            Body::Patch,
        ),
        Operation {
            method: "post",
            id: "createSubresourcesVmpoolDevV1alpha1NamespacedVirtualMachinePoolDetach",
            summary: "take VMs out of the specified VirtualMachinePool",
            subresource: Some("detach"),
            kind: our_kind(DETACH_KIND),
            consumes: json_only,
            body: Body::Options,
            answer: name_of::<DetachResult>(),
        },
    ]
}

fn read(
    id: &'static str,
    summary: &'static str,
    subresource: Option<&'static str>,
    kind: (&'static str, &'static str, &'static str),
    answer: String,
) -> Operation {
    Operation {
        method: "get",
        id,
        summary,
        subresource,
        kind,
        consumes: &[],
        body: Body::Nothing,
        answer,
    }
}

fn write_scale(
    method: &'static str,
    id: &'static str,
    summary: &'static str,
    consumes: &'static [&'static str],
    body: Body,
) -> Operation {
    Operation {
        method,
        id,
        summary,
        subresource: Some("scale"),
        kind: SCALE,
        consumes,
        body,
        answer: name_of::<Scale>(),
    }
}

impl Edition {
    fn definitions(self) -> &'static str {
        match self {
            Self::V2 => "/definitions",
            Self::V3 => "/components/schemas",
        }
    }

    fn reference(self, name: &str) -> Value {
        json!({"$ref": format!("#{}/{name}", self.definitions())})
    }

    /// A parameter that is a string.
    fn parameter(self, name: &str, place: &str) -> Value {
        let mut parameter = json!({"name": name, "in": place});
        if place == "path" {
            parameter["required"] = true.into();
        }
        match self {
            Self::V2 => parameter["type"] = "string".into(),
            Self::V3 => parameter["schema"] = json!({"type": "string"}),
        }
        parameter
    }

    fn operation(self, operation: &Operation) -> Value {
        let (group, version, kind) = operation.kind;
        let mut value = json!({
            "operationId": operation.id,
            "description": operation.summary,
            "tags": ["subresourcesVmpoolDev_v1alpha1"],
            "x-kubernetes-action": operation.method,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        let mut parameters = Vec::new();
        let schema = match operation.body {
            Body::Nothing => None,
            Body::Options => Some(self.reference(&name_of::<DetachOptions>())),
            // A list or an object.
            Body::Patch => Some(json!({})),
            Body::Scale => Some(self.reference(&name_of::<Scale>())),
        };
        if schema.is_some() {
            parameters.push(self.parameter("dryRun", "query"));
            parameters.push(self.parameter("fieldManager", "query"));
        }
        let answer = self.reference(&operation.answer);
        match self {
            Self::V2 => {
                value["produces"] = json!(["application/json"]);
                value["responses"] = json!({"200": {"description": "OK", "schema": answer}});
                if let Some(schema) = schema {
                    value["consumes"] = json!(operation.consumes);
                    parameters.push(json!({
                        "name": "body", "in": "body", "required": true, "schema": schema,
                    }));
                }
            }
            Self::V3 => {
                let content = json!({"application/json": {"schema": answer}});
                value["responses"] = json!({"200": {"description": "OK", "content": content}});
                if let Some(schema) = schema {
                    let content: Map<String, Value> = operation
                        .consumes
                        .iter()
                        .map(|&media_type| (media_type.to_owned(), json!({"schema": schema})))
                        .collect();
                    value["requestBody"] = json!({"required": true, "content": content});
                }
            }
        }
        value["parameters"] = parameters.into();
        value
    }
}

/// Takes out what version 2 doesn't know.
fn reduce(schema: &mut Value) {
    if let Value::Array(list) = schema {
        list.iter_mut().for_each(reduce);
    }
    let Value::Object(object) = schema else {
        return;
    };
    if object.get("x-kubernetes-int-or-string") == Some(&true.into()) {
        object.remove("type");
    }
    // Properties may have these names: theirs are not keywords.
    for key in ["allOf", "anyOf", "oneOf", "not", "nullable"] {
        object.remove(key);
    }
    for (key, value) in object {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(reduce);
            }
            (_, value) => reduce(value),
        }
    }
}

fn name_of<T: schemars::JsonSchema>() -> String {
    T::schema_name().into_owned()
}

fn our_kind(kind: &'static str) -> (&'static str, &'static str, &'static str) {
    (SUBRESOURCES_GROUP, VERSION, kind)
}

fn gvk((group, version, kind): (&str, &str, &str)) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` of a document.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            Value::Object(object) => {
                if let Some(Value::String(name)) = object.get("$ref") {
                    found.push(name.clone());
                }
                object.values().for_each(|value| references(value, found));
            }
            _ => {}
        }
    }

    #[test]
    fn ag_04_every_reference_leads_to_a_schema() {
        for document in [v2(), v3()] {
            let mut found = Vec::new();
            references(&document, &mut found);
            assert!(found.len() > 10, "{found:?}");
            for reference in found {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
        }
    }

    #[test]
    fn ag_04_the_pools_schema_is_the_crds() {
        let document = v3();
        let pool = &document["components"]["schemas"][POOL_SCHEMA];
        let replicas = &pool["properties"]["spec"]["properties"]["replicas"];
        assert_eq!(replicas["type"], "integer");
        assert!(replicas["description"].is_string());
        assert_eq!(
            pool["x-kubernetes-group-version-kind"][0]["group"],
            SUBRESOURCES_GROUP
        );
        let names = &document["components"]["schemas"][name_of::<DetachOptions>()]["properties"];
        assert!(names["virtualMachines"].is_object(), "{names}");
        let index = v3_index();
        let path = &index["paths"][format!("apis/{API_VERSION}")]["serverRelativeURL"];
        let target = super::super::path::Target::read(path.as_str().unwrap());
        assert_eq!(target, Some(super::super::path::Target::OpenApiV3));
    }

    #[test]
    fn ag_04_version_2_has_no_keyword_that_it_does_not_know() {
        let document = v2();
        let text = document["definitions"].to_string();
        for keyword in ["\"anyOf\":[", "\"oneOf\":[", "\"nullable\":true"] {
            assert!(!text.contains(keyword), "{keyword}");
        }
        let pool = &document["definitions"][POOL_SCHEMA]["properties"]["spec"]["properties"];
        let unavailable = &pool["maxUnavailable"];
        assert_eq!(unavailable["x-kubernetes-int-or-string"], true);
        assert!(unavailable["type"].is_null(), "{unavailable}");
    }
}
