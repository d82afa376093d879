//! Metadata of a warp's product with a sparse operand that names no two places in order.

use windrow_simt::Simt;

use super::{Mark, ONE_WARP, nothing, passes, reports};
use crate::F16;

/// Two places, 0 and 1, in each group.
const NEUTRAL: u32 = 0x4444_4444;

/// One lane's word differs from that of the others.
fn word(lane: u32, other: u32) -> u32 {
    if lane == 5 { other } else { NEUTRAL }
}

#[test]
fn metadata_names_two_places_in_order() {
    for (other, told) in [
        (NEUTRAL ^ 0x500, "nibble 2 of metadata names places 1 and 0 of row 1, group 6"),
        (NEUTRAL ^ 0xe_0000, "nibble 4 of metadata names places 2 and 2 of row 9, group 4"),
    ] {
        let product = Mark::default();
        reports(
            ONE_WARP,
            nothing,
            |t, ()| {
                let metadata = word(t.lane(), other);
                // SAFETY: not safe: lane 5 has metadata of which a nibble names no places.
                unsafe { product.on(t).mma_sparse_m16n8k32::<F16, 0>([0; 4], [0; 4], [0.0; 4], metadata) };
            },
            |()| {
                format!(
                    "invalid operand: mma_sparse_m16n8k32_f16 by thread 5 of block (0, 0) at {product}: {told}"
                )
            },
        );
    }
    // A product with the other selector does not read it.
    passes(
        ONE_WARP,
        nothing,
        |t, ()| {
            // SAFETY: all lanes; those that are read have metadata in order.
            unsafe { t.mma_sparse_m16n8k32::<F16, 1>([0; 4], [0; 4], [0.0; 4], word(t.lane(), 0)) };
        },
        |_, ()| (),
    );
}
