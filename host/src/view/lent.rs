//! windrow's memory as if it were somebody else's, and the other way round.

use bytemuck::Pod;
use windrow_formats::Value;

use super::{DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut, Shape};

impl<T: Value> DeviceView<'_, T> {
    /// The same elements as if another library had allocated them: nothing is inserted to order what is done with them.
    /// For windrow's memory in a [graph](crate::Stream#graphs), and where all of the work is in one stream anyway.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceMatrix, Spmm, Stream};
    ///
    /// let device = Device::best()?;
    /// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).width(1).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0], 2, 1)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 2, 1)?;
    /// device.synchronize()?; // what the device's own stream was asked for
    /// let stream = Stream::new(&device)?;
    /// // SAFETY: the one stream uses both until it is waited for.
    /// let (from, to) = unsafe { (b.view().lent(), c.view_mut().lent()) };
    /// plan.run_into_on(&stream, 1.0, from, 0.0, to)?;
    /// stream.synchronize()?;
    /// assert_eq!(c.download()?, [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw): the caller orders the work with all other uses of the memory, and with its
    /// being freed.
    #[must_use]
    pub unsafe fn lent(self) -> Self {
        Self { shape: Shape { owned: false, ..self.shape }, ..self }
    }
}

impl<T: Value> DeviceViewMut<'_, T> {
    /// [`DeviceView::lent`] of elements that are written.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw): the caller orders the work with all other uses of the memory, and with its
    /// being freed.
    #[must_use]
    pub unsafe fn lent(self) -> Self {
        Self { shape: Shape { owned: false, ..self.shape }, ..self }
    }
}

impl<T: Pod> DeviceSlice<'_, T> {
    /// [`DeviceView::lent`] of elements one after the other.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw): the caller orders the work with all other uses of the memory, and with its
    /// being freed.
    #[must_use]
    pub unsafe fn lent(self) -> Self {
        let mut lent = self;
        lent.owned = false;
        lent
    }
}

impl<T: Pod> DeviceSliceMut<'_, T> {
    /// [`DeviceView::lent`] of elements that are written.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw): the caller orders the work with all other uses of the memory, and with its
    /// being freed.
    #[must_use]
    pub unsafe fn lent(self) -> Self {
        let mut lent = self;
        lent.owned = false;
        lent
    }
}

/// The same elements as if windrow had allocated them: work with them is ordered with the device's own stream.
#[cfg(feature = "cudarc")]
mod ordered {
    use super::{DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut, Pod, Shape, Value};

    impl<T: Value> DeviceView<'_, T> {
        pub(crate) fn ordered(self) -> Self {
            Self { shape: Shape { owned: true, ..self.shape }, ..self }
        }
    }

    impl<T: Value> DeviceViewMut<'_, T> {
        pub(crate) fn ordered(self) -> Self {
            Self { shape: Shape { owned: true, ..self.shape }, ..self }
        }
    }

    impl<T: Pod> DeviceSlice<'_, T> {
        pub(crate) fn ordered(mut self) -> Self {
            self.owned = true;
            self
        }
    }

    impl<T: Pod> DeviceSliceMut<'_, T> {
        pub(crate) fn ordered(mut self) -> Self {
            self.owned = true;
            self
        }
    }
}
