//! Records read back as the kernel reads them, and pieces.

use proptest::prelude::*;
use windrow_formats::Csr;
use windrow_kernels::NO_SLOT;

use super::pieces::{Cut, Pieces};
use super::*;
use crate::options::Precision;

/// A matrix of so many rows, with an entry where `has` holds, whose value tells its row and column.
fn matrix(rows: usize, cols: usize, has: impl Fn(usize, usize) -> bool) -> Csr<f32> {
    let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..rows {
        for col in (0..cols).filter(|&col| has(row, col)) {
            columns.push(narrow(col));
            values.push((1 + row * cols + col) as f32);
        }
        offsets.push(wide(columns.len()));
    }
    Csr::try_from_parts(rows, cols, offsets, columns, values).unwrap()
}

/// What the records say, read as the kernel reads them: `[row, column, bits]` of each entry, in CSR order.
fn read_back(panels: &Panels, records: &[u32]) -> Vec<[u32; 3]> {
    let mut found = Vec::new();
    for panel in 0..panels.len() {
        for chunk in panels.panel_chunks[panel]..panels.panel_chunks[panel + 1] {
            let names = &panels.names[chunk as usize * NAMES..][..NAMES];
            let record =
                &records[UNIT * names[SLOTS_EACH] as usize..][..UNIT * names[SLOTS_EACH + 1] as usize];
            let bounds = |warp: usize| [0, 10, 20].map(|at| record[warp] >> at & 0x3ff);
            let pairs = bounds(WARPS - 1)[2];
            assert_eq!(record.len(), record_words(pairs) as usize);
            let mut end = 0;
            for warp in 0..WARPS {
                let [first, middle, behind] = bounds(warp);
                assert!(first == end && first <= middle && middle <= behind, "warps have the pairs in order");
                end = behind;
                for pair in first..behind {
                    let bundle = WARP_BUNDLES as usize * warp + usize::from(pair >= middle);
                    for vector in 2 * pair..2 * pair + 2 {
                        let word = record[(HEAD_WORDS + vector) as usize];
                        let column = names[(word >> 10) as usize];
                        for row in (0..BUNDLE).filter(|row| word >> row & 1 == 1) {
                            let value = record[values_at(pairs) as usize + BUNDLE * vector as usize + row];
                            found.push([panels.rows[panel * BUNDLES + bundle][row], column, value]);
                        }
                    }
                }
            }
        }
    }
    found.sort_unstable();
    found
}

fn entries(a: &Csr<f32>) -> Vec<[u32; 3]> {
    let of_row = |row: usize| {
        let range = index(a.row_offsets()[row])..index(a.row_offsets()[row + 1]);
        range.map(move |at| [narrow(row), a.col_indices()[at], a.values()[at].to_bits()])
    };
    (0..a.rows()).flat_map(of_row).collect()
}

proptest! {
    #[test]
    fn records_hold_every_entry_once(
        rows in 0..200_usize,
        cols in 1..120_usize,
        density in 0..100_usize,
        seed in 0..1000_usize,
    ) {
        let a = matrix(rows, cols, |row, col| (row * 7919 + col * 104_729 + seed * 31) % 100 < density);
        let panels = Panels::of(a.pattern()).unwrap();
        let records = panels.records_with(&Bits::of(Precision::F32, a.values()).unwrap()).unwrap();
        prop_assert_eq!(read_back(&panels, &records), entries(&a));
        let mut listed: Vec<u32> = panels.rows.iter().flatten().copied().filter(|&row| row != NO_ROW).collect();
        listed.sort_unstable();
        prop_assert_eq!(listed, (0..narrow(rows)).collect::<Vec<_>>(), "every row once, empty ones too");
        prop_assert_eq!(panels.work.iter().map(|work| work.entries as usize).sum::<usize>(), a.nnz());
    }

    #[test]
    fn pieces_cover_every_chunk_once(
        lengths in proptest::collection::vec(0..300_usize, 1..5),
        most in 1..400_u32,
        blocks in 1..20_u64,
        share: bool,
    ) {
        let a = matrix(64 * lengths.len() - 3, 300, |row, col| col < lengths[row / 64]);
        let panels = Panels::of(a.pattern()).unwrap();
        for cut in [Cut::Entries(most), Cut::Blocks(blocks)] {
            let found = Pieces::of(&panels, cut, share).unwrap();
            let mut chunks: Vec<u32> = found.pieces.iter().flat_map(|piece| piece[1]..piece[2]).collect();
            chunks.sort_unstable();
            prop_assert_eq!(chunks, (0..narrow(panels.work.len())).collect::<Vec<_>>());
            let mut sums = std::collections::BTreeMap::new();
            for &[panel, begin, end, slot] in &found.pieces {
                let all = &panels.panel_chunks[panel as usize..][..2];
                prop_assert_eq!(slot == NO_SLOT, [begin, end] == *all, "a piece of all chunks has no slot");
                prop_assert!(begin < end || all[0] == all[1]);
                for (i, &row) in panels.rows[panel as usize * BUNDLES..][..BUNDLES].iter().flatten().enumerate() {
                    if slot != NO_SLOT && row != NO_ROW {
                        sums.entry(row).or_insert_with(Vec::new).push(slot + narrow(i));
                    }
                }
            }
            prop_assert_eq!(found.split_rows.len(), sums.len());
            for [row, first, count, stride] in found.split_rows {
                let mut slots = sums[&row].clone();
                slots.dedup();
                let want: Vec<u32> = (0..count).map(|i| first + i * stride).collect();
                prop_assert_eq!(&slots, &want, "row {}", row);
                prop_assert!(u64::from(want[want.len() - 1]) < found.slots);
            }
        }
    }
}

#[test]
fn warps_have_about_as_many_vectors() {
    // Bundles with 1, 2, … 16 columns.
    let a = matrix(64, 40, |row, col| col <= row / 4);
    let panels = Panels::of(a.pattern()).unwrap();
    assert_eq!(panels.counts, PanelCounts { columns: 16, vectors: (1..=16).sum() });
    assert_eq!(panel_counts(a.pattern()), Ok(Some(panels.counts)));
    // The longest bundle lies beside the shortest: 17 vectors each, and so 9 pairs, or 8 and 1.
    assert_eq!(panels.work, [ChunkWork { entries: narrow(a.nnz()), most_pairs: 9 }]);
}
