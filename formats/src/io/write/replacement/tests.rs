//! What is there while a file is replaced, and after.

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn names(&self) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(self.0.path()).unwrap().map(name).collect();
        names.sort();
        names
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn put(path: &Path, content: &str) -> Result<(), WriteError> {
    replace_file(path, |writer| Ok(writer.write_all(content.as_bytes())?))
}

#[test]
fn the_old_file_is_there_until_the_new_one_is_whole() {
    let folder = Folder::new();
    let path = folder.file("a.mtx", "old");
    // More than is buffered, so that the temporary file has some of it.
    let new = "new ".repeat(BUFFER_BYTES);
    let returned = replace_file(&path, |writer| {
        writer.write_all(new.as_bytes())?;
        assert_eq!(text(&path), "old");
        let names = folder.names();
        assert!(names.len() == 2 && names[0].starts_with(".windrow-") && names[0].ends_with(".tmp"));
        assert!(fs::metadata(folder.path(&names[0])).unwrap().len() > 0);
        Ok(7)
    });
    assert_eq!(returned.unwrap(), 7);
    assert_eq!((text(&path), folder.names()), (new, vec!["a.mtx".to_owned()]));
}

#[test]
fn a_writer_that_fails_or_panics_changes_nothing() {
    let folder = Folder::new();
    let path = folder.file("a", "old");
    let failed = replace_file(&path, |writer| -> Result<(), _> {
        writer.write_all(b"half")?;
        Err(WriteError::UnknownExtension)
    });
    let failed = failed.unwrap_err();
    assert!(matches!(failed.cause(), WriteError::UnknownExtension), "{failed}");
    assert!(failed.to_string().starts_with(&path.display().to_string()), "{failed}");
    let panicked = std::panic::catch_unwind(|| {
        replace_file(&path, |writer| -> Result<(), _> {
            writer.write_all(b"half")?;
            panic!("a value that cannot be spelled")
        })
    });
    assert!(panicked.is_err());
    assert_eq!((text(&path), folder.names()), ("old".to_owned(), vec!["a".to_owned()]));
}

#[test]
fn errors_name_what_was_asked_for() {
    let folder = Folder::new();
    for path in [folder.path("none").join("a"), folder.0.path().to_owned()] {
        for error in [put(&path, "new").unwrap_err(), check_target(&path).unwrap_err()] {
            let error = error.to_string();
            assert!(error.starts_with(&format!("{}: cannot write", path.display())), "{error}");
            assert!(!error.contains(".windrow-"), "{error}");
        }
    }
    assert!(folder.names().is_empty());
}

#[test]
fn checking_leaves_nothing() {
    let folder = Folder::new();
    let path = folder.file("a", "old");
    check_target(&path).unwrap();
    check_target(folder.path("b")).unwrap();
    assert_eq!((text(&path), folder.names()), ("old".to_owned(), vec!["a".to_owned()]));
}

#[cfg(unix)]
#[test]
fn permissions_stay_and_new_files_have_the_usual_ones() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let path = folder.file("a", "old");
    for bits in [0o640, 0o600, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
        put(&path, "new").unwrap();
        assert_eq!(mode(&path), bits);
    }
    // A program that had its owner's rights must not have them with another content.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    put(&path, "new").unwrap();
    assert_eq!(mode(&path), 0o755);
    let (new, usual) = (folder.path("new"), folder.file("usual", ""));
    put(&new, "new").unwrap();
    assert_eq!(mode(&new), mode(&usual));
}

#[cfg(unix)]
#[test]
fn links_stay_links() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new();
    let path = folder.file("a", "old");
    symlink("a", folder.path("near")).unwrap();
    symlink(folder.path("near"), folder.path("far")).unwrap();
    put(&folder.path("far"), "new").unwrap();
    assert_eq!(text(&path), "new");
    // One that names nothing yet.
    symlink("b", folder.path("ahead")).unwrap();
    put(&folder.path("ahead"), "new").unwrap();
    assert_eq!(text(&folder.path("b")), "new");
    for name in ["near", "far", "ahead"] {
        assert!(fs::symlink_metadata(folder.path(name)).unwrap().is_symlink(), "{name}");
    }
    symlink("round", folder.path("round")).unwrap();
    let error = put(&folder.path("round"), "new").unwrap_err().to_string();
    assert!(error.contains("more than 40 symbolic links"), "{error}");
    // Another name of the same file keeps what it had.
    fs::hard_link(&path, folder.path("second")).unwrap();
    put(&path, "newer").unwrap();
    assert_eq!((text(&path), text(&folder.path("second"))), ("newer".to_owned(), "new".to_owned()));
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_no_file_is_written_as_it_is() {
    use std::os::fd::AsRawFd;

    put(Path::new("/dev/null"), "new").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let error = put(Path::new("/dev/full"), "new").unwrap_err().to_string();
    assert!(error.starts_with("/dev/full: cannot write: No space left"), "{error}");
    // As the shell opens one for `>>`.
    let folder = Folder::new();
    let path = folder.file("a", "old, ");
    let open = File::options().append(true).open(&path).unwrap();
    put(Path::new(&format!("/proc/self/fd/{}", open.as_raw_fd())), "new").unwrap();
    assert_eq!((text(&path), folder.names()), ("old, new".to_owned(), vec!["a".to_owned()]));
}

#[test]
fn what_is_abandoned_is_removed_and_nothing_begins() {
    let folder = Folder::new();
    let path = folder.file("a", "old");
    let mut replacement = Replacement::new(path.clone(), None).unwrap();
    replacement.write_all(b"half").unwrap();
    let temporary = replacement.file.as_ref().unwrap().path().to_owned();
    // Other tests write at the same time: theirs stay.
    let mut paths = unfinished();
    let (own, others): (Vec<_>, Vec<_>) = paths.drain(..).partition(|path| *path == temporary);
    *paths = own;
    assert_eq!(remove(&mut paths), 1);
    *paths = others;
    assert_eq!(folder.names(), ["a"]);
    let finished = std::thread::spawn(move || replacement.finish());
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!finished.is_finished(), "it waits");
    drop(paths);
    assert!(finished.join().unwrap().is_err());
    assert_eq!(text(&path), "old");
}
