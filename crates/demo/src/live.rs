//! Live samples after the history: a step every 15 s until a signal.
//!
//! Invariant: no step is left out; after a suspend of the machine the missed steps are sent one after the
//! other.

use std::time::Duration;

use anyhow::Result;

use crate::client::Client;
use crate::clock;
use crate::stop::Stop;
use crate::timeline::STEP_MS;
use crate::world::World;

/// Sends steps until a signal, or an error of `check`, which is called before each step.
pub(crate) fn run(
    world: &mut World,
    client: &Client,
    stop: &Stop,
    mut check: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut time_ms = world.timeline().end_ms;
    loop {
        time_ms += STEP_MS;
        loop {
            let wait_ms = time_ms - clock::now_ms()?;
            // A process that has ended is noticed within a second.
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0).min(1000));
            if stop.wait(wait) {
                return Ok(());
            }
            check()?;
            if wait_ms <= 1000 {
                break;
            }
        }
        world.run_step(time_ms, &mut |request| client.send(&request))?;
    }
}
