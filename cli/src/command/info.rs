//! `windrow info`: what a matrix is like.

use serde::Serialize;
use windrow::io::{ReadReport, printable};
use windrow::{ByteSizes, Csr, Device, Profile, RsTile, Structure};

use crate::args::InfoArgs;
use crate::console::Console;
use crate::estimate::{Estimate, Gpu, Verdict};
use crate::failure::Result;
use crate::listing::{Align, Listing, Table};
use crate::load;
use crate::predicted::{Predicted, Products};
use crate::spy::{Spy, SpySize};
use crate::units::{bytes, count, digits, percent, time_us};

/// Largest finite number in f16.
const F16_MAX: f32 = 65504.0;

/// What `windrow info` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Info {
    file: String,
    source: SourceInfo,
    structure: StructureInfo,
    values: ValueInfo,
    bytes: FormatBytes,
    estimate: Estimate,
    /// What is asked for with `--width` and `--inner`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    predicted: Vec<Predicted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spy: Option<Spy>,
}

/// The file, and what reading it took.
#[derive(Debug, Serialize)]
struct SourceInfo {
    format: &'static str,
    header: String,
    gzip: bool,
    content_bytes: u64,
    entries_read: u64,
    /// How many a comment of the file says there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries_stated: Option<u64>,
    mirrored: u64,
    duplicates_summed: u64,
    rows_sorted: u64,
    pattern_values: u64,
    zeros_dropped: u64,
}

/// What follows from where the entries are, whatever their values.
#[derive(Debug, Serialize)]
struct StructureInfo {
    rows: usize,
    cols: usize,
    nnz: usize,
    density: f64,
    empty_rows: usize,
    row_length: RowLength,
    windows: usize,
    column_vectors: u64,
    nnz_per_vector: f64,
    single_vector_share: f64,
    tiles: u64,
    nnz_per_tile: f64,
    access_ratio: AccessRatio,
}

/// How many times as many dense rows CUDA cores fetch as Tensor Cores do: `R` of Libra's equations 2 to 5.
#[derive(Debug, Serialize)]
struct AccessRatio {
    spmm: f64,
    sddmm: f64,
}

#[derive(Debug, Serialize)]
struct RowLength {
    min: usize,
    median: usize,
    p99: usize,
    max: usize,
    mean: f64,
    variation: f64,
    /// Share of the rows that have more than twice the mean.
    above_twice_mean: f64,
    /// Share of the rows that have more than four times the mean.
    above_four_means: f64,
}

/// Values that matter to arithmetic.
#[derive(Debug, Default, PartialEq, Serialize)]
struct ValueInfo {
    zeros: usize,
    non_finite: usize,
    /// Finite values that are infinite in f16.
    beyond_f16: usize,
}

/// Bytes of the matrix in memory, values in f32.
#[derive(Debug, Serialize)]
struct FormatBytes {
    csr: Sizes,
    rs_tile: Sizes,
}

#[derive(Debug, Serialize)]
struct Sizes {
    total: u64,
    arrays: serde_json::Map<String, serde_json::Value>,
}

pub(crate) fn run(args: &InfoArgs, console: Console) -> Result<()> {
    let (a, report) = load::read::<f32>(&args.file, &args.read, console)?;
    let spinner = console.spinner("looking at the structure");
    let info = Info::of(&a, &report, args, console);
    spinner.finish_and_clear();
    let info = info?;
    console.line(info.listing())?;
    if let Some(spy) = &info.spy {
        console.line(picture(spy, &info.structure))?;
    }
    console.object("info", &info)
}

impl Info {
    fn of(a: &Csr<f32>, report: &ReadReport, args: &InfoArgs, console: Console) -> Result<Self> {
        let structure = Structure::of(a);
        let rs_tile = RsTile::byte_sizes_in_tiles(a, &structure)?;
        let size = args.spy_size.or_else(|| args.spy.then(SpySize::of_terminal));
        Ok(Self {
            file: args.file.display().to_string(),
            source: SourceInfo::of(report, a),
            estimate: Estimate::of(&structure)?,
            predicted: predicted(a, &structure, args, console)?,
            structure: StructureInfo::of(&structure),
            values: ValueInfo::of(a.values()),
            bytes: FormatBytes { csr: Sizes::of(&a.byte_sizes()), rs_tile: Sizes::of(&rs_tile) },
            spy: size.map(|size| Spy::of(a, size)),
        })
    }

    fn listing(&self) -> String {
        let Self { source, structure, values, bytes: sizes, estimate, .. } = self;
        let mut listing = Listing::default();
        listing.add("file", printable(&self.file));
        let gzip = if source.gzip { " with gzip" } else { "" };
        listing.add("format", format!("{}{gzip}, {}", source.header, bytes(source.content_bytes)));
        listing.add(
            "size",
            format!(
                "{} rows × {} columns, {} nonzeros, density {}",
                count(structure.rows),
                count(structure.cols),
                count(structure.nnz),
                percent(structure.density)
            ),
        );
        listing.add("read", source.reading());
        let values = match source.pattern_values {
            0 => values.text(structure.nnz),
            _ => "1 each: the file holds the pattern only".to_owned(),
        };
        listing.add("values", values);
        let lengths = &structure.row_length;
        listing.add(
            "row length",
            format!(
                "min {}, median {}, mean {}, p99 {}, max {}; deviation / mean {}",
                count(lengths.min),
                count(lengths.median),
                digits(lengths.mean),
                count(lengths.p99),
                count(lengths.max),
                digits(lengths.variation)
            ),
        );
        listing.add(
            "long rows",
            format!(
                "{} above 2 × the mean, {} above 4 ×",
                percent(lengths.above_twice_mean),
                percent(lengths.above_four_means)
            ),
        );
        let empty_share = ratio(structure.empty_rows as f64, structure.rows as f64);
        listing.add("empty rows", format!("{} ({})", count(structure.empty_rows), percent(empty_share)));
        listing.add(
            "vectors",
            format!(
                "{} column vectors (8 × 1), {} nonzeros each, {} with a single one",
                count(structure.column_vectors),
                digits(structure.nnz_per_vector),
                percent(structure.single_vector_share)
            ),
        );
        listing.add(
            "tiles",
            format!(
                "{} tiles (8 × 8) in {} windows, {} nonzeros each",
                count(structure.tiles),
                count(structure.windows),
                digits(structure.nnz_per_tile)
            ),
        );
        listing.add(
            "access ratio",
            format!(
                "CUDA cores fetch {} times as many rows of B as tiles do (8 × 8), of X and Y {} times (8 × 16)",
                digits(structure.access_ratio.spmm),
                digits(structure.access_ratio.sddmm)
            ),
        );
        listing.add(
            "memory",
            format!("CSR {}, RS-Tile {} (f32 values)", bytes(sizes.csr.total), bytes(sizes.rs_tile.total)),
        );
        listing.add("estimate", estimate.text());
        for (at, product) in self.predicted.iter().enumerate() {
            listing.add(if at == 0 { "predicted" } else { "" }, product.text());
        }
        listing.to_string()
    }
}

/// The products that were asked about, with the costs of an H200 or those of the device that was named.
fn predicted(
    a: &Csr<f32>,
    structure: &Structure,
    args: &InfoArgs,
    console: Console,
) -> Result<Vec<Predicted>> {
    let &InfoArgs { width, inner, precision, .. } = args;
    let products = Products { a, structure, width, inner, precision };
    match args.device {
        Some(selector) => {
            let device = selector.open()?;
            products.predict(&load::profile(&device, console), None)
        }
        None => products.predict(&Profile::built_in(&Device::cpu()), Some(&Gpu::h200()?)),
    }
}

impl SourceInfo {
    fn of(report: &ReadReport, a: &Csr<f32>) -> Self {
        Self {
            format: report.format.name(),
            header: report.header.to_string(),
            gzip: report.gzip,
            content_bytes: report.content_bytes,
            entries_read: report.entries_read,
            entries_stated: report.entries_stated,
            mirrored: report.mirrored,
            duplicates_summed: report.duplicates_summed,
            rows_sorted: a.canonicalised().sorted_rows,
            pattern_values: report.pattern_values,
            zeros_dropped: report.zeros_dropped,
        }
    }

    /// What became of the entries.
    fn reading(&self) -> String {
        let mut text = format!("{} entries", count(self.entries_read));
        for (number, what) in [
            (self.mirrored, "mirrored (symmetric)"),
            (self.duplicates_summed, "duplicates summed"),
            (self.zeros_dropped, "zeros of the dense array dropped"),
        ] {
            if number > 0 {
                text.push_str(&format!(", {} {what}", count(number)));
            }
        }
        if self.rows_sorted > 0 {
            text.push_str(&format!("; {} rows sorted", count(self.rows_sorted)));
        }
        text
    }
}

impl StructureInfo {
    fn of(structure: &Structure) -> Self {
        let lengths = structure.row_lengths;
        let share = |rows: usize| ratio(rows as f64, structure.rows as f64);
        Self {
            rows: structure.rows,
            cols: structure.cols,
            nnz: structure.nnz,
            density: ratio(structure.nnz as f64, structure.rows as f64 * structure.cols as f64),
            empty_rows: structure.empty_rows,
            row_length: RowLength {
                min: lengths.min,
                median: lengths.median,
                p99: lengths.p99,
                max: lengths.max,
                mean: lengths.mean,
                variation: lengths.variation,
                above_twice_mean: share(lengths.above_twice_mean),
                above_four_means: share(lengths.above_four_means),
            },
            windows: structure.windows,
            column_vectors: structure.column_vectors,
            nnz_per_vector: structure.nnz_per_vector(),
            single_vector_share: structure.single_vector_share(),
            tiles: structure.tiles,
            nnz_per_tile: structure.nnz_per_tile(),
            access_ratio: AccessRatio {
                spmm: structure.spmm_access_ratio(),
                sddmm: structure.sddmm_access_ratio(),
            },
        }
    }
}

impl ValueInfo {
    fn of(values: &[f32]) -> Self {
        let mut info = Self::default();
        for value in values {
            info.zeros += usize::from(*value == 0.0);
            info.non_finite += usize::from(!value.is_finite());
            info.beyond_f16 += usize::from(value.is_finite() && value.abs() >= F16_MAX + 16.0);
        }
        info
    }

    fn text(&self, nnz: usize) -> String {
        let mut parts = Vec::new();
        for (number, what) in [
            (self.zeros, "explicit zeros, kept"),
            (self.non_finite, "NaN or infinite"),
            (self.beyond_f16, "too large for f16"),
        ] {
            if number > 0 {
                parts.push(format!("{} {what}", count(number)));
            }
        }
        match (parts.is_empty(), nnz) {
            (true, 0) => "none".to_owned(),
            (true, _) => "all finite, none zero".to_owned(),
            (false, _) => parts.join("; "),
        }
    }
}

impl Sizes {
    fn of(sizes: &ByteSizes) -> Self {
        let arrays = sizes.iter().map(|(name, bytes)| (name.to_owned(), bytes.into())).collect();
        Self { total: sizes.total(), arrays }
    }
}

impl Estimate {
    fn text(&self) -> String {
        let verdict = match self.verdict {
            Verdict::NothingToMultiply => return "nothing to multiply".to_owned(),
            Verdict::Pays => "a sparse product pays",
            Verdict::Depends => "a sparse product pays at some widths, or by little: measure",
            Verdict::DoesNotPay => "a sparse product does not pay: use a dense one",
        };
        let table = Table::new(&[
            ("precision", 0, Align::Left),
            ("width", 5, Align::Right),
            ("sparse", 8, Align::Right),
            ("by", 11, Align::Left),
            ("dense", 8, Align::Right),
            ("dense / sparse", 0, Align::Right),
        ]);
        let mut lines = vec![
            format!("{verdict} (least times on an {}, not measured here)", self.gpu.name),
            table.titles(),
        ];
        for bound in &self.bounds {
            lines.push(table.row(&[
                bound.precision.to_string(),
                bound.width.to_string(),
                time_us(bound.sparse_us()),
                if bound.tile_stream_us.is_some() { "tile-stream" } else { "row-split" }.to_owned(),
                time_us(bound.dense_us),
                digits(bound.ratio()),
            ]));
        }
        lines.join("\n")
    }
}

/// The picture in a frame, and what a dot is.
fn picture(spy: &Spy, structure: &StructureInfo) -> String {
    if spy.lines.is_empty() {
        return format!("nothing to draw: {} × {}", structure.rows, structure.cols);
    }
    let wide = spy.lines.first().map_or(0, |line| line.chars().count());
    let rule = "─".repeat(wide);
    let mut text = format!("┌{rule}┐\n");
    for line in &spy.lines {
        text.push_str(&format!("│{line}│\n"));
    }
    let how = if spy.dithered {
        format!("the more dots, the more entries; all are lit at {} entries a dot", count(spy.most_a_dot))
    } else {
        "lit if it holds an entry".to_owned()
    };
    text.push_str(&format!(
        "└{rule}┘\none dot is {} × {} places, {how}",
        digits(spy.rows_a_dot),
        digits(spy.cols_a_dot)
    ));
    text
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_matter_are_counted() {
        let info =
            ValueInfo::of(&[0.0, -0.0, f32::NAN, f32::INFINITY, 65504.0, 65519.9, 65520.0, -1e30, 1.0]);
        assert_eq!(info, ValueInfo { zeros: 2, non_finite: 2, beyond_f16: 2 });
        assert_eq!(info.text(9), "2 explicit zeros, kept; 2 NaN or infinite; 2 too large for f16");
        assert_eq!(
            (ValueInfo::of(&[]).text(0), ValueInfo::of(&[1.0]).text(1)),
            ("none".into(), "all finite, none zero".into())
        );
    }
}
