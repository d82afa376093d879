//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use windrow::io::WriteError;

/// A file to be written by way of a temporary one beside it, which takes its name in the end: whoever looks finds what
/// was there before, or all that is new. Dropped before, it leaves nothing behind.
///
/// What is there and is no file, for example a pipe or `/dev/null`, is written as it is.
#[derive(Debug)]
pub(crate) struct Replacement {
    /// The name that was asked for, for messages.
    name: PathBuf,
    /// The file, links resolved.
    target: PathBuf,
    temporary: Option<PathBuf>,
}

impl Replacement {
    /// Makes the temporary file, so that a folder that cannot be written is found out before the work.
    ///
    /// # Errors
    /// [`WriteError::InFile`] with the name that was asked for.
    pub(crate) fn of(path: &Path) -> Result<Self, WriteError> {
        let name = path.to_owned();
        let (target, temporary) = Self::begin(path).map_err(|error| in_file(path, WriteError::Io(error)))?;
        Ok(Self { name, target, temporary })
    }

    fn begin(path: &Path) -> io::Result<(PathBuf, Option<PathBuf>)> {
        let old = fs::metadata(path).ok();
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok((path.to_owned(), None));
        }
        let target = if old.is_some() { path.canonicalize()? } else { path.to_owned() };
        if old.is_some() {
            // Whoever may not write the file may still replace it; that is not for us to do.
            File::options().write(true).open(&target)?;
        }
        let temporary = create_beside(&target)?;
        if let Some(old) = old {
            // The contents are what matters: a file system without permissions does as well.
            let _ = fs::set_permissions(&temporary, old.permissions());
        }
        Ok((target, Some(temporary)))
    }

    /// Writes the content: `write` is given the path to write to.
    ///
    /// # Errors
    /// Those of `write`, with the name that was asked for.
    pub(crate) fn write(
        &self,
        write: impl FnOnce(&Path) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        write(self.temporary.as_ref().unwrap_or(&self.target)).map_err(|error| in_file(&self.name, error))
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`WriteError::InFile`]; what was there before then still is.
    pub(crate) fn finish(mut self) -> Result<(), WriteError> {
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.target)
                .map_err(|error| in_file(&self.name, WriteError::Io(error)))?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // There is nobody to tell who could do better.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A new file in the folder of `target`, behind the same ending, which may mean compression.
fn create_beside(target: &Path) -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let mut name = std::ffi::OsString::from(format!(".windrow-{}-{number}", std::process::id()));
        if let Some(extension) = target.extension() {
            name.push(".");
            name.push(extension);
        }
        let path = target.with_file_name(name);
        match File::create_new(&path) {
            Ok(_) => return Ok(path),
            // Left behind by a process that was killed and had the same number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// `error` with the name `path` around it, and no other.
fn in_file(path: &Path, error: WriteError) -> WriteError {
    let source = match error {
        WriteError::InFile { source, .. } => source,
        other => Box::new(other),
    };
    WriteError::InFile { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("windrow-replace-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn files(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn content(text: &str) -> impl Fn(&Path) -> Result<(), WriteError> {
        move |path| fs::write(path, text).map_err(WriteError::Io)
    }

    #[test]
    fn the_old_file_is_there_until_the_new_one_is_whole() {
        let folder = Folder::new("whole");
        let path = folder.0.join("a.order.gz");
        fs::write(&path, "old").unwrap();
        let file = Replacement::of(&path).unwrap();
        file.write(|path| {
            assert_eq!(path.extension().unwrap(), "gz");
            content("new")(path)
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(folder.files(), 1);
    }

    #[test]
    fn what_is_dropped_leaves_nothing() {
        let folder = Folder::new("dropped");
        let path = folder.0.join("a");
        for _ in 0..2 {
            let file = Replacement::of(&path).unwrap();
            file.write(content("half")).unwrap();
            assert_eq!(folder.files(), 1);
        }
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn errors_name_what_was_asked_for() {
        let folder = Folder::new("errors");
        let path = folder.0.join("none").join("a");
        let error = Replacement::of(&path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: cannot write", path.display())), "{error}");
        let file = Replacement::of(&folder.0).unwrap();
        let error = file.write(content("a folder")).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: cannot write", folder.0.display())), "{error}");
        assert_eq!(folder.files(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_pipes_pipes() {
        use std::os::unix::fs::PermissionsExt;

        let folder = Folder::new("links");
        let (path, link) = (folder.0.join("a"), folder.0.join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = Replacement::of(&link).unwrap();
        file.write(content("new")).unwrap();
        file.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);

        let nowhere = Replacement::of(Path::new("/dev/null")).unwrap();
        nowhere.write(content("new")).unwrap();
        nowhere.finish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
