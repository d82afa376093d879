//! Products with N:M weights end to end, on the CPU.

use super::arguments::Arguments;
use super::summary::summarise;
use super::*;
use crate::program::{Command, Exit};
use crate::suites::Tally;
use crate::suites::testing::{parse_suite, records_of};

#[test]
fn products_become_records_and_a_table() {
    let arguments: Arguments = parse_suite(&[
        "--smoke",
        "--shapes",
        "5x40x64,7x8x9",
        "--precisions",
        "f32,f16",
        "--layouts",
        "k-major,row-major",
    ]);
    let device = Device::cpu();
    let mut suite = arguments.open(&device, &mut std::io::sink()).unwrap();
    let (records, tally) = records_of(&device, &mut suite);
    assert_eq!(tally, Tally { cases: 32, ..Tally::default() });
    assert!(records.iter().all(|record| record.facts.tflops.is_some_and(|rate| rate > 0.0)));
    let text = summarise(&records);
    assert!(text.contains("## f16, k-major") && text.contains("| 5x40x64 | 8:32, 32 |"), "{text}");
    assert!(Arguments::line(&records[0]).contains("TFLOP/s"), "{}", Arguments::line(&records[0]));
}

#[test]
fn states_of_the_cache_are_cases() {
    let words = ["--smoke", "--shapes", "7x8x9", "--patterns", "4:32", "--l2", "cold,warm,cold"];
    let (device, arguments) = (Device::cpu(), parse_suite::<Arguments>(&words));
    let (records, tally) = records_of(&device, &mut arguments.open(&device, &mut std::io::sink()).unwrap());
    assert_eq!(tally, Tally { cases: 2, ..Tally::default() });
    let states: Vec<_> = records.iter().map(|record| record.l2.state()).collect();
    assert_eq!(states, [L2::Cold, L2::Warm], "each once, in the order asked for");
    assert!(records[0].case.ends_with(", cold L2") && records[0].us().is_some(), "{records:?}");
}

#[test]
fn what_is_no_pattern_is_usage() {
    for words in [["--patterns", "9:8"], ["--patterns", "8"], ["--shapes", "1x2"], ["--seed=2", "m.mtx"]] {
        assert_eq!(parse_suite::<Arguments>(&words).check().unwrap_err().exit, Exit::Usage, "{words:?}");
    }
}
