//! Every pattern, ragged ends, and type.

use half::{bf16, f16};
use windrow_simt::Word;
use windrow_simt::emulator::{Launch, Memory, Schedule};

use super::*;
use crate::element::{Bf16, Dtype, Element, F16, F32};
use crate::place_values::code;

/// Weights whose kept positions are made up.
struct Weights {
    rows: u32,
    columns: u32,
    kept: u32,
    of: u32,
    vector: u32,
}

impl Weights {
    fn kept_rows(&self) -> u32 {
        self.rows / self.of * self.kept + self.kept.min(self.rows % self.of)
    }

    /// Rows of kept values have gaps where they are not of a multiple of four.
    fn ld(&self) -> u32 {
        self.columns.next_multiple_of(4)
    }

    fn vectors(&self) -> u32 {
        self.columns.div_ceil(self.vector)
    }

    /// Position in its group of a kept row: those of a group ascend, and begin elsewhere in each vector.
    fn position(&self, kept: u32, vector: u32) -> u32 {
        let (group, at) = (kept / self.kept, kept % self.kept);
        let rows = self.of.min(self.rows - group * self.of);
        let most = rows - self.kept.min(rows);
        at + (vector * 7 + group) % (most + 1)
    }

    fn row(&self, kept: u32, column: u32) -> u32 {
        kept / self.kept * self.of + self.position(kept, column / self.vector)
    }

    /// As the kernels read them: two bytes a word.
    fn positions(&self) -> Vec<u16> {
        let all = (0..self.kept_rows()).flat_map(|kept| {
            (0..self.vectors()).map(move |vector| u8::try_from(self.position(kept, vector)).unwrap())
        });
        let bytes: Vec<u8> = all.collect();
        bytes.chunks(2).map(|two| u16::from_le_bytes([two[0], two.get(1).copied().unwrap_or(0xff)])).collect()
    }

    fn params(&self, memory: &Memory) -> NmKeptParams {
        NmKeptParams {
            kept: GlobalPtr::NULL,
            positions: memory.alloc_from(&self.positions()),
            dense: GlobalPtr::NULL,
            rows: self.rows,
            columns: self.columns,
            kept_rows: self.kept_rows(),
            group_kept: self.kept,
            group_rows: self.of,
            vector: self.vector,
            vectors: self.vectors(),
            kept_type: 0,
            dense_type: 0,
            ld_kept: self.ld(),
        }
    }
}

const CASES: [Weights; 8] = [
    Weights { rows: 8, columns: 5, kept: 2, of: 4, vector: 1 },
    Weights { rows: 4, columns: 1, kept: 1, of: 4, vector: 1 },
    Weights { rows: 300, columns: 70, kept: 2, of: 4, vector: 1 }, // two tiles of rows, three of columns
    Weights { rows: 530, columns: 33, kept: 16, of: 32, vector: 32 }, // the last group has 18 rows
    Weights { rows: 257, columns: 40, kept: 3, of: 5, vector: 7 }, // 255 rows a tile; the last group has two
    Weights { rows: 600, columns: 35, kept: 100, of: 256, vector: 8 },
    Weights { rows: 260, columns: 34, kept: 129, of: 129, vector: 3 }, // one group a tile, all kept
    Weights { rows: 6, columns: 1100, kept: 1, of: 2, vector: 128 },   // more columns than a block takes
];

/// A type of elements, in which small numbers are exact.
trait Kind: Element {
    fn of(x: f32) -> Self::Bits;
}

impl Kind for F32 {
    fn of(x: f32) -> u32 {
        x.to_bits()
    }
}
impl Kind for F16 {
    fn of(x: f32) -> u16 {
        f16::from_f32(x).to_bits()
    }
}
impl Kind for Bf16 {
    fn of(x: f32) -> u16 {
        bf16::from_f32(x).to_bits()
    }
}

/// What is written: so many elements, what they are before, if anything, and where the params have them.
struct Written<T> {
    count: usize,
    before: Option<T>,
    at: fn(&mut NmKeptParams) -> &mut GlobalPtr<u32>,
}

/// Runs under every schedule; what is read at the end is the same under all.
fn run<K: Kernel<Params = NmKeptParams>, T: Word + PartialEq>(
    weights: &Weights,
    blocks: u64,
    fill: impl Fn(&Memory, &mut NmKeptParams),
    Written { count, before, at }: Written<T>,
) -> Vec<T> {
    let mut first: Option<Vec<T>> = None;
    for schedule in Schedule::STANDARD {
        let memory = Memory::new();
        let mut params = weights.params(&memory);
        fill(&memory, &mut params);
        let to = match before {
            Some(before) => memory.alloc_from(&vec![before; count]),
            None => memory.alloc_uninit::<T>(count),
        };
        *at(&mut params) = to.cast();
        let launch = Launch {
            grid: [u32::try_from(blocks).unwrap(), 1],
            block_threads: K::BLOCK_THREADS,
            shared_bytes: K::SHARED_BYTES,
            schedule,
        };
        // SAFETY: the parameters keep their obligations.
        let outcome = memory.launch(&launch, |s| unsafe { K::run(s, &params) });
        outcome.unwrap_or_else(|violation| panic!("{schedule:?}: {violation}"));
        let got = memory.read(to, count).unwrap();
        assert!(first.as_ref().is_none_or(|first| *first == got), "{schedule:?}");
        first = Some(got);
    }
    first.unwrap()
}

/// Exact in bf16, and never zero.
fn number(at: u32) -> f32 {
    (at % 250 + 1) as f32 / 4.0
}

/// What lies between rows.
const GAP: f32 = 77.0;

/// Kept values in rows with gaps.
fn with_gaps<T: Kind>(weights: &Weights, value: impl Fn(u32, u32) -> f32) -> Vec<T::Bits> {
    let (columns, ld) = (weights.columns, weights.ld());
    let of = |at: u32| if at % ld < columns { value(at / ld, at % ld) } else { GAP };
    (0..weights.kept_rows() * ld).map(|at| T::of(of(at))).collect()
}

fn check_transposed<G: Kind, D: Kind>(weights: &Weights)
where
    D::Bits: PartialEq,
{
    let Weights { rows, columns, of, .. } = *weights;
    let value = |kept: u32, column: u32| number(kept * columns + column);
    let values: Vec<G::Bits> = with_gaps::<G>(weights, value);
    let fill = |memory: &Memory, params: &mut NmKeptParams| {
        params.kept = memory.alloc_from(&values).cast();
        (params.kept_type, params.dense_type) = (code(G::DTYPE), code(D::DTYPE));
    };
    let mut want = vec![D::of(0.0); (rows * columns) as usize];
    for kept in 0..weights.kept_rows() {
        for column in 0..columns {
            let at = column * rows + weights.row(kept, column);
            want[at as usize] = D::of(value(kept, column));
        }
    }
    let blocks = NmTransposed::blocks(rows, columns, of);
    let written = Written { count: want.len(), before: None, at: |params| &mut params.dense };
    let got: Vec<D::Bits> = run::<NmTransposed, D::Bits>(weights, blocks, fill, written);
    assert!(got == want, "{rows} × {columns}, {}:{of} by {}", weights.kept, weights.vector);
}

fn check_taken<T: Kind>(weights: &Weights)
where
    T::Bits: PartialEq,
{
    let Weights { rows, columns, of, .. } = *weights;
    let dense: Vec<f32> = (0..rows * columns).map(number).collect();
    let fill = |memory: &Memory, params: &mut NmKeptParams| {
        params.dense = memory.alloc_from(&dense).cast();
        params.kept_type = code(T::DTYPE);
    };
    let want: Vec<T::Bits> =
        with_gaps::<T>(weights, |kept, column| number(weights.row(kept, column) * columns + column));
    let blocks = NmTaken::blocks(weights.kept_rows(), columns);
    let written = Written { count: want.len(), before: Some(T::of(GAP)), at: |params| &mut params.kept };
    let got: Vec<T::Bits> = run::<NmTaken, T::Bits>(weights, blocks, fill, written);
    assert!(got == want, "{rows} × {columns}, {}:{of} by {}", weights.kept, weights.vector);
}

#[test]
fn kept_values_become_a_dense_matrix() {
    for weights in &CASES {
        check_transposed::<F32, F32>(weights);
        check_transposed::<F16, F16>(weights);
    }
    let small = &CASES[0];
    check_transposed::<Bf16, Bf16>(small);
    check_transposed::<F32, F16>(small);
    check_transposed::<F32, Bf16>(small);
    check_transposed::<F16, F32>(small);
}

#[test]
fn kept_elements_are_taken_out_of_one() {
    for weights in &CASES {
        check_taken::<F32>(weights);
        check_taken::<F16>(weights);
        check_taken::<Bf16>(weights);
    }
}

#[test]
fn what_is_not_finite_stays_so() {
    let weights = &CASES[0];
    let values = [f32::NAN, f32::INFINITY, -0.0, f32::MAX, 1.0 + f32::EPSILON];
    let of = |kept: u32, column: u32| values[((kept + 2 * column) % 5) as usize];
    let given = with_gaps::<F32>(weights, of);
    let fill = |memory: &Memory, params: &mut NmKeptParams| {
        params.kept = memory.alloc_from(&given).cast();
        (params.kept_type, params.dense_type) = (code(Dtype::F32), code(Dtype::F16));
    };
    let blocks = NmTransposed::blocks(weights.rows, weights.columns, weights.of);
    let count = (weights.rows * weights.columns) as usize;
    let written = Written { count, before: None, at: |params| &mut params.dense };
    let got: Vec<u16> = run::<NmTransposed, u16>(weights, blocks, fill, written);
    for kept in 0..weights.kept_rows() {
        for column in 0..weights.columns {
            let found = f16::from_bits(got[(column * weights.rows + weights.row(kept, column)) as usize]);
            let want = f16::from_f32(of(kept, column));
            assert!(
                found.to_bits() == want.to_bits() || found.is_nan() && want.is_nan(),
                "{found} for {want}"
            );
        }
    }
}
