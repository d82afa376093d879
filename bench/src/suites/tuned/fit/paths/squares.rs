//! Least squares with numbers that are not negative.

/// Rounds in which the weight of each time is set anew.
const ROUNDS: u32 = 12;
/// Rounds of the descent, at most.
const SWEEPS: u32 = 50_000;
/// What is no change any more, in relation to the number.
const SETTLED: f64 = 1e-9;

/// The numbers `c ≥ 0` with which sums of terms come closest to times, by the squares of `(terms · c − time)` over the
/// geometric mean of the two: nearly the squares of the logarithms of their ratio.
pub(super) fn fit(rows: &[(Vec<f64>, f64)]) -> Vec<f64> {
    let Some(count) = rows.first().map(|(terms, _)| terms.len()) else { return Vec::new() };
    let mut found = vec![0.0; count];
    let mut weights: Vec<f64> = rows.iter().map(|(_, time)| 1.0 / (time * time)).collect();
    for _ in 0..ROUNDS {
        let mut squares = vec![vec![0.0; count]; count];
        let mut products = vec![0.0; count];
        for ((terms, time), weight) in rows.iter().zip(&weights) {
            for (at, term) in terms.iter().enumerate() {
                products[at] += weight * term * time;
                for (square, other) in squares[at].iter_mut().zip(terms) {
                    *square += weight * term * other;
                }
            }
        }
        descend(&squares, &products, &mut found);
        for ((terms, time), weight) in rows.iter().zip(&mut weights) {
            *weight = 1.0 / (sum(terms, &found).max(1e-3 * time) * time);
        }
    }
    found
}

/// The sum of terms, each times its number.
pub(super) fn sum(terms: &[f64], numbers: &[f64]) -> f64 {
    terms.iter().zip(numbers).map(|(term, number)| term * number).sum()
}

/// Sets one number after the other to what is best for it, until none changes.
fn descend(squares: &[Vec<f64>], products: &[f64], found: &mut [f64]) {
    for _ in 0..SWEEPS {
        let mut settled = true;
        for at in 0..found.len() {
            if squares[at][at] <= 0.0 {
                continue; // no row has the term
            }
            let others = sum(&squares[at], found) - squares[at][at] * found[at];
            let best = ((products[at] - others) / squares[at][at]).max(0.0);
            settled &= (best - found[at]).abs() <= SETTLED * best.max(found[at]);
            found[at] = best;
        }
        if settled {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_times_were_made_of_is_found() {
        let made_of = [2.0, 0.0, 5.0];
        let rows: Vec<_> = (1..40)
            .map(|i| {
                let x = f64::from(i);
                let terms = vec![1.0, x.sqrt(), x * x / 100.0];
                (terms.clone(), sum(&terms, &made_of))
            })
            .collect();
        for (found, expected) in fit(&rows).iter().zip(made_of) {
            assert!((found - expected).abs() < 1e-3, "{found} {expected}");
        }
        assert!(fit(&[]).is_empty());
    }

    #[test]
    fn no_number_is_negative() {
        // Times that shrink with the term: all of it goes to the constant.
        let rows: Vec<_> = (1..10).map(|i| (vec![1.0, f64::from(i)], 20.0 - f64::from(i))).collect();
        let found = fit(&rows);
        assert!(found[1] == 0.0 && found[0] > 10.0, "{found:?}");
    }
}
