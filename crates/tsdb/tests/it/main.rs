//! The store as a whole on a fake machine: full disks, retention, crashes, and a model of what it must answer.

mod compaction;
mod disk_full;
mod fixture;
mod model;
mod retention;
