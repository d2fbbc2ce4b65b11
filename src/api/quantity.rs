//! Numbers that may be a percentage of the replicas.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The share of `replicas` that `value` means, rounded down; `None` if it is neither a number ≥ 0 nor `0%` to
/// `100%`. The schema's rules refuse those, so `None` only shows for objects stored under older rules.
pub fn share_of(value: &IntOrString, replicas: u32) -> Option<u32> {
    match value {
        IntOrString::Int(n) => u32::try_from(*n).ok(),
        IntOrString::String(text) => {
            let percent: u32 = text
                .strip_suffix('%')
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?
                .parse()
                .ok()
                .filter(|percent| *percent <= 100)?;
            let share = u64::from(replicas) * u64::from(percent) / 100;
            Some(u32::try_from(share).expect("at most 100% of a u32"))
        }
    }
}

/// How many members may be unavailable: `value` of `replicas`, rounded down, and at least 1.
pub fn max_unavailable(value: Option<&IntOrString>, replicas: u32) -> u32 {
    let default = IntOrString::String(DEFAULT_MAX_UNAVAILABLE.to_owned());
    share_of(value.unwrap_or(&default), replicas)
        .unwrap_or(1)
        .max(1)
}

/// `maxUnavailable` where none is given.
pub const DEFAULT_MAX_UNAVAILABLE: &str = "25%";
