//! Records of any suite, read for what all of them have: cases and their times.
//!
//! A line tells of one case or, of some suites, of several times: each is a [`Reading`]. What a suite's lines hold is
//! said once, in [`suites`].

pub(crate) mod csv;
mod suites;

#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::measure::{L2, Timing};
use crate::program::{Exit, Failure, Records};

/// What was measured, and where: two readings of one case can be compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) struct Case {
    pub(crate) suite: &'static str,
    /// The matrix, tensor or shape.
    pub(crate) matrix: String,
    /// Checksum of its pattern, where there is one: two matrices may have one name.
    pub(crate) checksum: Option<String>,
    /// Columns of `B`, or the inner dimension.
    pub(crate) width: Option<usize>,
    /// The way, and what of it was timed.
    pub(crate) path: String,
    pub(crate) device: String,
    /// What the L2 cache held before: a warm time is compared with no cold one.
    pub(crate) l2: L2,
}

impl Case {
    /// The path, and that the cache was cold if it was.
    pub(crate) fn way(&self) -> String {
        format!("{}{}", self.path, self.l2.suffix())
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.width.map_or_else(String::new, |width| format!(" at {width}"));
        write!(f, "{} {}{width}, {}", self.suite, self.matrix, self.way())
    }
}

/// A time and how much it spreads, as far as the record holds that.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Time {
    /// The median, in microseconds.
    pub(crate) us: f64,
    /// [`Statistics::noise`](crate::measure::Statistics::noise) of the batches.
    pub(crate) noise: Option<f64>,
    /// The quickest batch, in microseconds.
    pub(crate) least_us: Option<f64>,
    /// The slowest batch, in microseconds.
    pub(crate) most_us: Option<f64>,
}

impl Time {
    /// A median of which nothing else is known.
    pub(crate) fn median(us: f64) -> Self {
        Self { us, noise: None, least_us: None, most_us: None }
    }
}

impl From<Timing> for Time {
    fn from(timing: Timing) -> Self {
        Self {
            us: timing.median_us,
            noise: Some(timing.noise),
            least_us: Some(timing.min_us),
            most_us: Some(timing.max_us),
        }
    }
}

/// One time of a record, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) case: Case,
    /// Which windrow was measured.
    pub(crate) revision: String,
    /// The device with what of it changes times.
    pub(crate) machine: String,
    pub(crate) time: Option<Time>,
    pub(crate) error: Option<String>,
    /// Peers on the same operands, in microseconds.
    pub(crate) peers: Vec<(String, f64)>,
    pub(crate) rows: Option<usize>,
    pub(crate) nnz: Option<usize>,
    /// Lower bound of the gather roofline over the median.
    pub(crate) roofline: Option<f64>,
    /// Bytes of `B` gathered over the median, in GB/s.
    pub(crate) gathered_gbps: Option<f64>,
    /// Operations for each element that a stage of an N:M product moves, and 10¹² operations a second.
    pub(crate) intensity: Option<(f64, f64)>,
}

impl Reading {
    /// The median in microseconds.
    pub(crate) fn us(&self) -> Option<f64> {
        self.time.map(|time| time.us)
    }

    /// How many times as fast as `over`: a peer of the record.
    #[cfg_attr(not(any(test, feature = "pictures")), expect(dead_code, reason = "pictures and the page ask"))]
    pub(crate) fn speed_up(&self, over: &str) -> Option<f64> {
        let (_, theirs) = self.peers.iter().find(|(name, _)| name == over)?;
        Some(theirs / self.us()?)
    }
}

/// A file of records.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recorded {
    pub(crate) path: PathBuf,
    pub(crate) readings: Vec<Reading>,
    /// Readings of cases that have another one, which counts.
    pub(crate) repeated: usize,
    /// Options of the suite that measure these cases again, each with its values in order of appearance.
    pub(crate) options: Vec<(&'static str, Vec<String>)>,
}

impl Recorded {
    /// Reads a file. Of several readings of a case the last one with a time counts.
    ///
    /// # Errors
    /// [`Exit::File`] for a file that cannot be read, has no lines, or has one that is no record, with its number.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let told = Records::read(&[path.to_owned()])?.each(suites::read)?;
        if told.is_empty() {
            return Err(Failure::file(path, "no records"));
        }
        let mut options: Vec<(&'static str, Vec<String>)> = Vec::new();
        let mut readings: Vec<Reading> = Vec::new();
        let (mut places, mut repeated) = (std::collections::HashMap::new(), 0);
        for suites::Told { readings: of_line, options: of_case } in told {
            for (option, value) in of_case {
                let at = options.iter().position(|(known, _)| *known == option).unwrap_or_else(|| {
                    options.push((option, Vec::new()));
                    options.len() - 1
                });
                if !options[at].1.contains(&value) {
                    options[at].1.push(value);
                }
            }
            for reading in of_line {
                match places.get(&reading.case) {
                    Some(&at) => {
                        repeated += 1;
                        if reading.time.is_some() {
                            readings[at] = reading;
                        }
                    }
                    None => {
                        places.insert(reading.case.clone(), readings.len());
                        readings.push(reading);
                    }
                }
            }
        }
        Ok(Self { path: path.to_owned(), readings, repeated, options })
    }

    /// Reads files, of which there is one at least.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Exit::Usage`] without a file.
    pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Self>, Failure> {
        if paths.is_empty() {
            return Err(Failure::new(Exit::Usage, "no records; name the files that --out wrote"));
        }
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// The file's name without its folders.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().map_or_else(|| "-".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// What the readings say of `of`, each once.
    pub(crate) fn each(&self, of: impl Fn(&Reading) -> String) -> Vec<String> {
        self.readings.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The states of the L2 cache that there are readings of.
    pub(crate) fn states(&self) -> BTreeSet<L2> {
        self.readings.iter().map(|reading| reading.case.l2).collect()
    }

    /// The readings of each state by themselves.
    #[cfg_attr(not(any(test, feature = "pictures")), expect(dead_code, reason = "the page asks"))]
    pub(crate) fn by_state(&self) -> Vec<Self> {
        let of = |state| {
            let of_state = |reading: &&Reading| reading.case.l2 == state;
            Self { readings: self.readings.iter().filter(of_state).cloned().collect(), ..self.clone() }
        };
        self.states().into_iter().map(of).collect()
    }

    /// The command that measures these cases again; names of files stand as `FILES`.
    #[cfg_attr(not(any(test, feature = "pictures")), expect(dead_code, reason = "the page asks"))]
    pub(crate) fn command(&self) -> Option<String> {
        let suite = self.readings.first()?.case.suite;
        if suite == suites::TRAINING {
            return None;
        }
        let files = if suite == "nm" { "" } else { " FILES" };
        let options = self.options.iter().map(|(option, values)| format!(" {option} {}", values.join(",")));
        let states = self.states();
        let l2 = match states.contains(&L2::Cold) {
            true => format!(" --l2 {}", states.iter().map(L2::to_string).collect::<Vec<_>>().join(",")),
            false => String::new(),
        };
        Some(format!("windrow-bench {suite}{files}{}{l2}", options.collect::<String>()))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{File, cold, line};
    use super::*;

    #[test]
    fn a_line_is_a_reading() {
        let file = File::new("reading", &[line("m", 4, "auto-f32", (10.0, 0.01), Some(25.0))]);
        let recorded = Recorded::read(&file.0).unwrap();
        let [reading] = &recorded.readings[..] else { panic!("{recorded:?}") };
        assert_eq!(reading.case.to_string(), "spmm m at 4, auto-f32");
        assert_eq!((reading.us(), reading.speed_up("cuSPARSE f32")), (Some(10.0), Some(2.5)));
        assert_eq!(
            (reading.nnz, reading.roofline, reading.speed_up("cuSPARSE f16")),
            (Some(64), Some(0.5), None)
        );
        let command = "windrow-bench spmm FILES --values random --widths 4 --paths auto-f32";
        assert_eq!(recorded.command().as_deref(), Some(command));
    }

    #[test]
    fn warm_and_cold_are_two_cases() {
        let warm = line("m", 4, "auto-f32", (10.0, 0.01), Some(25.0));
        let said = warm.replacen("\"values\"", "\"l2\":\"warm\",\"values\"", 1);
        let file = File::new("states", &[warm.clone(), cold(&warm).replacen("10", "15", 1), said]);
        let recorded = Recorded::read(&file.0).unwrap();
        let told: Vec<_> = recorded.readings.iter().map(|r| (r.case.to_string(), r.us())).collect();
        let name = "spmm m at 4, auto-f32";
        assert_eq!(told, [(name.to_owned(), Some(10.0)), (format!("{name}, cold L2"), Some(15.0))]);
        assert_eq!(recorded.repeated, 1, "a record without the field is warm");
        let command = "windrow-bench spmm FILES --values random --widths 4 --paths auto-f32";
        assert_eq!(recorded.command(), Some(format!("{command} --l2 warm,cold")));
        let [warm, cold] = &recorded.by_state()[..] else { panic!("two states") };
        assert_eq!((warm.readings.len(), cold.readings.len()), (1, 1));
        assert_eq!(warm.command().as_deref(), Some(command));
        assert_eq!(cold.command(), Some(format!("{command} --l2 cold")));
    }

    #[test]
    fn the_last_time_of_a_case_counts() {
        let failed = line("m", 4, "auto-f32", (1.0, 0.0), None)
            .replacen("\"error\":null", "\"error\":\"lost\"", 1)
            .replacen("\"time\":{", "\"time\":null,\"_\":{", 1);
        let lines = [failed.clone(), line("m", 4, "auto-f32", (7.0, 0.0), None), failed];
        let recorded = Recorded::read(&File::new("last", &lines).0).unwrap();
        assert_eq!(recorded.repeated, 2);
        assert_eq!(recorded.readings.iter().map(Reading::us).collect::<Vec<_>>(), [Some(7.0)]);
    }

    #[test]
    fn what_is_no_record_is_named_with_its_line() {
        let good = line("m", 4, "auto-f32", (10.0, 0.01), None);
        for (broken, told) in [
            ("{\"schema\":1", "line 2: EOF"),
            ("{}", "line 2: missing field `schema`"),
            ("{\"schema\":9}", "line 2: version 9 of the lines' form"),
            ("{\"schema\":1,\"suite\":\"chess\"}", "line 2: a record of the suite chess"),
            ("{\"schema\":1}", "line 2: a record of no suite"),
            ("{\"schema\":1,\"suite\":\"spmm\"}", "line 2: missing field"),
        ] {
            let file = File::new("broken", &[good.clone(), broken.to_owned()]);
            let failure = Recorded::read(&file.0).unwrap_err();
            assert!(failure.exit == Exit::File && failure.message.contains(told), "{}", failure.message);
        }
        let failure = Recorded::read(&File::new("empty", &[]).0).unwrap_err();
        assert!(failure.message.ends_with("no records"), "{failure:?}");
        assert_eq!(Recorded::read_all(&[]).unwrap_err().exit, Exit::Usage);
    }
}
