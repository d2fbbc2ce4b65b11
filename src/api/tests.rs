use super::*;

#[test]
fn crd_files_fit_a_client_side_apply() {
    for crd in crds() {
        let text = serde_json::to_string_pretty(&crd).unwrap();
        assert!(
            text.len() < 256 * 1024,
            "{}: {}",
            crd.spec.names.kind,
            text.len()
        );
        assert!(!text.contains("\"nullable\": true"));
    }
}
