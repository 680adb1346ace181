//! Random numbers of one source of samples: SplitMix64, seeded by the seed of the world and a name.
//!
//! Invariant: a source's numbers depend on its name, not on the other sources.

/// Sequence of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Draws {
    state: u64,
}

impl Draws {
    /// The sequence of the source `name`.
    pub(crate) fn new(seed: u64, name: &str) -> Draws {
        Draws { state: seed ^ xxhash_rust::xxh3::xxh3_64(name.as_bytes()) }
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to before 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `low` to before `high`.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number from 0 to before `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.unit() * bound as f64) as usize
    }

    /// Mean 0, deviation 1: the sum of four uniform draws, scaled.
    pub(crate) fn normal(&mut self) -> f64 {
        let sum = self.unit() + self.unit() + self.unit() + self.unit();
        (sum - 2.0) * 3_f64.sqrt()
    }

    /// A whole number with mean and variance `mean`: exact for small means, else by the normal distribution.
    pub(crate) fn poisson(&mut self, mean: f64) -> f64 {
        if mean > 12.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let floor = (-mean).exp();
        let mut product = self.unit();
        let mut count = 0.0;
        while product > floor {
            product *= self.unit();
            count += 1.0;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::Draws;

    #[test]
    fn poisson_has_its_mean_on_both_sides_of_the_switch() {
        for mean in [0.5, 11.0, 13.0, 400.0] {
            let mut draws = Draws::new(1, "mean");
            let sum: f64 = (0..20_000).map(|_| draws.poisson(mean)).sum();
            let found = sum / 20_000.0;
            assert!((found - mean).abs() < 0.03 * mean, "mean {mean}, found {found}");
        }
    }

    #[test]
    fn names_and_seeds_have_their_own_numbers() {
        let first = |seed, name| Draws::new(seed, name).bits();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }
}
