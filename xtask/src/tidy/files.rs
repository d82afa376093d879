//! The files that the rules look at: what git tracks or would track.

use crate::failure::{Context, Result};
use crate::process;
use crate::workspace::Workspace;
use std::path::Path;
use std::process::Command;

/// One file of the working tree.
#[derive(Debug)]
pub(super) struct File {
    /// From the root, with `/`.
    pub(super) path: String,
    /// Its text; `None` if it is not text.
    pub(super) text: Option<String>,
}

impl File {
    /// Whether it is Rust source.
    pub(super) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }
}

/// Every file that is committed or could be, in order.
pub(super) fn all(workspace: &Workspace) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in list(workspace)? {
        let full = workspace.root().join(&path);
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).context(full.display())?;
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        files.push(File { path, text });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Asks git; a tree without git (an unpacked archive) is walked.
fn list(workspace: &Workspace) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(workspace.root());
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    if workspace.root().join(".git").exists()
        && let Ok(paths) = process::capture(&mut git)
    {
        return Ok(paths.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect());
    }
    let mut paths = Vec::new();
    walk(workspace.root(), "", &mut paths)?;
    Ok(paths)
}

fn walk(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).context(folder.display())? {
        let entry = entry.context(folder.display())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.path().is_file() {
            paths.push(path);
        } else if !matches!(path.as_str(), "target" | ".git") {
            walk(&entry.path(), &format!("{path}/"), paths)?;
        }
    }
    Ok(())
}
