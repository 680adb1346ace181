//! The count of acknowledged samples, against a server that only answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use super::{Content, Fleet, Shape};

const SERIES: usize = 1000;
const BATCH: usize = 250;

fn fleet(content: Content) -> Fleet {
    Fleet::new(&Shape {
        series: 0..SERIES,
        batch_len: BATCH,
        connection_count: 1,
        content,
        start_ms: 1_767_225_600_000,
        lead_steps_max: super::LEAD_STEPS_MAX,
    })
}

/// Answers `request_count` requests of one connection after another, then breaks it and refuses others.
fn answer(listener: TcpListener, request_counts: &[usize]) {
    for request_count in request_counts {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        for _ in 0..*request_count {
            take_request(&mut stream);
            stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    }
}

fn take_request(stream: &mut BufReader<TcpStream>) {
    let (mut line, mut len) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
        if let Some(text) = line.strip_prefix("Content-Length: ") {
            len = text.trim().parse().unwrap();
        }
    }
    stream.read_exact(&mut vec![0; len]).unwrap();
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn only_answered_requests_count() {
    let (listener, port) = listen();
    let mut fleet = fleet(Content::Noisy);
    std::thread::scope(|scope| {
        let (start, started) = mpsc::sync_channel(1);
        // Two steps of four requests each, and half of the third, once failures are expected.
        scope.spawn(move || {
            started.recv().unwrap();
            answer(listener, &[10]);
        });
        let sent = fleet.send(port, 0..100, |watch| {
            watch.expect_failures();
            start.send(()).unwrap();
            watch.wait(100, Duration::from_secs(60)).map(drop)
        });
        sent.unwrap();
    });
    assert_eq!(fleet.acked_sample_count(), 10 * BATCH);
    assert_eq!(fleet.steps_sent(), 2);
    assert_eq!(fleet.probed().probes.len(), 3);
}

#[test]
fn a_failure_that_nobody_expects_is_an_error() {
    let (listener, port) = listen();
    std::thread::scope(|scope| {
        scope.spawn(|| answer(listener, &[5]));
        let sent = fleet(Content::Noisy)
            .send(port, 0..100, |watch| watch.wait(100, Duration::from_secs(60)).map(drop));
        assert!(sent.is_err());
    });
}

#[test]
fn series_start_with_different_counts_and_are_replaced() {
    let (listener, port) = listen();
    let mut fleet = fleet(Content::Mix);
    std::thread::scope(|scope| {
        // Four requests' worth of series with 1, 38, 75 and 112 samples, cut to requests of about 250
        // samples.
        let counts = [1_usize, 38, 75, 112].map(|count| BATCH.div_ceil((BATCH / count).max(1)));
        scope.spawn(move || answer(listener, &[counts.iter().sum()]));
        fleet.fill(port, 120, Duration::from_secs(60)).unwrap();
    });
    assert_eq!(fleet.acked_sample_count(), (1 + 38 + 75 + 112) * BATCH);
    assert_eq!(fleet.steps_sent(), 0);
    let replaced = fleet.replace_oldest(4, SERIES);
    assert_eq!((replaced.acked_sample_count, replaced.next_idx), (BATCH, SERIES + BATCH));
    assert_eq!(fleet.acked_sample_count(), (38 + 75 + 112) * BATCH);
}
