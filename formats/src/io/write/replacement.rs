//! Files that appear whole or not at all.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

use super::super::WriteError;

/// Links that are followed, as many as Linux follows.
const MOST_LINKS: usize = 40;
/// Bytes collected before the system is asked to take them.
const BUFFER_BYTES: usize = 1 << 18;

/// Temporary files and folders that are yet to take the name of their target.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

pub(super) fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the file at `path` of what `write` writes: whoever looks finds what was there before, or all that is new.
///
/// The content goes to a temporary file beside the target (`.windrow-*.tmp`), which is brought to the disk and takes
/// the target's name in the end. If anything fails, the old file is as it was and the temporary one is removed; a
/// process that is killed leaves a temporary one behind. See [`remove_unfinished`] for signals.
///
/// A file that is replaced keeps its permissions, and its owner where the system allows it. A symbolic link stays, and
/// what it names is replaced; other hard links of the file keep the old content. What is there and is no regular file,
/// for example a pipe or `/dev/null`, is written as it is, and so are links to open files (`/dev/stdout`).
///
/// # Errors
/// [`WriteError::InFile`] around that of `write`, or around [`WriteError::Io`].
///
/// # Examples
/// ```
/// use windrow_formats::io;
///
/// let path = std::env::temp_dir().join(format!("windrow-doc-replace-{}", std::process::id()));
/// io::replace_file(&path, |writer| Ok(writer.write_all(b"old")?))?;
/// let full: Result<(), _> = io::replace_file(&path, |writer| {
///     writer.write_all(b"half of the new")?;
///     Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into())
/// });
/// assert!(full.is_err());
/// assert_eq!(std::fs::read(&path)?, b"old");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replace_file<T>(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    let path = path.as_ref();
    replace(path, write).map_err(|error| error.in_file(path))
}

/// The same; errors are without the file's name.
pub(super) fn replace<T>(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    Ok(match Target::of(path)? {
        Target::Direct(path) => {
            // Where a descriptor names a file, what others wrote to it stays.
            let mut file = BufWriter::with_capacity(BUFFER_BYTES, File::options().append(true).open(path)?);
            let made = write(&mut file)?;
            file.flush()?;
            made
        }
        Target::File { path, old } => {
            let mut file = BufWriter::with_capacity(BUFFER_BYTES, Replacement::new(path, old.as_ref())?);
            let made = write(&mut file)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
            made
        }
    })
}

/// Whether [`replace_file`] could begin: tells before long work that its result cannot be written.
///
/// # Errors
/// [`WriteError::InFile`] around [`WriteError::Io`].
pub fn check_target(path: impl AsRef<Path>) -> Result<(), WriteError> {
    let path = path.as_ref();
    let check = || match Target::of(path)? {
        Target::Direct(path) if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // Whoever opens a pipe and closes it ends what is read from it.
        Target::Direct(_) => Ok(()),
        Target::File { path, old } => Replacement::new(path, old.as_ref()).map(drop),
    };
    check().map_err(|error| WriteError::from(error).in_file(path))
}

/// Removes the temporary files and folders of all writers that are at work, for the signal handler of a program that is
/// about to end. While the guard lives, no writer begins or ends: what was not replaced before the call stays as it
/// was.
///
/// ```
/// let nothing_changes_any_more = windrow_formats::io::remove_unfinished();
/// assert_eq!(nothing_changes_any_more.removed(), 0);
/// ```
pub fn remove_unfinished() -> Unfinished {
    let mut paths = unfinished();
    let removed = remove(&mut paths);
    Unfinished { _paths: paths, removed }
}

/// How many could be removed: there is nobody to tell of others who could do better.
fn remove(paths: &mut Vec<PathBuf>) -> usize {
    let removed = |path: &PathBuf| fs::remove_file(path).is_ok() || fs::remove_dir_all(path).is_ok();
    paths.drain(..).filter(removed).count()
}

/// No writer begins or ends while it lives; see [`remove_unfinished`].
#[derive(Debug)]
#[must_use = "writers go on once it is dropped"]
pub struct Unfinished {
    _paths: MutexGuard<'static, Vec<PathBuf>>,
    removed: usize,
}

impl Unfinished {
    /// How many files and folders were removed.
    pub fn removed(&self) -> usize {
        self.removed
    }
}

/// What a name stands for.
enum Target {
    /// A regular file, links followed; `old` is what is there.
    File { path: PathBuf, old: Option<Metadata> },
    /// Anything else, which cannot be replaced.
    Direct(PathBuf),
}

impl Target {
    fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            match fs::symlink_metadata(&path) {
                // A link to an open file, as /dev/stdout is, must not make another file of that name.
                Ok(found) if found.is_symlink() && path.starts_with("/proc") => {
                    return Ok(Self::Direct(path));
                }
                Ok(found) if found.is_symlink() => path = folder_of(&path).join(fs::read_link(&path)?),
                Ok(found) if found.is_file() => return Ok(Self::File { path, old: Some(found) }),
                Ok(_) => return Ok(Self::Direct(path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Self::File { path, old: None });
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("more than {MOST_LINKS} symbolic links follow each other")))
    }
}

/// The folder that a file of this name is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file that takes the name of `target`, if it gets so far.
struct Replacement {
    /// There until it has.
    file: Option<NamedTempFile>,
    target: PathBuf,
}

impl Replacement {
    fn new(target: PathBuf, old: Option<&Metadata>) -> io::Result<Self> {
        if old.is_some() {
            // Whoever may not write the file may still replace it; that is not for us to do.
            File::options().write(true).open(&target)?;
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".windrow-").suffix(".tmp");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut paths = unfinished();
        let file = builder.tempfile_in(folder_of(&target)).map_err(|error| in_folder(&error))?;
        paths.push(file.path().to_owned());
        drop(paths);
        if let Some(old) = old {
            keep_permissions(file.as_file(), old);
        }
        Ok(Self { file: Some(file), target })
    }

    fn finish(mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let synced = file.as_file().sync_all();
        let mut paths = unfinished();
        let temporary = file.path().to_owned();
        let persisted = synced.and_then(|()| file.persist(&self.target).map_err(|failed| failed.error));
        paths.retain(|path| *path != temporary);
        drop(paths);
        persisted?;
        #[cfg(unix)]
        if let Ok(folder) = File::open(folder_of(&self.target)) {
            // The file is there; not every file system can bring a folder to the disk.
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.as_file_mut().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let mut paths = unfinished();
            paths.retain(|path| path != file.path());
            drop(file);
        }
    }
}

/// The contents are what matters: a file system without permissions or owners does as well.
fn keep_permissions(file: &File, old: &Metadata) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

        if file.metadata().is_ok_and(|new| (new.uid(), new.gid()) != (old.uid(), old.gid())) {
            let _ = fchown(file, Some(old.uid()), Some(old.gid()));
        }
        // What runs as its owner does so no longer with a new content, as when a file is written in place.
        let _ = file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777));
    }
    #[cfg(not(unix))]
    let _ = file.set_permissions(old.permissions());
}

/// The same error without the name of the temporary file, which says nothing to anybody.
pub(super) fn in_folder(error: &io::Error) -> io::Error {
    let text = error.to_string();
    let what = text.split_once(" at path ").map_or(&*text, |(what, _)| what);
    io::Error::new(error.kind(), format!("no temporary file can be made in its folder: {what}"))
}

#[cfg(test)]
mod tests;
