//! Text from a guest, made fit for people to read on one line.

use std::fmt::Write;

/// Control characters, line ends and what changes the direction of writing, escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control()
            || matches!(char, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            // Writing to a string cannot fail.
            let _infallible = write!(line, "{}", char.escape_default());
        } else {
            line.push(char);
        }
    }
    line
}

/// Cut to a number of bytes, between two characters.
pub(super) fn cut(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text
}

/// The end, of up to a number of bytes, between two characters.
pub(super) fn end(text: &str, bytes: usize) -> &str {
    let start = text.ceil_char_boundary(text.len().saturating_sub(bytes));
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_trick_a_terminal_is_escaped() {
        assert_eq!(escaped("a\nb\u{1b}[31mc\u{202e}d é"), "a\\nb\\u{1b}[31mc\\u{202e}d é");
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("aé".to_owned(), 2), "a");
        assert_eq!(cut("aé".to_owned(), 3), "aé");
        assert_eq!(end("éa", 2), "a");
        assert_eq!(end("éa", 3), "éa");
    }
}
