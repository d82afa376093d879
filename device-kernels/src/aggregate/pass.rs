//! What passes over entries add up or pick.

use super::NO_WINNER;

/// What a pass adds up or picks.
pub trait AggregatePass: 'static {
    /// Whether the result is one of the messages, and which is kept.
    const PICKS: bool;
    /// Whether it is the gradient of `X`, over the columns of the matrix.
    const BACKWARD: bool;
    /// What no message gives.
    const NOTHING: Picked =
        Picked { number: if Self::PICKS { f32::NEG_INFINITY } else { 0.0 }, winner: NO_WINNER };

    /// Adds a number that is joined of several messages.
    #[inline(always)]
    fn take(into: &mut Picked, other: Picked) {
        if Self::PICKS {
            if other.wins_over(*into) {
                *into = other;
            }
        } else {
            into.number += other.number;
        }
    }
}

/// The sum of messages, of which a mean is made.
pub struct Sums;
/// The largest message; with a negative sign the least.
pub struct Extremes;
/// The sum of the gradients of messages, of those that won if winners are kept.
pub struct Gradients;

impl AggregatePass for Sums {
    const PICKS: bool = false;
    const BACKWARD: bool = false;
}

impl AggregatePass for Extremes {
    const PICKS: bool = true;
    const BACKWARD: bool = false;
}

impl AggregatePass for Gradients {
    const PICKS: bool = false;
    const BACKWARD: bool = true;
}

/// A number, and where the entry is that it came from.
#[derive(Clone, Copy)]
pub struct Picked {
    pub(super) number: f32,
    pub(super) winner: u32,
}

impl Picked {
    /// The first of what is no number before all, then the largest, then the first.
    #[inline(always)]
    fn wins_over(self, other: Self) -> bool {
        match (self.number.is_nan(), other.number.is_nan()) {
            (true, false) => true,
            (false, true) => false,
            (false, false) if self.number != other.number => self.number > other.number,
            _ => self.winner < other.winner,
        }
    }
}
