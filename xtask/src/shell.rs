//! Running other programs.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// A program to be run from the repository's root.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// Cargo, the same one that runs this.
pub(crate) fn cargo(args: &[&str]) -> Command {
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), args)
}

/// Echoes and runs it; an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    echo(command);
    let status = command.status().with_context(|| format!("cannot run `{}`", line(command)))?;
    ensure!(status.success(), "`{}` failed ({status})", line(command));
    Ok(())
}

/// Echoes and runs it with each line of its stdout handed to `each` as it comes; returns whether it succeeded.
pub(crate) fn run_lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    echo(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run `{}`", line(command)))?;
    for read in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        each(&read.with_context(|| format!("cannot read the output of `{}`", line(command)))?);
    }
    Ok(child.wait()?.success())
}

/// Runs it quietly; what it printed to stdout, or `None` if it failed or is not there.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn echo(command: &Command) {
    eprintln!("+ {}", line(command));
}

/// As a person would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    let words: Vec<_> = std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
