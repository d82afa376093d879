//! `windrow convert`: any readable format to any writable one.

use serde::Serialize;

use crate::args::ConvertArgs;
use crate::console::Console;
use crate::failure::Result;
use crate::load::{self, Written};
use crate::output::Output;
use crate::units;

/// What was read and written.
#[derive(Debug, Serialize)]
struct Conversion {
    input: String,
    header: String,
    mirrored: u64,
    duplicates_summed: u64,
    #[serde(flatten)]
    written: Written,
}

pub(crate) fn run(args: &ConvertArgs, console: Console) -> Result<()> {
    let output = Output::of(&args.output, &[&args.input], console)?;
    let options = load::write_options(output, args.to)?;
    let (a, read) = load::read::<f64>(&args.input, &args.read, console)?;
    if read.mirrored > 0 {
        console.note(format_args!(
            "note: the input holds one triangle; the {} entries of the other are written too",
            units::count(read.mirrored)
        ));
    }
    let written = load::write(output, &a, &options, console)?;
    console.summary(output, &written)?;
    console.object(
        "convert",
        &Conversion {
            input: args.input.display().to_string(),
            header: read.header.to_string(),
            mirrored: read.mirrored,
            duplicates_summed: read.duplicates_summed,
            written,
        },
    )
}
