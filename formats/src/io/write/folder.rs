//! Folders that appear whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::super::{WriteError, printable};
use super::replacement::{folder_of, in_folder, unfinished};

/// How the file ends that tells which files belong together.
const INDEX_END: &str = ".json";

/// Whether a folder could be made at `path`, as [`write_model`](super::write_model) makes one: tells before long work
/// that its result cannot be written. What is there must be nothing, or an empty folder.
///
/// # Errors
/// [`WriteError::InFile`] around [`WriteError::Io`].
pub fn check_new_folder(path: impl AsRef<Path>) -> Result<(), WriteError> {
    let path = path.as_ref();
    NewFolder::new(path).map(drop).map_err(|error| WriteError::from(error).in_file(path))
}

/// A temporary folder (`.windrow-*.tmp`) beside `target`, which takes its name if it gets so far. Where there is an
/// empty folder, which may be a link, a disk of its own or the one that a shell is in, it stays: the temporary one is
/// in it, and what that holds is moved up.
pub(super) struct NewFolder {
    /// There until it has.
    folder: Option<TempDir>,
    target: PathBuf,
    /// Whether the target is there.
    is_inside: bool,
}

impl NewFolder {
    pub(super) fn new(target: &Path) -> io::Result<Self> {
        // A name that ends in a slash, or in a dot, has no place beside it.
        let target: PathBuf = target.components().collect();
        let is_inside = match fs::read_dir(&target).map(|mut entries| entries.next()) {
            Ok(None) => true,
            Ok(Some(entry)) => {
                let name = printable(entry?.file_name());
                let why =
                    format!("the folder is there and not empty, it has {name}; name another, or empty it");
                return Err(taken(why));
            }
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(&target).is_err() =>
            {
                if target.file_name().is_none() {
                    return Err(io::Error::new(error.kind(), "no folder can have this name; name a new one"));
                }
                false
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) => {
                let why = "something that is no folder has this name; name a new folder";
                return Err(taken(why.to_owned()));
            }
            Err(error) => return Err(error),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".windrow-").suffix(".tmp");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let mut paths = unfinished();
        let parent = if is_inside { &target } else { folder_of(&target) };
        let folder = builder.tempdir_in(parent).map_err(|error| in_folder(&error))?;
        paths.push(folder.path().to_owned());
        drop(paths);
        Ok(Self { folder: Some(folder), target, is_inside })
    }

    /// A new file in it. No file is made once unfinished ones were removed: then this waits for the end of the process.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let paths = unfinished();
        let Some(folder) = &self.folder else { return Err(io::ErrorKind::NotFound.into()) };
        let file = File::create_new(folder.path().join(name));
        drop(paths);
        file
    }

    /// Brings the files to where they belong: all at once with their folder, or, into one that is there, one after
    /// another, the index last.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let Some(folder) = self.folder.take() else { return Ok(()) };
        let mut paths = unfinished();
        paths.retain(|path| path != folder.path());
        let finished = match self.is_inside {
            true => move_up(folder.path(), &self.target),
            false => fs::rename(folder.path(), &self.target),
        };
        if finished.is_ok() && !self.is_inside {
            let _ = folder.keep();
        } else {
            drop(folder);
        }
        drop(paths);
        finished?;
        #[cfg(unix)]
        if let Ok(parent) = File::open(if self.is_inside { &self.target } else { folder_of(&self.target) }) {
            // The folder is there; not every file system can bring one to the disk.
            let _ = parent.sync_all();
        }
        Ok(())
    }
}

/// Moves the files of a folder to another, the index last; none of them if one cannot be moved.
fn move_up(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(from)? {
        names.push(entry?.file_name());
    }
    names.sort_by_key(|name| (name.as_encoded_bytes().ends_with(INDEX_END.as_bytes()), name.clone()));
    let mut moved: Vec<PathBuf> = Vec::new();
    let mut move_all = || {
        for name in &names {
            let target = to.join(name);
            if fs::symlink_metadata(&target).is_ok() {
                let name = printable(name);
                return Err(taken(format!("the folder has got a {name} since; name another folder")));
            }
            fs::rename(from.join(name), &target)?;
            moved.push(target);
        }
        Ok(())
    };
    let result = move_all();
    if result.is_err() {
        moved.iter().for_each(|path| _ = fs::remove_file(path));
    }
    result
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

fn taken(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}
