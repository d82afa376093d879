//! Comparisons of records with known numbers.

use clap::Parser;

use super::*;
use crate::program::{Arguments as Program, execute};
use crate::reading::testing::{File, cold, line};
use crate::suites::testing::temporary;

/// How the program ended, what it told, and what it wrote.
fn compared(old: &[String], new: &[String], words: &[&str]) -> (Result<Exit, Failure>, String, String) {
    let (old, new) = (File::new("old", old), File::new("new", new));
    let out = File(temporary(&format!("{}-out", old.0.file_stem().unwrap().display())));
    let files = [old.word(), new.word(), out.word()];
    let command = ["windrow-bench", "compare", &files[0], &files[1], "--out", &files[2]];
    let arguments = Program::try_parse_from(command.iter().chain(words)).unwrap();
    let mut talk = Vec::new();
    let exit = execute(&arguments, &mut talk);
    let text = std::fs::read_to_string(&out.0).unwrap_or_default();
    (exit, String::from_utf8(talk).unwrap(), text)
}

fn of(matrix: &str, us: f64) -> String {
    line(matrix, 64, "auto-f32", (us, 0.0), None)
}

#[test]
fn each_case_has_its_verdict() {
    let noisy = |us| line("noisy", 64, "auto-f32", (us, 0.1), None);
    let old = [of("quick", 100.0), of("slow", 100.0), of("same", 100.0), noisy(100.0), of("gone", 1.0)];
    let new = [of("quick", 50.0), of("slow", 200.0), of("same", 101.0), noisy(110.0), of("come", 1.0)];
    let (exit, _, text) = compared(&old, &new, &["--all"]);
    assert_eq!(exit.unwrap(), Exit::Right);
    assert!(text.contains("4 cases in both: 1 FAST, 1 SLOW, 1 SAME, 1 undecided."), "{text}");
    // (0.5 · 2 · 1.01 · 1.1)^¼
    assert!(text.contains("geometric mean: 1.027."), "{text}");
    assert!(
        text.contains("| spmm | slow | 64 | auto-f32 | 100.00 | 200.00 | 2.000 | 1.944 to 2.057 |"),
        "{text}"
    );
    assert!(text.contains("## In the old file only: 1\n\n- spmm gone at 64, auto-f32\n"), "{text}");
    assert!(text.contains("## In the new file only: 1\n\n- spmm come at 64, auto-f32\n"), "{text}");
    assert!(text.find("## SLOW: 1") < text.find("## FAST: 1") && text.contains("## SAME: 1"), "{text}");
    let (_, _, short) = compared(&old, &new, &[]);
    assert!(!short.contains("## SAME") && short.contains("## undecided: 1"), "{short}");
}

#[test]
fn json_has_every_case() {
    let (_, _, text) =
        compared(&[of("a", 10.0), of("b", 1.0)], &[of("a", 20.0)], &["--json", "--gate", "5%"]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["pairs"][0]["verdict"], "slow");
    assert_eq!((&value["pairs"][0]["ratio"], &value["pairs"][0]["matrix"]), (&2.0.into(), &"a".into()));
    assert_eq!(
        (&value["counts"]["slow"], &value["only_old"][0]),
        (&1.into(), &"spmm b at 64, auto-f32".into())
    );
    assert_eq!(
        (&value["gate"]["passed"], &value["gate"]["slower"][0]),
        (&false.into(), &"spmm a at 64, auto-f32".into())
    );
}

#[test]
fn the_gate_fails_on_what_noise_does_not_explain() {
    let gate = |old: String, new: String, gate: &str| {
        let (exit, talk, text) = compared(&[old], &[new], &["--gate", gate]);
        (exit.unwrap(), talk, text)
    };
    let (exit, talk, text) = gate(of("m", 100.0), of("m", 106.0), "5%");
    assert_eq!(exit, Exit::Slower);
    assert!(talk.contains("the gate of 5 % is not passed: 1 cases are slower, 0 have an error"), "{talk}");
    assert!(text.contains("Gate of 5 %: NOT passed; 1 slower"), "{text}");
    // Slower by less; by more, but within noise; quicker.
    assert_eq!(gate(of("m", 100.0), of("m", 106.0), "7%").0, Exit::Right);
    let noisy = |us| line("m", 64, "auto-f32", (us, 0.05), None);
    assert_eq!(gate(noisy(100.0), noisy(110.0), "5%").0, Exit::Right);
    let (exit, talk, text) = gate(of("m", 100.0), of("m", 50.0), "0%");
    assert!(exit == Exit::Right && talk.is_empty() && text.contains("Gate of 0 %: passed"), "{talk}{text}");
    // What is too brief in both files is counted alone; what became long is not.
    let above = |new: f64| compared(&[of("m", 3.0)], &[of("m", new)], &["--gate", "5%", "--above", "5"]);
    let (exit, _, text) = above(4.5);
    assert!(exit.unwrap() == Exit::Right && text.contains("1 cases take less than --above"), "{text}");
    assert_eq!(above(6.0).0.unwrap(), Exit::Slower);
    // A time that is lost.
    let broken = of("m", 1.0).replacen("\"time\":{", "\"time\":null,\"_\":{", 1).replacen(
        "],\"error\":null}",
        "],\"error\":\"it broke\"}",
        1,
    );
    let (exit, _, text) = gate(of("m", 100.0), broken, "5%");
    assert!(exit == Exit::Slower && text.contains("- spmm m at 64, auto-f32: it broke"), "{text}");
}

#[test]
fn warm_times_are_compared_with_no_cold_ones() {
    let (old, new) = (of("m", 10.0), cold(&of("m", 30.0)));
    let [warm, other] = [&old, &new].map(std::slice::from_ref);
    let failure = compared(warm, other, &[]).0.unwrap_err();
    assert!(
        failure.exit == Exit::Usage && failure.message.contains("auto-f32, cold L2 on GPU"),
        "{failure:?}"
    );
    let both = [of("m", 20.0), cold(&of("m", 30.0))];
    let (exit, _, text) = compared(&[old, cold(&of("m", 15.0))], &both, &["--json"]);
    assert_eq!(exit.unwrap(), Exit::Right);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let told = |at: usize| {
        let pair = &value["pairs"][at];
        (pair["l2"].as_str().unwrap(), pair["old"]["us"].as_f64(), pair["new"]["us"].as_f64())
    };
    assert_eq!([told(0), told(1)], [("warm", Some(10.0), Some(20.0)), ("cold", Some(15.0), Some(30.0))]);
    assert_eq!((&value["only_old"], &value["only_new"]), (&serde_json::json!([]), &serde_json::json!([])));
    let (_, _, text) = compared(&[of("m", 10.0), new.clone()], &both, &["--all"]);
    assert!(text.contains("| spmm | m | 64 | auto-f32, cold L2 | 30.00 | 30.00 |"), "{text}");
    assert!(text.contains("\n| auto-f32 | 1 |") && text.contains("\n| auto-f32, cold L2 | 1 |"), "{text}");
}

#[test]
fn files_without_a_common_case_say_why() {
    let other = of("m", 1.0).replacen("\"name\":\"GPU\"", "\"name\":\"another\"", 1);
    let (exit, ..) = compared(&[of("m", 1.0)], std::slice::from_ref(&other), &[]);
    let failure = exit.unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(failure.message.contains("on GPU") && failure.message.contains("on another"), "{failure:?}");
    let (exit, _, text) = compared(&[of("m", 1.0)], &[other], &["--any-device"]);
    assert!(exit.unwrap() == Exit::Right && text.contains("1 cases in both"), "{text}");
    let (exit, ..) = compared(&[of("m", 1.0), "torn".to_owned()], &[of("m", 1.0)], &[]);
    assert!(exit.unwrap_err().message.contains("line 2"));
}

#[test]
fn shares_have_a_percent_sign() {
    assert_eq!("5%".parse(), Ok(Percent(0.05)));
    for wrong in ["5", "0.05", "-1%", "%", "x%", "NaN%"] {
        assert!(wrong.parse::<Percent>().is_err(), "{wrong}");
    }
}
