//! What was tuned: for products of a structure and a width, the way that was quickest on a device.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use windrow_formats::{Csr, Value};
use windrow_preprocess::reorder::Method;

use crate::device::Device;
use crate::num::{index, wide};
use crate::options::{Algorithm, CpuTasks, Determinism, Precision, RowDivision, TileValues};
use crate::parallelism::{AtomicParallelism, GroupLaunch};
use crate::profile::{cache_path, write_whole};

/// Version of the file's form.
const SCHEMA: u32 = 1;

/// A way to a product: what [`Algorithm::Auto`] may take instead of its own choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The algorithm.
    #[serde(with = "text")]
    pub algorithm: Algorithm,
    /// The order of the rows, if not the matrix's own; it is found when a plan is made.
    #[serde(with = "optional_text", default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Method>,
    /// How segment groups divide the work.
    #[serde(with = "optional_text", default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<AtomicParallelism>,
    /// Their launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_launch: Option<GroupLaunch>,
    /// How row-split divides the work.
    #[serde(default, skip_serializing_if = "is_default")]
    pub row_division: RowDivision,
    /// How the values of tiles are held.
    #[serde(with = "text")]
    pub tile_values: TileValues,
    /// How the CPU deals the product out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_tasks: Option<CpuTasks>,
}

impl Choice {
    /// An algorithm, all else left to it.
    #[must_use]
    pub fn of(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            order: None,
            parallelism: None,
            group_launch: None,
            row_division: RowDivision::default(),
            tile_values: TileValues::Auto,
            cpu_tasks: None,
        }
    }
}

/// What a choice was tuned for: all matrices with these numbers count as the same.
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
    #[serde(with = "text")]
    precision: Precision,
    #[serde(with = "text")]
    determinism: Determinism,
}

impl ProductKey {
    /// The key of products of `a` with matrices of `width` columns.
    ///
    /// # Cost
    /// Linear in rows.
    #[must_use]
    pub fn new<V: Value>(a: &Csr<V>, width: usize, precision: Precision, determinism: Determinism) -> Self {
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

/// A choice that is remembered, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedProduct {
    key: ProductKey,
    /// What was quickest.
    pub choice: Choice,
    /// Its time when it was tuned, in microseconds.
    pub us: f64,
    /// The default's time beside it.
    pub default_us: f64,
}

/// What was tuned on a device model: for each structure, width, precision and determinism the quickest way.
///
/// `windrow tune FILE --width N` writes it to the user's cache folder, where [`load`](Self::load) finds it; plans with
/// [`Algorithm::Auto`] take what fits them by [`SpmmBuilder::tuned`](crate::SpmmBuilder::tuned).
///
/// # Examples
/// ```
/// use windrow::{Algorithm, Choice, CpuTasks, Csr, Determinism, Device, Precision, ProductKey, Spmm, Tuned};
///
/// let (device, a) = (Device::cpu(), Csr::<f32>::identity(3)?);
/// let mut tuned = Tuned::of(&device);
/// let key = ProductKey::new(&a, 2, Precision::F32, Determinism::RunToRun);
/// let tasks = CpuTasks { ranges_per_thread: 2, ..CpuTasks::default() };
/// let choice = Choice { cpu_tasks: Some(tasks), ..Choice::of(Algorithm::RowSplit) };
/// tuned.remember(key, choice, 10.0, 12.0);
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
        /// `read` or `written`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds no tuned choices, or those of another version.
    #[error("{} holds no tuned choices of this version ({reason}); remove it, and tune again", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
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

    /// Remembers `choice`, which took `us` microseconds where the default took `default_us`, instead of what was
    /// remembered for `key`.
    pub fn remember(&mut self, key: ProductKey, choice: Choice, us: f64, default_us: f64) {
        self.forget(&key);
        self.products.push(TunedProduct { key, choice, us, default_us });
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
        let tuned: Self = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
        for TunedProduct { choice, .. } in &tuned.products {
            if let (Some(point), Some(launch)) = (choice.parallelism, choice.group_launch) {
                launch.check(point).map_err(|error| malformed(error.to_string()))?;
            }
        }
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

/// Whether nothing is given.
fn is_default(division: &RowDivision) -> bool {
    *division == RowDivision::default()
}

/// Values as they are printed.
mod text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D: Deserializer<'de>>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
    {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The same of values that may be missing.
mod optional_text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serialize, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(ToString::to_string).serialize(to)
    }

    pub(super) fn deserialize<'de, T, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
    {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        ProductKey::new(&matrix(lengths), width, Precision::F32, Determinism::RunToRun)
    }

    fn choice() -> Choice {
        let launch = GroupLaunch { block_threads: 64, tile_columns: Some(8), workers_log2: -1 };
        Choice {
            parallelism: Some("{<1/4 row, 4 col>, 4}".parse().unwrap()),
            group_launch: Some(launch),
            order: Some(Method::Similarity),
            cpu_tasks: Some(CpuTasks { ranges_per_thread: 4, tile_columns: Some(32) }),
            row_division: RowDivision { piece_entries: Some(u32::MAX), ..RowDivision::default() },
            ..Choice::of(Algorithm::SegmentGroup)
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
        let of =
            |precision, determinism| ProductKey::new(&matrix(&[0, 1, 2, 3, 9]), 4, precision, determinism);
        assert_ne!(base, of(Precision::F16, Determinism::RunToRun));
        assert_ne!(base, of(Precision::F32, Determinism::Fast));
    }

    #[test]
    fn choices_come_back_as_they_were_saved() {
        let path = folder("round-trip").join("deep").join("tuned.json");
        assert!(Tuned::read(&path).unwrap().is_none());
        let mut tuned = Tuned::of(&Device::cpu());
        tuned.remember(key(&[1, 2], 4), Choice::of(Algorithm::TileStream), 2.0, 3.0);
        tuned.remember(key(&[1, 2], 4), choice(), 1.5, 3.0);
        tuned.remember(key(&[1, 2], 8), Choice::of(Algorithm::RowSplit), 1.0, 2.0);
        tuned.save(&path).unwrap();
        let read = Tuned::read(&path).unwrap().unwrap();
        assert_eq!(read, tuned);
        let found = read.get(&key(&[1, 2], 4)).unwrap();
        assert_eq!((&found.choice, found.us, found.default_us), (&choice(), 1.5, 3.0));
        assert!(read.get(&key(&[1, 3], 4)).is_none());
        assert!(tuned.forget(&key(&[1, 2], 4)) && !tuned.forget(&key(&[1, 2], 4)));
        fs::remove_dir_all(path.parent().unwrap().parent().unwrap()).unwrap();
    }

    #[test]
    fn what_holds_no_choices_is_refused_with_the_reason() {
        let path = folder("malformed").join("tuned.json");
        let mut tuned = Tuned::of(&Device::cpu());
        tuned.remember(key(&[1, 2], 4), choice(), 1.5, 3.0);
        let good = serde_json::to_string(&tuned).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for (text, reason) in [
            ("{".to_owned(), "EOF"),
            ("{}".to_owned(), "no schema"),
            ("{\"schema\":2,\"all else\":3}".to_owned(), "schema 2 where 1 is expected"),
            (good.replace("segment-group", "segment-grope"), "no algorithm"),
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
        let of_a = ProductKey::new(&a, 16, Precision::F32, Determinism::RunToRun);
        tuned.remember(of_a, Choice { order: None, cpu_tasks: None, ..choice() }, 1.0, 2.0);
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
