//! CC-04: who leads no more writes nothing, whatever it was about to do.

use std::sync::Arc;
use std::time::Duration;

use super::super::supervise::Actor as _;
use super::played::{api_server, led, task, world};
use crate::lease::Leadership;

#[tokio::test]
async fn cc_04_who_leads_no_more_reads_and_plans_and_writes_nothing() {
    let (client, calls) = api_server(|_, _| None);
    let lost = led(client, world(3).done(), Leadership::until(Duration::ZERO));
    task(&lost).pass().await;
    let made = calls.take();
    assert!(
        made.iter().all(|call| call.starts_with("GET ")),
        "it wrote: {made:?}"
    );

    let (client, calls) = api_server(|_, _| None);
    let leads = led(client, world(3).done(), Leadership::forever());
    task(&leads).pass().await;
    let made = calls.take();
    assert!(
        made.iter().any(|call| call.starts_with("POST ")),
        "nothing was to be written, so the test proves nothing"
    );
    drop(Arc::clone(&leads));
}
