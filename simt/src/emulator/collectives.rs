//! What a collective does once all of its threads have arrived.

use std::panic::Location;

use crate::emulator::access::Access;
use crate::emulator::mma::{self, Element};
use crate::emulator::shared::SharedMemory;
use crate::emulator::spot::Operation;
use crate::emulator::violation::{Checked, Violation};
use crate::{WARP, fragment};

/// Most operands of a collective.
pub(super) const OPERANDS: usize = 14;

/// A thread's part in a collective: what it called, from where, with which operands. The result
/// replaces the first operands.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) location: &'static Location<'static>,
    pub(super) operands: [u32; OPERANDS],
}

impl Request {
    /// Whether two threads called the same method from the same place.
    pub(super) fn is_same_call(&self, other: &Self) -> bool {
        self.operation == other.operation
            && (std::ptr::eq(self.location, other.location) || self.location == other.location)
    }
}

/// Performs a warp's collective on its 32 requests, all of the same call. `accesses` tells how each
/// lane's access to shared memory is to be recorded, `refuse` what is said of a lane's operands that are none.
pub(super) fn perform(
    requests: &mut [Request],
    shared: &mut SharedMemory,
    access: impl Fn(u16, &Request) -> Access,
    refuse: impl Fn(u16, String) -> Box<Violation>,
) -> Checked<()> {
    debug_assert_eq!(requests.len(), WARP as usize);
    match requests[0].operation {
        Operation::Shuffle => exchange(requests, |_, source| source % WARP),
        Operation::ShuffleXor => exchange(requests, |lane, mask| lane ^ mask),
        Operation::ShuffleUp => exchange(requests, |lane, delta| lane.checked_sub(delta).unwrap_or(lane)),
        Operation::ShuffleDown => exchange(requests, |lane, delta| match lane + delta {
            source @ 0..WARP => source,
            _ => lane,
        }),
        Operation::Ballot => {
            let votes = (0..).zip(requests.iter()).fold(0, |votes, (lane, r)| votes | r.operands[0] << lane);
            requests.iter_mut().for_each(|request| request.operands[0] = votes);
        }
        Operation::LoadMatrixX4 => load_matrices(requests, shared, access, fragment::ldmatrix)?,
        Operation::LoadMatrixX4Trans => load_matrices(requests, shared, access, fragment::ldmatrix_trans)?,
        Operation::StoreMatrixX4Trans => store_matrices(requests, shared, access)?,
        Operation::MmaM16n8k16F16 => mma::multiply::<16>(requests, Element::F16),
        Operation::MmaM16n8k16Bf16 => mma::multiply::<16>(requests, Element::Bf16),
        Operation::MmaSparseM16n8k32F16 => mma::multiply_sparse(requests, Element::F16, refuse)?,
        Operation::MmaSparseM16n8k32Bf16 => mma::multiply_sparse(requests, Element::Bf16, refuse)?,
        Operation::MmaM16n8k8F16 => mma::multiply::<8>(requests, Element::F16),
        Operation::MmaM16n8k8Bf16 => mma::multiply::<8>(requests, Element::Bf16),
        Operation::MmaM16n8k8Tf32 => mma::multiply::<8>(requests, Element::Tf32),
        // `sync_warp` moves nothing, and nothing else waits for a warp.
        _ => {}
    }
    Ok(())
}

/// Operand 0 of each lane becomes that of lane `source(lane, operand 1)`.
fn exchange(requests: &mut [Request], source: impl Fn(u32, u32) -> u32) {
    let mut values = [0; WARP as usize];
    for (value, request) in values.iter_mut().zip(requests.iter()) {
        *value = request.operands[0];
    }
    for (lane, request) in (0..).zip(requests.iter_mut()) {
        request.operands[0] = values[source(lane, request.operands[1]) as usize];
    }
}

fn load_matrices(
    requests: &mut [Request],
    shared: &mut SharedMemory,
    access: impl Fn(u16, &Request) -> Access,
    element: impl Fn(u32, u32) -> fragment::Position,
) -> Checked<()> {
    let mut rows = [[0; 4]; WARP as usize];
    for (lane, (row, request)) in (0..).zip(rows.iter_mut().zip(requests.iter())) {
        *row = shared.read(&access(lane, request), request.operands[0], 16)?;
    }
    for (lane, request) in (0..).zip(requests.iter_mut()) {
        for (register, matrix) in request.operands[..4].iter_mut().zip(rows.chunks(8)) {
            let half = |half| {
                let (row, column) = element(lane, half);
                matrix[row as usize][column as usize / 2] >> (column % 2 * 16) & 0xffff
            };
            *register = half(0) | half(1) << 16;
        }
    }
    Ok(())
}

/// Operand 0 is the address of a lane's row, the next four are its registers.
fn store_matrices(
    requests: &[Request],
    shared: &mut SharedMemory,
    access: impl Fn(u16, &Request) -> Access,
) -> Checked<()> {
    let mut rows = [[0; 4]; WARP as usize];
    for (lane, request) in (0..).zip(requests.iter()) {
        for (register, matrix) in request.operands[1..5].iter().zip(rows.chunks_mut(8)) {
            for half in 0..2 {
                let (row, column) = fragment::ldmatrix_trans(lane, half);
                matrix[row as usize][column as usize / 2] |=
                    (register >> (half * 16) & 0xffff) << (column % 2 * 16);
            }
        }
    }
    for (lane, (row, request)) in (0..).zip(rows.into_iter().zip(requests)) {
        shared.write(&access(lane, request), request.operands[0], 16, row)?;
    }
    Ok(())
}
