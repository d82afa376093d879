//! Operands made up, to time instances of a kernel on.

use windrow_formats::memory::try_collect;
use windrow_kernels::output::OutputType;

use super::kernels::Kernels;
use super::model::Sizes;
use super::operands::Operands;
use super::staging::Bringing;
use crate::activation::Activation;
use crate::device::{Device, DeviceBuffer, Runner};
use crate::error::NmError;
use crate::num::index;
use crate::plan::{ArraySize, Bits, Budget, On, push};
use crate::trial::in_turns;

/// Instances that are tried.
pub(super) const MOST_TRIED: usize = 4;

/// `A` and `C`, on the device.
pub(super) struct Scratch {
    operands: Operands,
    n: u32,
    // The memory of the operands.
    _a: DeviceBuffer<u8>,
    _c: DeviceBuffer<f32>,
}

impl Scratch {
    /// The memory that operands take.
    pub(super) fn sizes(bringing: &Bringing, sizes: Sizes) -> Vec<ArraySize> {
        let (lda, rows) = bringing.shape(sizes.m);
        let mut arrays = Vec::new();
        let bytes = u64::from(lda) * u64::from(rows) * u64::from(bringing.precision.bytes());
        push(&mut arrays, "a", bytes);
        push(&mut arrays, "c", 4 * u64::from(sizes.m) * u64::from(sizes.n));
        arrays
    }

    /// Operands of `sizes.m` rows, `A` of numbers between -1 and 1: what products cost depends on how many bits change.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`](crate::DeviceError::OutOfMemory),
    /// [`DeviceError::Driver`](crate::DeviceError::Driver).
    pub(super) fn new(device: &Device, bringing: &Bringing, sizes: Sizes) -> Result<Self, NmError> {
        let (lda, rows) = bringing.shape(sizes.m);
        let c = DeviceBuffer::alloc(device, index(u64::from(sizes.m) * u64::from(sizes.n)), "scratch of C")?;
        let elements = index(u64::from(lda) * u64::from(rows));
        // The device is asked first: what it has no room for, the host need not make.
        let bytes = elements * index(u64::from(bringing.precision.bytes()));
        let mut a = DeviceBuffer::<u8>::alloc(device, bytes, "scratch of A")?;
        let mut state = 1u32;
        let numbers = (0..elements).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(0x4000_0000 | state >> 9) - 3.0
        });
        let numbers: Vec<f32> = try_collect(numbers, "scratch of A")?;
        a.copy_from_slice(Bits::of(bringing.precision, &numbers)?.bytes())?;
        let operands = Operands {
            a: a.address(),
            lda,
            layout: bringing.layout,
            reads_vectors: true,
            c: c.address(),
            ldc: sizes.n,
            output: OutputType::Sums,
            m: sizes.m,
            alpha: 1.0,
            beta: 0.0,
            bias: 0,
            activation: Activation::Identity,
            gated: false,
        };
        Ok(Self { operands, n: sizes.n, _a: a, _c: c })
    }

    /// Microseconds of a product, the least of a few batches; nothing on a device without time, where it is run once.
    ///
    /// # Errors
    /// As for [`Kernels::run`].
    pub(super) fn time(&self, Runner { device, .. }: Runner<'_>, kernels: &Kernels) -> Result<f64, NmError> {
        let output = self.operands.output_for(self.n);
        let stream = device.stream();
        let on = On::of(&stream, device, true)?;
        // SAFETY: the operands are this scratch's memory, of the shapes that `new` gave it, and freed after the
        // machine's work.
        let run = || unsafe { kernels.run(&on, &self.operands, output, Budget::UNLIMITED) };
        Ok(in_turns(device, 1, |_| run())?[0])
    }
}
