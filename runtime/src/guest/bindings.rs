//! Generated from the contract, track 0.1: every interface that a guest of this track may export or import. Which of
//! them a module exports is looked up by [`super::contract`]; the world here only has to name them all.

wasmtime::component::bindgen!({
    path: "../wit",
    inline: "
        package deadletter:host;
        world every-guest {
            import deadletter:processor/batch@0.1.0;
            import deadletter:processor/output@0.1.0;
            import deadletter:processor/logging@0.1.0;
            export deadletter:processor/handler@0.1.0;
            export deadletter:processor/lazy-handler@0.1.0;
            export deadletter:processor/lifecycle@0.1.0;
            export deadletter:processor/settling@0.1.0;
        }
    ",
    world: "deadletter:host/every-guest",
    ownership: Borrowing { duplicate_if_necessary: true },
    exports: { default: async },
});
