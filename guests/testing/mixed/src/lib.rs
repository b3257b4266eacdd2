//! A guest of a world of its own: lazy, with settings, settling.

mod bindings;
#[path = "../../lazy/src/columns.rs"]
mod columns;

use bindings::exports::deadletter::processor::{
    lazy_handler::{Context, Guest as Handler, Verdict},
    lifecycle::Guest as Lifecycle,
    settling::{Guest as Settling, Occasion},
};

struct Mixed;

impl Handler for Mixed {
    fn process(context: Context) -> Result<Vec<Verdict>, String> {
        testing_shared::judge(&context, &columns::Columns)
    }
}

impl Lifecycle for Mixed {
    fn configure(settings: Vec<(String, String)>) -> Result<(), String> {
        testing_shared::configure(settings)
    }
}

impl Settling for Mixed {
    fn settle(_context: Context, _occasion: Occasion) -> Result<Vec<Verdict>, String> {
        testing_shared::settle(Some(&columns::Columns))
    }
}
