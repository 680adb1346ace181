//! Compiles the table again when a file of the interface appears or goes: rust-embed sees changed ones only.
//! Not here: the bundle of third parties, which `make ui` builds into `build/`.

fn main() {
    println!("cargo::rerun-if-changed=web");
    println!("cargo::rerun-if-changed=build");
}
