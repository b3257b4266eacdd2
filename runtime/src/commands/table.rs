//! Tables on a terminal.

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};

/// Nothing for no rows.
pub(super) fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    // A terminal that does not know its width says 0.
    if table.width().is_some_and(|width| width > 0) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.add_rows(rows.map(|row| row.map(|cell| harmless(&cell))));
    if table.is_empty() { String::new() } else { format!("{table}\n") }
}

/// Somebody else's text must not control the terminal, nor break a line.
pub(super) fn harmless(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}
