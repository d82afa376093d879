//! Compares a result with the reference, element by element.

use std::fmt;

use windrow_formats::Value;

use crate::{Case, Output, PADDING_MARK, Reference, error_bound, spmm};

/// Where a result stands against the reference; by default, nothing was compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    /// How many elements were compared.
    pub elements: usize,
    /// Elements that are wrong.
    pub failures: usize,
    /// The largest `|got − want| / bound`; above 1 is wrong. 0 where the numbers are equal, infinite where
    /// an exact result differs or where NaN or an infinity stands for another number.
    pub worst_ratio: f64,
    /// `(row, column)` of that element; `None` if nothing was compared.
    pub worst_at: Option<(usize, usize)>,
    /// What the result has there.
    pub got: f64,
    /// What the reference has there.
    pub want: f64,
    /// `(row, column)` of the first padding element of `C` that was overwritten.
    pub overwritten_padding: Option<(usize, usize)>,
}

impl Comparison {
    /// Whether every element is within its bound and the padding is untouched.
    pub fn passed(&self) -> bool {
        self.failures == 0 && self.overwritten_padding.is_none()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.worst_at {
            None => write!(f, "no elements")?,
            Some((row, column)) => write!(
                f,
                "{} of {} elements wrong; worst at ({row}, {column}): got {:e}, want {:e}, {:.3} of the bound",
                self.failures, self.elements, self.got, self.want, self.worst_ratio
            )?,
        }
        match self.overwritten_padding {
            None => Ok(()),
            Some((row, column)) => write!(f, "; padding overwritten at ({row}, {column})"),
        }
    }
}

/// Compares `got`, row-major with leading dimension `ld`, with the reference of `case`.
///
/// `u` is the unit roundoff of the accumulation ([`UNIT_FMA`](crate::UNIT_FMA) or
/// [`UNIT_MMA`](crate::UNIT_MMA)); the type of `got` adds that of its store. An [exact](Case::exact) case
/// must give the reference rounded once to that type; zeros of either sign are equal. Where the reference
/// is NaN or infinite, so must the result be. If `ld` is the case's own `ldc`, elements between `n` and
/// `ld` must still hold [`PADDING_MARK`].
///
/// # Panics
/// If `got` has fewer than `(m − 1)·ld + n` elements, or `reference` is not that of `case`.
pub fn compare<V: Output>(case: &Case, reference: &Reference, got: &[V], ld: usize, u: f64) -> Comparison {
    let (m, n) = (case.m(), case.n);
    assert_eq!(reference.want.len(), m * n, "the reference belongs to another case");
    let padding = (ld == case.ldc).then_some(ld);
    compare_elements((m, n), (got, ld), padding, |row, column, element: V| {
        let (want, abs_sum) = (reference.want[row * n + column], reference.abs_sum[row * n + column]);
        let ratio = if case.exact {
            exact_ratio(element, want)
        } else {
            let bound = error_bound::<V>(want, abs_sum, case.a.row_len(row), u);
            ratio::<V>(element.to_f64(), want, bound)
        };
        (ratio, want)
    })
}

/// Compares every element of an m × n result with leading dimension `ld`, and its padding up to `padding` elements a
/// row, if that is known to be marked. `ratio_of` says how far an element is off, and what it should be.
pub(crate) fn compare_elements<V: Output>(
    (m, n): (usize, usize),
    (got, ld): (&[V], usize),
    padding: Option<usize>,
    ratio_of: impl Fn(usize, usize, V) -> (f64, f64),
) -> Comparison {
    let mut result = Comparison { elements: m * n, worst_ratio: -1.0, ..Comparison::default() };
    if n == 0 || m == 0 {
        return result;
    }
    let needed = (m - 1) * ld + n;
    assert!(ld >= n && got.len() >= needed, "{} elements, {needed} needed with ld = {ld}", got.len());
    for row in 0..m {
        for column in 0..n {
            let element = got[row * ld + column];
            let (ratio, want) = ratio_of(row, column, element);
            result.failures += usize::from(ratio > 1.0);
            if ratio > result.worst_ratio {
                result.worst_ratio = ratio;
                result.worst_at = Some((row, column));
                (result.got, result.want) = (element.to_f64(), want);
            }
        }
    }
    let mut places = (0..m).flat_map(|row| (n..padding.unwrap_or(n)).map(move |column| (row, column)));
    let mark = V::from_f32(PADDING_MARK);
    result.overwritten_padding =
        places.find(|&(row, column)| got.get(row * ld + column).is_some_and(|&x| x != mark));
    result
}

/// [`compare`] with the reference of the case.
///
/// # Panics
/// If anything differs, with the case's name and the worst element.
#[track_caller]
pub fn assert_matches<V: Output>(case: &Case, got: &[V], ld: usize, u: f64) -> Comparison {
    let comparison = compare(case, &spmm(case), got, ld, u);
    assert!(comparison.passed(), "{}: {comparison}", case.name);
    comparison
}

/// 0 if `got` is `want` rounded to the type, else infinite.
pub(crate) fn exact_ratio<V: Value>(got: V, want: f64) -> f64 {
    let rounded = V::from_f64(want);
    let same = got == rounded || (got.to_f64().is_nan() && rounded.to_f64().is_nan());
    if same { 0.0 } else { f64::INFINITY }
}

/// `|got − want| / bound`, infinite where only one of them is a number.
pub(crate) fn ratio<V: Output>(got: f64, want: f64, bound: f64) -> f64 {
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if want.is_infinite() || got.is_infinite() {
        // A finite reference this close to the type's limit may round to infinity.
        let reaches = want.abs() + bound >= V::OVERFLOW;
        let same = got.is_infinite() && got.signum() == want.signum() && reaches;
        return if same { 0.0 } else { f64::INFINITY };
    }
    // Only a reference beyond the type's range has no finite number near it, and then got is too far.
    (got - want).abs() / bound
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::{Operands, Pattern, SplitMix64, UNIT_FMA, Values};

    fn case(values: Values) -> Case {
        let operands = Operands { n: 3, padding: 2, scalars: (1.0, 1.0), values, poison: false };
        Case::from_pattern("compare", &Pattern::dense(4, 5), operands, &mut SplitMix64::new(5))
    }

    fn right(case: &Case) -> Vec<f32> {
        let mut got = case.c.clone();
        for (at, want) in spmm(case).want.iter().enumerate() {
            got[at / case.n * case.ldc + at % case.n] = f32::from_f64(*want);
        }
        got
    }

    #[test]
    fn the_reference_itself_passes() {
        for case in [case(Values::Integers), case(Values::Reals)] {
            let comparison = assert_matches(&case, &right(&case), case.ldc, UNIT_FMA);
            assert!(comparison.worst_ratio <= 0.5 && comparison.elements == 12);
            let halves: Vec<f16> = right(&case).into_iter().map(f16::from_f32).collect();
            assert!(compare(&case, &spmm(&case), &halves, case.ldc, UNIT_FMA).passed());
        }
    }

    #[test]
    fn one_wrong_element_is_found() {
        for case in [case(Values::Integers), case(Values::Reals)] {
            for (row, column) in [(0, 0), (3, 2), (1, 1)] {
                let mut got = right(&case);
                got[row * case.ldc + column] += 1e-3;
                let comparison = compare(&case, &spmm(&case), &got, case.ldc, UNIT_FMA);
                assert_eq!((comparison.failures, comparison.worst_at), (1, Some((row, column))));
                assert!(!comparison.passed() && comparison.worst_ratio > 1.0);
            }
        }
    }

    #[test]
    fn a_small_error_fails_an_exact_case_only() {
        for (values, passes) in [(Values::Integers, false), (Values::Reals, true)] {
            let case = case(values);
            let got: Vec<f32> = right(&case).into_iter().map(|x| x * (1.0 + f32::EPSILON)).collect();
            assert_eq!(compare(&case, &spmm(&case), &got, case.ldc, UNIT_FMA).failures == 0, passes);
        }
    }

    #[test]
    fn nan_and_infinity_do_not_pass_for_numbers() {
        let case = case(Values::Reals);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut got = right(&case);
            got[0] = bad;
            assert_eq!(compare(&case, &spmm(&case), &got, case.ldc, UNIT_FMA).worst_ratio, f64::INFINITY);
        }
    }

    #[test]
    fn overwritten_padding_is_found() {
        let case = case(Values::Integers);
        let mut got = right(&case);
        got[case.ldc + case.n + 1] = 0.0;
        let comparison = compare(&case, &spmm(&case), &got, case.ldc, UNIT_FMA);
        assert_eq!(comparison.overwritten_padding, Some((1, case.n + 1)));
        assert!(!comparison.passed() && comparison.failures == 0);
        assert!(comparison.to_string().ends_with("padding overwritten at (1, 4)"), "{comparison}");
    }

    #[test]
    fn halves_may_overflow_to_infinity() {
        assert_eq!(ratio::<f16>(f64::INFINITY, 70_000.0, 1.0), 0.0);
        assert_eq!(ratio::<f16>(f64::NEG_INFINITY, 70_000.0, 1.0), f64::INFINITY);
        assert_eq!(ratio::<f16>(f64::INFINITY, 60_000.0, 1.0), f64::INFINITY);
        assert_eq!(ratio::<f32>(f64::INFINITY, 70_000.0, 1.0), f64::INFINITY);
        assert_eq!(ratio::<f32>(f64::INFINITY, f64::INFINITY, f64::INFINITY), 0.0);
    }
}
