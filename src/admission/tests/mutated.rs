//! Case VD-04 at random: reviews that are broken in several ways at once, sent over real connections to the real
//! router. Whatever comes, an AdmissionReview goes back or a 4xx, on a connection that stays.
//!
//! The seed is fixed, so that a failure is the same again. `VMPOOL_MUTATE_SEED` and `VMPOOL_MUTATE_SECONDS` are for
//! whoever lets it run for an hour.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::{AdmissionMetrics, AdmissionState, router, stamping};
use super::http::{good_reviews, odd_values, pointers, remove};
use super::stamping::{revision, stamped};
use super::{Fake, OURSELVES, body, config, merge, pool};

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn of<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len())]
    }
}

/// Requests at least, however slow the machine is.
const LEAST: usize = 500;

/// What stands in for something that a `Value` can't be: it is put in as text.
const DEEP: &str = "here it is nested deep";

/// Breaks one thing in a review.
fn mutate(review: &mut Value, random: &mut Random) {
    let places = pointers(review, "");
    let place = random.of(&places).clone();
    let other = random.of(&places).clone();
    let taken = review.pointer(&other).cloned().unwrap_or_default();
    let Some(target) = review.pointer_mut(&place) else {
        return;
    };
    match random.below(10) {
        0 | 1 => remove(review, &place),
        2 | 3 => *target = random.of(&odd_values()).clone(),
        4 => *target = taken,
        5 if random.below(5) == 0 => *target = json!(DEEP),
        6 => *target = json!([target.clone(), target.clone()]),
        7 => {
            let numbers = [
                json!(0),
                json!(u64::MAX),
                json!(i64::MIN),
                json!(1e308),
                json!(0.5),
            ];
            *target = random.of(&numbers).clone();
        }
        8 => match target {
            Value::Array(list) if !list.is_empty() => {
                let twice = list[random.below(list.len())].clone();
                list.push(twice);
            }
            Value::Object(map) => {
                map.insert("vmpool.dev/x".to_owned(), taken);
            }
            Value::String(text) => text.push_str("-é\u{0}/../~1"),
            other => *other = json!("100001%"),
        },
        // Rarely, since it takes time: 3 MiB.
        9 if random.below(100) == 0 => *target = json!("x".repeat(3 << 20)),
        _ => {
            *target = json!({"kind": "Scale", "spec": {"replicas": -1}, "metadata": {"deletionTimestamp": "x"}});
        }
    }
}

/// Breaks the text of a review.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(5) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes.insert(at, *random.of(b"{}[]\",:\\\x00\xff")),
        3 => {
            let slice = bytes[at..bytes.len().min(at + 40)].to_vec();
            bytes.splice(at..at, slice);
        }
        _ => bytes.extend(b"{}"),
    }
}

/// Every hook with an object that it admits, our own VMs included.
fn seeds() -> Vec<(&'static str, Value)> {
    let mut member = body(&stamped(2), &Value::Null);
    member["request"]["userInfo"]["username"] = json!(OURSELVES);
    let mut seeds = good_reviews();
    seeds.push((stamping::PATH, member));
    seeds
}

fn objects() -> Fake {
    let spec = (*revision().spec).clone();
    let mut desktop = config("desktop", json!({}));
    merge(&mut desktop["spec"], Value::Object(spec));
    Fake {
        configs: vec![desktop],
        pools: vec![pool(
            "web",
            json!({"replicas": 3, "nameGeneration": {"vmPrefix": "web", "appendPostfixToSecretReferences": true}}),
        )],
        revisions: vec![(*revision()).clone()],
        ..Fake::default()
    }
}

/// One connection, which goes on from request to request.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self(BufReader::new(socket))
    }

    /// Code and body of the answer. It panics where there is none.
    fn post(&mut self, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let socket = self.0.get_mut();
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(body).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let code = line.split(' ').nth(1).expect("the connection was dropped");
        let code = code.parse().unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer).unwrap();
        (code, answer)
    }
}

/// What came of all of them.
#[derive(Debug, Default)]
struct Tally {
    allowed: usize,
    patched: usize,
    refused: usize,
    unreadable: usize,
}

impl Tally {
    /// Judges an answer, and answers the object as it is after that, if it was changed.
    fn judge(&mut self, sent: &[u8], code: u16, answer: &[u8]) -> Option<Value> {
        if (400..500).contains(&code) {
            self.unreadable += 1;
            return None;
        }
        assert_eq!(code, 200);
        let answer: Value = serde_json::from_slice(answer).unwrap();
        let response = &answer["response"];
        let uid = response["uid"].as_str().unwrap();
        assert!(!uid.is_empty());
        let sent: Option<Value> = serde_json::from_slice(sent).ok();
        if let Some(sent) = &sent {
            assert_eq!(sent["request"]["uid"], uid);
        }
        if response["allowed"] != true {
            // 500 would be a panic: everything that is looked up is there.
            let code = response["status"]["code"].as_u64().unwrap();
            assert!((400..500).contains(&code), "{response} for {sent:?}");
            assert!(!response["status"]["message"].as_str().unwrap().is_empty());
            self.refused += 1;
            return None;
        }
        self.allowed += 1;
        let patch = response.get("patch")?.clone();
        let patch: k8s_openapi::ByteString = serde_json::from_value(patch).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
        let mut object = sent?["request"]["object"].take();
        json_patch::patch(&mut object, &patch).expect("a patch fits what it is for");
        self.patched += 1;
        Some(object)
    }
}

/// The requests, for as long as that; the seed is in every panic's message by the caller.
fn send(address: SocketAddr, seed: u64, time: Duration) -> Tally {
    let mut random = Random(seed);
    let mut tally = Tally::default();
    let seeds = seeds();
    let deep = format!("{}1{}", r#"{"x":["#.repeat(2000), "]}".repeat(2000));
    let mut connection = Connection::open(address);
    let end = Instant::now() + time;
    let mut sent = 0;
    while sent < LEAST || Instant::now() < end {
        sent += 1;
        let (path, mut review) = random.of(&seeds).clone();
        for _ in 0..=random.below(4) {
            mutate(&mut review, &mut random);
        }
        let path = match random.below(20) {
            0 => random.of(&seeds).0,
            _ => path,
        };
        let text = review.to_string().replace(&format!("\"{DEEP}\""), &deep);
        let mut bytes = text.into_bytes();
        if random.below(8) == 0 {
            damage(&mut bytes, &mut random);
        }
        let (code, answer) = connection.post(path, &bytes);
        let Some(object) = tally.judge(&bytes, code, &answer) else {
            continue;
        };
        // Called again with what came of it (by a retry, or another webhook's change), it changes nothing.
        review["request"]["object"] = object;
        let again = review.to_string();
        if again.contains(DEEP) {
            continue;
        }
        let (code, answer) = connection.post(path, again.as_bytes());
        let mut second = Tally::default();
        let changed = second.judge(again.as_bytes(), code, &answer);
        assert_eq!(changed, None, "it was changed twice: {again}");
        assert_eq!(second.allowed, 1, "it was refused then: {again}");
    }
    tally
}

fn from_environment(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(default, |text| text.parse().expect(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vd_04_whatever_comes_an_answer_goes_back_on_a_connection_that_stays() {
    let seed = from_environment("VMPOOL_MUTATE_SEED", 5);
    let time = Duration::from_secs(from_environment("VMPOOL_MUTATE_SECONDS", 4));
    let state = AdmissionState {
        objects: Arc::new(objects()),
        access: Arc::new(objects()),
        own_username: OURSELVES.to_owned(),
        metrics: AdmissionMetrics::default(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, router(state)).await });
    let sent = tokio::task::spawn_blocking(move || send(address, seed, time)).await;
    server.abort();
    let tally = sent.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    eprintln!("{tally:?}");
    // Neither everything broken nor nothing, or it would look at one path only.
    let Tally {
        allowed,
        patched,
        refused,
        unreadable,
    } = tally;
    for (what, count) in [
        ("allowed", allowed),
        ("patched", patched),
        ("refused", refused),
        ("unreadable", unreadable),
    ] {
        assert!(count >= 5, "with seed {seed}, {what}: {tally:?}");
    }
}
