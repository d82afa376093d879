//! What each kind of picture shows, from readings to charts.

use std::collections::{BTreeMap, HashMap};

use super::chart::{Axis, Chart, Form, MOST_SERIES, Series, Spacing, around};
use crate::reading::{Case, Reading};

/// What a scatter is over: entries, or entries a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Against {
    Entries,
    EntriesARow,
}

/// Worst points that have their matrix beside them.
const NAMED: usize = 3;
/// How far behind the best a performance profile looks.
const FURTHEST: f64 = 8.0;

/// A product: everything of a case but the path.
fn product(case: &Case) -> Case {
    Case { path: String::new(), ..case.clone() }
}

/// The peers of readings, the one of most readings first.
pub(crate) fn peers(readings: &[Reading]) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for (name, _) in
        readings.iter().filter(|reading| reading.time.is_some()).flat_map(|reading| &reading.peers)
    {
        match counts.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name.clone(), 1)),
        }
    }
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    counts.into_iter().map(|(name, _)| name).collect()
}

/// Each reading with how many times as fast it is as `over`, a peer or else a path of the same product.
pub(crate) fn speed_ups<'a>(readings: &'a [Reading], over: &str) -> Vec<(&'a Reading, f64)> {
    let same = |name: &str| name.to_lowercase().replace(' ', "-") == over.to_lowercase().replace(' ', "-");
    let of_peer = |reading: &'a Reading| {
        let (name, _) = reading.peers.iter().find(|(name, _)| same(name))?;
        Some((reading, reading.speed_up(name)?))
    };
    let found: Vec<_> = readings.iter().filter_map(of_peer).collect();
    if !found.is_empty() {
        return found;
    }
    let theirs: HashMap<Case, f64> = readings
        .iter()
        .filter(|reading| reading.case.path == over)
        .filter_map(|reading| Some((product(&reading.case), reading.us()?)))
        .collect();
    let of_path =
        |reading: &'a Reading| Some((reading, theirs.get(&product(&reading.case))? / reading.us()?));
    readings.iter().filter(|reading| reading.case.path != over).filter_map(of_path).collect()
}

/// Series by path, at most as many as can be told apart, those with most points first; and how many were left out.
fn by_path<'a>(points: impl Iterator<Item = (&'a str, (f64, f64))>) -> (Vec<Series>, usize) {
    let mut series: Vec<Series> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (path, point) in points {
        let at = *places.entry(path).or_insert_with(|| {
            series.push(Series { name: path.to_owned(), points: Vec::new() });
            series.len() - 1
        });
        series[at].points.push(point);
    }
    series.sort_by_key(|series| std::cmp::Reverse(series.points.len()));
    let left_out = series.len().saturating_sub(MOST_SERIES);
    series.truncate(MOST_SERIES);
    (series, left_out)
}

/// What a case has along the axis below.
fn along(reading: &Reading, against: Against) -> Option<f64> {
    let nnz = reading.nnz.filter(|&nnz| nnz > 0)? as f64;
    match against {
        Against::Entries => Some(nnz),
        Against::EntriesARow => Some(nnz / reading.rows.filter(|&rows| rows > 0)? as f64),
    }
}

fn below(against: Against, points: &[Series]) -> Axis {
    let (label, base) = match against {
        Against::Entries => ("entries", 10.0),
        Against::EntriesARow => ("entries a row, mean", 2.0),
    };
    let range = around(points.iter().flat_map(|series| &series.points).map(|&(x, _)| x), base);
    Axis { label: label.to_owned(), range, spacing: Spacing::Powers(base) }
}

/// How many times as fast as a peer or a path, case by case; and how many paths were left out.
pub(crate) fn scatter(readings: &[Reading], over: &str, against: Against) -> (Chart, usize) {
    let found = speed_ups(readings, over);
    let placed: Vec<_> = found
        .iter()
        .filter_map(|(reading, speed)| Some((*reading, along(reading, against)?, *speed)))
        .collect();
    let (series, left_out) = by_path(placed.iter().map(|(r, x, y)| (r.case.path.as_str(), (*x, *y))));
    let shown = |path: &str| series.iter().any(|series| series.name == path);
    let mut worst: Vec<_> =
        placed.iter().filter(|(r, _, speed)| *speed < 1.0 && shown(&r.case.path)).collect();
    worst.sort_by(|a, b| a.2.total_cmp(&b.2));
    // A matrix is named once, and no name is written over another.
    let mut labels: Vec<(f64, f64, String)> = Vec::new();
    for (reading, x, speed) in worst {
        let is_near = |a: f64, b: f64, factor: f64| (a / b).ln().abs() < factor.ln();
        let is_free = |(at, level, name): &(f64, f64, String)| {
            *name != reading.case.matrix && !(is_near(*at, *x, 8.0) && is_near(*level, *speed, 1.15))
        };
        if labels.len() < NAMED && labels.iter().all(is_free) {
            labels.push((*x, *speed, reading.case.matrix.clone()));
        }
    }
    let speeds = series.iter().flat_map(|series| &series.points).map(|&(_, y)| y).chain([1.0]);
    let y = Axis {
        label: format!("times as fast as {over}"),
        range: around(speeds, 2.0),
        spacing: Spacing::Powers(2.0),
    };
    let chart = Chart {
        title: format!("Speed over {over}"),
        x: below(against, &series),
        y,
        form: Form::Marks,
        series,
        level: Some(1.0),
        labels,
    };
    (chart, left_out)
}

/// For each path, the share of products that it takes at most so many times as long as the best for.
pub(crate) fn profile(readings: &[Reading]) -> (Chart, usize) {
    let mut products: BTreeMap<Case, Vec<(&str, f64)>> = BTreeMap::new();
    for reading in readings {
        let times = products.entry(product(&reading.case)).or_default();
        times.extend(reading.us().map(|us| (reading.case.path.as_str(), us)));
        // Peers are on each line of the product: once is enough.
        for (name, us) in &reading.peers {
            if !times.iter().any(|(known, _)| known == name) {
                times.push((name, *us));
            }
        }
    }
    products.retain(|_, times| !times.is_empty());
    let mut factors: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for times in products.values() {
        let best = times.iter().map(|&(_, us)| us).fold(f64::INFINITY, f64::min);
        for &(path, us) in times {
            factors.entry(path).or_default().push(us / best);
        }
    }
    let furthest = around(factors.values().flatten().copied(), 2.0).end.clamp(2.0, FURTHEST);
    let mut series: Vec<Series> = factors
        .into_iter()
        .map(|(path, mut factors)| {
            factors.sort_by(f64::total_cmp);
            Series { name: path.to_owned(), points: steps(&factors, products.len(), furthest) }
        })
        .collect();
    // The one that is most often near the best first: it has the largest area below its line.
    series.sort_by(|a, b| area(&b.points).total_cmp(&area(&a.points)));
    let left_out = series.len().saturating_sub(MOST_SERIES);
    series.truncate(MOST_SERIES);
    let chart = Chart {
        title: format!("How often each path is how near to the best, of {} products", products.len()),
        x: Axis {
            label: "time over the best".to_owned(),
            range: 1.0..furthest,
            spacing: Spacing::Powers(2.0),
        },
        y: Axis { label: "share of products".to_owned(), range: 0.0..1.0, spacing: Spacing::Even },
        form: Form::Lines,
        series,
        level: None,
        labels: Vec::new(),
    };
    (chart, left_out)
}

/// A line of steps up to `furthest`: at each factor the share of products within it.
fn steps(factors: &[f64], products: usize, furthest: f64) -> Vec<(f64, f64)> {
    let mut points = vec![(1.0, 0.0)];
    let mut last = 0.0;
    for (at, &factor) in factors.iter().enumerate() {
        let share = (at + 1) as f64 / products as f64;
        if factor > furthest {
            break;
        }
        // Of several at one place the last says all.
        if factors.get(at + 1) != Some(&factor) {
            points.extend([(factor, last), (factor, share)]);
            last = share;
        }
    }
    points.push((furthest, last));
    points
}

/// Area below a line of steps, factors by their logarithm.
fn area(points: &[(f64, f64)]) -> f64 {
    points.windows(2).map(|ends| (ends[1].0 / ends[0].0).ln() * ends[0].1).sum()
}

/// The share of the gather roofline that each case reaches, or else its GB/s.
pub(crate) fn roofline(readings: &[Reading], against: Against) -> (Chart, usize) {
    let bounded = readings.iter().any(|reading| reading.roofline.is_some());
    let height = |reading: &Reading| if bounded { reading.roofline } else { reading.gathered_gbps };
    let points = readings.iter().filter(|reading| reading.time.is_some()).filter_map(|reading| {
        Some((reading.case.path.as_str(), (along(reading, against)?, height(reading)?)))
    });
    let (series, left_out) = by_path(points);
    let most = series.iter().flat_map(|series| &series.points).map(|&(_, y)| y).fold(0.0, f64::max);
    let (title, label, top) = match bounded {
        true => ("Share of the gather roofline", "lower bound over time", most.max(1.0)),
        false => ("Rows of B gathered", "GB/s", most),
    };
    let chart = Chart {
        title: title.to_owned(),
        x: below(against, &series),
        y: Axis {
            label: label.to_owned(),
            range: 0.0..1.05 * top.max(f64::MIN_POSITIVE),
            spacing: Spacing::Even,
        },
        form: Form::Marks,
        series,
        level: bounded.then_some(1.0),
        labels: Vec::new(),
    };
    (chart, left_out)
}

/// What N:M products reach against the intensity of their stages, both by powers: the roofline of NM-SpMM's figure 10
/// without its lines, which are of a GPU that records do not know.
pub(crate) fn intensity(readings: &[Reading]) -> (Chart, usize) {
    let points = readings.iter().filter_map(|reading| Some((reading.case.path.as_str(), reading.intensity?)));
    let (series, left_out) = by_path(points);
    let all = || series.iter().flat_map(|series| &series.points);
    let axis = |label: &str, values: &mut dyn Iterator<Item = f64>| Axis {
        label: label.to_owned(),
        range: around(values, 2.0),
        spacing: Spacing::Powers(2.0),
    };
    let chart = Chart {
        title: "Rates over intensity".to_owned(),
        x: axis("operations for each element that a stage moves", &mut all().map(|&(x, _)| x)),
        y: axis("10¹² operations a second", &mut all().map(|&(_, y)| y)),
        form: Form::Marks,
        series,
        level: None,
        labels: Vec::new(),
    };
    (chart, left_out)
}

/// Lengths of rows: the share of rows, and of entries, in rows of at most so many entries.
pub(crate) fn row_lengths(name: &str, mut lengths: Vec<u64>) -> Chart {
    lengths.sort_unstable();
    let (rows, nnz) = (lengths.len() as f64, lengths.iter().sum::<u64>() as f64);
    let (mut of_rows, mut of_entries) = (vec![(1.0, 0.0)], vec![(1.0, 0.0)]);
    let mut entries = 0;
    for (at, &length) in lengths.iter().enumerate() {
        entries += length;
        if lengths.get(at + 1) != Some(&length) {
            // An empty row has its place below 1, which powers do not reach: it counts at the left end.
            let x = length.max(1) as f64;
            for (points, share) in
                [(&mut of_rows, (at + 1) as f64 / rows), (&mut of_entries, entries as f64 / nnz.max(1.0))]
            {
                let (_, last) = points[points.len() - 1];
                points.extend([(x, last), (x, share)]);
            }
        }
    }
    let longest = lengths.last().copied().unwrap_or(0);
    let range = 1.0..around([1.0, longest as f64].into_iter(), 2.0).end.max(2.0);
    Chart {
        title: format!("Lengths of the rows of {name}, {} entries at most", longest),
        x: Axis { label: "entries of a row".to_owned(), range, spacing: Spacing::Powers(2.0) },
        y: Axis { label: "share in rows no longer".to_owned(), range: 0.0..1.0, spacing: Spacing::Even },
        form: Form::Lines,
        series: match lengths.is_empty() {
            true => Vec::new(),
            false => vec![
                Series { name: "rows".to_owned(), points: of_rows },
                Series { name: "entries".to_owned(), points: of_entries },
            ],
        },
        level: None,
        labels: Vec::new(),
    }
}
