//! The setters of a plan's options.

use super::options::{AttentionAlgorithm, AttentionOptions, AttentionScores, HeadLayout};
use crate::options::Precision;

/// Options of a plan of attention over the entries of a [`Csr`](windrow_formats::Csr); made by
/// [`GraphAttention::builder`](super::GraphAttention::builder).
#[derive(Debug)]
pub struct AttentionBuilder<'a, A> {
    pub(super) a: &'a A,
    pub(super) options: AttentionOptions,
}

impl<A> Clone for AttentionBuilder<'_, A> {
    fn clone(&self) -> Self {
        Self { a: self.a, options: self.options.clone() }
    }
}

impl<'a, A> AttentionBuilder<'a, A> {
    pub(super) fn new(a: &'a A) -> Self {
        Self { a, options: AttentionOptions::default() }
    }

    /// All options at once, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: AttentionOptions) -> Self {
        self.options = options;
        self
    }

    /// Heads of every operand, 1 unless told. All are one launch.
    #[must_use]
    pub fn heads(mut self, heads: usize) -> Self {
        self.options.heads = heads;
        self
    }

    /// Where operands have their heads, [`HeadLayout::Columns`] unless told.
    #[must_use]
    pub fn layout(mut self, layout: HeadLayout) -> Self {
        self.options.layout = layout;
        self
    }

    /// Additive scores, `scale · leaky_relu(Q[i] + K[j] + bias[i, j])`, instead of products: `Q` and `K` have one
    /// column a head, of f32. The rectifier multiplies sums below zero by `negative_slope`.
    ///
    /// # Examples
    /// ```
    /// use windrow::{AttentionOperands, Csr, DenseRef, Device, DeviceMatrix, GraphAttention};
    ///
    /// let device = Device::best()?;
    /// let a = Csr::from_dense(1, 2, &[1.0f32, 1.0])?;
    /// let plan = GraphAttention::builder(&a).additive(0.2).columns(1).build(&device)?;
    /// // Sums 1 − 1 and 1 − 6, scores 0 and −1: weights of 1 and 1/e.
    /// let out = plan.run(1.0, &[1.0f32], &[-1.0, -6.0], &[0.0, 1.0])?;
    /// assert!((out[0] - 1.0 / (1.0 + std::f32::consts::E)).abs() < 1e-6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn additive(mut self, negative_slope: f32) -> Self {
        self.options.scores = AttentionScores::Additive { negative_slope };
        self
    }

    /// Scores of `GATv2`, `scale · Σ_c a[c]·leaky_relu(Q[i, c] + K[j, c]) + bias[i, j]`, instead of products: operands
    /// have a [vector](super::AttentionOperands::vector) `a` for each head. The rectifier multiplies sums below zero by
    /// `negative_slope`.
    ///
    /// # Examples
    /// ```
    /// use windrow::{AttentionOperands, Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, GraphAttention};
    ///
    /// let device = Device::best()?;
    /// let a = Csr::from_dense(1, 2, &[1.0f32, 1.0])?;
    /// let plan = GraphAttention::builder(&a).gatv2(0.5).columns(1).build(&device)?;
    /// let on_device = |data: &[f32], rows| DeviceMatrix::upload(&device, DenseRef::packed(data, rows, 1)?);
    /// let (q, k, v) = (on_device(&[1.0], 1)?, on_device(&[-3.0, -2.0], 2)?, on_device(&[0.0, 1.0], 2)?);
    /// let vector = DeviceBuffer::from_slice(&device, &[2.0f32])?;
    /// let mut out = DeviceMatrix::<f32>::zeros(&device, 1, 1)?;
    /// // Sums −2 and −1, half of them times 2: weights of 1/e and 1.
    /// plan.forward_on(&device.stream(), 1.0, AttentionOperands::new(&q, &k, &v).vector(&vector), &mut out)?;
    /// assert!((out.download()?[0] - 1.0 / (1.0 + (-1f32).exp())).abs() < 1e-6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn gatv2(mut self, negative_slope: f32) -> Self {
        self.options.scores = AttentionScores::Gatv2 { negative_slope };
        self
    }

    /// Columns of each head of `Q`, `K`, `V` and the result, at most 256; 64 unless told. Of additive scores those of
    /// `V` and the result.
    #[must_use]
    pub fn columns(mut self, columns: usize) -> Self {
        self.options.columns = columns;
        self
    }

    /// Columns of each head of `V` and the result, if they are not those of `Q` and `K`.
    #[must_use]
    pub fn value_columns(mut self, columns: usize) -> Self {
        self.options.value_columns = Some(columns);
        self
    }

    /// Type of `Q`, `K` and `V`, [`Precision::F32`] unless told; f16 and bf16 are the others. Of additive scores that
    /// of `V`.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// The algorithm, [`AttentionAlgorithm::Auto`] unless told.
    #[must_use]
    pub fn algorithm(mut self, algorithm: AttentionAlgorithm) -> Self {
        self.options.algorithm = algorithm;
        self
    }

    /// Rows of a window on Tensor Cores, 4 or 8, instead of what suits the matrix.
    #[must_use]
    pub fn window_rows(mut self, rows: u32) -> Self {
        self.options.window_rows = Some(rows);
        self
    }

    /// Whether runs have a bias for each entry; no unless told. Windows by columns have none.
    #[must_use]
    pub fn biased(mut self, biased: bool) -> Self {
        self.options.biased = biased;
        self
    }

    /// Whether the plan computes [gradients](super::AttentionPlan::backward_on), too, for which it also has the
    /// transpose of the matrix, windows of both where Tensor Cores serve, and four numbers for each row and head; no
    /// unless told.
    #[must_use]
    pub fn gradients(mut self, gradients: bool) -> Self {
        self.options.gradients = gradients;
        self
    }

    /// Device memory that the plan may take, in bytes; operands are the caller's. No limit unless told. Every stream
    /// but the device's own takes what pieces of long windows leave once more.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }
}
