//! Finding `ptxas`, or fetching it.

use crate::failure::{Context, Failure, Result};
use crate::process;
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that the registers are recorded with, as the Python wheel has it.
const WHEEL_VERSION: &str = "13.0.88";

/// An assembler that runs.
#[derive(Debug)]
pub(super) struct Ptxas {
    pub(super) path: PathBuf,
    /// The tool's version, such as `13.0.88`.
    pub(super) version: String,
}

/// The assembler that `WINDROW_PTXAS` names; else the one on `PATH`, if it is of the version that the registers
/// are recorded with; else the wheel `nvidia-cuda-nvcc`, installed below `target/` on first use.
///
/// # Errors
/// If the one that was asked for does not run, or the wheel cannot be installed.
pub(super) fn find(workspace: &Workspace) -> Result<Ptxas> {
    if let Some(path) = std::env::var_os("WINDROW_PTXAS") {
        return inspect(Path::new(&path))
            .map_err(|failure| Failure::new(format!("WINDROW_PTXAS: {failure}")));
    }
    match inspect(Path::new("ptxas")) {
        Ok(ptxas) if ptxas.version == WHEEL_VERSION => return Ok(ptxas),
        Ok(ptxas) => eprintln!(
            "ptxas on PATH is {}, registers are recorded with {WHEEL_VERSION}: using the wheel instead \
             (WINDROW_PTXAS overrides)",
            ptxas.version
        ),
        Err(_) => {}
    }
    let venv = workspace.target("tools").join("ptxas-venv");
    if let Some(ptxas) = in_venv(&venv) {
        return Ok(ptxas);
    }
    install(&venv)?;
    in_venv(&venv).ok_or_else(|| Failure::new(format!("no working ptxas below {}", venv.display())))
}

/// The pinned assembler in the virtual environment, wherever its Python puts packages.
fn in_venv(venv: &Path) -> Option<Ptxas> {
    let pythons = std::fs::read_dir(venv.join("lib")).ok()?.flatten();
    pythons
        .map(|python| python.path().join("site-packages/nvidia/cu13/bin/ptxas"))
        .filter_map(|path| inspect(&path).ok())
        .find(|ptxas| ptxas.version == WHEEL_VERSION)
}

fn install(venv: &Path) -> Result<()> {
    let package = format!("nvidia-cuda-nvcc=={WHEEL_VERSION}");
    eprintln!("installing {package} (for ptxas) into {}", venv.display());
    let remedy = "it needs python3 with venv (Debian: apt-get install python3-venv) and a package index; or set \
                  WINDROW_PTXAS to a ptxas of CUDA 13";
    let mut create = Command::new("python3");
    process::capture(create.args(["-m", "venv", "--clear"]).arg(venv)).context(remedy)?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", &package]);
    process::capture(&mut pip).context(remedy)?;
    Ok(())
}

fn inspect(path: &Path) -> Result<Ptxas> {
    let mut command = Command::new(path);
    let text = process::capture(command.arg("--version"))?;
    let version = parse_version(&text)
        .ok_or_else(|| Failure::new(format!("{}: not a ptxas: {text}", path.display())))?;
    Ok(Ptxas { path: path.to_path_buf(), version })
}

/// `13.0.88` from `Cuda compilation tools, release 13.0, V13.0.88`.
fn parse_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains("release"))?;
    Some(line.rsplit_once(", V")?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version() {
        let text = "ptxas: NVIDIA (R) Ptx optimizing assembler\nBuilt on Wed_Aug_20\n\
                    Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0\n";
        assert_eq!(parse_version(text).as_deref(), Some("13.0.88"));
        assert_eq!(parse_version("GNU assembler 2.40\n"), None);
    }
}
