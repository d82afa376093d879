//! What was measured on a GPU model, for choices that the structure of a matrix does not settle.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use windrow_preprocess::partition::VectorThreshold;

use crate::device::Device;
use crate::plan::OccupancyRange;

/// Version of the file's form.
const SCHEMA: u32 = 1;

/// What was measured on a GPU model: thresholds of Libra's distribution, and of its schedule.
///
/// [`built_in`](Self::built_in) has what was measured for the architecture, or the paper's numbers where nothing was;
/// `windrow tune` measures the GPU at hand and keeps the result in the user's cache folder, where
/// [`load`](Self::load) finds it. Plans take a profile by [`SpmmBuilder::profile`](crate::SpmmBuilder::profile) and
/// [`SddmmBuilder::profile`](crate::SddmmBuilder::profile); without one they take the built-in.
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, Profile, Spmm};
///
/// let device = Device::best()?;
/// let profile = Profile::load(&device)?.unwrap_or_else(|| Profile::built_in(&device));
/// let plan = Spmm::builder(&Csr::<f32>::identity(3)?).profile(&profile).build(&device)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Profile {
    schema: u32,
    /// Name of the GPU model; empty for the built-in.
    pub device: String,
    /// When sparse-dense products run in two streams.
    pub spmm: OccupancyRange,
    /// When sampled products do.
    pub sddmm: OccupancyRange,
    /// Entries of a column vector from which on it goes to Tensor Cores, `⌈8·η⌉` of Libra.
    vector_entries: u32,
    /// Entries of a tile of 8 × 16 from which on sampled products take it to Tensor Cores.
    pub tile_entries: u32,
}

/// Why a profile could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file cannot be read or written.
    #[error("the profile {} cannot be {action}: {source}", path.display())]
    Io {
        /// What was to be done: `read` or `written`.
        action: &'static str,
        /// The file of the profile.
        path: PathBuf,
        /// What the operating system reports.
        source: io::Error,
    },
    /// The file is no profile, or one of another version.
    #[error("{} is no profile of this version ({reason}); make a new one with `windrow tune`", path.display())]
    Malformed {
        /// The file of the profile.
        path: PathBuf,
        /// What is wrong in the file, such as a number or the place where its syntax ends.
        reason: String,
    },
}

impl Profile {
    /// What was measured for the device's architecture (compute capability 9.0, on an H200), else the distributions of
    /// Libra, one part after the other.
    #[must_use]
    pub fn built_in(device: &Device) -> Self {
        let unknown = Self {
            schema: SCHEMA,
            device: String::new(),
            spmm: OccupancyRange::NEVER,
            sddmm: OccupancyRange::NEVER,
            vector_entries: VectorThreshold::LIBRA.entries(),
            tile_entries: 24,
        };
        match device.compute_capability() {
            Some((9, 0)) => {
                Self { sddmm: OccupancyRange::FILLED, vector_entries: 1, tile_entries: 1, ..unknown }
            }
            _ => unknown,
        }
    }

    /// The built-in profile under the name of the device, for numbers to be put in.
    #[must_use]
    pub fn of(device: &Device) -> Self {
        Self { device: device.name().to_owned(), ..Self::built_in(device) }
    }

    /// The least share of entries that a column vector must have to go to Tensor Cores.
    #[must_use]
    pub fn vector_threshold(&self) -> VectorThreshold {
        VectorThreshold::try_new(f64::from(self.vector_entries) / 8.0).unwrap_or(VectorThreshold::LIBRA)
    }

    /// Sets [`vector_threshold`](Self::vector_threshold), which is kept as eighths of a vector's rows.
    pub fn set_vector_threshold(&mut self, threshold: VectorThreshold) {
        self.vector_entries = threshold.entries();
    }

    /// Where the profile of the device's model is kept: `windrow/profile-MODEL.json` in the user's cache folder, or in
    /// the folder that `WINDROW_CACHE_DIR` names. `None` where there is neither.
    #[must_use]
    pub fn path(device: &Device) -> Option<PathBuf> {
        cache_path(device, "profile")
    }

    /// The profile that is kept for the device's model; `None` if there is none, or only one of another model.
    ///
    /// # Errors
    /// [`ProfileError`] for a file that is there and cannot be used.
    pub fn load(device: &Device) -> Result<Option<Self>, ProfileError> {
        let Some(path) = Self::path(device) else { return Ok(None) };
        Ok(Self::read(&path)?.filter(|profile| profile.device == device.name()))
    }

    fn read(path: &Path) -> Result<Option<Self>, ProfileError> {
        let malformed = |reason: String| ProfileError::Malformed { path: path.to_owned(), reason };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ProfileError::Io { action: "read", path: path.to_owned(), source }),
        };
        let profile: Self = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        if profile.schema != SCHEMA {
            return Err(malformed(format!("schema {} where {SCHEMA} is expected", profile.schema)));
        }
        if [profile.spmm, profile.sddmm].iter().any(|range| !(range.least >= 0.0 && range.most >= 0.0)) {
            return Err(malformed("a negative occupancy".to_owned()));
        }
        if !(1..=8).contains(&profile.vector_entries) {
            return Err(malformed(format!("{} entries in a vector of 8", profile.vector_entries)));
        }
        Ok(Some(profile))
    }

    /// Writes the profile to `path`, by way of a file beside it, so that nobody reads half a profile.
    ///
    /// # Errors
    /// [`ProfileError::Io`].
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let failed = |source| ProfileError::Io { action: "written", path: path.to_owned(), source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(io::Error::other(error)))?;
        write_whole(path, &text).map_err(failed)
    }
}

/// `windrow/KIND-MODEL.json` in the user's cache folder, or in the folder that `WINDROW_CACHE_DIR` names; `None` where
/// there is neither.
pub(crate) fn cache_path(device: &Device, kind: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("WINDROW_CACHE_DIR") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => dirs::cache_dir()?.join("windrow"),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let model: String = device.name().chars().map(plain).collect();
    Some(folder.join(format!("{kind}-{model}.json")))
}

/// Writes a file of the cache by way of one beside it.
pub(crate) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = path.with_extension(format!("json.{}", std::process::id()));
    fs::write(&beside, format!("{text}\n"))?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("windrow-profile-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn profiles_come_back_as_they_were_saved() {
        let path = folder("round-trip").join("deep").join("profile.json");
        assert!(Profile::read(&path).unwrap().is_none());
        let mut profile = Profile::of(&Device::cpu());
        assert_eq!((profile.vector_threshold(), profile.tile_entries), (VectorThreshold::LIBRA, 24));
        profile.set_vector_threshold(VectorThreshold::ALL[6]);
        profile.spmm = OccupancyRange { least: 0.25, most: f64::MAX };
        profile.save(&path).unwrap();
        assert_eq!(Profile::read(&path).unwrap(), Some(profile));
        fs::remove_dir_all(path.parent().unwrap().parent().unwrap()).unwrap();
    }

    #[test]
    fn what_is_no_profile_is_refused_with_the_reason() {
        let path = folder("malformed").join("profile.json");
        let good = serde_json::to_string(&Profile::of(&Device::cpu())).unwrap();
        for (text, reason) in [
            ("{".to_owned(), "EOF"),
            (good.replace("\"schema\":1", "\"schema\":2"), "schema 2 where 1 is expected"),
            (good.replace("\"vector_entries\":3", "\"vector_entries\":9"), "9 entries in a vector of 8"),
            (good.replacen("\"least\":0.0", "\"least\":-1.0", 1), "a negative occupancy"),
            (good.replace("tile_entries", "tile_entrees"), "unknown field"),
        ] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            let error = Profile::read(&path).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("windrow tune"), "{error}");
        }
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
