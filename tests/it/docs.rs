//! What the documents say holds: every manifest in them is admitted, and every test that they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

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

/// The fenced blocks of YAML in a document.
fn yaml_blocks(text: &str) -> Vec<String> {
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
            None if fence.starts_with("```yaml") => block = Some(String::new()),
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
            let blocks = yaml_blocks(&fs::read_to_string(&document)?);
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
