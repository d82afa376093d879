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

/// How stages come to shared memory.
pub trait Buffers: 'static {
    /// Stages of which shared memory is made use of.
    const STAGES: u32;
    /// Whether weights and lists come by bulk copies; else, as activations do, by each thread, 16 bytes at a time.
    const BULK: bool = false;
}

/// While a stage is multiplied, the next is on its way.
pub struct Double;
/// Likewise, weights and lists by bulk copies: fewer instructions that are none of the products'. From `sm_90` on.
/// (Rows of `A` are too short: a lane starts one at a time, and takes longer than all threads with 16 bytes each.)
pub struct Bulk;
/// Nothing is on its way meanwhile: the paper's kernel before its pipeline, to measure what that gains (versions 1 and
/// 2 of its ablation).
pub struct Single;

impl Buffers for Double {
    const STAGES: u32 = 2;
}
impl Buffers for Bulk {
    const STAGES: u32 = 2;
    const BULK: bool = true;
}
impl Buffers for Single {
    const STAGES: u32 = 1;
}
