//! The black-box kits: each tests a running server from outside, over its port only.
//! Invariants: a server of its own for each kit, on a free port over an empty directory.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};

use super::checkout::Checkout;
use super::peers;
use super::tally::Tally;
use crate::process::{Server, find_program, free_ports, run_within};

/// From the server's first own samples to the first request of the client libraries.
const CLIENTS_PAUSE: Duration = Duration::from_secs(3);
/// The longest kit, the one of the browser, takes 280 CPU seconds next to the tests of the crates.
const KIT_WITHIN: Duration = Duration::from_secs(900);
const NPM_WITHIN: Duration = Duration::from_secs(120);
const PIP_WITHIN: Duration = Duration::from_secs(240);
/// The default budgets of writes (512 MiB) and queries (1 GiB), and as much as one of them for all the rest.
const ABUSE_RSS_MB_MAX: u32 = 2048;
const CRASH_ROUND_COUNT: u32 = 5;
/// Ports of the kit `prom-peer`, in a row: sender, reader, federation.
const PROM_PEER_PORT_COUNT: u16 = 3;

/// Kits that run against a cluster before each merge: clients of each protocol that writes.
const CLUSTER_KITS: &str = "clients,influx-clients,agents,prom-peer";

/// Files of the kit `rules` that need no Prometheus, with their flags.
const RULE_KITS: [(&str, &str); 2] = [("kill.py", "--kills 20"), ("hostile.py", "--series 20000")];

/// Folder of the kits, from the root of the checkout; another one may be named by `CHRONOLITH_KITS`.
const KIT_DIR: &str = "kits";
const UI_DIR: &str = "crates/ui";

pub(super) fn abuse(ci: &Checkout) -> Result<Tally> {
    with_server(ci, "abuse", "abuse.py", |kit, server| {
        let pid = server.pid().to_string();
        let rss = ABUSE_RSS_MB_MAX.to_string();
        python(ci, kit, &[&server.url(), "--pid", &pid, "--max-rss-mb", &rss])
    })
}

pub(super) fn grafana(ci: &Checkout) -> Result<Tally> {
    with_server(ci, "grafana-replay", "replay.py", |kit, server| {
        python(ci, kit, &[&server.url(), "--only", "prom", "rules"])
    })
}

/// The bundle of the interface, which the step `build` embeds, and the types of its modules.
pub(super) fn ui(ci: &Checkout) -> Result<Tally> {
    for (package, program) in [("nodejs", "node"), ("npm", "npm")] {
        if let Err(why) = peers::need_package(package, || find_program(program).is_some()) {
            return Ok(Tally::not_run(&why));
        }
    }
    let dir = ci.root.join(UI_DIR);
    let npm = |args: &str| {
        println!("$ npm {args}");
        let command: Vec<String> = ["npm"].into_iter().chain(args.split(' ')).map(str::to_owned).collect();
        run_within(NPM_WITHIN, &command, &dir, &[]).map(|done| done.success)
    };
    if !npm("ci --ignore-scripts --no-audit --no-fund --loglevel=error")? {
        return Ok(Tally::not_run("npm cannot install the packages of crates/ui"));
    }
    let mut tally = Tally::of_step(npm("run --silent build")?);
    tally.add(&Tally::of_step(npm("run --silent check")?));
    Ok(tally)
}

/// All steps of the kit except the speed steps.
pub(super) fn browser(ci: &Checkout) -> Result<Tally> {
    run_browser(ci, "pages")
}

/// The steps of the kit that measure times.
pub(super) fn browser_speed(ci: &Checkout) -> Result<Tally> {
    run_browser(ci, "speed")
}

/// Without the bundle, the kit would see the plain page.
fn run_browser(ci: &Checkout, part: &str) -> Result<Tally> {
    if let Err(why) = peers::need_package("chromium", || find_program("chromium").is_some()) {
        return Ok(Tally::not_run(&why));
    }
    if !ci.root.join(UI_DIR).join("build/lib/ui.js").is_file() {
        return Ok(Tally::not_run("there is no bundle of the interface; run the step `ui`, then `build`"));
    }
    let Some(kit) = find_kit(ci, "browser", "check.py") else { return Ok(no_kit("browser")) };
    let requirements = kit.with_file_name("requirements.txt");
    let venv = crate::peers::python_dir("browser", &requirements)?;
    let python = match python_in(ci, &venv, &requirements) {
        Ok(python) => python.display().to_string(),
        Err(why) => return Ok(Tally::not_run(&format!("{why:#}"))),
    };
    let binary = binary_of(ci)?;
    let programs = [("--server", binary.clone()), ("--demo", demo_binary(&binary)?)];
    with_server(ci, "browser", "check.py", |kit, server| {
        let mut command = vec![python, kit.display().to_string(), server.url()];
        command.extend(["--part", part].map(str::to_owned));
        for (flag, program) in programs {
            command.extend([flag.to_owned(), program.display().to_string()]);
        }
        judge(ci, &command, &[])
    })
}

/// The generator of `make demo`, built with the server.
fn demo_binary(server: &Path) -> Result<PathBuf> {
    let demo = server.with_file_name("chronolith-demo");
    if !demo.is_file() {
        bail!("there is no {}; run the step `build` first", demo.display());
    }
    Ok(demo)
}

/// The generator of `make demo` against a server of the kit, and one that the generator starts.
pub(super) fn demo(ci: &Checkout) -> Result<Tally> {
    let Some(kit) = find_kit(ci, "demo", "check.py") else { return Ok(no_kit("demo")) };
    let binary = binary_of(ci)?;
    let demo = demo_binary(&binary)?;
    let flags = ["--multitenancy", "--self-scrape=off"];
    let server = Server::start_with(&binary, &log_dir(ci), "demo", &flags)?;
    let demo = demo.display().to_string();
    let binary = binary.display().to_string();
    let tally = python(ci, &kit, &[&server.url(), "--demo", &demo, "--server", &binary])?;
    if tally.failed_count > 0 {
        server.print_log_tail();
    }
    Ok(tally)
}

pub(super) fn prom_peer(ci: &Checkout) -> Result<Tally> {
    if let Err(why) = peers::need_prometheus() {
        return Ok(Tally::not_run(&why));
    }
    with_server(ci, "prom-peer", "run.sh", |kit, server| {
        let command = ["bash".to_owned(), kit.display().to_string(), server.url()];
        let prometheus = older_prometheus(ci)?.display().to_string();
        let port = free_ports(PROM_PEER_PORT_COUNT)?.to_string();
        judge(ci, &command, &[("PROM", prometheus.as_str()), ("PORT", port.as_str())])
    })
}

/// A script in the place of `prometheus` that takes the choice of the protocol out of the configuration: the
/// kit writes it, Debian's 2.42 does not know it and sends what the kit asks for, remote write 1.0, anyway.
fn older_prometheus(ci: &Checkout) -> Result<PathBuf> {
    let script = "#!/bin/sh\n\
        for arg in \"$@\"; do\n\
        case \"$arg\" in --config.file=*) sed -i 's/protobuf_message: [^,}]*, //' \"${arg#*=}\";; esac\n\
        done\n\
        exec prometheus \"$@\"\n";
    let path = log_dir(ci).join("prometheus-older.sh");
    std::fs::create_dir_all(log_dir(ci))?;
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

pub(super) fn crash(ci: &Checkout) -> Result<Tally> {
    let serve = format!("{} serve --data-dir {{dir}} --http 127.0.0.1:{{port}}", binary_of(ci)?.display());
    let carbon = format!("{serve} --carbon.listen 127.0.0.1:{{carbon}} --graphite.schemas {{schemas}}");
    let mut tally = crash_kit(ci, "crash.py", &serve)?;
    tally.add(&crash_kit(ci, "carbon.py", &carbon)?);
    Ok(tally)
}

fn crash_kit(ci: &Checkout, file: &str, launch: &str) -> Result<Tally> {
    let Some(kit) = find_kit(ci, "crash", file) else { return Ok(no_kit("crash")) };
    let rounds = CRASH_ROUND_COUNT.to_string();
    let log = log_dir(ci).join("crash.log");
    std::fs::create_dir_all(log_dir(ci))?;
    let port = free_ports(1)?.to_string();
    let log = log.display().to_string();
    python(ci, &kit, &["--launch", launch, "--rounds", &rounds, "--port", &port, "--log", &log])
}

pub(super) fn clients(ci: &Checkout) -> Result<Tally> {
    let Some(kit) = find_kit(ci, "clients", "smoke.py") else { return Ok(no_kit("clients")) };
    let requirements = kit.with_file_name("requirements.txt");
    let python = match python_with(ci, &requirements) {
        Ok(python) => python.display().to_string(),
        Err(why) => return Ok(Tally::not_run(&format!("{why:#}"))),
    };
    with_server(ci, "clients", "smoke.py", |kit, server| {
        let url = server.url();
        let write = format!("{url}/api/v1/write");
        let metrics = format!("{url}/metrics");
        let args = ["--query", &url, "--remote-write", &write, "--metrics", &metrics];
        let mut command = vec![python, kit.display().to_string()];
        command.extend(args.map(str::to_owned));
        // A client of the kit asks for a range that ends with the last whole second. Its samples must be
        // older.
        std::thread::sleep(CLIENTS_PAUSE);
        judge(ci, &command, &[])
    })
}

/// Without the libraries of PyPI, the kit runs what needs none.
pub(super) fn influx_clients(ci: &Checkout) -> Result<Tally> {
    let Some(kit) = find_kit(ci, "influx-clients", "replay.py") else { return Ok(no_kit("influx-clients")) };
    let mut skipped = Vec::new();
    if let Err(why) = peers::need_package("influxdb-client", || find_program("influx").is_some()) {
        skipped.push(why);
    }
    let python = python_with(ci, &kit.with_file_name("requirements.txt")).unwrap_or_else(|why| {
        skipped.push(format!("{why:#}"));
        PathBuf::from("python3")
    });
    with_server(ci, "influx-clients", "replay.py", |kit, server| {
        let command = [python.display().to_string(), kit.display().to_string(), server.url()];
        let mut tally = judge(ci, &command, &[])?;
        skipped.iter().for_each(|why| tally.add(&Tally::not_run(why)));
        Ok(tally)
    })
}

/// Without the virtual environment of the oracle, nothing runs.
pub(super) fn graphite_cluster(ci: &Checkout) -> Result<Tally> {
    let Some(kit) = find_kit(ci, "graphite-cluster", "run.py") else { return Ok(no_kit("graphite-cluster")) };
    let binary = binary_of(ci)?.display().to_string();
    let tally = python(ci, &kit, &["--server", &binary])?;
    if tally == Tally::default() {
        let missing = "there is no graphite-web; tools/graphite-oracle/run.sh setup installs it";
        return Ok(Tally::not_run(missing));
    }
    Ok(tally)
}

/// Without the packages of Debian, the kit sends as statsd does.
pub(super) fn graphite_senders(ci: &Checkout) -> Result<Tally> {
    let Some(kit) = find_kit(ci, "agents", "senders.py") else { return Ok(no_kit("agents")) };
    let (senders, skipped) = available_senders();
    let binary = binary_of(ci)?.display().to_string();
    let mut tally = python(ci, &kit, &["--server", &binary, "--only", &senders])?;
    skipped.iter().for_each(|why| tally.add(&Tally::not_run(why)));
    Ok(tally)
}

/// Senders of the kit `agents` that this machine has, as a list for the kit, and what the others lack.
fn available_senders() -> (String, Vec<String>) {
    let mut senders = vec!["statsd"];
    let mut skipped = Vec::new();
    for (package, program) in [("collectd-core", "collectd"), ("carbon-c-relay", "carbon-c-relay")] {
        match peers::need_package(package, || find_program(program).is_some()) {
            Ok(()) => senders.push(program),
            Err(why) => skipped.push(why),
        }
    }
    (senders.join(","), skipped)
}

/// Kits that write and read, against a gateway with its owner and a query node, over a log in a directory.
pub(super) fn cluster(ci: &Checkout) -> Result<Tally> {
    run_on_cluster(ci, &binary_of(ci)?, &["--only", CLUSTER_KITS])
}

/// The same kits and more with gateway, owners and query node as processes of their own, over a broker of
/// Kafka: with one partition, and with two. `binary` has the feature `kafka`.
pub(super) fn cluster_over_kafka(ci: &Checkout, binary: &Path) -> Result<Tally> {
    let mut tally = Tally::default();
    for partitions in ["1", "2"] {
        tally.add(&run_on_cluster(ci, binary, &["--kafka", "--partitions", partitions])?);
    }
    Ok(tally)
}

/// Without a package, the kits that need it do not run.
fn run_on_cluster(ci: &Checkout, binary: &Path, flags: &[&str]) -> Result<Tally> {
    let Some(kit) = find_kit(ci, "cluster", "run.py") else { return Ok(no_kit("cluster")) };
    let (senders, mut skipped) = available_senders();
    let binary = binary.display().to_string();
    let mut args = vec!["--server".to_owned(), binary, "--senders".to_owned(), senders];
    args.extend(flags.iter().map(|flag| (*flag).to_owned()));
    match peers::need_prometheus() {
        Ok(()) => args.extend(["--prometheus".to_owned(), older_prometheus(ci)?.display().to_string()]),
        Err(why) => {
            args.extend(["--without", "prom-peer"].map(str::to_owned));
            skipped.push(why);
        }
    }
    let libraries = ["clients", "influx-clients"].map(|name| kit.with_file_name("..").join(name));
    let installed: Result<Vec<PathBuf>> =
        libraries.iter().map(|dir| python_with(ci, &dir.join("requirements.txt"))).collect();
    match installed {
        Ok(python) => args.extend(["--python".to_owned(), python[0].display().to_string()]),
        Err(why) => {
            args.extend(["--without", "clients"].map(str::to_owned));
            skipped.push(format!("{why:#}"));
        }
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut tally = python(ci, &kit, &args)?;
    skipped.iter().for_each(|why| tally.add(&Tally::not_run(why)));
    Ok(tally)
}

pub(super) fn bucket_read(ci: &Checkout) -> Result<Tally> {
    bucket(ci, "read.py")
}

pub(super) fn bucket_upload(ci: &Checkout) -> Result<Tally> {
    bucket(ci, "upload.py")
}

pub(super) fn bucket_readers(ci: &Checkout) -> Result<Tally> {
    bucket(ci, "readers.py")
}

/// Without Go, there is no S3 server, and the kit uses a directory alone.
fn bucket(ci: &Checkout, file: &str) -> Result<Tally> {
    let Some(kit) = find_kit(ci, "bucket", file) else { return Ok(no_kit("bucket")) };
    if let Err(why) = peers::need_prometheus() {
        return Ok(Tally::not_run(&why));
    }
    let binary = binary_of(ci)?.display().to_string();
    let gateway = match crate::peers::build_one(&ci.root, "versitygw") {
        Ok(gateway) => gateway.display().to_string(),
        Err(why) => {
            let mut tally = python(ci, &kit, &["--server", &binary])?;
            tally.add(&Tally::not_run(&format!("{why:#}")));
            return Ok(tally);
        }
    };
    python(ci, &kit, &["--server", &binary, "--versitygw", &gateway])
}

/// Without Go, there is no Prometheus of the version that rules follow, and nothing is compared with it.
pub(super) fn rules(ci: &Checkout) -> Result<Tally> {
    let binary = binary_of(ci)?.display().to_string();
    let mut tally = Tally::default();
    for (file, flags) in RULE_KITS {
        let Some(kit) = find_kit(ci, "rules", file) else { return Ok(no_kit("rules")) };
        let args: Vec<&str> = [&*binary].into_iter().chain(flags.split(' ')).collect();
        tally.add(&python(ci, &kit, &args)?);
    }
    let Some(kit) = find_kit(ci, "rules", "compare.py") else { return Ok(no_kit("rules")) };
    match crate::peers::build_one(&ci.root, "prometheus") {
        Ok(prometheus) => tally.add(&python(ci, &kit, &[&binary, &prometheus.display().to_string()])?),
        Err(why) => tally.add(&Tally::not_run(&format!("{why:#}"))),
    }
    Ok(tally)
}

/// Runs a kit against a fresh server; shows the server's log when something failed.
fn with_server(
    ci: &Checkout,
    kit: &str,
    file: &str,
    run: impl FnOnce(&Path, &Server) -> Result<Tally>,
) -> Result<Tally> {
    let Some(path) = find_kit(ci, kit, file) else { return Ok(no_kit(kit)) };
    let server = Server::start(&binary_of(ci)?, &log_dir(ci), kit)?;
    let tally = run(&path, &server);
    if tally.as_ref().map_or(true, |tally| tally.failed_count > 0) {
        server.print_log_tail();
    }
    tally
}

pub(super) fn python(ci: &Checkout, kit: &Path, args: &[&str]) -> Result<Tally> {
    if let Err(why) = peers::need_package("python3", || find_program("python3").is_some()) {
        return Ok(Tally::not_run(&why));
    }
    let mut command = vec!["python3".to_owned(), kit.display().to_string()];
    command.extend(args.iter().map(|arg| (*arg).to_owned()));
    judge(ci, &command, &[])
}

fn judge(ci: &Checkout, command: &[String], env: &[(&str, &str)]) -> Result<Tally> {
    println!("$ {}", command.join(" "));
    // The kits may lie in a folder that is read-only or not ours.
    let env = [env, &[("PYTHONDONTWRITEBYTECODE", "1")]].concat();
    let done = run_within(KIT_WITHIN, command, &ci.root, &env)?;
    let Some(mut tally) = Tally::of_kit(&done.text) else { bail!("the kit ended without a result") };
    tally.expect_failure_unless(done.success);
    Ok(tally)
}

/// A Python with the packages of `requirements`, in a virtual environment below the target directory.
fn python_with(ci: &Checkout, requirements: &Path) -> Result<PathBuf> {
    python_in(ci, &ci.target_dir.join("ci-venv"), requirements)
}

/// Held while packages are installed: kits that run at the same time share an environment.
static INSTALLING: Mutex<()> = Mutex::new(());

/// The same in the environment `venv`.
fn python_in(ci: &Checkout, venv: &Path, requirements: &Path) -> Result<PathBuf> {
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let python = venv.join("bin/python");
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let venv_dir = venv.display().to_string();
    let python_path = python.display().to_string();
    let requirements = requirements.display().to_string();
    if !python.is_file() {
        let create = words(&["python3", "-m", "venv", &venv_dir]);
        let created = || run_within(PIP_WITHIN, &create, &ci.root, &[]).is_ok_and(|done| done.success);
        if let Err(why) = peers::need_package("python3-venv", created) {
            drop(std::fs::remove_dir_all(venv));
            bail!("no Python environment: {why}");
        }
    }
    let install = words(&[
        &python_path,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "-r",
        &requirements,
    ]);
    if !run_within(PIP_WITHIN, &install, &ci.root, &[])?.success {
        bail!("pip cannot install {requirements}");
    }
    Ok(python)
}

pub(super) fn binary_of(ci: &Checkout) -> Result<PathBuf> {
    let binary = ci.server_binary();
    if !binary.is_file() {
        bail!("there is no {}; run the step `build` first", binary.display());
    }
    Ok(binary)
}

pub(super) fn log_dir(ci: &Checkout) -> PathBuf {
    ci.target_dir.join("ci-logs")
}

pub(super) fn find_kit(ci: &Checkout, kit: &str, file: &str) -> Option<PathBuf> {
    let named = std::env::var_os("CHRONOLITH_KITS").map(PathBuf::from);
    let dir = named.unwrap_or_else(|| ci.root.join(KIT_DIR));
    dir.join(kit).join(file).canonicalize().ok()
}

pub(super) fn no_kit(kit: &str) -> Tally {
    Tally::failed(format!("there is no kit `{kit}` in `{KIT_DIR}` of the checkout or in CHRONOLITH_KITS"))
}
