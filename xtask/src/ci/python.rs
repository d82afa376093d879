//! The Python package: its wheel in a virtual environment of its own, and its tests there.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Tally, counted};
use crate::failure::{Context, Failure, Result};
use crate::process;
use crate::workspace::Workspace;

/// What the package index has and the tests always need.
const PACKAGES: [&str; 4] = ["maturin>=1.9,<2", "numpy", "scipy", "pytest"];

/// Builds the wheel, with what the other steps have compiled of others' crates, installs and tests it.
pub(super) fn run(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let folder = workspace.root().join("target/python");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).context(folder.display())?;
    }
    let (environment, wheels) = (folder.join("environment"), folder.join("wheels"));
    // PyTorch is large: it is used where the machine has it, and its tests are skipped where not.
    let mut make = Command::new("python3");
    process::run(make.args(["-m", "venv", "--system-site-packages"]).arg(&environment))?;
    let program = |name: &str| Command::new(environment.join("bin").join(name));
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    process::run(program("python").args(pip).args(PACKAGES))?;
    let mut build = program("python");
    build.args(["-m", "maturin", "build", "--profile", "dev", "--compatibility", "linux", "--manifest-path"]);
    // Its features are not those of the workspace, so that it is compiled anew: without optimisation in half the time.
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    process::run(build.arg(workspace.root().join("python/Cargo.toml")).arg("--out").arg(&wheels))?;
    process::run(program("python").args(pip).args(["--no-deps", "--no-index"]).arg(wheel(&wheels)?))?;
    // Not in the package's folder: what is tested is what was installed.
    let tests = workspace.root().join("python/tests");
    counted(
        program("python")
            .current_dir(&folder)
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
            .arg(tests),
        tally,
    )
}

fn wheel(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).context(folder.display())?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = files.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.ok_or_else(|| Failure::new(format!("no wheel in {}", folder.display())))
}
