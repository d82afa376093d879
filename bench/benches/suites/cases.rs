//! One case: made when criterion first asks for it, checked, then timed on the device's own clock.

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use windrow::{Device, DeviceKind};

/// Queues one unit of work.
pub(crate) type Work = Box<dyn FnMut() + Send>;

/// Criterion, the device, and how much is measured.
pub(crate) struct Bench {
    pub(crate) criterion: Criterion,
    pub(crate) device: Device,
    /// Whether every case is only run once, on something little.
    pub(crate) is_quick: bool,
    skipped: Vec<String>,
}

impl Bench {
    pub(crate) fn new(criterion: Criterion, device: Device) -> Self {
        let is_quick = !std::env::args().any(|argument| argument == "--bench");
        Self { criterion, device, is_quick, skipped: Vec::new() }
    }

    /// Whether the device runs kernels: the CPU has one algorithm for all.
    pub(crate) fn has_kernels(&self) -> bool {
        self.device.kind() != DeviceKind::Cpu
    }

    /// Notes a case that the device does not have.
    pub(crate) fn skip(&mut self, case: String) {
        self.skipped.push(case);
    }

    /// The cases of one name, in one report, that each do so many units of work a call.
    pub(crate) fn group(&mut self, name: String, elements: usize) -> Group<'_> {
        let mut group = self.criterion.benchmark_group(name);
        group.sample_size(if self.device.kind() == DeviceKind::Cpu { 10 } else { 20 });
        let mut group = Group { group, device: &self.device };
        group.elements(elements);
        group
    }

    /// Criterion's last words, and what was skipped.
    pub(crate) fn finish(self) {
        self.criterion.final_summary();
        if !self.skipped.is_empty() {
            let (count, device) = (self.skipped.len(), &self.device);
            eprintln!(
                "skipped on {device}, which has one algorithm: {count} cases: {}",
                self.skipped.join(", ")
            );
        }
    }
}

/// Cases of one matrix, shape or tensor.
pub(crate) struct Group<'a> {
    group: BenchmarkGroup<'a, WallTime>,
    device: &'a Device,
}

impl Group<'_> {
    /// Units of work of the cases from here on.
    pub(crate) fn elements(&mut self, elements: usize) {
        self.group.throughput(Throughput::Elements(elements as u64));
    }

    /// A case whose work `make` prepares and checks, when it is first run: one that a filter leaves out costs nothing.
    pub(crate) fn case(&mut self, id: BenchmarkId, make: impl FnOnce() -> Work) {
        let (device, mut make, mut work) = (self.device, Some(make), None::<Work>);
        self.group.bench_function(id, |bencher| {
            let work = work
                .get_or_insert_with(|| make.take().map_or_else(|| Box::new(|| ()) as Work, |make| make()));
            bencher.iter_custom(|calls| {
                let start = device.record().expect("a mark");
                for _ in 0..calls {
                    work();
                }
                let end = device.record().expect("a mark");
                Duration::from_secs_f64(start.elapsed_us(&end).expect("work without errors") * 1e-6)
            });
        });
    }
}
