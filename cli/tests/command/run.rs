//! Running the command, and folders for its files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// Standard output as one JSON object of this schema, after a success without a word on standard error
    /// that is an error.
    #[track_caller]
    pub(crate) fn json(&self, schema: &str) -> Value {
        self.succeeded();
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        let object: Value = serde_json::from_str(&self.stdout).expect("standard output is JSON");
        assert_eq!(object["schema"], schema);
        assert_eq!(object["windrow"], env!("CARGO_PKG_VERSION"));
        object
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert!(!self.stderr.contains("error"), "{self:?}");
        self
    }

    /// It ended with `code`, and the last line on standard error is an error that says all of `parts`.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, parts: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.contains("error: "), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in {:?}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }

    /// Standard output has a line with all of `parts`.
    #[track_caller]
    pub(crate) fn says(&self, parts: &[&str]) -> &Self {
        let found = self.stdout.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line with {parts:?} in\n{}", self.stdout);
        self
    }
}

/// The command, not started.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windrow"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs `windrow` with `arguments`.
#[track_caller]
pub(crate) fn windrow(arguments: &[&str]) -> Outcome {
    finish(&mut command(arguments))
}

#[track_caller]
pub(crate) fn finish(command: &mut Command) -> Outcome {
    let output = command.output().expect("the command starts");
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}

/// A file of the repository's `data`.
pub(crate) fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data").join(name);
    path.to_str().expect("the repository's path is UTF-8").to_owned()
}

/// A folder of its own, removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("windrow-cli-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder for temporary files can be written");
        Self(path)
    }

    /// The path of a file in the folder.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("temporary paths are UTF-8").to_owned()
    }

    /// A file with this content.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("the folder for temporary files can be written");
        path
    }

    /// Names of the files in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.0)
            .expect("the folder is there")
            .map(|file| file.expect("the folder can be read").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Bytes in temporary files of writers at work.
    pub(crate) fn unfinished_bytes(&self) -> u64 {
        let unfinished = self.names().into_iter().filter(|name| name.starts_with(".windrow-"));
        // One that is gone since has its name.
        unfinished.filter_map(|name| Some(std::fs::metadata(self.0.join(name)).ok()?.len())).sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
