//! `plot`: pictures of records, and of matrices.

pub(crate) mod chart;
pub(crate) mod kinds;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use windrow::io;

use crate::measure::L2;
use crate::program::{Exit, Failure, say, write};
use crate::reading::{Reading, Recorded};
use crate::suites::matrices::file_name;
use kinds::Against;

/// Draw records, or a matrix, as SVG.
///
/// Kinds: speed (how many times as fast as a peer or a path, case by case), profile (for each path and peer the share
/// of products for which it is within a factor of the best), roofline (the share of the gather roofline, or GB/s where
/// records have none), intensity (what N:M products reach against operations for each element that a stage moves),
/// rows (how the lengths of a matrix's rows are spread; RECORDS is its file). Where a matrix has
/// its entries is drawn by `windrow spy`.
///
/// The picture has no background and can be read on a light page and on a dark one.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kind of the picture.
    #[arg(value_enum)]
    kind: Kind,
    /// Files of records of any suite; with rows, one matrix.
    #[arg(value_name = "RECORDS", required = true)]
    files: Vec<PathBuf>,
    /// Where the picture goes; standard output unless told.
    #[arg(long, value_name = "FILE.svg")]
    out: Option<PathBuf>,
    /// Of speed: a peer ("cuSPARSE f16", cusparse-f16) or a path [default: the peer that most cases have]
    #[arg(long, value_name = "PEER|PATH")]
    over: Option<String>,
    /// What is along the axis below, of speed and roofline.
    #[arg(long, value_enum, default_value_t = Against::Entries)]
    against: Against,
    /// Paths to draw [default: the eight with most cases, or, of profile, the nearest to the best]
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    paths: Vec<String>,
    /// Widths, or inner dimensions, to draw [default: all]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    widths: Vec<usize>,
    /// Times to draw where there are some with a warm L2 cache and some with a cold one: warm or cold.
    #[arg(long, value_name = "STATE")]
    l2: Option<L2>,
}

/// What can be drawn of records, or of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Speed,
    Profile,
    Roofline,
    Intensity,
    Rows,
}

impl Arguments {
    /// Draws.
    ///
    /// # Errors
    /// [`Exit::File`]; [`Exit::Usage`] where the records say nothing for the picture.
    pub(crate) fn run(&self, talk: &mut dyn Write) -> Result<Exit, Failure> {
        let (chart, left_out) = match self.kind {
            Kind::Rows => (self.rows()?, 0),
            _ => self.of_records()?,
        };
        if left_out > 0 {
            say(talk, &format!("{left_out} paths are left out; --paths names those to draw"))?;
        }
        write(self.out.as_deref(), &chart.svg()?)?;
        Ok(Exit::Right)
    }

    fn rows(&self) -> Result<chart::Chart, Failure> {
        let [file] = &self.files[..] else {
            return Err(Failure::usage(format!("rows draws one matrix, not {}", self.files.len())));
        };
        let csr = io::read_csr::<f32>(file).map_err(|error| Failure::new(Exit::File, error))?;
        let lengths = csr.row_offsets().windows(2).map(|ends| ends[1] - ends[0]).collect();
        Ok(kinds::row_lengths(&file_name(file), lengths))
    }

    fn of_records(&self) -> Result<(chart::Chart, usize), Failure> {
        let recorded = Recorded::read_all(&self.files)?;
        let of_width = |reading: &Reading| {
            self.widths.is_empty() || reading.case.width.is_some_and(|width| self.widths.contains(&width))
        };
        let mut readings: Vec<_> =
            recorded.into_iter().flat_map(|recorded| recorded.readings).filter(of_width).collect();
        let state = self.state(&readings)?;
        readings.retain(|reading| reading.case.l2 == state);
        if let Some(unknown) =
            self.paths.iter().find(|path| !readings.iter().any(|reading| reading.case.path == **path))
        {
            return Err(Failure::usage(format!("no record of the path {unknown:?}")));
        }
        let is_wanted = |reading: &Reading| {
            self.paths.is_empty()
                || self.paths.contains(&reading.case.path)
                || self.over.as_ref() == Some(&reading.case.path)
        };
        readings.retain(is_wanted);
        let (mut chart, left_out) = match self.kind {
            Kind::Profile => kinds::profile(&readings),
            Kind::Roofline => kinds::roofline(&readings, self.against),
            Kind::Intensity => kinds::intensity(&readings),
            Kind::Speed | Kind::Rows => {
                let over = self.over.clone().or_else(|| kinds::peers(&readings).into_iter().next());
                let over = over.ok_or_else(|| {
                    Failure::usage("the records have no peer; name a path to compare with: --over PATH")
                })?;
                kinds::scatter(&readings, &over, self.against)
            }
        };
        chart.title += state.suffix();
        Ok((chart, left_out))
    }

    /// The state of the L2 cache that is drawn: the one that is named, or the one that there is.
    fn state(&self, readings: &[Reading]) -> Result<L2, Failure> {
        let holds = |state| readings.iter().any(|reading| reading.case.l2 == state);
        match (self.l2, holds(L2::Warm), holds(L2::Cold)) {
            (None, true, true) => Err(Failure::usage(
                "there are times with a warm and with a cold L2 cache; name one: --l2 warm or --l2 cold",
            )),
            (None, _, cold) => Ok(if cold { L2::Cold } else { L2::Warm }),
            (Some(state), ..) if holds(state) => Ok(state),
            (Some(state), ..) => Err(Failure::usage(format!("no record has a {state} L2 cache"))),
        }
    }
}
