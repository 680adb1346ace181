//! Sends the history: one thread and connection per shard, then the epilogue.
//!
//! Invariant: the first error ends all senders.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::client::Client;
use crate::progress::{Printer, Progress};
use crate::shard::Shard;
use crate::stop::Stop;
use crate::tally::Tally;
use crate::timeline::Timeline;
use crate::world::World;

const PRINT_EVERY: Duration = Duration::from_millis(100);

/// State of all senders.
struct Senders<'a> {
    url: &'a str,
    timeline: Timeline,
    progress: &'a Progress,
    stop: &'a Stop,
    has_failed: AtomicBool,
}

impl Senders<'_> {
    fn is_over(&self) -> bool {
        self.stop.is_set() || self.has_failed.load(Ordering::Relaxed)
    }

    fn send(&self, shard: &mut Shard) -> Result<Tally> {
        let client = Client::new(self.url)?;
        let mut tally = Tally::default();
        for steps in self.timeline.windows() {
            if self.is_over() {
                break;
            }
            shard.run(&steps, &mut |request| {
                client.send(&request)?;
                tally.add(&request);
                self.progress.add_samples(request.stored.floats + request.stored.histograms);
                Ok(())
            })?;
            self.progress.add_window();
        }
        Ok(tally)
    }

    /// The body of a thread.
    fn run(&self, shard: &mut Shard) -> Result<Tally> {
        let sent = self.send(shard);
        if sent.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        sent
    }
}

/// Sends all of `world` to the server at `url`; `None` if a signal ended it.
pub(crate) fn send(world: &mut World, url: &str, progress: &Progress, stop: &Stop) -> Result<Option<Tally>> {
    if stop.is_set() {
        return Ok(None);
    }
    let client = Client::new(url)?;
    let mut tally = Tally::default();
    for request in world.prologue() {
        client.send(&request)?;
        tally.add(&request);
    }
    let timeline = *world.timeline();
    let shards = world.shards_mut();
    let senders = Senders { url, timeline, progress, stop, has_failed: AtomicBool::new(false) };
    for sent in run_all(&senders, shards)? {
        tally.merge(&sent);
    }
    if stop.is_set() {
        return Ok(None);
    }
    world.run_epilogue(&mut |request| {
        client.send(&request)?;
        tally.add(&request);
        Ok(())
    })?;
    Ok(Some(tally))
}

/// Runs a thread per shard, and prints progress meanwhile.
fn run_all(senders: &Senders<'_>, shards: &mut [Shard]) -> Result<Vec<Tally>> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for shard in shards {
            let builder = std::thread::Builder::new().name("sender".to_owned());
            threads.push(
                builder.spawn_scoped(scope, move || senders.run(shard)).context("cannot start a sender")?,
            );
        }
        let mut printer = Printer::new();
        while !threads.iter().all(ScopedJoinHandle::is_finished) {
            printer.print(senders.progress);
            std::thread::sleep(PRINT_EVERY);
        }
        printer.finish(senders.progress);
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a sender panicked"))?).collect()
    })
}
