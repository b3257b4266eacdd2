//! Generated.
#![allow(unsafe_code, reason = "generated bindings export and call raw functions")]

use testing_shared::bindings::deadletter::processor as shared;

use crate::Lazy;

wit_bindgen::generate!({
    path: "../../../wit",
    inline: "
        package testing:lazy;
        world guest {
            include deadletter:processor/lazy-processor@0.1.0;
            export deadletter:processor/lifecycle@0.1.0;
        }
    ",
    world: "testing:lazy/guest",
    generate_all,
    with: {
        "deadletter:processor/types@0.1.0": shared::types,
        "deadletter:processor/output@0.1.0": shared::output,
        "deadletter:processor/logging@0.1.0": shared::logging,
    },
});

export!(Lazy);
