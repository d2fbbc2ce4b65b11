//! A cluster whose rules are taken away for a while, to store what newer rules refuse. Only for clusters of a
//! test's own.

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use vmpool::admission::hooks::{MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION};

const POOLS: &str = "virtualmachinepools.vmpool.dev";

/// The rules as they were, to be put back.
pub(crate) struct Rules {
    client: Client,
    mutating: MutatingWebhookConfiguration,
    validating: ValidatingWebhookConfiguration,
    pools: CustomResourceDefinition,
}

impl Rules {
    /// Takes our webhooks away, and all that the schema says of a pool's spec. It shows in a moment, not at
    /// once.
    pub(crate) async fn relax(client: &Client) -> Result<Self> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let mut saved = Self {
            client: client.clone(),
            mutating: mutating.get(MUTATING_CONFIGURATION).await?,
            validating: validating.get(VALIDATING_CONFIGURATION).await?,
            pools: crds.get(POOLS).await?,
        };
        saved.mutating.metadata = as_new(&saved.mutating.metadata);
        saved.validating.metadata = as_new(&saved.validating.metadata);
        let params = DeleteParams::default();
        mutating.delete(MUTATING_CONFIGURATION, &params).await?;
        validating.delete(VALIDATING_CONFIGURATION, &params).await?;
        let mut lax = serde_json::to_value(&saved.pools)?;
        let schema = lax.pointer_mut("/spec/versions/0/schema/openAPIV3Schema");
        open(schema.context("no schema")?);
        crds.replace(POOLS, &PostParams::default(), &serde_json::from_value(lax)?)
            .await?;
        Ok(saved)
    }

    /// Puts them back.
    pub(crate) async fn restore(self) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let params = PostParams::default();
        let mut pools = crds.get(POOLS).await?;
        pools.spec = self.pools.spec;
        crds.replace(POOLS, &params, &pools).await?;
        Api::all(self.client.clone())
            .create(&params, &self.mutating)
            .await?;
        Api::all(self.client)
            .create(&params, &self.validating)
            .await?;
        Ok(())
    }
}

fn open(schema: &mut Value) {
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("x-kubernetes-validations");
    }
    schema["properties"]["spec"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
}

/// Without what the API server writes.
fn as_new(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        ..ObjectMeta::default()
    }
}
