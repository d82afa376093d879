//! `csv`: the readings of records of any suite, a line each, for programs that read tables.

use std::path::PathBuf;

use clap::Args;

use super::{Reading, Recorded};
use crate::program::{Exit, Failure, write};

/// Write records of any suite as CSV: one line for each time, with its case, noise, and the quickest peer.
///
/// The first line names the columns; roofline is the lower bound over the time, l2 whether the L2 cache was warm or
/// cold. What a record does not hold is empty.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Files of records, of any suites.
    #[arg(value_name = "RECORDS", required = true)]
    files: Vec<PathBuf>,
    /// Where the lines go; standard output unless told.
    #[arg(long, value_name = "FILE.csv")]
    out: Option<PathBuf>,
}

const TITLES: &str = "file,suite,matrix,checksum,width,path,device,revision,rows,nnz,us,noise,min_us,max_us,roofline,\
                      gathered_gbps,peer,peer_us,error,l2\n";

impl Arguments {
    /// Writes the lines.
    ///
    /// # Errors
    /// [`Exit::File`].
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let mut text = TITLES.to_owned();
        for recorded in Recorded::read_all(&self.files)? {
            let name = recorded.name();
            recorded.readings.iter().for_each(|reading| text.push_str(&line(&name, reading)));
        }
        write(self.out.as_deref(), &text)?;
        Ok(Exit::Right)
    }
}

fn line(file: &str, reading: &Reading) -> String {
    fn text(value: Option<impl ToString>) -> String {
        value.map_or_else(String::new, |value| quoted(&value.to_string()))
    }
    let Reading { case, revision, time, error, rows, nnz, roofline, gathered_gbps, .. } = reading;
    let peer = reading.peers.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let cells = [
        quoted(file),
        quoted(case.suite),
        quoted(&case.matrix),
        text(case.checksum.as_ref()),
        text(case.width),
        quoted(&case.path),
        quoted(&case.device),
        quoted(revision),
        text(*rows),
        text(*nnz),
        text(time.map(|time| time.us)),
        text(time.and_then(|time| time.noise)),
        text(time.and_then(|time| time.least_us)),
        text(time.and_then(|time| time.most_us)),
        text(*roofline),
        text(*gathered_gbps),
        text(peer.map(|(name, _)| name)),
        text(peer.map(|(_, us)| us)),
        text(error.as_ref()),
        case.l2.to_string(),
    ];
    cells.join(",") + "\n"
}

/// A cell as RFC 4180 has it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::program::{Arguments as Program, execute};
    use crate::reading::testing::{File, line};
    use crate::suites::testing::temporary;

    #[test]
    fn a_reading_is_a_line() {
        let records = File::new("csv", &[line("a,\"b\"", 4, "auto-f32", (10.0, 0.25), Some(20.0))]);
        let out = File(temporary("readings.csv"));
        let words = ["windrow-bench", "csv", &records.word(), "--out", &out.word()];
        assert_eq!(execute(&Program::try_parse_from(words).unwrap(), &mut Vec::new()).unwrap(), Exit::Right);
        let text = std::fs::read_to_string(&out.0).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0].split(',').count(), 20);
        let told =
            ",spmm,\"a,\"\"b\"\"\",0f,4,auto-f32,GPU,abc,16,64,10,0.25,10,10,0.5,100,cuSPARSE f32,20,,warm";
        assert!(lines.len() == 2 && lines[1].ends_with(told), "{text}");
    }
}
