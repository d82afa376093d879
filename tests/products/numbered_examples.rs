//! The numbered examples: they run, without a GPU too, and print what they are for.
//!
//! `cargo test` has built them when it runs this, beside the tests; where nobody did, for example in a bundle, they are
//! skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An example, and a part of what it prints.
const EXAMPLES: [(&str, &str); 10] = [
    ("01_hello_spmm", "C = [[7.0, 70.0], [6.0, 60.0]]"),
    ("02_file_and_plan", "C is 496 × 64"),
    ("03_reuse_plan", "new A·1  = [2.0, 1.0]"),
    ("04_sddmm_softmax", "weights: ["),
    ("05_nm_weights", "kept 8192 of 32768 weights"),
    ("06_mttkrp", "mode 0: [[2.0, 2.5], [6.0, 0.0]]"),
    ("07_verify_report", "with 1000 bytes: the plan needs"),
    ("08_own_stream", "C = [6.0, 8.0, 1.0, 2.0]"),
    ("09_transpose_on_device", "with new values: [30.0, 41.0, 2.0]"),
    ("10_cudarc", "cudarc: "),
];

/// An example's program, if it is built: cargo puts examples beside the `deps` that this program is in.
pub(crate) fn built(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let path =
        own.parent()?.parent()?.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    path.is_file().then_some(path)
}

#[test]
fn numbered_examples_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let programs: Vec<_> =
        EXAMPLES.iter().filter_map(|&(name, part)| Some((name, part, built(name)?))).collect();
    let missing = EXAMPLES.len() - programs.len();
    if missing > 0 {
        windrow_testkit::announce_skip("numbered examples", missing, "they are not built here");
    }
    for (name, part, program) in programs {
        let output = Command::new(program).current_dir(&root).output().expect("the example starts");
        let (printed, told) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}: {told}");
        assert!(printed.contains(part), "{name} does not print {part:?} but\n{printed}");
    }
}
