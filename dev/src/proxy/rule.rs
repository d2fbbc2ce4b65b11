//! Which requests a fault befalls, and which fault. Pure: a rule is offered a request and says
//! whether it acts; what the action does is done by others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;

use super::answer::Answer;

/// A request as the proxy saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Counted from 0 since the proxy was started.
    pub number: usize,
    /// When it came.
    pub at: Instant,
    /// GET for a watch too.
    pub method: Method,
    /// Without the query.
    pub path: String,
    /// Without the question mark.
    pub query: String,
    /// The program that asks.
    pub user_agent: String,
}

impl Seen {
    /// Whether it asks for a stream of events.
    pub fn is_watch(&self) -> bool {
        let mut parts = self.query.split('&');
        parts.any(|part| matches!(part, "watch=true" | "watch=1"))
    }
}

/// What befalls a request. Those with `after` count the events of a watch, bookmarks too.
#[derive(Clone, Debug)]
pub enum Action {
    /// Answers instead of the API server, which never hears of the request.
    Answer(Answer),
    /// Ends a watch after so many events, or when [fired](super::RuleHandle::fire): like a server
    /// that has had enough of it, or like a connection that breaks.
    CutWatch {
        /// So many events get through.
        after: usize,
        /// With a proper end.
        cleanly: bool,
    },
    /// Forwards the request later.
    DelayRequest(Duration),
    /// Lets every event of a watch through later.
    DelayWatch(Duration),
    /// Closes the connection; the API server never hears of the request.
    DropRequest,
    /// Ends a watch with the event that says that its resource version is too old (410), after so
    /// many events or when [fired](super::RuleHandle::fire).
    ExpireWatch {
        /// So many events get through.
        after: usize,
    },
    /// Forwards the request, and answers when [released](super::RuleHandle::release).
    HoldAnswer,
    /// Forwards the request when [released](super::RuleHandle::release).
    HoldRequest,
    /// Lets so many events of a watch through, and the others when
    /// [released](super::RuleHandle::release).
    HoldWatch {
        /// So many events get through at once.
        after: usize,
    },
    /// Forwards the request, and closes the connection instead of answering.
    LoseAnswer,
}

impl Action {
    /// For records and error texts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Answer(_) => "answer",
            Self::CutWatch { .. } => "cut watch",
            Self::DelayRequest(_) => "delay request",
            Self::DelayWatch(_) => "delay watch",
            Self::DropRequest => "drop request",
            Self::ExpireWatch { .. } => "expire watch",
            Self::HoldAnswer => "hold answer",
            Self::HoldRequest => "hold request",
            Self::HoldWatch { .. } => "hold watch",
            Self::LoseAnswer => "lose answer",
        }
    }

    /// Whether nothing is forwarded, so that further rules would have nothing to act on.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::DropRequest)
    }

    /// Whether it acts on the events of a watch.
    pub(super) fn is_for_watches(&self) -> bool {
        matches!(
            self,
            Self::CutWatch { .. }
                | Self::DelayWatch(_)
                | Self::ExpireWatch { .. }
                | Self::HoldWatch { .. }
        )
    }
}

type Predicate = Arc<dyn Fn(&Seen) -> bool + Send + Sync>;

/// An action, and the requests that it is for: those for which everything asked of them is true.
#[derive(Clone)]
pub struct Rule {
    pub(super) action: Action,
    conditions: Vec<Predicate>,
    skip: u64,
    times: u64,
    chance: Option<(f64, u64)>,
}

impl Rule {
    /// For every request, or every watch if it is an action on watches.
    pub fn new(action: Action) -> Self {
        let only_watches = action.is_for_watches();
        let rule = Self {
            action,
            conditions: Vec::new(),
            skip: 0,
            times: u64::MAX,
            chance: None,
        };
        if only_watches { rule.watches() } else { rule }
    }

    /// Answers with this instead of the API server.
    pub fn answer(answer: Answer) -> Self {
        Self::new(Action::Answer(answer))
    }

    /// For requests of which this is true.
    pub fn when(mut self, condition: impl Fn(&Seen) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Arc::new(condition));
        self
    }

    /// For this method: `"POST"`.
    pub fn method(self, method: &'static str) -> Self {
        self.when(move |seen| seen.method == method)
    }

    /// For requests that may change something.
    pub fn writes(self) -> Self {
        self.when(|seen| !matches!(seen.method, Method::GET | Method::HEAD | Method::OPTIONS))
    }

    /// For paths with this in them.
    pub fn path(self, part: impl Into<String>) -> Self {
        let part = part.into();
        self.when(move |seen| seen.path.contains(&part))
    }

    /// For paths that end so: `"/virtualmachines"` is the collection, not one of them.
    pub fn path_end(self, end: impl Into<String>) -> Self {
        let end = end.into();
        self.when(move |seen| seen.path.ends_with(&end))
    }

    /// For queries with this in them.
    pub fn query(self, part: impl Into<String>) -> Self {
        let part = part.into();
        self.when(move |seen| seen.query.contains(&part))
    }

    /// For watches.
    pub fn watches(self) -> Self {
        self.when(Seen::is_watch)
    }

    /// For everything but watches.
    pub fn except_watches(self) -> Self {
        self.when(|seen| !seen.is_watch())
    }

    /// For programs with this in their user agent.
    pub fn user_agent(self, part: impl Into<String>) -> Self {
        let part = part.into();
        self.when(move |seen| seen.user_agent.contains(&part))
    }

    /// Leaves out the first so many of these requests.
    pub fn skip(mut self, requests: u64) -> Self {
        self.skip = requests;
        self
    }

    /// Acts so many times.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Acts with this probability, from 0 to 1; the same seed makes the same choices.
    pub fn chance(mut self, probability: f64, seed: u64) -> Self {
        self.chance = Some((probability, seed));
        self
    }
}

/// A rule and what has become of it.
pub(super) struct Tally {
    pub(super) rule: Rule,
    offered: u64,
    pub(super) hits: u64,
    random: u64,
}

impl Tally {
    pub(super) fn new(rule: Rule) -> Self {
        let random = rule.chance.map_or(0, |(_, seed)| seed);
        Self {
            rule,
            offered: 0,
            hits: 0,
            random,
        }
    }

    /// Whether the rule acts on this request; counted.
    pub(super) fn offer(&mut self, seen: &Seen) -> bool {
        if !self.rule.conditions.iter().all(|condition| condition(seen)) {
            return false;
        }
        self.offered += 1;
        if self.offered <= self.rule.skip || self.hits >= self.rule.times {
            return false;
        }
        if let Some((probability, _)) = self.rule.chance
            && self.next_random() >= probability
        {
            return false;
        }
        self.hits += 1;
        true
    }

    /// SplitMix64, as a number from 0 to below 1.
    fn next_random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let high = u32::try_from(mixed >> 32).expect("32 bits are left");
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(method: &str, target: &str) -> Seen {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Seen {
            number: 0,
            at: Instant::now(),
            method: method.parse().unwrap(),
            path: path.into(),
            query: query.into(),
            user_agent: "vmpool/0.1".into(),
        }
    }

    const POOLS: &str = "/apis/pool/v1/namespaces/n/pools";

    #[test]
    fn everything_asked_of_a_request_must_be_true() {
        let acts =
            |rule: Rule, method: &str, target: &str| Tally::new(rule).offer(&seen(method, target));
        let drop = || Rule::new(Action::DropRequest);
        assert!(acts(drop(), "GET", POOLS));
        assert!(acts(drop().method("POST").path("/pools"), "POST", POOLS));
        assert!(!acts(drop().method("POST").path("/pools"), "GET", POOLS));
        assert!(!acts(drop().path("/pods"), "GET", POOLS));
        assert!(acts(drop().path_end("/pools"), "GET", POOLS));
        assert!(!acts(
            drop().path_end("/pools"),
            "GET",
            &format!("{POOLS}/p")
        ));
        assert!(acts(drop().writes(), "PATCH", POOLS));
        assert!(!acts(drop().writes(), "GET", POOLS));
        assert!(acts(drop().user_agent("vmpool"), "GET", POOLS));
        assert!(!acts(drop().user_agent("kubectl"), "GET", POOLS));
        let limited = format!("{POOLS}?limit=500");
        assert!(acts(drop().query("limit="), "GET", &limited));
        assert!(!acts(drop().when(|seen| seen.number > 0), "GET", POOLS));
    }

    #[test]
    fn an_action_on_watches_leaves_other_requests_alone() {
        let mut cut = Tally::new(Rule::new(Action::CutWatch {
            after: 0,
            cleanly: true,
        }));
        assert!(!cut.offer(&seen("GET", POOLS)));
        assert!(!cut.offer(&seen("GET", &format!("{POOLS}?watch=false"))));
        assert!(cut.offer(&seen("GET", &format!("{POOLS}?a=b&watch=true"))));
        assert!(cut.offer(&seen("GET", &format!("{POOLS}?watch=1&a=b"))));
    }

    #[test]
    fn only_fitting_requests_are_skipped_and_counted() {
        let mut rule = Tally::new(
            Rule::new(Action::LoseAnswer)
                .method("POST")
                .skip(1)
                .times(2),
        );
        let post = seen("POST", POOLS);
        assert!(!rule.offer(&seen("GET", POOLS)));
        let acted: Vec<bool> = (0..5).map(|_| rule.offer(&post)).collect();
        assert_eq!(acted, [false, true, true, false, false]);
        assert_eq!(rule.hits, 2);
    }

    #[test]
    fn a_seed_makes_the_same_choices_at_about_the_given_rate() {
        let choices = |seed| {
            let mut rule = Tally::new(Rule::new(Action::DropRequest).chance(0.25, seed));
            (0..1000)
                .map(|_| rule.offer(&seen("GET", POOLS)))
                .collect::<Vec<_>>()
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
        let hits = choices(7).into_iter().filter(|hit| *hit).count();
        assert!((200..300).contains(&hits), "{hits}");
    }
}
