//! Names: made, read back and bounded. Case NR-07.

use super::*;

#[test]
fn only_the_names_that_we_make_are_read_back() {
    for (prefix, name, ordinal) in [
        ("web", "web-0", Some(0)),
        ("web", "web-7", Some(7)),
        ("web", "web-100000", Some(100_000)),
        ("web", "web-999999", Some(MAX_ORDINAL)),
        ("web", "web-1000000", None),
        ("web", "web-007", None),
        ("web", "web-00", None),
        ("web", "web-+7", None),
        ("web", "web--7", None),
        ("web", "web-", None),
        ("web", "web7", None),
        ("web", "web-7a", None),
        ("web", "web-٣", None),
        ("web", "web-1-1", None),
        ("web", "webs-1", None),
        ("web-1", "web-1-1", Some(1)),
    ] {
        assert_eq!(parse_ordinal(prefix, name), ordinal, "{prefix} {name}");
        if let Some(ordinal) = ordinal {
            assert_eq!(vm_name(prefix, ordinal), name);
        }
    }
}

#[test]
fn a_prefix_that_leaves_no_room_for_any_disk_is_what_is_too_long() {
    let message = |prefix: usize| {
        check_disk_names(&"p".repeat(prefix), "root")
            .unwrap_err()
            .to_string()
    };
    for prefix in [55, 56] {
        let message = message(prefix);
        assert!(
            message.contains(&format!(
                "has {prefix} characters and leaves none for the disk template \"root\""
            )) && message.ends_with("at most 51 leave room for this one"),
            "{message}"
        );
    }
    assert!(message(52).contains("\"root\" has 4 characters; at most 3"));
    assert!(check_disk_names(&"p".repeat(51), "root").is_ok());
}

#[test]
fn nested_prefixes_are_ambiguous_where_a_template_fills_the_gap() {
    for (outer, template, inner, is) in [
        ("a", "2-x", "a-1", true),
        ("a", "b-2-x", "a-1-b", true),
        ("a", "2-x", "a-1-b", false),
        ("a", "x", "a-1", false),
        ("a", "2", "a-1", false),
        ("a", "02-x", "a-1", false),
        ("a", "2-x", "a-b", false),
        ("a", "2-x", "ab-1", false),
        ("a", "2-x", "b", false),
        ("a", "2-x", "a", false),
    ] {
        assert_eq!(
            is_ambiguous_with(outer, template, inner),
            is,
            "{outer} {template} {inner}"
        );
        if is {
            // There are numbers for which the names are the same.
            let rest = inner
                .strip_prefix(outer)
                .unwrap()
                .strip_prefix('-')
                .unwrap();
            let ordinal = rest.split('-').next().unwrap().parse().unwrap();
            let ours = disk_name(&vm_name(outer, ordinal), template);
            assert_eq!(ours, disk_name(&vm_name(inner, 2), "x"));
        }
    }
}

#[test]
fn nr_07_names_that_fit_until_a_digit_is_added_are_refused_with_the_budget() {
    let message = check_prefix(&"p".repeat(61)).unwrap_err().to_string();
    assert!(
        message.contains("has 61 characters; at most 56, since"),
        "{message}"
    );
    check_prefix(&"p".repeat(56)).unwrap();
    check_prefix(&"p".repeat(57)).unwrap_err();
    assert_eq!(vm_name(&"p".repeat(56), MAX_ORDINAL).len(), LABEL_BUDGET);

    check_pool_name(&"p".repeat(63)).unwrap();
    check_pool_name(&"p".repeat(64)).unwrap_err();

    let message = check_config_name(&"c".repeat(63)).unwrap_err().to_string();
    assert!(
        message.contains("has 63 characters; at most 52, since"),
        "{message}"
    );
    check_config_name(&"c".repeat(52)).unwrap();

    check_ordinal(MAX_ORDINAL).unwrap();
    let message = check_ordinal(1_000_000).unwrap_err().to_string();
    assert!(
        message.contains("at most 999999, since 6 digits"),
        "{message}"
    );
}

#[test]
fn nr_07_a_dot_in_the_prefix_is_refused() {
    for prefix in ["db.prod", "Web", "-web", "web-", "we_b", "wéb"] {
        let message = check_prefix(prefix).unwrap_err().to_string();
        assert!(message.contains("must be a DNS label"), "{message}");
    }
    assert_eq!(
        check_prefix("").unwrap_err().to_string(),
        "the VM name prefix must not be empty"
    );
    check_prefix("0-web").unwrap();
}

#[test]
fn nr_07_disk_names_fit_with_the_longest_ordinal() {
    let prefix = "p".repeat(40);
    let fits = "d".repeat(template_budget(&prefix));
    check_disk_names(&prefix, &fits).unwrap();
    assert_eq!(
        disk_name(&vm_name(&prefix, MAX_ORDINAL), &fits).len(),
        LABEL_BUDGET
    );
    let message = check_disk_names(&prefix, &format!("{fits}d"))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("has 16 characters; at most 15, since"),
        "{message}"
    );
    // A prefix that leaves nothing at all.
    check_disk_names(&"p".repeat(56), "d").unwrap_err();

    check_template_name("root.v2").unwrap();
    check_template_name(&"d".repeat(TEMPLATE_BUDGET)).unwrap();
    for template in [
        "",
        "Root",
        "root-",
        "a..b",
        &"d".repeat(TEMPLATE_BUDGET + 1),
    ] {
        check_template_name(template).unwrap_err();
    }
}

#[test]
fn only_numbers_inside_a_template_name_make_disk_names_ambiguous() {
    assert_eq!(
        disk_name(&vm_name("a", 1), "2-x"),
        disk_name(&vm_name("a-1", 2), "x"),
        "this is the case that the warning is for"
    );
    for (template, ambiguous) in [
        ("root", false),
        ("disk-1", false),
        ("1", false),
        ("fedora40-root", false),
        ("2-x", true),
        ("b-2-x", true),
        ("", false),
        ("a--b", false),
    ] {
        assert_eq!(is_ambiguous_template(template), ambiguous, "{template}");
    }
}
