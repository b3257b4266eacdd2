//! Known faults, put one at a time into a copy of the sources. The oracle must find each, and say which invariant it
//! breaks: a test that cannot fail proves nothing.
//!
//! The sources themselves are never touched, whatever ends a run, and nor is what was built of them: the copy is built in
//! a folder of its own, which shares the compiled dependencies through hard links.

mod table;

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::table::{MUTANTS, Mutant, TESTS};
use crate::{
    guests, prerequisites,
    shell::{cargo, command, root, run_lines},
};

/// A test with a fault in what it tests may wait for what never comes.
const LIMIT: Duration = Duration::from_mins(5);

/// What `timeout` of coreutils answers when it had to end the command.
const TIMED_OUT: i32 = 124;

/// Runs the mutants whose names contain one of `names`, or all if there is none; an error if one survives.
pub(crate) fn run_named(names: &[String]) -> Result<()> {
    let is_named = |mutant: &&Mutant| names.is_empty() || names.iter().any(|name| mutant.name.contains(name.as_str()));
    let mutants: Vec<_> = MUTANTS.iter().filter(is_named).collect();
    ensure!(!mutants.is_empty(), "no mutant is named like that; there are {}", all_names());
    prerequisites::all()?;
    guests::build()?;
    let copy = Copy::make()?;
    let results = copy.try_all(&mutants)?;
    print!("{}", table(&results));
    let survived = results.iter().filter(|result| result.found.is_err()).count();
    ensure!(survived == 0, "{survived} of {} mutants survived", results.len());
    Ok(())
}

fn all_names() -> String {
    MUTANTS.iter().map(|mutant| mutant.name).collect::<Vec<_>>().join(", ")
}

/// What became of a mutant.
struct Tried {
    name: &'static str,
    took: Duration,
    /// With which message the test failed, or why that does not count.
    found: Result<String, String>,
}

/// A copy of the repository, and where it is built.
struct Copy {
    source: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn make() -> Result<Self> {
        let (own, mutants) = (root().join("target"), root().join("target/mutants"));
        let (source, target) = (mutants.join("source"), mutants.join("target"));
        if source.exists() {
            fs::remove_dir_all(&source).with_context(|| format!("cannot remove {}", source.display()))?;
        }
        let is_source = |path: &Path| !path.ends_with("target") && !path.ends_with(".git");
        replicate(&root(), &source, &is_source, |from, to| fs::copy(from, to).map(drop))?;
        // Where its tests look for the broker and the guests.
        symlink(&own, source.join("target")).with_context(|| format!("cannot link {}", own.display()))?;
        // Without the executables, and all that is this repository's.
        let is_foreign = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_library = name.starts_with("lib") || !path.parent().is_some_and(|folder| folder.ends_with("deps"));
            is_library && !name.contains("deadletter") && !name.contains("xtask")
        };
        for folder in ["debug/deps", "debug/build", "debug/.fingerprint"] {
            replicate(&own.join(folder), &target.join(folder), &is_foreign, |from, to| fs::hard_link(from, to))?;
        }
        Ok(Self { source, target })
    }

    fn try_all(&self, mutants: &[&Mutant]) -> Result<Vec<Tried>> {
        let tests = self.build()?;
        for test in TESTS.iter().filter(|test| mutants.iter().any(|mutant| mutant.test == **test)) {
            let (code, log) = self.run(&tests, test)?;
            ensure!(code == Some(0), "{test} fails without a mutant:\n{log}");
        }
        mutants.iter().map(|mutant| self.try_one(mutant)).collect()
    }

    fn try_one(&self, mutant: &Mutant) -> Result<Tried> {
        let began = Instant::now();
        let file = self.source.join(mutant.file);
        let source = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let write = |text: &str| fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()));
        write(&mutated(&source, mutant)?)?;
        let tests = self.build().with_context(|| format!("the mutant {} does not compile", mutant.name))?;
        let (code, log) = self.run(&tests, mutant.test)?;
        write(&source)?;
        let found = judge(code, &log, mutant);
        let verdict = if found.is_ok() { "caught" } else { "SURVIVED" };
        eprintln!("{} {verdict} after {:.0?}", mutant.name, began.elapsed());
        Ok(Tried { name: mutant.name, took: began.elapsed(), found })
    }

    /// Builds the integration tests; their executable.
    fn build(&self) -> Result<PathBuf> {
        let mut build = cargo(&["test", "--no-run", "--package", "deadletter", "--features", "failpoints"]);
        build.args(["--test", "integration", "--message-format", "json-render-diagnostics"]);
        build.arg("--target-dir").arg(&self.target).current_dir(&self.source);
        let mut tests = None;
        let succeeded = run_lines(&mut build, |line| tests = executable(line).or_else(|| tests.take()))?;
        tests.filter(|_| succeeded).context("the tests were not built")
    }

    /// Runs a test; its exit code, and what it printed.
    fn run(&self, tests: &Path, test: &str) -> Result<(Option<i32>, String)> {
        let mut timeout = command("timeout", &["--kill-after=10s", &format!("{}s", LIMIT.as_secs())]);
        timeout.arg(tests).args(["--exact", test]).current_dir(self.source.join("runtime"));
        timeout.env_remove("DEADLETTER_SOAK");
        let output = timeout.output().context("cannot run `timeout`")?;
        let log = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&log).into_owned()))
    }
}

/// The source with the mutant's text in the place of its own.
fn mutated(source: &str, mutant: &Mutant) -> Result<String> {
    let places = source.matches(mutant.old).count();
    ensure!(places == 1, "{}: `{}` is {places} times in {}, not once", mutant.name, mutant.old, mutant.file);
    Ok(source.replace(mutant.old, mutant.new))
}

/// The test must fail, and say why by what the fault breaks: any other failure shows nothing.
fn judge(code: Option<i32>, log: &str, mutant: &Mutant) -> Result<String, String> {
    if code == Some(0) {
        return Err("the test passed".to_owned());
    }
    // Alone on a line, or behind what an `assert_eq` says first.
    let says = |line: &str| {
        let place = mutant.breaks.iter().find_map(|invariant| line.find(&format!("{invariant}: ")))?;
        line.get(place..).map(str::to_owned)
    };
    match log.lines().find_map(says) {
        Some(message) => Ok(message),
        None if code == Some(TIMED_OUT) => Err(format!("the test did not end within {LIMIT:?}")),
        None => Err(format!("the test failed for another reason:\n{log}")),
    }
}

/// The executable of a test, from a line of cargo's JSON.
fn executable(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message.pointer("/target/kind/0")? == "test";
    Some(message.pointer("/executable")?.as_str().filter(|_| is_test)?.into())
}

/// Makes of a folder another one with the files and folders that are wanted and not there yet.
fn replicate(
    from: &Path,
    to: &Path,
    is_wanted: &dyn Fn(&Path) -> bool,
    place: fn(&Path, &Path) -> io::Result<()>,
) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let (path, placed) = (entry.path(), to.join(entry.file_name()));
        if !is_wanted(&path) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            replicate(&path, &placed, is_wanted, place)?;
        } else if !placed.exists() {
            place(&path, &placed).with_context(|| format!("cannot make {} of it", placed.display()))?;
        }
    }
    Ok(())
}

fn table(results: &[Tried]) -> String {
    let head = format!("{:<28} {:>8}  {:<9} by\n", "mutant", "seconds", "result");
    let row = |Tried { name, took, found }: &Tried| {
        let (result, by) = match found {
            Ok(by) => ("caught", by),
            Err(why) => ("SURVIVED", why),
        };
        format!("{name:<28} {:>8}  {result:<9} {by}\n", took.as_secs())
    };
    std::iter::once(head).chain(results.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_has_its_place_in_the_sources() {
        for mutant in MUTANTS {
            let source = fs::read_to_string(root().join(mutant.file)).unwrap();
            assert_ne!(mutated(&source, mutant).unwrap(), source);
            assert!(TESTS.contains(&mutant.test), "{}", mutant.name);
        }
    }

    #[test]
    fn only_a_failure_by_the_invariant_that_is_broken_counts() {
        let mutant = &MUTANTS[0];
        assert_eq!(judge(Some(101), "running\nI1: lost\n", mutant), Ok("I1: lost".to_owned()));
        let compared = "assertion `left == right` failed: I1: lost";
        assert_eq!(judge(Some(101), compared, mutant), Ok("I1: lost".to_owned()));
        assert!(judge(Some(101), "I9: lost", mutant).is_err());
        assert!(judge(Some(0), "I1: lost", mutant).is_err());
        assert!(judge(Some(TIMED_OUT), "", mutant).is_err());
    }

    #[test]
    fn the_executable_of_the_tests_is_found_in_the_output_of_cargo() {
        let line = r#"{"reason":"compiler-artifact","target":{"kind":["test"]},"executable":"/t/integration-1"}"#;
        assert_eq!(executable(line), Some("/t/integration-1".into()));
        let library = r#"{"reason":"compiler-artifact","target":{"kind":["lib"]},"executable":null}"#;
        assert_eq!(executable(library), None);
        assert_eq!(executable("no JSON"), None);
    }
}
