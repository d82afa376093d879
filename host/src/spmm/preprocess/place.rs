//! Whether a matrix of the host is laid out on the host or on the GPU.

use windrow_kernels::preprocess::MOST_ITEMS;

use crate::costs::TileThresholds;
use crate::error::{DeviceError, PlanError, SpmmError};
use crate::num::wide;
use crate::options::Preprocessing;
use crate::plan::StageClock;
use crate::spmm::layout::{Context, Matrix};
use crate::spmm::options::SpmmOptions;
use crate::spmm::part::LaidOut;
use crate::spmm::tiles::WINDOW_ROWS;

/// Where a matrix is laid out.
pub(in crate::spmm) struct Place {
    on_gpu: bool,
    why: String,
    /// Whether the CPU may do it where the GPU has no room.
    may_move: bool,
}

/// Rows and entries that kernels lay out in tiles.
pub(in crate::spmm) const MOST_TILE_ITEMS: usize = MOST_ITEMS as usize - WINDOW_ROWS * 4;

impl Place {
    /// Where a plan for a GPU is laid out, and why: `only_on_host` says why kernels know no such layout, `most` of how
    /// many rows and entries they know it.
    pub(in crate::spmm) fn of<A: Matrix>(
        context: &Context<'_, A>,
        only_on_host: Option<&str>,
        most: usize,
    ) -> Self {
        let (options, rows, nnz) = (context.options, context.a.rows(), context.a.nnz());
        let (on_gpu, why) = by_kernels(options, nnz, &context.profile.costs.tiles);
        let may_move = options.preprocessing == Preprocessing::Auto;
        let obstacle = match only_on_host {
            _ if options.preprocessing == Preprocessing::Cpu => None,
            Some(why) => Some(why.to_owned()),
            None if nnz == 0 => Some("the matrix has no entries".to_owned()),
            None if nnz > most || rows > most => Some(format!("more than {most} rows or entries")),
            None => None,
        };
        Self { on_gpu: on_gpu && obstacle.is_none(), why: obstacle.unwrap_or(why), may_move }
    }

    /// What kernels lay out there, or the host: also where kernels find that there is too much to count, or, if that is
    /// left open, where the GPU has no room for it.
    pub(in crate::spmm) fn lay_out<'a>(
        mut self,
        clock: &mut StageClock,
        by_kernels: impl FnOnce(&mut StageClock) -> Result<Option<LaidOut<'a>>, SpmmError>,
        by_host: impl FnOnce(&mut StageClock) -> Result<LaidOut<'a>, SpmmError>,
    ) -> Result<LaidOut<'a>, SpmmError> {
        if self.on_gpu {
            match by_kernels(clock) {
                Ok(Some(mut laid)) => {
                    (laid.facts.on_gpu, laid.facts.place) = (true, Some(self.why));
                    return Ok(laid);
                }
                Ok(None) => {} // too large, which the CPU says better
                Err(SpmmError::Plan(PlanError::Device(error @ DeviceError::OutOfMemory { .. })))
                    if self.may_move =>
                {
                    self.why = format!("the GPU has no room for it: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        let mut laid = by_host(clock)?;
        laid.facts.place = Some(self.why);
        Ok(laid)
    }
}

/// Whether kernels lay a matrix of the host out whose layout they know, and why.
pub(in crate::spmm) fn by_kernels(
    options: &SpmmOptions,
    nnz: usize,
    tiles: &TileThresholds,
) -> (bool, String) {
    let least = tiles.layout_entries;
    match options.preprocessing {
        Preprocessing::Cpu => (false, "as asked".to_owned()),
        Preprocessing::Gpu => (true, "as asked".to_owned()),
        Preprocessing::Auto if options.memory_limit.is_some() => {
            (false, "the GPU would need memory beyond the limit".to_owned())
        }
        Preprocessing::Auto if wide(nnz) < least => (false, format!("{nnz} entries, fewer than {least}")),
        Preprocessing::Auto => (true, format!("{nnz} entries, no fewer than {least}")),
    }
}
