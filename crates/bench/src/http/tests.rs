//! Answers of every coding and framing, read from a connection that stays open.

use std::net::TcpListener;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// Serves one answer per entry on one connection; the requests come back with the join.
fn serve(answers: Vec<Vec<u8>>) -> (u16, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let thread = std::thread::Builder::new().spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let mut stream = BufReader::new(stream);
        let mut requests = Vec::new();
        for answer in answers {
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") {
                assert!(stream.read_line(&mut request).expect("a line") > 0, "the client has gone");
            }
            requests.push(request);
            stream.get_mut().write_all(&answer).expect("written");
        }
        requests
    });
    (port, thread.expect("a thread"))
}

fn encode(coding: Accept, text: &str) -> Vec<u8> {
    match coding {
        Accept::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text.as_bytes()).expect("compressed");
            encoder.finish().expect("compressed")
        }
        Accept::Zstd => zstd::bulk::compress(text.as_bytes(), 1).expect("compressed"),
        Accept::Plain => text.as_bytes().to_vec(),
    }
}

fn with_length(headers: &str, body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn in_chunks(headers: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\n{headers}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for part in body.chunks(7) {
        answer.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        answer.extend_from_slice(part);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"0\r\n\r\n");
    answer
}

#[test]
fn answers_of_each_coding_and_framing_have_their_text() {
    let text = "{\"status\":\"success\"} ".repeat(50);
    let headers = [
        (Accept::Gzip, "Content-Encoding: gzip\r\n"),
        (Accept::Gzip, "content-encoding:gzip\r\nVary: Accept-Encoding\r\n"),
        (Accept::Zstd, "Content-Encoding: zstd\r\n"),
        (Accept::Zstd, "CONTENT-ENCODING:  zstd \r\n"),
        (Accept::Plain, ""),
        (Accept::Plain, "Content-Encoding: identity\r\n"),
    ];
    let framed = headers.map(|(coding, head)| {
        let body = encode(coding, &text);
        [with_length(head, &body), in_chunks(head, &body)]
    });
    let (port, thread) = serve(framed.into_iter().flatten().collect());
    let mut connection = QueryConnection::open(port).expect("connects");
    for (coding, head) in headers {
        connection.set_accept(coding);
        for framing in ["with a length", "in chunks"] {
            let received = connection.fetch("/x").expect(head);
            assert_eq!(received.coding(), coding, "{head:?} {framing}");
            assert_eq!(received.text().expect(head), text, "{head:?} {framing}");
        }
    }
    let requests = thread.join().expect("all were served");
    let accepted = |line: &str| requests.iter().filter(|request| request.contains(line)).count();
    assert_eq!(accepted("Accept-Encoding: gzip\r\n"), 4);
    assert_eq!(accepted("Accept-Encoding: zstd\r\n"), 4);
    assert_eq!(accepted("Accept-Encoding"), 8, "plain requests accept nothing");
}

/// A coding that the client cannot read is an error, not a text of other bytes.
#[test]
fn unknown_codings_are_errors() {
    for coding in ["br", "deflate", "gzip, zstd", "x-snappy"] {
        let (port, thread) = serve(vec![with_length(&format!("Content-Encoding: {coding}\r\n"), b"?")]);
        let mut connection = QueryConnection::open(port).expect("connects");
        let error = connection.fetch("/x").map(|received| received.coding()).expect_err(coding).to_string();
        assert!(error.contains(coding), "{error}");
        thread.join().expect("served");
    }
}
