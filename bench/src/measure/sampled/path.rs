//! What a sampled product is measured with.

use std::fmt;
use std::str::FromStr;

use windrow::{Csr, Precision, Schedule, Sddmm, SddmmAlgorithm, SddmmBuilder, SddmmForm, SddmmGroup};

use crate::measure::path::NAMED_SCHEDULES;

/// Algorithm, precision and options of a sampled product, such as `tiles-f16`, `hybrid-f16:24` (entries of a tile at
/// least), `hybrid-f16+sequential`, `+multi-stream` or `+thresholds` (its parts in that [`Schedule`]),
/// `auto-tf32+scale` (scaled by values), `tiles-f16+scan` (positions by scanning masks) or `groups-f32+group:8x4` (8
/// threads for each of 4 entries), `auto-f16+autotune` (the quicker of the two that are predicted to be quickest).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampledPath {
    /// How it is computed.
    pub(crate) algorithm: SddmmAlgorithm,
    /// Type of `X` and `Y`.
    pub(crate) precision: Precision,
    /// Threads and entries of a group; the library's own unless told.
    pub(crate) group: Option<SddmmGroup>,
    /// Entries of a tile of a hybrid at least; the library's own unless told.
    pub(crate) threshold: Option<u32>,
    /// What the values are for.
    pub(crate) form: SddmmForm,
    /// Whether positions are found by scanning.
    pub(crate) scan: bool,
    /// How the parts of a hybrid follow each other.
    pub(crate) schedule: Schedule,
    /// Whether the two best are timed.
    pub(crate) autotune: bool,
}

impl SampledPath {
    /// What is measured unless told.
    pub(crate) const DEFAULT: [Self; 3] =
        [Self::auto(Precision::F16), Self::auto(Precision::Tf32), Self::auto(Precision::F32)];

    const fn auto(precision: Precision) -> Self {
        let (algorithm, form) = (SddmmAlgorithm::Auto, SddmmForm::Mask);
        let (group, threshold, schedule) = (None, None, Schedule::Auto);
        Self { algorithm, precision, group, threshold, form, scan: false, schedule, autotune: false }
    }

    pub(crate) fn builder<'a>(&self, csr: &'a Csr<f32>, inner: usize) -> SddmmBuilder<'a, Csr<f32>> {
        let builder = Sddmm::builder(csr).inner(inner).algorithm(self.algorithm).precision(self.precision);
        let builder = builder.form(self.form).schedule(self.schedule).autotune(self.autotune);
        let builder = match self.group {
            Some(group) => builder.groups(group),
            None => builder,
        };
        let builder = match self.threshold {
            Some(entries) => builder.tile_threshold(entries),
            None => builder,
        };
        if self.scan { builder.scan_masks() } else { builder }
    }
}

impl fmt::Display for SampledPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}-{}", self.algorithm, self.precision);
        if let Some(entries) = self.threshold {
            text += &format!(":{entries}");
        }
        if self.form == SddmmForm::Scale {
            text += "+scale";
        }
        if let Some(SddmmGroup { threads, entries }) = self.group {
            text += &format!("+group:{threads}x{entries}");
        }
        if self.scan {
            text += "+scan";
        }
        if self.autotune {
            text += "+autotune";
        }
        if self.schedule != Schedule::Auto {
            text += &format!("+{}", self.schedule);
        }
        f.pad(&text)
    }
}

impl FromStr for SampledPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: String| {
            format!(
                "{text:?} is no path ({why}); write ALGORITHM-PRECISION[:ENTRIES][+scale][+scan], +autotune for auto, +group:THREADSxENTRIES for groups, or +sequential, +multi-stream or +thresholds for a \
                 hybrid, such as auto-f16"
            )
        };
        let mut words = text.split('+');
        let base = words.next().unwrap_or_default();
        let (base, threshold) = match base.split_once(':') {
            Some((base, entries)) => {
                (base, Some(entries.parse().map_err(|_| wrong(format!("{entries:?} entries")))?))
            }
            None => (base, None),
        };
        let (algorithm, precision) = base.rsplit_once('-').ok_or_else(|| wrong("no precision".to_owned()))?;
        let mut path = Self {
            algorithm: algorithm.parse().map_err(|error: windrow::UnknownName| wrong(error.to_string()))?,
            precision: precision.parse().map_err(|error: windrow::UnknownName| wrong(error.to_string()))?,
            group: None,
            threshold,
            form: SddmmForm::Mask,
            scan: false,
            schedule: Schedule::Auto,
            autotune: false,
        };
        for word in words {
            match word {
                "scale" => path.form = SddmmForm::Scale,
                "scan" => path.scan = true,
                "autotune" if path.algorithm == SddmmAlgorithm::Auto => path.autotune = true,
                _ if word.starts_with("group:") && path.algorithm == SddmmAlgorithm::Groups => {
                    let numbers = word["group:".len()..].split_once('x');
                    let numbers = numbers.and_then(|(r, g)| Some((r.parse().ok()?, g.parse().ok()?)));
                    let (threads, entries) = numbers.ok_or_else(|| wrong(format!("{word:?}")))?;
                    path.group = Some(SddmmGroup { threads, entries });
                }
                _ => match NAMED_SCHEDULES.into_iter().find(|schedule| schedule.to_string() == word) {
                    Some(schedule) if path.algorithm == SddmmAlgorithm::Hybrid => path.schedule = schedule,
                    Some(_) => return Err(wrong("only hybrid has two parts".to_owned())),
                    None => return Err(wrong(format!("{word:?}"))),
                },
            }
        }
        Ok(path)
    }
}
