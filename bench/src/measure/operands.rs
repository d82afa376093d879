//! What products are measured with: fresh random numbers, a `C` full of NaN, and a matrix's fingerprint.

use bytemuck::Pod;
use cudarc::driver::sys as cuda;
use windrow::interop::cuda_handles;
use windrow::synthetic::seeded_values;
use windrow::{Csr, DenseRef, Device, DeviceBuffer, DeviceError, DeviceMatrix, Real, Value};

use crate::measure::error::{BenchError, driver_error};

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01B3;

fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// FNV-1a, 64 bits, over row offsets then columns, each as 4 bytes, least significant first: names a pattern
/// whatever file it came from. Offsets of 2³² or more count modulo 2³².
#[must_use]
pub(crate) fn pattern_checksum<V>(csr: &Csr<V>) -> u64 {
    let low_half = |offset: &u64| u32::try_from(offset & 0xffff_ffff).unwrap_or_default();
    let words = csr.row_offsets().iter().map(low_half).chain(csr.col_indices().iter().copied());
    words.fold(FNV_OFFSET, |hash, word| fnv1a(hash, &word.to_le_bytes()))
}

/// A seed for one case, so that every case is measured with numbers of its own.
#[must_use]
pub(crate) fn case_seed(seed: u64, checksum: u64, width: usize, path: &str) -> u64 {
    let numbers = [seed, checksum, width as u64];
    let hash = numbers.iter().fold(FNV_OFFSET, |hash, number| fnv1a(hash, &number.to_le_bytes()));
    fnv1a(hash, path.as_bytes())
}

/// A `rows × cols` matrix on `device` with values uniform in `[−1, 1)`, rounded to `T`.
///
/// # Errors
/// [`BenchError::Format`] if host memory does not suffice, [`BenchError::Product`] if the device's does not.
pub fn random_matrix<T: Value>(
    device: &Device,
    rows: usize,
    cols: usize,
    seed: u64,
) -> Result<DeviceMatrix<T>, BenchError> {
    let values = seeded_values::<T>(rows.saturating_mul(cols), seed)?;
    Ok(DeviceMatrix::upload(device, DenseRef::packed(&values, rows, cols)?)?)
}

/// A `rows × cols` matrix on `device` full of NaN: an element that a product does not write stays wrong.
///
/// # Errors
/// [`BenchError::Product`] if the device's memory does not suffice.
pub fn poisoned_matrix<S: Real>(
    device: &Device,
    rows: usize,
    cols: usize,
) -> Result<DeviceMatrix<S>, BenchError> {
    let mut matrix = DeviceMatrix::zeros(device, rows, cols)?;
    fill(&mut matrix, Filling::Nan)?;
    Ok(matrix)
}

/// What a result is full of before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filling {
    /// Zeros, for kernels that add to them.
    Zero,
    /// NaN, so that an element that nobody writes is beyond every bound.
    Nan,
    /// 10³⁰, on a CUDA device 10²³⁷ in f64: far beyond every bound, but finite, since a library may multiply `C` by
    /// β = 0 instead of not reading it.
    Huge,
}

impl Filling {
    /// Each 32-bit word of the elements, in f32 as in f64: devices fill memory with such.
    const fn word(self) -> u32 {
        match self {
            Self::Zero => 0,
            Self::Nan => 0x7FFF_FFFF,
            Self::Huge => 1e30f32.to_bits(),
        }
    }

    /// The word as an f32, widened to the type of the sums.
    pub(crate) fn element<S: Real>(self) -> S {
        S::from_f32(f32::from_bits(self.word()))
    }
}

/// Overwrites all elements, after all work asked for before. What the padding between rows holds afterwards is not
/// specified.
///
/// # Errors
/// [`BenchError::Product`], [`BenchError::Device`] if the device fails.
pub(crate) fn fill<S: Real>(matrix: &mut DeviceMatrix<S>, filling: Filling) -> Result<(), BenchError> {
    if memset(matrix.buffer(), filling.word())? {
        return Ok(());
    }
    let values = vec![filling.element::<S>(); matrix.rows() * matrix.cols()];
    Ok(matrix.copy_from(DenseRef::packed(&values, matrix.rows(), matrix.cols())?)?)
}

/// Overwrites all words of a buffer, after all work asked for before.
///
/// # Errors
/// The device's.
pub(crate) fn set_words(buffer: &mut DeviceBuffer<u32>, word: u32) -> Result<(), DeviceError> {
    if memset(buffer, word)? {
        return Ok(());
    }
    let words = vec![word; buffer.len()];
    buffer.copy_from_slice(&words)
}

/// Queues that each 32-bit word of a buffer that the caller has borrowed alone becomes `word`; not done on a device
/// that is no CUDA device.
fn memset<T: Pod>(buffer: &DeviceBuffer<T>, word: u32) -> Result<bool, DeviceError> {
    let Some(handles) = cuda_handles(buffer.device())? else { return Ok(false) };
    if buffer.is_empty() {
        return Ok(true);
    }
    let words = buffer.len() * (size_of::<T>() / size_of::<u32>());
    // SAFETY: the buffer has so many words of 4 bytes at its address and is borrowed alone; the stream is its device's,
    // whose context `cuda_handles` made current, so that the buffer is freed after this work.
    let filled =
        unsafe { cuda::cuMemsetD32Async(buffer.address(), word, words, handles.stream.cast()).result() };
    filled.map(|()| true).map_err(|error| driver_error("cuMemsetD32Async", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_fnv1a_of_the_pattern() {
        // Offsets 0, 1 and column 0: twelve bytes, worked out step by step.
        let a = Csr::<f32>::identity(1).unwrap();
        let bytes = [0u8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        let mut want = 0xCBF2_9CE4_8422_2325_u64;
        for byte in bytes {
            want = (want ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        assert_eq!(pattern_checksum(&a), want);
        assert_eq!(pattern_checksum(&a.map_values(|_| 7.0f32)), want);
        assert_eq!(pattern_checksum(&Csr::<f64>::identity(1).unwrap()), want);
        assert_ne!(pattern_checksum(&Csr::<f32>::identity(2).unwrap()), want);
    }

    #[test]
    fn seeds_differ_from_case_to_case() {
        let seeds = [
            case_seed(1, 2, 3, "a"),
            case_seed(2, 2, 3, "a"),
            case_seed(1, 3, 3, "a"),
            case_seed(1, 2, 4, "a"),
            case_seed(1, 2, 3, "b"),
        ];
        for (i, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..i].contains(seed));
        }
        assert_eq!(seeds[0], case_seed(1, 2, 3, "a"));
    }

    #[test]
    fn operands_are_random_and_poisoned() {
        let device = Device::cpu();
        let b = random_matrix::<f32>(&device, 10, 7, 1).unwrap().download().unwrap();
        assert!(b.iter().all(|x| (-1.0..1.0).contains(x)));
        assert!(b.iter().any(|&x| x < -0.5) && b.iter().any(|&x| x > 0.5));
        let other = random_matrix::<f32>(&device, 10, 7, 2).unwrap().download().unwrap();
        assert_ne!(b, other);
        let mut c = poisoned_matrix::<f64>(&device, 3, 5).unwrap();
        let elements = c.download().unwrap();
        assert!(elements.len() == 15 && elements.iter().all(|x| x.is_nan()));
        fill(&mut c, Filling::Huge).unwrap();
        assert_eq!(c.download().unwrap(), [f64::from(1e30f32); 15]);
        fill(&mut poisoned_matrix::<f32>(&device, 0, 5).unwrap(), Filling::Zero).unwrap();
    }

    #[test]
    fn the_words_of_fillings_mean_the_same_in_both_types() {
        let wide =
            |filling: Filling| f64::from_bits(u64::from(filling.word()) << 32 | u64::from(filling.word()));
        assert!(wide(Filling::Nan).is_nan() && Filling::Nan.element::<f32>().is_nan());
        assert_eq!((wide(Filling::Zero), Filling::Zero.element::<f64>()), (0.0, 0.0));
        assert!(wide(Filling::Huge) > 1e236 && wide(Filling::Huge) < 1e238);
        assert_eq!(Filling::Huge.element::<f32>(), 1e30);
    }
}
