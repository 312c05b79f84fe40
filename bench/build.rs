//! Links the settings of jemalloc that the `tenure` binary has into this one.

fn main() {
    let settings = "../crates/tenure/src/malloc_conf.c";
    println!("cargo:rerun-if-changed={settings}");
    for object in cc::Build::new().file(settings).compile_intermediates() {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}
