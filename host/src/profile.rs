//! What was measured on a GPU model, for choices that the structure of a matrix does not settle.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use windrow_preprocess::partition::VectorThreshold;

use crate::cache;
use crate::costs::DeviceCosts;
use crate::device::Device;
use crate::plan::{OccupancyRange, OccupancyThresholds};

/// Version of the file's form.
const SCHEMA: u32 = 1;

/// What was measured on a GPU model: thresholds of Libra's distribution, when two streams pay, and what work costs.
///
/// [`built_in`](Self::built_in) has what was measured for the architecture, or the paper's numbers where nothing was;
/// `windrow tune` measures the GPU at hand and keeps the result in the user's cache folder, where
/// [`load`](Self::load) finds it. Plans take a profile by [`SpmmBuilder::profile`](crate::SpmmBuilder::profile) and its
/// like of the other builders; without one they take the built-in.
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, Profile, Spmm};
///
/// let device = Device::best()?;
/// // A broken file of the cache need not stop a product.
/// let profile = Profile::load(&device).ok().flatten().unwrap_or_else(|| Profile::built_in(&device));
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
    /// When both do by [`Schedule::Thresholds`](crate::Schedule::Thresholds): what `windrow tune` fitted, else the
    /// paper's of an H100.
    #[serde(default = "thresholds")]
    pub thresholds: OccupancyThresholds,
    /// Entries of a column vector from which on it goes to Tensor Cores, `⌈8·η⌉` of Libra.
    vector_entries: u32,
    /// Entries of a tile of 8 × 16 from which on sampled products take it to Tensor Cores.
    pub tile_entries: u32,
    /// What work costs; the H200's in files of before there were costs.
    #[serde(default)]
    pub costs: DeviceCosts,
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
    /// A profile that could not be read back.
    #[error("this profile cannot be kept: {reason}")]
    Unfit {
        /// Which number cannot be kept, and why.
        reason: String,
    },
}

impl Profile {
    /// What was measured for the device's architecture (compute capability 9.0, on an H200), else the distributions of
    /// Libra, one part after the other; with [the costs](DeviceCosts::of) of the device.
    #[must_use]
    pub fn built_in(device: &Device) -> Self {
        let unknown = Self {
            schema: SCHEMA,
            device: String::new(),
            spmm: OccupancyRange::NEVER,
            sddmm: OccupancyRange::NEVER,
            thresholds: thresholds(),
            vector_entries: VectorThreshold::LIBRA.entries(),
            tile_entries: 24,
            costs: DeviceCosts::of(device),
        };
        match device.compute_capability() {
            Some((9, 0)) => {
                Self { sddmm: OccupancyRange::FILLED, vector_entries: 1, tile_entries: 1, ..unknown }
            }
            _ => unknown,
        }
    }

    /// The one that a caller gave, else the built-in.
    pub(crate) fn given_or_built_in(given: Option<&Self>, device: &Device) -> Self {
        given.cloned().unwrap_or_else(|| Self::built_in(device))
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
        cache::path(device, "profile")
    }

    /// The profile that is kept for the device's model; `None` if there is none, or only one of another model.
    ///
    /// # Errors
    /// [`ProfileError`] for a file that is there and cannot be used.
    pub fn load(device: &Device) -> Result<Option<Self>, ProfileError> {
        let Some(path) = Self::path(device) else { return Ok(None) };
        Ok(Self::read(&path)?.filter(|profile| profile.device == device.name()))
    }

    /// The profile in the file at `path`, for whichever model; `None` if there is no such file.
    ///
    /// # Errors
    /// [`ProfileError`] for a file that is there and cannot be used.
    pub fn read(path: &Path) -> Result<Option<Self>, ProfileError> {
        match cache::read(path) {
            Ok(None) => Ok(None),
            Ok(Some(text)) => match Self::parse(&text) {
                Ok(profile) => Ok(Some(profile)),
                Err(reason) => Err(ProfileError::Malformed { path: path.to_owned(), reason }),
            },
            Err(source) => Err(ProfileError::Io { action: "read", path: path.to_owned(), source }),
        }
    }

    /// A profile from JSON, or what is wrong with it.
    fn parse(text: &str) -> Result<Self, String> {
        let profile: Self = serde_json::from_str(text).map_err(|error| cache::reason(&error))?;
        if profile.schema != SCHEMA {
            return Err(format!("schema {} where {SCHEMA} is expected", profile.schema));
        }
        profile.check()?;
        Ok(profile)
    }

    /// What is wrong with the numbers.
    fn check(&self) -> Result<(), String> {
        for (what, OccupancyRange { least, most }) in [("spmm", self.spmm), ("sddmm", self.sddmm)] {
            if !(least.is_finite() && most.is_finite()) {
                return Err(format!(
                    "{what} in two streams from {least} to {most}: occupancies are finite, f64::MAX for no end"
                ));
            }
            if least < 0.0 || most < 0.0 {
                return Err(format!("{what} in two streams from {least} to {most}: a negative occupancy"));
            }
        }
        let OccupancyThresholds { cuda_cores, tensor_cores } = self.thresholds;
        if ![cuda_cores, tensor_cores].iter().all(|threshold| threshold.is_finite() && *threshold > 0.0) {
            return Err(format!(
                "thresholds {cuda_cores} and {tensor_cores}: occupancies are positive and finite"
            ));
        }
        if !(1..=8).contains(&self.vector_entries) {
            return Err(format!("{} entries in a vector of 8", self.vector_entries));
        }
        self.costs.nonsense().map_or(Ok(()), Err)
    }

    /// Makes the folder of `path` if there is none, and finds out whether [`save`](Self::save) can write there: before
    /// work whose result is to be kept.
    ///
    /// # Errors
    /// [`ProfileError::Io`].
    pub fn prepare(path: &Path) -> Result<(), ProfileError> {
        cache::prepare(path).map_err(|source| not_written(path, source))
    }

    /// Writes the profile to `path`, by way of a file beside it, so that nobody reads half a profile. What is there
    /// and cannot be read is moved aside, to `path` with `.broken` behind it.
    ///
    /// # Errors
    /// - [`ProfileError::Unfit`] for a profile that could not be read back as it is: numbers that are not finite,
    ///   occupancies that are negative;
    /// - [`ProfileError::Io`].
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        self.check().map_err(|reason| ProfileError::Unfit { reason })?;
        let text =
            serde_json::to_string_pretty(self).map_err(|error| not_written(path, io::Error::other(error)))?;
        // JSON has no number for NaN, nor for infinity.
        match Self::parse(&text) {
            Ok(read) if read == *self => {}
            Ok(_) => {
                return Err(ProfileError::Unfit { reason: "a number would come back as another".to_owned() });
            }
            Err(reason) => return Err(ProfileError::Unfit { reason }),
        }
        let written = cache::lock(path).and_then(|_locked| {
            if Self::read(path).is_err() {
                cache::set_aside(path);
            }
            cache::replace(path, &format!("{text}\n"))
        });
        written.map_err(|source| not_written(path, source))
    }
}

/// Libra's equation 8 where nothing else was measured.
fn thresholds() -> OccupancyThresholds {
    OccupancyThresholds::LIBRA_H100
}

fn not_written(path: &Path, source: io::Error) -> ProfileError {
    ProfileError::Io { action: "written", path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
    fn profiles_without_costs_have_those_of_the_h200() {
        let path = folder("without-costs").join("profile.json");
        let old = r#"{"schema":1,"device":"GPU","spmm":{"least":0.0,"most":0.0},"sddmm":{"least":0.0,"most":0.0},
                     "vector_entries":3,"tile_entries":24}"#;
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, old).unwrap();
        let profile = Profile::read(&path).unwrap().unwrap();
        assert_eq!((profile.costs, profile.device.as_str()), (DeviceCosts::H200, "GPU"));
        assert_eq!(profile.thresholds, OccupancyThresholds::LIBRA_H100);
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
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
            (
                good.replace("\"tensor_cores\":3.91", "\"tensor_cores\":0.0"),
                "thresholds 38.27 and 0: occupancies",
            ),
            (good.replace("\"gather_rate\":", "\"gather_rate\":-"), "costs.spmm.gather_rate is -"),
        ] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            let error = Profile::read(&path).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("windrow tune"), "{error}");
        }
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_could_not_be_read_back_is_not_saved() {
        let path = folder("unfit").join("profile.json");
        let all = OccupancyRange { least: 0.0, most: f64::INFINITY };
        let nothing = OccupancyRange { least: f64::NAN, most: 1.0 };
        let negative = OccupancyRange { least: -1.0, most: 1.0 };
        let mut costs = Profile::of(&Device::cpu());
        costs.costs.groups.alike = f64::NAN;
        assert!(costs.save(&path).unwrap_err().to_string().contains("invalid type: null"));
        for (range, reason) in [(all, "to inf"), (nothing, "from NaN"), (negative, "a negative occupancy")] {
            let profile = Profile { sddmm: range, ..Profile::of(&Device::cpu()) };
            let error = profile.save(&path).unwrap_err();
            assert!(
                matches!(&error, ProfileError::Unfit { reason: found } if found.contains(reason)),
                "{error}"
            );
        }
        assert!(!path.exists());
    }

    #[test]
    fn threads_save_one_path() {
        let path = folder("threads").join("profile.json");
        let profile = Profile::of(&Device::cpu());
        profile.save(&path).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        profile.save(&path).unwrap();
                        assert_eq!(Profile::read(&path).unwrap().as_ref(), Some(&profile));
                    }
                });
            }
        });
        // The file and its lock, no temporary ones.
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_is_broken_is_moved_aside() {
        let path = folder("broken").join("profile.json");
        fs::create_dir_all(&path).unwrap();
        let error = Profile::read(&path).unwrap_err().to_string();
        assert!(error.ends_with("cannot be read: it is no regular file"), "{error}");
        let profile = Profile::of(&Device::cpu());
        profile.save(&path).unwrap();
        assert_eq!(Profile::read(&path).unwrap(), Some(profile));
        assert!(path.with_extension("json.broken").is_dir());
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
