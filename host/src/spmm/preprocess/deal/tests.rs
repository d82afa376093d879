//! The arrays that the device makes of whole windows are those of the host.

use windrow_kernels::deal::length_class;
use windrow_kernels::spmm::tile_stream::piece_word;
use windrow_preprocess::balance::{NO_SLOT, deal_steps};

use super::*;
use crate::EmulatorSchedule;
use crate::device::{Device, DeviceKind};

/// Columns of windows with so many steps, before each and of all.
fn vectors_of(steps: &[u32]) -> Vec<u32> {
    let mut end = 0;
    let ends = steps.iter().zip(0..).map(|(&steps, window)| {
        // A window of one step may have no column; others end anywhere in a tile.
        end += if steps == 1 && window % 3 == 0 { 0 } else { 16 * steps - window % 16 };
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Deals windows out on the host and on the device, in blocks of so many of the longest bands or more.
#[track_caller]
fn check(device: &Device, steps: &[u32], workers: u32, block_bands: u32) {
    let vectors = vectors_of(steps);
    let what = format!("{} windows for {workers} workers on {device}", steps.len());
    let totals = WindowTotals::of(&vectors);
    assert_eq!(totals.steps, steps.iter().map(|&steps| u64::from(steps)).sum::<u64>());
    let windows = narrow(steps.len());
    let whole = WholeDealing::of(windows, totals.steps, totals.longest, workers, TEAM);
    let whole = whole.unwrap_or_else(|| panic!("all whole: {what}"));

    let scratch = Scratch::new(device, 0).unwrap();
    let at = scratch.array_from(&vectors, "window_vectors").unwrap();
    let counted = divided_windows(&scratch, at, steps.len()).unwrap();
    // There is room for the counts of no more blocks.
    let block_windows = counted.block_windows.max(block_bands * BAND);
    let blocks = windows.div_ceil(block_windows);
    let counted = DealParams { block_windows, blocks, ..counted };
    // SAFETY: the arrays are those of these windows, for as many blocks or more.
    let records = unsafe {
        scratch.launch(Variant::CountWindows, u64::from(blocks), &counted).unwrap();
        scratch.read(counted.records, blocks as usize).unwrap()
    };
    let sum = |of: usize| records.iter().map(|record| u64::from(record[of])).sum::<u64>();
    assert_eq!([sum(0), sum(1), sum(3)], [totals.steps, wide(totals.tiles), wide(totals.vectors)], "{what}");
    assert_eq!(records.iter().map(|record| record[2]).max(), Some(totals.longest), "{what}");

    let Stream { pieces, piece_steps, piece_count, workers: list } =
        deal_whole(&scratch, counted, whole).unwrap();
    assert_eq!(piece_count, windows);
    // SAFETY: arrays of these lengths.
    let (pieces, piece_steps) = unsafe {
        (scratch.read(pieces, steps.len()).unwrap(), scratch.read(piece_steps, steps.len() + 1).unwrap())
    };

    let dealt = deal_steps(steps, workers, TEAM).unwrap();
    assert!(dealt.divided.is_empty());
    let word = piece_word(NO_SLOT, false);
    assert!(pieces.iter().zip(&dealt.order).all(|(&piece, &window)| piece == [window, 0, word, 0]), "{what}");
    let mut end = 0;
    let ends = dealt.order.iter().map(|&window| {
        end += steps[window as usize];
        end
    });
    let want: Vec<u32> = std::iter::once(0).chain(ends).collect();
    assert!(piece_steps == want, "{what}");
    let want: Vec<[u32; 2]> =
        dealt.worker_pieces.windows(2).map(|ends| [want[ends[0] as usize], want[ends[1] as usize]]).collect();
    assert!(list.to_vec().unwrap() == want, "{what}");
}

fn devices() -> Vec<Device> {
    let mut devices = EmulatorSchedule::STANDARD.map(Device::emulator).to_vec();
    devices.extend(Device::cuda(0));
    devices
}

/// So many windows, some longer than most, and none longer than the load of so many workers.
fn uneven(windows: u32, workers: u32) -> Vec<u32> {
    let random = |window: u32| window.wrapping_add(1).wrapping_mul(2_654_435_761) >> 8;
    let mut steps: Vec<u32> = (0..windows).map(|window| 1 + 40 / (1 + random(window) % 60)).collect();
    loop {
        let total: u64 = steps.iter().map(|&steps| u64::from(steps) + 1).sum();
        let most = narrow(index(total.div_ceil(u64::from(workers)))) + 2;
        if steps.iter().all(|&steps| steps <= most) {
            return steps;
        }
        steps.iter_mut().for_each(|steps| *steps = (*steps).min(most));
    }
}

#[test]
fn windows_are_dealt_out_as_on_the_host() {
    for device in devices() {
        for (windows, workers) in [
            (1, 4),
            (2, 40),
            (3, 4),
            (31, 7),
            (33, 32),
            (100, 33),
            (150, 200),
            (257, 68),
            (700, 96),
            (1500, 4),
            (1500, 131),
            (1501, 301),
        ] {
            check(&device, &uneven(windows, workers), workers, 1);
        }
    }
}

#[test]
fn windows_alike_and_all_large() {
    for device in devices() {
        for steps in [1, 3, 64, 70] {
            check(&device, &[steps; 300], 70, 1);
        }
        // One window or a few for each worker: all of them large; of lengths that share classes.
        let long: Vec<u32> = (0..130_u32).map(|window| 1000 + window * 37 % 90).collect();
        check(&device, &long, 50, 1);
        let longest: Vec<u32> = (0..40_u32).map(|window| (1 << 18) - 20 + window * 7 % 40).collect();
        check(&device, &longest, 20, 1);
    }
}

/// Several bands, in as many blocks and in blocks of two.
#[test]
fn bands_and_blocks() {
    for device in devices() {
        let steps = uneven(2 * BAND + 1000, 100);
        check(&device, &steps, 100, 1);
        check(&device, &steps, 100, 2);
        if device.kind() == DeviceKind::Cuda {
            for (windows, workers) in [(100_000, 2112), (100_000, 4096), (700_000, 1000), (20_000, 1601)] {
                let steps = uneven(windows, workers);
                check(&device, &steps, workers, 1);
                check(&device, &steps, workers, 5);
            }
        }
    }
}

#[test]
fn classes_are_those_of_the_host() {
    let steps = (0..5000).chain(
        (12..32)
            .flat_map(|bit| [-1, 0, 1].map(|by| (1_i64 << bit) + by).into_iter())
            .map(|steps| u32::try_from(steps).unwrap()),
    );
    for steps in steps.chain([u32::MAX]) {
        assert_eq!(length_class(steps), WholeDealing::class(steps), "{steps} steps");
    }
}

/// Which dealings are the device's.
#[test]
fn the_device_deals_out_many_windows() {
    let totals =
        |windows, steps, longest| WindowTotals { windows, steps, longest, ..WindowTotals::default() };
    assert!(totals(FEW_WINDOWS + 1, 1000, 3).whole(100).is_some());
    assert!(totals(FEW_WINDOWS, 1000, 3).whole(100).is_none(), "few");
    assert!(totals(FEW_WINDOWS + 1, 1000, 500).whole(100).is_none(), "one is divided");
    assert!(totals(FEW_WINDOWS + 1, 1000, 3).whole(3).is_none(), "no team");
    assert!(totals(1 << 20, 1 << 21, 3).whole(TEAM * MOST_TEAMS).is_some());
    assert!(totals(1 << 20, 1 << 21, 3).whole(TEAM * (MOST_TEAMS + 1)).is_none(), "many teams");
    assert!(totals(1 << 24, 1 << 27, 1 << 20).whole(4).is_none(), "much for one");
    assert!(totals(1 << 24, 1 << 27, 1 << 13).whole(1 << 12).is_some());
}
