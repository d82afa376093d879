//! The kernel against its definition, on the emulator.

use windrow_simt::emulator::{Launch, Memory, Schedule};

use super::*;
use crate::NO_ROW;
use bytemuck::Zeroable;

use crate::Factor;
use crate::nm::{Activate, NmCombine, NmCombineParams, OutputType};

/// Small integers, so that every sum is exact, determined by a counter.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(bound)).unwrap()
    }

    fn integer(&mut self) -> f32 {
        f32::from(i16::try_from(self.below(9)).unwrap() - 4)
    }
}

/// A product as the kernel takes it. Rows of the stages and picks are random: the kernel knows no pattern.
struct Case {
    m: u32,
    n: u32,
    /// Rows of the k-major `a`.
    k: u32,
    slots: u32,
    depth: u32,
    stages: u32,
    parts_log2: u32,
    beta: f32,
}

/// Runs `case` on one instance under every schedule, and compares with the definition.
#[track_caller]
fn check<P: Picks, const TM: usize, const TN: usize, const WARPS: u32, B: Buffers>(case: &Case) {
    type Params = NmCudaCoresParams;
    let tile = NmCudaCores::<P, TM, TN, WARPS, B>::TILE;
    let NmTile { rows: bm, columns: bn, strip: strip_columns } = tile;
    let strips = tile.strips();
    let bytes = tile.shared_bytes(case.slots, case.depth);
    assert!(bytes <= NmCudaCores::<P, TM, TN, WARPS, B>::SHARED_BYTES, "{bytes} bytes of shared memory");
    let mut numbers = Numbers(u64::from(case.m * 31 + case.n * 7 + case.k));
    let (blocks, lda) = (case.n.div_ceil(bn), case.m.next_multiple_of(4));
    // What no product needs is not a number: the last row of A, what is behind m, and C unless it is read.
    let mut a = vec![f32::NAN; (case.k * lda) as usize];
    for row in 0..case.k - 1 {
        for column in 0..case.m {
            a[(row * lda + column) as usize] = numbers.integer();
        }
    }
    let c_old = if case.beta == 0.0 { f32::NAN } else { 3.0 };
    let mut want = vec![0.0f32; (case.m * case.n) as usize];
    let mut records = Vec::new();
    for block in 0..blocks {
        for _ in 0..case.stages {
            let rows: Vec<u32> = (0..case.slots)
                .map(|slot| if slot % 5 == 3 { NO_ROW } else { numbers.below(case.k - 1) })
                .collect();
            records.extend(&rows);
            let mut picked = Vec::new(); // (strips, depth) slots
            for _ in 0..strips * case.depth {
                let slot = numbers.below(case.slots + 1);
                let empty = slot < case.slots && rows[slot as usize] == NO_ROW;
                picked.push(if empty { case.slots } else { slot });
            }
            for place in 0..case.depth {
                for column in 0..bn {
                    let at = block * bn + column;
                    let weight = if at < case.n { numbers.integer() } else { 0.0 };
                    records.push(weight.to_bits());
                    let slot = picked[(column / strip_columns * case.depth + place) as usize];
                    if at < case.n && slot < case.slots {
                        let row = rows[slot as usize];
                        for i in 0..case.m {
                            want[(i * case.n + at) as usize] += a[(row * lda + i) as usize] * weight;
                        }
                    }
                }
            }
            records.extend(picked.iter().map(|slot| slot * bm * 4));
        }
    }
    records.extend((0..case.slots).map(|_| NO_ROW));
    for want in &mut want {
        *want = 2.0 * *want + if case.beta == 0.0 { 0.0 } else { case.beta * c_old };
    }
    let parts = 1 << case.parts_log2;
    let ldc = case.n.next_multiple_of(4);
    for schedule in Schedule::STANDARD {
        let memory = Memory::new();
        let c = memory.alloc_from(&vec![c_old; (case.m * ldc) as usize]);
        let flags = Output::flags(OutputType::Sums, Activate::Identity, true);
        let (m, n) = (case.m, case.n);
        let [alpha, beta] = [2.0, case.beta].map(Factor::new::<f32>);
        let output = Output { c: c.cast(), bias: GlobalPtr::NULL, alpha, beta, m, n, ldc, flags };
        let partial = memory.alloc_uninit::<f32>((parts * m * ldc) as usize);
        let of_parts = Output {
            c: partial.cast(),
            n: ldc,
            alpha: Factor::new(1.0f32),
            beta: Factor::zeroed(),
            ..output
        };
        let params = Params {
            output: if parts == 1 { output } else { of_parts },
            part_elements: u64::from(m * ldc),
            a: memory.alloc_from(&a),
            records: memory.alloc_from(&records),
            row_vectors: lda / 4,
            slots: case.slots,
            depth: case.depth,
            stages: case.stages,
            stages_per_part: case.stages.div_ceil(parts),
            parts_log2: case.parts_log2,
        };
        let launch =
            |grid, block_threads, shared_bytes| Launch { grid, block_threads, shared_bytes, schedule };
        let grid = [m.div_ceil(bm) << case.parts_log2, blocks];
        let shared = NmCudaCores::<P, TM, TN, WARPS, B>::SHARED_BYTES;
        // SAFETY: the parameters keep their obligations.
        let outcome = memory.launch(&launch(grid, WARPS * WARP, shared), |s| unsafe {
            NmCudaCores::<P, TM, TN, WARPS, B>::run(s, &params);
        });
        outcome.unwrap_or_else(|violation| panic!("{schedule:?}: {violation}"));
        if parts > 1 {
            let params = NmCombineParams {
                output,
                partial,
                part_elements: u64::from(m * ldc),
                ld_partial: ldc,
                parts,
            };
            let grid = [m.div_ceil(NmCombine::ROWS), n.div_ceil(NmCombine::COLUMNS)];
            let launch = launch(grid, NmCombine::BLOCK_THREADS, 0);
            // SAFETY: likewise.
            let outcome = memory.launch(&launch, |s| unsafe { NmCombine::run(s, &params) });
            outcome.unwrap_or_else(|violation| panic!("combine, {schedule:?}: {violation}"));
        }
        let got = memory.read(c, (m * ldc) as usize).unwrap();
        for (at, &want) in (0u32..).zip(&want) {
            let (row, column) = (at / n, at % n);
            let got = got[(row * ldc + column) as usize];
            assert!(got == want, "C[{row}, {column}] = {got} instead of {want}, {schedule:?}");
        }
        for row in 0..m {
            let gap = &got[(row * ldc + n) as usize..((row + 1) * ldc) as usize];
            assert!(gap.iter().all(|x| x.to_bits() == c_old.to_bits()), "written between rows");
        }
    }
}

/// Edges of the tile, of stages and of parts.
#[track_caller]
fn check_edges<P: Picks, const TM: usize, const TN: usize, const WARPS: u32, B: Buffers>() {
    let tile = NmCudaCores::<P, TM, TN, WARPS, B>::TILE;
    let (NmTile { rows: bm, columns: bn, .. }, unit) = (tile, tile.depth_multiple());
    let case = Case { m: bm, n: bn, k: 40, slots: 16, depth: 2 * unit, stages: 3, parts_log2: 0, beta: 0.0 };
    check::<P, TM, TN, WARPS, B>(&case);
    check::<P, TM, TN, WARPS, B>(&Case { m: 1, n: 1, stages: 1, depth: unit, ..case });
    check::<P, TM, TN, WARPS, B>(&Case { m: bm + 5, n: bn + 7, stages: 2, beta: -1.0, ..case });
    check::<P, TM, TN, WARPS, B>(&Case { m: bm - 3, n: 5, slots: 8, depth: 3 * unit, stages: 4, ..case });
    check::<P, TM, TN, WARPS, B>(&Case { stages: 0, beta: 2.0, ..case });
    // The last part has no stage.
    check::<P, TM, TN, WARPS, B>(&Case { m: 30, n: 35, stages: 6, parts_log2: 2, beta: 0.5, ..case });
}

#[test]
fn picks_by_warp() {
    check_edges::<ByWarp, 16, 8, 4, Double>();
    check_edges::<ByWarp, 8, 8, 4, Double>();
    check_edges::<ByWarp, 8, 8, 2, Double>();
    check_edges::<ByWarp, 4, 8, 2, Double>();
    check_edges::<ByWarp, 4, 4, 2, Double>();
}

#[test]
fn in_bulk() {
    check_edges::<ByWarp, 16, 8, 4, Bulk>();
    check_edges::<ByWarp, 8, 8, 4, Bulk>();
    check_edges::<ByWarp, 16, 8, 2, Bulk>();
    check_edges::<ByWarp, 8, 8, 2, Bulk>();
}

#[test]
fn picks_by_lane() {
    check_edges::<ByLane, 16, 8, 4, Double>();
    check_edges::<ByLane, 4, 8, 2, Double>();
    check_edges::<ByLane, 16, 4, 4, Double>();
    check_edges::<ByLane, 4, 4, 2, Double>();
}

#[test]
fn picks_by_column() {
    check_edges::<ByColumn, 4, 4, 2, Double>();
}

#[test]
fn one_stage_at_a_time() {
    check_edges::<ByWarp, 16, 8, 4, Single>();
    check_edges::<ByWarp, 8, 8, 4, Single>();
}
