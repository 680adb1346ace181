//! Certificates of the server under load, and the client that trusts them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::http::{self, QueryConnection, Wire, WriteConnection};

/// Name of the tenant of the load.
pub(super) const TENANT: &str = "anonymous";

/// Authority of a run, with the files of a web configuration below one directory.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

impl Authority {
    /// Makes an authority and a first certificate of the server; their files are below `dir`.
    pub(super) fn new(dir: &Path) -> Result<Authority> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let authority = Authority { issuer, dir: dir.to_owned() };
        authority.exchange()?;
        let text = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n";
        std::fs::write(authority.web_config(), text)?;
        Ok(authority)
    }

    /// The web configuration file.
    pub(super) fn web_config(&self) -> PathBuf {
        self.dir.join("web.yml")
    }

    /// Replaces certificate and key of the server by new ones, each file at once, as cert-manager and
    /// certbot do. Between the two renames key and certificate do not match.
    pub(super) fn exchange(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &self.issuer)?;
        for (name, text) in [("server.key", key.serialize_pem()), ("server.crt", certificate.pem())] {
            let next = self.dir.join("next");
            std::fs::write(&next, text)?;
            std::fs::rename(&next, self.dir.join(name))?;
        }
        Ok(())
    }

    /// Client that trusts this authority alone.
    pub(super) fn client(&self) -> Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Client { tls: Some(Arc::new(config.with_root_certificates(roots).with_no_client_auth())) })
    }
}

/// Way to connect to a server.
#[derive(Clone)]
pub(super) struct Client {
    /// `None` = plain HTTP.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Client {
    /// Connects to `port` of this machine. The handshake runs with the first request.
    pub(super) fn connect(&self, port: u16) -> Result<Wire> {
        let stream = http::connect(port)?;
        let Some(config) = &self.tls else { return Ok(stream.into()) };
        let name = ServerName::try_from("127.0.0.1")?;
        let connection = ClientConnection::new(config.clone(), name)?;
        Ok(Wire::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    /// Returns a client that asks for HTTP/2.
    pub(super) fn with_http2(&self) -> Result<Client> {
        let mut config = ClientConfig::clone(self.tls.as_ref().context("HTTP/2 by TLS alone")?);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Client { tls: Some(Arc::new(config)) })
    }

    /// Connection for queries.
    pub(super) fn queries(&self, port: u16) -> Result<QueryConnection> {
        Ok(QueryConnection::over(self.connect(port)?, port, TENANT))
    }

    /// Connection for remote write.
    pub(super) fn writes(&self, port: u16) -> Result<WriteConnection> {
        Ok(WriteConnection::remote_write_over(self.connect(port)?, port, TENANT))
    }
}
