//! Finding a compiler that can build for the GPU: one whose own `core` sources lie beside it.

use crate::failure::{Failure, Result};
use crate::process;
use crate::workspace::{Workspace, parse_version};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiler with its cargo and its library sources.
#[derive(Debug)]
pub(super) struct Toolchain {
    rustc: PathBuf,
    cargo: PathBuf,
    origin: &'static str,
    version: Version,
}

/// What a compiler says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    /// `rustc 1.96.0 (ac68faa20 2026-05-25), LLVM 22.1.8`.
    text: String,
    /// `1.96.0-ac68faa20`, for a folder name.
    short: String,
    /// Major and minor version, such as `(1, 96)`.
    number: (u32, u32),
}

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

const REMEDY: &str = "\
No compiler for the GPU target was found. Any one of these will do:
  1. rustup:  rustup toolchain install nightly --component rust-src
  2. Debian:  apt-get install --no-install-recommends rustc-web cargo-web rust-web-src libstd-rust-web-dev
  3. your own: set WINDROW_DEVICE_RUSTC to a rustc whose sysroot has lib/rustlib/src/rust/library,
     and WINDROW_DEVICE_CARGO to its cargo if that is not beside it.
The PTX is committed, so only a change to a kernel needs this.";

impl Toolchain {
    /// The compiler and the LLVM in it, as the header of a module names them.
    pub(super) fn version(&self) -> &str {
        &self.version.text
    }

    /// Where the toolchain was found.
    pub(super) fn origin(&self) -> &'static str {
        self.origin
    }

    /// A folder name of its own: cargo takes a crate for fresh without looking at who wrote the assembly.
    pub(super) fn folder_name(&self) -> String {
        format!("rustc-{}", self.version.short)
    }

    /// This toolchain's cargo in the workspace, with unstable features on and nothing inherited.
    pub(super) fn cargo(&self, workspace: &Workspace) -> Command {
        let mut command = Command::new(&self.cargo);
        process::clean_environment(&mut command);
        command.current_dir(workspace.root()).env("RUSTC", &self.rustc).env("RUSTC_BOOTSTRAP", "1");
        command
    }
}

/// The toolchain to build with: the one that `WINDROW_DEVICE_RUSTC` names; else, of a rustup nightly and
/// Debian's compiler, the one that built the committed modules (`committed_by`), or the first that is there.
///
/// # Errors
/// If none is usable: what was looked at, why each was refused, and what to install.
pub(super) fn find(workspace: &Workspace, committed_by: Option<&str>) -> Result<Toolchain> {
    let minimum = workspace.rust_version()?;
    if let Some(rustc) = std::env::var_os("WINDROW_DEVICE_RUSTC") {
        let rustc = PathBuf::from(rustc);
        let cargo = std::env::var_os("WINDROW_DEVICE_CARGO").map(PathBuf::from);
        return inspect("WINDROW_DEVICE_RUSTC", &rustc, cargo, minimum)
            .map_err(|reason| Failure::new(format!("WINDROW_DEVICE_RUSTC: {reason}\n\n{REMEDY}")));
    }
    let found = [("rustup nightly", nightly_rustc()), ("Debian's compiler", Ok(PathBuf::from(DEBIAN_RUSTC)))]
        .map(|(origin, rustc)| match rustc {
            Ok(rustc) => {
                inspect(origin, &rustc, None, minimum).map_err(|reason| format!("{origin}: {reason}"))
            }
            Err(reason) => Err(format!("{origin}: {reason}")),
        });
    let mut usable = Vec::new();
    let mut refused = Vec::new();
    for candidate in found {
        match candidate {
            Ok(toolchain) => usable.push(toolchain),
            Err(reason) => refused.push(reason),
        }
    }
    let same = usable.iter().position(|toolchain| committed_by == Some(toolchain.version()));
    if usable.is_empty() {
        return Err(Failure::new(format!("{REMEDY}\nLooked at:\n  {}", refused.join("\n  "))));
    }
    Ok(usable.swap_remove(same.unwrap_or(0)))
}

/// The nightly that rustup has installed.
fn nightly_rustc() -> std::result::Result<PathBuf, String> {
    let mut command = Command::new("rustup");
    process::clean_environment(&mut command);
    command.args(["which", "--toolchain", "nightly", "rustc"]).env("RUSTUP_AUTO_INSTALL", "0");
    let path = process::capture(&mut command).map_err(|_| "not installed".to_owned())?;
    Ok(PathBuf::from(path.trim()))
}

/// Checks that `rustc` runs, is new enough, and has a cargo and the sources of `core`.
fn inspect(
    origin: &'static str,
    rustc: &Path,
    cargo: Option<PathBuf>,
    minimum: (u32, u32),
) -> std::result::Result<Toolchain, String> {
    if !rustc.is_file() {
        return Err(format!("there is no {}", rustc.display()));
    }
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(rustc);
        process::clean_environment(&mut command).args(arguments);
        process::capture(&mut command).map_err(|failure| failure.to_string())
    };
    let version =
        parse(&ask(&["-vV"])?).ok_or_else(|| format!("{} -vV is not a rustc's", rustc.display()))?;
    if version.number < minimum {
        let (major, minor) = minimum;
        return Err(format!("{} is {}, older than {major}.{minor}", rustc.display(), version.text));
    }
    let sysroot = ask(&["--print", "sysroot"])?;
    let sources = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
    if !sources.join("core/Cargo.toml").is_file() {
        return Err(format!(
            "{} has no library sources ({} is missing: the component rust-src, or Debian's rust-web-src)",
            version.text,
            sources.display()
        ));
    }
    let cargo = cargo.unwrap_or_else(|| rustc.with_file_name("cargo"));
    if !cargo.is_file() {
        return Err(format!("there is no {}", cargo.display()));
    }
    Ok(Toolchain { rustc: rustc.to_path_buf(), cargo, origin, version })
}

/// Reads what `rustc -vV` prints.
fn parse(verbose: &str) -> Option<Version> {
    let field = |name: &str| verbose.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let first = verbose.lines().next().filter(|line| line.starts_with("rustc "))?.trim();
    let release = field("release:")?;
    let hash: String = field("commit-hash:").unwrap_or("unknown").chars().take(9).collect();
    Some(Version {
        text: format!("{first}, LLVM {}", field("LLVM version:").unwrap_or("unknown")),
        short: format!("{release}-{hash}"),
        number: parse_version(release)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_compilers_version() {
        let verbose = "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\n\
                       commit-hash: ac68faa20c58cbccd01ee7208bf3b6e93a7d7f96\nhost: x86_64-unknown-linux-gnu\n\
                       release: 1.96.0\nLLVM version: 22.1.8\n";
        let version = parse(verbose).expect("the sample is a rustc's");
        assert_eq!(version.text, "rustc 1.96.0 (ac68faa20 2026-05-25), LLVM 22.1.8");
        assert_eq!(version.short, "1.96.0-ac68faa20");
        assert_eq!(version.number, (1, 96));
        assert_eq!(parse("gcc 12.2\n"), None);
    }

    #[test]
    fn a_missing_compiler_is_named() {
        let reason =
            inspect("test", Path::new("/nonexistent/rustc"), None, (1, 95)).expect_err("no such file");
        assert!(reason.contains("/nonexistent/rustc"), "{reason}");
    }
}
