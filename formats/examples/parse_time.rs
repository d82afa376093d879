//! Times how long a matrix file takes to become compressed rows.
//!
//! ```console
//! $ cargo run --release -p windrow-formats --example parse_time -- matrix.mtx 5
//! ```
//!
//! Prints what the file holds, then each repetition's time for reading and parsing, for assembling, and in
//! total. Values are read as `f64`. To time one thread, set `RAYON_NUM_THREADS=1`. To compare with SciPy's
//! reader, which ends at coordinates, look at the first of the two; with its reader and `tocsr`, at the total.
#![expect(clippy::print_stdout, reason = "an example that shows what it measured")]

use std::sync::Mutex;
use std::time::{Duration, Instant};

use windrow_formats::Csr;
use windrow_formats::io::{Progress, ReadOptions, Stage, read_csr_with_report};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: parse_time FILE [REPETITIONS]")?;
    let repetitions: u32 = arguments.next().map_or(Ok(5), |text| text.parse())?;

    for repetition in 1..=repetitions {
        let start = Instant::now();
        // When assembling began, which is when all entries were there as coordinates.
        let assembling: Mutex<Option<Duration>> = Mutex::new(None);
        let progress = |progress: Progress| {
            if let (Stage::Assembling, Ok(mut assembling)) = (progress.stage, assembling.lock()) {
                assembling.get_or_insert(start.elapsed());
            }
        };
        let options = ReadOptions { progress: Some(&progress), ..ReadOptions::default() };
        let (csr, report): (Csr<f64>, _) = read_csr_with_report(&path, &options)?;
        let total = start.elapsed();
        if repetition == 1 {
            println!("{report}");
            let empty_rows = csr.rows_iter().filter(|(cols, _)| cols.is_empty()).count();
            println!(
                "{} rows x {} columns, {} entries, {empty_rows} empty rows",
                csr.rows(),
                csr.cols(),
                csr.nnz()
            );
        }
        let parsed = assembling.lock().ok().and_then(|assembling| *assembling).unwrap_or(total);
        let seconds = [parsed, total - parsed, total].map(|time| time.as_secs_f64());
        println!("coordinates {:.3} s + rows {:.3} s = {:.3} s", seconds[0], seconds[1], seconds[2]);
    }
    Ok(())
}
