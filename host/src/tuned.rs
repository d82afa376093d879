//! What was tuned: for products of a structure and a width, the way that was quickest on a device.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use windrow_formats::{Csr, Value};

use crate::device::Device;
use crate::num::{index, wide};
use crate::options::{Determinism, Precision};
use crate::profile::{cache_path, write_whole};
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
/// tuned.remember(ProductKey::new(&a, &options), options, 10.0, 12.0);
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
    #[error("{} holds no tuned choices of this version ({reason}); remove it, and tune again", path.display())]
    Malformed {
        /// The file of tuned choices.
        path: PathBuf,
        /// What is wrong in the file, such as a choice that there is not or the place where its syntax ends.
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
    pub fn remember(&mut self, key: ProductKey, options: SpmmOptions, us: f64, default_us: f64) {
        self.forget(&key);
        self.products.push(TunedProduct { key, options, us, default_us }.settled());
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
        cache_path(device, "tuned")
    }

    /// The choices that are kept for the device's model; `None` if there are none, or only those of another model.
    ///
    /// # Errors
    /// [`TunedError`] for a file that is there and cannot be used.
    pub fn load(device: &Device) -> Result<Option<Self>, TunedError> {
        let Some(path) = Self::path(device) else { return Ok(None) };
        Ok(Self::read(&path)?.filter(|tuned| tuned.device == device.name()))
    }

    fn read(path: &Path) -> Result<Option<Self>, TunedError> {
        let malformed = |reason: String| TunedError::Malformed { path: path.to_owned(), reason };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(TunedError::Io { action: "read", path: path.to_owned(), source }),
        };
        // The version first: what else a file of another one holds is not known.
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(schema) => return Err(malformed(format!("schema {schema} where {SCHEMA} is expected"))),
            None => return Err(malformed("it has no schema".to_owned())),
        }
        let mut tuned: Self = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
        for TunedProduct { options, .. } in &tuned.products {
            if let (Some(point), Some(launch)) = (options.parallelism, options.group_launch) {
                launch.check(point).map_err(|error| malformed(error.to_string()))?;
            }
        }
        tuned.products = tuned.products.into_iter().map(TunedProduct::settled).collect();
        Ok(Some(tuned))
    }

    /// Writes the choices to `path`, by way of a file beside it, so that nobody reads half of them.
    ///
    /// # Errors
    /// [`TunedError::Io`].
    pub fn save(&self, path: &Path) -> Result<(), TunedError> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        let written = text.and_then(|text| write_whole(path, &text));
        written.map_err(|source| TunedError::Io { action: "written", path: path.to_owned(), source })
    }
}

#[cfg(test)]
mod tests {
    use windrow_preprocess::reorder;

    use super::*;
    use crate::options::{Algorithm, CpuTasks, RowDivision};
    use crate::parallelism::GroupLaunch;
    use crate::spmm::Spmm;

    fn matrix(lengths: &[u64]) -> Csr<f32> {
        let offsets = std::iter::once(0).chain(lengths.iter().scan(0, |sum, len| {
            *sum += len;
            Some(*sum)
        }));
        let columns: Vec<u32> = lengths.iter().flat_map(|&len| 0..crate::num::narrow(index(len))).collect();
        let values = vec![1.0; columns.len()];
        Csr::try_from_parts(lengths.len(), 20, offsets.collect(), columns, values).unwrap()
    }

    fn key(lengths: &[u64], width: usize) -> ProductKey {
        ProductKey::new(&matrix(lengths), &SpmmOptions { width, ..SpmmOptions::DEFAULT })
    }

    fn of(algorithm: Algorithm) -> SpmmOptions {
        SpmmOptions { algorithm, ..SpmmOptions::DEFAULT }
    }

    fn options() -> SpmmOptions {
        let launch = GroupLaunch { block_threads: 64, tile_columns: Some(8), workers_log2: -1 };
        SpmmOptions {
            parallelism: Some("{<1/4 row, 4 col>, 4}".parse().unwrap()),
            group_launch: Some(launch),
            reorder: Some(reorder::Options::default()),
            cpu_tasks: Some(CpuTasks { ranges_per_thread: 4, tile_columns: Some(32) }),
            row_division: RowDivision { piece_entries: Some(u32::MAX), ..RowDivision::default() },
            ..of(Algorithm::SegmentGroup)
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("windrow-tuned-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn keys_tell_structures_apart_and_not_orders_of_rows() {
        let base = key(&[0, 1, 2, 3, 9], 4);
        assert_eq!(base.row_lengths, [1, 1, 2, 0, 1]);
        assert_eq!(base, key(&[9, 3, 0, 2, 1], 4));
        for other in [key(&[0, 1, 2, 4, 8], 4), key(&[0, 1, 2, 3, 9], 5), key(&[0, 1, 2, 3, 9, 0], 4)] {
            assert_ne!(base, other);
        }
        let product = SpmmOptions { width: 4, ..options() };
        let of = |options| ProductKey::new(&matrix(&[0, 1, 2, 3, 9]), &options);
        assert_eq!(base, of(product), "the way is not part of the product");
        assert_ne!(base, of(SpmmOptions { precision: Precision::F16, ..product }));
        assert_ne!(base, of(SpmmOptions { determinism: Determinism::Fast, ..product }));
    }

    #[test]
    fn ways_come_back_as_they_were_saved() {
        let path = folder("round-trip").join("deep").join("tuned.json");
        assert!(Tuned::read(&path).unwrap().is_none());
        let mut tuned = Tuned::of(&Device::cpu());
        tuned.remember(key(&[1, 2], 4), of(Algorithm::TileStream), 2.0, 3.0);
        // What is not the way is the key's, or left to the plan.
        let told = SpmmOptions { width: 5, precision: Precision::F16, memory_limit: Some(9), ..options() };
        tuned.remember(key(&[1, 2], 4), told, 1.5, 3.0);
        tuned.remember(key(&[1, 2], 8), of(Algorithm::RowSplit), 1.0, 2.0);
        tuned.save(&path).unwrap();
        let read = Tuned::read(&path).unwrap().unwrap();
        assert_eq!(read, tuned);
        let found = read.get(&key(&[1, 2], 4)).unwrap();
        let expected = SpmmOptions { width: 4, ..options() };
        assert_eq!((found.options, found.us, found.default_us), (expected, 1.5, 3.0));
        assert!(read.get(&key(&[1, 3], 4)).is_none());
        assert!(tuned.forget(&key(&[1, 2], 4)) && !tuned.forget(&key(&[1, 2], 4)));
        fs::remove_dir_all(path.parent().unwrap().parent().unwrap()).unwrap();
    }

    #[test]
    fn what_holds_no_choices_is_refused_with_the_reason() {
        let path = folder("malformed").join("tuned.json");
        let mut tuned = Tuned::of(&Device::cpu());
        tuned.remember(key(&[1, 2], 4), options(), 1.5, 3.0);
        let good = serde_json::to_string(&tuned).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for (text, reason) in [
            ("{".to_owned(), "EOF"),
            ("{}".to_owned(), "no schema"),
            ("{\"schema\":1,\"all else\":3}".to_owned(), "schema 1 where 2 is expected"),
            (good.replace("segment-group", "segment-grope"), "segment-grope"),
            (good.replace("1/4 row", "1/5 row"), "1/5"),
            (good.replace("\"block_threads\":64", "\"block_threads\":65"), "a multiple of 32"),
            (good.replace("default_us", "usual_us"), "unknown field"),
        ] {
            fs::write(&path, text).unwrap();
            let error = Tuned::read(&path).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("tune again"), "{error}");
        }
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[cfg(feature = "emulator")]
    #[test]
    fn auto_takes_a_choice_for_the_same_structure_on_the_same_device() {
        let device = Device::emulator(windrow_simt::emulator::Schedule::InOrder);
        let (a, other) = (matrix(&[1, 2, 3, 9]), matrix(&[1, 2, 3, 8]));
        let mut tuned = Tuned::of(&device);
        let remembered = SpmmOptions { width: 16, reorder: None, cpu_tasks: None, ..options() };
        tuned.remember(ProductKey::new(&a, &remembered), remembered, 1.0, 2.0);
        let plan = |a, width| Spmm::builder(a).width(width).tuned(&tuned);
        let built = plan(&a, 16).build(&device).unwrap();
        let report = built.report();
        assert_eq!((report.requested, report.algorithm), (Algorithm::Auto, Algorithm::SegmentGroup));
        assert_eq!(report.parallelism.as_deref(), Some("{<1/4 row, 4 col>, 4}, <4, 64, 8, 1/2>"));
        assert!(report.tuned && report.reason.starts_with("tuned: 1.0 µs"), "{}", report.reason);
        let b = vec![1.0; 20 * 16];
        assert_eq!(built.run(&b).unwrap()[..17], [[1.0; 16].as_slice(), &[2.0]].concat());
        let not_taken = [
            plan(&other, 16).build(&device),
            plan(&a, 17).build(&device),
            plan(&a, 16).determinism(Determinism::Fast).build(&device),
            plan(&a, 16).precision(Precision::F16).build(&device),
            plan(&a, 16).algorithm(Algorithm::RowSplit).build(&device),
            plan(&a, 16).build(&Device::cpu()),
        ];
        for built in not_taken {
            assert!(!built.unwrap().report().tuned);
        }
    }
}
