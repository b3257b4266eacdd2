//! Generated.
#![allow(unsafe_code, reason = "generated bindings export and call raw functions")]

use testing_shared::bindings::deadletter::processor as shared;

use crate::Mixed;

wit_bindgen::generate!({
    path: "../../../wit",
    inline: "
        package testing:mixed;
        world guest {
            include deadletter:processor/imports@0.1.0;
            import deadletter:processor/batch@0.1.0;
            export deadletter:processor/lazy-handler@0.1.0;
            export deadletter:processor/settling@0.1.0;
            export deadletter:processor/lifecycle@0.1.0;
        }
    ",
    world: "testing:mixed/guest",
    generate_all,
    with: {
        "deadletter:processor/types@0.1.0": shared::types,
        "deadletter:processor/output@0.1.0": shared::output,
        "deadletter:processor/logging@0.1.0": shared::logging,
    },
});

export!(Mixed);
