//! Medians and their company. Pure.

/// One number, measured once or several times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample(Vec<f64>);

impl Sample {
    pub(super) fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// The middle one, or the mean of the two in the middle.
    pub(super) fn median(&self) -> Option<f64> {
        let (values, half) = (&self.0, self.0.len() / 2);
        match values.len() {
            0 => None,
            count if count % 2 == 1 => Some(values[half]),
            _ => Some(f64::midpoint(values[half - 1], values[half])),
        }
    }

    pub(super) fn min(&self) -> Option<f64> {
        self.0.first().copied()
    }

    pub(super) fn max(&self) -> Option<f64> {
        self.0.last().copied()
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Counts here are far below the integers that an f64 holds exactly.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
pub(super) fn count(value: usize) -> f64 {
    value as f64
}

/// The value below which this part of them is, by the nearest rank; 0 of none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank is between 0 and the number of values"
)]
pub(super) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * count(sorted.len())).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[f64]) -> Sample {
        let mut sample = Sample::default();
        values.iter().for_each(|value| sample.push(*value));
        sample
    }

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(sample(&[]).median(), None);
        assert_eq!(sample(&[3.0]).median(), Some(3.0));
        assert_eq!(sample(&[9.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(sample(&[4.0, 1.0, 2.0, 9.0]).median(), Some(3.0));
        assert_eq!(sample(&[4.0, 1.0]).min(), Some(1.0));
        assert_eq!(sample(&[4.0, 1.0]).max(), Some(4.0));
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.50).to_bits(), 50.0_f64.to_bits());
        assert_eq!(quantile(&values, 0.99).to_bits(), 99.0_f64.to_bits());
        assert_eq!(quantile(&[7.0], 0.99).to_bits(), 7.0_f64.to_bits());
        assert_eq!(quantile(&[], 0.99).to_bits(), 0.0_f64.to_bits());
    }
}
