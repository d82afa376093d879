//! Orders of the rows of N:M weights in which every vector of a block keeps two of each four rows at most: what sparse
//! Tensor Cores multiply, whatever the pattern was.

use rayon::prelude::*;
use windrow_formats::memory::{make_room, try_filled};
use windrow_formats::{OutOfMemory, VectorNm};

use super::{NO_ROW, row_number};

/// Vectors of a block, at most: a row's *signature* has a bit for each that keeps it.
pub const MOST_VECTORS: usize = 8;
const SIGNATURES: usize = 1 << MOST_VECTORS;
/// Rows that are compared with each other, two by two, at most; and how many of more than these at a time: where so
/// many are left of pairs, few find three others.
const COMPARED: usize = 1536;
const COMPARED_OF_MANY: usize = 256;
/// Rows that are compared three by three, at most.
const COMPARED_BY_THREES: usize = 192;

/// What a vector that keeps fewer than two rows of a four takes in place of the others, multiplied by zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filler {
    /// Slots without a row alone: what is multiplied is what is kept, and zeros.
    Empty,
    /// Any slot: fewer are needed, but rows that the vector does not keep are multiplied by zero, which makes a sum of
    /// what is not finite.
    Any,
}

/// An order of the rows of `W[k × n]` for each block of its columns: *slots*, of which each four successive ones hold
/// two rows at most that a vector of the block keeps, so that an instruction for two of four multiplies them.
///
/// All rows of `W` may change places, since a sum does not depend on its order but for rounding. Two rows of which each
/// vector keeps exactly one make half a four. Where `M = 2·N` there are nearly as many rows of a signature as of its
/// complement, which the other vectors keep, and hardly more slots are needed than there are rows. *Jigsaw* (ICPP 2024)
/// reorders a sparse operand for the same instruction.
///
/// Invariants, for every vector of a block:
///
/// - every row that it keeps is in exactly one slot; rows that no vector keeps are in none;
/// - of four slots from a multiple of four on it keeps the rows of two at most;
/// - with [`Filler::Empty`], where it keeps fewer, there are as many slots without a row as it lacks.
///
/// # Examples
/// ```
/// use windrow_formats::{NmPattern, VectorNm};
/// use windrow_preprocess::nm::{Filler, Fours, NO_ROW};
///
/// // Both columns keep the first two rows of four, as no instruction for two of four wants it in any other order.
/// let weights = VectorNm::from_dense(&[1.0, 5.0, 2.0, 6.0, 0.0, 0.0, 0.0, 0.0], 4, 2, NmPattern::new(2, 4, 1)?)?;
/// let fours = Fours::new(&weights, 2, 4, Filler::Empty)?.unwrap();
/// assert_eq!(fours.rows(), [0, NO_ROW, 1, NO_ROW]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fours {
    blocks: usize,
    slots: usize,
    /// (blocks, slots): the row in each.
    rows: Vec<u32>,
}

impl Fours {
    /// Finds an order for each `block_columns` columns, with a multiple of `slot_multiple` slots; none if a block
    /// reaches into more than [`MOST_VECTORS`] vectors. The same weights give the same order, whatever the number of
    /// threads.
    ///
    /// # Cost
    /// For each block, linear in its kept rows, and quadratic in the rows that are left of pairs, if those are 1536 at
    /// most; all threads.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Panics
    /// If `block_columns` is 0, or `slot_multiple` no multiple of 4 or 0: they are a kernel's choice.
    pub fn new<T: Sync>(
        weights: &VectorNm<T>,
        block_columns: usize,
        slot_multiple: usize,
        filler: Filler,
    ) -> Result<Option<Self>, OutOfMemory> {
        assert!(slot_multiple > 0 && slot_multiple.is_multiple_of(4), "{slot_multiple} slots");
        let columns = weights.cols();
        let blocks = columns.div_ceil(block_columns);
        let vectors_of = |block: usize| {
            let (first, l) = (block * block_columns, weights.pattern().l());
            let end = (first + block_columns).min(columns);
            first / l..(end - 1) / l + 1
        };
        if (0..blocks).any(|block| vectors_of(block).len() > MOST_VECTORS) {
            return Ok(None);
        }
        let found: Vec<Vec<[u32; 4]>> = (0..blocks)
            .into_par_iter()
            .map(|block| {
                let rows = Rows::of(weights, vectors_of(block))?;
                let exact = order(&rows, Filler::Empty)?;
                if filler == Filler::Empty {
                    return Ok(exact);
                }
                let any = order(&rows, filler)?;
                Ok(if any.len() < exact.len() { any } else { exact })
            })
            .collect::<Result<_, OutOfMemory>>()?;
        let most = found.iter().map(|fours| 4 * fours.len()).max().unwrap_or(0);
        let slots = most.next_multiple_of(slot_multiple);
        let mut rows = try_filled(blocks * slots, NO_ROW, SLOTS)?;
        for (rows, fours) in rows.chunks_mut(slots.max(1)).zip(&found) {
            rows[..4 * fours.len()].copy_from_slice(fours.as_flattened());
        }
        Ok(Some(Self { blocks, slots, rows }))
    }

    /// How many blocks the columns are cut into.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Slots of each block.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// (blocks, slots): the row of `W` in each slot, or [`NO_ROW`].
    #[must_use]
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }
}

/// What memory is for.
const SLOTS: &str = "rows in slots";

/// The rows of a block that some vector keeps, by their signature.
struct Rows {
    /// All bits that a signature may have.
    mask: u8,
    /// Rows, those of a signature after each other and ascending.
    rows: Vec<u32>,
    /// Where those of each signature begin, and where the last end.
    starts: [usize; SIGNATURES + 1],
}

impl Rows {
    fn of<T: Sync>(weights: &VectorNm<T>, vectors: std::ops::Range<usize>) -> Result<Self, OutOfMemory> {
        let mut signatures = try_filled(weights.rows(), 0u8, "signatures of rows")?;
        for kept in 0..weights.kept_rows() {
            for (bit, vector) in vectors.clone().enumerate() {
                signatures[weights.source_row(kept, vector)] |= 1 << bit;
            }
        }
        let mut starts = [0; SIGNATURES + 1];
        // Rows that nobody keeps are left out.
        for &signature in signatures.iter().filter(|&&signature| signature != 0) {
            starts[usize::from(signature) + 1] += 1;
        }
        for signature in 0..SIGNATURES {
            starts[signature + 1] += starts[signature];
        }
        let mut next = starts;
        let mut rows = try_filled(starts[SIGNATURES], 0, SLOTS)?;
        for (row, &signature) in signatures.iter().enumerate().filter(|(_, signature)| **signature != 0) {
            let place = &mut next[usize::from(signature)];
            rows[*place] = row_number(row);
            *place += 1;
        }
        let mask = u8::MAX >> (MOST_VECTORS - vectors.len());
        Ok(Self { mask, rows, starts })
    }

    /// Those of a signature.
    fn with(&self, signature: u8) -> &[u32] {
        let at = usize::from(signature);
        &self.rows[self.starts[at]..self.starts[at + 1]]
    }
}

/// A row that has found no partner.
#[derive(Clone, Copy)]
struct Left {
    row: u32,
    signature: u8,
}

/// Fours of the rows of a block.
fn order(rows: &Rows, filler: Filler) -> Result<Vec<[u32; 4]>, OutOfMemory> {
    let mut fours = Fill { fours: Vec::new(), half: None };
    // Each row may need two slots, and whatever is left, three more.
    make_room(&mut fours.fours, rows.rows.len() / 2 + 2, SLOTS)?;
    let left = pair(rows, filler, &mut fours)?;
    match filler {
        Filler::Empty => {
            let left = match_pairs(rows.mask, left, &mut fours);
            let left = match_threes(rows.mask, left, &mut fours);
            // Whoever keeps one of two, or none, finds two slots without a row.
            for two in left.chunks(2) {
                let second = two.get(1).map_or(NO_ROW, |left| left.row);
                fours.fours.push([two[0].row, second, NO_ROW, NO_ROW]);
            }
        }
        Filler::Any => fit(left, &mut fours),
    }
    if let Some([first, second]) = fours.half {
        fours.fours.push([first, NO_ROW, second, NO_ROW]);
    }
    Ok(fours.fours)
}

/// Fours that are there, and one of which half is.
struct Fill {
    fours: Vec<[u32; 4]>,
    half: Option<[u32; 2]>,
}

impl Fill {
    /// Adds two rows of which no vector keeps both: any two of such pairs make a four.
    fn pair(&mut self, pair: [u32; 2]) {
        match self.half.take() {
            Some([first, second]) => self.fours.push([first, second, pair[0], pair[1]]),
            None => self.half = Some(pair),
        }
    }
}

/// Makes pairs of rows of which each vector keeps one, or, if any slot may fill, one at most; gives back the others.
///
/// A row that every vector keeps makes a pair with a slot that has none.
fn pair(rows: &Rows, filler: Filler, fours: &mut Fill) -> Result<Vec<Left>, OutOfMemory> {
    // Rows with many bits have fewest partners, and look for one with many.
    let mut signatures: Vec<u8> = (1..=rows.mask).collect();
    signatures.sort_by_key(|signature| (std::cmp::Reverse(signature.count_ones()), *signature));
    let mut used = [0; SIGNATURES];
    for &one in &signatures {
        let partners = signatures.iter().copied().filter(|&other| match filler {
            Filler::Empty => other == rows.mask ^ one,
            Filler::Any => other & one == 0,
        });
        for other in partners {
            let [first, second] = [one, other].map(|of| &rows.with(of)[used[usize::from(of)]..]);
            let count = first.len().min(second.len());
            first.iter().zip(second).for_each(|(&first, &second)| fours.pair([first, second]));
            used[usize::from(one)] += count;
            used[usize::from(other)] += count;
        }
        if one == rows.mask {
            let alone = &rows.with(one)[used[usize::from(one)]..];
            alone.iter().for_each(|&row| fours.pair([row, NO_ROW]));
            used[usize::from(one)] += alone.len();
        }
    }
    let mut left = Vec::new();
    for &signature in &signatures {
        let others = &rows.with(signature)[used[usize::from(signature)]..];
        make_room(&mut left, others.len(), SLOTS)?;
        left.extend(others.iter().map(|&row| Left { row, signature }));
    }
    Ok(left)
}

/// Makes fours of two pairs of rows: what both rows of one pair have, the other lacks, and the other way round. Gives
/// back the rows that are in none.
fn match_pairs(mask: u8, left: Vec<Left>, fours: &mut Fill) -> Vec<Left> {
    let mut unmatched = Vec::new();
    let at_once = if left.len() <= COMPARED { COMPARED } else { COMPARED_OF_MANY };
    for some in left.chunks(at_once) {
        // Pairs by what both rows have and what one of them has.
        let mut pairs = vec![Vec::<[u16; 2]>::new(); SIGNATURES * SIGNATURES];
        let key = |both: u8, either: u8| usize::from(both) * SIGNATURES + usize::from(either);
        let mut is_used = vec![false; some.len()];
        for (i, at) in (0..).zip(0..some.len()) {
            for (j, before) in (0..i).zip(0..at) {
                if is_used[before] {
                    continue;
                }
                let (a, b) = (some[at].signature, some[before].signature);
                let (both, either) = (a & b, a | b);
                let partners = &mut pairs[key(mask & !either, mask & !both)];
                let partner = loop {
                    let Some(partner) = partners.pop() else { break None };
                    let [c, d] = partner.map(usize::from);
                    if !is_used[c] && !is_used[d] {
                        if [c, d].contains(&before) {
                            // Whoever comes next may take it.
                            partners.push(partner);
                            break None;
                        }
                        break Some([c, d]);
                    }
                };
                if let Some([c, d]) = partner {
                    fours.fours.push([at, before, c, d].map(|i| some[i].row));
                    [at, before, c, d].iter().for_each(|&i| is_used[i] = true);
                    break;
                }
                pairs[key(both, either)].push([i, j]);
            }
        }
        unmatched.extend(some.iter().zip(&is_used).filter(|(_, is_used)| !**is_used).map(|(left, _)| *left));
    }
    unmatched
}

/// Makes fours of three rows of which every vector keeps one or two, and a slot without a row. Gives back the rows that
/// are in none.
fn match_threes(mask: u8, left: Vec<Left>, fours: &mut Fill) -> Vec<Left> {
    let mut unmatched = Vec::new();
    for some in left.chunks(COMPARED_BY_THREES) {
        let mut some = some.to_vec();
        while let Some(first) = some.pop() {
            let fits = |second: &Left, third: &Left| {
                let [a, b, c] = [first.signature, second.signature, third.signature];
                a & b & c == 0 && a | b | c == mask
            };
            let found = (0..some.len()).find_map(|i| Some((i, (0..i).find(|&j| fits(&some[i], &some[j]))?)));
            match found {
                Some((i, j)) => {
                    // The later first, so that the other's place stays.
                    let [second, third] = [i, j].map(|at| some.remove(at).row);
                    fours.fours.push([first.row, second, third, NO_ROW]);
                }
                None => unmatched.push(first),
            }
        }
    }
    unmatched
}

/// Makes fours of rows that come next and fit, whoever fills up.
fn fit(mut left: Vec<Left>, fours: &mut Fill) {
    // The last come first: those with few bits, to which many fit.
    while let Some(first) = left.pop() {
        let mut four = [first.row, NO_ROW, NO_ROW, NO_ROW];
        let (mut once, mut twice, mut count) = (first.signature, 0, 1);
        let mut at = left.len();
        while at > 0 && count < 4 {
            at -= 1;
            let signature = left[at].signature;
            if signature & twice == 0 {
                four[count] = left.remove(at).row;
                (once, twice, count) = (once | signature, twice | once & signature, count + 1);
            }
        }
        fours.fours.push(four);
    }
}

#[cfg(test)]
mod tests;
