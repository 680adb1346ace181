//! Steps that run before a release alone: builds without optional parts, a long simulation, damage at every
//! byte, fuzzers.
//!
//! Not here: figures of speed (`append_path`, `kits`).

use std::time::Duration;

use anyhow::Result;

use super::checkout::Checkout;
use super::kits::{self, find_kit, no_kit};
use super::peers;
use super::tally::Tally;
use crate::process::{find_program, run_within};

/// Longest time of a command.
const COMMAND_WITHIN: Duration = Duration::from_secs(2400);

/// Formats that the fuzzer `readers` knows.
const READERS: [&str; 9] =
    ["parser", "times", "pickle", "whisper", "ini", "carbon-line", "metrics20", "record", "select"];
/// Seconds for each of them.
const READER_SECONDS: &str = "30";
/// Tests of crates with optional parts: crate, and what their names contain.
const PARTS: [(&str, &str); 3] = [
    ("chronolith-graphite", "picture::bitmap"),
    ("chronolith-bucket", "store::config"),
    ("chronolith-server", "graphite::tests"),
];

/// Packages of Debian that a broker of Kafka needs, and a program of each.
const KAFKA_PROGRAMS: [(&str, &str); 4] =
    [("default-jre-headless", "java"), ("maven", "mvn"), ("openssl", "openssl"), ("python3", "python3")];
/// Packages that a build of librdkafka needs besides, and a program of each; headers of OpenSSL have none.
const LIBRDKAFKA_PROGRAMS: [(&str, &str); 3] =
    [("gcc", "cc"), ("make", "make"), ("pkg-config", "pkg-config")];

/// Tests of builds without `png`, `gcs`, `azure` and `jemalloc`, in a target directory of their own:
/// features change the dependencies of all crates.
pub(super) fn features(ci: &Checkout) -> Result<Tally> {
    let target_dir = ci.target_dir.join("features").display().to_string();
    let env = [("CARGO_TARGET_DIR", &*target_dir), ("CARGO_PROFILE_DEV_DEBUG", "false")];
    let mut tally = run(ci, "check --package chronolith --bins --no-default-features --quiet", &env)?;
    for (package, tests) in PARTS {
        let args = format!("test --package {package} --no-default-features --lib --quiet {tests}");
        tally.add(&run_tests(ci, &args, &env)?);
    }
    Ok(tally)
}

/// Tests of the replicated log and of its users with the feature `kafka`, and kits against processes of a
/// cluster, with a broker that the harness of the kit `kafka` fetches and starts. In a target directory of
/// its own: features change the dependencies of all crates.
pub(super) fn kafka(ci: &Checkout) -> Result<Tally> {
    let packages = "--package chronolith-replicated-log --package chronolith-cluster";
    let mut tally = kafka_tests(ci, &format!("test {packages} --features kafka --quiet"), "kafka")?;
    if tally.passed_count == 0 {
        // Without a broker there is nothing else to run.
        return Ok(tally);
    }
    let target_dir = ci.target_dir.join("kafka");
    let binary = target_dir.join("debug/chronolith");
    let target_dir = target_dir.display().to_string();
    let env = [("CARGO_TARGET_DIR", &*target_dir), ("CARGO_PROFILE_DEV_DEBUG", "false")];
    tally.add(&run(ci, "build --package chronolith --features kafka --quiet", &env)?);
    tally.add(&kits::cluster_over_kafka(ci, &binary)?);
    Ok(tally)
}

/// The same tests of the replicated log by librdkafka, so that the way out is known to work (ADR 0148).
pub(super) fn kafka_librdkafka(ci: &Checkout) -> Result<Tally> {
    for (package, program) in LIBRDKAFKA_PROGRAMS {
        if let Err(why) = peers::need_package(package, || find_program(program).is_some()) {
            return Ok(Tally::not_run(&why));
        }
    }
    let has_headers = || {
        let command = ["pkg-config", "--exists", "openssl"].map(str::to_owned);
        run_within(COMMAND_WITHIN, &command, &ci.root, &[]).is_ok_and(|done| done.success)
    };
    if let Err(why) = peers::need_package("libssl-dev", has_headers) {
        return Ok(Tally::not_run(&why));
    }
    let args = "test --package chronolith-replicated-log --features kafka-librdkafka --quiet";
    kafka_tests(ci, args, "kafka-librdkafka")
}

fn kafka_tests(ci: &Checkout, args: &str, target: &str) -> Result<Tally> {
    let Some(harness) = find_kit(ci, "kafka", "broker.py") else { return Ok(no_kit("kafka")) };
    for (package, program) in KAFKA_PROGRAMS {
        if let Err(why) = peers::need_package(package, || find_program(program).is_some()) {
            return Ok(Tally::not_run(&why));
        }
    }
    let fetch = ["python3".to_owned(), harness.display().to_string(), "fetch".to_owned()];
    println!("$ {}", fetch.join(" "));
    let fetched = run_within(COMMAND_WITHIN, &fetch, &ci.root, &[])?;
    if !fetched.success {
        return Ok(Tally::not_run(fetched.text.lines().last().unwrap_or("there is no broker")));
    }
    let target_dir = ci.target_dir.join(target).display().to_string();
    // Without a broker, tests fail instead of printing that they did not run.
    let env = [("CARGO_TARGET_DIR", &*target_dir), ("CARGO_PROFILE_DEV_DEBUG", "false"), ("CI", "1")];
    run_tests(ci, args, &env)
}

/// The simulations of the step `test` with a million operations and longer scripts.
pub(super) fn simulator(ci: &Checkout) -> Result<Tally> {
    let env = [("CHRONOLITH_SIM_OPS", "1000000")];
    run_tests(ci, "test --package chronolith-sim --test simulate --quiet", &env)
}

/// The tests of the step `test` that cut and flip files of the head, at each byte.
pub(super) fn every_byte(ci: &Checkout) -> Result<Tally> {
    let args = "test --package chronolith-head --test it --quiet many_bytes";
    run_tests(ci, args, &[("CHRONOLITH_EVERY_BYTE", "1")])
}

/// Each reader of foreign inputs for half a minute; a finding ends with exit code 1.
pub(super) fn fuzz(ci: &Checkout) -> Result<Tally> {
    let mut tally = Tally::default();
    for reader in READERS {
        let args = "run --quiet --release --package chronolith-fuzz --bin readers --";
        let args = format!("{args} --reader {reader} --seconds {READER_SECONDS} --seed 1");
        tally.add(&run(ci, &args, &[])?);
    }
    Ok(tally)
}

fn run(ci: &Checkout, args: &str, env: &[(&str, &str)]) -> Result<Tally> {
    Ok(Tally::of_step(run_cargo(ci, args, env)?.success))
}

fn run_tests(ci: &Checkout, args: &str, env: &[(&str, &str)]) -> Result<Tally> {
    let done = run_cargo(ci, args, env)?;
    let mut tally = Tally::of_cargo_test(&done.text);
    tally.expect_failure_unless(done.success);
    Ok(tally)
}

fn run_cargo(ci: &Checkout, args: &str, env: &[(&str, &str)]) -> Result<crate::process::Finished> {
    println!("$ cargo {args}");
    let command: Vec<String> = std::iter::once("cargo").chain(args.split(' ')).map(str::to_owned).collect();
    run_within(COMMAND_WITHIN, &command, &ci.root, env)
}
