//! What is drawn of records with known numbers.

use clap::Parser;

use super::chart::Series;
use super::kinds::{intensity, profile, roofline, row_lengths, scatter, speed_ups};
use super::*;
use crate::program::{Arguments as Program, execute};
use crate::reading::testing::{File, cold, line};
use crate::suites::testing::temporary;

fn readings(lines: &[String]) -> Vec<Reading> {
    Recorded::read(&File::new("plot", lines).0).unwrap().readings
}

/// Three products on two paths beside cuSPARSE.
fn lines() -> Vec<String> {
    let of = |matrix: &str, path: &str, us: f64, peer: f64| line(matrix, 64, path, (us, 0.0), Some(peer));
    vec![
        of("a", "auto-f32", 10.0, 20.0),
        of("a", "row-split-f32", 20.0, 20.0),
        of("b", "auto-f32", 40.0, 10.0),
        of("b", "row-split-f32", 15.0, 10.0),
        of("c", "auto-f32", 10.0, 80.0),
    ]
}

fn series<'a>(chart: &'a chart::Chart, name: &str) -> &'a Series {
    chart.series.iter().find(|series| series.name == name).unwrap_or_else(|| panic!("{name}: {chart:?}"))
}

#[test]
fn a_scatter_has_a_point_for_each_case() {
    let readings = readings(&lines());
    let (chart, left_out) = scatter(&readings, "cuSPARSE f32", Against::EntriesARow);
    // 64 entries in 16 rows.
    assert_eq!(series(&chart, "auto-f32").points, [(4.0, 2.0), (4.0, 0.25), (4.0, 8.0)]);
    assert_eq!(series(&chart, "row-split-f32").points, [(4.0, 1.0), (4.0, 10.0 / 15.0)]);
    assert_eq!((left_out, chart.level, chart.labels), (0, Some(1.0), vec![(4.0, 0.25, "b".to_owned())]));
    assert_eq!(speed_ups(&readings, "cusparse-F32").len(), 5);
    // Over a path of the same products; c was not measured on it.
    let over_path: Vec<_> =
        speed_ups(&readings, "row-split-f32").into_iter().map(|(_, speed)| speed).collect();
    assert_eq!(over_path, [2.0, 15.0 / 40.0]);
}

#[test]
fn a_profile_counts_products_within_a_factor() {
    let (chart, _) = profile(&readings(&lines()));
    let share = |name: &str, factor: f64| {
        let within = series(&chart, name).points.iter().filter(|(at, _)| *at <= factor);
        within.map(|&(_, share)| share).fold(0.0, f64::max)
    };
    // auto: 1, 4, 1 times the best; row-split: 2, 1.5, none; cuSPARSE: 2, 1, 8.
    assert_eq!(
        (share("auto-f32", 1.0), share("auto-f32", 3.9), share("auto-f32", 4.0)),
        (2.0 / 3.0, 2.0 / 3.0, 1.0)
    );
    assert_eq!((share("row-split-f32", 1.0), share("row-split-f32", 1.5)), (0.0, 1.0 / 3.0));
    assert_eq!(share("row-split-f32", 8.0), 2.0 / 3.0);
    assert_eq!((share("cuSPARSE f32", 1.0), share("cuSPARSE f32", 2.0)), (1.0 / 3.0, 2.0 / 3.0));
    assert_eq!(chart.series[0].name, "auto-f32", "the nearest to the best comes first");
    assert!(chart.title.contains("of 3 products"));
}

#[test]
fn a_roofline_is_shares_or_rates() {
    let (chart, _) = roofline(&readings(&lines()), Against::Entries);
    assert_eq!(series(&chart, "auto-f32").points, [(64.0, 0.5); 3]);
    let without: Vec<_> = lines().iter().map(|line| line.replace(",\"roofline_fraction\":0.5", "")).collect();
    let (chart, _) = roofline(&readings(&without), Against::Entries);
    assert_eq!((series(&chart, "row-split-f32").points[0], chart.y.label.as_str()), ((64.0, 100.0), "GB/s"));
}

#[test]
fn products_of_nm_weights_have_an_intensity() {
    let of = |kept: u32, tflops: f64| {
        format!(
            r#"{{"schema":1,"suite":"nm","revision":"","device":{{"name":"","kind":"cuda","driver":null,"multiprocessors":1}},
            "shape":{{"m":{kept},"n":2,"k":3}},"pattern":[8,32,32],"precision":"f16","layout":"k-major","packing":"auto",
            "plan":{{"algorithm":"","entries":[],"packing":"","tile":"64 × 128, {kept} kept rows a stage, strips of 32",
            "tuned":[],"device_bytes":0,"preprocess_ms":0.0}},"tflops":{tflops},"dense_us":null,"error":null,
            "time":{{"median_us":1.0,"min_us":1.0,"max_us":1.0,"noise":0.0,"batches":1,"calls":1}}}}"#
        )
        .replace('\n', "")
    };
    let with_none = readings(&[of(16, 3.0), of(32, 4.0), lines().swap_remove(0)]);
    let (chart, left_out) = intensity(&with_none);
    let points = &series(&chart, "f16 k-major auto").points;
    assert_eq!(points[..], [(262_144.0 / 22_528.0, 3.0), (524_288.0 / 28_672.0, 4.0)]);
    assert_eq!((chart.series.len(), left_out), (1, 0));
    assert!(chart.svg().unwrap().contains("operations for each element"));
}

#[test]
fn lengths_of_rows_are_shares() {
    let chart = row_lengths("m", vec![4, 1, 0, 1]);
    let ends = |name: &str| series(&chart, name).points.clone();
    // Three of four rows have one entry at most, and a third of the entries.
    assert_eq!(
        ends("rows"),
        [(1.0, 0.0), (1.0, 0.0), (1.0, 0.25), (1.0, 0.25), (1.0, 0.75), (4.0, 0.75), (4.0, 1.0)]
    );
    assert!(ends("entries").contains(&(1.0, 2.0 / 6.0)) && ends("entries").contains(&(4.0, 1.0)));
    assert!(row_lengths("none", Vec::new()).svg().is_err());
}

#[test]
fn too_many_paths_are_counted() {
    let paths: Vec<_> =
        (0..10).map(|at| line("a", 64, &format!("auto-f32+workers={at}"), (10.0, 0.0), Some(20.0))).collect();
    let (chart, left_out) = scatter(&readings(&paths), "cuSPARSE f32", Against::Entries);
    assert_eq!((chart.series.len(), left_out), (8, 2));
}

#[test]
fn the_program_draws() {
    let (records, out) = (File::new("records", &lines()), File(temporary("plot.svg")));
    let matrix = File(temporary("plot.mtx"));
    std::fs::write(&matrix.0, "%%MatrixMarket matrix coordinate real general\n2 3 2\n1 3 1.5\n2 1 -2\n")
        .unwrap();
    let draw = |words: &[&str]| {
        let file = out.word();
        let words = [&["windrow-bench", "plot"], words, &["--out", &file]].concat();
        let exit = execute(&Program::try_parse_from(words).unwrap(), &mut Vec::new());
        exit.map(|exit| (exit, std::fs::read_to_string(&out.0).unwrap()))
    };
    let file = records.word();
    for (words, told) in [
        (&["speed", &file][..], "times as fast as cuSPARSE f32"),
        (
            &["speed", &file, "--over", "row-split-f32", "--paths", "auto-f32"],
            "times as fast as row-split-f32",
        ),
        (&["profile", &file, "--widths", "64"], "share of products"),
        (&["roofline", &file], "Share of the gather roofline"),
        (&["rows", &matrix.word()], "entries of a row"),
    ] {
        let (exit, svg) = draw(words).unwrap_or_else(|failure| panic!("{words:?}: {failure:?}"));
        assert!(exit == Exit::Right && svg.contains(told) && svg.contains("</svg>"), "{words:?}: {svg}");
    }
    for (words, told) in [
        (&["speed", &file, "--paths", "chess"][..], "no record of the path \"chess\""),
        (&["speed", &file, "--over", "chess"], "nothing to draw"),
        (&["profile", &file, "--widths", "7"], "nothing to draw"),
        (&["rows", &file, &file], "one matrix, not 2"),
    ] {
        let failure = draw(words).unwrap_err();
        assert!(failure.exit == Exit::Usage && failure.message.contains(told), "{words:?}: {failure:?}");
    }
    assert_eq!(draw(&["rows", &file]).unwrap_err().exit, Exit::File);
}

#[test]
fn warm_and_cold_times_are_drawn_apart() {
    let warm = line("a", 64, "auto-f32", (10.0, 0.0), Some(20.0));
    let records = File::new("states", &[warm.clone(), cold(&warm)]);
    let out = File(temporary("states.svg"));
    let draw = |file: &File, words: &[&str]| {
        let files = ["windrow-bench", "plot", "speed", &file.word(), "--out", &out.word()];
        let arguments = Program::try_parse_from(files.iter().chain(words)).unwrap();
        execute(&arguments, &mut Vec::new()).map(|_| std::fs::read_to_string(&out.0).unwrap())
    };
    let failure = draw(&records, &[]).unwrap_err();
    assert!(failure.exit == Exit::Usage && failure.message.contains("--l2 cold"), "{failure:?}");
    assert!(draw(&records, &["--l2", "cold"]).unwrap().contains("Speed over cuSPARSE f32, cold L2"));
    assert!(!draw(&records, &["--l2", "warm"]).unwrap().contains("cold L2"));
    let only = File::new("cold", &[cold(&warm)]);
    assert!(draw(&only, &[]).unwrap().contains("cold L2"), "there is nothing else to draw");
    let failure = draw(&only, &["--l2", "warm"]).unwrap_err();
    assert!(failure.message.contains("no record has a warm L2 cache"), "{failure:?}");
}
