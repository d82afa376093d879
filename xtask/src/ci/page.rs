//! The page of the committed records, which a test of `windrow-bench` makes, opened in a browser that has no window.

use std::path::PathBuf;
use std::process::Command;

use super::Tally;
use crate::failure::{Context, Failure, Result};
use crate::process;
use crate::workspace::Workspace;

/// Programs that are Chromium, whichever a machine has.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

/// What the page writes when every column of every table was sorted both ways.
const PASSED: &str = "<p id=\"outcome\">sorting passed: ";

/// The variable that tells a test where to leave the page.
pub(super) const VARIABLE: &str = "WINDROW_PAGE";

/// Where that is; what is there from an earlier run is removed.
///
/// # Errors
/// A folder that cannot be made.
pub(super) fn place(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target("page");
    std::fs::create_dir_all(&folder).context(folder.display())?;
    let page = folder.join("report.html");
    if page.exists() {
        std::fs::remove_file(&page).context(page.display())?;
    }
    Ok(page)
}

/// Opens the page that the tests left, and looks at what its own test says; a counted skip without a browser.
pub(super) fn run(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let folder = workspace.target("page");
    let page = folder.join("report.html");
    let is_there = |name: &&&str| process::capture(Command::new(name).arg("--version")).is_ok();
    let Some(browser) = BROWSERS.iter().find(is_there) else {
        let skipped = "skipped: 1 look at a page: no browser (Debian: apt-get install chromium)";
        println!("{skipped}");
        tally.add(skipped);
        return Ok(());
    };
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.arg(format!("file://{}#test", page.display()));
    let output = command.output().context(process::line(&command))?;
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(Failure::new(format!("{} ended with {}\n{log}", process::line(&command), output.status)));
    }
    let bytes = std::fs::metadata(&page).context(page.display())?.len();
    println!("{}: {} kB; {}", workspace.relative(&page), bytes / 1000, outcome(&dom, &log)?);
    tally.passed += 1;
    Ok(())
}

/// What the page said of itself, if that is good and the console is quiet.
fn outcome<'a>(dom: &'a str, log: &str) -> Result<&'a str> {
    // The console of the page; what the browser says of itself has other marks.
    let complaints: Vec<_> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
    if !complaints.is_empty() {
        return Err(Failure::new(format!("the page's console says\n{}", complaints.join("\n"))));
    }
    let Some((_, passed)) = dom.split_once(PASSED) else {
        let told = dom.split_once("<p id=\"outcome\">").and_then(|(_, rest)| rest.split('<').next());
        return Err(Failure::new(format!("the page's test: {}", told.unwrap_or("it wrote no outcome"))));
    };
    match passed.split_once('<') {
        Some((told, _)) if !told.starts_with("0 ") => Ok(told),
        _ => Err(Failure::new("the page's test sorted nothing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_passes_only_by_what_it_wrote() {
        let dom = |text: &str| format!("<body><p id=\"outcome\">{text}</p></body>");
        let good = dom("sorting passed: 7 columns of 2 tables");
        assert_eq!(outcome(&good, "[1:2:INFO] ready").unwrap(), "7 columns of 2 tables");
        let failed = |dom: &str, log: &str| outcome(dom, log).unwrap_err().to_string();
        assert!(failed(&good, "[1:INFO:CONSOLE:3] \"Uncaught\"").contains("Uncaught"));
        assert!(failed(&dom("sorting failed: table 3"), "").contains("table 3"));
        assert!(failed("<body></body>", "").contains("no outcome"));
        assert!(failed(&dom("sorting passed: 0 columns of 0 tables"), "").contains("nothing"));
    }
}
