//! Where something stands in a configuration file: its key path, its line.

use std::{fmt, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A path of keys, such as `pipelines.orders.topics[1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Key(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Name(String),
    Index(usize),
}

/// Any name, for [`Key::starts_with`].
pub(super) const ANY: &str = "*";

impl Key {
    /// A path, one name a step.
    pub(super) fn of<const N: usize>(names: [&str; N]) -> Self {
        Self(names.map(|name| Step::Name(name.to_owned())).into())
    }

    /// One step further.
    pub(super) fn at(&self, name: &str) -> Self {
        self.with(Step::Name(name.to_owned()))
    }

    /// One element of an array.
    pub(super) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// Whether it is `names` or something below.
    pub(super) fn starts_with(&self, names: &[&str]) -> bool {
        let same = |(step, name): (&Step, &&str)| matches!(step, Step::Name(own) if own == name || *name == ANY);
        self.0.len() >= names.len() && self.0.iter().zip(names).all(same)
    }

    fn is_prefix_of(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

impl fmt::Display for Key {
    /// As TOML writes it: a name that is not a bare key stands in quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            let dot = if position == 0 { "" } else { "." };
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Name(name) if is_bare(name) => write!(f, "{dot}{name}")?,
                Step::Name(name) => write!(f, "{dot}{name:?}")?,
            }
        }
        Ok(())
    }
}

fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Every key of a document and where it stands.
#[derive(Default)]
pub(super) struct Outline(Vec<Entry>);

struct Entry {
    key: Key,
    /// Where a reader would look for it: the name, or the element of an array.
    name: Range<usize>,
    value: Range<usize>,
}

impl Outline {
    /// The outline of a document.
    pub(super) fn new(document: &DeTable<'_>) -> Self {
        let mut outline = Self::default();
        outline.table(&Key::default(), document);
        outline
    }

    fn table(&mut self, key: &Key, table: &DeTable<'_>) {
        for (name, value) in table {
            self.value(key.at(name.get_ref()), name.span(), value);
        }
    }

    fn value(&mut self, key: Key, name: Range<usize>, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(&key, table),
            DeValue::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.value(key.index(index), element.span(), element);
                }
            }
            _ => {}
        }
        self.0.push(Entry { key, name, value: value.span() });
    }

    /// The innermost key whose name or value is at a byte position.
    pub(super) fn key_at(&self, position: usize) -> Key {
        let spans = |entry: &Entry| {
            [entry.name.clone(), entry.value.clone()].map(|span| (span.contains(&position), span.len()))
        };
        let smallest = |entry: &Entry| spans(entry).into_iter().filter(|(hit, _)| *hit).map(|(_, length)| length).min();
        let hits = self.0.iter().filter_map(|entry| Some((smallest(entry)?, entry)));
        hits.min_by_key(|(length, _)| *length).map(|(_, entry)| entry.key.clone()).unwrap_or_default()
    }

    /// The byte position of a key, or of the nearest one above it that is there.
    pub(super) fn position(&self, key: &Key) -> Option<usize> {
        let above = self.0.iter().filter(|entry| entry.key.is_prefix_of(key));
        above.max_by_key(|entry| entry.key.0.len()).map(|entry| entry.name.start)
    }
}

/// The line of a byte position, from 1.
pub(super) fn line(text: &[u8], position: usize) -> usize {
    1 + text.iter().take(position).filter(|byte| **byte == b'\n').count()
}
