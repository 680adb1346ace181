//! Answers that are compressed while they are printed: content, memory, errors, threads that must not wait.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Barrier};

use axum::body::Body;
use axum::http::{Method, Response, StatusCode, header};
use chronolith_base::MemoryBudget;
use chronolith_model::ReadContext;
use http_body_util::BodyExt as _;

use super::super::tests::{CODINGS, decoded, fetch, matrix, named};
use super::{Coding, Packing};
use crate::http::error::{ApiError, ErrorKind};
use crate::http::printer::Printer;
use crate::http::tests::{Fixture, NOW_MS};
use crate::limits::{COMPRESSION_BLOCK_BYTES, COMPRESSION_BLOCKS_AHEAD_MAX};

const SERIES_COUNT: usize = 3000;
/// Memory of a query that does not hold the plain answer.
const MEMORY_BYTES: u64 = 5 << 20;
const ANSWER_BYTES: usize = 8 << 20;

/// Labels and samples of a series.
type Series<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, f64)]);

async fn fill(server: &Fixture) {
    let names: Vec<String> = (0..SERIES_COUNT).map(|idx| format!("{idx}-{}", "name".repeat(25))).collect();
    let samples: Vec<(i64, f64)> =
        (0..20).map(|step| (NOW_MS - 300_000 + step * 15_000, step as f64 / 7.0)).collect();
    for names in names.chunks(100) {
        let labels: Vec<_> = names.iter().map(|name| [("__name__", "m"), ("instance", name)]).collect();
        let series: Vec<Series<'_>> =
            labels.iter().map(|labels| (labels.as_slice(), samples.as_slice())).collect();
        assert!(server.write(&series).await.status.is_success());
    }
}

/// Covers each kind of answer that is compressed while it is printed, longer than several blocks.
#[tokio::test]
async fn a_large_answer_has_the_bytes_of_a_plain_one() {
    let server = Fixture::ready();
    fill(&server).await;
    let now_s = NOW_MS / 1000;
    let start_s = now_s - 300;
    let paths = [
        format!("/api/v1/query?query=m&time={now_s}"),
        format!("/api/v1/query?query=m[5m]&time={now_s}"),
        format!("/api/v1/query_range?query=m&start={start_s}&end={now_s}&step=15"),
        format!("/api/v1/query_range?query=rate(m[1m])&start={start_s}&end={now_s}&step=15"),
        format!("/api/v1/query_range?query=m&start={start_s}&end={now_s}&step=15&limit=2500&stats=all"),
        "/api/v1/series?match[]=m&start=0".to_owned(),
        "/api/v1/series?match[]=m&start=0&limit=2000".to_owned(),
        "/api/v1/label/instance/values".to_owned(),
        "/api/v1/label/instance/values?match[]=m&limit=2900".to_owned(),
    ];
    for path in paths {
        let (_, plain) = fetch(&server, Method::GET, &path, None).await;
        assert!(plain.len() > 2 * COMPRESSION_BLOCK_BYTES, "{path}: {} bytes", plain.len());
        for coding in CODINGS {
            let (head, packed) = fetch(&server, Method::GET, &path, coding.token()).await;
            assert_eq!(head.status(), StatusCode::OK, "{path}");
            assert_eq!(Some(named(&head, &header::CONTENT_ENCODING)), coding.token(), "{path}");
            assert_eq!(named(&head, &header::VARY), "accept-encoding", "{path}");
            assert_eq!(named(&head, &header::CONTENT_TYPE), "application/json", "{path}");
            assert_eq!(named(&head, &header::CONTENT_LENGTH), "", "{path}");
            // Statistics have times.
            let found = decoded(coding, &packed).expect("valid");
            let is_equal = if path.contains("stats=") { found.len() > 100_000 } else { found == plain };
            assert!(is_equal, "{path} {coding:?}");
        }
    }
    let before = server.web.metrics.compression.input_bytes.get();
    let path = format!("/api/v1/query?query=m&time={now_s}");
    let (head, body) = fetch(&server, Method::HEAD, &path, Some("zstd")).await;
    assert_eq!((named(&head, &header::CONTENT_ENCODING), body.len()), ("zstd", 0));
    assert_eq!(server.web.metrics.compression.input_bytes.get(), before, "an answer to HEAD is dropped");
}

/// Prints rows of `answer` as items of `item_bytes`.
fn print(
    server: &Fixture,
    coding: Coding,
    answer: &[u8],
    item_bytes: usize,
    ctx: &ReadContext,
) -> Result<Response<Body>, ApiError> {
    let mut printer = Printer::open_packed(ctx, &Packing::new(&server.web, coding))?;
    for item in answer.chunks(item_bytes) {
        printer.out.extend_from_slice(item);
        printer.settle(ctx)?;
    }
    Ok(printer.close(ctx, &[], &[])?.into_json())
}

fn context(server: &Fixture, memory_bytes: u64) -> ReadContext {
    ReadContext::new(server.web.service.env.clock.clone(), u64::MAX, MemoryBudget::new("query", memory_bytes))
}

/// Covers a regression: all of an answer was in memory as plain text until its client had taken it.
#[tokio::test]
async fn a_compressed_answer_takes_less_memory_than_its_text() {
    let server = Fixture::ready();
    let answer = matrix(ANSWER_BYTES);
    let want = [b"{\"status\":\"success\",\"data\":", answer.as_slice(), b"}"].concat();
    for item_bytes in [100, 10_000, COMPRESSION_BLOCK_BYTES, 500_000] {
        for coding in [Coding::Identity, Coding::Gzip, Coding::Zstd] {
            let ctx = context(&server, MEMORY_BYTES);
            // On a thread that may wait for blocks.
            let printed = std::thread::scope(|scope| {
                let print = || print(&server, coding, &answer, item_bytes, &ctx);
                scope.spawn(print).join().expect("no panic")
            });
            if coding == Coding::Identity {
                let Err(error) = printed else { panic!("the text does not fit") };
                assert!(error.message.contains("memory limit"), "{}", error.message);
                continue;
            }
            let response =
                printed.unwrap_or_else(|error| panic!("{coding:?} {item_bytes}: {}", error.message));
            let packed = response.into_body().collect().await.expect("no error").to_bytes();
            assert!(decoded(coding, &packed).expect("valid") == want, "{coding:?} {item_bytes}");
            drop(packed);
            assert_eq!(ctx.budget.used_bytes(), 0, "{coding:?} {item_bytes}");
        }
    }
}

/// Checks that an error has its status: nothing is sent before all is printed.
#[tokio::test]
async fn a_compressed_answer_that_does_not_fit_is_an_error() {
    let server = Fixture::ready();
    let answer = matrix(ANSWER_BYTES);
    for coding in CODINGS {
        let ctx = context(&server, MEMORY_BYTES / 4);
        let printed = std::thread::scope(|scope| {
            let print = || print(&server, coding, &answer, 1000, &ctx);
            scope.spawn(print).join().expect("no panic")
        });
        let Err(error) = printed else { panic!("compressed bytes count too") };
        assert!(error.message.contains("memory limit"), "{coding:?}: {}", error.message);
        wait_for_compressors(&server).await;
        assert_eq!(ctx.budget.used_bytes(), 0, "{coding:?}");
    }
}

/// Waits until all jobs that were started have ended: one job per thread, none of which ends before all have
/// begun.
async fn wait_for_compressors(server: &Fixture) {
    let count = chronolith_base::thread::core_count();
    let barrier = Arc::new(Barrier::new(count));
    let wait = || {
        let barrier = barrier.clone();
        move || {
            barrier.wait();
        }
    };
    for _ in 1..count {
        server.web.service.admission.compressors.start(Box::new(wait())).expect("a thread");
    }
    server.web.service.admission.compressors.run(wait()).await.expect("runs");
}

fn occupy_compressors(server: &Fixture) -> Vec<SyncSender<()>> {
    let occupy = |_| {
        let (release, wait) = sync_channel::<()>(1);
        let job = move || {
            let _ = wait.recv();
        };
        server.web.service.admission.compressors.start(Box::new(job)).expect("a thread");
        release
    };
    (0..chronolith_base::thread::core_count()).map(occupy).collect()
}

/// Checks that a query on an async worker is restarted on another thread instead of waiting for blocks.
#[tokio::test]
async fn a_thread_that_must_not_wait_gives_up() {
    let server = Fixture::ready();
    for coding in CODINGS {
        let occupied = occupy_compressors(&server);
        let fitting = matrix(COMPRESSION_BLOCKS_AHEAD_MAX * COMPRESSION_BLOCK_BYTES);
        let ctx = context(&server, MEMORY_BYTES).without_waiting();
        let response = print(&server, coding, &fitting, COMPRESSION_BLOCK_BYTES, &ctx);
        let response = response.unwrap_or_else(|error| panic!("{coding:?}: {}", error.message));
        let answer = matrix(ANSWER_BYTES);
        let printed = print(&server, coding, &answer, COMPRESSION_BLOCK_BYTES, &ctx);
        let Err(error) = printed else { panic!("{coding:?}: it must wait") };
        assert_eq!(error.kind, ErrorKind::Timeout, "{coding:?}");
        drop(occupied);
        let packed = response.into_body().collect().await.expect("no error").to_bytes();
        let found = decoded(coding, &packed).expect("valid");
        assert!(found.len() > fitting.len(), "{coding:?}");
    }
}
