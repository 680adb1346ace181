//! Imports on a disk in memory: golden files of Prometheus, InfluxDB and Whisper, damage, every kind of
//! sample.

mod checkpoint;
mod compaction;
mod golden;
mod hostile;
mod influx;
mod sample_kinds;
mod start_timestamps;
mod test_env;
mod whisper;
