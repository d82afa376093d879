//! What the page tells of one file.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::measure::statistics::geometric_mean;
use crate::plot::chart::Chart;
use crate::plot::kinds::{Against, intensity, peers, profile, roofline, scatter, speed_ups};
use crate::reading::{Case, Reading, Recorded};

/// Rows of the tables of cases that are behind, and of those that are ahead.
const SIDE: usize = 12;
/// Stands where there is no number; the page sorts it behind all others.
const NOTHING: &str = "–";
/// The most columns of times beside matrix and width; a file with more paths has a line for each case.
const MOST_COLUMNS: usize = 12;

#[derive(Debug, Serialize)]
pub(super) struct Section {
    id: String,
    name: String,
    suite: String,
    machines: String,
    revisions: String,
    command: Option<String>,
    cases: usize,
    repeated: usize,
    /// Cases without a time, and why.
    errors: Vec<String>,
    /// The peer that speeds are over.
    over: Option<String>,
    mean: String,
    compared: usize,
    behind_count: usize,
    means: Grid,
    sides: Vec<Side>,
    plots: Vec<Plot>,
    times: Grid,
}

/// A table that can be sorted.
#[derive(Debug, Default, Serialize)]
struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct Column {
    name: String,
    /// Whether its cells are aligned to the right.
    number: bool,
}

/// Cases that are behind, or ahead.
#[derive(Debug, Serialize)]
struct Side {
    title: &'static str,
    class: &'static str,
    count: usize,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct Plot {
    svg: String,
    left_out: usize,
}

/// Columns of such names, those that hold numbers marked by `#`.
fn columns(names: &[&str]) -> Vec<Column> {
    let column = |name: &&str| match name.strip_prefix('#') {
        Some(name) => Column { name: name.to_owned(), number: true },
        None => Column { name: (*name).to_owned(), number: false },
    };
    names.iter().map(column).collect()
}

/// As many decimals as four digits need.
fn short(x: f64) -> String {
    let decimals = match x.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{x:.decimals$}")
}

fn optional(x: Option<f64>) -> String {
    x.map_or_else(|| NOTHING.to_owned(), short)
}

fn width(case: &Case) -> String {
    case.width.map_or_else(|| NOTHING.to_owned(), |width| width.to_string())
}

impl Section {
    /// Of a file with readings of one state of the L2 cache.
    pub(super) fn of(number: usize, file: &Recorded) -> Self {
        let readings = &file.readings;
        let over = peers(readings).into_iter().next();
        let mut compared = over.as_deref().map_or_else(Vec::new, |over| speed_ups(readings, over));
        compared.sort_by(|a, b| a.1.total_cmp(&b.1));
        let speeds: Vec<_> = compared.iter().map(|&(_, speed)| speed).collect();
        let behind = speeds.partition_point(|&speed| speed < 1.0);
        let timeless = readings.iter().filter(|reading| reading.time.is_none());
        let error = |reading: &Reading| {
            format!("{}: {}", reading.case, reading.error.as_deref().unwrap_or("not measured"))
        };
        Self {
            id: format!("file-{number}"),
            name: file.name() + file.states().first().map_or("", |state| state.suffix()),
            suite: file.each(|reading| reading.case.suite.to_owned()).join(", "),
            machines: file.each(|reading| reading.machine.clone()).join("; "),
            revisions: file.each(|reading| reading.revision.clone()).join(", "),
            command: file.command(),
            cases: readings.len(),
            repeated: file.repeated,
            errors: timeless.map(error).collect(),
            mean: optional(geometric_mean(&speeds)),
            compared: compared.len(),
            behind_count: behind,
            means: means(&compared),
            sides: vec![
                side("Behind", "behind", behind, compared[..behind].iter()),
                side("Ahead", "ahead", compared.len() - behind, compared[behind..].iter().rev()),
            ],
            plots: plots(readings, over.as_deref()),
            times: times(readings),
            over,
        }
    }
}

/// Speeds of each path: mean, least, most, and how often it is behind.
fn means(compared: &[(&Reading, f64)]) -> Grid {
    let mut paths: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (reading, speed) in compared {
        paths.entry(&reading.case.path).or_default().push(*speed);
    }
    let row = |(path, speeds): (&str, Vec<f64>)| {
        let behind = speeds.iter().filter(|speed| **speed < 1.0).count();
        vec![
            path.to_owned(),
            speeds.len().to_string(),
            optional(geometric_mean(&speeds)),
            optional(speeds.iter().copied().reduce(f64::min)),
            optional(speeds.iter().copied().reduce(f64::max)),
            behind.to_string(),
        ]
    };
    Grid {
        columns: columns(&["path", "#cases", "#times as fast, mean", "#least", "#most", "#behind"]),
        rows: paths.into_iter().map(row).collect(),
    }
}

fn side<'a>(
    title: &'static str,
    class: &'static str,
    count: usize,
    cases: impl Iterator<Item = &'a (&'a Reading, f64)>,
) -> Side {
    let row = |(reading, speed): &(&Reading, f64)| {
        vec![
            reading.case.matrix.clone(),
            width(&reading.case),
            reading.case.path.clone(),
            optional(reading.us()),
            short(*speed),
        ]
    };
    let columns = columns(&["matrix", "#width", "path", "#µs", "#times as fast"]);
    Side { title, class, count, columns, rows: cases.take(SIDE).map(row).collect() }
}

/// The pictures that the readings have something for.
fn plots(readings: &[Reading], over: Option<&str>) -> Vec<Plot> {
    let mut charts: Vec<(Chart, usize)> =
        over.map(|over| scatter(readings, over, Against::Entries)).into_iter().collect();
    let paths: BTreeSet<_> = readings.iter().map(|reading| &reading.case.path).collect();
    if paths.len() + usize::from(over.is_some()) > 1 {
        charts.push(profile(readings));
    }
    if readings.iter().any(|reading| reading.roofline.is_some()) {
        charts.push(roofline(readings, Against::EntriesARow));
    }
    if readings.iter().any(|reading| reading.intensity.is_some()) {
        charts.push(intensity(readings));
    }
    charts
        .into_iter()
        .filter_map(|(chart, left_out)| Some(Plot { svg: chart.svg().ok()?, left_out }))
        .collect()
}

/// All times: a line for each product with a column for each path and peer, or a line for each case.
fn times(readings: &[Reading]) -> Grid {
    let mut names: Vec<String> = Vec::new();
    for reading in readings {
        let of_reading =
            std::iter::once(&reading.case.path).chain(reading.peers.iter().map(|(name, _)| name));
        for name in of_reading {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    if names.len() > MOST_COLUMNS {
        let row = |reading: &Reading| {
            let noise = reading.time.and_then(|time| time.noise);
            vec![
                reading.case.matrix.clone(),
                width(&reading.case),
                reading.case.path.clone(),
                optional(reading.us()),
                optional(noise.map(|noise| 100.0 * noise)),
            ]
        };
        return Grid {
            columns: columns(&["matrix", "#width", "path", "#µs", "#noise %"]),
            rows: readings.iter().map(row).collect(),
        };
    }
    let mut products: Vec<(Case, Vec<Option<f64>>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for reading in readings {
        let product = Case { path: String::new(), ..reading.case.clone() };
        let at = *places.entry(product.clone()).or_insert_with(|| {
            products.push((product, vec![None; names.len()]));
            products.len() - 1
        });
        let own = reading.us().map(|us| (&reading.case.path, us));
        for (name, us) in own.into_iter().chain(reading.peers.iter().map(|(name, us)| (name, *us))) {
            if let Some(column) = names.iter().position(|known| known == name) {
                products[at].1[column] = Some(us);
            }
        }
    }
    let row = |(product, times): (Case, Vec<Option<f64>>)| {
        let own = [product.matrix.clone(), width(&product)];
        own.into_iter().chain(times.into_iter().map(optional)).collect()
    };
    let numbered = names.into_iter().map(|name| Column { name, number: true });
    Grid {
        columns: columns(&["matrix", "#width"]).into_iter().chain(numbered).collect(),
        rows: products.into_iter().map(row).collect(),
    }
}
