//! What is wrong with a configuration, for people.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::key::{ANY, Key, Outline, line};

/// A configuration that cannot be used. Its `Display` is one line for each problem: `file:line: key: problem`. Values of
/// `[kafka.common]`, `[kafka.consumer]` and `[kafka.producer]` and the token of `[admin]` are in none of them, since they may be secrets.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    file: PathBuf,
    problems: Vec<Problem>,
}

/// Broken rules: a key and a sentence.
pub(super) type Broken = Vec<(Key, String)>;

#[derive(Debug)]
struct Problem {
    line: Option<usize>,
    key: Key,
    what: String,
}

impl ConfigError {
    /// The file as a whole.
    pub(super) fn file(file: &Path, what: impl Into<String>) -> Self {
        let problem = Problem { line: None, key: Key::default(), what: what.into() };
        Self { file: file.to_owned(), problems: vec![problem] }
    }

    /// One line of it.
    pub(super) fn line(file: &Path, line: usize, what: impl Into<String>) -> Self {
        let problem = Problem { line: Some(line), key: Key::default(), what: what.into() };
        Self { file: file.to_owned(), problems: vec![problem] }
    }

    /// What is not TOML.
    pub(super) fn syntax(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let span = error.span().unwrap_or(text.len()..text.len());
        let what = match (error.message(), text.get(span.clone())) {
            ("duplicate key", Some(name)) => format!("the key {name} is there twice"),
            (message, _) => message.to_owned(),
        };
        Self::line(file, line(text.as_bytes(), span.start), what)
    }

    /// What serde found, in our words.
    pub(super) fn toml(file: &Path, text: &str, outline: &Outline, error: &toml::de::Error) -> Self {
        let position = error.span().map(|span| span.start);
        let key = position.map(|position| outline.key_at(position)).unwrap_or_default();
        let what = if key.starts_with(&["admin"]) && is_secret(&key) {
            "must be a text".to_owned()
        } else if is_secret(&key) {
            "must be a text, a number, or true or false (a name with dots stands in quotes)".to_owned()
        } else {
            plain(error.message())
        };
        let problem = Problem { line: position.map(|position| line(text.as_bytes(), position)), key, what };
        Self { file: file.to_owned(), problems: vec![problem] }
    }

    /// What the rules found: a sentence for each key.
    pub(super) fn rules(file: &Path, text: &str, outline: &Outline, broken: Broken) -> Self {
        let locate = |key: &Key| outline.position(key).map(|position| line(text.as_bytes(), position));
        let problems = broken.into_iter().map(|(key, what)| Problem { line: locate(&key), key, what });
        let mut problems: Vec<_> = problems.collect();
        problems.sort_by_key(|problem| problem.line);
        Self { file: file.to_owned(), problems }
    }
}

/// Whether what stands at a key may be a secret.
fn is_secret(key: &Key) -> bool {
    let property = |part| key.starts_with(&["kafka", part]) || key.starts_with(&["clusters", ANY, part]);
    ["common", "consumer", "producer"].into_iter().any(property) || key.starts_with(&["admin", "token"])
}

/// serde's wording in the words of this project: `problem (allowed: …)`.
fn plain(message: &str) -> String {
    let message = WORDS.iter().fold(message.to_owned(), |message, (serde, ours)| message.replace(serde, ours));
    match message.split_once(", expected ") {
        Some((_, allowed)) if allowed.starts_with("struct ") => "must be a table".to_owned(),
        Some((problem, allowed)) => format!("{problem} (allowed: {})", allowed.trim_start_matches("one of ")),
        None => message,
    }
}

const WORDS: &[(&str, &str)] = &[
    ("unknown field", "unknown key"),
    ("missing field", "missing key"),
    ("unknown variant", "unknown value"),
    (" as i128", ""),
    (" as u128", ""),
    ("a sequence", "a list"),
    ("a map", "a table"),
];

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Problem { line, key, what }) in self.problems.iter().enumerate() {
            let new_line = if position == 0 { "" } else { "\n" };
            write!(f, "{new_line}{}:", self.file.display())?;
            if let Some(line) = line {
                write!(f, "{line}:")?;
            }
            if *key != Key::default() {
                write!(f, " {key}:")?;
            }
            write!(f, " {}", one_line(what))?;
        }
        Ok(())
    }
}

/// Longer than any of our sentences. Stops a long value from hiding what is wrong with it.
const MAX_CHARS: usize = 400;

/// What was quoted from the file stays within its line.
fn one_line(what: &str) -> String {
    let escaped = what.chars().flat_map(|char| {
        let control = char.is_control().then(|| char.escape_default());
        control.into_iter().flatten().chain((!char.is_control()).then_some(char))
    });
    let mut line: String = escaped.take(MAX_CHARS).collect();
    if line.chars().count() == MAX_CHARS {
        line.push('…');
    }
    line
}
