//! Who is calling the aggregated API, and whether they may. Case AG-01.

use anyhow::{Result, ensure};
use dev::controlplane::pki::Authority;
use serde_json::json;

use crate::curl::{Curl, pool_path, robot};
use crate::objects::{all, config, pool};
use crate::{Kind, Space, with_namespace};

/// With headers as the API server's front proxy would write them for an administrator.
fn forged(curl: Curl) -> Curl {
    curl.header("X-Remote-User: admin")
        .header("X-Remote-Group: system:masters")
        .header("X-Remote-Group: system:authenticated")
}

/// Roles of the namespace: `scaler` may scale, `detacher` may detach.
fn roles(ns: &Space<'_>) -> Result<()> {
    let group = "virtualmachinepools.subresources.vmpool.dev";
    ns.kubectl(&format!(
        "create role scaler --verb=get,update,patch --resource={group}/scale"
    ))?;
    ns.kubectl(&format!(
        "create role detacher --verb=create --resource={group}/detach"
    ))?;
    Ok(())
}

#[test]
fn ag_01_forged_headers_never_count_whatever_stands_beside_them() {
    with_namespace("ag-01", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        ns.settled("web", &["web-1"]).await?;
        roles(ns)?;
        let nobody = robot(ns, "nobody", None)?;
        let plane = ns.harness.plane();
        let own = Authority::new("vmpool-dev-front-proxy-ca")?;
        let program = || Curl::to_program(ns);
        let (clients, proxy) = (plane.authority(), plane.front_proxy());
        let name = "front-proxy-client";

        let rows = [
            ("no certificate", program(), 401),
            (
                "a certificate of a CA of their own",
                program().certificate(&own.client(name, None)?)?,
                401,
            ),
            (
                "a user's certificate, named like the front proxy",
                program().certificate(&clients.client(name, Some("system:masters-not"))?)?,
                403,
            ),
            (
                "a user's certificate",
                program().certificate(&clients.client("mallory", None)?)?,
                403,
            ),
            (
                "a certificate of the front proxy's CA with another name",
                program().certificate(&proxy.client("front-proxy-other", None)?)?,
                401,
            ),
            ("a token without rights", program().token(&nobody), 403),
            ("no token that anybody knows", program().token("junk"), 401),
            (
                "a token without rights, through the API server",
                Curl::to_api_server(ns).token(&nobody),
                403,
            ),
            (
                "nothing, through the API server",
                Curl::to_api_server(ns),
                403,
            ),
        ];
        let detach = json!({"virtualMachines": ["web-1"]});
        for (what, curl, code) in rows {
            let curl = forged(curl);
            for (method, rest, body) in [
                ("GET", "", None),
                ("GET", "/scale", None),
                ("POST", "/detach", Some(&detach)),
            ] {
                let answer = curl.send(method, &pool_path(ns, "web", rest), body)?;
                ensure!(answer.code == code, "{what}: {method} {rest}: {answer:?}");
                ensure!(answer.body["kind"] == "Status", "{what}: {answer:?}");
            }
        }
        let members = ns.settled("web", &["web-1"]).await?;
        ensure!(members.len() == 1);

        // The front proxy itself is believed, whole: the rows above fail for what is wrong with them.
        let real = program().certificate(&proxy.client(name, None)?)?;
        let answer = forged(real).get(&pool_path(ns, "web", "/scale"))?;
        ensure!(answer.code == 200, "{answer:?}");
        let real = program().certificate(&proxy.client(name, None)?)?;
        let answer = real
            .header("X-Remote-User: mallory")
            .get(&pool_path(ns, "web", "/scale"))?;
        answer.refused(403, "Forbidden")
    });
}

#[test]
fn ag_01_a_token_has_the_rights_of_its_user_and_no_more_either_way() {
    with_namespace("ag-01-token", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        ns.settled("web", &["web-1"]).await?;
        roles(ns)?;
        let scaler = robot(ns, "scaler", Some("scaler"))?;
        for curl in [Curl::to_program(ns), Curl::to_api_server(ns)] {
            let curl = curl.token(&scaler);
            ns.eventually("the role is seen", async || {
                let answer = curl.get(&pool_path(ns, "web", "/scale"))?;
                ensure!(answer.code == 200, "{answer:?}");
                ensure!(answer.body["kind"] == "Scale", "{answer:?}");
                Ok(())
            })
            .await?;
            curl.get(&pool_path(ns, "web", ""))?
                .refused(403, "Forbidden")?;
            let body = json!({"virtualMachines": ["web-1"]});
            let path = pool_path(ns, "web", "/detach");
            curl.send("POST", &path, Some(&body))?
                .refused(403, "Forbidden")?;
            // Another pool's name, and one that isn't there: rights come before what there is.
            let answer = curl.get(&pool_path(ns, "none", "/scale"))?;
            answer.refused(404, "NotFound")?;
        }
        ensure!(ns.names(Kind::Vm).await? == ["web-1"]);
        Ok(())
    });
}
