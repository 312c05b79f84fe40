//! Links the settings of jemalloc into the binary: it reads them from a C symbol, which safe Rust cannot define.

fn main() {
    let settings = "src/malloc_conf.c";
    println!("cargo:rerun-if-changed={settings}");
    for object in cc::Build::new().file(settings).compile_intermediates() {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}
