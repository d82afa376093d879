//! Which slot each row goes to, and in which order strips pick them, so that lanes read different banks.

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::try_filled;

use super::{Blocks, NO_ROW, short};

/// Marks a place without a kept row.
const NO_KEPT: u16 = u16::MAX;
/// Times that all rows of a stage are tried elsewhere; most stages are done after two.
const SWEEPS: usize = 4;

/// [`Blocks`] whose rows have slots, and whose picks an order, that suit the banks of shared memory.
///
/// Lanes of a warp read the slots of `phase` successive picks together. They lie in different banks if the slots differ
/// modulo `phase`: their *colours* do. Both which row has which colour and which kept rows follow each other in a stage
/// are free, so rows are coloured such that every strip picks each colour equally often, as far as that goes, and picks
/// are dealt out to phases colour by colour.
///
/// Invariants, for every strip that begins before the last column, with `v` the vector of its columns:
///
/// - every kept row of a stage is [`kept`](Self::kept) in exactly one place of the strip;
/// - there, `rows(block, stage)[picks(block, stage, strip)[place]] = weights.source_row(u, v)`;
/// - other places pick the zero slot, number `slots`.
///
/// This is beyond NM-SpMM, whose threads read one row of the slab at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Banked {
    stages: usize,
    strips: usize,
    depth: usize,
    slots: usize,
    phase: usize,
    kept_per_stage: usize,
    /// The row in each slot: (blocks, stages, slots).
    rows: Vec<u32>,
    /// (blocks, stages, strips, depth)
    picks: Vec<u16>,
    /// (blocks, stages, strips, depth): kept row, counted from the stage's first
    kept: Vec<u16>,
}

impl Banked {
    /// Colours the rows of every stage. The same blocks give the same result, whatever the number of threads.
    ///
    /// # Cost
    /// Per stage up to four times rows · `phase` · (slots / `phase`) · strips that share a row; all threads.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Panics
    /// Unless `blocks` are packed, `slots` are at least theirs, and `slots` and the depth are multiples of `phase`;
    /// if there are 2¹⁶ slots, picks of a strip or strips, or more: `blocks` and `slots` are a kernel's choice.
    pub fn new(blocks: &Blocks, slots: usize, phase: usize) -> Result<Self, OutOfMemory> {
        let (depth, strips) = (blocks.depth(), blocks.shape().strips());
        assert!(blocks.shape().packed, "all rows of a group have their own slots");
        assert!(slots >= blocks.slots(), "{slots} slots for {} rows", blocks.slots());
        assert!(slots.is_multiple_of(phase) && depth.is_multiple_of(phase), "phases of {phase}");
        // The number of slots is that of the zero slot, and kept rows of a stage stay below `NO_KEPT`.
        for (count, what) in [(slots, "slots"), (depth, "picks of a strip"), (strips, "strips")] {
            assert!(count < 1 << 16, "{count} {what} are more than 16 bits can number");
        }
        let of_all = blocks.blocks() * blocks.stages();
        let mut this = Self {
            stages: blocks.stages(),
            strips,
            depth,
            slots,
            phase,
            kept_per_stage: blocks.shape().kept_per_stage,
            rows: try_filled(of_all * slots, NO_ROW, "rows in slots")?,
            picks: try_filled(of_all * strips * depth, short(slots), "picks of strips")?,
            kept: try_filled(of_all * strips * depth, NO_KEPT, "kept rows of strips")?,
        };
        if of_all == 0 || slots == 0 {
            return Ok(this);
        }
        let outputs = this
            .rows
            .par_chunks_mut(slots)
            .zip(this.picks.par_chunks_mut(strips * depth))
            .zip(this.kept.par_chunks_mut(strips * depth));
        outputs.enumerate().for_each(|(at, ((rows, picks), kept))| {
            let (block, stage) = (at / blocks.stages(), at % blocks.stages());
            let slot_of = Colouring::of(blocks, block, stage, slots, phase).slots();
            for (&row, &slot) in blocks.rows(block, stage).iter().zip(&slot_of) {
                if row != NO_ROW {
                    rows[usize::from(slot)] = row;
                }
            }
            for (strip, (picks, kept)) in picks.chunks_mut(depth).zip(kept.chunks_mut(depth)).enumerate() {
                let taken = taken(blocks, block, stage, strip);
                for (place, &(offset, number)) in deal(&taken, &slot_of, phase, depth) {
                    (picks[place], kept[place]) = (slot_of[usize::from(number)], offset);
                }
            }
        });
        Ok(this)
    }

    /// Slots of a stage; also the number of the zero slot.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// All lists of rows, (blocks, stages, slots); [`NO_ROW`] for none.
    #[must_use]
    pub fn row_lists(&self) -> &[u32] {
        &self.rows
    }

    /// The slot that each place of a strip picks in a stage.
    ///
    /// # Panics
    /// If there is no such block, stage or strip.
    #[must_use]
    pub fn picks(&self, block: usize, stage: usize, strip: usize) -> &[u16] {
        &self.picks[self.at(block, stage, strip)..][..self.depth]
    }

    /// The kept row in a place of a strip; `None` where there is none.
    ///
    /// # Panics
    /// If there is no such block, stage, strip or place.
    #[must_use]
    pub fn kept(&self, block: usize, stage: usize, strip: usize, place: usize) -> Option<usize> {
        let offset = self.kept[self.at(block, stage, strip)..][..self.depth][place];
        (offset != NO_KEPT).then(|| stage * self.kept_per_stage + usize::from(offset))
    }

    /// How often shared memory is read for a phase, on average: 1 is best, `phase` worst.
    #[must_use]
    pub fn passes(&self) -> f64 {
        let phases = self.picks.len() / self.phase;
        let of_phase = |picks: &[u16]| {
            let mut distinct = picks.to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            let mut count = vec![0u32; self.phase];
            distinct.iter().for_each(|&slot| count[usize::from(slot) % self.phase] += 1);
            count.into_iter().max().unwrap_or(1)
        };
        let total: u64 = self.picks.par_chunks(self.phase).map(|picks| u64::from(of_phase(picks))).sum();
        #[expect(clippy::cast_precision_loss, reason = "a mean for a report")]
        let mean = total as f64 / phases.max(1) as f64;
        mean
    }

    fn at(&self, block: usize, stage: usize, strip: usize) -> usize {
        assert!(stage < self.stages && strip < self.strips, "no stage {stage}, strip {strip}");
        ((block * self.stages + stage) * self.strips + strip) * self.depth
    }
}

/// What a strip takes in a stage: kept row, counted from the stage's first, and the number of its row in the list.
fn taken(blocks: &Blocks, block: usize, stage: usize, strip: usize) -> Vec<(u16, u16)> {
    let zero_slot = blocks.slots();
    let picks = blocks.picks(block, stage, strip).iter().enumerate();
    let taken = picks.filter(|(_, number)| usize::from(**number) != zero_slot);
    taken.map(|(place, &number)| (short(place), number)).collect()
}

/// Deals what a strip takes out to phases: the commonest colours first, each to the phase that has it least.
fn deal<'a>(
    taken: &'a [(u16, u16)],
    slot_of: &[u16],
    phase: usize,
    depth: usize,
) -> impl Iterator<Item = (usize, &'a (u16, u16))> {
    let colour = |&(_, number): &(u16, u16)| usize::from(slot_of[usize::from(number)]) % phase;
    let mut of_colour = vec![0usize; phase];
    taken.iter().for_each(|entry| of_colour[colour(entry)] += 1);
    let mut order: Vec<&(u16, u16)> = taken.iter().collect();
    order.sort_by_key(|entry| (std::cmp::Reverse(of_colour[colour(entry)]), colour(entry)));
    let phases = depth / phase;
    let mut filled = vec![0usize; phases];
    let mut has = vec![0usize; phases * phase];
    let mut places = Vec::with_capacity(order.len());
    for entry in order {
        let colour = colour(entry);
        let free = (0..phases).filter(|&at| filled[at] < phase);
        // There are at most `depth` entries, so some phase is free.
        let Some(at) = free.min_by_key(|&at| (has[at * phase + colour], filled[at])) else { break };
        places.push((at * phase + filled[at], entry));
        filled[at] += 1;
        has[at * phase + colour] += 1;
    }
    places.into_iter()
}

/// Colours of the rows of a stage.
struct Colouring {
    phase: usize,
    capacity: usize,
    /// Which strips pick each row.
    strips_of: Vec<Vec<u16>>,
    colour: Vec<usize>,
    /// Rows of each colour.
    of_colour: Vec<Vec<usize>>,
    /// How many rows of each colour a strip picks, (strips, phase).
    picked: Vec<i32>,
}

impl Colouring {
    fn of(blocks: &Blocks, block: usize, stage: usize, slots: usize, phase: usize) -> Self {
        let strips = blocks.shape().strips();
        let mut strips_of = vec![Vec::new(); blocks.slots()];
        for strip in 0..strips {
            for (_, number) in taken(blocks, block, stage, strip) {
                strips_of[usize::from(number)].push(short(strip));
            }
        }
        let mut this = Self {
            phase,
            capacity: slots / phase,
            colour: vec![0; strips_of.len()],
            strips_of,
            of_colour: vec![Vec::new(); phase],
            picked: vec![0; strips * phase],
        };
        this.choose();
        for _ in 0..SWEEPS {
            if !this.improve() {
                break;
            }
        }
        this
    }

    /// The slot of each row.
    fn slots(&self) -> Vec<u16> {
        let mut slots = vec![0; self.colour.len()];
        for (colour, rows) in self.of_colour.iter().enumerate() {
            for (i, &row) in rows.iter().enumerate() {
                slots[row] = short(colour + i * self.phase);
            }
        }
        slots
    }

    /// Rows that many strips share first, each the colour that its strips pick least.
    fn choose(&mut self) {
        let mut order: Vec<usize> = (0..self.colour.len()).collect();
        order.sort_by_key(|&row| std::cmp::Reverse(self.strips_of[row].len()));
        for row in order {
            let free = (0..self.phase).filter(|&colour| self.of_colour[colour].len() < self.capacity);
            let best = free.min_by_key(|&colour| (self.picks(row, colour), self.of_colour[colour].len()));
            let Some(colour) = best else { return }; // as many slots as rows: some colour is free
            self.colour[row] = colour;
            self.of_colour[colour].push(row);
            self.count(row, colour, 1);
        }
    }

    /// How often the strips of a row pick a colour, all together.
    fn picks(&self, row: usize, colour: usize) -> i32 {
        self.strips_of[row].iter().map(|&strip| self.picked[usize::from(strip) * self.phase + colour]).sum()
    }

    fn count(&mut self, row: usize, colour: usize, change: i32) {
        for &strip in &self.strips_of[row] {
            self.picked[usize::from(strip) * self.phase + colour] += change;
        }
    }

    /// Half of what the sum of squares of `picked` grows by if `row` takes another colour.
    fn cost(&self, row: usize, to: usize) -> i32 {
        let strips = i32::try_from(self.strips_of[row].len()).unwrap_or(i32::MAX);
        self.picks(row, to) - self.picks(row, self.colour[row]) + strips
    }

    fn move_to(&mut self, row: usize, to: usize) {
        let from = self.colour[row];
        self.count(row, from, -1);
        self.count(row, to, 1);
        self.colour[row] = to;
    }

    /// Tries every row in every other colour, by itself where there is room, or in exchange; whether that helped.
    fn improve(&mut self) -> bool {
        let mut changed = false;
        for row in 0..self.colour.len() {
            for to in 0..self.phase {
                let from = self.colour[row];
                if to == from || self.strips_of[row].is_empty() {
                    continue;
                }
                let cost = self.cost(row, to);
                if self.of_colour[to].len() < self.capacity {
                    if cost < 0 {
                        self.move_to(row, to);
                        self.of_colour[from].retain(|&other| other != row);
                        self.of_colour[to].push(row);
                        changed = true;
                    }
                    continue;
                }
                self.move_to(row, to);
                let partners = self.of_colour[to].iter().enumerate();
                let best = partners.map(|(at, &other)| (self.cost(other, from), at)).min();
                match best {
                    Some((back, at)) if cost + back < 0 => {
                        let other = self.of_colour[to][at];
                        self.move_to(other, from);
                        self.of_colour[to][at] = row;
                        if let Some(place) = self.of_colour[from].iter().position(|&r| r == row) {
                            self.of_colour[from][place] = other;
                        }
                        changed = true;
                    }
                    _ => self.move_to(row, from),
                }
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests;
