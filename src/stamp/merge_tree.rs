//! The three-way merge of any two values onto a third: what lies between `base` and `target` is done to
//! `live`, and nothing else. Knows nothing of VMs but which lists are lists of named things ([`lists`]).
//!
//! - What is the same in base and target is as it is in live, taken out by somebody or not.
//! - What the target changes or adds is as the target has it, whatever somebody else did to it.
//! - What the target no longer mentions goes; what somebody else has put in its place, or beside it, stays.
//! - Named things are merged one by one. One that somebody took out stays out; the order is the target's,
//!   unless somebody has changed the order, and things of others stay behind what they stand behind. Below a
//!   named thing an object that the target drops goes whole, since such objects exclude one another (a disk is
//!   a `disk` or a `cdrom`).
//! - A list of plain values is one value. In a list of objects without names (tolerations) that others have
//!   added to, what the target drops is taken out and what it brings is put behind.

use serde_json::{Map, Value};

use super::lists;

/// One value of three sides, each of which may not have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides<'a> {
    /// What it was made from.
    pub(super) base: Option<&'a Value>,
    /// What it is to be made from now.
    pub(super) target: Option<&'a Value>,
    /// What it is.
    pub(super) live: Option<&'a Value>,
}

impl<'a> Sides<'a> {
    /// The member of that name of all three.
    pub(super) fn get(self, key: &str) -> Self {
        let of = |side: Option<&'a Value>| side.and_then(|value| value.get(key));
        Self {
            base: of(self.base),
            target: of(self.target),
            live: of(self.live),
        }
    }

    fn lists(self) -> [&'a [Value]; 3] {
        [self.base, self.target, self.live].map(|side| {
            side.and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice)
        })
    }
}

/// What somebody who knows better says of a value.
pub(super) enum Decision {
    /// It is to be this, or not to be there.
    Is(Option<Value>),
    /// It is merged like others.
    Merge,
}

/// A merge, with the paths that somebody knows better how to merge.
pub(super) trait Merge {
    /// What becomes of the value at `path`, if it is one that is not merged like others.
    fn decide(&self, _: Sides<'_>, _: &str) -> Decision {
        Decision::Merge
    }

    /// What becomes of the value at `path`.
    fn merged(&self, sides: Sides<'_>, path: &str) -> Option<Value> {
        if let Decision::Is(decided) = self.decide(sides, path) {
            return decided;
        }
        if is_same_or_absent(sides.base, sides.target) {
            return sides.live.cloned();
        }
        let Some(live) = sides.live else {
            return self.added(sides, path);
        };
        match (sides.base, sides.target) {
            (Some(base), None) => self.dropped(base, live, sides, path),
            (_, Some(Value::Object(target))) if live.is_object() => {
                Some(Value::Object(self.object(sides, target, path)))
            }
            (_, Some(Value::Array(_))) if live.is_array() => Some(self.list(sides, path)),
            (_, target) => target.cloned(),
        }
    }

    /// Added by the target, or changed by it after somebody took it out. Of metadata only what is changed comes
    /// back: an entry says something without the others.
    fn added(&self, sides: Sides<'_>, path: &str) -> Option<Value> {
        let target = sides.target?;
        match (sides.base, target) {
            (Some(Value::Object(_)), Value::Object(target)) if path.contains("metadata") => {
                let changed = self.object(sides, target, path);
                (!changed.is_empty()).then_some(Value::Object(changed))
            }
            _ => Some(target.clone()),
        }
    }

    /// The target says nothing of it any more.
    fn dropped(&self, base: &Value, live: &Value, sides: Sides<'_>, path: &str) -> Option<Value> {
        let is_element = path.contains("[]");
        match (base, live) {
            (Value::Object(_), Value::Object(_)) if is_element => None,
            (Value::Object(_), Value::Object(_)) => {
                let rest = self.object(sides, &Map::new(), path);
                (!rest.is_empty()).then_some(Value::Object(rest))
            }
            (Value::Array(_), Value::Array(_)) => {
                let rest = self.list(sides, path);
                rest.as_array()
                    .is_some_and(|rest| !rest.is_empty())
                    .then_some(rest)
            }
            _ if is_same(base, live) => None,
            _ => Some(live.clone()),
        }
    }

    /// Members of an object, one by one.
    fn object(
        &self,
        sides: Sides<'_>,
        target: &Map<String, Value>,
        path: &str,
    ) -> Map<String, Value> {
        let live = sides.live.and_then(Value::as_object);
        let live_keys = live.into_iter().flat_map(Map::keys);
        let new = |key: &&String| live.is_none_or(|live| !live.contains_key(*key));
        live_keys
            .chain(target.keys().filter(new))
            .filter_map(|key| {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                Some((key.clone(), self.merged(sides.get(key), &path)?))
            })
            .collect()
    }

    /// A list that live has.
    fn list(&self, sides: Sides<'_>, path: &str) -> Value {
        let element_path = format!("{path}[]");
        let by_key = by_key(sides, path, |sides| {
            if let Decision::Is(decided) = self.decide(sides, &element_path) {
                return decided;
            }
            match (sides.base, sides.target, sides.live) {
                // Dropped by the target, or taken out by somebody.
                (Some(_), None, _) | (Some(_), Some(_), None) => None,
                _ => self.merged(sides, &element_path),
            }
        });
        Value::Array(by_key.unwrap_or_else(|| without_keys(sides)))
    }
}

/// The list that comes of merging each named thing with `merge`; `None` if the lists can't be taken as such.
/// Things that only live has are kept without asking.
pub(super) fn by_key(
    sides: Sides<'_>,
    path: &str,
    mut merge: impl FnMut(Sides<'_>) -> Option<Value>,
) -> Option<Vec<Value>> {
    let [base, target, live] = sides.lists();
    let (base_keys, target_keys) = (lists::keys(path, base)?, lists::keys(path, target)?);
    let live_keys = lists::keys(path, live)?;
    let mut elements = Vec::new();
    let new = target_keys.iter().filter(|key| !live_keys.contains(key));
    for key in live_keys.iter().chain(new) {
        let of = |keys: &[(usize, &str)], list: &'_ [Value]| {
            keys.iter()
                .position(|k| k == key)
                .map(|at| list[at].clone())
        };
        let (b, t, l) = (
            of(&base_keys, base),
            of(&target_keys, target),
            of(&live_keys, live),
        );
        let merged = if b.is_none() && t.is_none() {
            l
        } else {
            merge(Sides {
                base: b.as_ref(),
                target: t.as_ref(),
                live: l.as_ref(),
            })
        };
        if let Some(merged) = merged {
            elements.push((*key, merged));
        }
    }
    let order = order(&base_keys, &target_keys, &live_keys);
    elements.sort_by_key(|(key, _)| order.iter().position(|known| known == key));
    Some(elements.into_iter().map(|(_, element)| element).collect())
}

/// All keys of live and target in the order that they are to have.
fn order<K: Copy + PartialEq>(base: &[K], target: &[K], live: &[K]) -> Vec<K> {
    let common = |list: &[K], other: &[K]| -> Vec<K> {
        list.iter().copied().filter(|k| other.contains(k)).collect()
    };
    let (in_base, in_live) = (common(base, live), common(live, base));
    // Where nothing is known of the order that it had, what is there stays where it is.
    let is_untouched = in_base == in_live && (!in_base.is_empty() || live.is_empty());
    let (first, second) = if is_untouched {
        (target, live)
    } else {
        (live, target)
    };
    let mut order = first.to_vec();
    for (index, key) in second.iter().enumerate() {
        if order.contains(key) {
            continue;
        }
        let place_of = |key: &K| order.iter().position(|known| known == key);
        let before = index.checked_sub(1).and_then(|i| place_of(&second[i]));
        let after = second[index + 1..].iter().find_map(place_of);
        let place = match (before, after) {
            (Some(before), _) => before + 1,
            (None, Some(after)) => after,
            (None, None) => order.len(),
        };
        order.insert(place, *key);
    }
    order
}

/// A list whose elements have no names.
fn without_keys(sides: Sides<'_>) -> Vec<Value> {
    let [base, target, live] = sides.lists();
    let unchanged = base.len() == live.len() && base.iter().zip(live).all(|(b, l)| is_same(b, l));
    let plain = |value: &Value| !value.is_object();
    if unchanged || base.iter().chain(target).chain(live).any(plain) {
        return target.to_vec();
    }
    let mut rest = live.to_vec();
    let among = |list: &[Value], one: &Value| list.iter().any(|other| is_same(other, one));
    for gone in base.iter().filter(|one| !among(target, one)) {
        let exact = rest.iter().position(|one| is_same(one, gone));
        let place = exact.or_else(|| rest.iter().position(|one| covers(one, gone)));
        if let Some(place) = place {
            rest.remove(place);
        }
    }
    for new in target.iter().filter(|one| !among(base, one)) {
        if !rest.iter().any(|one| covers(one, new)) {
            rest.push(new.clone());
        }
    }
    rest
}

/// Whether both have the same, or none.
pub(super) fn is_same_or_absent(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => is_same(left, right),
        (None, None) => true,
        _ => false,
    }
}

/// Equal, the two ways to write a whole number included.
pub(super) fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| is_same(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, l)| right.get(key).is_some_and(|r| is_same(l, r)))
        }
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64() == right.as_f64()
        }
        _ => left == right,
    }
}

/// Whether `live` has all that `said` says, and maybe more.
pub(super) fn covers(live: &Value, said: &Value) -> bool {
    match (live, said) {
        (Value::Object(live), Value::Object(said)) => said
            .iter()
            .all(|(key, said)| live.get(key).is_some_and(|live| covers(live, said))),
        (Value::Array(live), Value::Array(said)) => {
            live.len() == said.len() && live.iter().zip(said).all(|(l, s)| covers(l, s))
        }
        _ => is_same(live, said),
    }
}

/// Without what is null: the API server drops it, so that it says nothing.
pub(super) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(object) => object
            .iter()
            .filter(|(_, member)| !member.is_null())
            .map(|(key, member)| (key.clone(), without_nulls(member)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        _ => value.clone(),
    }
}
