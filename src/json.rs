//! JSON of other people's objects, read with a bound on its depth. What lies deeper is left out and the rest
//! read, where serde_json gives up on the whole text: one VM that is nested 200 deep would else make a list of
//! a thousand unreadable, for ever. The API server itself accepts JSON to a depth of 10000.
//!
//! `managedFields` are left out too: nobody here reads them, they are as deep as the object that they are of,
//! and often as large.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::Deref;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, DynamicResourceScope, TypeMeta};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most levels of an object that is admitted, the object itself being the first. A VirtualMachine of KubeVirt's
/// own schema has some 20.
pub const MAX_DEPTH: usize = 100;

/// Levels of an object that are read. serde_json gives up at 128, with what is around the object (a list, a
/// watch event) counted; and a config's spec lies one level deeper in its revision.
const READ_DEPTH: usize = 110;

/// An object as JSON down to [`MAX_DEPTH`], and whether something in it was deeper (and is null).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Bounded {
    /// What was read.
    pub value: Value,
    /// Whether something was left out for its depth.
    #[serde(skip)]
    pub is_cut: bool,
}

/// An object of any kind.
#[derive(Clone, Debug)]
pub struct Object {
    /// What was read of it.
    pub object: DynamicObject,
    /// Whether something was left out for its depth, which is far more than is admitted.
    pub is_cut: bool,
}

/// The metadata and the phase of an object of any kind. The rest is skipped and costs nothing.
#[derive(Clone, Debug)]
pub struct Head {
    /// Without managedFields.
    pub metadata: ObjectMeta,
    /// `status.phase`, empty if there is none.
    pub phase: String,
}

impl Deref for Bounded {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

impl From<DynamicObject> for Object {
    fn from(object: DynamicObject) -> Self {
        let is_cut = false;
        Self { object, is_cut }
    }
}

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (value, is_cut) = read(deserializer, Place::Object, MAX_DEPTH)?;
        Ok(Self { value, is_cut })
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (value, is_cut) = read(deserializer, Place::Object, READ_DEPTH)?;
        let Value::Object(mut data) = value else {
            return Err(D::Error::custom("an object is a JSON object"));
        };
        let metadata = metadata(data.remove("metadata"));
        let mut word = |key| match data.remove(key) {
            Some(Value::String(word)) => Some(word),
            _ => None,
        };
        // Items of a list of a built-in kind have neither.
        let types = match (word("apiVersion"), word("kind")) {
            (Some(api_version), Some(kind)) => Some(TypeMeta { api_version, kind }),
            _ => None,
        };
        let object = DynamicObject {
            types,
            metadata,
            data: Value::Object(data),
        };
        Ok(Self { object, is_cut })
    }
}

impl<'de> Deserialize<'de> for Head {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        struct Meta(#[serde(deserialize_with = "read_metadata")] Value);

        #[derive(Default, Deserialize)]
        struct Status(#[serde(deserialize_with = "read_inside")] Value);

        #[derive(Deserialize)]
        struct Outer {
            metadata: Option<Meta>,
            status: Option<Status>,
        }
        let outer = Outer::deserialize(deserializer)?;
        let phase = outer.status.and_then(|Status(status)| {
            let phase = status.get("phase")?.as_str()?;
            Some(phase.to_owned())
        });
        Ok(Self {
            metadata: metadata(outer.metadata.map(|Meta(value)| value)),
            phase: phase.unwrap_or_default(),
        })
    }
}

/// Bytes of `value` as the API server stores it: compact JSON in which Go escapes `<`, `>` and `&`.
pub fn stored_size(value: &impl Serialize) -> usize {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let escaped = bytes.iter().filter(|byte| b"<>&".contains(byte)).count();
            self.0 += bytes.len() + escaped * ("\\u003c".len() - 1);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value)
        .expect("JSON values can be written, and counting can't fail");
    count.0
}

fn read_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Ok(read(deserializer, Place::Metadata, READ_DEPTH)?.0)
}

fn read_inside<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Ok(read(deserializer, Place::Inside, READ_DEPTH)?.0)
}

/// What is there, and whether it was cut.
fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
    place: Place,
    levels: usize,
) -> Result<(Value, bool), D::Error> {
    let is_cut = Cell::new(false);
    let part = Part {
        place,
        levels,
        is_cut: &is_cut,
    };
    let value = part.deserialize(deserializer)?;
    Ok((value, is_cut.get()))
}

/// The API server writes metadata that fit this type. If ever one doesn't, what tells objects apart is saved.
fn metadata(value: Option<Value>) -> ObjectMeta {
    let value = value.unwrap_or_default();
    serde_json::from_value(value.clone()).unwrap_or_else(|_| {
        let word = |key| value.get(key)?.as_str().map(str::to_owned);
        ObjectMeta {
            name: word("name"),
            namespace: word("namespace"),
            uid: word("uid"),
            resource_version: word("resourceVersion"),
            ..ObjectMeta::default()
        }
    })
}

/// Which part of an object is read.
#[derive(Clone, Copy)]
enum Place {
    Inside,
    Metadata,
    Object,
}

#[derive(Clone, Copy)]
struct Part<'c> {
    place: Place,
    /// How many levels are left, this one included.
    levels: usize,
    is_cut: &'c Cell<bool>,
}

impl Part<'_> {
    fn below(self, place: Place) -> Self {
        Self {
            place,
            levels: self.levels - 1,
            is_cut: self.is_cut,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        if self.levels == 0 {
            self.is_cut.set(true);
            // serde_json skips without recursion.
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self.below(Place::Inside))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        if self.levels == 0 {
            self.is_cut.set(true);
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = match (self.place, key.as_str()) {
                (Place::Metadata, "managedFields") => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Place::Object, "metadata") => Place::Metadata,
                (Place::Inside | Place::Metadata | Place::Object, _) => Place::Inside,
            };
            object.insert(key, map.next_value_seed(self.below(place))?);
        }
        Ok(Value::Object(object))
    }
}

macro_rules! resource {
    ($type:ty, $object:ident => $meta:expr, $meta_mut:expr) => {
        impl kube::Resource for $type {
            type DynamicType = ApiResource;
            type Scope = DynamicResourceScope;

            fn kind(of: &ApiResource) -> Cow<'_, str> {
                of.kind.as_str().into()
            }

            fn group(of: &ApiResource) -> Cow<'_, str> {
                of.group.as_str().into()
            }

            fn version(of: &ApiResource) -> Cow<'_, str> {
                of.version.as_str().into()
            }

            fn api_version(of: &ApiResource) -> Cow<'_, str> {
                of.api_version.as_str().into()
            }

            fn plural(of: &ApiResource) -> Cow<'_, str> {
                of.plural.as_str().into()
            }

            fn meta(&self) -> &ObjectMeta {
                let $object = self;
                $meta
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                let $object = self;
                $meta_mut
            }
        }
    };
}

resource!(Object, object => &object.object.metadata, &mut object.object.metadata);
resource!(Head, head => &head.metadata, &mut head.metadata);

#[cfg(test)]
mod tests;
