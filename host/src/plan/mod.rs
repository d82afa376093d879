//! The frame of every plan, below the families of products: what is checked before work is queued, how launches are
//! shaped, what reports have in common, and how values and dense operands get to a device.

mod budget;
mod checks;
mod geometry;
mod launch;
mod occupancy;
mod on;
mod operands;
mod per_stream;
mod placing;
mod report;
mod scale;
mod schedule;
mod turn;
mod values;
mod verification;
mod workspace;

pub(crate) use budget::{Account, Budget, WORKSPACE_REMEDY};
pub(crate) use checks::{
    check_count, check_device, check_dimensions, check_element, check_index, check_ld, check_lengths,
    check_memory, check_new_values, check_packed, check_shape, queue_of,
};
pub(crate) use geometry::{division, middle, rows_at_once, short_row_groups};
pub(crate) use launch::{Blocks, Lane, Launcher, MAX_BLOCK_COLUMNS, MAX_INDEX, start};
pub(crate) use occupancy::occupancy;
pub use occupancy::{OccupancyRange, OccupancyThresholds, StreamRule};
pub(crate) use on::On;
pub(crate) use operands::{Rounded, factor, is_same, operand, output_on, pointer_or_null, with_sums};
pub(crate) use per_stream::{OfStream, PREPARE, PerStream};
pub(crate) use placing::{Index, NewValues, RoundedValues, Rounding, Target, copy_on_device, placing_entry};
pub use report::{ArraySize, StageTime};
pub(crate) use report::{StageClock, push, total_us, write_arrays, write_stages};
pub(crate) use scale::FACTOR;
pub use scale::Scale;
pub use schedule::{Schedule, Scheduling};
pub(crate) use turn::Turn;
pub(crate) use values::{Bits, Exceptions, GivenValues, Unplaced, Values};
pub use verification::Verification;
pub(crate) use verification::{
    Double, SUMMED_AT_ONCE, Storing, UNIT_FMA, UNIT_MMA, all_parts, bounded_ratio, column_blocks,
    error_ratio, gamma, multiplied, ratio_to, subnormal_error, unit_of,
};
pub(crate) use workspace::{LentMemory, WorkspaceMemory, taken_over, workspace_bytes};
