//! Records read back as the kernels read them, and pieces.

use proptest::prelude::*;
use windrow_formats::Csr;
use windrow_kernels::NO_SLOT;
use windrow_kernels::row_panels::{HEAD_WORDS, NAME_WORDS, SLOTS, record_words, values_at};
use windrow_kernels::sddmm::panels as sampled;

use super::pieces::{Cut, Pieces, Places, pieces_without_sums};
use super::positions::{position_panels, records};
use super::values::ValuePanels;
use super::*;
use crate::options::Precision;
use crate::plan::Bits;

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

/// Names and record of a chunk, of so many slots.
fn chunk_of<'a>(panels: &'a Panels, records: &'a [u32], chunk: u32, slots: u32) -> (&'a [u32], &'a [u32]) {
    let words = name_words(slots) as usize;
    let names = &panels.names[chunk as usize * words..][..words];
    let [first, count] = [0, 1].map(|word| UNIT * names[slots as usize + word] as usize);
    (names, &records[first..][..count])
}

/// What the records say, read as the kernel reads them: `[row, column, bits]` of each entry, in CSR order.
fn read_back(panels: &Panels, records: &[u32]) -> Vec<[u32; 3]> {
    let mut found = Vec::new();
    for panel in 0..panels.len() {
        for chunk in panels.panel_chunks[panel]..panels.panel_chunks[panel + 1] {
            let (names, record) = chunk_of(panels, records, chunk, SLOTS);
            assert_eq!(names.len(), NAME_WORDS as usize);
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

/// The same of the records of sampled products: `[row, column, position]`.
fn positions_read_back(panels: &Panels, records: &[u32]) -> Vec<[u32; 3]> {
    let mut found = Vec::new();
    for panel in 0..panels.len() {
        for chunk in panels.panel_chunks[panel]..panels.panel_chunks[panel + 1] {
            let (names, record) = chunk_of(panels, records, chunk, sampled::SLOTS);
            let mut batches = 0;
            for (warp, &word) in record[..WARPS].iter().enumerate() {
                assert_eq!(word & 0xff, batches, "warps have the batches in order");
                for (at, halves) in [word >> 8 & 0xff, word >> 16].into_iter().enumerate() {
                    let bundle = WARP_BUNDLES as usize * warp + at;
                    let mut position: [u32; BUNDLE] =
                        record[WARPS + BUNDLE * bundle..][..BUNDLE].try_into().unwrap();
                    for vector in 0..4 * halves {
                        let batch = batches + vector / sampled::BATCH_VECTORS;
                        let words = &record[(sampled::HEAD_WORDS + sampled::BATCH_WORDS * batch) as usize..];
                        let place = vector % sampled::BATCH_VECTORS;
                        let slot = words[(place / 4) as usize] >> (8 * (place % 4)) & 0xff;
                        let column = names[slot as usize];
                        for row in (0..BUNDLE).filter(|row| words[2] >> (4 * place) >> row & 1 == 1) {
                            found.push([panels.rows[panel * BUNDLES + bundle][row], column, position[row]]);
                            position[row] += 1;
                        }
                    }
                    batches += halves.div_ceil(2);
                }
            }
            assert_eq!(record.len(), sampled::record_words(batches) as usize);
        }
    }
    found.sort_unstable();
    found
}

/// `[row, column, position]` of each entry.
fn places(a: &Csr<f32>) -> Vec<[u32; 3]> {
    let mut entries = entries(a);
    entries.iter_mut().zip(0..).for_each(|(entry, position)| entry[2] = position);
    entries
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
        let made = ValuePanels::of(a.pattern()).unwrap();
        let records_of = made.records_with(&Bits::of(Precision::F32, a.values()).unwrap()).unwrap();
        let panels = &made.panels;
        prop_assert_eq!(read_back(panels, &records_of), entries(&a));
        let sampled = position_panels(a.pattern()).unwrap();
        prop_assert_eq!(positions_read_back(&sampled, &records(&sampled).unwrap()), places(&a));
        prop_assert_eq!((&sampled.rows, sampled.counts), (&panels.rows, panels.counts));
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
        let panels = ValuePanels::of(a.pattern()).unwrap().panels;
        let places = |slices| Cut::Places(Places { count: blocks, slices });
        for cut in [Cut::Entries(most), places(1), places(3)] {
            let found = Pieces::of(&panels, cut, share).unwrap();
            let mut chunks: Vec<u32> = found.pieces.iter().flat_map(|piece| piece[1]..piece[2]).collect();
            chunks.sort_unstable();
            let without_sums = pieces_without_sums(&panels, cut).unwrap();
            let mut others: Vec<u32> = without_sums.iter().flat_map(|piece| piece[1]..piece[2]).collect();
            others.sort_unstable();
            prop_assert_eq!(&others, &chunks);
            prop_assert!(without_sums.iter().all(|&[_, begin, end, slot]| begin < end && slot == NO_SLOT));
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

/// Places that take one piece after the other are done as soon as may be.
#[test]
fn pieces_fill_the_places_that_there_are() {
    // Panels of 20 chunks.
    let panels = |count: usize| {
        let a = matrix(64 * count, 40 * 32, |row, col| row % 64 == 0 && col % 2 == 0);
        ValuePanels::of(a.pattern()).unwrap().panels
    };
    let cut = |count, slices| Cut::Places(Places { count, slices });
    let pieces = |count, places| pieces_without_sums(&panels(count), cut(places, 1)).unwrap().len();
    assert_eq!(pieces(8, 8), 8, "one each");
    assert_eq!(pieces(9, 8), 36, "four each: in five rounds, where one each would take as long as eight");
    assert_eq!(pieces(2, 8), 8, "four of each");
    assert_eq!(pieces(65, 8), 65, "of so many none is cut");
    // Where sums are kept, which has its price, into fewer.
    let with_sums = |count, slices| Pieces::of(&panels(count), cut(8, slices), true).unwrap().pieces.len();
    assert_eq!([with_sums(8, 1), with_sums(9, 1), with_sums(2, 1)], [8, 27, 8]);
    assert_eq!(with_sums(4, 2), 4, "once for each slice");
}

/// Chunks that cost more are in pieces of fewer.
#[test]
fn pieces_of_a_panel_cost_about_the_same() {
    // Eight chunks, the first two of which have 64 rows of entries, the others one.
    let a = matrix(64, 8 * 32, |row, col| row == 0 || col < 64);
    let panels = ValuePanels::of(a.pattern()).unwrap().panels;
    let two = Places { count: 2, slices: 1 };
    let pieces = pieces_without_sums(&panels, Cut::Places(two)).unwrap();
    let bounds: Vec<_> = pieces.iter().map(|&[_, begin, end, _]| [begin, end]).collect();
    assert_eq!(bounds, [[0, 3], [3, 8]], "{:?}", panels.work);
}

#[test]
fn warps_have_about_as_many_vectors() {
    // Bundles with 1, 2, … 16 columns.
    let a = matrix(64, 40, |row, col| col <= row / 4);
    let panels = ValuePanels::of(a.pattern()).unwrap().panels;
    assert_eq!(panels.counts, PanelCounts { columns: 16, vectors: (1..=16).sum() });
    assert_eq!(panel_counts(a.pattern()), Ok(Some(panels.counts)));
    // The longest bundle lies beside the shortest: 17 vectors each, and so 9 pairs, or 8 and 1.
    assert_eq!(panels.work, [ChunkWork { entries: narrow(a.nnz()), most_pairs: 9 }]);
    // In halves of batches, of four vectors: four and one, as many as two pairs each.
    let sampled = position_panels(a.pattern()).unwrap();
    assert_eq!(sampled.work, [ChunkWork { entries: narrow(a.nnz()), most_pairs: 10 }]);
}
