//! KubeVirt's verdict on a VM that is not made: a dry-run create is asked, and its answer read.
//!
//! Only what says that KubeVirt will never take this spec is a refusal. All else that keeps a VM from being
//! made now (a quota, a missing right, a busy or absent KubeVirt, somebody else's policy, which may look at
//! labels or users that a trial doesn't have) leaves the verdict open.
//!
//! | answer | verdict |
//! |---|---|
//! | 2xx | accepted |
//! | a webhook of KubeVirt's denies it, with any 4xx but 409 and 429 | refused |
//! | 400 and 422 of the API server's own: unknown fields, wrong types, the CRD's rules | refused |
//! | a webhook or a ValidatingAdmissionPolicy of somebody else's denies it | open |
//! | a webhook that does not support dry runs, or can't be called | open |
//! | 403, 404, 409, 429, 5xx, anything else, no answer | open |

use kube::core::params::PostParams;
use kube::core::{DynamicObject, Request, Resource as _, Status};
use serde_json::Value;

use crate::api::MANAGER;

/// What KubeVirt says of a VM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It would be made.
    Accepted,
    /// It can't be said now, and why.
    Open(String),
    /// It will never be made, and why: at least one fault.
    Refused(Vec<Fault>),
}

/// What KubeVirt finds wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Path in the VM, `spec.template.spec.volumes[0].name`; `spec` where it says none.
    pub field: String,
    /// In KubeVirt's words.
    pub message: String,
}

/// Ends the names of KubeVirt's webhooks (`virtualmachine-validator.kubevirt.io`).
const KUBEVIRTS: &str = ".kubevirt.io";

/// The call that asks: nothing is stored, and unknown fields are faults. `None` if it can't be built.
pub fn question(namespace: &str, vm: &Value) -> Option<http::Request<Vec<u8>>> {
    let resource = super::virtual_machine();
    let params = PostParams {
        dry_run: true,
        field_manager: Some(MANAGER.to_owned()),
    };
    let request = Request::new(DynamicObject::url_path(&resource, Some(namespace)));
    let mut request = request.create(&params, serde_json::to_vec(vm).ok()?).ok()?;
    let uri = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = uri.parse().ok()?;
    Some(request)
}

/// What an answer with this HTTP code and body says.
pub fn answer(code: u16, body: &[u8]) -> Verdict {
    if (200..300).contains(&code) {
        return Verdict::Accepted;
    }
    let status: Status = serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        Status::failure(text.trim(), "")
    });
    let message = &status.message;
    let is_kubevirts = match denying_webhook(message) {
        Some(webhook) => Some(webhook.ends_with(KUBEVIRTS)),
        None if is_of_a_policy(message) => Some(false),
        None => None,
    };
    let is_refusal = match (code, is_kubevirts) {
        (409 | 429, _) | (_, Some(false)) => false,
        (400..500, Some(true)) => true,
        (400 | 422, None) => !message.contains("does not support dry run"),
        _ => false,
    };
    if is_refusal {
        return Verdict::Refused(faults(&status));
    }
    Verdict::Open(match code {
        404 => format!("KubeVirt is not installed ({message})"),
        _ => message.clone(),
    })
}

/// The name of the webhook that denies: `admission webhook "NAME" denied the request…`.
fn denying_webhook(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("admission webhook \"")?;
    let (name, rest) = rest.split_once('"')?;
    rest.trim_start()
        .starts_with("denied the request")
        .then_some(name)
}

fn is_of_a_policy(message: &str) -> bool {
    message.contains("ValidatingAdmissionPolicy '") || message.contains("MutatingAdmissionPolicy '")
}

fn faults(status: &Status) -> Vec<Fault> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let faults: Vec<Fault> = causes
        .filter(|cause| !cause.message.is_empty())
        .map(|cause| Fault {
            field: match cause.field.as_str() {
                "" => "spec".to_owned(),
                field => field.to_owned(),
            },
            message: cause.message.clone(),
        })
        .collect();
    if !faults.is_empty() {
        return faults;
    }
    let unknown = unknown_fields(&status.message);
    if !unknown.is_empty() {
        return unknown;
    }
    vec![Fault {
        field: "spec".to_owned(),
        message: status.message.clone(),
    }]
}

/// Strict decoding says it all in one message: `… unknown field "spec.a", duplicate field "spec.b"`.
fn unknown_fields(message: &str) -> Vec<Fault> {
    let Some((_, list)) = message.split_once("strict decoding error: ") else {
        return Vec::new();
    };
    ["unknown", "duplicate"]
        .into_iter()
        .flat_map(|what| {
            let opening = format!("{what} field \"");
            let parts = list.split(&opening).skip(1).collect::<Vec<_>>();
            parts.into_iter().filter_map(move |part| {
                let (field, _) = part.split_once('"')?;
                Some(Fault {
                    field: field.to_owned(),
                    message: format!("{what} field"),
                })
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(code: u16, message: &str) -> Verdict {
        answer(
            code,
            json!({"message": message, "code": code})
                .to_string()
                .as_bytes(),
        )
    }

    #[test]
    fn what_is_a_verdict_and_what_is_not() {
        let kubevirt =
            r#"admission webhook "virtualmachine-validator.kubevirt.io" denied the request: no"#;
        let stranger = r#"admission webhook "validate.kyverno.svc" denied the request: label!"#;
        let policy = "virtualmachines.kubevirt.io \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding \
                      'b' denied request: no";
        let dry = r#"admission webhook "a.example.com" does not support dry run"#;
        let failing = r#"Internal error occurred: failed calling webhook "virtualmachine-validator.kubevirt.io": refused"#;
        for (code, message, refused) in [
            (400, "strict decoding error: unknown field \"spec.x\"", true),
            (422, "VirtualMachine.kubevirt.io \"x\" is invalid", true),
            (400, kubevirt, true),
            (403, kubevirt, true),
            (422, kubevirt, true),
            (409, kubevirt, false),
            (429, kubevirt, false),
            (500, kubevirt, false),
            (400, stranger, false),
            (403, stranger, false),
            (422, stranger, false),
            (422, policy, false),
            (400, dry, false),
            (
                403,
                "virtualmachines is forbidden: exceeded quota: q",
                false,
            ),
            (403, "User \"v\" cannot create resource", false),
            (
                404,
                "the server could not find the requested resource",
                false,
            ),
            (409, "virtualmachines \"x\" already exists", false),
            (429, "too many requests", false),
            (500, failing, false),
            (503, "unavailable", false),
            (504, "timeout", false),
            (302, "elsewhere", false),
        ] {
            let verdict = said(code, message);
            assert_eq!(
                matches!(verdict, Verdict::Refused(_)),
                refused,
                "{code} {message}"
            );
            assert_ne!(verdict, Verdict::Accepted, "{code}");
        }
        assert_eq!(answer(201, b"{}"), Verdict::Accepted);
        assert_eq!(
            answer(400, b"not JSON"),
            Verdict::Refused(vec![Fault {
                field: "spec".to_owned(),
                message: "not JSON".to_owned(),
            }])
        );
    }

    #[test]
    fn faults_have_kubevirts_words_and_paths() {
        let body = json!({
            "code": 422, "message": "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: x",
            "details": {"causes": [
                {"reason": "FieldValueInvalid", "field": "spec.template.spec.domain.devices.disks[0].name",
                 "message": "no volume of that name"},
                {"reason": "FieldValueInvalid", "message": "something else"},
            ]},
        });
        let fault = |field: &str, message: &str| Fault {
            field: field.to_owned(),
            message: message.to_owned(),
        };
        assert_eq!(
            answer(422, body.to_string().as_bytes()),
            Verdict::Refused(vec![
                fault(
                    "spec.template.spec.domain.devices.disks[0].name",
                    "no volume of that name"
                ),
                fault("spec", "something else"),
            ])
        );
        assert_eq!(
            said(
                400,
                "VirtualMachine in version \"v1\" cannot be handled as a VirtualMachine: strict decoding error: \
                 unknown field \"spec.a\", unknown field \"spec.template.spec.b\""
            ),
            Verdict::Refused(vec![
                fault("spec.a", "unknown field"),
                fault("spec.template.spec.b", "unknown field"),
            ])
        );
    }

    #[test]
    fn the_question_is_a_strict_dry_run() {
        let request = question("team", &json!({})).unwrap();
        assert_eq!(
            request.uri(),
            "/apis/kubevirt.io/v1/namespaces/team/virtualmachines?&dryRun=All&fieldManager=vmpool&fieldValidation=Strict"
        );
    }
}
