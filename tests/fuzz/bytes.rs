//! Choices made by bytes: the fuzzer's, or a test's. Where there are no more, every choice is the first.

/// Bytes that are left.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Of four bytes, whole.
    pub(crate) fn word(&mut self) -> u32 {
        u32::from_le_bytes([(); 4].map(|()| self.byte()))
    }

    /// Below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        match end {
            ..=256 => usize::from(self.byte()) % end,
            _ => self.word() as usize % end,
        }
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A number at an edge of some range, or any.
    pub(crate) fn edge(&mut self) -> u64 {
        match self.byte() % 8 {
            0 => 0,
            1 => 1,
            2 => u64::from(u32::MAX),
            3 => u64::from(u32::MAX) + 1,
            4 => u64::MAX,
            5 => u64::from(self.word()),
            _ => u64::from(self.byte()),
        }
    }
}
