//! How the names of VMs, disks and revisions are made, read back and bounded.
//!
//! Everything derived from a name has to fit where it ends up: a VM's name becomes a label value and
//! a host name, a revision's name a label value. The budgets stand here, and the checks say them, so
//! that nothing is accepted that fails once a digit is added. Nothing here looks at what exists.

use super::revision::HASH_LENGTH;

/// Longest label value and DNS label (RFC 1123, and Kubernetes' label syntax).
pub const LABEL_BUDGET: usize = 63;

/// Digits reserved for an ordinal: `ordinalStart` and `replicas` both go up to 100000, and skipped
/// numbers come on top.
pub const ORDINAL_DIGITS: usize = 6;

/// The highest ordinal that fits into [`ORDINAL_DIGITS`].
pub const MAX_ORDINAL: u32 = 999_999;

/// Longest prefix: what a label leaves when `-` and the digits are taken off.
pub const PREFIX_BUDGET: usize = LABEL_BUDGET - 1 - ORDINAL_DIGITS;

/// Longest config name: its revisions are called `<config>-<hash>`, which is a label value.
pub const CONFIG_BUDGET: usize = LABEL_BUDGET - 1 - HASH_LENGTH;

/// Longest disk template name that any pool could use: one whose prefix is a single character.
pub const TEMPLATE_BUDGET: usize = LABEL_BUDGET - (1 + 1 + ORDINAL_DIGITS) - 1;

/// Why a name can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameRefusal {
    /// Nothing is left to call it.
    #[error("{what} must not be empty")]
    Empty {
        /// What the name is for.
        what: &'static str,
    },
    /// Characters that a derived name can't have.
    #[error(
        "{what} {name:?} must be {form}: lower case letters, digits and {extra}, beginning and \
         ending with a letter or digit, since {since}"
    )]
    NotDns {
        /// What the name is for.
        what: &'static str,
        /// The name.
        name: String,
        /// Which kind of DNS name is meant.
        form: &'static str,
        /// Which other characters are allowed.
        extra: &'static str,
        /// What would be refused later.
        since: String,
    },
    /// The ordinal has more digits than are reserved.
    #[error(
        "ordinal {ordinal} is too high; at most {MAX_ORDINAL}, since {ORDINAL_DIGITS} digits are reserved for it in VM names"
    )]
    OrdinalTooHigh {
        /// The ordinal.
        ordinal: u32,
    },
    /// Longer than what is derived from it allows.
    #[error("{what} {name:?} has {length} characters; at most {budget}, since {since}")]
    TooLong {
        /// What the name is for.
        what: &'static str,
        /// The name.
        name: String,
        /// Its length.
        length: usize,
        /// The most that fits.
        budget: usize,
        /// Which derived name sets the bound.
        since: String,
    },
}

/// The name of a pool's VM number `ordinal`.
pub fn vm_name(prefix: &str, ordinal: u32) -> String {
    format!("{prefix}-{ordinal}")
}

/// The ordinal in a VM's name, if the name is one that [`vm_name`] makes of this prefix: no sign, no
/// zero padding, no more than [`ORDINAL_DIGITS`] digits.
pub fn parse_ordinal(prefix: &str, name: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?.strip_prefix('-')?;
    let padded = digits.len() > 1 && digits.starts_with('0');
    if padded || digits.len() > ORDINAL_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    digits.parse().ok()
}

/// The name of the disk that a VM gets from a disk template. It has the whole VM name in it, since
/// two pools of one config would otherwise fight over one disk.
pub fn disk_name(vm_name: &str, template: &str) -> String {
    format!("{vm_name}-{template}")
}

/// Whether two VMs could get the same disk name because of this template's name. `a-1` with `2-x` and
/// `a-1-2` with `x` both make `a-1-2-x`; as long as only the last part of a template's name is a
/// number, a disk's name can be taken apart in one way only. It is worth a warning and no more: a
/// disk that exists already is never taken, its ordinal is skipped.
pub fn is_ambiguous_template(template: &str) -> bool {
    let parts: Vec<&str> = template.split('-').collect();
    parts[..parts.len() - 1]
        .iter()
        .any(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a disk of the pool with prefix `outer` from its template could be called like one that a pool with
/// prefix `inner` has from some template: `a-1` with `2-root`, and `a-1` is the other pool's prefix.
pub fn is_ambiguous_with(outer: &str, template: &str, inner: &str) -> bool {
    let is_number = |part: &str| parse_ordinal("x", &format!("x-{part}")).is_some();
    let Some(rest) = inner
        .strip_prefix(outer)
        .and_then(|rest| rest.strip_prefix('-'))
    else {
        return false;
    };
    let (ordinal, below) = rest.split_once('-').unwrap_or((rest, ""));
    let template = match below {
        "" => Some(template),
        below => template
            .strip_prefix(below)
            .and_then(|rest| rest.strip_prefix('-')),
    };
    let number = template.and_then(|template| template.split_once('-'));
    is_number(ordinal) && number.is_some_and(|(number, _)| is_number(number))
}

/// Longest disk template name for VMs of this prefix.
pub fn template_budget(prefix: &str) -> usize {
    LABEL_BUDGET.saturating_sub(prefix.len() + 1 + ORDINAL_DIGITS + 1)
}

/// Checks the prefix of a pool's VM names (which is the pool's name where none is given).
pub fn check_prefix(prefix: &str) -> Result<(), NameRefusal> {
    let what = "the VM name prefix";
    check_length(what, prefix, PREFIX_BUDGET, || {
        format!(
            "\"-\" and {ORDINAL_DIGITS} digits follow it and a VM's name, being a label value and a \
             host name, has at most {LABEL_BUDGET}"
        )
    })?;
    if is_dns_label(prefix) {
        return Ok(());
    }
    Err(NameRefusal::NotDns {
        what,
        name: prefix.to_owned(),
        form: "a DNS label",
        extra: "\"-\"",
        since: "the names of its VMs are host names".to_owned(),
    })
}

/// Checks that an ordinal has no more digits than are reserved for it.
pub fn check_ordinal(ordinal: u32) -> Result<(), NameRefusal> {
    if ordinal > MAX_ORDINAL {
        return Err(NameRefusal::OrdinalTooHigh { ordinal });
    }
    Ok(())
}

/// Checks a pool's name, which is a label value on each VM.
pub fn check_pool_name(name: &str) -> Result<(), NameRefusal> {
    check_length("the pool's name", name, LABEL_BUDGET, || {
        "it is a label value on each of its VMs".to_owned()
    })
}

/// Checks a config's name, which is followed by a hash in the names of its revisions.
pub fn check_config_name(name: &str) -> Result<(), NameRefusal> {
    check_length("the config's name", name, CONFIG_BUDGET, || {
        format!(
            "\"-\" and a hash of {HASH_LENGTH} follow it in the names of its revisions, which are \
             label values with at most {LABEL_BUDGET}"
        )
    })
}

/// Checks a disk template's name against what the shortest prefix would leave for it: the bound that
/// a config shows by itself.
pub fn check_template_name(template: &str) -> Result<(), NameRefusal> {
    let what = "the disk template's name";
    check_length(what, template, TEMPLATE_BUDGET, || {
        format!("a VM's name precedes it in the name of its disk, which has at most {LABEL_BUDGET}")
    })?;
    if template.split('.').all(is_dns_label) {
        return Ok(());
    }
    Err(NameRefusal::NotDns {
        what,
        name: template.to_owned(),
        form: "a DNS subdomain",
        extra: "\"-\" or \".\"",
        since: "it is part of the name of a DataVolume".to_owned(),
    })
}

/// Checks that a disk template's name leaves room for the names of a pool's VMs.
pub fn check_disk_names(prefix: &str, template: &str) -> Result<(), NameRefusal> {
    let budget = template_budget(prefix);
    check_length("the disk template's name", template, budget, || {
        format!(
            "disks are called \"{prefix}-<up to {ORDINAL_DIGITS} digits>-{template}\", with at most \
             {LABEL_BUDGET}"
        )
    })
}

fn check_length(
    what: &'static str,
    name: &str,
    budget: usize,
    since: impl FnOnce() -> String,
) -> Result<(), NameRefusal> {
    if name.is_empty() {
        return Err(NameRefusal::Empty { what });
    }
    let length = name.chars().count();
    if length > budget {
        let since = since();
        return Err(NameRefusal::TooLong {
            what,
            name: name.to_owned(),
            length,
            budget,
            since,
        });
    }
    Ok(())
}

/// RFC 1123, as Kubernetes checks it, without the length (the budgets are tighter).
fn is_dns_label(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if plain(*first) && plain(*last))
        && bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_that_we_make_are_read_back() {
        for (prefix, name, ordinal) in [
            ("web", "web-0", Some(0)),
            ("web", "web-7", Some(7)),
            ("web", "web-100000", Some(100_000)),
            ("web", "web-999999", Some(MAX_ORDINAL)),
            ("web", "web-1000000", None),
            ("web", "web-007", None),
            ("web", "web-00", None),
            ("web", "web-+7", None),
            ("web", "web--7", None),
            ("web", "web-", None),
            ("web", "web7", None),
            ("web", "web-7a", None),
            ("web", "web-٣", None),
            ("web", "web-1-1", None),
            ("web", "webs-1", None),
            ("web-1", "web-1-1", Some(1)),
        ] {
            assert_eq!(parse_ordinal(prefix, name), ordinal, "{prefix} {name}");
            if let Some(ordinal) = ordinal {
                assert_eq!(vm_name(prefix, ordinal), name);
            }
        }
    }

    #[test]
    fn nested_prefixes_are_ambiguous_where_a_template_fills_the_gap() {
        for (outer, template, inner, is) in [
            ("a", "2-x", "a-1", true),
            ("a", "b-2-x", "a-1-b", true),
            ("a", "2-x", "a-1-b", false),
            ("a", "x", "a-1", false),
            ("a", "2", "a-1", false),
            ("a", "02-x", "a-1", false),
            ("a", "2-x", "a-b", false),
            ("a", "2-x", "ab-1", false),
            ("a", "2-x", "b", false),
            ("a", "2-x", "a", false),
        ] {
            assert_eq!(
                is_ambiguous_with(outer, template, inner),
                is,
                "{outer} {template} {inner}"
            );
            if is {
                // There are numbers for which the names are the same.
                let rest = inner
                    .strip_prefix(outer)
                    .unwrap()
                    .strip_prefix('-')
                    .unwrap();
                let ordinal = rest.split('-').next().unwrap().parse().unwrap();
                let ours = disk_name(&vm_name(outer, ordinal), template);
                assert_eq!(ours, disk_name(&vm_name(inner, 2), "x"));
            }
        }
    }

    #[test]
    fn nr_07_names_that_fit_until_a_digit_is_added_are_refused_with_the_budget() {
        let message = check_prefix(&"p".repeat(61)).unwrap_err().to_string();
        assert!(
            message.contains("has 61 characters; at most 56, since"),
            "{message}"
        );
        check_prefix(&"p".repeat(56)).unwrap();
        check_prefix(&"p".repeat(57)).unwrap_err();
        assert_eq!(vm_name(&"p".repeat(56), MAX_ORDINAL).len(), LABEL_BUDGET);

        check_pool_name(&"p".repeat(63)).unwrap();
        check_pool_name(&"p".repeat(64)).unwrap_err();

        let message = check_config_name(&"c".repeat(63)).unwrap_err().to_string();
        assert!(
            message.contains("has 63 characters; at most 52, since"),
            "{message}"
        );
        check_config_name(&"c".repeat(52)).unwrap();

        check_ordinal(MAX_ORDINAL).unwrap();
        let message = check_ordinal(1_000_000).unwrap_err().to_string();
        assert!(
            message.contains("at most 999999, since 6 digits"),
            "{message}"
        );
    }

    #[test]
    fn nr_07_a_dot_in_the_prefix_is_refused() {
        for prefix in ["db.prod", "Web", "-web", "web-", "we_b", "wéb"] {
            let message = check_prefix(prefix).unwrap_err().to_string();
            assert!(message.contains("must be a DNS label"), "{message}");
        }
        assert_eq!(
            check_prefix("").unwrap_err().to_string(),
            "the VM name prefix must not be empty"
        );
        check_prefix("0-web").unwrap();
    }

    #[test]
    fn nr_07_disk_names_fit_with_the_longest_ordinal() {
        let prefix = "p".repeat(40);
        let fits = "d".repeat(template_budget(&prefix));
        check_disk_names(&prefix, &fits).unwrap();
        assert_eq!(
            disk_name(&vm_name(&prefix, MAX_ORDINAL), &fits).len(),
            LABEL_BUDGET
        );
        let message = check_disk_names(&prefix, &format!("{fits}d"))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("has 16 characters; at most 15, since"),
            "{message}"
        );
        // A prefix that leaves nothing at all.
        check_disk_names(&"p".repeat(56), "d").unwrap_err();

        check_template_name("root.v2").unwrap();
        check_template_name(&"d".repeat(TEMPLATE_BUDGET)).unwrap();
        for template in [
            "",
            "Root",
            "root-",
            "a..b",
            &"d".repeat(TEMPLATE_BUDGET + 1),
        ] {
            check_template_name(template).unwrap_err();
        }
    }

    #[test]
    fn only_numbers_inside_a_template_name_make_disk_names_ambiguous() {
        assert_eq!(
            disk_name(&vm_name("a", 1), "2-x"),
            disk_name(&vm_name("a-1", 2), "x"),
            "this is the case that the warning is for"
        );
        for (template, ambiguous) in [
            ("root", false),
            ("disk-1", false),
            ("1", false),
            ("fedora40-root", false),
            ("2-x", true),
            ("b-2-x", true),
            ("", false),
            ("a--b", false),
        ] {
            assert_eq!(is_ambiguous_template(template), ambiguous, "{template}");
        }
    }
}
