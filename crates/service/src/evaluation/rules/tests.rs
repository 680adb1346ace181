//! Rounds of rules over a store in memory: times, restarts, reloads, tenants, limits.

mod backfill;
mod cluster;
mod deletion;
mod environment;
mod reloads;
mod repair;
mod restarts;
mod rounds;
mod sharing;
