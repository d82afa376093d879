//! Which kinds of plans give the same bits in every run, by running them: the page `docs/determinism.md`, which
//! `WINDROW_BLESS=1 cargo test --test products determinism` writes.

use std::collections::BTreeSet;
use std::fmt::Write;

use windrow::{Algorithm, Device, EmulatorSchedule, Precision};

use crate::common::page::holds;
use crate::subjects::{BASE, FAMILIES, Family, MODES, TILES, any_order, hybrid, tensor_in_any_order};

const PAGE: &str = "docs/determinism.md";

/// Threads of the CPU that share a product.
const THREADS: [usize; 3] = [1, 2, 5];

/// Plans that are told [`Determinism::Fast`](windrow::Determinism::Fast), with numbers whose sums are rounded.
const ANY_ORDER: &[Family] = &[
    Family::other("SpMM row-split, any order", |device| any_order(device, BASE)),
    Family::other("SpMM short rows, any order", |device| {
        any_order(device, windrow::SpmmOptions { algorithm: Algorithm::ShortRows, ..BASE })
    }),
    Family::other("SpMM segment groups, any order", |device| {
        any_order(device, windrow::SpmmOptions { algorithm: Algorithm::SegmentGroup, ..BASE })
    }),
    Family::other("SpMM merge path, any order", |device| {
        any_order(device, windrow::SpmmOptions { algorithm: Algorithm::MergePath, ..BASE })
    }),
    Family::other("SpMM row panels, any order", |device| {
        any_order(device, windrow::SpmmOptions { algorithm: Algorithm::RowPanels, ..BASE })
    }),
    Family::other("SpMM matricised rows, any order", |device| {
        any_order(device, windrow::SpmmOptions { algorithm: Algorithm::MatricizedRows, ..TILES })
    }),
    Family::other("SpMM tiles, any order", |device| any_order(device, TILES)),
    Family::other("SpMM hybrid on two streams, any order", |device| any_order(device, hybrid()?)),
    Family::other("MTTKRP, any order", |device| tensor_in_any_order(device, Precision::F32)),
];

/// What runs of one kind of plan had for bits.
struct Row {
    kind: &'static str,
    /// How many results all schedules of the emulator gave, each with two plans run twice.
    of_schedules: usize,
    /// How many results all numbers of threads gave; none where the CPU has no such plan.
    of_threads: Option<usize>,
}

/// A pool of so many threads.
fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// Two plans, each run twice.
fn results(family: &Family, device: &Device) -> Result<BTreeSet<Vec<u32>>, String> {
    let mut found = BTreeSet::new();
    for _ in 0..2 {
        let mut subject = family.make(device).map_err(|error| error.to_string())?;
        for _ in 0..2 {
            found.insert(subject.run().map_err(|error| error.to_string())?);
        }
    }
    Ok(found)
}

impl Row {
    /// With so many blocks at a time on the emulator.
    fn of(family: &Family, blocks: usize) -> Self {
        let mut of_schedules = BTreeSet::new();
        for schedule in EmulatorSchedule::STANDARD {
            let found = pool(blocks).install(|| results(family, &Device::emulator(schedule)));
            of_schedules.extend(found.unwrap_or_else(|error| panic!("{}: {error}", family.name)));
        }
        let mut of_threads = BTreeSet::new();
        for threads in THREADS {
            let Ok(found) = pool(threads).install(|| results(family, &Device::cpu())) else {
                of_threads.clear();
                break;
            };
            of_threads.extend(found);
        }
        let of_threads = Some(of_threads.len()).filter(|&count| count > 0);
        Self { kind: family.name, of_schedules: of_schedules.len(), of_threads }
    }

    fn cells(&self) -> String {
        let same = |count: usize| if count == 1 { "yes" } else { "no" };
        let of_threads = self.of_threads.map_or("no such plan", same);
        format!("| {} | {} | {of_threads} |", self.kind, same(self.of_schedules))
    }
}

fn page(in_order: &[Row], any_order: &[Row]) -> String {
    let mut page = format!(
        "# The same bits, kind by kind\n\n\
        Each kind of plan was made twice and run twice under each of {} schedules of the emulator, which take blocks, \
        warps and lanes in other orders, and start what runs beside first or last; and on the CPU with {} threads. \
        Numbers are such that sums are rounded, so that another order of additions has other bits. What is promised, and \
        why, is in [numerics](numerics.md#the-same-bits-every-time).\n\n\
        `WINDROW_BLESS=1 cargo test --test products determinism` writes this page; without it the test fails if what it \
        finds is another.\n",
        EmulatorSchedule::STANDARD.len(),
        THREADS.map(|threads| threads.to_string()).join(", ")
    );
    for (title, text, rows) in [
        ("By default", "`Determinism::RunToRun`: the order of every sum is fixed by the plan.", in_order),
        (
            "In any order",
            "`Determinism::Fast`: pieces of what is cut are added atomically, in the order in which they come. Kinds \
            that cut nothing, or do not add so, have the same bits all the same.",
            any_order,
        ),
    ] {
        let _ = write!(
            page,
            "\n## {title}\n\n{text}\n\n\
            | kind of plan | the same bits in every order on the GPU | with any number of threads on the CPU |\n\
            | --- | --- | --- |\n"
        );
        for row in rows {
            let _ = writeln!(page, "{}", row.cells());
        }
    }
    page
}

/// Promise, determinism: by default every kind of plan has the same bits, whatever the order in which work is done and
/// whatever the number of threads; `docs/determinism.md` says so kind by kind.
#[test]
fn every_kind_of_plan_has_the_bits_that_the_page_says() {
    let is_in_order = |family: &&Family| !family.name.contains("any order");
    let kinds = FAMILIES.iter().chain(MODES).filter(is_in_order);
    let in_order: Vec<Row> = kinds.map(|family| Row::of(family, 4)).collect();
    for row in &in_order {
        assert!(row.of_schedules == 1 && row.of_threads.is_none_or(|count| count == 1), "{}", row.cells());
    }
    // Block by block, so that what is found is the same every time.
    let any_order: Vec<Row> = ANY_ORDER.iter().map(|family| Row::of(family, 1)).collect();
    let differing = any_order.iter().filter(|row| row.of_schedules > 1).count();
    assert!(differing > 0, "no order of additions is seen in any bit: the numbers tell nothing");
    holds(PAGE, &page(&in_order, &any_order));
}
