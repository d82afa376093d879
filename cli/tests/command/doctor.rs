//! `windrow doctor`: must work on a machine with a GPU and on one without.

use super::run::windrow;

#[test]
fn the_cpu_is_always_usable() {
    windrow(&["doctor", "--device", "cpu"])
        .succeeded()
        .says(&["ok", "processor", "threads"])
        .says(&["driver"])
        .says(&["ok", "test", "f32: passed: 72,000 elements"])
        .says(&["ok", "test", "tf32: passed: 72,000 elements"])
        .says(&["ok", "test", "f16: passed: 72,000 elements"])
        .says(&["ok", "test", "bf16: passed: 72,000 elements"])
        .says(&["ok", "test", "f64: passed: 72,000 elements"])
        .says(&["windrow computes on cpu"]);
}

#[test]
fn findings_as_an_object() {
    let object = windrow(&["doctor", "--device", "cpu", "--json"]).json("windrow.doctor/1");
    assert_eq!(object["usable"], true);
    let findings = object["findings"].as_array().unwrap();
    let named = |name: &str| findings.iter().filter(|finding| finding["name"] == name).collect::<Vec<_>>();
    assert_eq!(named("test").len(), 5);
    for kernels in named("kernels") {
        let found = kernels["found"].as_str().unwrap();
        assert!(kernels["status"] == "ok" && found.contains("entry points in"), "{found}");
    }
    assert_eq!(named("kernels").len(), 3, "a text for each architecture");
    // Drivers compile kernels for GPUs alone.
    assert_eq!(
        (&named("compile")[0]["status"], &object["modules"]),
        (&"missing".into(), &serde_json::json!([]))
    );
    let driver = named("driver")[0];
    // What is missing comes with what to do about it.
    assert!(driver["status"] == "ok" || driver["remedy"].as_str().is_some_and(|text| !text.is_empty()));
}

#[test]
fn a_device_that_is_not_there() {
    let outcome = windrow(&["doctor", "--device", "cuda:99", "--json"]);
    outcome.failed(4, &["CUDA"]);
    let object: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&object["usable"], &object["device"]), (&false.into(), &serde_json::Value::Null));
}
