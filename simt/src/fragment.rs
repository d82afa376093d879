//! Which matrix element sits in which register of which lane.
//!
//! The tables follow the PTX ISA's figures for `mma` and `ldmatrix`. With `g = lane / 4` and
//! `q = lane % 4`, for the 16-bit shapes:
//!
//! ```text
//! A (16 × k), row-major      register 0: row g,     columns 2q, 2q+1     (low half first)
//!                            register 1: row g + 8, columns 2q, 2q+1
//!                            register 2: row g,     columns 2q+8, 2q+9   (k = 16 only)
//!                            register 3: row g + 8, columns 2q+8, 2q+9   (k = 16 only)
//! B (k × 8), column-major    register 0: rows 2q, 2q+1,   column g
//!                            register 1: rows 2q+8, 2q+9, column g       (k = 16 and 32)
//!                            register 2: rows 2q+16, 2q+17, column g     (k = 32 only)
//!                            register 3: rows 2q+24, 2q+25, column g     (k = 32 only)
//! C (16 × 8), f32            registers 0, 1: row g,     columns 2q, 2q+1
//!                            registers 2, 3: row g + 8, columns 2q, 2q+1
//! ```
//!
//! A of the sparse shape, k = 32, is what is kept, packed: 16 × 16, two of each four columns.
//!
//! For tf32 (k = 8, one element a register): A registers 0 to 3 hold `(g, q)`, `(g+8, q)`,
//! `(g, q+4)`, `(g+8, q+4)`; B registers 0 and 1 hold `(q, g)` and `(q+4, g)`.

/// `(row, column)` of an element.
pub type Position = (u32, u32);

const fn gq(lane: u32) -> (u32, u32) {
    (lane / 4, lane % 4)
}

/// Operand A of `mma.m16n8k{8,16}` with 16-bit elements, and what is kept of that of `mma.sp.m16n8k32`: half `half` of
/// register `register`.
#[must_use]
pub const fn a_16bit(lane: u32, register: u32, half: u32) -> Position {
    let (g, q) = gq(lane);
    (g + 8 * (register % 2), 2 * q + 8 * (register / 2) + half)
}

/// Operand B of `mma.m16n8k{8,16}` and `mma.sp.m16n8k32` with 16-bit elements: half `half` of register `register`.
#[must_use]
pub const fn b_16bit(lane: u32, register: u32, half: u32) -> Position {
    let (g, q) = gq(lane);
    (2 * q + 8 * register + half, g)
}

/// Operand A of `mma.m16n8k8` with tf32 elements.
#[must_use]
pub const fn a_tf32(lane: u32, register: u32) -> Position {
    let (g, q) = gq(lane);
    (g + 8 * (register % 2), q + 4 * (register / 2))
}

/// Operand B of `mma.m16n8k8` with tf32 elements.
#[must_use]
pub const fn b_tf32(lane: u32, register: u32) -> Position {
    let (g, q) = gq(lane);
    (q + 4 * register, g)
}

/// Accumulator of every `mma.m16n8k*` with f32 accumulation.
#[must_use]
pub const fn c_f32(lane: u32, register: u32) -> Position {
    let (g, q) = gq(lane);
    (g + 8 * (register / 2), 2 * q + register % 2)
}

/// `ldmatrix`: `(row, column)` inside one 8 × 8 matrix of half `half` of its register.
#[must_use]
pub const fn ldmatrix(lane: u32, half: u32) -> Position {
    let (g, q) = gq(lane);
    (g, 2 * q + half)
}

/// `ldmatrix.trans`: `(row, column)` of the *stored* matrix that lands in half `half` of its register.
#[must_use]
pub const fn ldmatrix_trans(lane: u32, half: u32) -> Position {
    let (g, q) = gq(lane);
    (2 * q + half, g)
}

/// Sums of a warpgroup's product, 64 rows: register `register` of thread `thread < 128`. Each warp has 16 rows.
#[must_use]
pub const fn warpgroup_sum(thread: u32, register: u32) -> Position {
    let (row, column) = c_f32(thread % 32, register % 4);
    (thread / 32 * 16 + row, register / 4 * 8 + column)
}

/// Metadata of `mma.sp.m16n8k32` with 16-bit elements, 16 rows of eight groups of four: the row and the group whose two
/// kept places nibble `nibble` of the lane's register tells, `first | second << 2`. None if a product with this
/// selector, 0 or 1, does not read the lane's register.
#[must_use]
pub const fn sparse_metadata(lane: u32, selector: u32, nibble: u32) -> Option<Position> {
    let (g, q) = gq(lane);
    if q / 2 != selector {
        return None;
    }
    Some((g + nibble / 4 * 8, 4 * (q % 2) + nibble % 4))
}

/// The same of a warpgroup's sparse product, 64 rows, for thread `thread < 128`. Each warp has 16 rows.
#[must_use]
pub const fn warpgroup_metadata(thread: u32, selector: u32, nibble: u32) -> Option<Position> {
    match sparse_metadata(thread % 32, selector, nibble) {
        Some((row, group)) => Some((thread / 32 * 16 + row, group)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element of the operand is held exactly once.
    fn covers(rows: u32, columns: u32, held: impl Iterator<Item = Position>) {
        let mut count = vec![0; (rows * columns) as usize];
        for (row, column) in held {
            assert!(row < rows && column < columns, "({row}, {column}) is outside {rows}x{columns}");
            count[(row * columns + column) as usize] += 1;
        }
        assert!(count.iter().all(|&c| c == 1), "{rows}x{columns}: {count:?}");
    }

    fn lanes(registers: u32, halves: u32) -> impl Iterator<Item = (u32, u32, u32)> {
        (0..32).flat_map(move |l| (0..registers).flat_map(move |r| (0..halves).map(move |h| (l, r, h))))
    }

    #[test]
    fn every_operand_is_covered_once() {
        covers(16, 16, lanes(4, 2).map(|(l, r, h)| a_16bit(l, r, h)));
        covers(16, 8, lanes(2, 2).map(|(l, r, h)| a_16bit(l, r, h)));
        covers(16, 8, lanes(2, 2).map(|(l, r, h)| b_16bit(l, r, h)));
        covers(8, 8, lanes(1, 2).map(|(l, r, h)| b_16bit(l, r, h)));
        covers(32, 8, lanes(4, 2).map(|(l, r, h)| b_16bit(l, r, h)));
        for selector in [0, 1] {
            covers(16, 8, lanes(8, 1).filter_map(|(l, nibble, _)| sparse_metadata(l, selector, nibble)));
        }
        covers(16, 8, lanes(4, 1).map(|(l, r, _)| a_tf32(l, r)));
        covers(8, 8, lanes(2, 1).map(|(l, r, _)| b_tf32(l, r)));
        covers(16, 8, lanes(4, 1).map(|(l, r, _)| c_f32(l, r)));
        covers(8, 8, lanes(1, 2).map(|(l, _, h)| ldmatrix(l, h)));
        covers(8, 8, lanes(1, 2).map(|(l, _, h)| ldmatrix_trans(l, h)));
    }

    /// Spot values read off the figures of the PTX ISA, so that a consistent but wrong map fails.
    #[test]
    fn known_elements() {
        assert_eq!(a_16bit(0, 0, 0), (0, 0));
        assert_eq!(a_16bit(5, 1, 1), (9, 3));
        assert_eq!(a_16bit(31, 3, 1), (15, 15));
        assert_eq!(a_16bit(2, 2, 0), (0, 12));
        assert_eq!(b_16bit(4, 0, 1), (1, 1));
        assert_eq!(b_16bit(31, 1, 1), (15, 7));
        assert_eq!(b_16bit(5, 3, 0), (26, 1));
        assert_eq!(sparse_metadata(5, 0, 7), Some((9, 7)));
        assert_eq!(sparse_metadata(30, 1, 2), Some((7, 2)));
        assert_eq!(sparse_metadata(30, 0, 2), None);
        assert_eq!(a_tf32(6, 3), (9, 6));
        assert_eq!(b_tf32(9, 1), (5, 2));
        assert_eq!(c_f32(7, 2), (9, 6));
        assert_eq!(c_f32(30, 1), (7, 5));
        assert_eq!(ldmatrix(13, 1), (3, 3));
        assert_eq!(ldmatrix_trans(13, 1), (3, 3));
        assert_eq!(ldmatrix_trans(4, 0), (0, 1));
    }

    #[test]
    fn a_warpgroups_registers_cover_its_operands() {
        for registers in [32, 64, 88, 96, 128] {
            let held = (0..128).flat_map(|thread| (0..registers).map(move |r| warpgroup_sum(thread, r)));
            covers(64, 2 * registers, held);
        }
        for selector in [0, 1] {
            let nibbles = (0..128).flat_map(|thread| (0..8).map(move |nibble| (thread, nibble)));
            covers(
                64,
                8,
                nibbles.filter_map(|(thread, nibble)| warpgroup_metadata(thread, selector, nibble)),
            );
        }
    }

    /// Values that were seen on a card of compute capability 9.0.
    #[test]
    fn known_elements_of_a_warpgroup() {
        assert_eq!(warpgroup_sum(37, 6), (25, 10));
        assert_eq!(warpgroup_sum(127, 127), (63, 255));
        assert_eq!(warpgroup_metadata(0, 0, 0), Some((0, 0)));
        assert_eq!(warpgroup_metadata(33, 0, 6), Some((24, 6)));
        assert_eq!(warpgroup_metadata(6, 1, 5), Some((9, 1)));
        assert_eq!(warpgroup_metadata(6, 0, 5), None);
    }

    /// What makes a transposed load an A operand: matrix i's lane map is A's register i.
    #[test]
    fn transposed_matrices_are_an_a_operand() {
        for (lane, register, half) in lanes(4, 2) {
            let (row, column) = a_16bit(lane, register, half);
            let (stored_row, stored_column) = ldmatrix_trans(lane, half);
            // The stored matrix i is k-major: its rows are A's columns.
            assert_eq!((row % 8, column % 8), (stored_column, stored_row), "{lane} {register} {half}");
        }
    }
}
