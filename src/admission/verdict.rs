//! What a webhook says of a request: a patch, warnings, causes for refusal.

use json_patch::Patch;

use super::field::{Cause, new_causes};

/// Longest warning: the API server cuts what is longer off (`k8s.io/apiserver/pkg/warning`, 256).
pub const MAX_WARNING: usize = 256;
/// Most warnings: of all together, the API server keeps 4096 characters.
const MAX_WARNINGS: usize = 16;
/// Names that a message spells out; the rest is counted.
const MAX_NAMES: usize = 5;

/// What a webhook says. Refused if there are causes; the patch then doesn't count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Changes to the object.
    pub patch: Patch,
    /// Said to the user, whatever becomes of the request.
    pub warnings: Vec<String>,
    /// Why it is refused, in the order of the checks.
    pub causes: Vec<Cause>,
}

impl Verdict {
    /// Nothing to say.
    pub fn allowed() -> Self {
        Self::default()
    }

    /// Refused for these causes, if there are any.
    pub fn refused(causes: Vec<Cause>) -> Self {
        Self {
            causes,
            ..Self::default()
        }
    }

    /// Adds a warning, once, while there is room.
    pub fn warn(&mut self, warning: impl Into<String>) {
        let warning = shortened(warning.into());
        if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// What of this is news to somebody who has the stored object: faults and warnings that it had already
    /// are not.
    pub fn since(mut self, stored: &Self) -> Self {
        self.causes = new_causes(self.causes, &stored.causes);
        self.warnings
            .retain(|warning| !stored.warnings.contains(warning));
        self
    }
}

/// The first few of `names`, and how many more there are.
pub fn some_of<S: AsRef<str>>(names: &[S]) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_NAMES).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn shortened(mut warning: String) -> String {
    if warning.len() > MAX_WARNING {
        let mut end = MAX_WARNING - "…".len();
        while !warning.is_char_boundary(end) {
            end -= 1;
        }
        warning.truncate(end);
        warning.push('…');
    }
    warning
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_warnings_are_cut_between_characters() {
        let mut verdict = Verdict::allowed();
        verdict.warn("é".repeat(200));
        assert!(verdict.warnings[0].len() <= MAX_WARNING);
        assert!(verdict.warnings[0].ends_with("é…"));
        verdict.warn("é".repeat(200));
        assert_eq!(verdict.warnings.len(), 1);
    }

    #[test]
    fn names_are_listed_up_to_a_few() {
        assert_eq!(some_of(&["a", "b"]), "a, b");
        assert_eq!(
            some_of(&["a", "b", "c", "d", "e", "f", "g"]),
            "a, b, c, d, e and 2 more"
        );
    }
}
