//! Tests of the device form of tiles.

use half::{bf16, f16};
use proptest::prelude::*;
use windrow_formats::{RowAssignment, RsTile};
use windrow_kernels::tile_stream::{MORE_STEPS, RECORD_TAIL};
use windrow_simt::fragment;

use super::dense::words_per_record;
use super::*;

fn pattern_of(csr: &Csr<f32>, dealing: Dealing) -> TilePattern {
    let tiles = RsTile::from_csr(csr, &RowAssignment::all_tile(csr.rows()).unwrap()).unwrap();
    let sources = tiles.entry_sources(csr).unwrap();
    let sources = sources.tile().iter().map(|&entry| narrow(index(entry))).collect();
    TilePattern::new(&mut tiles.into_parts(), sources, &empty_rows(csr).unwrap(), dealing).unwrap()
}

/// `(window row, condensed column, value bits)` of a record, by the lane maps of the MMA's second operand.
fn values_of(record: &[u32], dtype: Dtype) -> Vec<(u32, u32, u32)> {
    let lanes = 0..32u32;
    match dtype {
        Dtype::Tf32 => lanes
            .flat_map(|lane| (0..4).map(move |i| (lane, i)))
            .map(|(lane, i)| {
                let (k, row) = fragment::b_tf32(lane, i % 2);
                (row, 8 * (i / 2) + k, record[(4 * lane + i) as usize])
            })
            .collect(),
        _ => lanes
            .flat_map(|lane| (0..4).map(move |i| (lane, i)))
            .map(|(lane, i)| {
                let (k, row) = fragment::b_16bit(lane, i / 2, i % 2);
                (row, k, record[(2 * lane + i / 2) as usize] >> (16 * (i % 2)) & 0xffff)
            })
            .collect(),
    }
}

/// The records in their dense form, whatever the form they are in: fragments, rows, slot.
fn fragments_of(pattern: &TilePattern, form: Form, values: &Bits) -> Vec<Vec<u32>> {
    let records = pattern.records(form, values).unwrap();
    assert_eq!(4 * records.len() as u64, pattern.record_bytes(form, values.dtype()));
    match form {
        Form::Dense => records.chunks_exact(words_per_record(values.dtype())).map(<[u32]>::to_vec).collect(),
        Form::Packed | Form::Bitmap => {
            let starts = pattern.record_starts(values.dtype()).unwrap();
            assert_eq!(4 * *starts.last().unwrap() as usize, records.len());
            let of_step = |step: usize| {
                let record = &records[4 * starts[step] as usize..4 * starts[step + 1] as usize];
                let next: Vec<u32> = starts.iter().skip(step + 2).take(2).copied().collect();
                let link = if let [begin, end] = next[..] { [begin, end - begin] } else { [0, 0] };
                assert_eq!(record[14..16], link, "the link of step {step}");
                if form == Form::Packed {
                    unpacked(record, values.dtype())
                } else {
                    decoded(record, values.dtype())
                }
            };
            (0..pattern.steps()).map(of_step).collect()
        }
    }
}

/// The dense form of a packed record, by its definition: the value of element `i` is behind as many others as there
/// are bits below bit `i` of the mask.
fn unpacked(record: &[u32], dtype: Dtype) -> Vec<u32> {
    let (mask, rows, counts, values) = (&record[..4], &record[4..13], record[13], &record[16..]);
    let per_word = 4 / dtype.bytes() as usize;
    let at = |i: usize| values[i / per_word] >> (32 / per_word * (i % per_word) % 32);
    let value = |i: usize| if per_word == 2 { at(i) & 0xffff } else { at(i) };
    let bits = mask.iter().rev().fold(0u128, |bits, &word| bits << 32 | u128::from(word));
    let below = |i: usize| (bits & ((1u128 << i) - 1)).count_ones();
    assert_eq!(counts.to_le_bytes(), [0, 32, 64, 96].map(|i| u8::try_from(below(i)).unwrap()));
    let entries = bits.count_ones() as usize;
    assert_eq!(values.len(), (entries * dtype.bytes() as usize).div_ceil(16) * 4, "just enough chunks");
    assert!((entries..values.len() * per_word).all(|i| value(i) == 0), "zeros behind the values");
    let mut dense = vec![0; 128 / per_word];
    for i in (0..128).filter(|i| bits >> i & 1 == 1) {
        dense[i / per_word] |= value(below(i) as usize) << (32 / per_word * (i % per_word) % 32);
    }
    dense.extend_from_slice(rows);
    dense.extend([0; 3]);
    dense
}

/// The dense form of a record with bitmaps, by its definition: a value for each bit, in the order of the bits, those of
/// the first tile first.
fn decoded(record: &[u32], dtype: Dtype) -> Vec<u32> {
    let (rows, of_first, values) = (&record[4..13], record[13], &record[16..]);
    let layout = Layout::of(dtype).unwrap();
    let bits_of_value = 32 / layout.per_word;
    let bitmaps = [0, 2].map(|i| u64::from(record[i]) | u64::from(record[i + 1]) << 32);
    assert_eq!(of_first, bitmaps[0].count_ones());
    let entries = (of_first + bitmaps[1].count_ones()) as usize;
    assert_eq!(values.len(), (entries * dtype.bytes() as usize).div_ceil(16) * 4, "just enough chunks");
    let value = |i: usize| {
        let word = values[i / layout.per_word] >> (bits_of_value * (i % layout.per_word) % 32);
        if layout.per_word == 2 { word & 0xffff } else { word }
    };
    assert!((entries..values.len() * layout.per_word).all(|i| value(i) == 0), "zeros behind the values");
    let (mut dense, mut next) = (vec![0; 128 / layout.per_word], 0);
    for (tile, bit) in (0..2).flat_map(|tile| (0..64).map(move |bit| (tile, bit))) {
        if bitmaps[tile as usize] >> bit & 1 == 1 {
            let at = (layout.index)(tile, bit % 8, bit / 8) as usize;
            dense[at / layout.per_word] |= value(next) << (bits_of_value * (at % layout.per_word) % 32);
            next += 1;
        }
    }
    dense.extend_from_slice(rows);
    dense.extend([0; 3]);
    dense
}

/// What the arrays say the matrix is, read back as the MMA would; and all rows that are listed.
fn entries_of(pattern: &TilePattern, form: Form, values: &Bits) -> (Vec<(u32, u32, u32)>, Vec<u32>) {
    let StepArrays { step_cols, bitmaps } = pattern.step_arrays().unwrap();
    let rows_at = words_per_record(values.dtype()) - RECORD_TAIL - WINDOW_ROWS;
    let (mut entries, mut rows, mut pending) = (Vec::new(), Vec::new(), Vec::new());
    for (step, record) in fragments_of(pattern, form, values).iter().enumerate() {
        for (row, column, value) in values_of(record, values.dtype()) {
            let bit = bitmaps[step][(column / 8) as usize] >> (column % 8 * 8 + row) & 1;
            let col = step_cols[4 * step + (column % 4) as usize][(column / 4) as usize];
            if bit == 1 {
                assert_ne!(col, NO_COLUMN, "an entry of a pad");
                pending.push((row as usize, col, value));
            } else {
                assert_eq!(value, 0, "a value where the bitmap has no entry");
            }
        }
        let ends = &record[rows_at..][..WINDOW_ROWS];
        if ends[0] == MORE_STEPS {
            assert!(ends.iter().all(|&row| row == MORE_STEPS));
        } else {
            entries.extend(pending.drain(..).map(|(at, col, value)| (ends[at], col, value)));
            rows.extend(ends.iter().copied().filter(|&row| row != NO_ROW));
        }
    }
    assert!(pending.is_empty(), "the last piece ends");
    entries.sort_unstable();
    (entries, rows)
}

#[test]
fn every_place_of_a_fragment_is_used_once() {
    for dtype in [Dtype::F16, Dtype::Bf16, Dtype::Tf32] {
        let layout = Layout::of(dtype).unwrap();
        let mut seen = [false; 128];
        for (tile, row, k) in (0..2).flat_map(|t| (0..8).flat_map(move |r| (0..8).map(move |k| (t, r, k)))) {
            assert!(!std::mem::replace(&mut seen[(layout.index)(tile, row, k) as usize], true));
        }
        assert_eq!(layout.lane_words * layout.per_word * 32, 128);
        // What finding values in a packed record by hand relies on.
        assert!((0..16).all(|i| (layout.index)(i / 8, 5, i % 8) / 16 == 5));
    }
    assert!(Layout::of(Dtype::F32).is_none());
}

proptest! {
    #[test]
    fn steps_hold_exactly_the_entries(
        rows in 1usize..40,
        cols in 1usize..60,
        seed in any::<u64>(),
        density in 1u64..100,
        workers in 0..20u32,
    ) {
        // Values name their entry, 1.. so that none is the zero of an absent one.
        let mut state = seed;
        let mut dense = vec![0.0f32; rows * cols];
        for x in &mut dense {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (state >> 33) % 100 < density { *x = 1.0; }
        }
        let csr = Csr::from_dense(rows, cols, &dense).unwrap();
        let halves: Vec<u16> = (1..=u16::try_from(csr.nnz()).unwrap()).collect();
        let words: Vec<u32> = halves.iter().map(|&x| u32::from(x) << 13).collect();
        let dealing = if workers == 0 { Dealing::WindowEach } else { Dealing::Evenly(workers) };
        let pattern = pattern_of(&csr, dealing);
        for values in [Bits::F16(halves.clone()), Bits::Bf16(halves), Bits::Tf32(words)] {
            let expected: Vec<(u32, u32, u32)> = (0..csr.rows())
                .flat_map(|r| csr.row_range(r).map(move |e| (r, e)))
                .map(|(r, e)| (narrow(r), csr.col_indices()[e], values.word(e)))
                .collect();
            for form in [Form::Dense, Form::Packed, Form::Bitmap] {
                let (entries, mut listed) = entries_of(&pattern, form, &values);
                prop_assert_eq!(&entries, &expected);
                listed.sort_unstable();
                listed.dedup(); // a cut window lists its rows with each piece
                prop_assert_eq!(listed, (0..narrow(rows)).collect::<Vec<u32>>(), "every row");
            }
        }
        let gathered = pattern.step_arrays().unwrap().step_cols.concat();
        let gathered = gathered.iter().filter(|&&col| col != NO_COLUMN).count() as u64;
        prop_assert_eq!(pattern.column_vectors(), gathered);
    }
}

#[test]
fn values_keep_their_bits() {
    let one = |form, values: &Bits| {
        pattern_of(&Csr::identity(1).unwrap(), Dealing::Evenly(1)).records(form, values).unwrap()
    };
    for (values, bits) in [
        (Bits::F16(vec![f16::from_f32(1.5).to_bits()]), 0x3e00),
        (Bits::Bf16(vec![bf16::from_f32(1.5).to_bits()]), 0x3fc0),
        (Bits::Tf32(vec![1.5f32.to_bits()]), 0x3fc0_0000),
    ] {
        assert_eq!(one(Form::Dense, &values)[0], bits);
        let packed = one(Form::Packed, &values);
        assert_eq!((packed[0], packed[16], packed.len()), (1, bits, 20));
        let bitmap = one(Form::Bitmap, &values);
        assert_eq!((bitmap[0], bitmap[13], bitmap[16], bitmap.len()), (1, 1, bits, 20));
    }
}

#[test]
fn a_full_step_is_the_longest_record() {
    let csr = Csr::from_dense(8, 16, &[1.0; 128]).unwrap();
    let pattern = pattern_of(&csr, Dealing::Evenly(1));
    assert_eq!(steps_of(&[0, 2], 0), 1);
    for (values, chunks) in [(Bits::F16(vec![1; 128]), 20), (Bits::Tf32(vec![1 << 13; 128]), 36)] {
        assert_eq!(pattern.record_starts(values.dtype()).unwrap(), [0, chunks]);
        let packed = pattern.records(Form::Packed, &values).unwrap();
        assert_eq!((&packed[..4], packed[13]), (&[u32::MAX; 4][..], 0x6040_2000));
        let bitmaps = pattern.records(Form::Bitmap, &values).unwrap();
        assert_eq!((&bitmaps[..4], bitmaps[13]), (&[u32::MAX; 4][..], 64));
    }
}

#[test]
fn empty_rows_make_windows() {
    let csr = Csr::try_from_parts(4, 2, vec![0, 0, 1, 1, 1], vec![1], vec![1.0f32]).unwrap();
    assert_eq!(empty_rows(&csr).unwrap(), [0, 2, 3]);
    let pattern = pattern_of(&Csr::zeros(20, 2).unwrap(), Dealing::Evenly(2));
    assert_eq!((pattern.stream().windows(), pattern.steps(), pattern.entries()), (3, 3, 0));
    assert_eq!((steps_of(&[0], 20), steps_of(&[0, 1, 1, 6], 0)), (3, 1 + 1 + 3));
    assert_eq!(pattern.record_starts(Dtype::F16).unwrap(), [0, 4, 8, 12], "heads without values");
    let pattern = pattern_of(&Csr::zeros(0, 2).unwrap(), Dealing::Evenly(2));
    assert_eq!((pattern.stream().windows(), pattern.steps()), (0, 0));
}
