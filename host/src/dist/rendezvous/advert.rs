//! The file in which rank 0 says where it is.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windrow_formats::io::replace_file;

/// Where rank 0 waits, and what it knows its own group by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Advert {
    /// In the place of a name: no other file has it.
    windrow_rendezvous: SocketAddr,
    token: u64,
}

impl Advert {
    pub(super) fn address(&self) -> SocketAddr {
        self.windrow_rendezvous
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// What a file says, or why it says nothing.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path).map_err(|error| format!("the file: {error}"))?;
        serde_json::from_slice(&text).map_err(|_| "the file is none of a rendezvous".to_owned())
    }

    /// Writes it; the file is removed with the value that is returned.
    pub(super) fn write(path: &Path, address: SocketAddr, token: u64) -> Result<Written, String> {
        if path.exists() {
            Self::read(path)?; // of an earlier group, or somebody's that is not ours to replace
        }
        let advert = Self { windrow_rendezvous: address, token };
        let text = serde_json::to_vec(&advert).map_err(|error| error.to_string())?;
        replace_file(path, |writer| Ok(writer.write_all(&text)?)).map_err(|error| error.to_string())?;
        Ok(Written { path: path.to_owned(), advert })
    }
}

/// A file that is there until this is dropped.
pub(super) struct Written {
    path: PathBuf,
    advert: Advert,
}

impl Drop for Written {
    fn drop(&mut self) {
        if Advert::read(&self.path).as_ref() == Ok(&self.advert) {
            // An error leaves a file that the next group replaces.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A number that no other group has.
pub(super) fn new_token() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
