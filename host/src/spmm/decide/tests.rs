//! What is decided of facts and options.

use super::*;
use crate::device::Device;

/// Short rows that are alike, enough of them.
const FACTS: Facts = Facts {
    rows: 1 << 20,
    nnz: 1 << 22,
    empty_rows: 0,
    longest: 6,
    exceptions: Exceptions { overflowed: 0, non_finite: 0, not_numbers: 0 },
    kernels: true,
    own_order: true,
    on_device: false,
};

fn options(algorithm: Algorithm, precision: Precision, width: usize) -> SpmmOptions {
    SpmmOptions { algorithm, precision, width, ..SpmmOptions::default() }
}

fn decide_so(facts: &Facts, options: &SpmmOptions) -> Result<Decision, SpmmError> {
    decide(facts, options, &Profile::built_in(&Device::cpu()))
}

fn decided(facts: Facts, options: &SpmmOptions) -> (Algorithm, Way) {
    let Decision { algorithm, way, .. } = decide_so(&facts, options).unwrap();
    (algorithm, way)
}

/// f64 has kernels on CUDA cores alone, and none of merged paths.
#[test]
fn f64_is_divided_as_f32_is() {
    for width in [1, 4, 8] {
        let wide = options(Algorithm::Auto, Precision::F64, width);
        assert!(matches!(decided(FACTS, &wide).1, Way::Groups(_)), "{width}");
    }
    let wide = options(Algorithm::Auto, Precision::F64, 128);
    assert_eq!(decided(FACTS, &wide), (Algorithm::RowSplit, Way::Rows));
}

#[test]
fn auto_takes_tiles_where_they_are_right() {
    let auto = options(Algorithm::Auto, Precision::F16, 128);
    let tiles = Way::Tiles(Some(PartitionRule::AllTile));
    assert_eq!(decided(FACTS, &auto), (Algorithm::TileStream, tiles));
    let exceptions = Exceptions { non_finite: 1, ..FACTS.exceptions };
    assert_eq!(decided(Facts { exceptions, ..FACTS }, &auto), (Algorithm::RowSplit, Way::Rows));
    assert_eq!(decided(Facts { nnz: 0, ..FACTS }, &auto), (Algorithm::RowSplit, Way::Rows));
    let strict = options(Algorithm::Auto, Precision::F32, 128);
    assert_eq!(decided(FACTS, &strict), (Algorithm::RowSplit, Way::Rows));
}

/// Tiles are made for many products; for few of a matrix that is elsewhere, nothing that the host has to make.
#[test]
fn what_is_needed_once_is_soon_made() {
    let runs = |precision, width, runs| SpmmOptions {
        expected_runs: Some(runs),
        ..options(Algorithm::Auto, precision, width)
    };
    let least = DeviceCosts::default().tiles.least_runs;
    let elsewhere = Facts { on_device: true, ..FACTS };
    for facts in [FACTS, elsewhere] {
        let of = |runs_of| decided(facts, &runs(Precision::F16, 128, runs_of));
        assert_eq!(of(least - 1), (Algorithm::RowSplit, Way::Rows));
        assert_eq!(of(least).0, Algorithm::TileStream);
        let groups = decided(facts, &runs(Precision::F32, 4, 1)).1;
        assert!(matches!(groups, Way::Groups(division) if division.point.nonzeros_per_thread().is_none()));
    }
    let unlike = Facts { longest: 1 << 18, ..FACTS };
    let of = |facts: Facts, runs_of| decided(facts, &runs(Precision::F32, 4, runs_of)).1;
    assert!(matches!(of(unlike, 1), Way::Groups(division) if division.point.nonzeros_per_thread().is_some()));
    let unlike = Facts { on_device: true, ..unlike };
    assert_eq!(of(unlike, 1), Way::Rows);
    assert!(matches!(of(unlike, least), Way::Groups(_)));
    assert_eq!(decided(FACTS, &runs(Precision::F32, 1, 1)).1, Way::Path);
    assert_ne!(decided(elsewhere, &runs(Precision::F32, 1, 1)).1, Way::Path);
    let decision = decide_so(&FACTS, &runs(Precision::F16, 128, 1)).unwrap();
    assert_eq!(decision.why, format!("1 products are expected, fewer than the {least} that tiles pay for"));
}

#[test]
fn few_columns_are_divided_by_groups_unless_rows_have_an_order() {
    let narrow = |precision| options(Algorithm::Auto, precision, 4);
    for precision in [Precision::F32, Precision::F16] {
        assert!(matches!(decided(FACTS, &narrow(precision)).1, Way::Groups(_)), "{precision}");
        let ordered = Facts { own_order: false, ..FACTS };
        assert!(!matches!(decided(ordered, &narrow(precision)).1, Way::Groups(_)), "{precision}");
    }
    let tiles = Way::Tiles(Some(PartitionRule::AllTile));
    assert_eq!(decided(FACTS, &narrow(Precision::Bf16)).1, tiles, "there are no groups for bf16");
    assert_eq!(decided(FACTS, &options(Algorithm::Auto, Precision::F16, NARROW + 1)).1, tiles);
}

#[test]
fn one_column_is_merged_unless_rows_are_long_and_even() {
    let one = |precision| options(Algorithm::Auto, precision, 1);
    let even = Facts { rows: 1 << 18, longest: 32, ..FACTS };
    let path = (Algorithm::MergePath, Way::Path);
    for precision in [Precision::F32, Precision::F16] {
        assert!(matches!(decided(even, &one(precision)).1, Way::Groups(_)), "{precision}");
        let wider = options(Algorithm::Auto, precision, 2);
        for uneven in [FACTS, Facts { longest: 33, ..even }, Facts { longest: 10_000, ..FACTS }] {
            assert_eq!(decided(uneven, &one(precision)), path, "{precision}");
            assert!(matches!(decided(uneven, &wider).1, Way::Groups(_)), "{precision}");
        }
    }
    for precision in [Precision::Tf32, Precision::Bf16] {
        assert_eq!(decided(even, &one(precision)), path, "{precision}");
    }
    assert_ne!(decided(FACTS, &one(Precision::F64)), path, "there are no such kernels");
    let ordered = Facts { own_order: false, ..FACTS };
    assert_eq!(decided(ordered, &one(Precision::F32)), (Algorithm::RowSplit, Way::Rows));
    let empty = Facts { nnz: 0, longest: 0, ..FACTS };
    assert_ne!(decided(empty, &one(Precision::F32)), path);
}

#[test]
fn what_is_asked_for_is_taken_or_refused() {
    let point = "{<1 row, 1 col>, 1}".parse().unwrap();
    let asked =
        SpmmOptions { parallelism: Some(point), ..options(Algorithm::SegmentGroup, Precision::F32, 64) };
    let launch = GroupLaunch::default();
    let given = Way::Groups(Division { point, launch, row_split: false });
    assert_eq!(decided(FACTS, &asked), (Algorithm::SegmentGroup, given));
    for (algorithm, precision) in [
        (Algorithm::TileStream, Precision::F32),
        (Algorithm::SegmentGroup, Precision::Bf16),
        (Algorithm::MatricizedRows, Precision::F32),
    ] {
        let error = decide_so(&FACTS, &options(algorithm, precision, 1)).unwrap_err();
        assert!(matches!(error, SpmmError::Unsupported { .. }), "{error}");
        let on_cpu = Facts { kernels: false, ..FACTS };
        assert_eq!(decide_so(&on_cpu, &options(algorithm, precision, 1)).unwrap_err(), error);
    }
    let cpu = decided(Facts { kernels: false, ..FACTS }, &options(Algorithm::Hybrid, Precision::F16, 1));
    assert_eq!(cpu, (Algorithm::RowSplit, Way::Cpu(CpuTasks::default())));
}

#[test]
fn matrices_beyond_the_indices_are_refused() {
    let auto = options(Algorithm::Auto, Precision::F16, 128);
    let limit = usize::try_from(MAX_INDEX).unwrap();
    for facts in [Facts { nnz: limit + 1, ..FACTS }, Facts { rows: limit, nnz: 32, ..FACTS }] {
        let error = decide_so(&facts, &auto).unwrap_err();
        assert!(
            matches!(error, SpmmError::Plan(PlanError::TooLarge { found, .. }) if found > MAX_INDEX),
            "{error}"
        );
        assert!(decide_so(&Facts { kernels: false, ..facts }, &auto).is_ok());
    }
}

#[test]
fn an_estimate_is_asked_for_only_where_it_decides() {
    let hybrid = options(Algorithm::Hybrid, Precision::F16, 128);
    let mut open = decide_so(&FACTS, &hybrid).unwrap();
    assert!(open.wants_estimate(&FACTS));
    let empty = Facts { nnz: 0, ..FACTS };
    assert!(!open.wants_estimate(&empty));
    open.settle(&empty, None);
    assert_eq!((open.algorithm, open.way), (Algorithm::Hybrid, Way::Rows));
    assert_eq!(open.why, "all rows on CUDA cores: the matrix has no entries");
    let given = SpmmOptions { partition: Some(PartitionRule::AllTile), ..hybrid };
    assert!(!decide_so(&FACTS, &given).unwrap().wants_estimate(&FACTS));
}

#[test]
fn the_profile_says_where_groups_turn() {
    let mut profile = Profile::built_in(&Device::cpu());
    let auto = options(Algorithm::Auto, Precision::F32, 12);
    assert!(matches!(decide(&FACTS, &auto, &profile).unwrap().way, Way::Groups(_)));
    profile.costs.groups.widest_rows = 8.0;
    assert_eq!(decide(&FACTS, &auto, &profile).unwrap().way, Way::Rows);
}
