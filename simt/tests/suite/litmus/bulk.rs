//! Bulk copies: what is used before its wait, counted wrongly, or never waited for.

use windrow_simt::emulator::{Memory, Thread};
use windrow_simt::{GlobalPtr, Simt};

use super::{Mark, ONE_WARP, TWO_WARPS, passes, reports};

/// Where the counter is; copies go below.
const COUNTER: u32 = 496;

fn numbers(memory: &Memory) -> GlobalPtr<u32> {
    let numbers = memory.alloc_from(&(0..256).collect::<Vec<u32>>());
    memory.label(numbers, "numbers").unwrap();
    numbers
}

/// Two lanes of the first warp copy, the second one every other round; all threads read.
#[test]
fn rounds_deliver_what_was_copied() {
    passes(
        TWO_WARPS,
        numbers,
        |t, numbers| {
            // SAFETY: the protocol is kept.
            unsafe {
                if t.thread_idx() == 0 {
                    t.copy_bulk_begin(COUNTER, 2);
                }
                t.sync_block();
                for round in 0..4 {
                    let second = round % 2 == 0;
                    if t.thread_idx() == 0 {
                        t.copy_bulk(0, numbers.at(round * 16), 64, COUNTER);
                        t.copy_bulk_commit(COUNTER, 64);
                        t.copy_bulk_wait(COUNTER, round);
                    }
                    if t.thread_idx() == 1 {
                        if second {
                            t.copy_bulk(64, numbers.at(128 + round * 4), 16, COUNTER);
                            t.copy_bulk(80, numbers.at(132 + round * 4), 16, COUNTER);
                        }
                        t.copy_bulk_commit(COUNTER, if second { 32 } else { 0 });
                        t.copy_bulk_wait(COUNTER, round);
                    }
                    t.sync_block();
                    let word = t.thread_idx() % 24;
                    let expected = match word {
                        0..16 => round * 16 + word,
                        _ => 128 + (round & !1) * 4 + word - 16,
                    };
                    assert_eq!(t.load_shared::<u32>(word * 4), expected);
                    t.sync_block();
                }
            }
        },
        |_, _| (),
    );
}

/// One thread copies 32 bytes; this goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    NoCounter,
    NoWait,
    NoCommit,
    WrongBytes,
    WrongRound,
    ReadBeforeWait,
    StoreBeforeWait,
    RaggedBytes,
    TooManyThreads,
    MissingThread,
}

/// Checks what is reported of a fault, given the places of the call at fault and of the copy.
#[track_caller]
fn fails(fault: Fault, expected: impl Fn(&str, &str) -> String) {
    let (mark, copy) = (Mark::default(), Mark::default());
    let kernel = |t: &Thread<'_>, numbers: GlobalPtr<u32>| {
        let is = |other| fault == other;
        let threads = if is(Fault::TooManyThreads) { 33 } else { 1 + u32::from(is(Fault::MissingThread)) };
        let bytes = if is(Fault::RaggedBytes) { 24 } else { 32 };
        let committed = if is(Fault::WrongBytes) { 16 } else { 32 };
        // SAFETY: not safe: each fault is one.
        unsafe {
            if t.lane() == 3 && !is(Fault::NoCounter) {
                mark.on_if(is(Fault::TooManyThreads), t).copy_bulk_begin(COUNTER, threads);
            }
            t.sync_block();
            if t.lane() == 0 {
                copy.on(t).copy_bulk(16, numbers, bytes, COUNTER);
                if is(Fault::ReadBeforeWait) {
                    mark.on(t).load_shared::<u32>(20);
                }
                if is(Fault::StoreBeforeWait) {
                    mark.on(t).store_shared(32, 7u32);
                }
                if is(Fault::NoCommit) {
                    return;
                }
                mark.on_if(is(Fault::WrongBytes), t).copy_bulk_commit(COUNTER, committed);
                if !is(Fault::NoWait) {
                    let round = u32::from(is(Fault::WrongRound));
                    mark.on_if(is(Fault::WrongRound), t).copy_bulk_wait(COUNTER, round);
                }
            }
        }
    };
    reports(ONE_WARP, numbers, kernel, |_| {
        let place = |mark: &Mark| if mark.is_set() { mark.to_string() } else { String::new() };
        expected(&place(&mark), &place(&copy))
    });
}

#[test]
fn counters() {
    fails(Fault::NoCounter, |_, copy| {
        format!(
            "invalid operand: copy_bulk by thread 0 of block (0, 0) at {copy}: there is no counter at byte \
             496 of shared memory"
        )
    });
    fails(Fault::TooManyThreads, |begin, _| {
        format!(
            "invalid operand: copy_bulk_begin by thread 3 of block (0, 0) at {begin}: threads is 33, which is \
             not in 1..=32"
        )
    });
    fails(Fault::MissingThread, |_, _| {
        "round never complete: 1 of 2 threads of block (0, 0) committed the last round of bulk copies that the \
         counter at byte 496 of shared memory tells apart"
            .to_owned()
    });
}

#[test]
fn operands() {
    fails(Fault::RaggedBytes, |_, copy| {
        format!(
            "invalid operand: copy_bulk by thread 0 of block (0, 0) at {copy}: bytes is 24, which is 0 or no \
             multiple of 16"
        )
    });
    fails(Fault::WrongBytes, |commit, _| {
        format!(
            "invalid operand: copy_bulk_commit by thread 0 of block (0, 0) at {commit}: bytes is 16, but copies \
             of 32 bytes were started"
        )
    });
    fails(Fault::WrongRound, |wait, _| {
        format!(
            "invalid operand: copy_bulk_wait by thread 0 of block (0, 0) at {wait}: round is 1, but this thread \
             committed round 0 last"
        )
    });
}

#[test]
fn copies_that_nobody_waits_for() {
    for fault in [Fault::NoWait, Fault::NoCommit] {
        fails(fault, |_, copy| {
            format!(
                "copy never waited for: thread 0 of block (0, 0) exited with 2 copies under way, the oldest of \
                 them copy_bulk by thread 0 of block (0, 0) at {copy}"
            )
        });
    }
}

#[test]
fn uses_before_the_wait() {
    fails(Fault::ReadBeforeWait, |read, copy| {
        format!(
            "read of a copy under way: load_shared by thread 0 of block (0, 0) at {read}: no wait has covered \
             byte 20 of shared memory, the destination of copy_bulk by thread 0 of block (0, 0) at {copy}"
        )
    });
    fails(Fault::StoreBeforeWait, |store, copy| {
        format!(
            "write over a copy under way: store_shared by thread 0 of block (0, 0) at {store}: no wait has \
             covered byte 32 of shared memory, the destination of copy_bulk by thread 0 of block (0, 0) at {copy}"
        )
    });
}
