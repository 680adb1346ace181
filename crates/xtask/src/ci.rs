//! `cargo xtask ci`: everything that must hold before a merge, step by step, with one table at the end.
//!
//! Invariants: a step that cannot run here says so by name and counts as skipped, never as passed; the
//! closing line is `N passed, N failed` with `, N skipped` where something was.
//! Not here: what the black-box kits check; they live in `kits/`.

mod checkout;
mod kits;
mod peers;
mod promqltest;
mod tally;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::run_within;
use checkout::Checkout;
use tally::Tally;

/// The test of `crates/promql` that needs Prometheus's own scripts.
const PROMETHEUS_SCRIPTS_TEST: &str = "prometheus_scripts_pass";
const CARGO_WITHIN: Duration = Duration::from_secs(1500);

struct Step {
    name: &'static str,
    title: &'static str,
    run: fn(&Checkout) -> Result<Tally>,
}

const STEPS: [Step; 19] = [
    Step { name: "tidy", title: "rules of sources and documents", run: tidy },
    Step { name: "fmt", title: "formatting", run: fmt },
    Step { name: "clippy", title: "lints", run: clippy },
    Step { name: "test", title: "tests of the crates", run: test },
    Step { name: "loom", title: "every order of threads over commit and series map", run: loom },
    Step { name: "append-path", title: "instructions and cache misses of appends", run: append_path },
    Step { name: "build", title: "the server and its tools", run: build },
    Step { name: "promqltest", title: "kit promqltest: PromQL scripts over HTTP", run: promqltest::run },
    Step { name: "abuse", title: "kit abuse: hostile requests", run: kits::abuse },
    Step { name: "grafana", title: "kit grafana-replay: calls of Grafana's data source", run: kits::grafana },
    Step { name: "page", title: "kit page: the web page in a browser", run: kits::page },
    Step {
        name: "prom-peer",
        title: "kit prom-peer: a real Prometheus writes, reads, federates",
        run: kits::prom_peer,
    },
    Step { name: "influxql", title: "random InfluxQL and line protocol against InfluxDB", run: influxql },
    Step { name: "crash", title: "kit crash: SIGKILL while writing", run: kits::crash },
    Step { name: "clients", title: "kit clients: client libraries", run: kits::clients },
    Step {
        name: "influx-clients",
        title: "kit influx-clients: Telegraf, Grafana, influx, libraries of InfluxDB",
        run: kits::influx_clients,
    },
    Step {
        name: "bucket-read",
        title: "kit bucket: blocks of Prometheus in a directory and an S3 server are read",
        run: kits::bucket_read,
    },
    Step {
        name: "bucket-upload",
        title: "kit bucket: blocks are uploaded to a directory and an S3 server",
        run: kits::bucket_upload,
    },
    Step {
        name: "bucket-readers",
        title: "kit bucket: read-only servers are killed while another one writes",
        run: kits::bucket_readers,
    },
];

/// Result of one step for the table.
struct Row {
    name: &'static str,
    elapsed: Duration,
    tally: Tally,
}

pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<bool> {
    let chosen = choose(flags)?;
    let ci = Checkout { root: root.to_owned(), target_dir: crate::process::target_dir(root)? };
    let mut rows = Vec::new();
    for step in chosen {
        println!("\n=== {}: {}", step.name, step.title);
        let start = Instant::now();
        let tally = (step.run)(&ci).unwrap_or_else(|error| Tally::failed(format!("{error:#}")));
        let elapsed = start.elapsed();
        println!("=== {}: {} ({:.1} s)", step.name, tally.verdict(), elapsed.as_secs_f64());
        rows.push(Row { name: step.name, elapsed, tally });
    }
    print_table(&rows);
    let mut sum = Tally::default();
    for row in &rows {
        sum.add(&row.tally);
    }
    println!("{}", sum.closing_line());
    Ok(sum.failed_count == 0)
}

/// The steps that `flags` ask for, in their fixed order.
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
    let mut rest = flags;
    while let [flag, list, tail @ ..] = rest {
        match *flag {
            "--only" => only = Some(names_of(list)?),
            "--skip" => skip = names_of(list)?,
            _ => break,
        }
        rest = tail;
    }
    if !rest.is_empty() {
        bail!("usage: cargo xtask ci [--only A,B] [--skip A,B]");
    }
    let wanted = |name: &str| only.as_ref().is_none_or(|names| names.iter().any(|n| n == name));
    let dropped = |name: &str| skip.iter().any(|n| n == name);
    Ok(STEPS.into_iter().filter(|step| wanted(step.name) && !dropped(step.name)).collect())
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
    let mut args = vec!["test", "--workspace", "--no-fail-fast", "--quiet"];
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
    // Optimisation over crates takes longer than the tests do.
    let env = [
        ("RUSTFLAGS", "--cfg loom"),
        ("CARGO_TARGET_DIR", &*target_dir),
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
        check(&[], &STEPS.map(|step| step.name));
        check(&["--only", "clippy,tidy"], &["tidy", "clippy"]);
        check(&["--only", "clippy,tidy", "--skip", "tidy"], &["clippy"]);
    }

    #[test]
    fn unknown_steps_and_flags_are_refused() {
        assert!(choose(&["--only", "lint"]).is_err());
        assert!(choose(&["--fast"]).is_err());
        assert!(choose(&["--only"]).is_err());
    }
}
