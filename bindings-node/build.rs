//! Sets what the linker needs for a Node.js addon.

fn main() {
    napi_build::setup();
}
