//! Programs of others that steps need: found, installed from Debian where that is allowed, or named.
//! Invariants: nothing is installed unless this runs as root or in CI (`CI` set).

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::process::find_program;

/// Result of `apt-get update`, asked for once a run. Held during an installation: `apt-get` refuses to run
/// twice at the same time, and steps do.
static UPDATED: Mutex<Option<bool>> = Mutex::new(None);
/// Packages that this run has installed.
static INSTALLED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns the packages that this run has installed: the time of their installation counts as the time of
/// a step.
pub(super) fn installed() -> Vec<String> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Makes sure that the Debian package is there.
///
/// # Errors
/// What to do by hand, when it is missing and cannot be installed from here.
pub(super) fn need_package(package: &str, is_present: impl Fn() -> bool) -> Result<(), String> {
    if is_present() {
        return Ok(());
    }
    let by_hand = format!("{package} is missing; sudo apt-get install -y --no-install-recommends {package}");
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.starts_with(b"0\n"));
    if find_program("apt-get").is_none() || !(is_root || std::env::var_os("CI").is_some()) {
        return Err(by_hand);
    }
    let sudo: &[&str] = if is_root { &[] } else { &["sudo", "-n"] };
    let apt = |args: &[&str]| {
        let words = [sudo, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"], args].concat();
        succeeds(&words)
    };
    let mut updated = UPDATED.lock().unwrap_or_else(PoisonError::into_inner);
    if is_present() {
        return Ok(());
    }
    if *updated.get_or_insert_with(|| apt(&["update", "-q"]))
        && apt(&["install", "-y", "-q", "--no-install-recommends", package])
        && is_present()
    {
        stop_service(sudo, package);
        INSTALLED.lock().unwrap_or_else(PoisonError::into_inner).push(package.to_owned());
        return Ok(());
    }
    Err(by_hand)
}

/// Makes sure that there is a Prometheus to run.
pub(super) fn need_prometheus() -> Result<(), String> {
    need_package("prometheus", || find_program("prometheus").is_some())
}

/// Stops a service: the package starts a server of its own, which must not run during the tests. Without
/// systemd there is none.
fn stop_service(sudo: &[&str], package: &str) {
    if find_program("systemctl").is_some() {
        succeeds(&[sudo, &["systemctl", "disable", "--now", package]].concat());
    } else if find_program("service").is_some() {
        succeeds(&[sudo, &["service", package, "stop"]].concat());
    }
}

fn succeeds(words: &[&str]) -> bool {
    println!("$ {}", words.join(" "));
    let Some((program, args)) = words.split_first() else { return false };
    Command::new(program).args(args).status().is_ok_and(|status| status.success())
}
