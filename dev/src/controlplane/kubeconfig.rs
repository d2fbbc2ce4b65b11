//! Writes kubeconfig files. JSON, which is YAML, so that kubectl and every client read them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::pki::{Pair, write_secret};

/// How a kubeconfig's user proves who it is.
pub(super) enum Credential<'a> {
    Certificate(&'a Pair),
    Token(&'a str),
}

/// Writes `<name>.kubeconfig`, and the certificate beside it where there is one.
pub(super) fn write(
    dir: &Path,
    name: &str,
    server: &str,
    namespace: &str,
    credential: &Credential<'_>,
) -> Result<PathBuf> {
    let user = match credential {
        Credential::Certificate(pair) => {
            let (cert, key) = pair.write(dir, &format!("user-{name}"))?;
            json!({"client-certificate": cert, "client-key": key})
        }
        Credential::Token(token) => json!({"token": token}),
    };
    let path = dir.join(format!("{name}.kubeconfig"));
    let config = document(&dir.join("ca.crt"), name, server, namespace, &user);
    let text = serde_json::to_string_pretty(&config).context("failed to write JSON")?;
    write_secret(&path, &text)?;
    Ok(path)
}

fn document(ca: &Path, name: &str, server: &str, namespace: &str, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "vmpool-dev",
            "cluster": {"server": server, "certificate-authority": ca},
        }],
        "users": [{"name": name, "user": user}],
        "contexts": [{
            "name": "vmpool-dev",
            "context": {"cluster": "vmpool-dev", "user": name, "namespace": namespace},
        }],
        "current-context": "vmpool-dev",
    })
}
