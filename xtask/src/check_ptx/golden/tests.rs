//! The counting, on a sample with every form that the compiler writes.

use super::*;

const SAMPLE: &str = "\
.version 7.0
.target sm_80
.visible .entry spmm(
\t.param .align 8 .b8 spmm_param_0[48]
)
.maxntid 128, 1, 1
{
\t.local .align 16 .b8 \t__local_depot0[64];
\t.reg .b32 \t%r<9>;
\tld.param.b64 \t%rd1, [spmm_param_0+16];
\tld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
$L__BB0_1:
\t@%p1 ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
\t{ .reg .b32 tmp; mov.b64 {tmp, %r6}, %rd1; }
\t{
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};
\t}
\tcp.async.cg.shared.global [%r1], [%rd1], 16; cp.async.commit_group;
\t@!%p2 bra $L__BB0_1;
\tbar.sync \t0;
\tred.relaxed.gpu.global.add.f32 [%rd1], %r1;
\tst.global.v4.f32 [%rd1], {%r1, %r2, %r3, %r4};
\tadd.s32 %r1, %r2, %r3;
\tret;
}
";

fn sample() -> Ptx {
    Ptx::parse(SAMPLE).expect("the sample is well formed")
}

fn spec(name: &str, params_bytes: usize) -> EntrySpec {
    EntrySpec { params_bytes, ..EntrySpec::sample(name) }
}

#[test]
fn every_watched_instruction_is_counted() {
    let counts = count(&sample());
    let spmm = &counts["spmm"];
    assert_eq!((spmm.params_bytes, spmm.local_bytes), (48, 64));
    let opcodes: Vec<(&str, usize)> =
        spmm.opcodes.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!(
        opcodes,
        [
            ("bar.sync", 1),
            ("cp.async.cg.shared.global", 1),
            ("cp.async.commit_group", 1),
            ("ld.global.nc.v4.b32", 2),
            ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 1),
            ("red.relaxed.gpu.global.add.f32", 1),
            ("st.global.v4.f32", 1),
        ]
    );
}

#[test]
fn parameters_are_laid_out_in_order() {
    let signature: Vec<String> = [
        ".visible .entry k(",
        "\t.param .b32 k_param_0,",
        "\t.param .b64 k_param_1,",
        "\t.param .align 4 .b8 k_param_2[5]",
    ]
    .map(str::to_owned)
    .to_vec();
    assert_eq!(params_bytes(&signature), 21);
}

#[test]
fn a_changed_count_is_reported() {
    let mut golden = Golden::default();
    golden.modules.insert("sm80".to_owned(), count(&sample()));
    assert!(golden.differences(&golden.clone()).is_empty());

    let mut now = golden.clone();
    let spmm = now.modules.get_mut("sm80").and_then(|module| module.get_mut("spmm"));
    spmm.expect("present").opcodes.insert("bar.sync".to_owned(), 2);
    assert_eq!(now.differences(&golden), ["golden: spmm: bar.sync: 1 recorded, 2 now"]);

    let gone = Golden::default();
    assert_eq!(gone.differences(&golden), ["golden: spmm is recorded but gone from sm80"]);
    assert_eq!(golden.differences(&gone), ["golden: spmm is not recorded in sm80"]);
}

#[test]
fn the_record_is_read_back() {
    let mut golden = Golden::default();
    golden.modules.insert("sm80".to_owned(), count(&sample()));
    let text = golden.to_json().expect("plain data");
    assert_eq!(serde_json::from_str::<Golden>(&text).expect("our own text"), golden);
    assert_eq!(golden.entries().collect::<Vec<_>>(), ["spmm"]);
}

#[test]
fn the_table_and_the_text_must_agree() {
    assert!(structure_problems(&sample(), &[spec("spmm", 48)]).is_empty());
    let size = structure_problems(&sample(), &[spec("spmm", 40)]);
    assert_eq!(size, ["spmm: 48 bytes of parameters in the PTX, 40 in the entry table"]);
    let names = structure_problems(&sample(), &[spec("sddmm", 48)]);
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_function_of_its_own_is_a_problem() {
    let text = format!("{SAMPLE}.func helper(\n)\n{{\n\tret;\n}}\n");
    let problems = structure_problems(&Ptx::parse(&text).expect("well formed"), &[spec("spmm", 48)]);
    assert_eq!(problems, ["helper was not inlined: mark it `#[inline(always)]`"]);
}

#[test]
fn a_call_that_leads_nowhere_is_a_problem() {
    let text = SAMPLE.replace("\tret;\n", "\tcall.uni missing, ();\n\tret;\n");
    let text = text.replace(".target sm_80\n", ".target sm_80\n.extern .func missing\n(\n)\n;\n");
    let problems = structure_problems(&Ptx::parse(&text).expect("well formed"), &[spec("spmm", 48)]);
    assert_eq!(problems, ["missing is called by spmm and not in the PTX"]);
}
