//! Matrix products of a warpgroup: what they compute, and what may not be touched while they are under way.

use half::{bf16, f16};

use crate::emulator::access::Access;
use crate::emulator::collectives::{OPERANDS, Request};
use crate::emulator::mma;
use crate::emulator::shared::{Fences, SharedMemory};
use crate::emulator::spot::Operation;
use crate::emulator::violation::{Checked, Violation};
use crate::warpgroup::{OperandLayout, SharedOperand, Swizzle, WARPGROUP};
use crate::{WARP, fragment};

/// Rows of a warpgroup's sums.
const ROWS: u32 = 64;
/// Inner elements of a row of `a`, of 16 bits each.
const OF_A: u32 = 16;

/// A product, as each of its threads calls it.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) a: SharedOperand,
    pub(super) b: SharedOperand,
    /// Which inner elements of `b` those of `a` are multiplied by, if not all.
    pub(super) kept: Option<Kept>,
    /// Whether `b` lies so.
    pub(super) transposed: bool,
    pub(super) columns: u32,
}

/// Of a sparse operand, what a thread has of the places of its elements.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub(super) metadata: u32,
    pub(super) selector: u32,
}

impl Call {
    /// As a request has it.
    pub(super) fn operands(&self) -> [u32; OPERANDS] {
        let Self { a, b, kept, transposed, columns } = *self;
        let Kept { metadata, selector } = kept.unwrap_or(Kept { metadata: 0, selector: 0 });
        let swizzles = a.layout.swizzle.code() | b.layout.swizzle.code() << 2;
        let sparse = u32::from(kept.is_some());
        let flags = swizzles | selector << 4 | u32::from(transposed) << 5 | sparse << 6;
        let [a_layout, b_layout] = [a.layout, b.layout].map(|layout| [layout.inner_bytes, layout.rows_bytes]);
        [
            a.at,
            a_layout[0],
            a_layout[1],
            b.at,
            b_layout[0],
            b_layout[1],
            flags,
            columns,
            metadata,
            0,
            0,
            0,
            0,
            0,
        ]
    }

    fn of(request: &Request) -> Self {
        let [a, a_inner, a_rows, b, b_inner, b_rows, flags, columns, metadata, ..] = request.operands;
        let operand = |at, inner_bytes, rows_bytes, swizzle: u32| {
            let swizzle = if swizzle & 3 == 0 { Swizzle::None } else { Swizzle::Bytes128 };
            SharedOperand { at, layout: OperandLayout { inner_bytes, rows_bytes, swizzle } }
        };
        Self {
            a: operand(a, a_inner, a_rows, flags),
            b: operand(b, b_inner, b_rows, flags >> 2),
            kept: (flags >> 6 & 1 == 1).then_some(Kept { metadata, selector: flags >> 4 & 1 }),
            transposed: flags >> 5 & 1 == 1,
            columns,
        }
    }

    /// Inner elements of `b`.
    fn inner(&self) -> u32 {
        if self.kept.is_some() { 2 * OF_A } else { OF_A }
    }
}

/// Products under way: how many threads have not waited for them, and the places that they read.
#[derive(Default)]
pub(super) struct Products(Vec<Product>);

struct Product {
    waiting: u32,
    places: Vec<u32>,
}

impl Products {
    /// Notes that a thread has waited for a product; once all have, the places that nobody reads any more.
    pub(super) fn waited(&mut self, product: usize) -> Option<Vec<u32>> {
        let product = &mut self.0[product];
        product.waiting -= 1;
        (product.waiting == 0).then(|| std::mem::take(&mut product.places))
    }

    /// The number that the next product has.
    pub(super) fn next(&self) -> usize {
        self.0.len()
    }
}

/// Performs the product for which all threads of a warpgroup wait: `requests` and `sums` are theirs, `first` the
/// number of the first of them.
///
/// # Errors
/// What [`SharedMemory::read_operand`] finds, and operands that are none.
pub(super) fn multiply(
    requests: &[Request],
    sums: &mut [Vec<f32>],
    (shared, fences): (&mut SharedMemory, &Fences<'_>),
    products: &mut Products,
    (access, refuse): (impl Fn(u32) -> Access, impl Fn(u32, String) -> Box<Violation>),
) -> Checked<()> {
    let call = Call::of(&requests[0]);
    for (thread, request) in (0..).zip(requests) {
        if request.operands[..8] != requests[0].operands[..8] {
            return Err(refuse(
                thread,
                "an operand differs from that of the warpgroup's first thread".into(),
            ));
        }
    }
    let element = |bits: u16| match requests[0].operation {
        Operation::WarpgroupMmaSparseBf16 | Operation::WarpgroupMmaBf16 => bf16::from_bits(bits).to_f64(),
        _ => f16::from_bits(bits).to_f64(),
    };
    if call.transposed && call.b.layout.swizzle == Swizzle::None {
        return Err(refuse(0, "a transposed operand is not mixed in 128 bytes".into()));
    }
    let mut places = Vec::new();
    // Lines of so many successive elements, each where `offset` says.
    type Offset = fn(OperandLayout, u32, u32) -> u32;
    let mut read =
        |operand: SharedOperand, [lines, elements]: [u32; 2], offset: Offset, who: fn(u32) -> u32| {
            let mut values = Vec::with_capacity((lines * elements) as usize);
            for line in 0..lines {
                let thread = who(line);
                for piece in 0..elements / 8 {
                    let linear = operand.at + offset(operand.layout, line, piece * 16);
                    let at = operand.layout.swizzle.apply(linear);
                    for word in shared.read_operand(&access(thread), at, fences)? {
                        values.extend(mma::halves(word).map(element));
                    }
                    places.push(at);
                }
            }
            Checked::Ok(values)
        };
    // Each warp reads its own rows of A; of B, which all of them read, the first stands for all.
    let a = read(call.a, [ROWS, OF_A], OperandLayout::offset, |row| row / 16 * WARP)?;
    let inner = call.inner();
    let (b, [of_column, of_inner]) = match call.transposed {
        true => {
            let lines = [inner, call.columns];
            (read(call.b, lines, OperandLayout::transposed_offset, |_| 0)?, [1, call.columns])
        }
        false => (read(call.b, [call.columns, inner], OperandLayout::offset, |_| 0)?, [inner, 1]),
    };
    let places_of_a = multiplied_by(requests, refuse)?;
    for (thread, sums) in (0..).zip(sums) {
        for (register, sum) in (0..).zip(sums.iter_mut()) {
            let (row, column) = fragment::warpgroup_sum(thread, register);
            let row = (row * OF_A) as usize..((row + 1) * OF_A) as usize;
            let b = |inner: usize| b[(column * of_column) as usize + inner * of_inner as usize];
            let products = a[row.clone()].iter().zip(&places_of_a[row]).map(|(a, &at)| a * b(at));
            *sum = mma::round(products.fold(f64::from(*sum), |sum, product| sum + product));
        }
    }
    places.sort_unstable();
    places.dedup();
    shared.lend(&places, &access(0));
    products.0.push(Product { waiting: WARPGROUP, places });
    Ok(())
}

/// By which inner element of `b` each element of `a` is multiplied.
///
/// # Errors
/// Metadata that are none.
fn multiplied_by(
    requests: &[Request],
    refuse: impl Fn(u32, String) -> Box<Violation>,
) -> Checked<Vec<usize>> {
    let mut places: Vec<usize> = (0..ROWS).flat_map(|_| 0..OF_A as usize).collect();
    for (thread, request) in (0..).zip(requests) {
        let Some(Kept { metadata, selector }) = Call::of(request).kept else { continue };
        for nibble in 0..8 {
            let Some((row, group)) = fragment::warpgroup_metadata(thread, selector, nibble) else { continue };
            let [one, other] = mma::places(metadata, nibble)
                .map_err(|told| refuse(thread, format!("{told} of row {row}, group {group}")))?;
            let at = (row * OF_A + group * 2) as usize;
            [places[at], places[at + 1]] = [one, other].map(|place| (group * 4 + place) as usize);
        }
    }
    Ok(places)
}
