//! Paths into opaque JSON: one pattern language for tables of fields.
//!
//! `a.b[].c` goes through every element of a list, `["x.y/z"]` is a key with dots in it, and `<json>`
//! goes into a string that holds JSON itself. Whatever doesn't have the shape that a pattern expects
//! is passed over: nothing here fails.

use std::fmt::Write as _;

use serde_json::Value;

/// A parsed pattern.
#[derive(Debug)]
pub(crate) struct Pattern(Vec<Step>);

#[derive(Debug, PartialEq)]
enum Step {
    /// Into JSON inside a string.
    Decoded,
    /// Every element of a list.
    Each,
    /// A member of an object.
    Key(&'static str),
}

impl Pattern {
    /// Parses a pattern of one of this program's tables.
    pub(crate) fn parse(text: &'static str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix("[]") {
                steps.push(Step::Each);
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix("<json>") {
                steps.push(Step::Decoded);
                rest = tail;
            } else if let Some((key, tail)) = rest
                .strip_prefix("[\"")
                .and_then(|tail| tail.split_once("\"]"))
            {
                steps.push(Step::Key(key));
                rest = tail;
            } else {
                let tail = rest.strip_prefix('.').unwrap_or(rest);
                let end = tail.find(['.', '[', '<']).unwrap_or(tail.len());
                steps.push(Step::Key(&tail[..end]));
                rest = &tail[end..];
            }
        }
        Self(steps)
    }

    /// Calls `found` with the path and value of all that matches.
    pub(crate) fn visit(&self, value: &Value, found: &mut dyn FnMut(&str, &Value)) {
        visit(&self.0, value, &mut String::new(), found);
    }

    /// Calls `change` with all that matches, save what is inside a string.
    pub(crate) fn visit_mut(&self, value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
        visit_mut(&self.0, value, change);
    }
}

/// Appends a member to a path, in quotes where its key has other characters than names of fields do.
pub(crate) fn push_key(path: &mut String, key: &str) {
    if key.is_empty()
        || !key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        write!(path, "[{key:?}]").expect("a String takes all that is written");
        return;
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn visit(steps: &[Step], value: &Value, path: &mut String, found: &mut dyn FnMut(&str, &Value)) {
    let Some((step, rest)) = steps.split_first() else {
        return found(path, value);
    };
    let length = path.len();
    match step {
        Step::Decoded => {
            let text = value.as_str().unwrap_or_default();
            if let Ok(inner) = serde_json::from_str(text) {
                visit(rest, &inner, path, found);
            }
        }
        Step::Each => {
            for (index, element) in value.as_array().into_iter().flatten().enumerate() {
                write!(path, "[{index}]").expect("a String takes all that is written");
                visit(rest, element, path, found);
                path.truncate(length);
            }
        }
        Step::Key(key) => {
            if let Some(member) = value.get(key) {
                push_key(path, key);
                visit(rest, member, path, found);
                path.truncate(length);
            }
        }
    }
}

fn visit_mut(steps: &[Step], value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
    let Some((step, rest)) = steps.split_first() else {
        return change(value);
    };
    match step {
        Step::Decoded => {}
        Step::Each => {
            for element in value.as_array_mut().into_iter().flatten() {
                visit_mut(rest, element, change);
            }
        }
        Step::Key(key) => {
            if let Some(member) = value.get_mut(key) {
                visit_mut(rest, member, change);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(pattern: &'static str, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        Pattern::parse(pattern).visit(value, &mut |path, value| {
            found.push(format!("{path}={value}"));
        });
        found
    }

    #[test]
    fn every_step_is_followed_and_named() {
        let value = json!({
            "a": [{"b": 1}, null, {"b": [2]}, {"c": 3}],
            "m": {"x.y/z": "[{\"n\": \"in\"}]", "x": "not json"},
        });
        assert_eq!(found("a[].b", &value), ["a[0].b=1", "a[2].b=[2]"]);
        assert_eq!(found("a[].b[]", &value), ["a[2].b[0]=2"]);
        assert_eq!(
            found("m[\"x.y/z\"]<json>[].n", &value),
            ["m[\"x.y/z\"][0].n=\"in\""]
        );
        assert!(found("m.x<json>[].n", &value).is_empty());
        assert!(found("a.b", &value).is_empty());
        assert!(found("a[].b.c.d[]", &json!(null)).is_empty());
    }

    #[test]
    fn strings_with_json_in_them_are_read_and_never_changed() {
        let mut value = json!({"m": "[1]", "l": [1, 2]});
        Pattern::parse("m<json>[]").visit_mut(&mut value, &mut |value| *value = json!(0));
        Pattern::parse("l[]").visit_mut(&mut value, &mut |value| *value = json!(0));
        assert_eq!(value, json!({"m": "[1]", "l": [0, 0]}));
    }
}
