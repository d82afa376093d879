//! Folders that appear whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::super::WriteError;
use super::replacement::{folder_of, in_folder, unfinished};

/// Whether a folder could be made at `path`, as [`write_model`](super::write_model) makes one: tells before long work
/// that its result cannot be written. What is there must be nothing, or an empty folder.
///
/// # Errors
/// [`WriteError::InFile`] around [`WriteError::Io`].
pub fn check_new_folder(path: impl AsRef<Path>) -> Result<(), WriteError> {
    let path = path.as_ref();
    NewFolder::new(path).map(drop).map_err(|error| WriteError::from(error).in_file(path))
}

/// A temporary folder (`.windrow-*.tmp`) beside `target`, which takes its name if it gets so far.
pub(super) struct NewFolder {
    /// There until it has.
    folder: Option<TempDir>,
    target: PathBuf,
}

impl NewFolder {
    pub(super) fn new(target: &Path) -> io::Result<Self> {
        // A name that ends in a slash, or in a dot, has no place beside it.
        let target: PathBuf = target.components().collect();
        match fs::read_dir(&target).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(&target).is_err() => {}
            Ok(_) => {
                return Err(taken("the folder is there and not empty; name one that is not, or remove it"));
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) => {
                return Err(taken("something that is no folder has this name; name a new folder"));
            }
            Err(error) => return Err(error),
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".windrow-").suffix(".tmp");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let mut paths = unfinished();
        let folder = builder.tempdir_in(folder_of(&target)).map_err(|error| in_folder(&error))?;
        paths.push(folder.path().to_owned());
        drop(paths);
        Ok(Self { folder: Some(folder), target })
    }

    /// A new file in it. No file is made once unfinished ones were removed: then this waits for the end of the process.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let paths = unfinished();
        let Some(folder) = &self.folder else { return Err(io::ErrorKind::NotFound.into()) };
        let file = File::create_new(folder.path().join(name));
        drop(paths);
        file
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        let Some(folder) = self.folder.take() else { return Ok(()) };
        let mut paths = unfinished();
        paths.retain(|path| path != folder.path());
        // Only an empty folder gives way to another.
        let renamed = fs::rename(folder.path(), &self.target);
        if renamed.is_ok() {
            let _ = folder.keep();
        }
        drop(paths);
        renamed?;
        #[cfg(unix)]
        if let Ok(parent) = File::open(folder_of(&self.target)) {
            // The folder is there; not every file system can bring one to the disk.
            let _ = parent.sync_all();
        }
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            let mut paths = unfinished();
            paths.retain(|path| path != folder.path());
            drop(folder);
        }
    }
}

fn taken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}
