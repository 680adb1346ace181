//! A small S3 server with faults: objects in memory, create-if-absent, ranges, one page of keys.
//!
//! Faults: 503, 409 to creations, bodies cut, connections closed after the request was carried out.

use std::collections::BTreeMap;

use chronolith_base::Rng;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const BUCKET: &str = "/metrics/";
const DATE: &str = "Last-Modified: Tue, 24 Nov 2026 12:00:00 GMT";

pub(super) struct S3Server {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    objects: Mutex<BTreeMap<String, Bytes>>,
    faults: Mutex<FaultPlan>,
    rng: Rng,
}

struct Request {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    body: Bytes,
}

struct Response {
    status: &'static str,
    headers: Vec<String>,
    body: Bytes,
}

impl Response {
    fn new(status: &'static str, body: impl Into<Bytes>) -> Response {
        Response { status, headers: Vec::new(), body: body.into() }
    }
}

impl S3Server {
    pub(super) async fn start(faults: FaultPlan, seed: u64) -> S3Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            faults: Mutex::new(faults),
            rng: Rng::from_seed(seed),
        });
        let accepted = shared.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = accepted.clone();
                tokio::spawn(async move { shared.serve(socket).await });
            }
        });
        S3Server { address, shared }
    }

    pub(super) fn set_faults(&self, faults: FaultPlan) {
        *self.shared.faults.lock() = faults;
    }

    pub(super) fn open(&self, env: &Env) -> Store {
        let mut config = StoreConfig::new("s3://metrics");
        config.endpoint = Some(format!("http://{}", self.address));
        config.allow_http = true;
        config.region = Some("us-east-1".to_owned());
        (config.access_key_id, config.secret_access_key) = (Some("id".to_owned()), Some("secret".to_owned()));
        Store::open(&config, env, Handle::current()).unwrap()
    }
}

impl Shared {
    /// Answers the requests of one connection.
    async fn serve(&self, socket: TcpStream) {
        let mut socket = BufReader::new(socket);
        while let Some(request) = read_request(&mut socket).await {
            let faults = *self.faults.lock();
            let hits = |per_mille| self.rng.below(1000) < per_mille;
            let is_create = request.headers.contains_key("if-none-match");
            let response = if hits(faults.unavailable) {
                Response::new("503 Slow Down", "oops")
            } else if is_create && hits(faults.conflict) {
                Response::new("409 Conflict", "oops")
            } else {
                let response = self.answer(&request);
                if request.method == "PUT" && hits(faults.lost_answer) {
                    return;
                }
                response
            };
            let mut head =
                format!("HTTP/1.1 {}\r\nContent-Length: {}\r\n", response.status, response.body.len());
            response.headers.iter().for_each(|line| head.push_str(&format!("{line}\r\n")));
            head.push_str("\r\n");
            let is_cut = request.method == "GET" && hits(faults.cut);
            let sent = if request.method == "HEAD" { 0 } else { response.body.len() };
            let sent = if is_cut { sent / 2 } else { sent };
            let answer = [head.as_bytes(), &response.body[..sent]].concat();
            if socket.write_all(&answer).await.is_err() || is_cut {
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> Response {
        let mut objects = self.objects.lock();
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let key = path.strip_prefix(BUCKET).unwrap_or_default().to_owned();
        match request.method.as_str() {
            "PUT" => {
                if request.headers.contains_key("if-none-match") && objects.contains_key(&key) {
                    return Response::new("412 Precondition Failed", "oops");
                }
                objects.insert(key, request.body.clone());
                Response { headers: vec!["ETag: \"e\"".to_owned()], ..Response::new("200 OK", "") }
            }
            "GET" if query.contains("list-type=2") => {
                let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
                let prefix = prefix.unwrap_or_default().replace("%2F", "/");
                Response::new("200 OK", listing(&objects, &prefix))
            }
            "GET" | "HEAD" => match objects.get(&key) {
                None => Response::new("404 Not Found", ""),
                Some(body) => {
                    let headers = vec!["ETag: \"e\"".to_owned(), DATE.to_owned()];
                    Response { headers, ..Response::new("200 OK", body.clone()) }
                }
            },
            method => panic!("{method} {}", request.target),
        }
    }
}

async fn read_request(socket: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    socket.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        socket.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let len = headers.get("content-length").map_or(0, |len| len.parse().unwrap());
    let mut body = vec![0; len];
    socket.read_exact(&mut body).await.ok()?;
    Some(Request { method, target, headers, body: body.into() })
}

fn listing(objects: &BTreeMap<String, Bytes>, prefix: &str) -> String {
    let mut xml = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    for (key, body) in objects.iter().filter(|(key, _)| key.starts_with(prefix)) {
        xml.push_str(&format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-24T12:00:00.000Z</LastModified>\
             <ETag>\"e\"</ETag><Size>{}</Size></Contents>",
            body.len()
        ));
    }
    xml + "</ListBucketResult>"
}
