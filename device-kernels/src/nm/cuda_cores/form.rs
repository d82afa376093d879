//! What instances differ in beside their tile.

/// Which columns have picks in common.
pub trait Picks: 'static {
    /// Whether all columns of a warp do.
    const BY_WARP: bool;
    /// Whether not even the columns of a lane do.
    const BY_COLUMN: bool;
}

/// All columns of a warp.
pub struct ByWarp;
/// All columns of a lane.
pub struct ByLane;
/// Each column has its own.
pub struct ByColumn;

impl Picks for ByWarp {
    const BY_WARP: bool = true;
    const BY_COLUMN: bool = false;
}
impl Picks for ByLane {
    const BY_WARP: bool = false;
    const BY_COLUMN: bool = false;
}
impl Picks for ByColumn {
    const BY_WARP: bool = false;
    const BY_COLUMN: bool = true;
}

/// Whether anything is on its way to shared memory while a stage is multiplied.
pub trait Buffers: 'static {
    /// Stages of which shared memory is made use of.
    const STAGES: u32;
}

/// The next stage is, and the lists of that after it.
pub struct Double;
/// Nothing is: the paper's kernel before its pipeline, to measure what that gains (versions 1 and 2 of its ablation).
pub struct Single;

impl Buffers for Double {
    const STAGES: u32 = 2;
}
impl Buffers for Single {
    const STAGES: u32 = 1;
}
