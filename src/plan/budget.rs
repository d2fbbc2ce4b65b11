//! The one account of members that may be down because of us: `maxUnavailable`, less those that are meant to
//! run and are not available for whatever reason. Whoever takes an available member down takes from it; what
//! scale-in, detaching and users' deletes remove is in neither count.

/// What is left of `maxUnavailable`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    most: usize,
    spent: usize,
}

impl Budget {
    /// Of so many.
    pub(super) fn of(most: u32) -> Self {
        Self {
            most: most as usize,
            spent: 0,
        }
    }

    /// So many are down already, or about to be. It may be more than there is.
    pub(super) fn spend(&mut self, down: usize) {
        self.spent += down;
    }

    /// Takes one, if there is one left.
    pub(super) fn take(&mut self) -> bool {
        let has = self.spent < self.most;
        self.spent += usize::from(has);
        has
    }

    /// Whether no more are down, or about to be, than may be.
    pub(super) fn is_kept(self) -> bool {
        self.spent <= self.most
    }

    /// How many are down or about to be.
    pub(super) fn spent(self) -> usize {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use super::*;
    use crate::api::quantity::max_unavailable;

    #[test]
    fn ro_05_percentages_are_rounded_down_and_at_least_one() {
        let quarter = |replicas| max_unavailable(None, replicas);
        assert_eq!([0, 1, 3, 4, 7, 8, 10].map(quarter), [1, 1, 1, 1, 1, 2, 2]);
        let of = |value: IntOrString| max_unavailable(Some(&value), 10);
        assert_eq!(of(IntOrString::Int(3)), 3);
        assert_eq!(of(IntOrString::String("100%".to_owned())), 10);
        assert_eq!(of(IntOrString::String("1%".to_owned())), 1);
    }

    #[test]
    fn what_is_down_is_spent_and_more_than_there_is_leaves_nothing() {
        let mut budget = Budget::of(3);
        budget.spend(1);
        assert!(budget.take() && budget.take() && !budget.take());
        let mut budget = Budget::of(1);
        budget.spend(5);
        assert!(!budget.take());
        assert_eq!(budget.spent(), 5);
    }
}
