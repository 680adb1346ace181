//! Rounds of rules over a store in memory: times, restarts, reloads, tenants, limits.

mod environment;
mod reloads;
mod restarts;
mod rounds;
