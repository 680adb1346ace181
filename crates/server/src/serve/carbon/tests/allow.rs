//! Senders whose address `carbon.allow` has or has not. This host has all addresses of 127.0.0.0/8.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

use super::*;
use chronolith_service::options::AddressRanges;

async fn start(allowed: &str) -> Carbon {
    let (env, _clock, _disk) = Env::fake(NOW_MS, 1);
    let mut options = ServerOptions::new("/data".into());
    options.service.write.carbon.allowed = Some(AddressRanges::parse(allowed).expect("ranges"));
    let web = |options| Arc::new(Web::new(env, options, None));
    Carbon::over(CarbonProtocol::Plaintext, "", options, web).await
}

/// Sends a line from an address of this host, and returns the open connection.
async fn send_line(carbon: &Carbon, from: &str) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::new(from.parse().expect("an address"), 0)).expect("is free");
    let mut stream = socket.connect(carbon.address).await?;
    stream.write_all(format!("from.{from} 1 1000\n").as_bytes()).await?;
    Ok(stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_from_an_address_that_is_not_listed_is_reset_and_counted() {
    let carbon = start("127.0.0.2,127.0.1.0/24,2001:db8::/32").await;
    for (from, is_allowed) in
        [("127.0.0.1", false), ("127.0.0.2", true), ("127.0.0.3", false), ("127.0.1.255", true)]
    {
        let before = carbon.points();
        let sent = send_line(&carbon, from).await;
        if is_allowed {
            let _open = sent.expect("is read");
            carbon.wait_for_points(before + 1).await;
        } else {
            // The connection may be reset before the line is written.
            let end = match sent {
                Ok(mut stream) => stream.read_to_end(&mut Vec::new()).await.map(drop),
                Err(error) => Err(error),
            };
            let kind = end.expect_err(from).kind();
            assert!(matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{kind}");
        }
    }
    assert_eq!(carbon.points(), 2);
    let counts = carbon.server.get("/metrics").await.text;
    let line = format!(
        "chronolith_carbon_connections_not_allowed_total{{input=\"{}\"}} 2\n",
        carbon.listener.input.name
    );
    assert!(counts.contains(&line), "{line}");
    assert_eq!(carbon.listener.input.connections_opened.as_f64(), 2.0, "refused ones are none of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_from_an_address_that_is_not_listed_are_dropped_and_counted() {
    let carbon = start("127.0.0.2").await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("bound");
    let (stop, closing) = watch::channel(false);
    let lines = Datagrams(carbon.listener.clone());
    let listening = tokio::spawn(udp::listen(carbon.server.web.clone(), lines, socket, closing));
    // The kernel queues datagrams in the order of their arrival, so the allowed one is read last.
    for (from, line) in
        [("127.0.0.1", "u.a 1 1000"), ("127.0.0.3", "u.b 1 1000"), ("127.0.0.2", "u.c 1 1000")]
    {
        let sender = UdpSocket::bind((from, 0)).await.expect("a socket");
        sender.send_to(line.as_bytes(), address).await.expect("is sent");
    }
    carbon.wait_for_points(1).await;
    stop.send(true).expect("listens");
    listening.await.expect("ends after all is stored");
    assert_eq!(carbon.listener.input.datagrams_not_allowed.as_f64(), 2.0);
    assert_eq!(carbon.points(), 1);
    let found = carbon.read("count(%7B__name__%3D~%22u..%22%7D)", 1000).await;
    assert!(found.contains(r#""1""#), "{found}");
}
