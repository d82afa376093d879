//! The page of records with known numbers.

use super::*;
use crate::reading::testing::{File, cold, line};

fn page_of(lines: &[String]) -> String {
    let file = File::new("page", lines);
    page("a <title>", &[Recorded::read(&file.0).unwrap()]).unwrap()
}

/// What stands between tags, with one space for each run of tags and white space.
fn text(html: &str) -> String {
    let outside = html.split('<').map(|piece| piece.split_once('>').map_or(piece, |(_, text)| text));
    outside.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

#[test]
fn cases_behind_stand_beside_those_ahead() {
    let of = |matrix: &str, us: f64| line(matrix, 64, "auto-f32", (us, 0.0), Some(10.0));
    let page = page_of(&[of("ahead", 5.0), of("behind", 20.0), of("level", 10.0)]);
    let text = text(&page);
    // 2 · ½ · 1
    assert!(text.contains("spmm, 3 cases; over cuSPARSE f32 1.000, behind in 1 of 3"), "{text}");
    assert!(
        text.contains("Behind: 1 of 3 matrix width path µs times as fast behind 64 auto-f32 20.00 0.500"),
        "{text}"
    );
    assert!(
        text.contains("Ahead: 2 of 3 matrix width path µs times as fast ahead 64 auto-f32 5.000 2.000"),
        "{text}"
    );
    assert!(text.contains("matrix width auto-f32 cuSPARSE f32 ahead 64 5.000 10.00"), "{text}");
    assert!(text.contains("windrow-bench spmm FILES --values random --widths 64 --paths auto-f32"), "{text}");
    assert!(text.contains("Machine GPU, 1 multiprocessors Revision abc"), "{text}");
    // Speeds, profile, roofline.
    assert_eq!(page.matches("<svg ").count(), 3);
}

#[test]
fn the_page_needs_nothing_else_and_escapes_its_values() {
    let page = page_of(&[line("<script>alert(1)</script>&", 64, "auto-f32", (5.0, 0.0), Some(1.0))]);
    assert!(!page.contains("<script>alert") && !page.contains("<title>a <title>"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;") && page.contains("a &lt;title&gt;"), "{page}");
    assert_eq!(page.matches("<script>").count(), 1);
    for outside in ["src=", "@import", "url(", "<iframe"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let links = page.matches("http").count() - page.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(links, 1, "the policy's own name");
}

#[test]
fn errors_are_told() {
    let failed = line("m", 64, "auto-f32", (5.0, 0.0), None)
        .replacen("\"time\":{", "\"time\":null,\"_\":{", 1)
        .replacen("],\"error\":null}", "],\"error\":\"it < broke\"}", 1);
    let page = page_of(&[failed, line("n", 64, "auto-f32", (5.0, 0.0), None)]);
    assert!(page.contains("spmm m at 64, auto-f32: it &lt; broke"), "{page}");
    assert!(!page.contains("class=\"ahead\""), "without a peer there is nothing to be ahead of: {page}");
}

#[test]
fn many_paths_have_a_line_for_each_case() {
    let lines: Vec<_> =
        (0..13).map(|at| line("m", 64, &format!("auto-f32+workers={at}"), (10.0, 0.025), None)).collect();
    let text = text(&page_of(&lines));
    assert!(text.contains("matrix width path µs noise % m 64 auto-f32+workers=0 10.00 2.500"), "{text}");
}

#[test]
fn cold_times_have_a_section_of_their_own() {
    let warm = line("m", 64, "auto-f32", (5.0, 0.0), Some(10.0));
    let page = page_of(&[warm.clone(), cold(&warm).replacen("\"median_us\":5", "\"median_us\":20", 1)]);
    let text = text(&page);
    assert!(text.contains("spmm, 1 cases; over cuSPARSE f32 2.000, behind in 0 of 1"), "{text}");
    assert!(text.contains(", cold L2 : spmm, 1 cases; over cuSPARSE f32 0.500, behind in 1 of 1"), "{text}");
    assert!(text.contains("--paths auto-f32 --l2 cold"), "{text}");
}

/// All committed records; where `WINDROW_PAGE` names a file, the page is left there, for a browser.
#[test]
fn the_committed_records_make_a_page() {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/results"));
    let mut files: Vec<PathBuf> = Vec::new();
    for run in std::fs::read_dir(folder).into_iter().flatten() {
        let inside =
            std::fs::read_dir(run.unwrap().path()).into_iter().flatten().map(|file| file.unwrap().path());
        files.extend(inside.filter(|file| file.extension().is_some_and(|extension| extension == "jsonl")));
    }
    if files.is_empty() {
        let why = format!("there are no records in {}", folder.display());
        return windrow_testkit::announce_skip("the_committed_records_make_a_page", 1, &why);
    }
    files.sort();
    let recorded = Recorded::read_all(&files).unwrap_or_else(|failure| panic!("{}", failure.message));
    let page = page("windrow, measured", &recorded).unwrap();
    assert!(page.len() < 900_000, "{} bytes", page.len());
    let text = text(&page);
    // bench/results says the same.
    assert!(
        text.contains("sweep.jsonl : spmm, 812 cases; over cuSPARSE f32 2.449, behind in 8 of 812"),
        "{text}"
    );
    assert!(text.contains("Cornell5 64 row-split-f32 47.3"), "the loss that the README names");
    if let Some(path) = std::env::var_os("WINDROW_PAGE") {
        std::fs::write(path, page).unwrap();
    }
}
