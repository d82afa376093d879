//! Pages of `docs` that a test writes and holds.

use std::path::Path;

use windrow_testkit::announce_skip;

/// Compares a page, by its path in the repository, with what a test found; `WINDROW_BLESS=1` writes it first.
pub(crate) fn holds(path: &str, page: &str) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = tests.join("..").join(path);
    if std::env::var_os("WINDROW_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&file, page).unwrap();
    }
    // Where only the program was carried there are no documents.
    let Ok(committed) = std::fs::read_to_string(&file) else {
        assert!(!tests.exists(), "there is no {path}");
        return announce_skip(path, 1, "the tests are not in the repository");
    };
    let differing = page.lines().zip(committed.lines()).find(|(found, said)| found != said);
    assert!(page == committed, "{path} is older, first in {differing:?}; WINDROW_BLESS=1 writes it anew");
}
