//! The program from its words to its files.

use std::path::Path;

use super::*;
use crate::measure::{DeviceRates, GatherRates};
use crate::suites::spmm::SpmmRecord;
use crate::suites::testing::temporary;

/// What a run told, and how it ended.
fn bench(words: &[&str]) -> (String, Result<Exit, Failure>) {
    let arguments = Arguments::try_parse_from(["windrow-bench"].iter().chain(words));
    let mut talk = Vec::new();
    let exit = execute(&arguments.unwrap_or_else(|error| panic!("{words:?}: {error}")), &mut talk);
    (String::from_utf8(talk).unwrap(), exit)
}

fn right(words: &[&str]) -> String {
    let (talk, exit) = bench(words);
    assert!(matches!(exit, Ok(Exit::Right)), "{words:?}: {exit:?}\n{talk}");
    talk
}

fn failure(words: &[&str]) -> Failure {
    bench(words).1.unwrap_err()
}

/// A folder of one test, removed in the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = temporary(name);
        std::fs::create_dir_all(&path).unwrap();
        let matrix = "%%MatrixMarket matrix coordinate real general\n2 3 2\n1 3 1.5\n2 1 -2\n";
        std::fs::write(path.join("m.mtx"), matrix).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_becomes_lines_a_table_and_a_summary() {
    let folder = Folder::new("spmm");
    let (matrix, out, rates) = (folder.file("m.mtx"), folder.file("out.jsonl"), folder.file("rates.json"));
    let gather = GatherRates::try_new(vec![1e6], vec![64.0], vec![1e10]).unwrap();
    std::fs::write(&rates, serde_json::to_string(&DeviceRates { copy: 1e10, gather }).unwrap()).unwrap();
    let missing = folder.file("missing.mtx");
    let words = ["--device", "cpu", "--smoke", "--widths", "4", "--paths", "row-split-f32,auto-f16"];
    let words = [&["spmm", &matrix, &missing, "--out", &out, "--rates", &rates], &words[..]].concat();
    let (talk, exit) = bench(&words);
    assert_eq!(exit.unwrap(), Exit::File);
    assert!(
        talk.contains("copy 0.01 TB/s") && talk.contains("3 cases: 0 wrong, 0 failed, 1 unreadable"),
        "{talk}"
    );
    let lines = folder.text("out.jsonl");
    let records: Vec<SpmmRecord> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 3);
    assert!(records[0].time.as_ref().unwrap().bounds.roofline_us.is_some_and(|us| us > 0.0));
    let parent = folder.0.display().to_string();
    assert!(lines.lines().take(2).all(|line| !line.contains(&parent)), "a path in a record: {lines}");
    assert!(records[2].error.as_ref().is_some_and(|error| error.contains("missing.mtx")));

    // The lines are summed up, beside a published time.
    let (published, summary) = (folder.file("published.csv"), folder.file("summary.md"));
    std::fs::write(&published, "# one\nm,4,1e9,Other\n").unwrap();
    let words = ["spmm", "--summarise", &out, "--published", &published, "--out", &summary];
    right(&words);
    let text = folder.text("summary.md");
    assert!(text.contains("3 records, 0 with a wrong result, 1 failed in all"), "{text}");
    assert!(
        text.contains("## Speed over the fastest published") && text.contains("1000000000.0 (Other)"),
        "{text}"
    );
    std::fs::write(&published, "x\n").unwrap();
    let failure = failure(&words);
    assert!(failure.exit == Exit::File && failure.message.contains("line 1: 1 cells"), "{failure:?}");
}

/// Of every other suite: measured, written, read and summed up.
#[test]
fn every_suite_goes_from_files_to_a_summary() {
    let folder = Folder::new("all");
    let matrix = folder.file("m.mtx");
    let tensor = folder.file("t.tns");
    std::fs::write(&tensor, "1 1 1 2.5\n2 3 1 -1\n2 1 2 4\n").unwrap();
    let cases: [(&[&str], &str); 8] = [
        (
            &["sddmm", &matrix, "--smoke", "--inners", "5", "--paths", "auto-f32,auto-f16"],
            "2 records, 0 without a right result",
        ),
        (&["attention", &matrix, "--smoke", "--columns", "5"], "16 records, 0 without a right result"),
        (&["nm", "--smoke", "--shapes", "7x8x9"], "## f32, k-major"),
        (&["tensor", &tensor, "--smoke", "--widths", "3"], "## ttm, mode 0"),
        (&["ablation", &matrix, "--smoke", "--widths", "4", "--runs", "2"], "| m | 4 | overlap | 0 |"),
        (&["preprocess", &matrix, "--smoke"], "# Plans\n\n0 lines"),
        (&["plans", &matrix, "--smoke", "--widths", "4"], "# Plans of matrices on the device\n\n4 lines"),
        (&["tuned", &matrix, "--widths", "2", "--budget", "0.05"], "1 cases, 0 without a default's time"),
    ];
    for (words, expected) in cases {
        let (out, summary) = (folder.file("out.jsonl"), folder.file("summary.md"));
        let talk = right(&[words, &["--device", "cpu", "--out", &out]].concat());
        assert!(talk.contains("0 wrong, 0 failed, 0 unreadable"), "{talk}");
        if words[0] == "ablation" || words[0] == "preprocess" {
            assert!(talk.contains("times skipped for want of a GPU"), "{talk}");
        }
        right(&[words[0], "--summarise", &out, "--out", &summary]);
        let text = folder.text("summary.md");
        assert!(text.contains(expected), "{words:?}: {text}");
        let failure = failure(&[words[0], "--summarise", &matrix]);
        assert!(failure.exit == Exit::File && failure.message.contains("line 1"), "{failure:?}");
    }
}

#[test]
fn a_run_goes_on_where_a_file_ends() {
    let folder = Folder::new("resume");
    let (matrix, out) = (folder.file("m.mtx"), folder.file("out.jsonl"));
    let words = [
        "spmm",
        &matrix,
        "--device",
        "cpu",
        "--smoke",
        "--no-peers",
        "--paths",
        "row-split-f32",
        "--out",
        &out,
    ];
    let with = |more: &[&str]| right(&[&words, more].concat());
    with(&["--widths", "4"]);
    let first = folder.text("out.jsonl");
    let talk = with(&["--widths", "4,5", "--resume"]);
    assert!(talk.contains("1 cases are there already") && talk.contains("1/1 "), "{talk}");
    let both = folder.text("out.jsonl");
    assert!(both.starts_with(&first) && both.lines().count() == 2, "{both}");
    // A case of another revision, or one that failed, is measured again.
    std::fs::write(&out, first.replacen("\"revision\":\"", "\"revision\":\"other-", 1)).unwrap();
    assert!(!with(&["--widths", "4", "--resume"]).contains("there already"));
    std::fs::write(&out, first.replacen("\"error\":null", "\"error\":\"it broke\"", 1)).unwrap();
    assert!(!with(&["--widths", "4", "--resume"]).contains("there already"));
    std::fs::write(&out, "no record\n").unwrap();
    let torn = failure(&[&words[..], &["--resume"]].concat());
    assert!(
        torn.exit == Exit::File && torn.message.contains("line 1") && torn.message.contains("remove"),
        "{torn:?}"
    );
    assert!(Path::new(&out).exists());
    with(&["--widths", "4"]);
    assert_eq!(folder.text("out.jsonl").lines().count(), 1, "without --resume a file is replaced");
}

#[test]
fn warm_and_cold_go_from_words_to_a_summary() {
    let folder = Folder::new("l2");
    let (matrix, out, summary) = (folder.file("m.mtx"), folder.file("out.jsonl"), folder.file("summary.md"));
    for (suite, words) in [
        ("spmm", &["--widths", "4", "--paths", "row-split-f32", "--no-peers"][..]),
        ("sddmm", &["--inners", "4", "--paths", "auto-f32"]),
        ("attention", &["--columns", "4", "--paths", "auto-f32"]),
        ("ablation", &["--widths", "4", "--parts", "bytes"]),
    ] {
        let words = [&[suite, &matrix, "--device", "cpu", "--smoke", "--out", &out], words].concat();
        let with = |more: &[&str]| right(&[&words, more].concat());
        assert!(!with(&[]).contains("cold L2"), "warm unless told");
        let count = folder.text("out.jsonl").lines().count();
        assert!(folder.text("out.jsonl").lines().all(|line| line.contains("\"l2\":\"warm\"")));
        let talk = with(&["--l2", "warm,cold", "--resume"]);
        assert!(
            talk.contains(&format!("{count} cases are there already")) && talk.contains("cold L2"),
            "{talk}"
        );
        let lines = folder.text("out.jsonl");
        let cold = "\"l2\":{\"cold\":{\"flushed_bytes\":134217728,\"cache\":\"processor\"}}";
        assert_eq!((lines.lines().count(), lines.matches(cold).count()), (2 * count, count), "{lines}");
        right(&[suite, "--summarise", &out, "--out", &summary]);
        let text = folder.text("summary.md");
        assert!(text.starts_with("With a warm L2 cache:\n\n"), "{text}");
        assert_eq!(text.matches("\nWith a cold L2 cache:\n\n").count(), 1, "{text}");
    }
    let parsed = |words: &[&str]| Arguments::try_parse_from([&["windrow-bench"], words].concat());
    assert!(parsed(&["spmm", "m.mtx", "--l2", "hot"]).is_err());
    // What is not measured cold says so instead of passing the option over.
    for suite in ["preprocess", "plans", "tuned"] {
        assert!(parsed(&[suite, "m.mtx", "--l2", "cold"]).is_err(), "{suite}");
    }
}

#[test]
fn each_failure_has_its_code() {
    let exit = |words: &[&str]| failure(words).exit;
    for suite in ["spmm", "sddmm", "attention", "tensor", "ablation", "preprocess", "plans", "tuned"] {
        assert_eq!(exit(&[suite, "--device", "cpu"]), Exit::Usage, "{suite}");
        assert_eq!(exit(&[suite, "--summarise"]), Exit::Usage, "{suite}");
        assert_eq!(exit(&[suite, "--summarise", "no-such-file"]), Exit::File, "{suite}");
        assert_eq!(exit(&[suite, "x.mtx", "--device", "cuda:4000000000"]), Exit::NoDevice, "{suite}");
        let out = [suite, "x.mtx", "--device", "cpu", "--out", "no-such-folder/x"];
        assert_eq!(exit(&out), Exit::File, "{suite}");
    }
    assert_eq!(exit(&["nm", "m.mtx"]), Exit::Usage);
    let wrong = [
        &["spmm", "--resume", "m.mtx"][..],
        &["sweep"],
        &[],
        &["spmm", "--summarise", "--synthetic", "rmat17"],
    ];
    for words in wrong {
        let words = ["windrow-bench"].iter().chain(words);
        assert!(Arguments::try_parse_from(words).is_err());
    }
}

#[test]
fn lines_of_another_suite_or_version_are_named() {
    let folder = Folder::new("other");
    let (matrix, out) = (folder.file("m.mtx"), folder.file("out.jsonl"));
    right(&[
        "sddmm", &matrix, "--device", "cpu", "--smoke", "--inners", "5", "--paths", "auto-f32", "--out", &out,
    ]);
    let failed = failure(&["spmm", "--summarise", &out]);
    assert!(failed.message.ends_with("line 1: a record of the suite sddmm, not of spmm"), "{failed:?}");
    std::fs::write(&out, folder.text("out.jsonl").replacen("\"schema\":1", "\"schema\":7", 1)).unwrap();
    let failed = failure(&["sddmm", "--summarise", &out]);
    assert!(failed.message.contains("line 1: version 7 of the lines' form"), "{failed:?}");
}

#[test]
fn records_are_read_from_all_files() {
    let folder = Folder::new("lines");
    let file = |name: &str, text: &str| {
        std::fs::write(folder.file(name), text).unwrap();
        std::path::PathBuf::from(folder.file(name))
    };
    let (two, one, wrong) = (file("two", "1\n2\n"), file("one", "3\n"), file("wrong", "4\nfive\n"));
    let read = |files: &[_]| Records::read(files)?.each(|line| serde_json::from_str::<u32>(line));
    assert_eq!(read(&[two.clone(), one]).unwrap(), [1, 2, 3]);
    let failure = read(&[two, wrong.clone()]).unwrap_err();
    let told = format!("{}: line 2: expected ident at line 1 column 2", wrong.display());
    assert_eq!((failure.exit, failure.message), (Exit::File, told));
}

#[test]
fn help_shows_lists_as_they_are_typed() {
    let mut command = with_commas(Arguments::command());
    let help = |command: &mut clap::Command, suite: &str| {
        let help = command.find_subcommand_mut(suite).expect("there is such a suite").render_long_help();
        help.to_string().split_whitespace().collect::<Vec<_>>().join(" ") // however lines are broken
    };
    let spmm = help(&mut command, "spmm");
    assert!(spmm.contains("[default: row-split-f32,row-split-f16,"), "{spmm}");
    assert!(help(&mut command, "sddmm").contains("[default: 32,64,128,256]"));
    let (_, exit) =
        bench(&["spmm", "--smoke", "--device", "cpu", "--paths", "row-split-f32", "row-split-f16"]);
    assert!(!matches!(exit, Ok(Exit::Right)), "the second is the name of a file: {exit:?}");
}
