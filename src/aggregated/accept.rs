//! In which form an answer is wanted. There is one, JSON, and for a pool a table of it, which is what kubectl
//! prints; discovery has a form of its own. Who also takes anything gets JSON: controllers ask for protobuf
//! *or anything*.

use axum::http::{HeaderMap, header};

/// The media types of an `Accept` header, in the client's order; weights are not read, as clients of
/// Kubernetes give none.
pub(super) struct Accept {
    ranges: Vec<Range>,
}

/// One media type with its parameters.
struct Range {
    media_type: String,
    parameters: Vec<(String, String)>,
}

/// A form of answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// The groups as one aggregated document.
    Discovery,
    /// The object.
    Json,
    /// A table of it.
    Table,
}

impl Accept {
    /// Reads the headers of a request. None at all takes anything.
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT).iter();
        let ranges: Vec<Range> = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(Range::read)
            .collect();
        Self { ranges }
    }

    /// The first wanted form among those `offered`; `None` if it is none of them.
    pub(super) fn choose(&self, offered: &[Form]) -> Option<Form> {
        if self.ranges.is_empty() {
            return offered.contains(&Form::Json).then_some(Form::Json);
        }
        let mut wanted = self.ranges.iter().filter_map(Range::form);
        wanted.find(|form| offered.contains(form))
    }
}

impl Range {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next()?.to_ascii_lowercase();
        let parameters = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
            .collect();
        (!media_type.is_empty()).then_some(Self {
            media_type,
            parameters,
        })
    }

    fn parameter(&self, key: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    fn form(&self) -> Option<Form> {
        if !["application/json", "application/*", "*/*"].contains(&self.media_type.as_str()) {
            return None;
        }
        let named = |key| self.parameter(key).unwrap_or_default();
        match self.parameter("as") {
            None => Some(Form::Json),
            Some("Table") => {
                let is_ours = named("g") == "meta.k8s.io" && named("v") == "v1";
                is_ours.then_some(Form::Table)
            }
            Some("APIGroupDiscoveryList") => {
                let is_ours = named("g") == "apidiscovery.k8s.io" && named("v") == "v2";
                is_ours.then_some(Form::Discovery)
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Form::{Discovery, Json, Table};

    fn chosen(accept: &[&str], offered: &[Form]) -> Option<Form> {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(header::ACCEPT, value.parse().unwrap());
        }
        Accept::read(&headers).choose(offered)
    }

    #[test]
    fn who_takes_anything_gets_json() {
        for accept in [
            &[][..],
            &["*/*"],
            &["application/json"],
            &["application/json; charset=utf-8"],
            &["application/vnd.kubernetes.protobuf, */*"],
            &["application/vnd.kubernetes.protobuf", "application/json"],
            &["application/yaml;q=0.9, Application/JSON"],
            &["application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"],
        ] {
            assert_eq!(chosen(accept, &[Json, Table]), Some(Json), "{accept:?}");
        }
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/yaml",
            "text/html",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            ";",
        ] {
            let wanted = (accept == ";").then_some(Json);
            assert_eq!(chosen(&[accept], &[Json, Table]), wanted, "{accept}");
        }
    }

    #[test]
    fn a_form_is_given_where_there_is_one() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(chosen(&[table], &[Json, Table]), Some(Table));
        assert_eq!(chosen(&[table], &[Json]), Some(Json));
        let discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let older = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        assert_eq!(chosen(&[discovery], &[Json, Discovery]), Some(Discovery));
        assert_eq!(chosen(&[older], &[Json, Discovery]), None);
        let both = format!("{older},{discovery},application/json");
        assert_eq!(chosen(&[&both], &[Json, Discovery]), Some(Discovery));
    }
}
