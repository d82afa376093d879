//! Tensors in compressed sparse fibers in the memory of a device.

use std::fmt;

use windrow_formats::{Csf3, Csf3Parts, Value};

use super::slices::TensorFacts;
use crate::csr::{DeviceCsr, OwnedCsr};
use crate::device::{Device, DeviceBuffer, Stream};
use crate::error::PlanError;
use crate::num::wide;
use crate::plan::check_device;

/// A tensor of three modes in compressed sparse fibers in the memory of a [`Device`]: what [`Csf3`] is in host memory,
/// with the same arrays.
///
/// Made of a [`DeviceCoo3`](super::DeviceCoo3) where that is, or of a [`Csf3`]; valid as that one is, and windrow's
/// own. A [`Mttkrp`](super::Mttkrp) for the mode of its roots and a [`Ttm`](super::Ttm) for that of its leaves are
/// planned of it without another sort.
///
/// # Examples
/// ```
/// use windrow::{Device, DeviceBuffer, DeviceCoo3, Ttm};
///
/// let device = Device::best()?;
/// let i = DeviceBuffer::from_slice(&device, &[1i32, 0, 1])?;
/// let j = DeviceBuffer::from_slice(&device, &[2i32, 0, 2])?;
/// let k = DeviceBuffer::from_slice(&device, &[1i32, 1, 0])?;
/// let values = DeviceBuffer::from_slice(&device, &[2.0f32, 1.0, 4.0])?;
/// let list = DeviceCoo3::new([2, 3, 2], [&i, &j, &k], &values)?;
///
/// let fibers = list.to_csf([0, 1, 2], &device.stream())?; // (0, 0) and (1, 2)
/// assert_eq!((fibers.fibers(), fibers.fiber_indices().to_vec()?), (2, vec![0, 2]));
/// let plan = Ttm::builder(&fibers).width(1).build_on(&device.stream())?;
/// assert_eq!(plan.run(&[1.0, 10.0])?, [10.0, 24.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceCsf3<V: Value> {
    pub(super) dims: [usize; 3],
    pub(super) mode_order: [usize; 3],
    pub(super) root_indices: DeviceBuffer<u32>,
    pub(super) root_offsets: DeviceBuffer<u64>,
    pub(super) fiber_indices: DeviceBuffer<u32>,
    /// The fibers as rows, with a column for each index of a leaf.
    pub(super) rows: DeviceCsr<'static, V>,
    pub(super) summed_duplicates: u64,
    /// Why the fibers were made on the host, of a list on the device, if they were.
    pub(super) of_copy: Option<&'static str>,
}

impl<V: Value> DeviceCsf3<V> {
    /// A copy of a tensor in the memory of a device.
    ///
    /// # Errors
    /// [`PlanError::Device`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, DeviceCsf3};
    ///
    /// let (device, a) = (Device::best()?, Coo3::from_entries([2, 3, 2], [([1, 2, 0], 4.0f32)])?);
    /// let a = a.to_csf([2, 0, 1])?;
    /// assert_eq!(DeviceCsf3::from_host(&device, &a)?.to_host(&device.stream())?, a);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_host(device: &Device, a: &Csf3<V>) -> Result<Self, PlanError> {
        let (dims, mode_order) = (a.dims(), a.mode_order());
        let rows = OwnedCsr {
            offsets: DeviceBuffer::named(device, a.fiber_offsets(), "fiber_offsets")?,
            columns: DeviceBuffer::named(device, a.leaf_indices(), "leaf_indices")?,
            values: Some(DeviceBuffer::named(device, a.values(), "values")?),
        };
        Ok(Self {
            dims,
            mode_order,
            root_indices: DeviceBuffer::named(device, a.root_indices(), "root_indices")?,
            root_offsets: DeviceBuffer::named(device, a.root_offsets(), "root_offsets")?,
            fiber_indices: DeviceBuffer::named(device, a.fiber_indices(), "fiber_indices")?,
            rows: DeviceCsr::of_owned((a.fibers(), dims[mode_order[2]]), rows, None),
            summed_duplicates: a.summed_duplicates(),
            of_copy: None,
        })
    }

    /// A copy in host memory, after the work that the stream was asked for before.
    ///
    /// # Errors
    /// - [`PlanError::WrongDevice`] for a stream of another device;
    /// - [`PlanError::Device`]: [`DeviceError::Captured`](crate::DeviceError::Captured) for a stream that is captured.
    pub fn to_host(&self, on: &Stream) -> Result<Csf3<V>, PlanError> {
        check_device("the stream", on.device(), self.device())?;
        self.rows.made_on_host(on, |fiber_offsets, leaf_indices| {
            Ok(Csf3::try_from_parts(Csf3Parts {
                dims: self.dims,
                mode_order: self.mode_order,
                root_indices: self.root_indices.to_vec()?,
                root_offsets: self.root_offsets.to_vec()?,
                fiber_indices: self.fiber_indices.to_vec()?,
                fiber_offsets,
                leaf_indices,
                values: self.rows.values_on_host()?,
            })?)
        })
    }

    /// The device whose memory it is in.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.rows.device()
    }

    /// Dimensions `I`, `J`, `K`, in the order of the tensor's modes.
    #[must_use]
    pub fn dims(&self) -> [usize; 3] {
        self.dims
    }

    /// The mode at each level: roots, fibers, leaves.
    #[must_use]
    pub fn mode_order(&self) -> [usize; 3] {
        self.mode_order
    }

    /// Number of roots: slices that have entries.
    #[must_use]
    pub fn roots(&self) -> usize {
        self.root_indices.len()
    }

    /// Number of fibers that have entries.
    #[must_use]
    pub fn fibers(&self) -> usize {
        self.fiber_indices.len()
    }

    /// Number of entries, explicit zeros included.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.rows.nnz()
    }

    /// Index of each root in mode `mode_order[0]`, ascending.
    #[must_use]
    pub fn root_indices(&self) -> &DeviceBuffer<u32> {
        &self.root_indices
    }

    /// Offsets of fibers, one more than roots: root `r` has fibers `root_offsets[r] .. root_offsets[r + 1]`.
    #[must_use]
    pub fn root_offsets(&self) -> &DeviceBuffer<u64> {
        &self.root_offsets
    }

    /// Index of each fiber in mode `mode_order[1]`, ascending in each root: with the roots, whose row of a result of
    /// [`Ttm`](super::Ttm) each is.
    #[must_use]
    pub fn fiber_indices(&self) -> &DeviceBuffer<u32> {
        &self.fiber_indices
    }

    /// The fibers as the rows of a matrix, with a column for each index of mode `mode_order[2]`.
    #[must_use]
    pub fn fiber_rows(&self) -> &DeviceCsr<'static, V> {
        &self.rows
    }

    /// Entries of the list that were added to another entry at the same place.
    #[must_use]
    pub fn summed_duplicates(&self) -> u64 {
        self.summed_duplicates
    }

    /// What decides how it is multiplied.
    pub(super) fn facts(&self) -> TensorFacts {
        TensorFacts {
            dims: self.mode_order.map(|mode| self.dims[mode]),
            mode_order: self.mode_order,
            nnz: self.nnz(),
            fibers: self.fibers(),
            empty_slices: wide(self.dims[self.mode_order[0]] - self.roots()),
        }
    }
}

impl<V: Value> fmt::Debug for DeviceCsf3<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([i, j, k], nnz, fibers) = (self.dims, self.nnz(), self.fibers());
        let (order, device) = (self.mode_order, self.device());
        write!(
            f,
            "DeviceCsf3<{}>({i} × {j} × {k}, {nnz} entries in {fibers} fibers by modes {order:?} on {device})",
            V::NAME
        )
    }
}
