//! What a thread does together with others: it waits until they have come.

use std::panic::Location;

use super::Thread;
use crate::emulator::collectives::{OPERANDS, Request};
use crate::emulator::spot::Operation;

impl Thread<'_> {
    /// Waits until the scheduler has performed the collective, and takes the result.
    #[track_caller]
    pub(super) fn collect<const N: usize>(&self, operation: Operation, given: &[u32]) -> [u32; N] {
        self.step(operation);
        let mut operands = [0; OPERANDS];
        operands[..given.len()].copy_from_slice(given);
        self.block.arrive(self.index, Request { operation, location: Location::caller(), operands });
        self.yielder.suspend(());
        self.block.result(self.index)
    }

    #[track_caller]
    pub(super) fn shuffle_by(
        &self,
        operation: Operation,
        value: u32,
        by: u32,
        limit: Option<(&str, u32)>,
    ) -> u32 {
        if let Some((name, limit)) = limit
            && by >= limit
        {
            let who = self.step(operation);
            self.refuse(&who, format!("{name} is {by}, which is not below {limit}"));
        }
        let [value] = self.collect(operation, &[value, by]);
        value
    }

    #[track_caller]
    pub(super) fn mma(&self, operation: Operation, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
        let [a0, a1, a2, a3] = a;
        let [c0, c1, c2, c3] = acc.map(f32::to_bits);
        self.collect(operation, &[a0, a1, a2, a3, b[0], b[1], c0, c1, c2, c3]).map(f32::from_bits)
    }

    #[track_caller]
    pub(super) fn mma_sparse(
        &self,
        operation: Operation,
        (a, b, acc): ([u32; 4], [u32; 4], [f32; 4]),
        metadata: u32,
        selector: u32,
    ) -> [f32; 4] {
        let mut operands = [0; OPERANDS];
        operands[..4].copy_from_slice(&a);
        operands[4..8].copy_from_slice(&b);
        operands[8..12].copy_from_slice(&acc.map(f32::to_bits));
        operands[12..].copy_from_slice(&[metadata, selector]);
        self.collect(operation, &operands).map(f32::from_bits)
    }
}
