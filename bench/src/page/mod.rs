//! `report`: records as one page of HTML that needs nothing else.

mod section;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::Args;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};

use crate::program::{Exit, Failure, write};
use crate::reading::Recorded;

/// Write records as one HTML page: machine, revision and command of each file, speed over a peer, cases that are
/// behind beside those that are ahead, pictures, and all times in tables that can be sorted. Times with a cold L2 cache
/// have a section of their own.
///
/// The page is one file, needs nothing from elsewhere, and can be read on a light screen and on a dark one.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Files of records, of any suites.
    #[arg(value_name = "RECORDS", required = true)]
    files: Vec<PathBuf>,
    /// Where the page goes; standard output unless told.
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// What the page is called.
    #[arg(long, value_name = "TEXT", default_value = "windrow, measured")]
    title: String,
}

impl Arguments {
    /// Writes the page.
    ///
    /// # Errors
    /// [`Exit::File`].
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let recorded = Recorded::read_all(&self.files)?;
        write(self.out.as_deref(), &page(&self.title, &recorded)?)?;
        Ok(Exit::Right)
    }
}

/// The page of these files.
fn page(title: &str, recorded: &[Recorded]) -> Result<String, Failure> {
    let failed = |error: minijinja::Error| Failure::new(Exit::Failed, format!("the page: {error:#}"));
    let mut environment = Environment::new();
    // Whatever ends in .html has its values escaped.
    environment.add_template("page.html", include_str!("page.html")).map_err(failed)?;
    let files = recorded.iter().flat_map(Recorded::by_state);
    let files: Vec<_> = (1..).zip(files).map(|(number, file)| section::Section::of(number, &file)).collect();
    let names: Vec<_> = recorded.iter().map(Recorded::name).collect();
    let page = context! {
        title,
        cases => recorded.iter().map(|file| file.readings.len()).sum::<usize>(),
        command => format!("windrow-bench report {}", names.join(" ")),
        files => Value::from(Serde(files)),
    };
    environment.get_template("page.html").and_then(|template| template.render(page)).map_err(failed)
}
