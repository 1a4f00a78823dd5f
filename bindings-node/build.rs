//! Sets the linker options that a Node.js addon needs.

fn main() {
    napi_build::setup();
}
