//! `deadletter completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Arguments, Failure, print};

/// Prints the completions of a shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  deadletter completions bash > /etc/bash_completion.d/deadletter")]
pub struct Completions {
    /// Which shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "deadletter", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}
