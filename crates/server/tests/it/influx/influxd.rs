//! A real InfluxDB that scripts are sent to, to check what they expect.
#![expect(clippy::disallowed_methods, reason = "starts a real process")]

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_WAIT: Duration = Duration::from_secs(30);

/// A running `influxd`; killed when dropped.
pub(crate) struct Influxd {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Influxd {
    /// Starts `program` with empty directories below `dir`.
    pub(crate) fn start(program: &Path, dir: &Path, has_auth: bool) -> Influxd {
        let (address, backup_address) = (free_address(), free_address());
        let config = format!(
            "reporting-disabled = true\nbind-address = \"{backup_address}\"\n\
             [meta]\n  dir = \"{dir}/meta\"\n[data]\n  dir = \"{dir}/data\"\n  wal-dir = \"{dir}/wal\"\n\
             [monitor]\n  store-enabled = false\n[continuous_queries]\n  enabled = false\n\
             [http]\n  bind-address = \"{address}\"\n  auth-enabled = {has_auth}\n  log-enabled = false\n",
            dir = dir.display(),
        );
        let path = dir.join("influxdb.conf");
        let mut file = std::fs::File::create(&path).expect("config");
        file.write_all(config.as_bytes()).expect("config");
        let mut command = Command::new(program);
        command.arg("run").arg("-config").arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        let started = Influxd { child: command.spawn().expect("influxd starts"), address };
        let deadline = Instant::now() + START_WAIT;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "influxd does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        started
    }
}

impl Drop for Influxd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}
