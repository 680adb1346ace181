//! The S3 client over scripted HTTP answers: statuses, cut bodies and closed connections are classified and
//! retried by the table of `store::retry`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::error::BucketError;
use crate::store::CreateOutcome;
use crate::store::read::ReadRange;
use crate::store::request::Operation;
use crate::store::retry::Outcome;

/// Answers in order, one per connection; after the last, connections are closed without an answer.
async fn serve(answers: &[&str]) -> (Env, Store) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = Mutex::new(answers.iter().map(|answer| (*answer).to_owned()).collect::<VecDeque<_>>());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            let _ = socket.read(&mut request).await;
            let answer = answers.lock().pop_front();
            let _ = socket.write_all(answer.unwrap_or_default().as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    });
    let mut config = StoreConfig::new("s3://metrics");
    config.endpoint = Some(format!("http://{address}"));
    config.allow_http = true;
    config.region = Some("us-east-1".to_owned());
    config.access_key_id = Some("id".to_owned());
    config.secret_access_key = Some("secret".to_owned());
    let env = Env::real();
    let store = Store::open(&config, &env, Handle::current()).unwrap();
    (env, store)
}

fn status(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops")
}

fn body(claimed_len: usize, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {claimed_len}\r\nETag: \"e\"\r\n\
         Last-Modified: Tue, 24 Nov 2026 12:00:00 GMT\r\nConnection: close\r\n\r\n{body}"
    )
}

fn context(env: &Env) -> RequestContext {
    let timeout = Duration::from_secs(600);
    RequestContext::with_timeout(&*env.clock, TenantId::anonymous(), timeout, Purpose::Query)
}

/// Checks that the failure is counted as `outcome`, and the read that follows succeeds or the error is final.
async fn check(answer: &str, outcome: Outcome, is_retried: bool) {
    let good = body(5, "right");
    let (env, store) = serve(&[answer, good.as_str()]).await;
    let found = store.read(&context(&env), "x", ReadRange::Whole, None).await;
    let counters = store.counters();
    assert_eq!(counters.requests(Operation::Get, outcome), 1, "{answer}: {found:?}");
    assert_eq!(counters.retries, u64::from(is_retried), "{answer}");
    match found {
        Ok(found) => assert!(is_retried && found.bytes == "right", "{answer}"),
        Err(error) => assert!(!is_retried, "{answer}: {error}"),
    }
}

#[tokio::test]
async fn statuses_and_broken_answers_are_retried() {
    check(&status("503 Slow Down"), Outcome::Throttled, true).await;
    check(&status("429 Too Many Requests"), Outcome::Throttled, true).await;
    check(&status("500 Internal Server Error"), Outcome::ServerError, true).await;
    check(&status("502 Bad Gateway"), Outcome::ServerError, true).await;
    check(&status("504 Gateway Timeout"), Outcome::ServerError, true).await;
    check(&body(5, "ri"), Outcome::Network, true).await;
    check("", Outcome::Network, true).await;
    check("HTTP/1.1 200", Outcome::Network, true).await;
    check(&status("400 Bad Request"), Outcome::Refused, false).await;
    check(&status("401 Unauthorized"), Outcome::Denied, false).await;
    check(&status("403 Forbidden"), Outcome::Denied, false).await;
    check(&status("404 Not Found"), Outcome::NotFound, false).await;
    check(&status("412 Precondition Failed"), Outcome::Changed, false).await;
    check(&status("416 Range Not Satisfiable"), Outcome::Mismatch, false).await;
}

#[tokio::test]
async fn a_server_that_is_down_is_unavailable_within_the_deadline() {
    let (env, mut config) = (Env::real(), StoreConfig::new("s3://metrics"));
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    config.endpoint = Some(format!("http://{free}"));
    config.allow_http = true;
    (config.access_key_id, config.secret_access_key) = (Some("id".to_owned()), Some("secret".to_owned()));
    let store = Store::open(&config, &env, Handle::current()).unwrap();
    // Long enough for a second attempt on a busy machine.
    let timeout = Duration::from_secs(2);
    let context = RequestContext::with_timeout(&*env.clock, TenantId::anonymous(), timeout, Purpose::Query);
    let error = store.read(&context, "x", ReadRange::Whole, None).await.unwrap_err();
    assert!(matches!(error, BucketError::Unavailable { attempts: 2.., .. }), "{error:?}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

/// Answers to a creation and to the reads that follow, and its result.
async fn check_create(answers: &[&str], want: Result<&str, ()>) {
    let (env, store) = serve(answers).await;
    let created = store.create(&context(&env), "n", Bytes::from_static(b"mine")).await;
    let created = created.map(|outcome| match outcome {
        CreateOutcome::Created => "created".to_owned(),
        CreateOutcome::Exists(found) => String::from_utf8(found.bytes.to_vec()).unwrap(),
    });
    assert_eq!(created.as_deref().map_err(|_| ()), want, "{created:?}");
}

#[tokio::test]
async fn refused_creations_are_read_back() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"e\"\r\nConnection: close\r\n\r\n";
    let absent = status("404 Not Found");
    let mine = body(4, "mine");
    let other = body(5, "other");
    check_create(&[ok], Ok("created")).await;
    for refusal in ["412 Precondition Failed", "409 Conflict", "503 Slow Down"] {
        let refusal = status(refusal);
        check_create(&[&refusal, &mine], Ok("created")).await;
        check_create(&[&refusal, &other], Ok("other")).await;
    }
    // The connection closes after the request: it may have been done.
    check_create(&["", &mine], Ok("created")).await;
    check_create(&["", &other], Ok("other")).await;
    for refusal in ["409 Conflict", "503 Slow Down"] {
        check_create(&[&status(refusal), &absent, ok], Ok("created")).await;
    }
    check_create(&[&status("403 Forbidden")], Err(())).await;
}
