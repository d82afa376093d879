//! Plans made on the emulator and on the CPU.

use windrow::EmulatorSchedule;

use super::*;
use crate::suites::ablation::tests::source;
use crate::suites::testing::records_of;

fn options() -> Options {
    Options {
        sources: vec![MatrixSource::File("no-such-folder/none.mtx".into()), source()],
        widths: vec![8],
        values: Values::Random,
        seed: 1,
        sampling: Sampling::SMOKE,
        progress: |_| {},
    }
}

#[test]
fn plans_made_on_the_emulator_are_those_of_the_cpu() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let (records, tally) = records_of(&device, &mut Preprocess::open(&device, options()));
    assert_eq!(tally, Tally { cases: 5, unreadable: 1, ..Tally::default() }, "{records:#?}");
    for record in &records[1..] {
        let Some(Found::Preprocess(facts)) = &record.facts.facts else { panic!("{record:?}") };
        assert_eq!((facts.differs.as_deref(), facts.place.as_str()), (None, "gpu"), "{facts:?}");
        let stage = if facts.path == "row-panels-f32" { "panels" } else { "condense" };
        assert!(facts.speed_up.is_some() && facts.gpu.stages.iter().any(|(name, _)| name == stage));
    }
    let text = summarise(&records);
    assert!(
        text.contains("## Preprocessing") && text.contains("time on the CPU over that on the GPU"),
        "{text}"
    );
    assert!(text.contains("- none at 0: "), "{text}");
}

#[test]
fn the_cpu_skips_and_counts() {
    let device = Device::cpu();
    let (records, tally) = records_of(&device, &mut Preprocess::open(&device, options()));
    assert_eq!(tally, Tally { cases: 1, unreadable: 1, skipped: 8, ..Tally::default() });
    assert!(records[0].error.is_some() && records[0].facts.facts.is_none());
}
