//! `quorlock completions` and `quorlock man`: print completion scripts and manual pages. Neither needs nodes.

use crate::args;
use crate::exit;
use crate::output::{Failure, Output, named};
use clap_complete::Shell;
use clap_mangen::Man;

pub(crate) fn completions(shell: Shell, output: &Output) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "quorlock", &mut script);
    output.print_own(&String::from_utf8_lossy(&script))?;
    Ok(exit::OK)
}

/// Prints the manual page of the program or of a command, in the format of man(1).
pub(crate) fn page(command: Option<&str>, output: &Output) -> Result<u8, Failure> {
    let mut all = args::command();
    // Adds the global flags to each command.
    all.build();
    let wanted = match command {
        None => all,
        Some(name) => {
            let known: Vec<_> = all.get_subcommands().map(clap::Command::get_name).collect();
            let unknown = || {
                Failure::Usage(format!(
                    "there is no command {}; there are {}",
                    named(name),
                    known.join(", ")
                ))
            };
            let found = all.find_subcommand(name).ok_or_else(unknown)?;
            found.clone().display_name(format!("quorlock-{name}"))
        }
    };
    let mut page = Vec::new();
    let written = Man::new(wanted).manual("quorlock").render(&mut page);
    written.map_err(|error| Failure::own("the page", &error))?;
    output.print_own(&String::from_utf8_lossy(&page))?;
    Ok(exit::OK)
}
