//! Holds back, expires and cuts the events of one watch. A watch is one JSON object a line, cut
//! into frames anywhere; actions are on whole events.

use std::collections::VecDeque;

use axum::body::Bytes;
use futures::{Stream, StreamExt, stream};
use kube::client::Body;

use super::answer::Answer;
use super::rule::Action;
use super::{Chosen, Lost};

/// What comes out of the proxy for a watch that these rules act on.
pub(super) fn events(
    body: Body,
    rules: Vec<Chosen>,
) -> impl Stream<Item = Result<Bytes, Lost>> + Send + 'static {
    use http_body_util::BodyExt;
    let frames = body.into_data_stream().map(|frame| frame.map_err(|_| Lost));
    transform(frames, rules)
}

fn transform(
    frames: impl Stream<Item = Result<Bytes, Lost>> + Send + 'static,
    rules: Vec<Chosen>,
) -> impl Stream<Item = Result<Bytes, Lost>> + Send + 'static {
    let watch = Watch {
        frames: frames.boxed(),
        partial: Vec::new(),
        lines: VecDeque::new(),
        rules,
        passed: 0,
        ended: false,
    };
    stream::unfold(watch, |mut watch| async move {
        let next = watch.next().await?;
        Some((next, watch))
    })
}

struct Watch {
    frames: stream::BoxStream<'static, Result<Bytes, Lost>>,
    partial: Vec<u8>,
    lines: VecDeque<Bytes>,
    rules: Vec<Chosen>,
    passed: usize,
    ended: bool,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Bytes, Lost>> {
        if self.ended {
            return None;
        }
        // Before an event is waited for: a cut needs none.
        if let Some(end) = self.due_end() {
            return self.end(&end);
        }
        let mut fired: Vec<Chosen> = self.rules.clone();
        let end = async move {
            let ends = fired.iter_mut().filter(|rule| is_end(&rule.action));
            let ends = ends.map(|rule| Box::pin(rule.released_action()));
            let ends: Vec<_> = ends.collect();
            if ends.is_empty() {
                return std::future::pending().await;
            }
            futures::future::select_all(ends).await.0
        };
        let event = async {
            let line = self.line().await;
            if line.is_some() {
                self.hold_back().await;
            }
            line
        };
        tokio::select! {
            biased;
            end = end => self.end(&end),
            line = event => {
                match &line {
                    Some(Ok(_)) => self.passed += 1,
                    Some(Err(Lost)) | None => self.ended = true,
                }
                line
            }
        }
    }

    /// The action that ends the watch now, for as many events as it allows have passed.
    fn due_end(&self) -> Option<Action> {
        let mut rules = self.rules.iter();
        let due = rules.find(|rule| match rule.action {
            Action::CutWatch { after, .. } | Action::ExpireWatch { after } => self.passed >= after,
            _ => false,
        });
        due.map(|rule| rule.action.clone())
    }

    fn end(&mut self, action: &Action) -> Option<Result<Bytes, Lost>> {
        self.ended = true;
        match action {
            Action::CutWatch { cleanly: true, .. } => None,
            Action::ExpireWatch { .. } => Some(Ok(Answer::expired().event())),
            _ => Some(Err(Lost)),
        }
    }

    async fn hold_back(&mut self) {
        for rule in &mut self.rules {
            match rule.action {
                Action::DelayWatch(time) => tokio::time::sleep(time).await,
                Action::HoldWatch { after } if self.passed >= after => rule.released().await,
                _ => {}
            }
        }
    }

    /// The next whole line; what follows the last one is lost with the connection.
    async fn line(&mut self) -> Option<Result<Bytes, Lost>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(line));
            }
            let frame = match self.frames.next().await? {
                Ok(frame) => frame,
                Err(lost) => return Some(Err(lost)),
            };
            for part in frame.split_inclusive(|byte| *byte == b'\n') {
                self.partial.extend_from_slice(part);
                if part.ends_with(b"\n") {
                    let line = std::mem::take(&mut self.partial);
                    self.lines.push_back(Bytes::from(line));
                }
            }
        }
    }
}

pub(super) fn is_end(action: &Action) -> bool {
    matches!(action, Action::CutWatch { .. } | Action::ExpireWatch { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::watch;

    fn chosen(action: Action) -> (watch::Sender<bool>, Chosen) {
        let (sender, released) = watch::channel(false);
        (sender, Chosen { action, released })
    }

    /// Three events in frames that end anywhere.
    fn frames() -> impl Stream<Item = Result<Bytes, Lost>> + Send + 'static {
        let frames = ["{1", "}\n{2}\n{", "3}\n"];
        stream::iter(frames.map(|frame| Ok(Bytes::from(frame))))
    }

    async fn pass(rules: Vec<Chosen>) -> Vec<Result<String, Lost>> {
        let text = |event: Bytes| String::from_utf8(event.to_vec()).unwrap();
        transform(frames(), rules)
            .map(|event| event.map(text))
            .collect()
            .await
    }

    #[tokio::test]
    async fn events_come_whole_and_in_order() {
        let events = pass(Vec::new()).await;
        let events: Vec<String> = events.into_iter().map(Result::unwrap).collect();
        assert_eq!(events, ["{1}\n", "{2}\n", "{3}\n"]);
    }

    #[tokio::test]
    async fn a_cut_and_an_expiry_come_after_as_many_events_as_they_allow() {
        let cut = |after, cleanly| chosen(Action::CutWatch { after, cleanly });
        let (_keep, clean) = cut(1, true);
        assert_eq!(pass(vec![clean]).await, [Ok("{1}\n".to_owned())]);
        let (_keep, broken) = cut(0, false);
        assert_eq!(pass(vec![broken]).await, [Err(Lost)]);
        let (_keep, expire) = chosen(Action::ExpireWatch { after: 2 });
        let events = pass(vec![expire]).await;
        assert_eq!(events.len(), 3);
        assert!(events[2].as_ref().unwrap().contains("410"));
    }

    #[tokio::test]
    async fn held_events_come_once_they_are_released() {
        let (sender, hold) = chosen(Action::HoldWatch { after: 1 });
        let mut events = Box::pin(transform(frames(), vec![hold]));
        assert_eq!(events.next().await.unwrap().unwrap(), "{1}\n");
        let wait = Duration::from_millis(50);
        let early = tokio::time::timeout(wait, events.next()).await;
        assert!(early.is_err(), "{early:?}");
        sender.send(true).unwrap();
        // The line that was waited for in vain is not lost.
        assert_eq!(events.next().await.unwrap().unwrap(), "{2}\n");
        assert_eq!(events.next().await.unwrap().unwrap(), "{3}\n");
    }

    #[tokio::test]
    async fn a_cut_that_is_fired_needs_no_event() {
        let action = Action::CutWatch {
            after: usize::MAX,
            cleanly: true,
        };
        let (sender, cut) = chosen(action);
        let mut events = Box::pin(transform(stream::pending(), vec![cut]));
        sender.send(true).unwrap();
        assert!(events.next().await.is_none());
    }
}
