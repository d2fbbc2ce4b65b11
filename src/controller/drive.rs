//! Makes many calls of one kind, as many at a time as a window allows, and stops when it says so. Which
//! calls, and what their answers mean, is the caller's.

use std::future::Future;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::window::Window;

/// What an answer says about calling on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Effect {
    /// It failed, maybe for reasons of its object alone.
    Failed,
    /// It was refused for reasons that hold for all.
    Refused,
    /// It succeeded.
    Succeeded,
}

/// Makes `call` for the `items` in order until the window stops or `goes_on` says no; those under way are
/// always waited for. Returns the answers; items that were not begun have none.
pub(super) async fn drive<T, R, F: Future<Output = R>>(
    window: &mut Window,
    items: impl IntoIterator<Item = T>,
    call: impl Fn(T) -> F,
    effect: impl Fn(&R) -> Effect,
    goes_on: impl Fn() -> bool,
) -> Vec<R> {
    let mut items = items.into_iter();
    let mut under_way = FuturesUnordered::new();
    let mut answers = Vec::new();
    window.begin();
    loop {
        while window.may_start(under_way.len()) && goes_on() {
            let Some(item) = items.next() else { break };
            under_way.push(call(item));
        }
        let Some(answer) = under_way.next().await else {
            return answers;
        };
        match effect(&answer) {
            Effect::Failed => window.failed(),
            Effect::Refused => window.refused(),
            Effect::Succeeded => window.succeeded(),
        }
        answers.push(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[tokio::test]
    async fn calls_overlap_up_to_the_window_and_every_item_is_called() {
        let (now, most) = (Cell::new(0), Cell::new(0));
        let mut window = Window::new(8);
        let answers = drive(
            &mut window,
            0..100,
            |item| {
                let (now, most) = (&now, &most);
                async move {
                    now.set(now.get() + 1);
                    most.set(most.get().max(now.get()));
                    tokio::task::yield_now().await;
                    now.set(now.get() - 1);
                    item
                }
            },
            |_| Effect::Succeeded,
            || true,
        )
        .await;
        assert_eq!(answers.len(), 100);
        assert_eq!(most.get(), 8);
    }

    #[tokio::test]
    async fn a_failing_call_does_not_keep_the_others_from_being_made() {
        let mut window = Window::new(8);
        let failing = |item: &u32| {
            if item.is_multiple_of(4) {
                Effect::Failed
            } else {
                Effect::Succeeded
            }
        };
        let answers = drive(
            &mut window,
            0..40,
            |item| async move { item },
            failing,
            || true,
        )
        .await;
        assert_eq!(answers.len(), 40);
    }

    #[tokio::test]
    async fn a_refusal_stops_what_has_not_begun() {
        let begun = RefCell::new(Vec::new());
        let mut window = Window::new(8);
        let answers = drive(
            &mut window,
            0..100,
            |item| {
                begun.borrow_mut().push(item);
                async move { item }
            },
            |item| {
                if *item == 20 {
                    Effect::Refused
                } else {
                    Effect::Succeeded
                }
            },
            || true,
        )
        .await;
        assert_eq!(
            answers.len(),
            begun.borrow().len(),
            "what began is answered"
        );
        assert!(answers.len() >= 21 && answers.len() < 40);
    }
}
