//! Products of a warpgroup: operands touched too early or too late, and calls that are missing.

use windrow_simt::emulator::{Memory, Thread, Violation};
use windrow_simt::{GlobalPtr, OperandLayout, SharedOperand, Simt, Swizzle, WarpgroupSums};

use super::{Mark, Shape, nothing, passes, reports, under_all_schedules};
use crate::F16;

/// A, 64 rows of 16 elements, then B, 64 columns of 32; both without swizzle.
const B_AT: u32 = 2048;
const BYTES: u32 = B_AT + 4096;
const A: SharedOperand = SharedOperand {
    at: 0,
    layout: OperandLayout { inner_bytes: 128, rows_bytes: 256, swizzle: Swizzle::None },
};
const B: SharedOperand = SharedOperand {
    at: B_AT,
    layout: OperandLayout { inner_bytes: 128, rows_bytes: 512, swizzle: Swizzle::None },
};
const ONE_GROUP: Shape = ([1, 1], 128, BYTES);
/// Places 0 and 1 of every group.
const METADATA: u32 = 0x4444_4444;

/// All threads write operands of ones, multiply once and look at a sum; this goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    NoProxyFence,
    ProxyFenceBeforeStores,
    ProxyFenceBeforeCopyEnds,
    NoFence,
    NoCommit,
    NoWait,
    StoreBeforeWait,
    StoreByWhoHasWaited,
    CopyBeforeWait,
    MetadataOutOfOrder,
    MetadataTwice,
    OperandOutside,
    OperandUnwritten,
    OperandDiffers,
    TransposedUnmixed,
    MissingThread,
    WarpThatWaitsElsewhere,
}

fn ones(memory: &Memory) -> GlobalPtr<u32> {
    let ones = memory.alloc_from(&[0u32; 4]);
    memory.label(ones, "ones").unwrap();
    ones
}

/// The kernel with a fault; `mark` is the call at fault, `product` the product.
fn kernel(t: &Thread<'_>, fault: Fault, ones: GlobalPtr<u32>, [mark, product]: [&Mark; 2]) {
    let is = |other| fault == other;
    let thread = t.thread_idx();
    // SAFETY: not safe with a fault, which is what the emulator is for.
    unsafe {
        if is(Fault::ProxyFenceBeforeStores) {
            t.copy_bulk_fence();
        }
        let end = if is(Fault::OperandUnwritten) { BYTES - 16 } else { BYTES };
        for at in (thread * 16..end).step_by(128 * 16) {
            let is_first = at == 0 && (is(Fault::NoProxyFence) || is(Fault::ProxyFenceBeforeStores));
            mark.on_if(is_first, t).store_shared(at, [0x3c00_3c00u32; 4]);
        }
        if is(Fault::ProxyFenceBeforeCopyEnds) && thread == 0 {
            mark.on(t).copy_async_16(0, ones, true);
            t.copy_async_commit();
        }
        if !is(Fault::NoProxyFence) && !is(Fault::ProxyFenceBeforeStores) {
            t.copy_bulk_fence();
        }
        if is(Fault::ProxyFenceBeforeCopyEnds) && thread == 0 {
            t.copy_async_wait::<0>();
        }
        t.sync_block();
        if is(Fault::MissingThread) && thread == 77 {
            return;
        }
        if is(Fault::WarpThatWaitsElsewhere) && t.warp() == 3 {
            mark.on(t).sync_block();
        }
        let mut metadata = match fault {
            Fault::MetadataOutOfOrder if thread == 4 => METADATA & !0xf00 | 0x100,
            Fault::MetadataTwice if thread == 5 => METADATA & !0xf | 0xa,
            _ => METADATA,
        };
        let a = match fault {
            Fault::OperandOutside => SharedOperand { at: BYTES - 2032, ..A },
            Fault::OperandDiffers if thread == 40 => SharedOperand { at: 16, ..A },
            _ => A,
        };
        let mut sums = WarpgroupSums::<32>::zeros();
        if !(is(Fault::NoFence) && thread == 9) {
            t.warpgroup_fence();
        }
        if is(Fault::TransposedUnmixed) {
            product.on(t).warpgroup_mma_sparse::<F16, 0, 1, _>(&mut sums, a, B, metadata);
        } else {
            product.on(t).warpgroup_mma_sparse::<F16, 0, 0, _>(&mut sums, a, B, metadata);
        }
        if is(Fault::StoreBeforeWait) && thread == 3 {
            mark.on(t).store_shared(BYTES - 8, 0u32);
        }
        if is(Fault::CopyBeforeWait) && thread == 3 {
            mark.on(t).copy_async_16(B_AT, ones, true);
        }
        if !(is(Fault::NoCommit) && thread == 9) {
            t.warpgroup_commit();
        }
        if is(Fault::NoWait) && thread == 9 {
            return;
        }
        t.warpgroup_wait::<0, 1>(std::array::from_mut(&mut metadata));
        if is(Fault::StoreByWhoHasWaited) && thread == 3 {
            mark.on(t).store_shared(BYTES - 8, 0u32);
        }
        assert!(mark.on_if(is(Fault::NoCommit), t).warpgroup_finish(sums) == [16.0; 32]);
        if is(Fault::None) {
            t.sync_block();
            t.store_shared(4 * thread, thread);
        }
    }
}

#[test]
fn a_product_that_keeps_the_protocol() {
    let (mark, product) = (Mark::default(), Mark::default());
    passes(ONE_GROUP, ones, |t, ones| kernel(t, Fault::None, ones, [&mark, &product]), |_, _| ());
}

/// Checks what is reported of a fault, given the places of the call at fault and of the product.
#[track_caller]
fn fails(fault: Fault, expected: impl Fn(&str, &str) -> String) {
    let (mark, product) = (Mark::default(), Mark::default());
    reports(
        ONE_GROUP,
        ones,
        |t, ones| kernel(t, fault, ones, [&mark, &product]),
        |_| {
            let at = |mark: &Mark| if mark.is_set() { mark.to_string() } else { String::new() };
            expected(&at(&mark), &at(&product))
        },
    );
}

/// How reports name the product of a thread's warpgroup.
fn by(thread: u32, product: &str) -> String {
    format!("warpgroup_mma_sparse_f16 by the warpgroup of thread {thread} of block (0, 0) at {product}")
}

/// Checks that a thread's product is refused with this reason.
#[track_caller]
fn refused(fault: Fault, thread: u32, reason: &str) {
    fails(fault, |_, product| format!("invalid operand: {}: {reason}", by(thread, product)));
}

#[test]
fn stores_are_fenced_off() {
    for fault in [Fault::NoProxyFence, Fault::ProxyFenceBeforeStores] {
        fails(fault, |store, product| {
            format!(
                "stores not fenced off: {}: byte 0 of shared memory is from store_shared by thread 0 of block (0, 0) \
                 at {store}, and its thread has called no copy_bulk_fence since",
                by(0, product)
            )
        });
    }
    fails(Fault::ProxyFenceBeforeCopyEnds, |copy, product| {
        format!(
            "stores not fenced off: {}: byte 0 of shared memory is from copy_async_16 by thread 0 of block (0, 0) at \
             {copy}, and its thread has called no copy_bulk_fence since",
            by(0, product)
        )
    });
}

#[test]
fn operands_stay_until_all_have_waited() {
    for (fault, call, byte) in [
        (Fault::StoreBeforeWait, "store_shared", BYTES - 8),
        (Fault::StoreByWhoHasWaited, "store_shared", BYTES - 8),
        (Fault::CopyBeforeWait, "copy_async_16", B_AT),
    ] {
        fails(fault, |at, product| {
            format!(
                "write over an operand: {call} by thread 3 of block (0, 0) at {at}: not all threads have waited for \
                 the product that reads byte {byte} of shared memory, {}",
                by(0, product)
            )
        });
    }
}

#[test]
fn calls_that_are_missing() {
    refused(Fault::NoFence, 9, "no warpgroup_fence is before the first product of sums");
    fails(Fault::NoCommit, |finish, _| {
        format!(
            "invalid operand: warpgroup_finish by thread 9 of block (0, 0) at {finish}: no warpgroup_commit has closed \
             the group of 1 products"
        )
    });
    fails(Fault::NoWait, |_, _| {
        "product never waited for: thread 9 of block (0, 0) exited with 1 products of its warpgroup under way"
            .to_owned()
    });
}

#[test]
fn metadata_names_two_places_in_order() {
    let out_of_order = "nibble 2 of metadata names places 1 and 0 of row 1, group 2";
    refused(Fault::MetadataOutOfOrder, 4, out_of_order);
    refused(Fault::MetadataTwice, 5, "nibble 0 of metadata names places 2 and 2 of row 1, group 4");
}

#[test]
fn operands_are_inside_and_written() {
    fails(Fault::OperandOutside, |_, product| {
        let product = by(96, product);
        format!(
            "out of bounds: {product}: 16 bytes at byte {BYTES} of shared memory, of which the block has {BYTES}"
        )
    });
    fails(Fault::OperandUnwritten, |_, product| {
        let (product, byte) = (by(0, product), BYTES - 16);
        format!(
            "read of unwritten memory: {product}: no thread of the block wrote byte {byte} of shared memory"
        )
    });
    refused(Fault::OperandDiffers, 40, "an operand differs from that of the warpgroup's first thread");
    refused(Fault::TransposedUnmixed, 0, "a transposed operand is not mixed in 128 bytes");
}

#[test]
fn threads_that_never_come() {
    fails(Fault::MissingThread, |_, product| {
        format!(
            "incomplete collective in warpgroup 0 of block (0, 0): 127 of 128 threads wait in \
             warpgroup_mma_sparse_f16 at {product}, 1 have exited"
        )
    });
    fails(Fault::WarpThatWaitsElsewhere, |barrier, product| {
        format!(
            "divergent collective in warpgroup 0 of block (0, 0): 96 of 128 threads wait in warpgroup_mma_sparse_f16 at \
             {product}, 32 of 128 threads wait in sync_block at {barrier}"
        )
    });
}

/// What another warpgroup stored is fenced off by all threads that multiply, behind the barrier; if one does so before
/// it, that is not enough.
#[test]
fn who_multiplies_may_fence_stores_off() {
    let kernel = |t: &Thread<'_>, late: Option<u32>| {
        let thread = t.thread_idx();
        // SAFETY: not safe if one is late, which is what the emulator is for.
        unsafe {
            if thread >= 128 {
                for at in ((thread - 128) * 16..BYTES).step_by(128 * 16) {
                    t.store_shared(at, [0x3c00_3c00u32; 4]);
                }
            } else if late == Some(thread) {
                t.copy_bulk_fence();
            }
            t.sync_block();
            if thread < 128 {
                if late != Some(thread) {
                    t.copy_bulk_fence();
                }
                let mut sums = WarpgroupSums::<32>::zeros();
                t.warpgroup_fence();
                t.warpgroup_mma_sparse::<F16, 0, 0, _>(&mut sums, A, B, METADATA);
                t.warpgroup_commit();
                assert!(t.warpgroup_finish(sums) == [16.0; 32]);
            }
        }
    };
    let shape = ([1, 1], 256, BYTES);
    under_all_schedules(
        shape,
        nothing,
        |t, ()| kernel(t, None),
        |schedule, ran, _| {
            assert!(ran.is_ok(), "{schedule:?}: {ran:?}");
        },
    );
    under_all_schedules(
        shape,
        nothing,
        |t, ()| kernel(t, Some(77)),
        |schedule, ran, _| {
            let violation = ran.unwrap_err();
            assert!(matches!(violation, Violation::NotFenced { .. }), "{schedule:?}: {violation}");
        },
    );
}

/// Another warpgroup writes where a product reads, without a barrier: before it, under it or behind it.
#[test]
fn other_warpgroups_are_ordered_by_barriers_alone() {
    let kernel = |t: &Thread<'_>, ()| {
        let thread = t.thread_idx();
        // SAFETY: not safe, which is what the emulator is for.
        unsafe {
            for at in (thread * 16..BYTES).step_by(256 * 16) {
                t.store_shared(at, [0x3c00_3c00u32; 4]);
            }
            t.copy_bulk_fence();
            t.sync_block();
            if thread < 128 {
                let mut sums = WarpgroupSums::<32>::zeros();
                t.warpgroup_fence();
                t.warpgroup_mma_sparse::<F16, 0, 0, _>(&mut sums, A, B, METADATA);
                t.warpgroup_commit();
                t.warpgroup_finish(sums);
            } else if thread == 200 {
                t.store_shared(B_AT, 0u32);
            }
        }
    };
    under_all_schedules(([1, 1], 256, BYTES), nothing, kernel, |schedule, ran, _| {
        let violation = ran.unwrap_err();
        assert!(
            matches!(violation, Violation::SharedRace { .. } | Violation::OperandOverwritten { .. }),
            "{schedule:?}: {violation}"
        );
    });
}

/// Products of operands that are both whole: they are read no further than their 16 inner elements, stay until all have
/// waited, and stores are fenced off.
#[test]
fn whole_operands_have_the_same_rules() {
    const WHOLE: u32 = 2 * B_AT;
    let kernel = |t: &Thread<'_>, fenced: bool, over: Option<u32>| {
        let thread = t.thread_idx();
        let b = SharedOperand { at: B_AT, ..A };
        // SAFETY: not safe with a fault, which is what the emulator is for.
        unsafe {
            for at in (thread * 16..WHOLE + 16).step_by(128 * 16) {
                t.store_shared(at, [0x3c00_3c00u32; 4]);
            }
            if fenced {
                t.copy_bulk_fence();
            }
            t.sync_block();
            let mut sums = WarpgroupSums::<32>::zeros();
            t.warpgroup_fence();
            t.warpgroup_mma::<F16, 0, _>(&mut sums, A, b);
            t.warpgroup_commit();
            if let (Some(at), 3) = (over, thread) {
                t.store_shared(at, 0u32);
            }
            assert!(t.warpgroup_finish(sums) == [16.0; 32]);
        }
    };
    let shape = ([1, 1], 128, WHOLE + 16);
    for (fenced, over, fails) in
        [(true, None, false), (true, Some(WHOLE), false), (true, Some(WHOLE - 4), true), (false, None, true)]
    {
        under_all_schedules(
            shape,
            nothing,
            |t, ()| kernel(t, fenced, over),
            |schedule, ran, _| match (fails, ran) {
                (false, ran) => assert!(ran.is_ok(), "{schedule:?}: {ran:?}"),
                (true, ran) => {
                    let violation = ran.unwrap_err();
                    let expected = if fenced {
                        matches!(violation, Violation::OperandOverwritten { .. })
                    } else {
                        matches!(violation, Violation::NotFenced { .. })
                    };
                    assert!(expected, "{schedule:?}: {violation}");
                }
            },
        );
    }
}
