//! The `quorlock` program. The Python and Node.js packages call `quorlock_cli::main` themselves.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(quorlock_cli::main(std::env::args_os()))
}
