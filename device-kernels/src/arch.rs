//! The architectures that the kernels are compiled for.

use core::fmt;

/// What an entry is compiled for at least, and what a text of PTX is compiled for: a row of `ptx/`.
///
/// A GPU compiles an entry from the last of the texts that it runs and that [hold](Arch::holds) the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// Compute capability 8.0 and all later ones.
    Sm80,
    /// 9.0 and all later ones: bulk copies, and launches that overlap the end of the launch before them
    /// (`griddepcontrol`), if the host allows them to.
    Sm90,
    /// 9.0 and no other: its warpgroups' matrix multiplication. Only entries that need it are compiled for it.
    Sm90a,
}

impl Arch {
    /// Every architecture, the newest last.
    pub const ALL: [Self; 3] = [Self::Sm80, Self::Sm90, Self::Sm90a];

    /// Name of its folder in `ptx/`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm80",
            Self::Sm90 => "sm90",
            Self::Sm90a => "sm90a",
        }
    }

    /// Whether a GPU of compute capability `sm`, as `10·major + minor`, runs what is compiled for it.
    #[must_use]
    pub const fn runs_on(self, sm: u32) -> bool {
        match self {
            Self::Sm80 => sm >= 80,
            Self::Sm90 => sm >= 90,
            Self::Sm90a => sm == 90,
        }
    }

    /// Whether the text for this architecture has the entries that need `least`.
    #[must_use]
    pub const fn holds(self, least: Self) -> bool {
        match self {
            Self::Sm80 => matches!(least, Self::Sm80),
            Self::Sm90 => matches!(least, Self::Sm80 | Self::Sm90),
            Self::Sm90a => matches!(least, Self::Sm90a),
        }
    }

    /// The architecture from whose text a GPU of compute capability `sm` takes the entries that need `least`; none if
    /// it cannot run them.
    #[must_use]
    pub fn for_gpu(sm: u32, least: Self) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|arch| arch.runs_on(sm) && arch.holds(least))
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_takes_the_newest_text_that_it_runs() {
        let taken = |sm| Arch::ALL.map(|least| Arch::for_gpu(sm, least));
        assert_eq!(taken(75), [None; 3]);
        assert_eq!(taken(80), [Some(Arch::Sm80), None, None]);
        assert_eq!(taken(89), [Some(Arch::Sm80), None, None]);
        assert_eq!(taken(90), [Some(Arch::Sm90), Some(Arch::Sm90), Some(Arch::Sm90a)]);
        assert_eq!(taken(100), [Some(Arch::Sm90), Some(Arch::Sm90), None]);
        assert_eq!(taken(120), [Some(Arch::Sm90), Some(Arch::Sm90), None]);
    }
}
