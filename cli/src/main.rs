//! The `quorlock` program. The Python and Node.js packages run the same without it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(quorlock_cli::main(std::env::args_os()))
}
