//! Generated.
#![allow(unsafe_code, reason = "generated bindings export and call raw functions")]

use crate::Core;

wit_bindgen::generate!({
    path: "../../../wit",
    world: "deadletter:processor/processor",
    generate_all,
});

export!(Core);
