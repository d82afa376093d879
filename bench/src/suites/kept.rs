//! What the cases of one matrix and width share: operands, peers, plans.

/// A value that is made when it is first asked for under a key, and kept until another key is asked for.
#[derive(Debug)]
pub(crate) struct Kept<K, T>(Option<(K, T)>);

impl<K, T> Default for Kept<K, T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: PartialEq, T> Kept<K, T> {
    /// The value of `key`. The one of another key is dropped before it is made: both may not fit a device.
    ///
    /// # Errors
    /// That of `make`; the next call makes it again.
    pub(crate) fn get<E>(&mut self, key: K, make: impl FnOnce() -> Result<T, E>) -> Result<&mut T, E> {
        if self.0.as_ref().is_none_or(|(of, _)| *of != key) {
            self.0 = None;
            let made = make()?;
            return Ok(&mut self.0.insert((key, made)).1);
        }
        match &mut self.0 {
            Some((_, kept)) => Ok(kept),
            None => unreachable!("there is one of this key"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_once_for_each_run_of_a_key() {
        let (mut kept, mut made) = (Kept::default(), Vec::new());
        for key in [1, 1, 2, 2, 1] {
            let value = kept.get(key, || {
                made.push(key);
                Ok::<_, ()>(10 * key)
            });
            assert_eq!(value, Ok(&mut (10 * key)));
        }
        assert_eq!(made, [1, 2, 1]);
        assert_eq!(kept.get(3, || Err("full")), Err("full"));
        assert_eq!(kept.get(3, || Ok::<_, ()>(4)), Ok(&mut 4));
    }
}
