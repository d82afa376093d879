//! Measures the rates of the roofline, and checks that the device read what it was told to.

use cudarc::driver::result as driver;
use rayon::prelude::*;
use windrow::internal::{Entry, GatherProbeParams, IN_FLIGHT, Variant, entry, launch};
use windrow::interop::cuda_handles;
use windrow::synthetic::SplitMix64;
use windrow::{Device, DeviceBuffer, DeviceError};

use super::GatherRates;
use crate::measure::error::{BenchError, driver_error};
use crate::measure::timing::{Sampling, measure};

const MIB: u64 = 1 << 20;
/// Bytes that one lane reads of a row.
const LANE_BYTES: u64 = 16;
/// Pieces of a table that one task fills or folds.
const TASK_PIECES: usize = 1 << 14;

/// Which gathers are measured: rows of so many bytes, at random places of tables of so many bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatherProbe {
    /// Bytes of the tables, ascending; multiples of every row.
    pub(crate) working_set_bytes: Vec<u64>,
    /// Bytes of the rows, ascending: 16 times a power of two up to 512.
    pub(crate) row_bytes: Vec<u64>,
    /// Bytes gathered by one launch, at least a million for a rate that means something.
    pub(crate) gathered_bytes: u64,
    /// Seed of the table and of the places.
    pub(crate) seed: u64,
    /// How often each is run.
    pub(crate) sampling: Sampling,
}

impl Default for GatherProbe {
    /// Rows of 64 to 512 bytes from 4 to 512 MiB.
    fn default() -> Self {
        Self {
            working_set_bytes: [4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512]
                .map(|mib| mib * MIB)
                .to_vec(),
            row_bytes: vec![64, 128, 256, 512],
            gathered_bytes: 512 * MIB,
            seed: 7,
            sampling: Sampling::default(),
        }
    }
}

impl GatherProbe {
    /// Rows that a lane group reads one after the other: two rounds of what is in flight at a time.
    const PER_GROUP: usize = 2 * IN_FLIGHT;

    /// Bytes of the largest table.
    #[must_use]
    pub(crate) fn largest_bytes(&self) -> u64 {
        self.working_set_bytes.iter().copied().max().unwrap_or(0)
    }

    /// Measures every pair of sizes on a device that runs kernels. The table is random, and each thread's checksum of
    /// what it read is compared with the host's.
    ///
    /// # Errors
    /// - [`BenchError::Device`] on the CPU, and if the device fails;
    /// - [`BenchError::Probe`] for sizes that the kernel cannot gather;
    /// - [`BenchError::Checksum`] if a thread read something else.
    pub(crate) fn run(&self, device: &Device) -> Result<GatherRates, BenchError> {
        let entry = entry(Variant::GatherProbe)
            .ok_or(BenchError::Device(DeviceError::MissingEntry { name: "gather_probe" }))?;
        for (&working_set, &row) in self.pairs() {
            check_sizes(working_set, row)?;
        }
        let pieces = random_pieces(self.largest_bytes() / LANE_BYTES, self.seed);
        let table = DeviceBuffer::from_slice(device, &pieces)?;
        let folded: Vec<u32> = pieces.par_iter().with_min_len(TASK_PIECES).map(fold).collect();
        drop(pieces);
        let table = Table { buffer: table, folded };
        let rates = self
            .pairs()
            .map(|(&working_set, &row)| self.run_pair(device, entry, &table, Shape { working_set, row }))
            .collect::<Result<Vec<f64>, BenchError>>()?;
        let real = |sizes: &[u64]| sizes.iter().map(|&bytes| bytes as f64).collect();
        GatherRates::try_new(real(&self.working_set_bytes), real(&self.row_bytes), rates)
    }

    fn pairs(&self) -> impl Iterator<Item = (&u64, &u64)> {
        self.working_set_bytes
            .iter()
            .flat_map(|working_set| self.row_bytes.iter().map(move |row| (working_set, row)))
    }

    /// Bytes per second for one pair of sizes.
    fn run_pair(
        &self,
        device: &Device,
        entry: &'static Entry,
        table: &Table,
        shape: Shape,
    ) -> Result<f64, BenchError> {
        let lanes = shape.row / LANE_BYTES;
        // Whole blocks: a block's threads are a multiple of the lanes of a row.
        let groups_per_block = u64::from(entry.block_threads) / lanes;
        let per_group = Self::PER_GROUP as u64;
        let wanted = self.gathered_bytes / (shape.row * per_group);
        let blocks = wanted.div_ceil(groups_per_block).max(1);
        let gathers = blocks * groups_per_block * per_group;
        let places = random_places(gathers, shape.working_set / shape.row, self.seed ^ shape.working_set);
        let indices = DeviceBuffer::from_slice(device, &places)?;
        let threads = index(blocks * u64::from(entry.block_threads));
        let checksums = DeviceBuffer::<u32>::alloc_zeroed(device, threads)?;
        let params = GatherProbeParams {
            table: bytemuck::cast(table.buffer.address()),
            indices: bytemuck::cast(indices.address()),
            checksums: bytemuck::cast(checksums.address()),
            per_group: u32::try_from(per_group).unwrap_or(0),
            log_lanes: lanes.ilog2(),
        };
        let timing = measure(device, self.sampling, || {
            // SAFETY: `blocks` blocks are `blocks · groups_per_block` groups of `lanes` threads, with as many times
            // PER_GROUP places, all below the rows of the working set, which the table holds (`check_sizes`, and
            // the table has the largest); there is a checksum for each thread; PER_GROUP is a multiple of
            // IN_FLIGHT. The buffers outlive the measurement, which ends with a wait for its last mark.
            unsafe { launch(device, entry, [blocks, 1], &params) }
        })?;
        let right = expected_checksums(&table.folded, &places, index(lanes));
        let wrong = checksums.to_vec()?.iter().zip(&right).filter(|(got, want)| got != want).count();
        if wrong > 0 {
            let (row_bytes, working_set_bytes) = (shape.row, shape.working_set);
            return Err(BenchError::Checksum { wrong, threads, row_bytes, working_set_bytes });
        }
        Ok((gathers * shape.row) as f64 / (timing.median_us * 1e-6))
    }
}

/// The table that rows are gathered from.
struct Table {
    buffer: DeviceBuffer<[u32; 4]>,
    /// XOR of the words of each 16 bytes.
    folded: Vec<u32>,
}

/// One measurement, in bytes.
#[derive(Clone, Copy)]
struct Shape {
    working_set: u64,
    row: u64,
}

fn check_sizes(working_set_bytes: u64, row_bytes: u64) -> Result<(), BenchError> {
    let refuse = |why| Err(BenchError::Probe { row_bytes, working_set_bytes, why });
    if !row_bytes.is_multiple_of(LANE_BYTES) || !(row_bytes / LANE_BYTES).is_power_of_two() || row_bytes > 512
    {
        return refuse("rows are 16 to 512 bytes, a power of two");
    }
    if working_set_bytes == 0 || !working_set_bytes.is_multiple_of(row_bytes) {
        return refuse("the table must be a whole number of rows");
    }
    if working_set_bytes / row_bytes > u64::from(u32::MAX) {
        return refuse("rows are counted in 32 bits");
    }
    Ok(())
}

/// Sizes that fit the host's memory.
fn index(x: u64) -> usize {
    usize::try_from(x).unwrap_or(usize::MAX)
}

/// Element `i` of the stream of `seed`.
fn random(seed: u64, i: usize) -> SplitMix64 {
    SplitMix64::new(
        SplitMix64::new(seed).next_u64().wrapping_add((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
    )
}

fn random_pieces(pieces: u64, seed: u64) -> Vec<[u32; 4]> {
    let piece = |i| {
        let mut stream = random(seed, i);
        bytemuck::cast([stream.next_u64(), stream.next_u64().rotate_left(17)])
    };
    (0..index(pieces)).into_par_iter().with_min_len(TASK_PIECES).map(piece).collect()
}

fn random_places(count: u64, rows: u64, seed: u64) -> Vec<u32> {
    let rows = u32::try_from(rows).unwrap_or(u32::MAX);
    (0..index(count))
        .into_par_iter()
        .with_min_len(TASK_PIECES)
        .map(|i| random(!seed, i).below(rows))
        .collect()
}

fn fold(piece: &[u32; 4]) -> u32 {
    piece.iter().fold(0, |folded, word| folded ^ word)
}

/// What each thread must have: the XOR over its group's rows of its lane's 16 bytes.
fn expected_checksums(folded: &[u32], places: &[u32], lanes: usize) -> Vec<u32> {
    let mut checksums = vec![0u32; places.len() / GatherProbe::PER_GROUP * lanes];
    let groups = places.par_chunks_exact(GatherProbe::PER_GROUP);
    checksums.par_chunks_exact_mut(lanes).zip(groups).with_min_len(256).for_each(|(checksums, places)| {
        for &row in places {
            let row = &folded[row as usize * lanes..][..lanes];
            for (checksum, piece) in checksums.iter_mut().zip(row) {
                *checksum ^= piece;
            }
        }
    });
    checksums
}

/// Bytes per second of a copy of `bytes` bytes of random data from one buffer of a CUDA device to another, bytes read
/// and bytes written counted together. The copy is compared with its source.
///
/// # Errors
/// - [`BenchError::Device`] on other devices, and if the device fails;
/// - [`BenchError::Copy`] if the copy is wrong.
pub(crate) fn measure_copy(device: &Device, bytes: u64, sampling: Sampling) -> Result<f64, BenchError> {
    let Some(handles) = cuda_handles(device)? else {
        let (operation, remedy) = ("time a copy in its own memory", "a CUDA device");
        return Err(DeviceError::NotAvailable { device: device.to_string(), operation, remedy }.into());
    };
    let pieces = random_pieces(bytes / LANE_BYTES, 3);
    let from = DeviceBuffer::from_slice(device, &pieces)?;
    let to = DeviceBuffer::<[u32; 4]>::alloc_zeroed(device, pieces.len())?;
    let timing = measure(device, sampling, || {
        // SAFETY: both buffers have `from.bytes()` bytes, do not overlap and outlive the measurement, which ends
        // with a wait for its last mark; the stream is the device's, whose context `cuda_handles` made current.
        let copied = unsafe {
            driver::memcpy_dtod_async(
                to.address(),
                from.address(),
                index(from.bytes()),
                handles.stream.cast(),
            )
        };
        copied.map_err(|error| driver_error("cuMemcpyDtoDAsync", error))
    })?;
    let copied = to.to_vec()?;
    let wrong = copied.par_iter().zip(&pieces).filter(|(got, want)| got != want).count();
    if wrong > 0 {
        return Err(BenchError::Copy { wrong, pieces: pieces.len() });
    }
    Ok(2.0 * from.bytes() as f64 / (timing.median_us * 1e-6))
}

#[cfg(test)]
mod tests {
    use windrow::EmulatorSchedule;

    use super::*;
    use crate::measure::DeviceRates;

    fn small() -> GatherProbe {
        GatherProbe {
            working_set_bytes: vec![4096, 8192],
            row_bytes: vec![64, 128, 512],
            gathered_bytes: 1 << 15,
            seed: 1,
            sampling: Sampling::SMOKE,
        }
    }

    #[test]
    fn the_kernel_reads_the_right_rows() {
        // The checksums of every thread of the kernel's own source are compared inside.
        let rates = small().run(&Device::emulator(EmulatorSchedule::InOrder)).unwrap();
        assert_eq!((rates.working_set_bytes().len(), rates.row_bytes().len()), (2, 3));
        assert!(rates.rate(4096.0, 64.0) > 0.0);
    }

    #[test]
    fn expected_checksums_are_those_of_the_rows() {
        let pieces = random_pieces(64, 5);
        let folded: Vec<u32> = pieces.iter().map(fold).collect();
        let places: Vec<u32> = (0..32).map(|i| i % 16).collect();
        // Two groups of four threads, each group reads all 16 rows of four pieces.
        let checksums = expected_checksums(&folded, &places, 4);
        assert_eq!(checksums.len(), 8);
        for lane in 0..4 {
            let want = (0..16).fold(0, |sum, row| sum ^ fold(&pieces[4 * row + lane]));
            assert_eq!((checksums[lane], checksums[4 + lane]), (want, want));
        }
        let mut other = places.clone();
        other[0] = 1;
        assert_ne!(expected_checksums(&folded, &other, 4), checksums);
    }

    #[test]
    fn places_stay_in_the_table() {
        let places = random_places(10_000, 100, 9);
        assert!(places.iter().all(|&place| place < 100));
        let mut seen = [0u32; 100];
        places.iter().for_each(|&place| seen[place as usize] += 1);
        assert!(seen.iter().all(|&count| (50..200).contains(&count)), "{seen:?}");
    }

    #[test]
    fn sizes_are_checked() {
        assert!(check_sizes(1 << 20, 64).is_ok() && check_sizes(512, 512).is_ok());
        for (working_set, row) in
            [(1 << 20, 24), (1 << 20, 48), (1 << 20, 1024), (100, 64), (0, 64), (1 << 40, 16)]
        {
            let error = check_sizes(working_set, row).unwrap_err();
            assert!(matches!(error, BenchError::Probe { .. }), "{working_set} {row}");
        }
    }

    #[test]
    fn the_cpu_has_no_kernels_to_probe() {
        let error = small().run(&Device::cpu()).unwrap_err();
        assert!(matches!(error, BenchError::Device(DeviceError::NotAvailable { .. })), "{error}");
        let error = DeviceRates::probe(&Device::cpu(), &small()).unwrap_err();
        assert!(error.to_string().contains("a CUDA device"), "{error}");
    }
}
