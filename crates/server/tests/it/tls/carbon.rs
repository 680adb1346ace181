//! Carbon listeners of a whole server: files of TLS at the start and after a change, addresses, datagrams.

use std::net::{TcpListener, UdpSocket};

use chronolith_model::TenantId;
use chronolith_server::{AddressRanges, CarbonListener, CarbonProtocol, RunError};

use super::*;

/// An address on which nothing listens.
fn free_address() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    socket.local_addr().expect("bound")
}

/// Adds a plaintext listener with TLS of the file `carbon.yml`.
fn listen(options: &mut ServerOptions, dir: &Path, address: SocketAddr) {
    let carbon = &mut options.service.write.carbon;
    carbon.tls_file = Some(dir.join("carbon.yml"));
    carbon.listeners.push(CarbonListener {
        listen: address.to_string(),
        protocol: CarbonProtocol::Plaintext,
        tenant: TenantId::anonymous(),
        prefix: String::new(),
    });
}

#[test]
fn a_carbon_listener_has_tls_of_its_own_file_and_no_datagrams() {
    let address = free_address();
    let fixture = Fixture::start_changed("", None, |options, dir| {
        std::fs::write(dir.join("carbon.yml"), tls_section("")).expect("written");
        options.service.write.carbon.allowed = Some(AddressRanges::parse("127.0.0.1").expect("a range"));
        listen(options, dir, address);
    });
    let http = Client::plain(fixture.address());
    let carbon = Client::new(address, fixture.authority.pem());
    fixture.clients.block_on(carbon.send_bytes(b"over.tls 1 1000\n")).expect("ends in order");
    let reply = fixture.get(&http, "/api/v1/query?query=%7B__name__%3D%22over.tls%22%7D&time=1000");
    assert!(reply.expect("an answer").text.contains("over.tls"));
    assert_eq!(fixture.metric(&http, "chronolith_carbon_tls_handshakes_total"), 1.0);
    UdpSocket::bind(address).expect("no socket of the server has the port");
    let pair = fixture.authority.pair("localhost");
    std::fs::write(fixture.dir.path().join("server.key"), &pair.key_pem).expect("written");
    std::fs::write(fixture.dir.path().join("server.crt"), &pair.certificate_pem).expect("written");
    wait_until("the new certificate", || {
        let presented = fixture.clients.block_on(carbon.presented_certificate());
        presented.is_ok_and(|presented| presented == pair.certificate_der)
    });
}

#[test]
fn a_server_does_not_start_with_a_file_without_tls() {
    let dir = tempfile::tempdir().expect("directory");
    let mut options = ServerOptions::new(dir.path().join("data"));
    options.listen = "127.0.0.1:0".to_owned();
    listen(&mut options, dir.path(), free_address());
    std::fs::write(dir.path().join("carbon.yml"), "http_server_config: {http2: true}\n").expect("written");
    let refused = Server::start(Env::real(), options, None).err().expect("no TLS");
    assert!(matches!(&refused, RunError::WebConfig(text) if text.starts_with("carbon.tls: ")), "{refused}");
}
