//! Builders of the objects that tests apply. What a test is about stands in the test.

use serde_json::{Value, json};

/// A config of halted VMs without disks: nothing but objects.
pub(crate) fn config(name: &str) -> Builder {
    Builder(json!({
        "apiVersion": "vmpool.dev/v1alpha1",
        "kind": "VirtualMachineConfig",
        "metadata": {"name": name},
        "spec": {
            "runStrategy": "Halted",
            "template": {"spec": {"domain": {"devices": {}}, "volumes": []}},
        },
    }))
}

/// A pool of this config, without replicas.
pub(crate) fn pool(name: &str, config: &str) -> Builder {
    Builder(json!({
        "apiVersion": "vmpool.dev/v1alpha1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": name},
        "spec": {"config": {"name": config}},
    }))
}

/// A halted VM of nobody's.
pub(crate) fn vm(name: &str) -> Builder {
    Builder(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {
            "runStrategy": "Halted",
            "template": {"spec": {"domain": {"devices": {}}}},
        },
    }))
}

/// An object that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Builder(Value);

impl Builder {
    /// How many VMs.
    pub(crate) fn replicas(self, replicas: u32) -> Self {
        self.with("/spec/replicas", replicas)
    }

    /// The VMs run.
    pub(crate) fn running(self) -> Self {
        self.with("/spec/runStrategy", "Always")
    }

    /// A disk of each VM's own, made from a template, with its volume and device.
    pub(crate) fn disk(self, name: &str) -> Self {
        self.push(
            "/spec/dataVolumeTemplates",
            json!({
                "metadata": {"name": name},
                "spec": {
                    "storage": {"resources": {"requests": {"storage": "1Gi"}}},
                    "source": {"blank": {}},
                },
            }),
        )
        .volume(name, json!({"dataVolume": {"name": name}}))
    }

    /// A volume from this source, with its disk device.
    pub(crate) fn volume(self, name: &str, source: Value) -> Self {
        let mut volume = source;
        volume["name"] = name.into();
        self.push("/spec/template/spec/volumes", volume).push(
            "/spec/template/spec/domain/devices/disks",
            json!({"name": name, "disk": {"bus": "virtio"}}),
        )
    }

    /// Sets the value at a JSON pointer, making the objects on the way; a number in it is a key.
    pub(crate) fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        *self.at(pointer) = value.into();
        self
    }

    /// Appends to the list at a JSON pointer.
    pub(crate) fn push(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let at = self.at(pointer);
        if at.is_null() {
            *at = json!([]);
        }
        at.as_array_mut()
            .expect("a list is pushed to")
            .push(value.into());
        self
    }

    /// Takes a member of an object out.
    pub(crate) fn without(mut self, pointer: &str) -> Self {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer has a slash");
        let parent = self.at(parent).as_object_mut();
        parent.expect("the parent is an object").remove(key);
        self
    }

    /// Sets a label.
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.at("/metadata/labels")[key] = value.into();
        self
    }

    /// Sets an annotation.
    pub(crate) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.at("/metadata/annotations")[key] = value.into();
        self
    }

    /// The object.
    pub(crate) fn value(&self) -> &Value {
        &self.0
    }

    fn at(&mut self, pointer: &str) -> &mut Value {
        let steps = pointer.split('/').skip(1);
        steps.fold(&mut self.0, |value, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            &mut value[step]
        })
    }
}

/// JSON, which is YAML too.
impl std::fmt::Display for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Several objects in one manifest.
pub(crate) fn all(objects: &[Builder]) -> String {
    let documents = objects.iter().map(ToString::to_string);
    documents.collect::<Vec<_>>().join("\n---\n")
}
