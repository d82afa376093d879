//! The ways to a product that are compared: options of a plan, and their names.

mod short;
mod text;

use windrow::{Algorithm, Csr, Permutation, Precision, Schedule, Spmm, SpmmBuilder, SpmmOptions, Value};

/// What a plan is told, and how `B` lies; written `row-split-f32`, with what is not the default behind it:
/// `hybrid-f16+rcm+fast`.
///
/// | option | meaning |
/// | --- | --- |
/// | `+reorder` | rows in the similarity order |
/// | `+minhash`, `+rcm`, `+community`, `+degree` | rows in the order of that [`Method`](windrow::reorder::Method) |
/// | `+fast` | [`Determinism::Fast`](windrow::Determinism::Fast) |
/// | `+window-each` | a warp for each window instead of windows dealt out evenly |
/// | `+dense`, `+packed`, `+bitmap` | the values of tiles in that form ([`TileValues`](windrow::TileValues)) instead of the plan's choice |
/// | `+two-stages`, `+registers` | rows of `B` to Tensor Cores by that [`TilePipeline`](windrow::TilePipeline), in f16 |
/// | `+sequential`, `+multi-stream`, `+thresholds` | the parts of a hybrid in that [`Schedule`] instead of the plan's choice |
/// | `+vectors`, `+vectors:2/8` | a hybrid divided by column vectors as Libra's are, with its threshold or that one |
/// | `+point:1/8row:4col:8` | segment groups divided as the point `{<1/8 row, 4 col>, 8}` says |
/// | `+launch:256:8:1/2` | their launch: threads of a block, columns of a tile or `-`, share of the workers |
/// | `+rows:64:32:1` | how row-split divides the work: entries of a piece or `whole`, columns of a slice, whether several ways; `-` for what it prefers |
/// | `+tasks:8:64` | how the CPU deals the product out: ranges of rows a thread, columns of a tile or `-` |
/// | `+memory_limit=1048576` | any other field of [`SpmmOptions`] with its value as JSON; in a list of paths one without commas |
/// | `+column-major` | a column-major `B` |
///
/// # Examples
/// ```
/// use windrow::{Preprocessing, SpmmOptions};
/// use windrow_bench::measure::SweepPath;
///
/// let path: SweepPath = "auto-f16+fast+reorder".parse()?;
/// assert_eq!(path.to_string(), "auto-f16+reorder+fast");
/// let on_gpu = SpmmOptions { preprocessing: Preprocessing::Gpu, ..path.options };
/// assert_eq!(SweepPath::from(on_gpu).to_string(), "auto-f16+reorder+fast+preprocessing=gpu");
/// # Ok::<(), windrow_bench::measure::BenchError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SweepPath {
    /// What the plan is told, but for the width: that is the product's.
    pub options: SpmmOptions,
    /// Whether `B` is column-major.
    pub column_major: bool,
}

/// One stream and two.
pub(crate) const SCHEDULES: [Schedule; 2] = [Schedule::Sequential, Schedule::MultiStream];
/// The schedules that a path may name.
pub(crate) const NAMED_SCHEDULES: [Schedule; 3] =
    [Schedule::Sequential, Schedule::MultiStream, Schedule::Thresholds];

impl From<SpmmOptions> for SweepPath {
    /// With a row-major `B`; the width is left out.
    fn from(options: SpmmOptions) -> Self {
        let width = SpmmOptions::DEFAULT.width;
        Self { options: SpmmOptions { width, ..options }, column_major: false }
    }
}

impl SweepPath {
    /// What is measured unless told otherwise.
    pub const DEFAULT: [Self; 5] = [
        Self::new(Algorithm::RowSplit, Precision::F32),
        Self::new(Algorithm::RowSplit, Precision::F16),
        Self::new(Algorithm::TileStream, Precision::F16),
        Self::new(Algorithm::Hybrid, Precision::F16),
        Self::new(Algorithm::Auto, Precision::F16),
    ];

    /// An algorithm without options.
    #[must_use]
    pub const fn new(algorithm: Algorithm, precision: Precision) -> Self {
        let options = SpmmOptions { algorithm, precision, ..SpmmOptions::DEFAULT };
        Self { options, column_major: false }
    }

    /// Every path that has kernels, without options.
    pub fn all() -> impl Iterator<Item = Self> {
        Algorithm::ALL.into_iter().flat_map(|algorithm| {
            Precision::ALL
                .into_iter()
                .filter(move |&precision| algorithm.supports(precision))
                .map(move |precision| Self::new(algorithm, precision))
        })
    }

    /// The builder of a plan for it. An `order` that was found before saves the plan from finding the one that the
    /// options name.
    #[must_use]
    pub fn builder<'a, V: Value>(
        &self,
        csr: &'a Csr<V>,
        width: usize,
        order: Option<&'a Permutation>,
    ) -> SpmmBuilder<'a, Csr<V>> {
        let builder = Spmm::builder(csr).options(SpmmOptions { width, ..self.options });
        match order {
            Some(order) => builder.order(order),
            None => builder,
        }
    }
}

#[cfg(test)]
mod tests;
