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
    /// The prefix is so long that no disk template has a name.
    #[error(
        "the VM name prefix {prefix:?} has {length} characters and leaves none for the disk template {template:?}, \
         since disks are called \"{prefix}-<up to {ORDINAL_DIGITS} digits>-{template}\", with at most {LABEL_BUDGET}: \
         at most {budget} leave room for this one"
    )]
    NoRoomForDisks {
        /// The prefix.
        prefix: String,
        /// Its length.
        length: usize,
        /// The template.
        template: String,
        /// The longest prefix that this template can go with.
        budget: usize,
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
    if budget == 0 && !template.is_empty() {
        return Err(NameRefusal::NoRoomForDisks {
            prefix: prefix.to_owned(),
            length: prefix.chars().count(),
            template: template.to_owned(),
            // As much as the template would have with a prefix of its own length.
            budget: template_budget(template),
        });
    }
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
mod tests;
