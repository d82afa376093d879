//! Fits what each path of a product takes to measured times, and says how far behind the best a choice by predicted
//! times is.

mod records;
mod squares;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use rayon::prelude::*;
use windrow::costs::{
    DeviceCosts, GroupCosts, PanelCosts, PathCosts, RowCosts, SampledEntryCosts, SampledGroupCosts,
    SampledPanelCosts, SampledTileCosts, TileCosts,
};
use windrow::internal::{Kind, terms, weigh_sddmm, weigh_spmm};
use windrow::{Algorithm, Device, Precision, Profile, SddmmAlgorithm, SddmmOptions, SpmmOptions};

pub(crate) use self::records::PathRecords;
use self::records::{Matrix, Timed, asked};
use crate::suites::markdown::geometric_mean;

/// A group of numbers: its field, the names of the numbers, and of which paths they are.
struct Group {
    field: &'static str,
    of: &'static str,
    names: &'static [&'static str],
    paths: &'static [(Kind, Precision)],
    get: fn(&PathCosts) -> Vec<f64>,
    set: fn(&mut PathCosts, &[f64]),
}

macro_rules! groups {
    ($($field:ident: $costs:ident of $paths:expr),+ $(,)?) => {
        const GROUPS: &[Group] = &[$(Group {
            field: stringify!($field),
            of: stringify!($costs),
            names: $costs::NAMES,
            paths: &$paths,
            get: |costs| costs.$field.numbers(),
            set: |costs, numbers| costs.$field = $costs::from_numbers(numbers),
        }),+];
    };
}

groups! {
    rows_f16: RowCosts of [(Kind::Rows, Precision::F16)],
    rows_f32: RowCosts of [(Kind::Rows, Precision::F32)],
    groups_f16: GroupCosts of [(Kind::Groups, Precision::F16)],
    groups_f32: GroupCosts of [(Kind::Groups, Precision::F32)],
    tiles_f16: TileCosts of [(Kind::Tiles, Precision::F16)],
    tiles_tf32: TileCosts of [(Kind::Tiles, Precision::Tf32)],
    panels_f32: PanelCosts of [(Kind::Panels, Precision::F32)],
    sampled_entries_f16: SampledEntryCosts of [(Kind::SampledEntries, Precision::F16)],
    sampled_entries_f32: SampledEntryCosts of [(Kind::SampledEntries, Precision::F32)],
    sampled_groups_f16: SampledGroupCosts of [(Kind::SampledGroups, Precision::F16)],
    sampled_groups_f32: SampledGroupCosts of [(Kind::SampledGroups, Precision::F32)],
    sampled_tiles_f16: SampledTileCosts of [(Kind::SampledTiles, Precision::F16)],
    sampled_tiles_tf32: SampledTileCosts of [(Kind::SampledTiles, Precision::Tf32)],
    sampled_panels_f32: SampledPanelCosts of [(Kind::SampledPanels, Precision::F32)],
}

/// Times of a choice over the best that was measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Losses {
    /// Of each case, ascending, with its matrix and width.
    losses: Vec<(f64, String, usize)>,
    /// Cases whose choice was not measured.
    unmeasured: usize,
}

impl Losses {
    fn quantile(&self, of: f64) -> f64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the length")]
        let at = (of * self.losses.len() as f64).ceil() as usize;
        self.losses.get(at.saturating_sub(1)).map_or(1.0, |loss| loss.0)
    }

    /// The median, the 95th percentile, the worst, and how many are over 5 % behind.
    pub(crate) fn figures(&self) -> (f64, f64, f64, usize) {
        let behind = self.losses.iter().filter(|loss| loss.0 > 1.05).count();
        (self.quantile(0.5), self.quantile(0.95), self.quantile(1.0), behind)
    }

    /// Geometric mean of the ratios.
    pub(crate) fn mean(&self) -> f64 {
        geometric_mean(&self.losses.iter().map(|loss| loss.0).collect::<Vec<_>>()).unwrap_or(1.0)
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, most, worst, behind) = self.figures();
        let (mean, count) = (self.mean(), self.losses.len());
        let at =
            self.losses.last().map_or(String::new(), |(_, matrix, width)| format!(", {matrix} at {width}"));
        write!(
            f,
            "median {median:.3}, mean {mean:.3}, 95th percentile {most:.2}, worst {worst:.2}{at}, \
             over 5 % behind {behind} of {count}"
        )?;
        if self.unmeasured > 0 {
            write!(f, "; {} choices were not measured", self.unmeasured)?;
        }
        Ok(())
    }
}

/// A sort of product: which paths may serve it.
pub(crate) struct Product {
    pub(crate) name: &'static str,
    sampled: bool,
    precision: Precision,
    served_by: &'static [(Kind, Precision)],
    /// Least and widest that are told of.
    widths: [usize; 2],
}

/// The products of which more than one path was measured: predicted times decide, in f64 the tree of segment groups.
pub(crate) const PRODUCTS: [Product; 8] = [
    Product {
        name: "SpMM f16, 2 to 512 columns",
        sampled: false,
        precision: Precision::F16,
        served_by: &[
            (Kind::Rows, Precision::F16),
            (Kind::Groups, Precision::F16),
            (Kind::Tiles, Precision::F16),
        ],
        widths: [2, 512],
    },
    Product {
        name: "SpMM bf16, 2 to 512 columns",
        sampled: false,
        precision: Precision::Bf16,
        served_by: &[(Kind::Rows, Precision::Bf16), (Kind::Tiles, Precision::Bf16)],
        widths: [2, 512],
    },
    Product {
        name: "SpMM f32, 2 to 512 columns",
        sampled: false,
        precision: Precision::F32,
        served_by: &[
            (Kind::Rows, Precision::F32),
            (Kind::Groups, Precision::F32),
            (Kind::Panels, Precision::F32),
        ],
        widths: [2, 512],
    },
    Product {
        name: "SpMM tf32, 2 to 512 columns",
        sampled: false,
        precision: Precision::Tf32,
        served_by: &[
            (Kind::Rows, Precision::F32),
            (Kind::Groups, Precision::F32),
            (Kind::Panels, Precision::F32),
            (Kind::Tiles, Precision::Tf32),
        ],
        widths: [2, 512],
    },
    Product {
        name: "SpMM f64, 2 to 512 columns",
        sampled: false,
        precision: Precision::F64,
        served_by: &[(Kind::Rows, Precision::F64), (Kind::Groups, Precision::F64)],
        widths: [2, 512],
    },
    Product {
        name: "SDDMM f32, inner 16 to 256",
        sampled: true,
        precision: Precision::F32,
        served_by: &[
            (Kind::SampledEntries, Precision::F32),
            (Kind::SampledGroups, Precision::F32),
            (Kind::SampledPanels, Precision::F32),
        ],
        widths: [16, 256],
    },
    Product {
        name: "SDDMM f16, inner 16 to 256",
        sampled: true,
        precision: Precision::F16,
        served_by: &[
            (Kind::SampledEntries, Precision::F16),
            (Kind::SampledGroups, Precision::F16),
            (Kind::SampledTiles, Precision::F16),
        ],
        widths: [16, 256],
    },
    Product {
        name: "SDDMM tf32, inner 16 to 256",
        sampled: true,
        precision: Precision::Tf32,
        served_by: &[
            (Kind::SampledEntries, Precision::F32),
            (Kind::SampledGroups, Precision::F32),
            (Kind::SampledPanels, Precision::F32),
            (Kind::SampledTiles, Precision::Tf32),
        ],
        widths: [16, 256],
    },
];

/// What a fit found. `Display` prints it, with the numbers as they stand in the source.
pub(crate) struct PathFit {
    costs: PathCosts,
    /// Each group: times, and the root of the mean square of the logarithm of what is predicted over what was measured.
    errors: Vec<(usize, f64)>,
    matrices: usize,
    /// For each of [`PRODUCTS`]: by the library's numbers, the fitted ones, and those fitted to all other matrices.
    pub(crate) losses: Vec<[Losses; 3]>,
}

/// Fits all numbers, and for each matrix those to all others.
pub(crate) fn fit(records: PathRecords) -> PathFit {
    let (matrices, times) = records.settle();
    let costs = fitted(&matrices, &times, None);
    let held_out: HashMap<&String, PathCosts> =
        matrices.par_iter().map(|(of, _)| (of, fitted(&matrices, &times, Some(of)))).collect();
    let losses = PRODUCTS.iter().map(|product| {
        [
            losses(product, &matrices, &times, |_| PathCosts::default()),
            losses(product, &matrices, &times, |_| costs),
            losses(product, &matrices, &times, |matrix| held_out[matrix]),
        ]
    });
    let errors = GROUPS.iter().map(|group| {
        let costs = with(costs);
        let of = times.iter().filter(|(of, _)| group.paths.contains(&(of.1, of.2)));
        let ratios = of.map(|(of, us)| {
            (windrow::internal::predicted_us(&matrices[&of.0].counts, asked(of), &costs) / us).ln()
        });
        let squares: Vec<f64> = ratios.map(|ln| ln * ln).collect();
        (squares.len(), (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt())
    });
    PathFit { costs, errors: errors.collect(), matrices: matrices.len(), losses: losses.collect() }
}

/// The H200's costs with other numbers for paths.
fn with(paths: PathCosts) -> DeviceCosts {
    let mut costs = DeviceCosts::default();
    costs.paths = paths;
    costs
}

/// The numbers for all matrices but one.
fn fitted(
    matrices: &BTreeMap<String, Matrix>,
    times: &BTreeMap<Timed, f64>,
    without: Option<&String>,
) -> PathCosts {
    let (mut costs, device) = (PathCosts::default(), DeviceCosts::default());
    for group in GROUPS {
        let of = times.iter().filter(|(of, _)| group.paths.contains(&(of.1, of.2)) && Some(&of.0) != without);
        let rows: Vec<_> =
            of.map(|(of, us)| (terms(&matrices[&of.0].counts, asked(of), &device), *us)).collect();
        if rows.len() > group.names.len() {
            (group.set)(&mut costs, &squares::fit(&rows).into_iter().map(rounded).collect::<Vec<_>>());
        }
    }
    costs
}

/// To three digits, as the source has it.
fn rounded(number: f64) -> f64 {
    format!("{number:.2e}").parse().unwrap_or(number)
}

/// What the library would choose with some numbers, over the best.
fn losses<'a>(
    product: &Product,
    matrices: &'a BTreeMap<String, Matrix>,
    times: &BTreeMap<Timed, f64>,
    costs: impl Fn(&'a String) -> PathCosts,
) -> Losses {
    let widths: BTreeSet<usize> = times.keys().map(|of| of.3).collect();
    let [least, widest] = product.widths;
    let mut found = Losses::default();
    for (checksum, Matrix { name, counts }) in matrices {
        let mut profile = Profile::built_in(&Device::cpu());
        profile.costs = with(costs(checksum));
        for &width in widths.range(least..=widest) {
            let time = |(kind, precision)| times.get(&(checksum.clone(), kind, precision, width)).copied();
            let known: Vec<f64> = product.served_by.iter().copied().filter_map(time).collect();
            if known.len() < 2 {
                continue;
            }
            let best = known.into_iter().fold(f64::INFINITY, f64::min);
            let chosen = choice(product, counts, width, &profile).and_then(time);
            match chosen {
                Some(us) => found.losses.push((us / best, name.clone(), width)),
                None => found.unmeasured += 1,
            }
        }
    }
    found.losses.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

/// The path that the library takes.
fn choice(
    product: &Product,
    counts: &windrow::internal::MatrixCounts,
    width: usize,
    profile: &Profile,
) -> Option<(Kind, Precision)> {
    let precision = product.precision;
    if product.sampled {
        let options = SddmmOptions { inner: width, precision, ..SddmmOptions::default() };
        let weighed = weigh_sddmm(counts, &options, profile).ok()?;
        let kind = match weighed.algorithm {
            SddmmAlgorithm::Entries => Kind::SampledEntries,
            SddmmAlgorithm::Groups => Kind::SampledGroups,
            SddmmAlgorithm::Tiles => Kind::SampledTiles,
            SddmmAlgorithm::RowPanels => Kind::SampledPanels,
            _ => return None,
        };
        return Some((kind, weighed.precision));
    }
    let options = SpmmOptions { width, precision, ..SpmmOptions::default() };
    let weighed = weigh_spmm(counts, &options, profile).ok()?;
    let kind = match weighed.algorithm {
        Algorithm::RowSplit => Kind::Rows,
        Algorithm::SegmentGroup => Kind::Groups,
        Algorithm::TileStream => Kind::Tiles,
        Algorithm::RowPanels => Kind::Panels,
        _ => return None,
    };
    Some((kind, weighed.precision))
}

impl PathFit {
    /// A number that differs from the library's by a hundredth, if there is one.
    pub(crate) fn drift(&self) -> Option<String> {
        let library = PathCosts::default();
        GROUPS.iter().find_map(|group| {
            let both = (group.get)(&library).into_iter().zip((group.get)(&self.costs));
            let differ = |(a, b): (f64, f64)| (a - b).abs() > 0.01 * a.max(b);
            let found = group.names.iter().zip(both).find(|(_, both)| differ(*both))?;
            Some(format!("{}.{}: {:?}", group.field, found.0, found.1))
        })
    }

    /// Whether there was nothing to fit to.
    pub(crate) fn is_empty(&self) -> bool {
        self.errors.iter().all(|(times, _)| *times == 0)
    }
}

impl fmt::Display for PathFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} matrices; time of what auto takes over the best that was measured:\n",
            self.matrices
        )?;
        for (product, [library, fitted, held_out]) in PRODUCTS.iter().zip(&self.losses) {
            writeln!(f, "{}", product.name)?;
            writeln!(f, "  the library's numbers  {library}")?;
            writeln!(f, "  fitted                 {fitted}")?;
            writeln!(f, "  fitted to the others   {held_out}")?;
        }
        let drift = self
            .drift()
            .map_or("which are the library's".to_owned(), |of| format!("the library's differ in {of}"));
        writeln!(f, "\nfor host/src/costs/h200.rs, {drift}:\n")?;
        for (group, (count, error)) in GROUPS.iter().zip(&self.errors) {
            writeln!(f, "        // {count} times, predicted within a factor of {:.2}.", error.exp())?;
            writeln!(f, "        {}: {} {{", group.field, group.of)?;
            for (name, number) in group.names.iter().zip((group.get)(&self.costs)) {
                writeln!(f, "            {name}: {number:?},")?;
            }
            writeln!(f, "        }},")?;
        }
        Ok(())
    }
}
