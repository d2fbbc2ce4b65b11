//! What the documents say holds: every manifest in them is admitted, and every test that they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::objects::{all, config, pool};
use crate::with_namespace;

/// Folders that hold nothing of ours to read.
const SKIPPED: [&str; 3] = ["target", ".git", "node_modules"];

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("failed to read {folder:?}"))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && !SKIPPED.contains(&name) {
            files(&path, extension, found)?;
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The fenced blocks in a language in a document.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}");
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        let fence = line.trim_start();
        match &mut block {
            Some(lines) if fence.starts_with("```") => {
                blocks.push(std::mem::take(lines));
                block = None;
            }
            Some(lines) => {
                lines.push_str(line);
                lines.push('\n');
            }
            None if fence.starts_with(&begin) => block = Some(String::new()),
            None => {}
        }
    }
    blocks
}

#[test]
fn nr_03_every_manifest_in_the_documents_is_admitted_strictly() {
    with_namespace("docs", async |ns| {
        let mut manifests = Vec::new();
        let mut documents = Vec::new();
        files(root(), "md", &mut documents)?;
        for document in documents {
            let blocks = blocks(&fs::read_to_string(&document)?, "yaml");
            manifests.extend(blocks.into_iter().map(|block| (document.clone(), block)));
        }
        let in_readme = manifests
            .iter()
            .filter(|(path, _)| path.ends_with("README.md"))
            .count();
        ensure!(in_readme > 0, "README.md shows no manifest any more");
        let mut samples = Vec::new();
        files(&root().join("manifests/samples"), "yaml", &mut samples)?;
        ensure!(samples.len() >= 2, "no samples: {samples:?}");
        for sample in samples {
            let text = fs::read_to_string(&sample)?;
            manifests.push((sample, text));
        }
        for (path, manifest) in manifests {
            let args = "apply --server-side --dry-run=server --validate=strict -f -";
            let output = ns.run_with(args, &manifest)?;
            ensure!(output.success, "{path:?}: {}\n{manifest}", output.stderr);
        }
        Ok(())
    });
}

#[test]
fn what_the_readme_says_of_detaching_works_as_it_stands_there() {
    with_namespace("readme", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("desktop", "cfg").replicas(3)]))?;
        ns.settled("desktop", &["desktop-1", "desktop-2", "desktop-3"])
            .await?;
        let readme = fs::read_to_string(root().join("README.md"))?;
        let (_, section) = readme.split_once("## Detaching a VM").context("is gone")?;
        let section = section.split("\n## ").next().unwrap_or_default();
        let scripts = blocks(section, "sh");
        ensure!(scripts.len() == 2, "{scripts:?}");
        // As a user has it: a kubeconfig with a namespace of its own, kubectl on the path.
        let folder = tempfile::tempdir()?;
        let kubectl = ns.harness.kubectl();
        let kubeconfig = folder.path().join("kubeconfig");
        fs::copy(kubectl.kubeconfig(), &kubeconfig)?;
        let namespace = format!("--namespace={}", ns.name);
        kubectl.with_kubeconfig(&kubeconfig).run_ok(&[
            "config",
            "set-context",
            "--current",
            &namespace,
        ])?;
        let command = kubectl.command();
        let programs = Path::new(command.get_program()).parent();
        let programs = programs.context("kubectl has no folder")?.display();
        let path = format!("{programs}:{}", std::env::var("PATH")?);
        let options = |vm: &str| {
            json!({
                "apiVersion": "subresources.vmpool.dev/v1alpha1",
                "kind": "DetachOptions",
                "virtualMachines": [vm],
            })
        };
        fs::write(
            folder.path().join("options.json"),
            options("desktop-2").to_string(),
        )?;
        for script in scripts {
            let here = [
                ("namespaces/default", format!("namespaces/{}", ns.name)),
                ("=default:", format!("={}:", ns.name)),
            ];
            let script = here
                .iter()
                .fold(script, |script, (from, to)| script.replace(from, to));
            let output = Command::new("bash")
                .args(["-euo", "pipefail", "-c", &script])
                .current_dir(folder.path())
                .env("PATH", &path)
                .env("KUBECONFIG", &kubeconfig)
                .output()
                .context("failed to run bash")?;
            let said = String::from_utf8_lossy(&output.stdout);
            ensure!(
                output.status.success() && said.contains(r#""verdict":"Done""#),
                "{script}\n{said}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        ns.settled("desktop", &["desktop-1", "desktop-4", "desktop-5"])
            .await
            .map(drop)
    });
}

/// Names of functions that a text in backticks could mean: tests are called by sentences.
fn named_tests(text: &str) -> BTreeSet<&str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.matches('_').count() >= 2)
        .filter(|word| {
            word.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        })
        .collect()
}

#[test]
fn every_test_that_the_map_names_exists() -> Result<()> {
    let map = fs::read_to_string(root().join("tests/README.md"))?;
    let mut sources = Vec::new();
    for folder in ["src", "tests", "dev/src", "dev/tests"] {
        files(&root().join(folder), "rs", &mut sources)?;
    }
    let sources: String = sources
        .iter()
        .map(fs::read_to_string)
        .collect::<Result<_, _>>()?;
    let named = named_tests(&map);
    ensure!(named.len() > 100, "the map is read wrongly: {named:?}");
    let missing: Vec<&&str> = named
        .iter()
        .filter(|name| !sources.contains(&format!("fn {name}(")))
        .collect();
    ensure!(
        missing.is_empty(),
        "tests/README.md names tests that do not exist: {missing:#?}"
    );
    Ok(())
}

/// What the issues "The main job on a real control plane", "HPA, detach, rolling update" and "Admission complete" ask
/// for.
const ROWS: &[(u32, u32)] = &[
    (1, 18),
    (24, 25),
    (28, 40),
    (51, 68),
    (70, 77),
    (83, 83),
    (86, 90),
    (92, 97),
    (99, 103),
    (113, 113),
    (116, 116),
    (126, 126),
    (130, 130),
];
const CASES: &[&str] = &[
    "NR-01", "NR-02", "NR-03", "NR-04", "NR-05", "NR-06", "NR-07", "NR-09", "VD-01", "VD-02",
    "VD-03", "VD-04", "VD-06", "VD-07", "VD-08", "VD-09", "VD-11", "VD-12", "SI-02", "SI-03",
    "DT-01", "DT-02", "DT-05", "DT-06", "DT-07", "DT-11", "AG-01", "AG-03", "AG-04", "AG-11",
    "AG-12", "HS-01", "HS-02", "RO-01", "RO-02", "RO-09", "AG-08", "AG-09", "AG-10", "HS-03",
    "CC-01", "CC-02", "CC-04", "CC-06", "CC-07", "CC-09", "IU-01", "IU-02", "IU-04", "IU-05",
    "IU-06", "PF-01",
];

#[test]
fn every_case_and_row_is_in_the_map() -> Result<()> {
    let map = fs::read_to_string(root().join("tests/README.md"))?;
    let first_cells: BTreeSet<&str> = map
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .map(str::trim)
        .collect();
    let rows = ROWS
        .iter()
        .flat_map(|(first, last)| *first..=*last)
        .map(|row| row.to_string());
    let wanted = rows.chain(CASES.iter().map(|case| (*case).to_owned()));
    let missing: Vec<String> = wanted
        .filter(|key| !first_cells.contains(key.as_str()))
        .collect();
    ensure!(
        missing.is_empty(),
        "tests/README.md has no line for {missing:?}"
    );
    Ok(())
}
