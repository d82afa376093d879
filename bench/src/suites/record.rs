//! Records: one line of JSON for each case.

use serde::{Deserialize, Serialize};
use windrow::Device;

use super::facts::{CheckFacts, DeviceFacts, TimeFacts};
use crate::measure::l2::L2Facts;

/// Version of the lines' form. It rises when a field changes its meaning or goes; new fields do not raise it.
pub(crate) const SCHEMA: u32 = 1;

/// What was measured of one case: one JSON object on a line. `F` are the fields that a suite adds, beside the others.
///
/// What is not known is `null`: `time` of a case that is wrong or did not run, a plan that could not be made. Lines of
/// version 1 that older programs wrote have no `suite` and no `case`; committed ones leave out more that no summary
/// reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record<F> {
    /// [`SCHEMA`] of the program that wrote it.
    pub(crate) schema: u32,
    /// Name of the suite.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) suite: String,
    /// Name of the case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) case: String,
    /// Which windrow was measured.
    pub(crate) revision: String,
    pub(crate) device: DeviceFacts,
    /// What the L2 cache held before each timed product, peers' too; warm in records of before there was a choice.
    #[serde(default)]
    pub(crate) l2: L2Facts,
    /// What the suite tells.
    #[serde(flatten)]
    pub(crate) facts: F,
    /// The comparison with the f64 reference.
    #[serde(default)]
    pub(crate) check: Option<CheckFacts>,
    /// The time, of a result that is right.
    #[serde(default)]
    pub(crate) time: Option<TimeFacts>,
    /// Why there is no time.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

impl<F> Record<F> {
    /// A record of a case that is yet to be measured.
    pub(crate) fn new(suite: &str, case: String, device: &Device, facts: F) -> Self {
        Self {
            schema: SCHEMA,
            suite: suite.to_owned(),
            case,
            revision: revision(),
            device: DeviceFacts::of(device),
            l2: L2Facts::default(),
            facts,
            check: None,
            time: None,
            error: None,
        }
    }

    /// The median time in microseconds, of a right result.
    pub(crate) fn us(&self) -> Option<f64> {
        self.time.map(|time| time.timing.median_us)
    }
}

impl<F: Serialize> Record<F> {
    /// The record as JSON, without a line break.
    ///
    /// # Panics
    /// Never: every field has a form in JSON.
    pub(crate) fn to_json_line(&self) -> String {
        serde_json::to_string(self).expect("numbers, text and lists of these")
    }
}

/// Which windrow this is: `WINDROW_REVISION` of the environment, or of the build (`git describe`), or the version.
pub(crate) fn revision() -> String {
    let built = option_env!("WINDROW_REVISION").unwrap_or(concat!("v", env!("CARGO_PKG_VERSION")));
    std::env::var("WINDROW_REVISION").unwrap_or_else(|_| built.to_owned())
}

#[cfg(test)]
mod tests {
    use windrow::Verification;

    use super::*;
    use crate::measure::{BenchError, Timing};
    use crate::suites::{Measured, Suite, Tally, run};

    /// A suite whose second result is wrong.
    struct Second;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Number {
        number: u32,
        half: Option<f64>,
    }

    impl Suite for Second {
        const NAME: &'static str = "second";
        type Case = u32;
        type Facts = Number;

        fn cases(&self) -> Vec<u32> {
            vec![1, 2, 3]
        }

        fn name(&self, case: &u32) -> String {
            format!("case {case}")
        }

        fn facts(&self, case: &u32) -> Number {
            Number { number: *case, half: None }
        }

        fn measure(&mut self, case: &u32, facts: &mut Number) -> Result<Measured, BenchError> {
            facts.half = Some(f64::from(*case) / 2.0);
            let (worst_ratio, failures) = if *case == 2 { (f64::INFINITY, 3) } else { (0.5, 0) };
            let found = Verification { worst_ratio, worst_row: 1, worst_col: 2, failures, checked: 4 };
            let timing =
                Timing { median_us: 1.5, min_us: 1.0, max_us: 2.0, noise: 0.0, batches: 1, calls: 1 };
            Measured::right(found, timing)
        }
    }

    #[test]
    fn a_wrong_result_is_a_record_without_a_time() {
        let mut records = Vec::new();
        let tally = run(&mut Second, &Device::cpu(), &|_| false, &mut |record| {
            let back: Record<Number> = serde_json::from_str(&record.to_json_line())?;
            assert_eq!(&back, record);
            records.push(back);
            Ok(())
        });
        assert_eq!(tally.unwrap(), Tally { cases: 3, wrong: 1, ..Tally::default() });
        let wrong = &records[1];
        assert_eq!((wrong.suite.as_str(), wrong.case.as_str(), wrong.us()), ("second", "case 2", None));
        assert_eq!(wrong.check, Some(CheckFacts { worst_ratio: None, failures: 3, checked: 4 }));
        assert_eq!(wrong.facts, Number { number: 2, half: Some(1.0) });
        assert!(wrong.error.as_ref().is_some_and(|error| error.contains("3 beyond the bound")));
        assert_eq!((records[0].us(), records[2].us()), (Some(1.5), Some(1.5)));
    }
}
