//! Compiles one planted mistake in when `SILTSTONE_MUTATION` names it: the tests must find it
//! (`tests/mutations.sh`). A build without the variable is the product.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a build script talks to Cargo"
)]

fn main() {
    println!("cargo:rerun-if-env-changed=SILTSTONE_MUTATION");
    if let Ok(mutation) = std::env::var("SILTSTONE_MUTATION")
        && !mutation.is_empty()
    {
        println!("cargo:rustc-cfg=mutation=\"{mutation}\"");
    }
}
