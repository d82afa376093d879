//! A small deterministic generator: the same seed gives the same cases everywhere.

/// `SplitMix64` (Steele, Lea and Flood 2014): 64 bits of state, one multiply-xor-shift chain per number.
///
/// # Examples
/// ```
/// use windrow_testkit::SplitMix64;
///
/// let mut rng = SplitMix64::new(0);
/// assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
/// assert!(rng.below(7) < 7);
/// ```
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The stream that belongs to `seed`; any seed is good.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; the bias of the multiplication is below `bound / 2⁶⁴`.
    ///
    /// # Panics
    /// If `bound` is 0, since there is no such number.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        let high = (u128::from(self.next_u64()) * bound as u128) >> 64;
        usize::try_from(high).expect("below a usize")
    }

    /// A number in `low..=high`.
    ///
    /// # Panics
    /// If `low` exceeds `high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// A whole number in −4..=4.
    pub fn integer(&mut self) -> f32 {
        [-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0][self.below(9)]
    }

    /// A number in −1..1 with 24 random bits.
    pub fn real(&mut self) -> f32 {
        let [_, _, _, _, _, a, b, c] = self.next_u64().to_be_bytes();
        let high = f32::from(u16::from_be_bytes([a, b])); // < 2^16
        (high * 256.0 + f32::from(c)) / 8_388_608.0 - 1.0 // 24 bits over 2^23: exact in f32
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    #[test]
    fn the_published_stream() {
        // First outputs for seed 1234567, as in the reference implementation's tests.
        let mut rng = SplitMix64::new(1_234_567);
        let want = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([rng.next_u64(), rng.next_u64(), rng.next_u64()], want);
    }

    #[test]
    fn ranges_are_respected_and_reached() {
        let mut rng = SplitMix64::new(1);
        let mut seen = [0u32; 9];
        for _ in 0..2000 {
            let x = rng.integer();
            assert!((-4.0..=4.0).contains(&x) && x.fract() == 0.0);
            seen[rng.below(9)] += 1;
            assert!((-1.0..1.0).contains(&rng.real()));
            assert!((3..=5).contains(&rng.between(3, 5)));
        }
        assert!(seen.iter().all(|&count| (150..300).contains(&count)), "{seen:?}");
    }
}
