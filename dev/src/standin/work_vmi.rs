//! One turn of the VMI controller, virt-handler and kubelet.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api::{PatchType, code, message};
use super::cache::Mention;
use super::kinds::Kind;
use super::knobs::{GuestEnd, Knobs};
use super::object::{Key, Obj, controller_of, is_deleting, name, namespace, phase, uid};
use super::pod;
use super::queue::Work;
use super::shared::Shared;
use super::vm::{Disks, SyncError};
use super::vmi::{self, Ages, Next, Place, Step, View};
use super::vmi_status;
use super::volumes::{self, Mounted};
use super::work::MOST_STEPS;
use super::work_vm;
use super::writer::Writer;

/// The objects around a VMI.
struct Facts {
    vmi: Obj,
    vm: Option<Obj>,
    pods: Vec<Obj>,
    disks: Disks,
    missing: Vec<String>,
    node_lost: bool,
    knobs: Knobs,
    end: Option<GuestEnd>,
    ages: Ages,
}

pub(super) async fn turn(shared: &Shared, work: &Work, key: &Key) -> Result<()> {
    let writer = Writer { shared, work };
    for _ in 0..MOST_STEPS {
        let Some(facts) = gather(shared, key) else {
            return Ok(());
        };
        let place = || place(shared, &facts.vmi);
        let view = facts.view(shared, &place);
        match vmi::next(&view) {
            Next::Do(step) => perform(writer, &facts, &view, step).await?,
            Next::Wait(left) => {
                shared.queue.add_after(work.clone(), left);
                return Ok(());
            }
            Next::Rest => return Ok(()),
        }
    }
    Ok(())
}

/// Ends a pod that was asked to go and whose VMI is no more, as its kubelet does.
pub(super) async fn bury(shared: &Shared, work: &Work, key: &Key) -> Result<()> {
    let Some(pod) = shared.cache.get(Kind::Pod, key) else {
        return Ok(());
    };
    let owned = controller_of(&pod).is_some_and(|owner| {
        let key = Key::new(&key.namespace, owner.name);
        let vmi = shared.cache.get(Kind::VirtualMachineInstance, &key);
        vmi.is_some_and(|vmi| uid(&vmi) == owner.uid)
    });
    let lost = pod::node(&pod).is_some_and(|node| shared.nodes.is_lost(node));
    if !is_deleting(&pod) || owned || lost {
        return Ok(());
    }
    let writer = Writer { shared, work };
    writer
        .delete(Kind::Pod, &pod, Some(0))
        .await
        .context("failed to end a pod")
}

impl Facts {
    fn view<'a>(&'a self, shared: &'a Shared, place: &'a (dyn Fn() -> Place + Sync)) -> View<'a> {
        View {
            vmi: &self.vmi,
            has_vm: self.vm.is_some(),
            failed_starts: self.vm.as_ref().map_or(0, |vm| {
                vm["status"]["startFailure"]["consecutiveFailCount"]
                    .as_i64()
                    .unwrap_or(0)
            }),
            pods: &self.pods,
            disks: &self.disks,
            missing: &self.missing,
            place,
            node_lost: self.node_lost,
            knobs: &self.knobs,
            options: &shared.options,
            end: self.end,
            ages: self.ages,
            now: vmpool::clock::now(),
        }
    }
}

fn place(shared: &Shared, vmi: &Value) -> Place {
    shared.nodes.place(vmi, &shared.cache.all(Kind::Node))
}

fn gather(shared: &Shared, key: &Key) -> Option<Facts> {
    let vmi = shared.cache.get(Kind::VirtualMachineInstance, key)?;
    let vm = controller_of(&vmi).and_then(|owner| {
        let key = Key::new(&key.namespace, owner.name);
        let vm = shared.cache.get(Kind::VirtualMachine, &key)?;
        (uid(&vm) == owner.uid).then_some(vm)
    });
    let owner = Mention::Owner(uid(&vmi).to_owned());
    let pods = shared.cache.mentioning(Kind::Pod, &owner);
    let claims = volumes::claims(&vmi["spec"]).map(|(_, claim)| claim);
    let disks = work_vm::disks(shared, &key.namespace, claims);
    let mut knobs = Knobs::of(&vmi);
    if let Some(vm) = &vm {
        knobs = knobs.or(Knobs::of(vm));
    }
    let table = shared.table();
    let knobs = match table.vms.get(key) {
        Some(set) => set.clone().or(knobs),
        None => knobs,
    };
    let end = table.ends.get(uid(&vmi)).copied();
    drop(table);
    let pod = pods.last();
    let node = pod.and_then(|pod| pod::node(pod));
    Some(Facts {
        missing: missing(shared, &vmi),
        node_lost: node.is_some_and(|node| shared.nodes.is_lost(node)),
        ages: ages(shared, &vmi, pod.map(AsRef::as_ref)),
        vmi,
        vm,
        disks,
        knobs,
        end,
        pods,
    })
}

fn missing(shared: &Shared, vmi: &Value) -> Vec<String> {
    // Only a pod that has yet to start its containers asks for them.
    if !matches!(phase(vmi), "" | "Pending" | "Scheduling") {
        return Vec::new();
    }
    let absent = |kind, name: &str| {
        let key = Key::new(namespace(vmi), name);
        shared.cache.get(kind, &key).is_none()
    };
    volumes::mounted(&vmi["spec"])
        .into_iter()
        .filter_map(|mounted| match mounted {
            Mounted::ConfigMap(name) => absent(Kind::ConfigMap, &name).then_some(name),
            Mounted::Secret(name) => absent(Kind::Secret, &name).then_some(name),
        })
        .collect()
}

fn ages(shared: &Shared, vmi: &Value, pod: Option<&Value>) -> Ages {
    let mut ages = Ages {
        phase: shared.age(uid(vmi), phase(vmi)),
        ..Ages::default()
    };
    if is_deleting(vmi) || pod.is_some_and(is_deleting) {
        ages.stopping = shared.age(uid(vmi), "stopping");
    }
    if let Some(pod) = pod.filter(|pod| pod::node(pod).is_some()) {
        ages.bound = shared.age(uid(pod), "bound");
    }
    ages
}

async fn perform(writer: Writer<'_>, facts: &Facts, view: &View<'_>, step: Step) -> Result<()> {
    let namespace = namespace(&facts.vmi);
    let pod_named = |wanted: &str| facts.pods.iter().find(|pod| name(pod) == wanted);
    match step {
        Step::BindPod(pod, node) => bind(writer, &Key::new(namespace, &pod), &node).await?,
        Step::CreatePod(pod) => {
            if let Err(error) = writer.create(Kind::Pod, namespace, &pod).await {
                tell_refusal(writer, view, &error).await?;
                return Err(error).context("failed to create a launcher pod");
            }
        }
        Step::DeletePod(pod) => {
            if let Some(pod) = pod_named(&pod) {
                writer.delete(Kind::Pod, pod, None).await?;
            }
        }
        Step::KillPod(pod) => {
            if let Some(pod) = pod_named(&pod) {
                writer.delete(Kind::Pod, pod, Some(0)).await?;
            }
        }
        Step::Patch(patch) => {
            let kind = Kind::VirtualMachineInstance;
            let key = Key::of(&facts.vmi);
            match writer.patch(kind, &key, "", &patch).await {
                // With its last finalizer gone the object is gone.
                Err(error) if code(&error) == 404 => writer.shared.take_deletion(kind, &facts.vmi),
                other => other.context("failed to write a VMI")?,
            }
        }
        Step::ReportPod(pod, status) => report(writer, &Key::new(namespace, &pod), &status).await?,
    }
    Ok(())
}

async fn report(writer: Writer<'_>, key: &Key, status: &Value) -> Result<()> {
    let body = json!({"status": status});
    let patch = PatchType::Strategic;
    writer
        .patch_as(Kind::Pod, key, "status", patch, &body)
        .await
        .context("failed to report a pod's status")
}

async fn bind(writer: Writer<'_>, key: &Key, node: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let api = &writer.shared.api;
    api.post(Kind::Pod, key, "binding", &binding)
        .await
        .context("failed to bind a pod")?;
    let pod = api.get(Kind::Pod, key).await?;
    writer.shared.take_object(Kind::Pod, pod, Some(writer.work));
    Ok(())
}

/// A refused launcher pod shows on the VMI.
async fn tell_refusal(writer: Writer<'_>, view: &View<'_>, error: &kube::Error) -> Result<()> {
    if !matches!(code(error), 400..=428) {
        return Ok(());
    }
    let error = SyncError {
        reason: "FailedCreate",
        message: format!("failed to create virtual machine pod: {}", message(error)),
    };
    if let Some(patch) = vmi_status::patch(view, "Pending", Some(&error)) {
        let kind = Kind::VirtualMachineInstance;
        writer.patch(kind, &Key::of(view.vmi), "", &patch).await?;
    }
    Ok(())
}
