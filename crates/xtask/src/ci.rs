//! `cargo xtask ci`: everything that must hold before a merge, step by step, with one table at the end; with
//! `--all` also what must hold before a release.
//!
//! Invariants: a step that cannot run here says so by name and counts as skipped, never as passed; the
//! closing line is `N passed, N failed` with `, N skipped` where something was.
//! Not here: checks of the black-box kits, which live in `kits/`.

mod checkout;
mod kits;
mod long;
mod peers;
mod promqltest;
mod tally;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use crate::process::run_within;
use checkout::Checkout;
use tally::Tally;

/// The test of `crates/promql` that needs Prometheus's own scripts.
const PROMETHEUS_SCRIPTS_TEST: &str = "prometheus_scripts_pass";
const CARGO_WITHIN: Duration = Duration::from_secs(2400);

/// A step, and the group it runs in.
struct Step {
    name: &'static str,
    title: &'static str,
    group: Group,
    tier: Tier,
    run: fn(&Checkout) -> Result<Tally>,
}

/// Steps of one group run one after another, and the groups `Tests` and `Kits` at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Before all others, which need what it builds.
    First,
    /// Tests and compilers, which need no server.
    Tests,
    /// Kits, which mostly wait, and compilers after them, so that both groups take as long.
    Kits,
    /// Steps that measure times, for which nothing else may run.
    Last,
}

/// Occasion on which a step runs unless it is named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    /// Before each merge: `make test`.
    Merge,
    /// Before a release as well: `make test-all`.
    Release,
}

const STEPS: [Step; 27] = [
    step("tidy", "rules of sources and documents", Group::First, tidy),
    step("fmt", "formatting", Group::First, fmt),
    step("ui", "bundle and types of the web interface", Group::First, kits::ui),
    step("build", "the server, its tools and tests", Group::First, build),
    step("test", "tests of the crates", Group::Tests, test),
    step("clippy", "lints", Group::Tests, clippy),
    step("promqltest", "kit promqltest: PromQL scripts over HTTP", Group::Kits, promqltest::run),
    step("abuse", "kit abuse: hostile requests", Group::Kits, kits::abuse),
    step("grafana", "kit grafana-replay: calls of Grafana's data source", Group::Kits, kits::grafana),
    step("demo", "kit demo: the generated world in a server", Group::Kits, kits::demo),
    step("browser", "kit browser: the web interface in a browser", Group::Kits, kits::browser),
    step(
        "prom-peer",
        "kit prom-peer: a real Prometheus writes, reads, federates",
        Group::Kits,
        kits::prom_peer,
    ),
    step("influxql", "random InfluxQL and line protocol against InfluxDB", Group::Kits, influxql),
    step("crash", "kit crash: SIGKILL while writing", Group::Kits, kits::crash),
    step("clients", "kit clients: client libraries", Group::Kits, kits::clients),
    step(
        "influx-clients",
        "kit influx-clients: Telegraf, Grafana, influx, libraries of InfluxDB",
        Group::Kits,
        kits::influx_clients,
    ),
    step(
        "graphite-cluster",
        "kit graphite-cluster: graphite-web reads the server",
        Group::Kits,
        kits::graphite_cluster,
    ),
    step(
        "graphite-senders",
        "kit agents: collectd, carbon-c-relay and a sender as statsd write carbon lines",
        Group::Kits,
        kits::graphite_senders,
    ),
    step(
        "bucket-read",
        "kit bucket: blocks of Prometheus in a directory and an S3 server are read",
        Group::Kits,
        kits::bucket_read,
    ),
    step(
        "bucket-upload",
        "kit bucket: blocks are uploaded to a directory and an S3 server",
        Group::Kits,
        kits::bucket_upload,
    ),
    step(
        "bucket-readers",
        "kit bucket: read-only servers are killed while another one writes",
        Group::Kits,
        kits::bucket_readers,
    ),
    step("loom", "every order of threads over commit and series map", Group::Kits, loom),
    of_release("features", "builds without optional parts", Group::Kits, long::features),
    of_release("simulator", "a million operations of the simulator", Group::Tests, long::simulator),
    of_release("fuzz", "fuzzers of the readers of foreign inputs", Group::Tests, long::fuzz),
    of_release("append-path", "instructions and cache misses of appends", Group::Kits, append_path),
    of_release("browser-speed", "kit browser: times of the web interface", Group::Last, kits::browser_speed),
];

const fn step(
    name: &'static str,
    title: &'static str,
    group: Group,
    run: fn(&Checkout) -> Result<Tally>,
) -> Step {
    Step { name, title, group, tier: Tier::Merge, run }
}

const fn of_release(
    name: &'static str,
    title: &'static str,
    group: Group,
    run: fn(&Checkout) -> Result<Tally>,
) -> Step {
    Step { name, title, group, tier: Tier::Release, run }
}

/// Result of one step for the table.
#[derive(Clone)]
struct Row {
    name: &'static str,
    elapsed: Duration,
    tally: Tally,
}

pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<bool> {
    let chosen = choose(flags)?;
    let ci = Checkout { root: root.to_owned(), target_dir: crate::process::target_dir(root)? };
    let start = Instant::now();
    let run_group = |group: Group| -> Vec<Row> {
        chosen.iter().filter(|step| step.group == group).map(|step| run_step(&ci, step)).collect()
    };
    let mut rows = run_group(Group::First);
    let both = std::thread::scope(|scope| {
        let tests = scope.spawn(|| run_group(Group::Tests));
        let kits = run_group(Group::Kits);
        tests.join().map(|tests| [tests, kits].concat())
    });
    rows.extend(both.map_err(|_| anyhow!("a step panicked"))?);
    rows.extend(run_group(Group::Last));
    print_table(&rows);
    println!("all steps took {:.0} s", start.elapsed().as_secs_f64());
    let mut sum = Tally::default();
    for row in &rows {
        sum.add(&row.tally);
    }
    println!("{}", sum.closing_line());
    Ok(sum.failed_count == 0)
}

fn run_step(ci: &Checkout, step: &Step) -> Row {
    println!("\n=== {}: {}", step.name, step.title);
    let start = Instant::now();
    let tally = (step.run)(ci).unwrap_or_else(|error| Tally::failed(format!("{error:#}")));
    let elapsed = start.elapsed();
    println!("=== {}: {} ({:.1} s)", step.name, tally.verdict(), elapsed.as_secs_f64());
    Row { name: step.name, elapsed, tally }
}

/// The steps that `flags` ask for, in their fixed order; steps of a release by name or with `--all`.
fn choose(flags: &[&str]) -> Result<Vec<Step>> {
    let names_of = |list: &str| -> Result<Vec<String>> {
        let names: Vec<String> = list.split(',').map(str::to_owned).collect();
        match names.iter().find(|name| !STEPS.iter().any(|step| step.name == name.as_str())) {
            Some(name) => bail!("no step `{name}`; there are: {}", STEPS.map(|step| step.name).join(", ")),
            None => Ok(names),
        }
    };
    let mut only = None;
    let mut skip = Vec::new();
    let mut is_all = false;
    let mut rest = flags;
    loop {
        rest = match rest {
            ["--all", tail @ ..] => {
                is_all = true;
                tail
            }
            ["--only", list, tail @ ..] => {
                only = Some(names_of(list)?);
                tail
            }
            ["--skip", list, tail @ ..] => {
                skip = names_of(list)?;
                tail
            }
            [] => break,
            _ => bail!("usage: cargo xtask ci [--all] [--only A,B] [--skip A,B]"),
        };
    }
    let wanted = |step: &Step| match &only {
        Some(names) => names.iter().any(|name| name == step.name),
        None => is_all || step.tier == Tier::Merge,
    };
    let dropped = |name: &str| skip.iter().any(|n| n == name);
    Ok(STEPS.into_iter().filter(|step| wanted(step) && !dropped(step.name)).collect())
}

fn print_table(rows: &[Row]) {
    println!("\n{:<12} {:>8}  result", "step", "time");
    for row in rows {
        println!("{:<12} {:>6.1} s  {}", row.name, row.elapsed.as_secs_f64(), row.tally.verdict());
    }
    for row in rows {
        for note in &row.tally.notes {
            println!("{}: {note}", row.name);
        }
    }
    println!();
}

fn tidy(ci: &Checkout) -> Result<Tally> {
    Ok(Tally::of_step(crate::tidy::run(&ci.root, &[])?))
}

fn fmt(ci: &Checkout) -> Result<Tally> {
    cargo(ci, &["fmt", "--all", "--check"])
}

fn clippy(ci: &Checkout) -> Result<Tally> {
    cargo(ci, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
}

fn append_path(ci: &Checkout) -> Result<Tally> {
    if let Err(why) = peers::need_package("valgrind", || crate::process::find_program("valgrind").is_some()) {
        return Ok(Tally::not_run(&why));
    }
    if !crate::append_path::is_recorded(&ci.root) {
        return Ok(Tally::not_run("no figures are recorded: cargo xtask append-path --record"));
    }
    let comparison = crate::append_path::check(&ci.root)?;
    let mut tally = Tally::of_step(comparison.is_within);
    if !comparison.is_within {
        tally.notes = comparison.lines;
    }
    Ok(tally)
}

/// A short differential run; the long one is described in docs/influxql-differences.md.
fn influxql(ci: &Checkout) -> Result<Tally> {
    let is_present = || crate::process::find_program("influxd").is_some();
    if let Err(why) = peers::need_package("influxdb", is_present) {
        return Ok(Tally::not_run(&why));
    }
    let tool = ci.target_dir.join("debug/influxql").display().to_string();
    let server = ci.server_binary().display().to_string();
    let arguments = ["--server", &server, "--seed", "1", "--statements", "1000", "--bodies", "300"];
    let command: Vec<String> = [&*tool].iter().chain(&arguments).map(|word| (*word).to_owned()).collect();
    println!("$ {}", command.join(" "));
    Ok(Tally::of_step(run_within(CARGO_WITHIN, &command, &ci.root, &[])?.success))
}

/// With the features of the step `test`: a choice of packages would compile the dependencies a second time.
fn build(ci: &Checkout) -> Result<Tally> {
    cargo(ci, &["build", "--workspace", "--bins", "--tests", "--quiet"])
}

fn cargo(ci: &Checkout, args: &[&str]) -> Result<Tally> {
    Ok(Tally::of_step(run_cargo(ci, args)?.success))
}

fn test(ci: &Checkout) -> Result<Tally> {
    // Some tests compare with Prometheus and promtool; without them they say so and check nothing.
    let peers = peers::need_prometheus().err().map(|why| Tally::not_run(&format!("tests against it: {why}")));
    // Without examples in documentation, of which there are none (`cargo xtask tidy`): rustdoc would read
    // each crate once more.
    let mut args = vec!["test", "--workspace", "--tests", "--no-fail-fast", "--quiet"];
    if promqltest::prometheus_scripts(&ci.root).is_none() {
        // The step `promqltest` reports them as not run; here they must not count as passed.
        args.extend(["--", "--skip", PROMETHEUS_SCRIPTS_TEST]);
    }
    let done = run_cargo(ci, &args)?;
    let mut tally = Tally::of_cargo_test(&done.text);
    tally.expect_failure_unless(done.success);
    if let Some(not_run) = &peers {
        tally.add(not_run);
    }
    Ok(tally)
}

/// A build of its own: the flag changes the locks of the head.
fn loom(ci: &Checkout) -> Result<Tally> {
    let target_dir = ci.target_dir.join("loom").display().to_string();
    let args = "cargo test --package chronolith-wal --package chronolith-head --release --quiet --lib --test loom loom_";
    println!("$ RUSTFLAGS=\"--cfg loom\" {args}");
    let command: Vec<String> = args.split(' ').map(str::to_owned).collect();
    // The tests take two seconds without optimisation, which takes four minutes of CPU time.
    let env = [
        ("RUSTFLAGS", "--cfg loom"),
        ("CARGO_TARGET_DIR", &*target_dir),
        ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
        ("CARGO_PROFILE_RELEASE_LTO", "off"),
        ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ];
    let done = run_within(CARGO_WITHIN, &command, &ci.root, &env)?;
    let mut tally = Tally::of_cargo_test(&done.text);
    tally.expect_failure_unless(done.success);
    Ok(tally)
}

fn run_cargo(ci: &Checkout, args: &[&str]) -> Result<crate::process::Finished> {
    let command: Vec<String> = ["cargo"].iter().chain(args).map(|word| (*word).to_owned()).collect();
    println!("$ {}", command.join(" "));
    run_within(CARGO_WITHIN, &command, &ci.root, &[])
}

#[cfg(test)]
mod tests {
    use super::{STEPS, choose};

    #[track_caller]
    fn check(flags: &[&str], want: &[&str]) {
        let names: Vec<&str> = choose(flags).expect("steps").iter().map(|step| step.name).collect();
        assert_eq!(names, want);
    }

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        check(&["--all"], &STEPS.map(|step| step.name));
        check(&["--only", "fuzz,tidy"], &["tidy", "fuzz"]);
        check(&["--all", "--only", "clippy"], &["clippy"]);
        check(&["--only", "clippy,tidy"], &["tidy", "clippy"]);
        check(&["--only", "clippy,tidy", "--skip", "tidy"], &["clippy"]);
    }

    /// A merge waits for no step of a release; a release runs all that a merge does.
    #[test]
    fn steps_of_a_release_run_with_all_or_by_name() {
        let names = |flags: &[&str]| -> Vec<&str> {
            choose(flags).expect("steps").iter().map(|step| step.name).collect()
        };
        let merge = names(&[]);
        let added: Vec<&str> = names(&["--all"]).into_iter().filter(|name| !merge.contains(name)).collect();
        assert_eq!(added, ["features", "simulator", "fuzz", "append-path", "browser-speed"]);
        assert_eq!(merge.len() + added.len(), STEPS.len());
        for name in added {
            assert_eq!(names(&["--only", name]), [name]);
            assert!(!names(&["--all", "--skip", name]).contains(&name));
        }
    }

    #[test]
    fn unknown_steps_and_flags_are_refused() {
        assert!(choose(&["--only", "lint"]).is_err());
        assert!(choose(&["--fast"]).is_err());
        assert!(choose(&["--only"]).is_err());
        assert!(choose(&["--all", "clippy"]).is_err());
        assert!(choose(&["--only", "clippy", "--fast"]).is_err());
    }
}
