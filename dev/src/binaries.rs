//! Finds the programs of the control plane, or builds them once with Go.
//!
//! They come from `KUBEBUILDER_ASSETS`, else from `target/controlplane/` of the workspace. What is
//! there is used only if it was built from the very `go.mod` and `go.sum` of `dev/controlplane`,
//! of which a copy is kept beside them. Nothing here starts a control plane.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The release that `dev/controlplane/go.mod` requires; without it in the linker flags every
/// version reads `v0.0.0-master`.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// Where a progress line goes, here and in [`find_or_build`].
pub type Progress<'a> = &'a dyn Fn(&str);

/// The packages of the tool lines in go.mod, and the names that their binaries should have.
const PACKAGES: [(&str, &str); 4] = [
    ("go.etcd.io/etcd/server/v3", "etcd"),
    ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
    (
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-controller-manager",
    ),
    ("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
];

/// The four programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// The store.
    pub etcd: PathBuf,
    /// The API server.
    pub kube_apiserver: PathBuf,
    /// Garbage collection, namespaces, the HorizontalPodAutoscaler and the rest.
    pub kube_controller_manager: PathBuf,
    /// The client that users have.
    pub kubectl: PathBuf,
}

impl Binaries {
    fn in_folder(folder: &Path) -> Self {
        Self {
            etcd: folder.join("etcd"),
            kube_apiserver: folder.join("kube-apiserver"),
            kube_controller_manager: folder.join("kube-controller-manager"),
            kubectl: folder.join("kubectl"),
        }
    }

    fn missing(&self) -> Vec<&Path> {
        [
            &self.etcd,
            &self.kube_apiserver,
            &self.kube_controller_manager,
            &self.kubectl,
        ]
        .into_iter()
        .map(PathBuf::as_path)
        .filter(|path| !path.is_file())
        .collect()
    }
}

/// Finds the programs, building what is missing; several callers at once build only once.
pub fn find_or_build(progress: Progress<'_>) -> Result<Binaries> {
    if let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS") {
        let found = Binaries::in_folder(Path::new(&folder));
        if let Some(missing) = found.missing().first() {
            bail!(
                "KUBEBUILDER_ASSETS is set, but {missing:?} is missing: put etcd, kube-apiserver, \
                 kube-controller-manager and kubectl there, or unset it to have them built"
            );
        }
        return Ok(found);
    }
    let root = crate::workspace();
    let (module, out) = (
        root.join("dev/controlplane"),
        root.join("target/controlplane"),
    );
    let stamp = stamp(&module)?;
    if is_current(&out, &stamp) {
        return Ok(Binaries::in_folder(&out));
    }
    fs::create_dir_all(&out).with_context(|| format!("failed to create {out:?}"))?;
    let lock = lock(&out, progress)?;
    if !is_current(&out, &stamp) {
        build_all(&module, &out, progress)?;
        fs::write(out.join("stamp"), &stamp).context("failed to write the build's stamp")?;
    }
    drop(lock);
    Ok(Binaries::in_folder(&out))
}

/// All that a build is made from, compared byte by byte.
fn stamp(module: &Path) -> Result<String> {
    let read = |name: &str| {
        let path = module.join(name);
        fs::read_to_string(&path).with_context(|| format!("failed to read {path:?}"))
    };
    Ok(format!(
        "{KUBERNETES_VERSION}\n{}\n{}",
        read("go.mod")?,
        read("go.sum")?
    ))
}

fn is_current(out: &Path, stamp: &str) -> bool {
    fs::read_to_string(out.join("stamp")).is_ok_and(|found| found == stamp)
        && Binaries::in_folder(out).missing().is_empty()
}

/// Held until the file is closed; the lock of a process that died is free again.
fn lock(out: &Path, progress: Progress<'_>) -> Result<File> {
    let file = File::create(out.join("lock")).context("failed to create the build's lock")?;
    if file.try_lock().is_err() {
        progress("another process is building the control plane, waiting for it");
        file.lock().context("failed to wait for the build's lock")?;
    }
    Ok(file)
}

fn build_all(module: &Path, out: &Path, progress: Progress<'_>) -> Result<()> {
    if let Err(error) = Command::new("go").arg("version").output() {
        bail!(
            "failed to run `go` ({error}): the control plane is built from source once, which \
             needs Go 1.26 or newer (https://go.dev/dl). Install it, or point KUBEBUILDER_ASSETS \
             at a folder with etcd, kube-apiserver, kube-controller-manager and kubectl"
        );
    }
    progress("building the control plane, once: about 5 minutes on 2 cores");
    for (number, (package, name)) in PACKAGES.iter().enumerate() {
        let started = Instant::now();
        progress(&format!("  [{}/{}] {name} …", number + 1, PACKAGES.len()));
        build(module, out, package, name)?;
        let took = Duration::from_secs(started.elapsed().as_secs());
        progress(&format!("        {name} took {took:?}"));
    }
    Ok(())
}

/// Builds into a name of its own first, so that a build that was interrupted leaves no half file.
fn build(module: &Path, out: &Path, package: &str, name: &str) -> Result<()> {
    let unfinished = out.join(format!("{name}.unfinished"));
    let flags = format!("-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}");
    let output = Command::new("go")
        .current_dir(module)
        .args(["build", "-trimpath", "-ldflags", &flags, "-o"])
        .arg(&unfinished)
        .arg(package)
        .output()
        .context("failed to run go")?;
    if !output.status.success() {
        bail!(
            "failed to build {name} from {package}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    fs::rename(&unfinished, out.join(name)).with_context(|| format!("failed to place {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_module_makes_the_binaries_stale() {
        let out = tempfile::tempdir().unwrap();
        for (_, name) in PACKAGES {
            fs::write(out.path().join(name), "").unwrap();
        }
        assert!(!is_current(out.path(), "a"), "no stamp yet");
        fs::write(out.path().join("stamp"), "a").unwrap();
        assert!(is_current(out.path(), "a"));
        assert!(!is_current(out.path(), "b"));
        fs::remove_file(out.path().join("kubectl")).unwrap();
        assert!(!is_current(out.path(), "a"), "one is missing");
    }

    #[test]
    fn the_version_is_the_one_that_the_module_requires() {
        let module = fs::read_to_string(crate::workspace().join("dev/controlplane/go.mod"));
        let wanted = format!("k8s.io/kubernetes {KUBERNETES_VERSION}");
        assert!(module.unwrap().contains(&wanted));
    }
}
