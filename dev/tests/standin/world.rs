//! A control plane with the stand-in on it, and what the tests say to it with kubectl.

use std::time::{Duration, Instant};

use dev::controlplane::{ControlPlane, Options as PlaneOptions};
use dev::standin::{Options, Standin};
use serde_json::{Value, json};

pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) standin: Standin,
}

impl World {
    pub(crate) async fn start(options: Options) -> Self {
        let plane = ControlPlane::start(PlaneOptions {
            // Its garbage collector looks for new kinds only every 30 s: until then it knows
            // neither owners nor those that they own.
            without_controller_manager: true,
            ..PlaneOptions::default()
        })
        .await
        .unwrap();
        dev::crds::install(&plane.admin()).await.unwrap();
        plane.start_controller_manager().await.unwrap();
        let standin = Standin::start(plane.admin(), options).await.unwrap();
        standin.ready().await;
        standin.served().await.unwrap();
        Self { plane, standin }
    }

    pub(crate) async fn namespace(&self, name: &str) {
        self.kubectl(&["create", "namespace", name]);
        self.plane.wait_default_service_account(name).await.unwrap();
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl().run_ok(args).unwrap()
    }

    pub(crate) fn apply(&self, object: &Value) {
        self.plane.kubectl().apply(&object.to_string()).unwrap();
    }

    /// An object, or null.
    pub(crate) fn get(&self, kind: &str, namespace: &str, name: &str) -> Value {
        let args = ["get", kind, "-n", namespace, name, "-o", "json"];
        let output = self.plane.kubectl().run(&args).unwrap();
        serde_json::from_str(&output.stdout).unwrap_or(Value::Null)
    }

    pub(crate) fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let text = self.kubectl(&["get", kind, "-n", namespace, "-o", "json"]);
        let mut list: Value = serde_json::from_str(&text).unwrap();
        match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    /// Waits until an object is as wanted; answers it.
    pub(crate) async fn until(
        &self,
        (kind, namespace, name): (&str, &str, &str),
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.get(kind, namespace, name);
            if wanted(&object) {
                return object;
            }
            assert!(
                Instant::now() < deadline,
                "{kind} {namespace}/{name} is not as wanted:\n{}",
                serde_json::to_string_pretty(&object["status"]).unwrap()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn until_shows(&self, namespace: &str, vm: &str, status: &str) -> Value {
        self.until(("vm", namespace, vm), |vm| {
            vm["status"]["printableStatus"] == status
        })
        .await
    }

    pub(crate) async fn until_ready(&self, namespace: &str, vm: &str) -> Value {
        self.until(("vm", namespace, vm), |vm| vm["status"]["ready"] == true)
            .await
    }

    pub(crate) async fn until_gone(&self, kind: &str, namespace: &str, name: &str) {
        self.until((kind, namespace, name), Value::is_null).await;
    }
}

pub(crate) fn vm(namespace: &str, name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "domain": {"devices": {}, "memory": {"guest": "128Mi"}},
                    "terminationGracePeriodSeconds": 0,
                },
            },
        },
    })
}

pub(crate) fn disk(vm: &mut Value, name: &str) {
    vm["spec"]["dataVolumeTemplates"] = json!([{
        "metadata": {"name": name},
        "spec": {"source": {"blank": {}},
                 "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
    }]);
    vm["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "root", "dataVolume": {"name": name}}]);
}

pub(crate) fn ready_reason(vm: &Value) -> Option<&str> {
    vm["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == "Ready")?["reason"]
        .as_str()
}

pub(crate) fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    object["status"]["conditions"]
        .as_array()
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|c| c["type"] == kind && c["status"] == status)
        })
}
