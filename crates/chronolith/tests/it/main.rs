//! The binary as a process: start, stop, kills, hostile clients, Prometheus's blocks.
//! Each test has its own data directory and its own loopback port.

mod cluster;
mod cluster_tools;
mod examples;
mod first_hour;
mod graphite_migration;
mod harness;
mod histogram_blocks;
mod hostile;
mod influx_migration;
mod operator;
mod process;
mod prometheus_blocks;
mod rules_backfill;
mod whisper_migration;
