//! A test: modules name only what is below them, and the pure ones name no client, no runtime and no clock.
//!
//! It reads the text of the sources, not their syntax: comments and strings are taken out, and what is left is
//! searched for `crate::…`. That is enough here, for nothing is re-exported from the root of the crate.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What each module may name, besides itself. A new module is added here, as low as it can be.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("cli", &[]),
    ("clock", &[]),
    ("json", &[]),
    ("rights", &[]),
    ("lease", &["api", "clock", "rights"]),
    ("telemetry", &["cli"]),
    ("kubevirt", &["api"]),
    ("stamp", &["api", "kubevirt"]),
    ("plan", &["api", "kubevirt", "stamp"]),
    (
        "cache",
        &["api", "json", "kubevirt", "stamp", "plan", "rights"],
    ),
    (
        "admission",
        &[
            "api", "json", "kubevirt", "stamp", "plan", "cache", "rights",
        ],
    ),
    (
        "aggregated",
        &[
            "api",
            "clock",
            "json",
            "kubevirt",
            "cache",
            "admission",
            "rights",
        ],
    ),
    (
        "controller",
        &[
            "api", "clock", "json", "lease", "kubevirt", "stamp", "plan", "cache", "rights",
        ],
    ),
    ("server", &["api", "clock", "admission", "rights"]),
    (
        "manifests",
        &[
            "api",
            "cache",
            "admission",
            "aggregated",
            "controller",
            "lease",
            "rights",
            "server",
        ],
    ),
    (
        "run",
        &[
            "api",
            "cli",
            "clock",
            "lease",
            "kubevirt",
            "stamp",
            "plan",
            "cache",
            "admission",
            "aggregated",
            "controller",
            "server",
            "telemetry",
        ],
    ),
];

/// These decide: data and time in, data out.
const PURE: &[&str] = &["api", "kubevirt", "stamp", "plan"];

/// What a pure module may not have in its text.
const IMPURE: &[&str] = &[
    "async fn",
    "kube::Api",
    "kube::Client",
    "kube::client",
    "kube::runtime",
    "std::fs",
    "std::net",
    "std::process",
    "tokio",
    "tracing",
];

#[test]
fn modules_name_only_what_is_below_them() {
    let mut wrong = Vec::new();
    for (module, path) in sources() {
        let Some((_, allowed)) = MAY_NAME.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!(
                "{}: give `{module}` its place in MAY_NAME",
                path.display()
            ));
            continue;
        };
        let text = code(&fs::read_to_string(&path).unwrap());
        for named in named_modules(&text) {
            if named != module && !allowed.contains(&named.as_str()) {
                wrong.push(format!("{}: {module} → {named}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these go against the direction of src/lib.rs (what both need belongs below both):\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_direction_has_no_way_back() {
    let once: BTreeSet<_> = MAY_NAME.iter().map(|(module, _)| module).collect();
    assert_eq!(once.len(), MAY_NAME.len(), "a module stands here twice");
    for (at, (module, allowed)) in MAY_NAME.iter().enumerate() {
        for below in *allowed {
            let position = MAY_NAME.iter().position(|(name, _)| name == below);
            assert!(
                position.is_some_and(|below| below < at),
                "{module} → {below}"
            );
        }
    }
}

#[test]
fn what_decides_does_nothing_else() {
    let mut wrong = Vec::new();
    for (module, path) in sources() {
        if !PURE.contains(&module.as_str()) {
            continue;
        }
        let text = code(&fs::read_to_string(&path).unwrap());
        for word in IMPURE.iter().filter(|word| text.contains(**word)) {
            wrong.push(format!("{}: `{word}` in `{module}`", path.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "decisions are pure functions of data and time:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn names_are_found_however_they_are_written() {
    let text = code(
        "//! [`crate::run`]\nuse crate::{api::{self, labels}, plan};\nuse crate::stamp::Stamp;\n\
         fn f() { crate::clock::now(); \"crate::cli\"; } // crate::server\n/* crate::cache */",
    );
    let named: Vec<_> = named_modules(&text).into_iter().collect();
    assert_eq!(named, ["api", "clock", "plan", "stamp"]);
}

/// Every source file of the library with its module. Tests may name anything.
fn sources() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    // Relative, for messages: cargo runs tests in the folder of their package.
    for entry in fs::read_dir("src").unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            if name != "bin" {
                let mut files = Vec::new();
                rust_files(&entry.path(), &mut files);
                found.extend(files.into_iter().map(|path| (name.clone(), path)));
            }
        } else if !["lib.rs", "main.rs", "dependency_direction.rs"].contains(&name.as_str()) {
            found.push((name.trim_end_matches(".rs").to_owned(), entry.path()));
        }
    }
    found
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap();
        if stem == "tests" {
            continue;
        }
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The text without comments, and without what is in double quotes.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") {
            3
        } else if next == '"' {
            string_length(rest)
        } else {
            code.push(next);
            next.len_utf8()
        };
        rest = &rest[skipped..];
    }
    code
}

/// Length of the string literal that the text starts with.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The first name after each `crate::`, those in braces included.
fn named_modules(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (at, prefix) in code.match_indices("crate::") {
        let after = &code[at + prefix.len()..];
        match after.strip_prefix('{') {
            Some(group) => named.extend(names_of_group(group)),
            None => named.extend([first_name(after)]),
        }
    }
    named.remove("");
    named
}

/// The names at the top level of a group `a::{b, c}, d}…`.
fn names_of_group(group: &str) -> Vec<String> {
    let mut names = vec![first_name(group.trim_start())];
    let mut depth = 0;
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => break,
            b'}' => depth -= 1,
            b',' if depth == 0 => names.push(first_name(group[at + 1..].trim_start())),
            _ => {}
        }
    }
    names
}

/// Lower-case, as modules are; a macro or type of the crate's root is none.
fn first_name(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_')
        .collect()
}
