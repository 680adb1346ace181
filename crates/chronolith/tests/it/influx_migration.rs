//! Migration of InfluxDB databases: export files, and another running server.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Server, free_port, percent, temp_dir};

const NO_SCRAPE: [&str; 2] = ["--self-scrape", "off"];
/// No import of these tests takes longer.
const IMPORT_WITHIN: Duration = Duration::from_secs(60);

fn chronolith(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    chronolith(dir, args).output().expect("chronolith runs")
}

/// Standard output and standard error.
fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
fn check_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", text(output));
}

/// Runs a statement; returns the response.
fn query(server: &Server, statement: &str) -> String {
    let headers = ["Content-Type: application/x-www-form-urlencoded"];
    let body = format!("q={}&epoch=ns", percent(statement));
    let answer = server.request("POST", "/query", &headers, body.as_bytes());
    assert!(answer.status == 200 && !answer.text().contains("\"error\""), "{statement}: {}", answer.text());
    answer.text()
}

fn write(server: &Server, database: &str, policy: &str, lines: &[u8]) {
    let path = format!("/write?db={}&rp={}", percent(database), percent(policy));
    let answer = server.request("POST", &path, &[], lines);
    assert_eq!(answer.status, 204, "{}", answer.text());
}

/// Databases with values of all types at their limits, names that need escapes, several policies.
fn fill(server: &Server) {
    query(server, "CREATE DATABASE d");
    query(server, "CREATE RETENTION POLICY w ON d DURATION 52w REPLICATION 1 SHARD DURATION 1d");
    query(server, "CREATE DATABASE \"o d\" WITH DURATION 0s NAME \"r p\"");
    let select = "SELECT mean(b) INTO d.w.mm FROM d.autogen.m GROUP BY time(1h)";
    query(server, &format!("CREATE CONTINUOUS QUERY cq ON d BEGIN {select} END"));
    let lines = concat!(
        "m,host=a,b=t b=1,i=9007199254740993i,s=\"x\\\"y\\\\\",t=true 1000000000\n",
        "m,host=c b=-0,i=-9223372036854775808i,u=18446744073709551615u 1500000000\n",
        "m,host=c b=1e6,u=0u 1500000001\n",
        "m i=9223372036854775807i,b=1.7976931348623157e308,t=f 1500000002\n",
        "m b=5e-324 1500000003\n",
        "m,h\\ x\\=\\,=v\\ \\,\\= f\\ \\,\\=\\\"\\ =0.1,s=\"a\nb=\\\"#\n# DML\n\" 9223372036854775806\n",
        "min s=\"\" -9223372036854775806\n",
    );
    write(server, "d", "", lines.as_bytes());
    write(server, "d", "", b"m,host=a s=\"\xff\x00\n\" 2000000000\n");
    let mixed = concat!(
        "a\\,b\\ \"c\" v=1i 1600000000000000000\n",
        "a\\,b\\ \"c\" v=1.5 1500000000000000000\n",
        "a\\,b\\ \"c\" v=\"x\" 1400000000000000000\n",
    );
    write(server, "o d", "", mixed.as_bytes());
    write(
        server,
        "d",
        "w",
        b"wm,a=1 v=1\nwm,a=2 v=2i\n".split(|byte| *byte == b'\n').next().expect("a line"),
    );
}

/// Stops a server and exports its directory.
fn export(server: &mut Server, dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    assert_eq!(server.stop(), Some(0));
    let out = dir.join(name);
    let data = server.dir.to_str().expect("UTF-8").to_owned();
    let out_text = out.to_str().expect("UTF-8");
    let args = [&["export", "influx", "--data-dir", &data, "--out", out_text], flags].concat();
    check_code(&run(dir, &args), 0);
    out
}

fn url(server: &Server) -> String {
    format!("http://127.0.0.1:{}", server.port)
}

fn import(dir: &Path, server: &Server, args: &[&str]) -> Output {
    run(dir, &[&["import", "influx", "--to", &url(server)], args].concat())
}

#[test]
fn an_export_is_imported_byte_for_byte() {
    let dir = temp_dir();
    let mut source = Server::start(&dir.path().join("a"), &NO_SCRAPE);
    fill(&source);
    let plain = export(&mut source, dir.path(), "a.txt", &[]);
    let zipped = dir.path().join("a.gz");
    let data = source.dir.to_str().expect("UTF-8");
    check_code(&run(dir.path(), &["export", "influx", "--data-dir", data, "--out", "a.gz", "--gzip"]), 0);
    assert_eq!(fs::read(&zipped).expect("a file")[..2], [0x1f, 0x8b]);
    let want = fs::read(&plain).expect("a file");
    for (idx, path) in [plain, zipped].iter().enumerate() {
        let mut target = Server::start(&dir.path().join(format!("b{idx}")), &NO_SCRAPE);
        let imported = import(dir.path(), &target, &["--path", path.to_str().expect("UTF-8")]);
        check_code(&imported, 0);
        assert!(text(&imported).contains(": all equal"), "{}", text(&imported));
        let exported = export(&mut target, dir.path(), "b.txt", &[]);
        let found = fs::read(exported).expect("a file");
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&want));
        assert_eq!(found, want);
    }
}

#[test]
fn an_export_is_cut_to_times_and_policies() {
    let dir = temp_dir();
    let mut source = Server::start(&dir.path().join("a"), &NO_SCRAPE);
    fill(&source);
    let flags = ["--database", "d", "--policy", "autogen", "--start", "1500000001", "--end", "1500000002"];
    let exported = export(&mut source, dir.path(), "a.txt", &flags);
    let found = fs::read_to_string(exported).expect("a file");
    let lines: Vec<&str> = found.lines().filter(|line| !line.starts_with(['#', 'C'])).collect();
    let want = [
        "m b=1.7976931348623157e+308 1500000002",
        "m,host=c b=1e+06 1500000001",
        "m i=9223372036854775807i 1500000002",
        "m,host=c u=0u 1500000001",
        "m t=false 1500000002",
    ];
    let mut sorted = lines.clone();
    sorted.sort_unstable();
    let mut want_sorted = want.to_vec();
    want_sorted.sort_unstable();
    assert_eq!(sorted, want_sorted, "{found}");
}

/// A bad line hid the good lines after it: an open quote swallowed them.
#[test]
fn good_lines_are_stored_beside_bad_ones() {
    let dir = temp_dir();
    let server = Server::start(&dir.path().join("a"), &NO_SCRAPE);
    let file = dir.path().join("bad.txt");
    let content = concat!(
        "# DDL\nCREATE DATABASE d\nCREATE NONSENSE\n# DML\n# CONTEXT-DATABASE: d\n# CONTEXT-RETENTION-POLICY: autogen\n",
        "m v=1 1\r\n\nm v= 2\nm v=2 2\nm s=\"a\nb\" 4\nm s=\"open 3\nm v=3 3\n# comment\nm v=t 5\nm v=6 6",
    );
    fs::write(&file, content).expect("a file");
    let imported = import(dir.path(), &server, &["--path", "bad.txt"]);
    check_code(&imported, 1);
    let report = text(&imported);
    for want in [
        "line 9: unable to parse 'm v= 2'",
        "line 13: unable to parse 'm s=\"open 3'",
        "line 3: CREATE NONSENSE",
        "field type conflict",
        "refused points: 3",
        "wrote 5 points",
    ] {
        assert!(report.contains(want), "{want}: {report}");
    }
    let found = query(&server, "SELECT count(*) FROM d.autogen.m");
    assert!(found.contains("[[0,1,4]]"), "{found}");
}

#[test]
fn points_before_damage_of_a_gzip_file_are_stored() {
    let dir = temp_dir();
    let server = Server::start(&dir.path().join("a"), &NO_SCRAPE);
    query(&server, "CREATE DATABASE d");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for idx in 0..50_000 {
        writeln!(packed, "m,host=h{} v={idx} {idx}", idx % 7).expect("memory");
    }
    let whole = packed.finish().expect("memory");
    let mut damaged = whole.clone();
    let middle = whole.len() / 2;
    damaged[middle..middle + 32].fill(0xff);
    for (name, bytes) in [("cut.gz", &whole[..middle]), ("damaged.gz", &damaged[..])] {
        fs::write(dir.path().join(name), bytes).expect("a file");
        let imported = import(dir.path(), &server, &["--path", name, "--database", "d"]);
        check_code(&imported, 1);
        let report = text(&imported);
        assert!(report.contains("damage of the source: 1"), "{report}");
    }
    let found = query(&server, "SELECT count(v) FROM d..m");
    let count: u64 = found
        .rsplit(',')
        .next()
        .and_then(|rest| rest.split(']').next())
        .expect("a count")
        .parse()
        .expect("a number");
    assert!((10_000..50_000).contains(&count), "{found}");
}

fn wait_for_progress(state: &Path, child: &mut Child) {
    let end = Instant::now() + IMPORT_WITHIN;
    let offset = || {
        let bytes = fs::read(state).ok()?;
        let record: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        record["done"]["offset"].as_u64()
    };
    while offset().is_none_or(|offset| offset == 0) {
        assert!(Instant::now() < end && child.try_wait().expect("a state").is_none(), "no progress");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_import_continues() {
    let dir = temp_dir();
    let server = Server::start(&dir.path().join("a"), &NO_SCRAPE);
    let mut lines = String::from(
        "# DDL\nCREATE DATABASE d\n# DML\n# CONTEXT-DATABASE:d\n# CONTEXT-RETENTION-POLICY:autogen\n",
    );
    let (series, points) = (100, 15_000);
    for point in 0..points {
        for one in 0..series {
            lines.push_str(&format!("m,host=h{one} v={point} {}\n", point * 1_000_000_000));
        }
    }
    fs::write(dir.path().join("big.txt"), &lines).expect("a file");
    let args = [
        "import",
        "influx",
        "--to",
        &url(&server),
        "--path",
        "big.txt",
        "--state",
        "s.json",
        "--concurrency",
        "1",
    ];
    let mut first =
        chronolith(dir.path(), &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    wait_for_progress(&dir.path().join("s.json"), &mut first);
    first.kill().expect("kill");
    first.wait().expect("wait");
    let second = import(dir.path(), &server, &["--path", "big.txt", "--state", "s.json"]);
    check_code(&second, 0);
    let report = text(&second);
    assert!(report.contains("the start of it was imported by an earlier run"), "{report}");
    let stored: u64 = report
        .split_once("wrote ")
        .expect("a count")
        .1
        .split(' ')
        .next()
        .expect("a count")
        .parse()
        .expect("a number");
    assert!(stored > 0 && stored < series * points, "{report}");
    let found = query(&server, "SELECT count(v) FROM d..m");
    assert!(found.contains(&format!("[[0,{}]]", series * points)), "{found}");
    let third = import(dir.path(), &server, &["--path", "big.txt", "--state", "s.json"]);
    check_code(&third, 0);
    assert!(
        text(&third).contains("wrote 0 points") && text(&third).contains("all of it"),
        "{}",
        text(&third)
    );
}

#[test]
fn a_running_server_is_copied() {
    let dir = temp_dir();
    let mut source = Server::start(&dir.path().join("a"), &NO_SCRAPE);
    fill(&source);
    let mut target = Server::start(&dir.path().join("b"), &NO_SCRAPE);
    let copied = import(dir.path(), &target, &["--url", &url(&source)]);
    check_code(&copied, 0);
    // Nothing but what arrives while the copy runs is copied twice.
    let again = import(dir.path(), &target, &["--url", &url(&source)]);
    check_code(&again, 0);
    assert!(text(&again).contains("continues an earlier one"), "{}", text(&again));
    let want = fs::read_to_string(export(&mut source, dir.path(), "a.txt", &[]).as_path());
    let found = fs::read_to_string(export(&mut target, dir.path(), "b.txt", &[]).as_path());
    assert_eq!(found.map_err(|_| "bytes"), want.map_err(|_| "bytes"));
    let bytes = |name: &str| fs::read(dir.path().join(name)).expect("a file");
    assert_eq!(bytes("a.txt"), bytes("b.txt"));
}

#[test]
fn a_policy_that_exists_stays_and_credentials_are_sent() {
    let dir = temp_dir();
    let server = Server::start(&dir.path().join("a"), &["--self-scrape", "off", "--influx.auth-enabled"]);
    query(&server, "CREATE USER root WITH PASSWORD 'secret' WITH ALL PRIVILEGES");
    // As influx_inspect export writes it: without durations.
    let content = concat!(
        "# DDL\nCREATE DATABASE d WITH NAME mo\n# DML\n# CONTEXT-DATABASE:d\n# CONTEXT-RETENTION-POLICY:mo\n",
        "m v=1 1\n",
    );
    fs::write(dir.path().join("a.txt"), content).expect("a file");
    let refused =
        import(dir.path(), &server, &["--path", "a.txt", "--to-user", "root", "--to-password", "x"]);
    check_code(&refused, 1);
    assert!(text(&refused).contains("authorization failed"), "{}", text(&refused));
    let mut as_root = chronolith(dir.path(), &["import", "influx", "--to", &url(&server), "--path", "a.txt"]);
    as_root.args(["--to-user", "root", "--state", "s.json"]).env("CHRONOLITH_TO_PASSWORD", "secret");
    check_code(&as_root.output().expect("chronolith runs"), 0);

    let server = Server::start(&dir.path().join("b"), &NO_SCRAPE);
    query(&server, "CREATE DATABASE d WITH DURATION 0s SHARD DURATION 3d NAME mo");
    let kept = import(dir.path(), &server, &["--path", "a.txt"]);
    check_code(&kept, 0);
    assert!(text(&kept).contains("it stays as it is"), "{}", text(&kept));
    assert!(query(&server, "SHOW RETENTION POLICIES ON d").contains("72h0m0s"));
}

#[test]
fn wrong_flags_end_with_code_2() {
    let dir = temp_dir();
    let both = ["import", "influx", "--path", "a", "--url", "b"];
    for args in [&["import", "influx"][..], &both, &["import", "influx", "--path", "a", "--concurrency", "0"]]
    {
        check_code(&run(dir.path(), args), 2);
    }
    check_code(&run(dir.path(), &["import", "influx", "--path", "missing.txt"]), 1);
}

/// A running `influxd` on free ports; killed when dropped.
struct Influxd {
    child: Child,
    port: u16,
}

impl Influxd {
    /// Returns `None` where InfluxDB is not installed.
    fn start(dir: &Path) -> Option<Influxd> {
        let (port, rpc_port) = (free_port(), free_port());
        let path = |name: &str| dir.join(name).to_str().expect("UTF-8").to_owned();
        let config = format!(
            "reporting-disabled = true\nbind-address = \"127.0.0.1:{rpc_port}\"\n[meta]\ndir = {:?}\n\
             [data]\ndir = {:?}\nwal-dir = {:?}\nquery-log-enabled = false\n[monitor]\nstore-enabled = false\n\
             [http]\nbind-address = \"127.0.0.1:{port}\"\nlog-enabled = false\n",
            path("meta"),
            path("data"),
            path("wal"),
        );
        fs::create_dir_all(dir).expect("a directory");
        fs::write(dir.join("influxd.conf"), config).expect("a file");
        let mut command = Command::new("influxd");
        command.args(["run", "-config", &path("influxd.conf")]).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        Some(Influxd { child, port })
    }

    /// The requests of the harness, sent to this server.
    fn client(&self, dir: &Path) -> Server {
        // Any process that a drop may kill.
        let child = Command::new("sleep").arg("3600").spawn().expect("sleep");
        let client = Server { child, port: self.port, dir: dir.to_owned() };
        let end = Instant::now() + IMPORT_WITHIN;
        while !client.try_request("GET", "/ping", &[], b"").is_ok_and(|answer| answer.status == 204) {
            assert!(Instant::now() < end, "influxd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        client
    }
}

impl Drop for Influxd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As [`fill`], without unsigned integers, which InfluxDB of distributions does not have.
fn fill_influxdb(influxdb: &Server) {
    query(influxdb, "CREATE DATABASE d");
    query(influxdb, "CREATE RETENTION POLICY w ON d DURATION 52w REPLICATION 1 SHARD DURATION 1d");
    query(influxdb, "CREATE DATABASE \"o d\" WITH DURATION 0s NAME \"r p\"");
    let select = "SELECT mean(b) AS b INTO d.w.mm FROM d.autogen.m GROUP BY time(1h)";
    query(influxdb, &format!("CREATE CONTINUOUS QUERY cq ON d BEGIN {select} END"));
    let lines = concat!(
        "m,host=a,b=t b=1,i=9007199254740993i,s=\"x\\\"y\\\\\",t=true 1000000000\n",
        "m,host=c b=-0,i=-9223372036854775808i 1500000000\n",
        "m i=9223372036854775807i,b=1.7976931348623157e308,t=f 1500000002\n",
        "m b=5e-324 1500000003\n",
        "m,h\\ x\\=\\,=v\\ \\,\\= f\\ \\,\\==1e6,s=\"a\nb=\\\"#\n# DML\n\" 9223372036854775806\n",
        "min s=\"\" -9223372036854775806\n",
    );
    write(influxdb, "d", "", lines.as_bytes());
    write(influxdb, "d", "", b"m,host=a s=\"\xff\x00\n\" 2000000000\n");
    for value in ["1i 1600000000000000000", "1.5 1500000000000000000", "\"x\" 1400000000000000000"] {
        write(influxdb, "o d", "", format!("a\\,b\\ \"c\" v={value}\n").as_bytes());
    }
    write(influxdb, "d", "w", b"wm,a=1 v=1");
}

#[test]
fn a_real_influxdb_is_copied_while_clients_write() {
    let dir = temp_dir();
    let Some(influxd) = Influxd::start(&dir.path().join("influxdb")) else {
        println!("not run: influxd is not installed");
        return;
    };
    let influxdb = influxd.client(dir.path());
    fill_influxdb(&influxdb);
    let mut target = Server::start(&dir.path().join("b"), &NO_SCRAPE);
    let source = format!("http://127.0.0.1:{}", influxd.port);
    let args = ["import", "influx", "--to", &url(&target), "--url", &source];
    let mut copying =
        chronolith(dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut written = 0;
    while copying.try_wait().expect("a state").is_none() {
        write(&influxdb, "d", "", format!("live,host=h{} v={written}i", written % 5).as_bytes());
        written += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    let copied = copying.wait_with_output().expect("an output");
    check_code(&copied, 0);
    // Writers have changed over: the rest is copied by a second run.
    let rest = run(dir.path(), &args);
    check_code(&rest, 0);
    let live = query(&target, "SELECT count(v) FROM d.autogen.live");
    assert!(live.contains(&format!("[[0,{written}]]")), "{written} written: {live}");
    assert!(query(&target, "SHOW CONTINUOUS QUERIES").contains("cq"));
    for statement in ["SELECT *::field FROM d.autogen.m GROUP BY *", "SELECT *::field FROM d.w.wm GROUP BY *"]
    {
        assert_eq!(query(&target, statement), query(&influxdb, statement), "{statement}");
    }
    let exported =
        fs::read(export(&mut target, dir.path(), "b.txt", &["--database", "o d"])).expect("a file");
    let exported = String::from_utf8_lossy(&exported).into_owned();
    for line in ["v=1i 16", "v=1.5 15", "v=\"x\" 14"] {
        assert!(exported.contains(line), "{exported}");
    }
}
