//! What is decided of facts and options.

use super::*;
use crate::device::Device;

/// Short rows that are alike, enough of them.
const FACTS: Facts = Facts {
    rows: 1 << 20,
    cols: 1 << 20,
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
    decide(facts, options, &Profile::built_in(&Device::cpu()), &mut || Ok(facts.counts().vectors))
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
    let bf16 = decided(FACTS, &narrow(Precision::Bf16)).1;
    assert!(bf16 == tiles || bf16 == Way::Rows, "there are no groups for bf16");
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
    let way = |profile: &Profile| decide(&FACTS, &auto, profile, &mut || Ok(1)).unwrap().way;
    assert!(matches!(way(&profile), Way::Groups(_)));
    let launch = std::mem::replace(&mut profile.costs.paths.groups_f32.launch, 1e3);
    assert_eq!(way(&profile), Way::Rows, "groups are predicted to take longer");
    profile.costs.paths.groups_f32.launch = launch;
    profile.costs.groups.widest_rows = 8.0;
    assert_eq!(way(&profile), Way::Rows, "the tree has none for so many columns");
}

/// f32 is more exact than tf32, and quicker where rows are short; what is weighed depends on the precision and width.
#[test]
fn predicted_times_decide_where_they_were_measured() {
    let of = |precision, width| decide_so(&FACTS, &options(Algorithm::Auto, precision, width)).unwrap();
    let kinds = |decision: &Decision| {
        let mut kinds: Vec<_> = decision.weighed.iter().map(|of| (of.kind, of.precision)).collect();
        kinds.sort_unstable();
        kinds
    };
    let (f16, f32, tf32) = (Precision::F16, Precision::F32, Precision::Tf32);
    let (rows, groups, tiles) = (Kind::Rows, Kind::Groups, Kind::Tiles);
    assert_eq!(kinds(&of(f16, 12)), [(rows, f16), (groups, f16), (tiles, f16)]);
    assert_eq!(kinds(&of(f16, 32)), [(rows, f16), (tiles, f16)]);
    assert_eq!(kinds(&of(f16, 512)), [(rows, f16), (tiles, f16)]);
    assert_eq!(kinds(&of(f16, 8)), [(rows, f16), (groups, f16), (tiles, f16)]);
    assert_eq!(kinds(&of(f16, 1)), [], "one column is merged");
    assert_eq!(kinds(&of(f32, 8)), [(rows, f32), (groups, f32)]);
    assert_eq!(kinds(&of(f32, 64)), []);
    assert_eq!(kinds(&of(tf32, 8)), [(rows, f32), (groups, f32), (tiles, tf32)]);
    assert_eq!(kinds(&of(tf32, 512)), [(rows, f32), (tiles, tf32)]);
    let bf16 = Precision::Bf16;
    assert_eq!(kinds(&of(bf16, 16)), [(rows, bf16), (tiles, bf16)], "there are no groups for bf16");
    assert_eq!(kinds(&of(Precision::F64, 16)), [], "nothing was measured in f64");
    let served = of(tf32, 4);
    assert_eq!((served.algorithm, served.precision), (Algorithm::SegmentGroup, f32));
    assert!(served.why.starts_with("predicted to be quickest: segment-group in f32: "), "{}", served.why);
    let times: Vec<f64> = served.weighed.iter().map(|of| of.predicted_us).collect();
    assert!(times.is_sorted(), "{times:?}");
    let few = SpmmOptions { expected_runs: Some(1), ..options(Algorithm::Auto, tf32, 64) };
    assert_eq!(kinds(&decide_so(&FACTS, &few).unwrap()), [], "tiles are no choice");
    let exceptions = Exceptions { non_finite: 1, ..FACTS.exceptions };
    let tf32 = options(Algorithm::Auto, tf32, 64);
    assert_eq!(kinds(&decide_so(&Facts { exceptions, ..FACTS }, &tf32).unwrap()), []);
}

/// Column vectors are counted only where their number decides: not where tiles lose whatever it is, or win.
#[test]
fn column_vectors_are_counted_where_they_decide() {
    let profile = Profile::built_in(&Device::cpu());
    let counted = |facts: &Facts, width| {
        let mut counted = 0;
        let options = options(Algorithm::Auto, Precision::Tf32, width);
        let mut count = || {
            counted += 1;
            Ok(wide(facts.nnz) / 2)
        };
        let decision = decide(facts, &options, &profile, &mut count).unwrap();
        let tiles = decision.weighed.iter().find(|of| of.kind == Kind::Tiles).unwrap();
        (counted, tiles.known)
    };
    use crate::predict::weigh::Known;
    assert_eq!(counted(&FACTS, 4), (0, Known::AtLeast));
    let long = Facts { rows: 1 << 16, cols: 1 << 12, nnz: 1 << 23, longest: 200, ..FACTS };
    assert_eq!(counted(&long, 256), (1, Known::Exactly));
}

/// What rows share decides between two paths off tiles only where the L1 cache turns one's advantage over.
#[test]
fn paths_off_tiles_are_told_apart_without_a_count() {
    let mut profile = Profile::built_in(&Device::cpu());
    let counted = |profile: &Profile, share: usize| {
        let mut counted = 0;
        let mut count = || {
            counted += 1;
            Ok(wide(FACTS.nnz / share))
        };
        let options = options(Algorithm::Auto, Precision::F32, 8);
        let decision = decide(&FACTS, &options, profile, &mut count).unwrap();
        let times: Vec<f64> = decision.weighed.iter().map(|of| of.predicted_us).collect();
        assert!(times.is_sorted(), "{times:?}");
        (counted, decision.weighed[0].kind, decision.weighed[0].known)
    };
    use crate::predict::weigh::Known;
    assert_eq!(counted(&profile, 2), (0, Kind::Groups, Known::AtMost));
    // Groups that start sooner, and whose every gather costs: quicker where rows share what they gather.
    profile.costs.paths.groups_f32.l1_missed *= 30.0;
    assert_eq!(counted(&profile, 8), (1, Kind::Groups, Known::Exactly));
    assert_eq!(counted(&profile, 1), (1, Kind::Rows, Known::Exactly));
}
