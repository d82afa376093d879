//! The fuzzer's targets of plans and of the cache's files, on what is committed of its corpus and on changes to it, the
//! same every time.
#![expect(clippy::cast_possible_truncation, reason = "numbers from the fuzzer are cut to what fits")]

#[path = "../fuzz/bytes.rs"]
mod bytes;
#[path = "../fuzz/caches.rs"]
mod caches;
#[path = "../fuzz/inputs.rs"]
mod inputs;
#[path = "../fuzz/mutate.rs"]
mod mutate;
#[path = "../fuzz/plans.rs"]
mod plans;

use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::{
    Algorithm, CpuTasks, Device, GroupLaunch, OccupancyRange, Precision, ProductKey, Profile, RowDivision,
    SpmmOptions, TileValues, Tuned, reorder,
};
use windrow_testkit::SplitMix64;

/// Promise, results: whatever a plan is told, it is refused with an error, or its product is right.
#[test]
fn plans_of_any_options_are_right_or_refused() {
    let seeds = inputs::random(32, 600);
    inputs::assert_committed("plans", &seeds);
    let inputs = inputs::corpus("plans");
    inputs.iter().for_each(|input| _ = plans::check(input));
    let tries = inputs::tries(1500);
    let (mut rng, mut built) = (SplitMix64::new(0x5eed), 0);
    for turn in 0..tries {
        let mut input = match turn % 2 == 0 {
            true => (0..600).map(|_| rng.next_u64().to_le_bytes()[0]).collect(),
            false => inputs[rng.below(inputs.len())].clone(),
        };
        if turn % 2 == 1 {
            mutate::mutate(&mut input, &mut rng);
        }
        built += u64::from(plans::check(&input));
    }
    eprintln!("{tries} plans, {built} built and compared");
    assert!(built > tries / 8, "{built} of {tries} plans were built");
}

/// Promise, files: whatever a file of the cache holds, it is refused with an error, or what it says can be saved, is
/// read again as it was, and makes plans whose products are right; what is broken gives way to what is new.
#[test]
fn changed_caches_are_used_or_refused() {
    let seeds = cache_seeds();
    for (number, seed) in seeds.iter().enumerate() {
        assert!(caches::check(seed), "seed {number}: {}", String::from_utf8_lossy(seed));
        for len in (0..seed.len()).step_by(97) {
            assert!(!caches::check(&seed[..len]), "seed {number} as far as {len}");
        }
    }
    inputs::assert_committed("caches", &seeds);
    let inputs = inputs::corpus("caches");
    inputs.iter().for_each(|input| _ = caches::check(input));
    inputs::changed("caches", inputs::tries(3000), &inputs, caches::check);
    caches::clean_up();
}

/// Profiles and tuned choices as they are saved, behind the byte that names their file.
fn cache_seeds() -> Vec<Vec<u8>> {
    let cpu = Device::cpu();
    let seed =
        |kind: u8, text: String| [vec![kind], text.replace(cpu.name(), caches::CPU).into_bytes()].concat();
    let mut seeds = Vec::new();
    for device in caches::devices() {
        let mut profile = Profile::of(&device);
        seeds.push(seed(caches::PROFILE, serde_json::to_string(&profile).unwrap()));
        profile.spmm = OccupancyRange { least: 0.25, most: f64::MAX };
        profile.set_vector_threshold(VectorThreshold::ALL[6]);
        (profile.costs.groups.large_blocks, profile.costs.tensor_threads) = (1e5, 0.1 + 0.2);
        seeds.push(seed(caches::PROFILE | 2, serde_json::to_string_pretty(&profile).unwrap()));
        // Costs were not always there, and may be left out one by one.
        let mut old = serde_json::to_value(&profile).unwrap();
        old["costs"] = serde_json::json!({ "groups": { "alike": 3 }, "tiles": { "packed_steps": -1e300 } });
        seeds.push(seed(caches::PROFILE | 2, serde_json::to_string(&old).unwrap()));
        old.as_object_mut().unwrap().remove("costs");
        seeds.push(seed(caches::PROFILE, serde_json::to_string(&old).unwrap()));

        let tuned = Tuned::of(&device);
        seeds.push(seed(caches::TUNED | 2, serde_json::to_string(&tuned).unwrap()));
        for way in ways() {
            let (mut tuned, a) = (tuned.clone(), caches::matrix());
            for precision in [Precision::F32, Precision::F16] {
                let options = SpmmOptions { width: caches::WIDTH, precision, ..way };
                tuned.remember(ProductKey::new(&a, &options), options, 1.5, 1e-7).unwrap();
            }
            seeds.push(seed(caches::TUNED | 2, serde_json::to_string(&tuned).unwrap()));
        }
    }
    seeds
}

/// Ways to a product that say everything which can be remembered of one.
fn ways() -> [SpmmOptions; 4] {
    let way = |algorithm| SpmmOptions { algorithm, ..SpmmOptions::DEFAULT };
    [
        SpmmOptions {
            cpu_tasks: Some(CpuTasks { ranges_per_thread: 4, tile_columns: Some(32) }),
            ..way(Algorithm::Auto)
        },
        SpmmOptions {
            parallelism: Some("{<1/4 row, 4 col>, 4}".parse().unwrap()),
            group_launch: Some(GroupLaunch { block_threads: 64, tile_columns: Some(8), workers_log2: -1 }),
            reorder: Some(reorder::Options::default()),
            ..way(Algorithm::SegmentGroup)
        },
        SpmmOptions {
            partition: Some(PartitionRule::ColumnVectors { threshold: VectorThreshold::LIBRA }),
            tile_values: TileValues::Packed,
            workers: Some(3),
            ..way(Algorithm::Hybrid)
        },
        SpmmOptions {
            row_division: RowDivision {
                piece_entries: Some(u32::MAX),
                slice_columns: Some(32),
                several_ways: Some(true),
            },
            window_each: true,
            ..way(Algorithm::RowSplit)
        },
    ]
}
