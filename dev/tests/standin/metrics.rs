//! The real autoscaler follows a metric that a test sets.

use dev::external_metrics::ExternalMetrics;
use dev::standin::Options;
use serde_json::{Value, json};

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_real_autoscaler_follows_an_external_metric() {
    let world = World::start(Options::default()).await;
    world.namespace("a").await;
    let metrics = ExternalMetrics::start(world.plane.admin()).await.unwrap();
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/a/queue";
    let unset = world.plane.kubectl().run(&["get", "--raw", path]).unwrap();
    assert!(unset.stderr.contains("NotFound"), "{}", unset.stderr);
    metrics.set("a", "queue", 35);
    let list: Value = serde_json::from_str(&world.kubectl(&["get", "--raw", path])).unwrap();
    assert_eq!(list["items"][0]["value"], "35");

    // Nothing needs to run: of an external metric only the target's scale counts.
    world.apply(&json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"namespace": "a", "name": "workers"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "worker"}},
            "template": {
                "metadata": {"labels": {"app": "worker"}},
                "spec": {"containers": [{"name": "worker", "image": "worker"}]},
            },
        },
    }));
    world.apply(&json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "a", "name": "workers"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "workers"},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": "External", "external": {
                "metric": {"name": "queue"},
                "target": {"type": "AverageValue", "averageValue": "10"},
            }}],
        },
    }));
    let replicas = |count: u32| move |set: &Value| set["spec"]["replicas"] == count;
    world.until(("rs", "a", "workers"), replicas(4)).await;
    metrics.set("a", "queue", 5);
    world.until(("rs", "a", "workers"), replicas(1)).await;
}
