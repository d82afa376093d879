//! Litmus tests of the emulator: for each thing it detects a kernel that does just that, with the
//! exact report, and a healthy twin that differs in as little as possible. All of them run under every
//! standard schedule, and no report depends on which.

mod bulk;
mod collectives;
mod copies;
mod global;
mod groups;
mod healthy;
mod launches;
mod metadata;
mod races;
mod shared;
mod warpgroup;

use std::fmt;
use std::panic::Location;
use std::sync::OnceLock;

use windrow_simt::emulator::{Launch, Memory, Schedule, Stats, Thread, Violation};

/// Grid, threads per block, bytes of shared memory per block.
type Shape = ([u32; 2], u32, u32);

const ONE_WARP: Shape = ([1, 1], 32, 512);
const TWO_WARPS: Shape = ([1, 1], 64, 512);
const TWO_BLOCKS: Shape = ([2, 1], 32, 512);

/// A place in a kernel that a report is expected to name, as `file:line`.
#[derive(Default)]
struct Mark(OnceLock<&'static Location<'static>>);

impl Mark {
    /// Remembers this line, on which a method of `thread` is to be called.
    #[track_caller]
    fn on<'t, T>(&self, thread: &'t T) -> &'t T {
        let here = Location::caller();
        self.0.get_or_init(|| here);
        thread
    }

    /// Remembers this line if it is the one.
    #[track_caller]
    fn on_if<'t, T>(&self, is_it: bool, thread: &'t T) -> &'t T {
        if is_it { self.on(thread) } else { thread }
    }

    /// Whether the kernel reached it.
    fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = self.0.get().expect("the kernel reaches every mark");
        write!(f, "{}:{}", location.file(), location.line())
    }
}

/// Runs a kernel under the standard schedules, each over the memory that `set_up` makes, and hands what came of it, and
/// that memory, to `judge`.
#[track_caller]
fn under_all_schedules<P: Copy + Sync>(
    (grid, block_threads, shared_bytes): Shape,
    set_up: impl Fn(&Memory) -> P,
    kernel: impl Fn(&Thread<'_>, P) + Sync,
    judge: impl Fn(Schedule, Result<Stats, Violation>, (&Memory, P)),
) {
    for schedule in Schedule::STANDARD {
        let memory = Memory::new();
        let parameters = set_up(&memory);
        let launch = Launch { grid, block_threads, shared_bytes, schedule };
        let ran = memory.launch(&launch, |t| kernel(t, parameters));
        judge(schedule, ran, (&memory, parameters));
    }
}

/// Runs a kernel under the standard schedules, each over the memory that `set_up` makes, and hands
/// that memory to `verify`.
#[track_caller]
fn passes<P: Copy + Sync>(
    shape: Shape,
    set_up: impl Fn(&Memory) -> P,
    kernel: impl Fn(&Thread<'_>, P) + Sync,
    verify: impl Fn(&Memory, P),
) {
    let ([x, y], ..) = shape;
    under_all_schedules(shape, set_up, kernel, |schedule, ran, (memory, parameters)| {
        match ran {
            Ok(stats) => assert_eq!(stats.blocks, u64::from(x) * u64::from(y)),
            Err(violation) => panic!("{schedule:?}: {violation}"),
        }
        verify(memory, parameters);
    });
}

/// Runs a kernel like [`passes`] and compares its violation with the expected text.
#[track_caller]
fn reports<P: Copy + Sync>(
    shape: Shape,
    set_up: impl Fn(&Memory) -> P,
    kernel: impl Fn(&Thread<'_>, P) + Sync,
    expected: impl Fn(P) -> String,
) {
    under_all_schedules(shape, set_up, kernel, |schedule, ran, (_, parameters)| match ran {
        Ok(_) => panic!("{schedule:?}: nothing reported"),
        Err(violation) => assert_eq!(violation.to_string(), expected(parameters), "{schedule:?}"),
    });
}

/// For kernels that need no global memory.
fn nothing(_: &Memory) {}
