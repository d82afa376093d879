//! Loops over a handful of numbers, unrolled by hand: the arrays that they index stay in registers.

/// Calls `body` with 0, 1, 2, 3; unrolled, so that arrays indexed by it stay in registers.
#[inline(always)]
pub(crate) fn each4(mut body: impl FnMut(usize)) {
    body(0);
    body(1);
    body(2);
    body(3);
}

/// Calls `body` with `0..N`, at most 16; unrolled, so that arrays indexed by it stay in registers.
#[inline(always)]
pub(crate) fn each<const N: usize>(mut body: impl FnMut(usize)) {
    const { assert!(N <= 16) }
    let mut four = |first: usize| {
        if first < N {
            body(first);
        }
        if first + 1 < N {
            body(first + 1);
        }
        if first + 2 < N {
            body(first + 2);
        }
        if first + 3 < N {
            body(first + 3);
        }
    };
    four(0);
    four(4);
    four(8);
    four(12);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen_by_each<const N: usize>() -> Vec<usize> {
        let mut seen = Vec::new();
        each::<N>(|i| seen.push(i));
        seen
    }

    #[test]
    fn every_number_comes_once_and_in_order() {
        let mut seen = Vec::new();
        each4(|i| seen.push(i));
        assert_eq!(seen, [0, 1, 2, 3]);
        assert_eq!(seen_by_each::<0>(), []);
        assert_eq!(seen_by_each::<5>(), [0, 1, 2, 3, 4]);
        assert_eq!(seen_by_each::<16>(), (0..16).collect::<Vec<_>>());
    }
}
