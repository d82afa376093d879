//! Where things are in the working tree.

use crate::failure::{Context, Failure, Result};
use std::path::{Path, PathBuf};

/// The root of the workspace, and the places below it that the tasks share.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The workspace that this xtask belongs to: the one `cargo xtask` was called in, or, for an executable
    /// started by hand, the one it was compiled in.
    ///
    /// # Errors
    /// If there is no `Cargo.toml` above the manifest folder.
    pub(crate) fn find() -> Result<Self> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        match manifest.parent() {
            Some(root) if root.join("Cargo.toml").is_file() => Ok(Self { root: root.to_path_buf() }),
            _ => Err(Failure::new(format!(
                "no workspace around {}; start xtask as `cargo xtask`",
                manifest.display()
            ))),
        }
    }

    /// The folder of the workspace's `Cargo.toml`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of the committed PTX and of what is recorded about it.
    pub(crate) fn ptx_dir(&self) -> PathBuf {
        self.root.join("device-kernels/ptx")
    }

    /// A folder for build products and tools, ignored by git.
    pub(crate) fn target(&self, name: &str) -> PathBuf {
        self.root.join("target").join(name)
    }

    /// `path` as seen from the root, for messages.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }

    /// The oldest compiler that the workspace accepts, as `(major, minor)`.
    ///
    /// # Errors
    /// If the manifest cannot be read or names no `rust-version`.
    pub(crate) fn rust_version(&self) -> Result<(u32, u32)> {
        let path = self.root.join("Cargo.toml");
        let manifest = std::fs::read_to_string(&path).context(path.display())?;
        manifest
            .lines()
            .find_map(|line| line.strip_prefix("rust-version"))
            .and_then(|rest| parse_version(rest.trim_matches([' ', '=', '"'])))
            .ok_or_else(|| Failure::new(format!("{}: no rust-version", path.display())))
    }
}

/// The first two numbers of a version such as `1.95` or `1.96.0`.
pub(crate) fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Reads a text file; the failure names it.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).context(path.display())
}

/// Writes a text file and the folders above it; the failure names it.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).context(parent.display())?;
    }
    std::fs::write(path, text).context(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(parse_version("1.95"), Some((1, 95)));
        assert_eq!(parse_version("1.96.0"), Some((1, 96)));
        assert_eq!(parse_version("nightly"), None);
    }

    #[test]
    fn this_workspace_states_a_rust_version() {
        let workspace = Workspace::find().expect("tests run in the workspace");
        assert!(workspace.rust_version().expect("Cargo.toml states it") >= (1, 95));
    }
}
