//! The barrier of a warpgroup: whose accesses it orders, who must come, and how often.

use windrow_simt::Simt;
use windrow_simt::emulator::{Launch, Memory, Schedule, Thread};

use super::{Mark, nothing, passes, reports};

/// A barrier that orders what the warps of a warpgroup do.
#[derive(Clone, Copy, PartialEq)]
enum Barrier {
    Warp,
    Warpgroup,
    /// Of the warpgroup, but for the last warp, which has one of its own.
    WarpgroupAndWarp,
}

/// Thread 0 stores, and the first thread of warp `reader` reads behind a barrier.
fn kernel_of_groups(t: &Thread<'_>, (barrier, reader): (Barrier, u32), [store, wait, load]: [&Mark; 3]) {
    // SAFETY: not safe if the barrier does not order the two, or if one warp does not come to it.
    unsafe {
        if t.thread_idx() == 0 {
            store.on(t).store_shared(0, 1_u32);
        }
        if barrier == Barrier::Warp || (barrier == Barrier::WarpgroupAndWarp && t.warp() == 3) {
            t.sync_warp();
        } else {
            wait.on(t).sync_warpgroup();
        }
        if t.thread_idx() == reader * 32 {
            load.on(t).load_shared::<u32>(0);
        }
    }
}

#[test]
fn a_barrier_of_a_warpgroup_orders_its_warps_and_no_others() {
    let [store, wait, load] = [Mark::default(), Mark::default(), Mark::default()];
    let marks = [&store, &wait, &load];
    let two_groups = ([1, 1], 256, 512);
    let race = |reader: u32| {
        format!(
            "race on byte 0 of shared memory: no barrier between store_shared by thread 0 of block (0, 0) at {store} \
             and load_shared by thread {} of block (0, 0) at {load}",
            reader * 32
        )
    };
    let runs = |reader| (Barrier::Warpgroup, reader);
    passes(two_groups, nothing, |t, ()| kernel_of_groups(t, runs(3), marks), |_, ()| ());
    let found = |case: (Barrier, u32)| {
        let launch = Launch {
            grid: [1, 1],
            block_threads: 256,
            shared_bytes: 512,
            // The first warps first: what is stored is there when it is read.
            schedule: Schedule::InOrder,
        };
        let ran = Memory::new().launch(&launch, |t| kernel_of_groups(t, case, marks));
        ran.expect_err("a race").to_string()
    };
    assert_eq!(found((Barrier::Warp, 3)), race(3));
    assert_eq!(found((Barrier::Warpgroup, 4)), race(4));
}

/// Phases are counted in few bits, from the last barrier of the block on: none is taken for an earlier one.
#[test]
fn more_barriers_of_a_warpgroup_than_are_told_apart() {
    let wait = Mark::default();
    let kernel = |t: &Thread<'_>, times: u32, then: bool| {
        // SAFETY: all threads of the block, one warpgroup, come as often.
        unsafe {
            for _ in 0..times {
                wait.on(t).sync_warpgroup();
            }
            if then {
                t.sync_block();
                t.sync_warpgroup();
            }
        }
    };
    let one_group = ([1, 1], 128, 16);
    passes(one_group, nothing, |t, ()| kernel(t, 4095, true), |_, ()| ());
    reports(
        one_group,
        nothing,
        |t, ()| kernel(t, 4096, false),
        |()| {
            format!(
                "invalid operand: sync_warpgroup by thread 0 of block (0, 0) at {wait}: so many barriers without one \
                 of the block are not told apart"
            )
        },
    );
}

#[test]
fn a_warp_that_does_not_come_to_the_barrier_of_its_warpgroup() {
    let [store, wait, load] = [Mark::default(), Mark::default(), Mark::default()];
    let case = (Barrier::WarpgroupAndWarp, 0);
    reports(
        ([1, 1], 128, 512),
        nothing,
        |t, ()| kernel_of_groups(t, case, [&store, &wait, &load]),
        |()| {
            format!(
                "incomplete collective in warpgroup 0 of block (0, 0): 96 of 128 threads wait in sync_warpgroup at \
                 {wait}, 32 have exited"
            )
        },
    );
}
