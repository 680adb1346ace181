//! `cargo xtask ci`: everything that must hold before a merge, step by step, with one table at the end; with
//! `--all` also what must hold before a release.
//!
//! Invariants: a step that cannot run here says so by name and counts as skipped, never as passed; the
//! closing line is `N passed, N failed` with `, N skipped` where something was.
//! Not here: checks of the black-box kits, which live in `kits/`.

mod checkout;
mod cost;
mod kits;
mod lints;
mod long;
mod peers;
mod promqltest;
mod speed;
mod tally;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use crate::cpu;
use crate::process::run_within;
use checkout::Checkout;
use cost::StepCost;
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

/// Steps of one group run one after another, and the groups `Tests` and `Kits` at the same time. The thread
/// of `Tests` runs further kits when it is done, so that both threads take as long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Before all others, which need what it builds.
    First,
    /// Tests and compilers, which need no server.
    Tests,
    /// Kits, which mostly wait, and compilers after them; two of them may run at the same time.
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

const STEPS: [Step; 31] = [
    step("tidy", "rules of sources and documents", Group::First, tidy),
    step("fmt", "formatting", Group::First, fmt),
    step("ui", "bundle and types of the web interface", Group::First, kits::ui),
    step("build", "the server, its tools and tests, with lints", Group::First, build),
    step("test", "tests of the crates", Group::Tests, test),
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
    step("cluster", "kits against a gateway with its owner and a query node", Group::Kits, kits::cluster),
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
    of_release("kafka", "replicated log and kits against a real broker of Kafka", Group::Kits, long::kafka),
    of_release(
        "kafka-librdkafka",
        "the replicated log by librdkafka against the same broker",
        Group::Kits,
        long::kafka_librdkafka,
    ),
    of_release("simulator", "a million operations of the simulator", Group::Tests, long::simulator),
    of_release(
        "every-byte",
        "files of the head cut and flipped at every byte",
        Group::Tests,
        long::every_byte,
    ),
    of_release("fuzz", "fuzzers of the readers of foreign inputs", Group::Tests, long::fuzz),
    of_release("append-path", "instructions and cache misses of appends", Group::Kits, append_path),
    of_release("rules", "kit rules: SIGKILL, hostile inputs, Prometheus beside it", Group::Kits, kits::rules),
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
    cost: StepCost,
    tally: Tally,
}

pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<bool> {
    let choice = Choice::parse(flags)?;
    let ci = Checkout { root: root.to_owned(), target_dir: crate::process::target_dir(root)? };
    let cost_start = cost::Start::of_run(&ci, choice.is_whole);
    let start = Instant::now();
    let run_group = |group: Group| -> Vec<Row> {
        let of_group = choice.steps.iter().filter(|step| step.group == group);
        of_group.map(|step| run_step(&ci, step, cost_start.as_ref().ok())).collect()
    };
    let kits: Vec<&Step> = choice.steps.iter().filter(|step| step.group == Group::Kits).collect();
    let next_kit = AtomicUsize::new(0);
    let run_kits = || -> Vec<Row> {
        let taken = std::iter::from_fn(|| kits.get(next_kit.fetch_add(1, Ordering::Relaxed)));
        taken.map(|step| run_step(&ci, step, cost_start.as_ref().ok())).collect()
    };
    let mut rows = run_group(Group::First);
    let both = std::thread::scope(|scope| {
        let tests = scope.spawn(|| [run_group(Group::Tests), run_kits()].concat());
        let kits = run_kits();
        tests.join().map(|tests| [tests, kits].concat())
    });
    rows.extend(both.map_err(|_| anyhow!("a step panicked"))?);
    rows.sort_by_key(|row| choice.steps.iter().position(|step| step.name == row.cost.name));
    rows.extend(run_group(Group::Last));
    print_table(&rows);
    println!("all steps took {:.0} s", start.elapsed().as_secs_f64());
    let mut sum = Tally::default();
    for row in &rows {
        sum.add(&row.tally);
    }
    sum.add(&judge_cost(root, cost_start, &rows, &choice)?);
    println!("{}", sum.closing_line());
    Ok(sum.failed_count == 0)
}

/// Compares the cost of the steps that passed with the recorded figures, or records it. A run for a merge
/// names what costs more, a run for a release fails: machines of merges are shared, and a step may wait.
fn judge_cost(
    root: &Path,
    start: Result<cost::Start, String>,
    rows: &[Row],
    choice: &Choice,
) -> Result<Tally> {
    let has_run = |row: &&Row| row.tally.failed_count == 0 && row.tally.passed_count > 0;
    let steps: Vec<StepCost> = rows.iter().filter(has_run).map(|row| row.cost.clone()).collect();
    let failed = rows.iter().find(|row| row.tally.failed_count > 0);
    let comparable = start.and_then(|start| start.end(&steps)).and_then(|()| match failed {
        Some(row) => Err(format!("the step {} failed", row.cost.name)),
        None => Ok(()),
    });
    match comparable {
        Ok(()) if choice.records_cost => cost::record(root, &steps).map(|()| Tally::default()),
        Ok(()) => {
            let tally = cost::check(root, &steps)?;
            tally.notes.iter().for_each(|note| println!("more CPU time than recorded: {note}"));
            Ok(if choice.is_all { tally } else { Tally::default() })
        }
        Err(why) if choice.records_cost => Ok(Tally::failed(format!("CPU time is not recorded: {why}"))),
        Err(why) => {
            println!("CPU time is not compared: {why}");
            Ok(Tally::default())
        }
    }
}

fn run_step(ci: &Checkout, step: &Step, comparable: Option<&cost::Start>) -> Row {
    println!("\n=== {}: {}", step.name, step.title);
    let start = Instant::now();
    let cpu_before = cpu::used();
    let tally = (step.run)(ci).unwrap_or_else(|error| Tally::failed(format!("{error:#}")));
    let cpu_s = cpu::used().saturating_sub(cpu_before).as_secs_f64();
    let end = Instant::now();
    let units = comparable.map_or(0.0, |run| run.units(cpu_s, start, end));
    let wall_s = end.saturating_duration_since(start).as_secs_f64();
    let cost = StepCost { name: step.name.to_owned(), wall_s, cpu_s, units };
    println!("=== {}: {} ({:.1} s, {:.1} s of CPU)", step.name, tally.verdict(), cost.wall_s, cost.cpu_s);
    Row { cost, tally }
}

/// The run that flags ask for.
struct Choice {
    /// In their fixed order; steps of a release by name or with `--all`.
    steps: Vec<Step>,
    /// True with `--all`: the run is for a release.
    is_all: bool,
    /// True if no step of a merge is left out.
    is_whole: bool,
    records_cost: bool,
}

impl Choice {
    fn parse(flags: &[&str]) -> Result<Choice> {
        let mut only = None;
        let mut skip = Vec::new();
        let mut is_all = false;
        let mut records_cost = false;
        let mut rest = flags;
        loop {
            rest = match rest {
                ["--all", tail @ ..] => {
                    is_all = true;
                    tail
                }
                ["--record-cost", tail @ ..] => {
                    records_cost = true;
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
                _ => bail!("usage: cargo xtask ci [--all] [--only A,B] [--skip A,B] [--record-cost]"),
            };
        }
        let is_whole = only.is_none() && skip.is_empty();
        if records_cost && !is_whole {
            bail!("--record-cost takes a run of all steps, without --only and --skip");
        }
        let wanted = |step: &Step| match &only {
            Some(names) => names.iter().any(|name| name == step.name),
            None => is_all || step.tier == Tier::Merge,
        };
        let dropped = |name: &str| skip.iter().any(|n| n == name);
        let steps = STEPS.into_iter().filter(|step| wanted(step) && !dropped(step.name)).collect();
        Ok(Choice { steps, is_all, is_whole, records_cost })
    }
}

fn names_of(list: &str) -> Result<Vec<String>> {
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    match names.iter().find(|name| !STEPS.iter().any(|step| step.name == name.as_str())) {
        Some(name) => bail!("no step `{name}`; there are: {}", STEPS.map(|step| step.name).join(", ")),
        None => Ok(names),
    }
}

fn print_table(rows: &[Row]) {
    println!("\n{:<16} {:>8} {:>8}  result", "step", "time", "CPU");
    for row in rows {
        let StepCost { name, wall_s, cpu_s, .. } = &row.cost;
        println!("{name:<16} {wall_s:>6.1} s {cpu_s:>6.1} s  {}", row.tally.verdict());
    }
    for row in rows {
        for note in &row.tally.notes {
            println!("{}: {note}", row.cost.name);
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
/// A warning is a failure.
fn build(ci: &Checkout) -> Result<Tally> {
    let done = run_cargo(ci, &["build", "--workspace", "--all-targets", "--quiet"])?;
    let mut tally = Tally::of_step(done.success);
    if let Err(why) = lints::driver() {
        tally.add(&Tally::not_run(&format!("lints: {why}")));
    }
    Ok(tally)
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
    // `test` has the same environment as `build`: the compiler is part of what cargo compares.
    let driver = lints::driver().ok();
    let env: Vec<(&str, &str)> = driver.as_deref().map(lints::environment).into_iter().flatten().collect();
    run_within(CARGO_WITHIN, &command, &ci.root, &env)
}

#[cfg(test)]
mod tests {
    use super::{Choice, STEPS};

    #[track_caller]
    fn check(flags: &[&str], want: &[&str]) {
        let choice = Choice::parse(flags).expect("steps");
        let names: Vec<&str> = choice.steps.iter().map(|step| step.name).collect();
        assert_eq!(names, want);
    }

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        check(&["--all"], &STEPS.map(|step| step.name));
        check(&["--only", "fuzz,tidy"], &["tidy", "fuzz"]);
        check(&["--all", "--only", "fmt"], &["fmt"]);
        check(&["--only", "fmt,tidy"], &["tidy", "fmt"]);
        check(&["--only", "fmt,tidy", "--skip", "tidy"], &["fmt"]);
    }

    /// A merge waits for no step of a release; a release runs all that a merge does.
    #[test]
    fn steps_of_a_release_run_with_all_or_by_name() {
        let names = |flags: &[&str]| -> Vec<&str> {
            Choice::parse(flags).expect("steps").steps.iter().map(|step| step.name).collect()
        };
        let merge = names(&[]);
        let added: Vec<&str> = names(&["--all"]).into_iter().filter(|name| !merge.contains(name)).collect();
        assert_eq!(
            added,
            [
                "features",
                "kafka",
                "kafka-librdkafka",
                "simulator",
                "every-byte",
                "fuzz",
                "append-path",
                "rules",
                "browser-speed"
            ]
        );
        assert_eq!(merge.len() + added.len(), STEPS.len());
        for name in added {
            assert_eq!(names(&["--only", name]), [name]);
            assert!(!names(&["--all", "--skip", name]).contains(&name));
        }
    }

    #[test]
    fn unknown_steps_and_flags_are_refused() {
        assert!(Choice::parse(&["--only", "lint"]).is_err());
        assert!(Choice::parse(&["--fast"]).is_err());
        assert!(Choice::parse(&["--only"]).is_err());
        assert!(Choice::parse(&["--all", "fmt"]).is_err());
        assert!(Choice::parse(&["--only", "fmt", "--fast"]).is_err());
    }

    /// The figures of a part of the steps would make all others incomparable.
    #[test]
    fn only_a_whole_run_records_its_cost() {
        for (flags, is_whole) in
            [(&[][..], true), (&["--all"], true), (&["--only", "test"], false), (&["--skip", "test"], false)]
        {
            assert_eq!(Choice::parse(flags).expect("steps").is_whole, is_whole, "{flags:?}");
            let recording = [flags, &["--record-cost"]].concat();
            assert_eq!(Choice::parse(&recording).is_ok(), is_whole, "{flags:?}");
        }
    }
}
