//! What a caller chooses for products with N:M weights.

use windrow_formats::names;

use crate::options::Precision;

/// How the activations `A[m×k]` are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ActivationLayout {
    /// Row after row: a row-major m × k matrix, as deep-learning frameworks have it.
    #[default]
    RowMajor,
    /// Column after column: a row-major k × m matrix, as NM-SpMM and nmSPARSE take it. Kernels read it as it is.
    KMajor,
}

impl ActivationLayout {
    /// Both layouts, the default first.
    pub const ALL: [Self; 2] = [Self::RowMajor, Self::KMajor];

    /// Rows and columns of `A[m×k]` as it is stored: `(m, k)` or `(k, m)`.
    #[must_use]
    pub const fn stored(self, m: usize, k: usize) -> (usize, usize) {
        match self {
            Self::RowMajor => (m, k),
            Self::KMajor => (k, m),
        }
    }
}

/// How a product with N:M weights is computed on a GPU. The CPU has one algorithm, whichever is asked of those that
/// there are for the precision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NmAlgorithm {
    /// Tensor Cores where they have kernels for the precision and the weights, sparse ones for those of which nothing
    /// can be seen that is dropped (2:4, 1:2, and other patterns in an order of the rows in which no more is multiplied
    /// than is kept) if they are quicker, else CUDA cores.
    #[default]
    Auto,
    /// CUDA cores, the kernels of the paper. Any precision but f64: products are those of f32, whatever operands are
    /// rounded to.
    CudaCores,
    /// Tensor Cores. f16, bf16 and tf32, for weights whose vectors are a multiple of 8 columns long or as long as
    /// rows, and not so sparse that the rows which 16 or 32 kept ones come from do not fit into shared memory. On
    /// compute capability 9.0 weights of f16 and bf16 whose vectors are a multiple of 128 columns long, or as long as
    /// rows, are multiplied by warpgroups, whatever share of the rows they keep.
    TensorCores,
    /// Sparse Tensor Cores, which multiply as if two of each four rows were kept, by an instruction that reads nothing
    /// of the others. f16 and bf16:
    ///
    /// - weights that keep no more than these, such as 2:4, 1:2, 1:4 and 2:8, with vectors of any length; `A` is read
    ///   fastest if it is row-major, and rows begin at multiples of 16 bytes. Few rows of `A` on any GPU from compute
    ///   capability 8.0 on, with the instruction of a warp; many are quick on 9.0 alone, with that of a warpgroup;
    /// - on 9.0 other patterns that keep half of the rows or fewer, such as 16:32, where 128 columns reach into eight
    ///   vectors at most: every 128 or 256 columns multiply the rows in an order of their own, in which that holds. `A`
    ///   is read k-major.
    ///
    /// Where fewer than two of four are kept, a weight of zero stands in: there, what is not finite in `A` makes `C`
    /// not a number though it was dropped, as in a dense product.
    SparseTensorCores,
    /// The dense product, by cuBLAS, with zeros where nothing is kept: for f32, tf32, f16 and bf16. The library is
    /// loaded when such a plan is made, and must be there. What is not finite in `A` makes its whole row of `C` not a
    /// number, where it was dropped, too: 0·∞ is none. `Auto` takes it with
    /// [`dense_fallback`](super::NmSpmmBuilder::dense_fallback) alone.
    Dense,
}

impl NmAlgorithm {
    /// Every algorithm, `Auto` first.
    pub const ALL: [Self; 5] =
        [Self::Auto, Self::CudaCores, Self::TensorCores, Self::SparseTensorCores, Self::Dense];

    /// Whether it multiplies in `precision`.
    #[must_use]
    pub const fn supports(self, precision: Precision) -> bool {
        match self {
            Self::Auto | Self::CudaCores | Self::Dense => !matches!(precision, Precision::F64),
            Self::TensorCores => precision.has_tile_kernels(),
            Self::SparseTensorCores => matches!(precision, Precision::F16 | Precision::Bf16),
        }
    }
}

/// Whether the columns of `A` that a block of weights names are packed when they are brought to shared memory (section
/// III-C1 of the paper), or all columns are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NmPacking {
    /// Packed where the sparsity makes it pay.
    #[default]
    Auto,
    /// Those that are named.
    Packed,
    /// All columns of the block's stage, named or not.
    Plain,
}

impl NmPacking {
    /// Every choice, `Auto` first.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Packed, Self::Plain];
}

names!(ActivationLayout, "layout of activations";
    RowMajor => "row-major", KMajor => "k-major");
names!(NmAlgorithm, "algorithm of products with N:M weights";
    Auto => "auto", CudaCores => "cuda-cores", TensorCores => "tensor-cores",
    SparseTensorCores => "sparse-tensor-cores", Dense => "dense");
names!(NmPacking, "packing";
    Auto => "auto", Packed => "packed", Plain => "plain");

/// The options of a plan as one plain value: what [`NmSpmmBuilder`](super::NmSpmmBuilder) sets one by one. As JSON a
/// missing field has its default, and a field that there is not is an error.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NmOptions {
    /// Rows of `A` that most products will have: [`NmSpmmBuilder::rows`](super::NmSpmmBuilder::rows).
    pub rows: usize,
    /// The type that `A` and the weights are rounded to: [`NmSpmmBuilder::precision`](super::NmSpmmBuilder::precision).
    pub precision: Precision,
    /// How `A` is stored: [`NmSpmmBuilder::layout`](super::NmSpmmBuilder::layout).
    pub layout: ActivationLayout,
    /// A factor of every product: [`NmSpmmBuilder::scale`](super::NmSpmmBuilder::scale).
    pub scale: f32,
    /// The algorithm on a GPU: [`NmSpmmBuilder::algorithm`](super::NmSpmmBuilder::algorithm).
    pub algorithm: NmAlgorithm,
    /// Whether `A` is promised to have no infinity and no NaN:
    /// [`NmSpmmBuilder::finite_activations`](super::NmSpmmBuilder::finite_activations).
    pub finite_activations: bool,
    /// Whether cuBLAS may multiply densely where that is quicker:
    /// [`NmSpmmBuilder::dense_fallback`](super::NmSpmmBuilder::dense_fallback).
    pub dense_fallback: bool,
    /// Whether columns of `A` are packed on their way to shared memory:
    /// [`NmSpmmBuilder::packing`](super::NmSpmmBuilder::packing).
    pub packing: NmPacking,
    /// Whether the choice of the kernel is checked by running a few:
    /// [`NmSpmmBuilder::autotune`](super::NmSpmmBuilder::autotune).
    pub autotune: bool,
    /// One entry point by its name, for measurements: [`NmSpmmBuilder::kernel`](super::NmSpmmBuilder::kernel).
    pub kernel: Option<String>,
    /// Device memory that the plan may take, in bytes:
    /// [`NmSpmmBuilder::memory_limit`](super::NmSpmmBuilder::memory_limit).
    pub memory_limit: Option<u64>,
}

impl Default for NmOptions {
    fn default() -> Self {
        Self {
            rows: 1024,
            precision: Precision::F32,
            layout: ActivationLayout::RowMajor,
            scale: 1.0,
            algorithm: NmAlgorithm::Auto,
            finite_activations: false,
            dense_fallback: false,
            packing: NmPacking::Auto,
            autotune: false,
            kernel: None,
            memory_limit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::str::FromStr;

    use windrow_formats::UnknownName;

    use super::*;

    #[test]
    fn names_round_trip() {
        fn check<T: Copy + PartialEq + fmt::Debug + fmt::Display + FromStr<Err = UnknownName>>(all: &[T]) {
            for &option in all {
                assert_eq!(option.to_string().parse::<T>().unwrap(), option);
            }
        }
        check(&ActivationLayout::ALL);
        check(&NmAlgorithm::ALL);
        check(&NmPacking::ALL);
        let error = "dense".parse::<NmPacking>().unwrap_err();
        assert_eq!(error.to_string(), "\"dense\" is no packing; there are auto, packed and plain");
    }

    #[test]
    fn options_round_trip_and_what_is_left_out_is_the_default() {
        let options =
            NmOptions { dense_fallback: true, algorithm: NmAlgorithm::Dense, ..NmOptions::default() };
        let text = serde_json::to_string(&options).unwrap();
        assert!(
            text.contains(r#""algorithm":"dense""#) && text.contains(r#""dense_fallback":true"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<NmOptions>(&text).unwrap(), options);
        let given = serde_json::from_str::<NmOptions>(r#"{"dense_fallback":true}"#).unwrap();
        assert_eq!(given, NmOptions { dense_fallback: true, ..NmOptions::default() });
        assert_eq!(serde_json::from_str::<NmOptions>("{}").unwrap(), NmOptions::default());
    }

    #[test]
    fn who_has_kernels_for_what() {
        for precision in Precision::ALL {
            let is = |these: &[Precision]| these.contains(&precision);
            assert_eq!(NmAlgorithm::CudaCores.supports(precision), !is(&[Precision::F64]), "{precision}");
            assert_eq!(NmAlgorithm::Dense.supports(precision), !is(&[Precision::F64]), "{precision}");
            let tensor_cores = !is(&[Precision::F32, Precision::F64]);
            assert_eq!(NmAlgorithm::TensorCores.supports(precision), tensor_cores, "{precision}");
            let sparse = is(&[Precision::F16, Precision::Bf16]);
            assert_eq!(NmAlgorithm::SparseTensorCores.supports(precision), sparse, "{precision}");
        }
    }
}
