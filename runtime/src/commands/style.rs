//! Colours, of which `anstream` leaves out what the reader's end cannot show.

use clap::builder::styling::{AnsiColor, Style};

/// What is right.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What is wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
