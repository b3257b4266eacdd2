//! Generated.
#![allow(unsafe_code, reason = "generated bindings export and call raw functions")]

use testing_shared::bindings::deadletter::processor as shared;

use crate::Plain;

wit_bindgen::generate!({
    path: "../../../wit",
    world: "deadletter:processor/full-processor",
    generate_all,
    with: {
        "deadletter:processor/types@0.1.0": shared::types,
        "deadletter:processor/output@0.1.0": shared::output,
        "deadletter:processor/logging@0.1.0": shared::logging,
    },
});

export!(Plain);
