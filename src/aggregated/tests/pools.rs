//! Paths, verbs, forms, and reading a pool.

use axum::http::Method;
use serde_json::{Value, json};

use super::fake::{Fake, pool};
use super::{get, path, request, send};

#[tokio::test]
async fn a_pool_is_read_from_the_cache_in_this_group() {
    let fake = Fake::with_pool();
    let answer = get(&fake, &path("")).await;
    assert_eq!(answer.code, 200);
    assert_eq!(
        answer.body["apiVersion"],
        "subresources.vmpool.dev/v1alpha1"
    );
    assert_eq!(answer.body["kind"], "VirtualMachinePool");
    assert_eq!(answer.body["metadata"], pool()["metadata"]);
    assert_eq!(answer.body["spec"], pool()["spec"]);
    assert_eq!(fake.calls("virtualmachinepools/web").len(), 0);

    let mut request = request(Method::GET, &path(""), "", "");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    request
        .headers_mut()
        .insert("accept", accept.parse().unwrap());
    let table = send(&fake, request).await.body;
    assert_eq!(table["kind"], "Table");
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(
        cells.len(),
        table["columnDefinitions"].as_array().unwrap().len()
    );
    assert_eq!(
        cells[..4],
        [json!("web"), json!("desktop"), json!(4), json!(3)]
    );
}

#[tokio::test]
async fn m130_a_pool_is_not_found_only_when_the_api_server_says_so() {
    let fake = Fake::empty();
    get(&fake, &path("")).await.refused(404, "NotFound");
    assert_eq!(fake.calls("virtualmachinepools/web").len(), 1);
    // Made a moment ago: the cache doesn't show it yet.
    let fresh = Fake::with_pool();
    fresh.caches.pools.take(crate::cache::Step::Init);
    fresh.caches.pools.take(crate::cache::Step::InitDone);
    assert_eq!(get(&fresh, &path("/scale")).await.code, 200);
    // Before the first list is complete nothing is said.
    let starting = Fake::starting();
    starting.caches.pools.take(crate::cache::Step::NotInstalled);
    let starting = Fake::default();
    starting
        .state()
        .tokens
        .insert("jane".to_owned(), Vec::new());
    starting.state().allowed.insert("jane".to_owned());
    for rest in ["", "/scale"] {
        let answer = get(&starting, &path(rest)).await;
        answer.refused(503, "ServiceUnavailable");
        assert_eq!(answer.headers["retry-after"], "1");
    }
}

#[tokio::test]
async fn a_pool_that_this_version_can_not_read_is_read_raw_and_scaled() {
    let fake = Fake::empty();
    let mut odd = pool();
    odd["spec"]["minReadySeconds"] = "soon".into();
    odd["status"] = Value::Null;
    fake.show(odd.clone());
    let at = "/apis/vmpool.dev/v1alpha1/namespaces/team/virtualmachinepools/web";
    fake.state().objects.insert(at.to_owned(), odd);
    let answer = get(&fake, &path("")).await;
    assert_eq!(answer.body["spec"]["minReadySeconds"], "soon");
    let scale = get(&fake, &path("/scale")).await.body;
    assert_eq!(scale["spec"]["replicas"], 4);
    assert_eq!(scale["status"]["selector"], "vmpool.dev/pool-uid=uid-web");
    let patch = request(
        Method::PATCH,
        &path("/scale"),
        "application/merge-patch+json",
        r#"{"spec":{"replicas":5}}"#,
    );
    let answer = send(&fake, patch).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    let warning = answer.headers["warning"].to_str().unwrap();
    assert!(
        warning.starts_with("299 - \"not all was checked"),
        "{warning}"
    );
}

#[tokio::test]
async fn ag_04_each_document_has_its_type_and_needs_no_identity() {
    let fake = Fake::empty();
    let base = "/apis/subresources.vmpool.dev";
    let discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let with_fallback = format!(
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{}",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    );
    let protobuf = "application/vnd.kubernetes.protobuf";
    let proto_or_any = "application/vnd.kubernetes.protobuf, */*";
    for (path, accept, kind) in [
        ("/apis".to_owned(), "", Some("APIGroupList")),
        ("/apis".to_owned(), "application/json", Some("APIGroupList")),
        ("/apis".to_owned(), discovery, Some("APIGroupDiscoveryList")),
        (
            "/apis".to_owned(),
            &with_fallback,
            Some("APIGroupDiscoveryList"),
        ),
        ("/apis".to_owned(), protobuf, None),
        (base.to_owned(), proto_or_any, Some("APIGroup")),
        (base.to_owned(), "text/html", None),
        (
            format!("{base}/v1alpha1"),
            proto_or_any,
            Some("APIResourceList"),
        ),
        (format!("{base}/v1alpha1"), discovery, None),
        ("/openapi/v2".to_owned(), "application/json", Some("")),
        ("/openapi/v3".to_owned(), "*/*", Some("")),
        (
            format!("/openapi/v3{base}/v1alpha1"),
            "application/json",
            Some(""),
        ),
        (
            format!("/openapi/v3{base}/v1alpha1"),
            "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
            None,
        ),
    ] {
        let mut request = axum::http::Request::builder().uri(&path);
        if !accept.is_empty() {
            request = request.header("accept", accept);
        }
        let request = request.body(axum::body::Body::empty()).unwrap();
        let answer = send(&fake, request).await;
        match kind {
            None => {
                answer.refused(406, "NotAcceptable");
            }
            Some(kind) => {
                assert_eq!(answer.code, 200, "{path} {accept}");
                assert_eq!(
                    answer.body["kind"].as_str().unwrap_or_default(),
                    kind,
                    "{path}"
                );
                let content_type = answer.headers["content-type"].to_str().unwrap();
                let aggregated = kind == "APIGroupDiscoveryList";
                let wanted = if aggregated {
                    discovery
                } else {
                    "application/json"
                };
                assert_eq!(content_type, wanted);
            }
        }
    }
    assert!(fake.state().calls.is_empty());
}

#[tokio::test]
async fn other_paths_and_verbs_are_refused_before_anybody_is_asked() {
    let fake = Fake::with_pool();
    for (method, path, code) in [
        (Method::GET, "/".to_owned(), 404),
        (Method::GET, "/metrics".to_owned(), 404),
        (Method::POST, "/admission/none".to_owned(), 404),
        (Method::GET, path("/"), 404),
        (Method::GET, path("/detach/../scale"), 404),
        (Method::GET, path("//scale"), 404),
        (Method::GET, path("/status"), 404),
        (Method::POST, "/apis".to_owned(), 405),
        (Method::PUT, path(""), 405),
        (Method::DELETE, path(""), 405),
        (Method::POST, path("/scale"), 405),
        (Method::DELETE, path("/scale"), 405),
        (Method::GET, path("/detach"), 405),
        (Method::OPTIONS, path("/scale"), 405),
        (
            Method::GET,
            "/apis/subresources.vmpool.dev/v1alpha1/virtualmachinepools".to_owned(),
            405,
        ),
    ] {
        let answer = send(&fake, request(method.clone(), &path, "", "")).await;
        let reason = if code == 404 {
            "NotFound"
        } else {
            "MethodNotAllowed"
        };
        answer.refused(code, reason);
    }
    assert!(fake.state().calls.is_empty());
}
