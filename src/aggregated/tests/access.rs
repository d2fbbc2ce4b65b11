//! Who is calling, and whether they may. Case AG-01.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request};
use axum_server::tls::TlsInfo;
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::{Value, json};

use super::fake::Fake;
use super::pki::{Authority, cluster, showing};
use super::{Answer, path, send};

/// A request over a connection, with forged headers or true ones, and perhaps a token.
fn from(tls: Option<&Arc<TlsInfo>>, user: Option<&str>, token: Option<&str>) -> Request<Body> {
    let mut request = Request::builder().method(Method::GET).uri(path("/scale"));
    if let Some(user) = user {
        request = request
            .header("X-Remote-User", user)
            .header("X-Remote-Group", "system:masters")
            .header("X-Remote-Group", "system:authenticated")
            .header("X-Remote-Extra-Scopes", "all");
    }
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut request = request.body(Body::empty()).unwrap();
    request.extensions_mut().extend(
        tls.cloned()
            .map(|tls| {
                let mut extensions = axum::http::Extensions::new();
                extensions.insert(tls);
                extensions
            })
            .unwrap_or_default(),
    );
    request
}

/// Whom the last SubjectAccessReview was about.
fn asked_about(fake: &Fake) -> Value {
    let calls = fake.calls("subjectaccessreviews");
    calls
        .last()
        .map_or(Value::Null, |(_, body)| body["spec"].clone())
}

struct World {
    fake: Fake,
    clients: Authority,
    front_proxy: Authority,
}

impl World {
    fn new(names: &str) -> Self {
        let fake = Fake::with_pool();
        let clients = Authority::new("clients");
        let front_proxy = Authority::new("front proxy");
        fake.believes(cluster(&clients, &front_proxy, names));
        Self {
            fake,
            clients,
            front_proxy,
        }
    }

    async fn get(
        &self,
        tls: Option<&Arc<TlsInfo>>,
        user: Option<&str>,
        token: Option<&str>,
    ) -> Answer {
        send(&self.fake, from(tls, user, token)).await
    }
}

#[tokio::test]
async fn ag_01_forged_headers_never_count() {
    let world = World::new(r#"["front-proxy-client"]"#);
    let stranger = Authority::new("front proxy");
    let nobody_knows = [
        ("no certificate", None),
        (
            "one of a CA of their own",
            Some(stranger.client("front-proxy-client", None)),
        ),
        (
            "one of the front proxy's CA with another name",
            Some(world.front_proxy.client("kubelet", None)),
        ),
        (
            "the front proxy's, which is for servers only",
            Some(world.front_proxy.signed(
                "front-proxy-client",
                None,
                ExtendedKeyUsagePurpose::ServerAuth,
            )),
        ),
        (
            "no certificate at all in its place",
            Some(showing(vec![b"junk".to_vec()])),
        ),
    ];
    for (what, tls) in &nobody_knows {
        let answer = world.get(tls.as_ref(), Some("admin"), None).await;
        answer.refused(401, "Unauthorized");
        assert_eq!(answer.headers["www-authenticate"], "Bearer", "{what}");
    }
    assert_eq!(asked_about(&world.fake), Value::Null, "nobody to ask about");

    // A user of the cluster who is named like the front proxy is that user, without rights.
    for name in ["front-proxy-client", "mallory"] {
        let tls = world.clients.client(name, Some("devs"));
        let answer = world.get(Some(&tls), Some("admin"), None).await;
        let message = answer.refused(403, "Forbidden");
        assert!(
            message.contains(&format!("User {name:?} cannot get")),
            "{message}"
        );
        let asked = asked_about(&world.fake);
        assert_eq!(asked["user"], name);
        assert_eq!(asked["groups"], json!(["devs", "system:authenticated"]));
        assert_eq!(asked["extra"], Value::Null);
    }

    // A token is its user's, whatever headers stand beside it.
    world
        .fake
        .state()
        .tokens
        .insert("eve".to_owned(), vec!["devs".to_owned()]);
    let answer = world.get(None, Some("admin"), Some("eve")).await;
    answer.refused(403, "Forbidden");
    assert_eq!(asked_about(&world.fake)["user"], "eve");
    let answer = world.get(None, Some("admin"), Some("jane")).await;
    assert_eq!(answer.code, 200);
    assert_eq!(asked_about(&world.fake)["user"], "jane");
    let answer = world.get(None, Some("admin"), Some("junk")).await;
    answer.refused(401, "Unauthorized");
}

#[tokio::test]
async fn ag_01_the_front_proxys_headers_count_whole() {
    for names in [r#"["other", "front-proxy-client"]"#, "[]", ""] {
        let world = World::new(names);
        let tls = world.front_proxy.client("front-proxy-client", None);
        let answer = world.get(Some(&tls), Some("admin"), None).await;
        assert_eq!(answer.code, 200, "{names}: {answer:?}");
        let asked = asked_about(&world.fake);
        assert_eq!(asked["user"], "admin");
        assert_eq!(
            asked["groups"],
            json!(["system:masters", "system:authenticated"])
        );
        assert_eq!(asked["extra"], json!({"scopes": ["all"]}));
        let attributes = &asked["resourceAttributes"];
        assert_eq!(attributes["verb"], "get");
        assert_eq!(attributes["subresource"], "scale");
        assert_eq!(attributes["name"], "web");
        // It names nobody: so nobody asks, unless a token says who.
        world
            .get(Some(&tls), None, None)
            .await
            .refused(401, "Unauthorized");
        assert_eq!(world.get(Some(&tls), None, Some("jane")).await.code, 200);
    }
}

#[tokio::test]
async fn whom_to_believe_changes_while_it_runs_and_the_last_good_word_stays() {
    let world = World::new(r#"["front-proxy-client"]"#);
    let tls = world.front_proxy.client("front-proxy-client", None);
    assert_eq!(world.get(Some(&tls), Some("admin"), None).await.code, 200);

    let renamed = cluster(&world.clients, &world.front_proxy, r#"["renamed"]"#);
    world.fake.believes(renamed);
    world
        .get(Some(&tls), Some("admin"), None)
        .await
        .refused(401, "Unauthorized");
    let next = Authority::new("next front proxy");
    let mut both = cluster(&world.clients, &next, r#"["front-proxy-client"]"#);
    both.insert(
        "requestheader-client-ca-file".to_owned(),
        world.front_proxy.pem() + &next.pem(),
    );
    world.fake.believes(both);
    for authority in [&world.front_proxy, &next] {
        let tls = authority.client("front-proxy-client", None);
        assert_eq!(world.get(Some(&tls), Some("admin"), None).await.code, 200);
    }
    let other = [(
        "requestheader-username-headers".to_owned(),
        r#"["X-User"]"#.to_owned(),
    )];
    let mut data = cluster(&world.clients, &next, "[]");
    data.extend(other);
    world.fake.believes(data);
    let tls = next.client("whoever", None);
    world
        .get(Some(&tls), Some("admin"), None)
        .await
        .refused(401, "Unauthorized");
    let mut request = from(Some(&tls), None, None);
    request
        .headers_mut()
        .insert("X-User", HeaderValue::from_static("jane"));
    assert_eq!(send(&world.fake, request).await.code, 200);
}

#[tokio::test]
async fn before_it_is_known_whom_to_believe_a_certificate_waits_and_a_token_counts() {
    let fake = Fake::with_pool();
    let tls = Authority::new("any").client("admin", None);
    let answer = send(&fake, from(Some(&tls), Some("admin"), None)).await;
    answer.refused(503, "ServiceUnavailable");
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(send(&fake, from(None, None, Some("jane"))).await.code, 200);
}

#[tokio::test]
async fn no_answer_is_a_no() {
    let fake = Fake::with_pool();
    fake.state().broken = true;
    let answer = send(&fake, from(None, None, Some("jane"))).await;
    answer.refused(500, "InternalError");
    assert_eq!(fake.calls("/pools/").len(), 0);
}

#[tokio::test]
async fn reviews_are_asked_for_once_in_a_while() {
    let fake = Fake::with_pool();
    let router = fake.router();
    for token in ["jane", "jane", "junk", "junk"] {
        let request = from(None, None, Some(token));
        tower::ServiceExt::oneshot(router.clone(), request)
            .await
            .unwrap();
    }
    assert_eq!(fake.calls("tokenreviews").len(), 2);
    assert_eq!(fake.calls("subjectaccessreviews").len(), 1);
}

/// A section of PEM that is no certificate that anybody can use.
const UNUSABLE: &str = "-----BEGIN CERTIFICATE-----\nanVuaw==\n-----END CERTIFICATE-----\n\
                        -----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n";

#[tokio::test]
async fn a_certificate_that_cannot_be_used_takes_no_other_with_it() {
    let world = World::new("[]");
    let (clients, front_proxy) = (Authority::new("new"), Authority::new("new proxy"));
    let user = clients.client("jane", None);
    let proxy = front_proxy.client("any", None);
    let mut data = cluster(&clients, &front_proxy, "[]");
    for key in ["client-ca-file", "requestheader-client-ca-file"] {
        let pem = data.get_mut(key).unwrap();
        *pem = UNUSABLE.to_owned() + pem + UNUSABLE;
    }
    let told = world.fake.is_told(data).unwrap_err();
    assert!(told.contains("number 1 is left out"), "{told}");
    assert_eq!(world.get(Some(&user), None, None).await.code, 200);
    assert_eq!(world.get(Some(&proxy), Some("admin"), None).await.code, 200);
}

#[tokio::test]
async fn what_cannot_be_read_of_one_authority_leaves_the_other_alone() {
    for broken in [
        ("requestheader-client-ca-file", UNUSABLE),
        ("requestheader-allowed-names", "front-proxy-client"),
        ("requestheader-username-headers", r#"["X User"]"#),
        ("client-ca-file", UNUSABLE),
    ] {
        let fake = Fake::with_pool();
        let (clients, front_proxy) = (Authority::new("clients"), Authority::new("proxy"));
        let mut data = cluster(&clients, &front_proxy, "[]");
        data.insert(broken.0.to_owned(), broken.1.to_owned());
        let told = fake.is_told(data.clone()).unwrap_err();
        assert!(told.contains(broken.0), "{told}");
        let user = clients.client("jane", None);
        let proxy = front_proxy.client("any", None);
        let users_broken = broken.0 == "client-ca-file";
        let answer = send(&fake, from(Some(&user), None, None)).await;
        assert_eq!(answer.code == 200, !users_broken, "{broken:?}: {answer:?}");
        let answer = send(&fake, from(Some(&proxy), Some("admin"), None)).await;
        assert_eq!(answer.code == 200, users_broken, "{broken:?}: {answer:?}");

        // It stays as it was, if it was something.
        fake.believes(cluster(&clients, &front_proxy, "[]"));
        fake.is_told(data).unwrap_err();
        for (tls, name) in [(&user, None), (&proxy, Some("admin"))] {
            let answer = send(&fake, from(Some(tls), name, None)).await;
            assert_eq!(answer.code, 200, "{broken:?}: {answer:?}");
        }
    }
    let fake = Fake::with_pool();
    let (clients, front_proxy) = (Authority::new("clients"), Authority::new("proxy"));
    let mut data = cluster(&clients, &front_proxy, "[]");
    data.insert("client-ca-file".to_owned(), UNUSABLE.to_owned());
    data.insert("requestheader-client-ca-file".to_owned(), "junk".to_owned());
    fake.is_told(data).unwrap_err();
    let tls = front_proxy.client("any", None);
    let answer = send(&fake, from(Some(&tls), Some("admin"), None)).await;
    answer.refused(503, "ServiceUnavailable");
}
