//! Where in an object something is wrong, and what: paths and causes as the API server itself words them,
//! so that kubectl shows ours and its own alike.

use std::collections::HashMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;

/// Causes after which no more are looked for: an object can have a hundred thousand faults, and nobody is
/// helped by more than this.
pub const ENOUGH_CAUSES: usize = 1000;

/// Path of a field, such as `spec.dataVolumeTemplates[0].metadata.name`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Path(String);

impl Path {
    /// `spec`.
    pub fn spec() -> Self {
        Self("spec".to_owned())
    }

    /// `metadata`.
    pub fn metadata() -> Self {
        Self("metadata".to_owned())
    }

    /// A field at the top.
    pub fn root(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// A path below `spec` that `stamp` has found, already written out.
    pub fn below_spec(path: &str) -> Self {
        match path {
            "" => Self::spec(),
            _ if path.starts_with('[') => Self(format!("spec{path}")),
            _ => Self(format!("spec.{path}")),
        }
    }

    /// A member of the object here.
    pub fn child(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    /// Members of members, one after the other.
    pub fn children(&self, names: &[&str]) -> Self {
        names
            .iter()
            .fold(self.clone(), |path, name| path.child(name))
    }

    /// An element of the list here.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// An entry of the map here.
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path with list positions taken out: an entry that moves is the same entry.
    fn without_indices(&self) -> String {
        let mut result = String::with_capacity(self.0.len());
        let mut rest = self.0.as_str();
        while let Some((before, after)) = rest.split_once('[') {
            result.push_str(before);
            result.push('[');
            let end = after.find(']').unwrap_or(after.len());
            if !after[..end].bytes().all(|byte| byte.is_ascii_digit()) {
                result.push_str(&after[..end]);
            }
            rest = &after[end..];
        }
        result.push_str(rest);
        result
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What kind of wrong, in the API server's words.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CauseKind {
    /// There twice.
    Duplicate,
    /// Must not be there.
    Forbidden,
    /// Has a value that can't be.
    Invalid,
    /// Has a value that is not one of those there are, or whose behaviour is not built yet.
    NotSupported,
    /// Is missing.
    Required,
}

/// One thing that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cause {
    /// What kind of wrong.
    pub kind: CauseKind,
    /// Where.
    pub field: Path,
    /// A sentence about it without the path.
    pub message: String,
}

impl Cause {
    /// The value is there twice.
    pub fn duplicate(field: Path, value: &str) -> Self {
        Self::new(
            CauseKind::Duplicate,
            field,
            format!("{value:?} is there twice"),
        )
    }

    /// The field must not be there.
    pub fn forbidden(field: Path, message: impl Into<String>) -> Self {
        Self::new(CauseKind::Forbidden, field, message)
    }

    /// The value can't be.
    pub fn invalid(field: Path, message: impl Into<String>) -> Self {
        Self::new(CauseKind::Invalid, field, message)
    }

    /// The value is none of those there are.
    pub fn not_supported(field: Path, message: impl Into<String>) -> Self {
        Self::new(CauseKind::NotSupported, field, message)
    }

    /// The field is missing.
    pub fn required(field: Path, message: impl Into<String>) -> Self {
        Self::new(CauseKind::Required, field, message)
    }

    fn new(kind: CauseKind, field: Path, message: impl Into<String>) -> Self {
        Self {
            kind,
            field,
            message: message.into(),
        }
    }

    /// As it stands in `details.causes` of a Status.
    pub fn to_status_cause(&self) -> StatusCause {
        StatusCause {
            field: Some(self.field.to_string()),
            message: Some(self.message.clone()),
            reason: Some(self.kind.reason().to_owned()),
        }
    }

    /// What makes two causes the same fault, wherever in a list it stands.
    fn fault(&self) -> (CauseKind, String, String) {
        let field = self.field.without_indices();
        (self.kind, field, self.message.clone())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.message)
    }
}

impl CauseKind {
    /// `metav1.CauseType`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
        }
    }
}

/// The causes in `now` that the stored object doesn't have already. What was admitted under older rules
/// stays editable in all that doesn't make it worse.
pub fn new_causes(now: Vec<Cause>, stored: &[Cause]) -> Vec<Cause> {
    let mut known: HashMap<(CauseKind, String, String), usize> = HashMap::new();
    for cause in stored {
        let times = known.entry(cause.fault()).or_default();
        *times += 1;
    }
    let mut new = now;
    new.retain(|cause| match known.get_mut(&cause.fault()) {
        Some(times) if *times > 0 => {
            *times -= 1;
            false
        }
        _ => true,
    });
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_the_api_servers() {
        let path = Path::spec().child("volumes").index(3).child("name");
        assert_eq!(path.as_str(), "spec.volumes[3].name");
        assert_eq!(
            Path::spec().child("labels").key("a.b/c").as_str(),
            "spec.labels[a.b/c]"
        );
        assert_eq!(Path::below_spec("a.b[0]").as_str(), "spec.a.b[0]");
        assert_eq!(Path::below_spec("").as_str(), "spec");
    }

    #[test]
    fn a_fault_that_was_stored_is_no_news_wherever_it_moved_in_its_list() {
        let fault = |index, message: &str| {
            Cause::invalid(Path::spec().child("l").index(index).child("x"), message)
        };
        assert!(new_causes(vec![fault(2, "bad")], &[fault(0, "bad")]).is_empty());
        assert_eq!(
            new_causes(vec![fault(0, "bad"), fault(1, "bad")], &[fault(0, "bad")]),
            [fault(1, "bad")],
            "a second one makes it worse"
        );
        let labelled = |key| Cause::invalid(Path::spec().key(key), "bad");
        assert_eq!(
            new_causes(vec![labelled("a")], &[labelled("b")]),
            [labelled("a")]
        );
    }
}
