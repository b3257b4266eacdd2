//! Generated.
#![allow(unsafe_code, reason = "generated bindings export and call raw functions")]

use crate::Stale;

wit_bindgen::generate!({
    path: "../../wit",
    inline: "
        package deadletter:stale;
        world guest {
            include deadletter:processor/processor@0.1.0;
            export deadletter:processor/lifecycle@0.1.0;
        }
    ",
    world: "deadletter:stale/guest",
    generate_all,
});

export!(Stale);
