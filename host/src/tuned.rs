//! What was tuned: for products of a structure and a width, the way that was quickest on a device.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use windrow_formats::{Csr, Value};

use crate::cache;
use crate::device::Device;
use crate::num::{index, wide};
use crate::options::{Determinism, Precision};
use crate::spmm::SpmmOptions;

/// Version of the file's form.
const SCHEMA: u32 = 2;

/// What a product is, as far as tuning is concerned: all matrices with these numbers count as the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductKey {
    rows: u64,
    cols: u64,
    nnz: u64,
    longest_row: u64,
    /// Rows without entries, of 1, of 2 to 3, of 4 to 7, and so on.
    row_lengths: Vec<u64>,
    width: u64,
    precision: Precision,
    determinism: Determinism,
}

impl ProductKey {
    /// The key of products of `a`, of which the options say width, precision and determinism; what else they say is
    /// not part of it.
    ///
    /// # Cost
    /// Linear in rows.
    #[must_use]
    pub fn new<V: Value>(a: &Csr<V>, options: &SpmmOptions) -> Self {
        let SpmmOptions { width, precision, determinism, .. } = *options;
        let (mut longest_row, mut row_lengths) = (0, Vec::new());
        for ends in a.row_offsets().windows(2) {
            let length = ends[1] - ends[0];
            longest_row = longest_row.max(length);
            let class = index(u64::from(u64::BITS - length.leading_zeros()));
            if row_lengths.len() <= class {
                row_lengths.resize(class + 1, 0);
            }
            row_lengths[class] += 1;
        }
        let (rows, cols, nnz, width) = (wide(a.rows()), wide(a.cols()), wide(a.nnz()), wide(width));
        Self { rows, cols, nnz, longest_row, row_lengths, width, precision, determinism }
    }
}

/// A way to a product that is remembered, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedProduct {
    key: ProductKey,
    /// What was quickest: the key's width, precision and determinism, and the way to the product. An order of rows is
    /// found when a plan is made.
    pub options: SpmmOptions,
    /// Its time when it was tuned, in microseconds.
    pub us: f64,
    /// The default's time beside it.
    pub default_us: f64,
}

impl TunedProduct {
    /// With options of the key's product, of which nothing stays but the way.
    fn settled(self) -> Self {
        let ProductKey { width, precision, determinism, .. } = self.key;
        let product = SpmmOptions { width: index(width), precision, determinism, ..SpmmOptions::DEFAULT };
        Self { options: product.with_way_of(&self.options), ..self }
    }

    /// What is wrong with it.
    fn check(&self) -> Result<(), String> {
        let Self { options, us, default_us, .. } = self;
        if !(us.is_finite() && default_us.is_finite()) {
            return Err(format!("{us} µs where the default took {default_us}: times are finite"));
        }
        if let (Some(point), Some(launch)) = (options.parallelism, options.group_launch) {
            launch.check(point).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// What was tuned on a device model: for each structure, width, precision and determinism the quickest way.
///
/// `windrow tune FILE --width N` writes it to the user's cache folder, where [`load`](Self::load) finds it; plans with
/// [`Algorithm::Auto`](crate::Algorithm::Auto) take what fits them by
/// [`SpmmBuilder::tuned`](crate::SpmmBuilder::tuned).
///
/// # Examples
/// ```
/// use windrow::{CpuTasks, Csr, Device, ProductKey, Spmm, SpmmOptions, Tuned};
///
/// let (device, a) = (Device::cpu(), Csr::<f32>::identity(3)?);
/// let mut tuned = Tuned::of(&device);
/// let tasks = CpuTasks { ranges_per_thread: 2, ..CpuTasks::default() };
/// let options = SpmmOptions { width: 2, cpu_tasks: Some(tasks), ..SpmmOptions::default() };
/// tuned.remember(ProductKey::new(&a, &options), options, 10.0, 12.0)?;
///
/// let plan = Spmm::builder(&a).width(2).tuned(&tuned).build(&device)?;
/// assert_eq!(plan.report().reason, "tuned: 10.0 µs where the default took 12.0");
/// let plan = Spmm::builder(&a).width(3).tuned(&tuned).build(&device)?;
/// assert!(!plan.report().tuned); // another width
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuned {
    schema: u32,
    device: String,
    products: Vec<TunedProduct>,
}

/// Why what was tuned could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TunedError {
    /// The file cannot be read or written.
    #[error("the tuned choices {} cannot be {action}: {source}", path.display())]
    Io {
        /// What was to be done: `read` or `written`.
        action: &'static str,
        /// The file of tuned choices.
        path: PathBuf,
        /// What the operating system reports.
        source: io::Error,
    },
    /// The file holds no tuned choices, or those of another version.
    #[error("{} holds no tuned choices of this version ({reason}); tune again, which replaces it", path.display())]
    Malformed {
        /// The file of tuned choices.
        path: PathBuf,
        /// What is wrong in the file, such as a choice that there is not or the place where its syntax ends.
        reason: String,
    },
    /// A choice that could not be read back.
    #[error("this choice cannot be remembered: {reason}")]
    Unfit {
        /// Which number cannot be kept, and why.
        reason: String,
    },
}

impl Tuned {
    /// Nothing yet, for the model of `device`.
    #[must_use]
    pub fn of(device: &Device) -> Self {
        Self { schema: SCHEMA, device: device.name().to_owned(), products: Vec::new() }
    }

    /// The name of the device model.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// What is remembered for a key.
    #[must_use]
    pub fn get(&self, key: &ProductKey) -> Option<&TunedProduct> {
        self.products.iter().find(|product| product.key == *key)
    }

    /// Remembers the way of `options`, which took `us` microseconds where the default took `default_us`, instead of
    /// what was remembered for `key`.
    ///
    /// # Errors
    /// [`TunedError::Unfit`] for what could not be read back: times that are not finite, a launch that does not suit
    /// the division of work. What was remembered for `key` then still is.
    pub fn remember(
        &mut self,
        key: ProductKey,
        options: SpmmOptions,
        us: f64,
        default_us: f64,
    ) -> Result<(), TunedError> {
        let product = TunedProduct { key, options, us, default_us }.settled();
        product.check().map_err(|reason| TunedError::Unfit { reason })?;
        self.forget(&product.key);
        self.products.push(product);
        Ok(())
    }

    /// Forgets what was remembered for `key`; whether there was anything.
    pub fn forget(&mut self, key: &ProductKey) -> bool {
        let before = self.products.len();
        self.products.retain(|product| product.key != *key);
        self.products.len() < before
    }

    /// Where the choices for the device's model are kept: `windrow/tuned-MODEL.json` in the user's cache folder, or in
    /// the folder that `WINDROW_CACHE_DIR` names. `None` where there is neither.
    #[must_use]
    pub fn path(device: &Device) -> Option<PathBuf> {
        cache::path(device, "tuned")
    }

    /// The choices that are kept for the device's model; `None` if there are none, or only those of another model.
    ///
    /// # Errors
    /// [`TunedError`] for a file that is there and cannot be used.
    pub fn load(device: &Device) -> Result<Option<Self>, TunedError> {
        let Some(path) = Self::path(device) else { return Ok(None) };
        Ok(Self::read(&path)?.filter(|tuned| tuned.device == device.name()))
    }

    /// The choices in the file at `path`, for whichever model; `None` if there is no such file.
    ///
    /// # Errors
    /// [`TunedError`] for a file that is there and cannot be used.
    pub fn read(path: &Path) -> Result<Option<Self>, TunedError> {
        match cache::read(path) {
            Ok(None) => Ok(None),
            Ok(Some(text)) => match Self::parse(&text) {
                Ok(tuned) => Ok(Some(tuned)),
                Err(reason) => Err(TunedError::Malformed { path: path.to_owned(), reason }),
            },
            Err(source) => Err(TunedError::Io { action: "read", path: path.to_owned(), source }),
        }
    }

    /// Choices from JSON, or what is wrong with them.
    fn parse(text: &str) -> Result<Self, String> {
        // The version first: what else a file of another one holds is not known.
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| cache::reason(&error))?;
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(schema) => return Err(format!("schema {schema} where {SCHEMA} is expected")),
            None => return Err("it has no schema".to_owned()),
        }
        let mut tuned: Self = serde_json::from_value(value).map_err(|error| cache::reason(&error))?;
        tuned.products.iter().try_for_each(TunedProduct::check)?;
        tuned.products = tuned.products.into_iter().map(TunedProduct::settled).collect();
        Ok(tuned)
    }

    /// Makes the folder of `path` if there is none, and finds out whether [`update`](Self::update) can write there:
    /// before work whose result is to be kept.
    ///
    /// # Errors
    /// [`TunedError::Io`].
    pub fn prepare(path: &Path) -> Result<(), TunedError> {
        cache::prepare(path).map_err(|source| not_written(path, source))
    }

    /// Changes the choices in `path` for the model of `device`: reads them, lets `change` do what it does, and writes
    /// them if that was anything. Others who do the same at the same time wait, so that no one's change is lost.
    ///
    /// What is there and cannot be read is moved aside, to `path` with `.broken` behind it; choices for another model
    /// are written over.
    ///
    /// # Errors
    /// Those of `change`, after which the file is what it was, and those of [`save`](Self::save).
    pub fn update(
        path: &Path,
        device: &Device,
        change: impl FnOnce(&mut Self) -> Result<(), TunedError>,
    ) -> Result<(), TunedError> {
        let _locked = cache::lock(path).map_err(|source| not_written(path, source))?;
        let read = Self::read(path);
        let broken = read.is_err();
        let before = read.ok().flatten().filter(|tuned| tuned.device == device.name());
        let mut tuned = before.clone().unwrap_or_else(|| Self::of(device));
        change(&mut tuned)?;
        let same = match &before {
            Some(before) => tuned == *before,
            None => tuned.products.is_empty() && !broken,
        };
        if same {
            return Ok(());
        }
        if broken {
            cache::set_aside(path);
        }
        tuned.write(path)
    }

    /// Writes the choices to `path`, by way of a file beside it, so that nobody reads half of them. What was there is
    /// gone; [`update`](Self::update) keeps it.
    ///
    /// # Errors
    /// [`TunedError::Io`]; [`TunedError::Unfit`] for choices that [`load`](Self::load) would refuse.
    pub fn save(&self, path: &Path) -> Result<(), TunedError> {
        let _locked = cache::lock(path).map_err(|source| not_written(path, source))?;
        if Self::read(path).is_err() {
            cache::set_aside(path);
        }
        self.write(path)
    }

    fn write(&self, path: &Path) -> Result<(), TunedError> {
        let failed = |source| not_written(path, source);
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(io::Error::other(error)))?;
        // Choices that came by serde have not been looked at yet.
        Self::parse(&text).map_err(|reason| TunedError::Unfit { reason })?;
        cache::replace(path, &format!("{text}\n")).map_err(failed)
    }
}

fn not_written(path: &Path, source: io::Error) -> TunedError {
    TunedError::Io { action: "written", path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
