//! What windows become when they are dealt out: pieces of workers.

use windrow_formats::memory::{try_collect, try_with_room, try_zeroed};
use windrow_formats::{NO_ROW, OutOfMemory};

use super::NO_SLOT;

/// A window, or a part of one, in the stream of steps of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The window's number in the list that was cut.
    pub window: u32,
    /// First step of the window that the piece has.
    pub begin: u32,
    /// One after its last.
    pub end: u32,
    /// Where its sum goes, [`NO_SLOT`] if the window was not cut.
    pub slot: u32,
    /// Whether this is one of the parts, one for each worker of a team, that the team adds up before the sum goes
    /// anywhere.
    pub shared: bool,
}

impl Piece {
    /// A window of `steps` steps.
    pub(super) fn whole(window: u32, steps: u32) -> Self {
        Self { window, begin: 0, end: steps, slot: NO_SLOT, shared: false }
    }

    /// Its number of steps.
    pub fn steps(&self) -> u32 {
        self.end - self.begin
    }
}

/// A window that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitWindow {
    /// The window's number in the list that was cut.
    pub window: u32,
    /// Slot of its first piece.
    pub first_slot: u32,
    /// Number of its pieces, shared ones counted once.
    pub count: u32,
}

/// The steps of a matrix dealt out to workers.
///
/// A window that is one worker's as a whole is told by its number alone, so that what is dealt out of many windows
/// takes few bytes; [`pieces`](Self::pieces) lists all alike.
///
/// Invariants:
/// - the pieces of a window cover its steps once; a window that was not cut has no slot;
/// - worker `i` has the pieces `worker_pieces[i] .. worker_pieces[i + 1]` of `order`, at least one;
/// - a shared piece has a part for each worker of one team, of at least one step, with the same slot; the workers of
///   a team have their parts of its shared pieces in the same order;
/// - `split_windows` lists each window that was cut, ascending; piece `j` of it has slot `first_slot + j`
///   (`j < count`), and `Σ count = slots`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DealtSteps {
    /// The pieces in the order of the stream, worker after worker: the number of a whole window, or, with the bit
    /// [`DIVIDED`](Self::DIVIDED), the place in `divided`.
    pub order: Vec<u32>,
    /// The pieces of windows that are not one worker's.
    pub divided: Vec<Piece>,
    /// First piece of each worker, and the number of pieces; empty if there are none.
    pub worker_pieces: Vec<u32>,
    /// Windows of several pieces.
    pub split_windows: Vec<SplitWindow>,
    /// Number of slots, of one window each.
    pub slots: u32,
}

impl DealtSteps {
    /// The bit of an element of `order` that is not a window. There are no more windows than steps, and fewer than 2³¹
    /// of these.
    pub const DIVIDED: u32 = 1 << 31;

    /// The pieces in the order of the stream, worker after worker, of windows with these steps.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Panics
    /// If the windows are not those that were dealt out.
    pub fn pieces(&self, window_steps: &[u32]) -> Result<Vec<Piece>, OutOfMemory> {
        let piece = |&of: &u32| match of & Self::DIVIDED {
            0 => Piece::whole(of, window_steps[of as usize]),
            _ => self.divided[(of & !Self::DIVIDED) as usize],
        };
        try_collect(self.order.iter().map(piece), "pieces of windows")
    }

    /// A worker for each window, however long: what there is without balancing.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn one_each(window_steps: &[u32]) -> Result<Self, OutOfMemory> {
        let windows = narrow(window_steps.len() as u64);
        let order = try_collect(0..windows, "pieces of windows")?;
        let worker_pieces = try_collect(0..windows + 1, "pieces of workers")?;
        Ok(Self { order, worker_pieces, ..Self::default() })
    }

    /// Gives all pieces of a window one slot, for sums that are accumulated in whatever order they come.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn share_slots(&mut self) -> Result<(), OutOfMemory> {
        let mut shared = try_zeroed::<u32>(self.slots as usize, "shared slots")?;
        for (split, slot) in self.split_windows.iter_mut().zip(0u32..) {
            shared[split.first_slot as usize..][..split.count as usize].fill(slot);
            (split.first_slot, split.count) = (slot, 1);
        }
        for piece in self.divided.iter_mut().filter(|piece| piece.slot != NO_SLOT) {
            piece.slot = shared[piece.slot as usize];
        }
        self.slots = self.split_windows.iter().map(|split| split.count).sum(); // one for each window now
        Ok(())
    }

    /// Number of workers that have something to do.
    pub fn workers(&self) -> usize {
        self.worker_pieces.len().saturating_sub(1)
    }

    /// `[row, first, count, stride]` for each row of the split windows of `height` rows: the partial sums of
    /// `row` are rows `first, first + height, …` (`count` of them) of a workspace in which slot `s` has rows
    /// `height·s .. height·(s + 1)`.
    ///
    /// `rows` has the rows of each of the [`split_windows`](Self::split_windows), in their order, [`NO_ROW`] where a
    /// window has fewer.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Panics
    /// If `rows` has not `height` rows for each split window.
    pub fn combine_rows(&self, rows: &[u32], height: usize) -> Result<Vec<[u32; 4]>, OutOfMemory> {
        assert_eq!(rows.len(), height * self.split_windows.len(), "rows of the split windows");
        let stride = narrow(height as u64);
        let rows_of = |(split, rows): (&SplitWindow, _)| {
            let (first, count) = (split.first_slot * stride, split.count);
            let listed = std::iter::zip(rows, 0u32..).map(move |(&row, i)| [row, first + i, count, stride]);
            listed.filter(|entry: &[u32; 4]| entry[0] != NO_ROW)
        };
        let mut list = try_with_room(rows.len(), "rows of windows that are cut")?;
        list.extend(self.split_windows.iter().zip(rows.chunks_exact(height)).flat_map(rows_of));
        Ok(list)
    }
}

/// A window or step number, as kernels address it.
pub(super) fn narrow(x: u64) -> u32 {
    u32::try_from(x).expect("at most the number of steps or of workers, which are 32 bits")
}
