//! Topics by pattern: an entry of `topics` that begins with `^` is a regular expression, which a whole name must match.
//!
//! Members of a classic group match names by the C library, as this does; under `group.protocol=consumer` the brokers do,
//! with RE2. What only one of them has is refused.

use std::ffi::CString;

use super::raw::Regex;

/// Topics of Kafka itself. What a group commits is a message in one of them.
const INTERNAL: &[&str] = &["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// Whether an entry of `topics` is a pattern, and no name.
pub fn is_pattern(entry: &str) -> bool {
    entry.starts_with('^')
}

/// Why an entry is a pattern that cannot be used.
pub fn refusal(entry: &str) -> Option<String> {
    let is_shorthand = |(first, second): (char, char)| first == '\\' && second.is_ascii_alphanumeric();
    if entry.chars().zip(entry.chars().skip(1)).any(is_shorthand) {
        return Some("is no pattern of POSIX: a backslash before a letter or a digit (write [0-9] for \\d)".to_owned());
    }
    match compile(entry) {
        Err(why) => Some(format!("is no regular expression: {why}")),
        Ok(pattern) => {
            let internal = INTERNAL.iter().find(|name| matches(&pattern, name))?;
            Some(format!("matches topics of Kafka itself, such as {internal}: make it narrower"))
        }
    }
}

/// An entry as the client takes it. librdkafka is content with the beginning of a name, the brokers are not.
pub fn subscription(entry: &str) -> String {
    entry.strip_prefix('^').map_or_else(|| entry.to_owned(), |rest| format!("^({rest})$"))
}

/// The entries of `topics`.
pub struct Sources<'e>(Vec<(&'e str, Option<Regex>)>);

impl<'e> Sources<'e> {
    /// A pattern that cannot be used matches nothing.
    pub fn of(entries: &'e [String]) -> Self {
        let compiled = |entry: &'e String| (entry.as_str(), is_pattern(entry).then(|| compile(entry).ok()).flatten());
        Self(entries.iter().map(compiled).collect())
    }

    /// The first entry that is a topic's name or matches it.
    pub fn find(&self, topic: &str) -> Option<&'e str> {
        let takes = |(entry, pattern): &&(&str, Option<Regex>)| {
            *entry == topic || pattern.as_ref().is_some_and(|pattern| matches(pattern, topic))
        };
        self.0.iter().find(takes).map(|(entry, _)| *entry)
    }
}

fn compile(entry: &str) -> Result<Regex, String> {
    Regex::new(&CString::new(subscription(entry)).map_err(|_| "it holds a NUL".to_owned())?)
}

fn matches(pattern: &Regex, topic: &str) -> bool {
    CString::new(topic).is_ok_and(|topic| pattern.matches(&topic))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'e>(entries: &'e [String], topic: &str) -> Option<&'e str> {
        Sources::of(entries).find(topic)
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        let entries = [r"^orders\..*", "^a|b$", "^x{2,3}", "returns"].map(str::to_owned);
        assert_eq!(find(&entries, "orders.eu"), Some(r"^orders\..*"));
        assert_eq!(find(&entries, "returns"), Some("returns"));
        for (entry, name) in [("^a|b$", "a"), ("^a|b$", "b"), ("^x{2,3}", "xx")] {
            assert_eq!(find(&entries, name), Some(entry));
        }
        for other in ["orders", "ordersxeu", "my-orders.eu", "ab", "x", "xxxx", "returns.eu", "", "nul\0"] {
            assert_eq!(find(&entries, other), None, "{other}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_used_is_refused_with_the_reason() {
        for (entry, reason) in [
            ("^orders(", "no regular expression: Unmatched ( or \\("),
            ("^orders[0-", "no regular expression: "),
            ("^*", "no regular expression: "),
            ("^(?i)orders", "no regular expression: "),
            ("^nul\0", "no regular expression: it holds a NUL"),
            (r"^orders\d+", "no pattern of POSIX"),
            (r"^(a)\1", "no pattern of POSIX"),
            ("^.*", "such as __consumer_offsets"),
            ("^_.*", "such as __consumer_offsets"),
        ] {
            let refusal = refusal(entry);
            assert!(refusal.as_ref().is_some_and(|why| why.contains(reason)), "{entry}: {refusal:?}");
        }
        for good in [r"^orders\..*", "^[^_].*", "^(orders|returns)-[[:alnum:]]+$", r"^a\-b"] {
            assert_eq!(refusal(good), None, "{good}");
        }
    }
}
