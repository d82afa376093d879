//! Elements of arrays in host memory.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};

use windrow::MatRef;

use super::Array;
use crate::error::{Class, Fault, Outcome, dtype};
use crate::numpy::Item;

impl Array<'_> {
    /// Elements from the first to the last: those between are there, too.
    pub(super) fn span(&self) -> usize {
        let last = |(&extent, &stride): (&usize, &isize)| (extent - 1) * stride.unsigned_abs();
        match self.shape.contains(&0) {
            true => 0,
            false => 1 + self.shape.iter().zip(&self.strides).map(last).sum::<usize>(),
        }
    }

    /// The elements where they are, in host memory, those between rows, too.
    ///
    /// # Safety
    /// The array is in host memory and [goes forward](Self::forward), holds elements of type `T`, and nothing writes
    /// them for as long as they are used: other threads of Python are trusted not to, as with numpy's own functions.
    pub(crate) unsafe fn elements<T>(&self) -> &[T] {
        let (len, address) = (self.span(), at(self.address));
        // SAFETY: the owner has promised that they are there as long as it lives, and it is kept.
        if len == 0 { &[] } else { unsafe { from_raw_parts(with_exposed_provenance(address), len) } }
    }

    /// The elements, to be written.
    ///
    /// # Safety
    /// As for [`elements`](Self::elements), and nothing else uses them.
    pub(crate) unsafe fn elements_mut<T>(&mut self) -> &mut [T] {
        let (len, address) = (self.span(), at(self.address));
        if len == 0 {
            &mut []
        } else {
            // SAFETY: as above.
            unsafe { from_raw_parts_mut(with_exposed_provenance_mut(address), len) }
        }
    }

    /// The matrix in host memory.
    ///
    /// # Safety
    /// As for [`elements`](Self::elements).
    pub(crate) unsafe fn mat_ref<T>(&self) -> Outcome<MatRef<'_, T>> {
        let (shape, strides) = self.matrix()?;
        // SAFETY: the caller's promise.
        Ok(MatRef::try_new(unsafe { self.elements() }, shape, strides)?)
    }

    /// A copy of a one-dimensional array of type `T` in host memory.
    pub(crate) fn to_vec<T: Copy>(&self) -> Outcome<Vec<T>> {
        let len = self.len()?;
        // SAFETY: who asks has looked at type and place.
        let elements = unsafe { self.elements::<T>() };
        let stride = self.strides[0].unsigned_abs().max(1);
        Ok(elements.iter().step_by(stride).take(len).copied().collect())
    }

    /// A copy of a one-dimensional array of whole numbers of any type, in host memory.
    pub(crate) fn whole_numbers<T>(&self) -> Outcome<Vec<T>>
    where
        T: TryFrom<i8> + TryFrom<i16> + TryFrom<i32> + TryFrom<i64>,
        T: TryFrom<u8> + TryFrom<u16> + TryFrom<u32> + TryFrom<u64>,
    {
        match self.item {
            // An empty list is one of numbers of f64 to numpy.
            _ if self.len()? == 0 => Ok(Vec::new()),
            Item::I8 => self.converted::<i8, T>(),
            Item::I16 => self.converted::<i16, T>(),
            Item::I32 => self.converted::<i32, T>(),
            Item::I64 => self.converted::<i64, T>(),
            Item::U8 => self.converted::<u8, T>(),
            Item::U16 => self.converted::<u16, T>(),
            Item::U32 => self.converted::<u32, T>(),
            Item::U64 => self.converted::<u64, T>(),
            Item::Value(_) | Item::Bool => dtype(format!(
                "{0} holds {1} but must hold whole numbers; convert it with {0}.astype(numpy.int64)",
                self.what, self.item
            )),
        }
    }

    fn converted<S: Copy + std::fmt::Display, T: TryFrom<S>>(&self) -> Outcome<Vec<T>> {
        let given = self.to_vec::<S>()?;
        let converted = given.iter().enumerate().map(|(at, &number)| {
            T::try_from(number).map_err(|_| {
                let rule = match number.to_string().starts_with('-') {
                    true => "they are counted from 0".to_owned(),
                    false => format!("they have {} bits; split what it is of", 8 * size_of::<T>()),
                };
                let text = format!("{}[{at}] is {number}, which is no index: {rule}", self.what);
                Fault::new(Class::Format, text)
            })
        });
        converted.collect()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "addresses are 64 bits wherever CUDA is")]
fn at(address: u64) -> usize {
    address as usize
}
