//! A guest of the lazy contract that takes settings and never defers.

mod bindings;
mod columns;

use bindings::exports::deadletter::processor::{
    lazy_handler::{Context, Guest as Handler, Verdict},
    lifecycle::Guest as Lifecycle,
};

struct Lazy;

impl Handler for Lazy {
    fn process(context: Context) -> Result<Vec<Verdict>, String> {
        testing_shared::judge(&context, &columns::Columns)
    }
}

impl Lifecycle for Lazy {
    fn configure(settings: Vec<(String, String)>) -> Result<(), String> {
        testing_shared::configure(settings)
    }
}
