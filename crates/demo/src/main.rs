//! Generated data for demonstrations and tests: a day of metrics of 50 services with an incident, sent to a
//! server by its normal protocols.
//!
//! Invariants: the same seed, end, hours and services give the same requests, byte by byte and in the same
//! order per sender; memory does not grow with the length of the history.
//! Not here: the server, which is another process; load for measurements (`chronolith-bench`).

// A generator of demonstrations runs on the real machine; nothing here is replayed from a simulator's seed.
#![allow(clippy::disallowed_methods, reason = "not part of the server")]

mod burst;
mod catalog;
mod client;
mod clock;
mod column;
mod devices;
mod distribution;
mod draws;
mod history;
mod instance;
mod links;
mod live;
mod metric;
mod progress;
mod refused;
mod request;
mod server;
mod shard;
mod stop;
mod tally;
mod tenant;
mod timeline;
mod topology;
mod warehouse;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};

use client::Client;
use progress::Progress;
use stop::Stop;
use tally::{Digest, Tally};
use world::{World, WorldSpec};

#[derive(Parser)]
#[command(name = "chronolith-demo", about = "Generated metrics of a small company, sent to a server")]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start a server over an empty directory, send the history, then live samples until Ctrl-C
    Run {
        #[command(flatten)]
        world: WorldArgs,
        /// Program of the server
        #[arg(long, value_name = "FILE")]
        server: PathBuf,
        /// Address of the server, host:port
        #[arg(long, default_value = "127.0.0.1:9595", value_name = "HOST:PORT")]
        http: String,
        /// Data directory, which is kept; without it, a temporary one, which is removed
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
    },
    /// Send the history to a running server with --multitenancy
    Send {
        #[command(flatten)]
        world: WorldArgs,
        /// Address of the server
        #[arg(long, default_value = "http://127.0.0.1:9595")]
        url: String,
        /// Then send live samples every 15 s until Ctrl-C; only for a history that ends now
        #[arg(long)]
        live: bool,
        /// Print the counts of sent samples as JSON
        #[arg(long)]
        json: bool,
    },
    /// Send nothing: print counts and a hash of all requests as JSON
    Digest {
        #[command(flatten)]
        world: WorldArgs,
    },
}

#[derive(Args)]
struct WorldArgs {
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End of the history: RFC 3339, or seconds since 1970; without it, now. Rounded down to a minute
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
    /// Length of the history
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=168))]
    hours: u32,
    /// Number of services; the first five have both tenants and the incident
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(5..=50))]
    services: u32,
}

impl WorldArgs {
    fn spec(&self) -> Result<WorldSpec> {
        let end_ms = match &self.end {
            Some(text) => clock::parse_time(text)?,
            None => clock::now_ms()?,
        };
        Ok(WorldSpec { seed: self.seed, end_ms, hours: self.hours, service_count: self.services as usize })
    }
}

fn main() -> ExitCode {
    let done = match Command::parse().action {
        Action::Run { world, server, http, data_dir } => run(&world, &server, &http, data_dir),
        Action::Send { world, url, live, json } => send(&world, &url, live, json),
        Action::Digest { world } => digest(&world),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chronolith-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &WorldArgs, program: &std::path::Path, http: &str, data_dir: Option<PathBuf>) -> Result<()> {
    let stop = Stop::on_signals()?;
    let mut process = server::Process::start(program, http, data_dir)?;
    let url = format!("http://{http}");
    let ended = process.wait_ready(&stop).and_then(|()| {
        let mut world = World::new(&args.spec()?);
        if send_history(&mut world, &url, &stop)?.is_none() {
            return Ok(());
        }
        println!("{}", links::text(&url, world.timeline()));
        println!("New samples follow every 15 s. Ctrl-C stops the server{}.", process.epilogue());
        live::run(&mut world, &Client::new(&url)?, &stop, || process.check_alive())
    });
    process.stop()?;
    ended
}

fn send(args: &WorldArgs, url: &str, is_live: bool, is_json: bool) -> Result<()> {
    if is_live && args.end.is_some() {
        bail!("--live needs a history that ends now; leave out --end");
    }
    let stop = Stop::on_signals()?;
    let mut world = World::new(&args.spec()?);
    let Some(tally) = send_history(&mut world, url, &stop)? else { bail!("interrupted; a part was sent") };
    if is_json {
        println!("{}", tally.json(world.timeline()));
    }
    if is_live {
        println!("{}", links::text(url, world.timeline()));
        live::run(&mut world, &Client::new(url)?, &stop, || Ok(()))?;
    }
    Ok(())
}

/// Sends the history; `None` if a signal ended it.
fn send_history(world: &mut World, url: &str, stop: &Stop) -> Result<Option<Tally>> {
    let start = Instant::now();
    let progress = Progress::new(world.window_count());
    let Some(tally) = history::send(world, url, &progress, stop)? else { return Ok(None) };
    eprintln!("{}", tally.summary(start.elapsed()));
    Ok(Some(tally))
}

fn digest(args: &WorldArgs) -> Result<()> {
    let mut world = World::new(&args.spec()?);
    let mut tally = Tally::default();
    let mut digest = Digest::default();
    world.replay(&mut |request| {
        tally.add(&request);
        digest.add(&request);
        Ok(())
    })?;
    let mut json = tally.json(world.timeline());
    json["hash"] = format!("{:016x}", digest.finish()).into();
    println!("{json}");
    Ok(())
}
