//! Products of dense activations with vector-wise N:M weights, `A[m×k]·W[k×n]`, on the CPU.
//!
//! Rows of `A` become the lanes of vectors: `A` is first laid out in *panels* of one vector of rows or two, k-major and
//! in f32, so that what one weight multiplies lies together. The sums of a *tile*, four columns of `C` by the rows of a
//! panel, stay in registers while the kept rows are walked, one fused multiply-add per vector and weight. All columns
//! of a tile are of one vector of the weights and so multiply the same rows of the panel, which are found by one index.
//!
//! The kept rows are walked in blocks, whose part of a panel stays in the L1 cache for all tiles of a chunk of columns.
//!
//! An element is always summed in the order of the kept rows, whatever the panels or the number of threads, so results
//! are the same bit for bit in every run, and the same on every vector unit that has fused multiply-add.

use std::ops::Range;

use windrow_formats::memory::{try_with_room, try_zeroed};
use windrow_formats::{OutOfMemory, Value, VectorNm};

use super::unit::Unit;
use super::vector::{Portable, Vector};
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2, Avx512};
use super::{SERIAL_LIMIT, each_chunk, each_task};
use crate::dense::DenseRef;
use crate::num::{narrow, wide};
use crate::options::Precision;
use crate::tf32;

/// Vectors of a panel, at most: with four columns, the sums take eight registers.
const PANEL_VECTORS: usize = 2;
/// Columns of a tile.
const TILE_COLUMNS: usize = 4;
/// Columns of a chunk, at most: the weights of a chunk stay in the L2 cache while panels go by.
const CHUNK_COLUMNS: usize = 64;
/// Panels that a task takes, at most.
const PANELS_PER_TASK: usize = 8;
/// Tasks per thread: enough that one that takes longer than its share is made up for.
const TASKS_PER_THREAD: usize = 4;
/// Kept rows that go by all tiles of a chunk before the next ones: what they name of a panel stays in the L1 cache.
const BLOCK_ROWS: usize = 128;
/// Rows of `W` that are laid out at a time: their part of a panel stays in the L1 cache.
const STAGED_ROWS: usize = 64;

/// Weights as the CPU multiplies them.
///
/// Invariants: every source is below `k`; a tile that begins at column `j` has its weights at `kept_rows·j`, kept row
/// after kept row; `chunks` are columns at which tiles begin, ascending from 0 to `n`.
#[derive(Debug)]
pub(crate) struct GatheredWeights {
    k: usize,
    n: usize,
    vector: usize,
    kept_rows: usize,
    /// Row of `W` of each kept row, vector after vector.
    sources: Vec<u32>,
    values: Vec<f32>,
    chunks: Vec<usize>,
}

/// Panels × chunks, cut into so many of each a task.
struct Tasks {
    panels: usize,
    per_task: usize,
    chunks: usize,
    chunks_per_task: usize,
}

impl Tasks {
    fn len(&self) -> usize {
        self.panels.div_ceil(self.per_task) * self.chunks.div_ceil(self.chunks_per_task)
    }

    /// Panels and chunks of a task.
    fn get(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let of_panels = self.chunks.div_ceil(self.chunks_per_task);
        let cut = |at: usize, len: usize, part: usize| at * part..len.min((at + 1) * part);
        (
            cut(task / of_panels, self.panels, self.per_task),
            cut(task % of_panels, self.chunks, self.chunks_per_task),
        )
    }
}

/// `A[m×k]` in panels of `width` rows, each k × `width`; zeros where a panel has fewer.
#[derive(Debug)]
pub(crate) struct Panels {
    data: Vec<f32>,
    rows: usize,
    k: usize,
    width: usize,
    unit: Unit,
}

impl GatheredWeights {
    /// The pattern of `weights`, with one of `values` for each of its own.
    ///
    /// # Panics
    /// Unless there are as many.
    pub(crate) fn new<V: Sync>(weights: &VectorNm<V>, values: &[f32]) -> Result<Self, OutOfMemory> {
        let (k, n, vector) = (weights.rows(), weights.cols(), weights.pattern().l());
        let kept_rows = weights.kept_rows();
        assert_eq!(values.len(), weights.kept(), "one value for each that is kept");
        // A chunk ends where the next tile would make it too long, so it has more than half of the columns it may have.
        let mut chunks = try_with_room(2 + n / (CHUNK_COLUMNS - TILE_COLUMNS), "chunks of columns")?;
        chunks.push(0);
        let mut laid_out = Self { k, n, vector, kept_rows, sources: vec![], values: vec![], chunks };
        if n == 0 || kept_rows == 0 {
            laid_out.chunks.extend((0..n).step_by(CHUNK_COLUMNS).map(|start| n.min(start + CHUNK_COLUMNS)));
            return Ok(laid_out);
        }
        laid_out.sources = try_zeroed(kept_rows * weights.vectors(), "source_rows")?;
        each_chunk(&mut laid_out.sources, kept_rows, &|v, sources| {
            sources.iter_mut().enumerate().for_each(|(u, source)| *source = narrow(weights.source_row(u, v)));
        });
        laid_out.values = try_zeroed(values.len(), "values")?;
        each_chunk(&mut laid_out.values, kept_rows.saturating_mul(vector), &|v, mut to| {
            for columns in tiles(weights.vector_columns(v), (n, vector)) {
                let (tile, rest) = to.split_at_mut(kept_rows * columns.len());
                for (tile, row) in tile.chunks_exact_mut(columns.len()).zip(values.chunks_exact(n)) {
                    tile.copy_from_slice(&row[columns.clone()]);
                }
                to = rest;
            }
        });
        for tile in tiles(0..n, (n, vector)) {
            let start = laid_out.chunks[laid_out.chunks.len() - 1];
            if tile.end - start > CHUNK_COLUMNS {
                laid_out.chunks.push(tile.start);
            }
        }
        laid_out.chunks.push(n);
        Ok(laid_out)
    }

    /// Size in bytes, before it is allocated: of the rows, and of the weights.
    pub(crate) fn bytes<V>(weights: &VectorNm<V>) -> [u64; 2] {
        [4 * wide(weights.indices().len()), 4 * wide(weights.kept())]
    }

    /// Calls `finish` once for each row and each chunk of columns with the row, the first of the columns and their sums
    /// `(A·W)[row][column..]`, which it may overwrite, on the threads of the current rayon pool.
    ///
    /// # Panics
    /// If the panels are of activations with another `k`.
    pub(crate) fn multiply(&self, panels: &Panels, finish: impl Fn(usize, usize, &mut [f32]) + Sync) {
        assert_eq!(panels.k, self.k, "A is m x k");
        assert!(panels.unit.exists());
        let work = wide(panels.rows).saturating_mul(wide(self.n)).saturating_mul(wide(self.kept_rows.max(1)));
        let tasks = self.deal_out(panels.count(), rayon::current_num_threads());
        let compute = |task: usize| {
            let (panels_of_task, chunks) = tasks.get(task);
            for chunk in chunks.clone() {
                for panel in panels_of_task.clone() {
                    self.compute(panels, panel, chunk, &finish);
                }
            }
        };
        if work < SERIAL_LIMIT {
            (0..tasks.len()).for_each(compute);
        } else {
            each_task(tasks.len(), &compute);
        }
    }

    /// Cuts panels × chunks into tasks that cover them: by panels, and by chunks where there are few panels.
    fn deal_out(&self, panels: usize, threads: usize) -> Tasks {
        let wanted = threads * TASKS_PER_THREAD;
        let per_task = (panels / wanted).clamp(1, PANELS_PER_TASK);
        let chunks = self.chunks.len() - 1;
        let ranges = wanted.div_ceil(panels.div_ceil(per_task).max(1)).min(chunks);
        let chunks_per_task = chunks.div_ceil(ranges.max(1)).max(1);
        Tasks { panels, per_task, chunks, chunks_per_task }
    }

    /// One chunk of columns of the rows of one panel.
    fn compute(
        &self,
        panels: &Panels,
        panel: usize,
        chunk: usize,
        finish: &(impl Fn(usize, usize, &mut [f32]) + Sync),
    ) {
        let (first, end) = (self.chunks[chunk], self.chunks[chunk + 1]);
        let width = panels.width;
        let mut sums = [0.0f32; CHUNK_COLUMNS * PANEL_VECTORS * Unit::MOST_LANES];
        if self.kept_rows > 0 {
            let staged = &panels.data[panel * self.k * width..][..self.k * width];
            for block in (0..self.kept_rows).step_by(BLOCK_ROWS) {
                let rows = BLOCK_ROWS.min(self.kept_rows - block);
                for tile in tiles(first..end, (self.n, self.vector)) {
                    let sources = tile.start / self.vector * self.kept_rows + block;
                    let values = tile.start * self.kept_rows + block * tile.len();
                    let weights =
                        (&self.sources[sources..][..rows], &self.values[values..][..rows * tile.len()]);
                    let sums = &mut sums[(tile.start - first) * width..][..tile.len() * width];
                    // SAFETY: the machine has the unit, as `multiply` checked; sources are below `k`, an invariant of
                    // the type, and `staged` has `width` elements for each of the `k` rows.
                    unsafe { sum_tile(panels.unit, (staged, width), weights, sums) };
                }
            }
        }
        let mut row_sums = [0.0f32; CHUNK_COLUMNS];
        for lane in 0..width.min(panels.rows - panel * width) {
            let row_sums = &mut row_sums[..end - first];
            for (sum, column) in row_sums.iter_mut().zip(sums.chunks_exact(width)) {
                *sum = column[lane];
            }
            finish(panel * width + lane, first, row_sums);
        }
    }
}

impl Panels {
    /// `a`, which is m × k, or k × m if `k_major`, as it is multiplied in this precision.
    pub(crate) fn new<T: Value>(
        a: DenseRef<'_, T>,
        k_major: bool,
        precision: Precision,
    ) -> Result<Self, OutOfMemory> {
        Self::on(Unit::best(), a, k_major, precision)
    }

    fn on<T: Value>(
        unit: Unit,
        a: DenseRef<'_, T>,
        k_major: bool,
        precision: Precision,
    ) -> Result<Self, OutOfMemory> {
        let (rows, k) = if k_major { (a.cols(), a.rows()) } else { (a.rows(), a.cols()) };
        let width = unit.lanes() * rows.div_ceil(unit.lanes()).clamp(1, PANEL_VECTORS);
        let mut panels = Self { data: Vec::new(), rows, k, width, unit };
        if k == 0 {
            return Ok(panels);
        }
        panels.data = try_zeroed(panels.count() * k * width, "a copy of A")?;
        let round = precision == Precision::Tf32;
        let as_multiplied = |element: T| {
            let x = element.to_f32();
            if round { tf32::round(x) } else { x }
        };
        each_chunk(&mut panels.data, k * width, &|panel, to| {
            let own = panel * width..rows.min((panel + 1) * width);
            if k_major {
                for (r, to) in to.chunks_exact_mut(width).enumerate() {
                    for (to, &element) in to.iter_mut().zip(&a.row(r)[own.clone()]) {
                        *to = as_multiplied(element);
                    }
                }
                return;
            }
            for (first, to) in (0..k).step_by(STAGED_ROWS).zip(to.chunks_mut(STAGED_ROWS * width)) {
                for (lane, row) in own.clone().enumerate() {
                    for (to, &element) in to[lane..].iter_mut().step_by(width).zip(&a.row(row)[first..]) {
                        *to = as_multiplied(element);
                    }
                }
            }
        });
        Ok(panels)
    }

    fn count(&self) -> usize {
        self.rows.div_ceil(self.width)
    }
}

/// Tiles of a matrix of `n` columns in vectors, from one column at which a tile begins to another: of four columns,
/// fewer at the end of a vector.
fn tiles(columns: Range<usize>, (n, vector): (usize, usize)) -> impl Iterator<Item = Range<usize>> {
    let mut start = columns.start;
    std::iter::from_fn(move || {
        if start >= columns.end {
            return None;
        }
        let end_of_vector = (start / vector).saturating_add(1).saturating_mul(vector).min(n);
        let tile = start..end_of_vector.min(start + TILE_COLUMNS);
        start = tile.end;
        Some(tile)
    })
}

/// Adds to the sums of a tile of up to four columns:
/// `sums[j·width + lane] += Σ staged[sources[u]·width + lane]·values[u·columns + j]`.
///
/// # Safety
/// The machine has the unit; every source is below the number of rows of `staged`, which are `width` elements
/// each.
unsafe fn sum_tile(unit: Unit, panel: (&[f32], usize), weights: (&[u32], &[f32]), sums: &mut [f32]) {
    // SAFETY: the caller promises that the machine has the unit and that sources are rows of the panel.
    unsafe {
        match unit {
            Unit::Portable => of_width::<Portable>(panel, weights, sums),
            #[cfg(target_arch = "x86_64")]
            Unit::Avx2 => sum_avx2(panel, weights, sums),
            #[cfg(target_arch = "x86_64")]
            Unit::Avx512 => sum_avx512(panel, weights, sums),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sum_avx2(panel: (&[f32], usize), weights: (&[u32], &[f32]), sums: &mut [f32]) {
    // SAFETY: as for [`sum_tile`]; this function is compiled for the unit that the machine has.
    unsafe { of_width::<Avx2>(panel, weights, sums) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
unsafe fn sum_avx512(panel: (&[f32], usize), weights: (&[u32], &[f32]), sums: &mut [f32]) {
    // SAFETY: as for [`sum_tile`]; this function is compiled for the unit that the machine has.
    unsafe { of_width::<Avx512>(panel, weights, sums) }
}

/// As [`sum_tile`], for one unit.
#[inline(always)]
unsafe fn of_width<V: Vector<Scalar = f32>>(
    (staged, width): (&[f32], usize),
    weights: (&[u32], &[f32]),
    sums: &mut [f32],
) {
    // SAFETY: as for [`sum_tile`]: sources are rows of the panel, and the machine has the unit of `V`.
    unsafe {
        match (width / V::LANES, sums.len() / width) {
            (1, 1) => of_columns::<V, 1, 1>(staged, weights, sums),
            (1, 2) => of_columns::<V, 1, 2>(staged, weights, sums),
            (1, 3) => of_columns::<V, 1, 3>(staged, weights, sums),
            (1, _) => of_columns::<V, 1, 4>(staged, weights, sums),
            (_, 1) => of_columns::<V, 2, 1>(staged, weights, sums),
            (_, 2) => of_columns::<V, 2, 2>(staged, weights, sums),
            (_, 3) => of_columns::<V, 2, 3>(staged, weights, sums),
            (_, _) => of_columns::<V, 2, 4>(staged, weights, sums),
        }
    }
}

/// As [`sum_tile`], for `COLUMNS` columns and panels of `VECTORS` vectors.
#[inline(always)]
unsafe fn of_columns<V: Vector<Scalar = f32>, const VECTORS: usize, const COLUMNS: usize>(
    staged: &[f32],
    (sources, values): (&[u32], &[f32]),
    sums: &mut [f32],
) {
    let width = VECTORS * V::LANES;
    assert!(sums.len() == COLUMNS * width && values.len() == COLUMNS * sources.len());
    // SAFETY: the machine has the unit and each source is a row of `staged`, of `width` elements, as the caller
    // promises; `sums` has as many for each column, as just checked.
    unsafe {
        let mut tile = [[V::splat(0.0); VECTORS]; COLUMNS];
        for (column, from) in tile.iter_mut().zip(sums.chunks_exact(width)) {
            for (sum, from) in column.iter_mut().zip(from.chunks_exact(V::LANES)) {
                *sum = V::load(from.as_ptr());
            }
        }
        for (&source, values) in sources.iter().zip(values.chunks_exact(COLUMNS)) {
            let from = staged.as_ptr().add(source as usize * width);
            let mut rows = [V::splat(0.0); VECTORS];
            for (i, rows) in rows.iter_mut().enumerate() {
                *rows = V::load(from.add(i * V::LANES));
            }
            for (column, &value) in tile.iter_mut().zip(values) {
                let value = V::splat(value);
                for (sum, rows) in column.iter_mut().zip(rows) {
                    *sum = value.multiply_add(rows, *sum);
                }
            }
        }
        for (column, to) in tile.into_iter().zip(sums.chunks_exact_mut(width)) {
            for (sum, to) in column.into_iter().zip(to.chunks_exact_mut(V::LANES)) {
                sum.store(to.as_mut_ptr());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use windrow_testkit::{
        NmCase, NmLayout, Tally, UNIT_FMA, assert_nm_matches, nm_edge_cases, nm_random_case,
    };

    use super::*;

    /// `A·W` of the case, on `unit` and as many threads.
    fn product(unit: Unit, threads: usize, case: &NmCase) -> Vec<f32> {
        let (rows, cols) = case.stored_a();
        let a = DenseRef::try_new(&case.a, rows, cols, case.lda).unwrap();
        let panels = Panels::on(unit, a, case.layout == NmLayout::KMajor, Precision::F32).unwrap();
        let weights = GatheredWeights::new(&case.weights, case.weights.values()).unwrap();
        let n = case.n();
        let c = Mutex::new(vec![f32::NAN; case.m * n]);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            weights.multiply(&panels, |row, column, sums| {
                let to = &mut c.lock().unwrap()[row * n + column..][..sums.len()];
                assert!(to.iter().all(|x| x.is_nan()), "{}: written twice", case.name);
                to.copy_from_slice(sums);
            });
        });
        c.into_inner().unwrap()
    }

    /// The case without all that comes after the product.
    fn bare(case: NmCase) -> NmCase {
        let (alpha, beta, scale, bias) = (1.0, 0.0, 1.0, None);
        let (ldc, activation) = (case.n(), windrow_testkit::NmActivation::Identity);
        NmCase { alpha, beta, scale, bias, ldc, activation, gated: false, ..case }
    }

    fn check(unit: Unit) {
        if !unit.exists() {
            eprintln!("gathered products on {unit:?}: skipped, this machine does not have it");
            return;
        }
        let mut tally = Tally::new(format!("gathered products on {unit:?}"));
        for case in nm_edge_cases().into_iter().chain((0..40).map(nm_random_case)).map(bare) {
            let once = product(unit, 1, &case);
            tally.ran(&assert_nm_matches(&case, &once, case.n(), UNIT_FMA));
            assert_eq!(once, product(unit, 3, &case), "{}: depends on the threads", case.name);
        }
        tally.finish();
    }

    #[test]
    fn portable() {
        check(Unit::Portable);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn vector_units() {
        check(Unit::Avx2);
        check(Unit::Avx512);
    }
}
