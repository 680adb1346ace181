//! Named threads. Holds: every thread of the process has a name that says what it does.

use std::thread::JoinHandle;

/// Starts a named thread.
///
/// # Errors
/// If the operating system refuses another thread.
pub fn spawn<T, F>(name: &str, run: F) -> std::io::Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// How many cores this process may use, at least 1.
#[must_use]
pub fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
