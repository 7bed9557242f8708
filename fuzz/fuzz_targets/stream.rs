//! Any bytes, on any wire: no panic; however they are split, the reading is the same; and a reply that does not stand
//! has no calls.
//!
//! Seeds: `cargo +nightly fuzz run stream -- ../crates/holdpoint-models/tests/wire/{chat,anthropic,responses}`
#![no_main]

use holdpoint_models::assemble::Habits;
use holdpoint_models::wire::anthropic::Anthropic;
use holdpoint_models::wire::chat::{Chat, Profile};
use holdpoint_models::wire::responses::Responses;
use holdpoint_models::wire::{StreamReading, Wire, WireOptions};
use holdpoint_models::{ReplyEnd, Unwatched};
use libfuzzer_sys::fuzz_target;

fn read(wire: &dyn Wire, chunks: &[&[u8]]) -> String {
    let mut reading = StreamReading::new(wire);
    for chunk in chunks {
        reading.push(chunk, &mut Unwatched);
    }
    match reading.finish(None, &mut Unwatched) {
        Ok(finished) => {
            let calls = finished.reply.message.calls().count();
            assert!(finished.reply.end == ReplyEnd::Complete || calls == 0, "a call in a reply that does not stand");
            format!("{finished:?}")
        }
        Err(error) => format!("{error:?}"),
    }
}

fuzz_target!(|data: &[u8]| {
    let options = WireOptions::default();
    let habits = Habits { cumulative_arguments: true, repeats_at_close: true };
    let wires: [Box<dyn Wire>; 4] = [
        Box::new(Chat { options: options.clone(), profile: Profile::STRICT, origin: "host".into() }),
        Box::new(Chat { options: options.clone(), profile: Profile { habits, ..Profile::STRICT }, origin: "host".into() }),
        Box::new(Anthropic { options: options.clone() }),
        Box::new(Responses { options, encrypted_reasoning: false }),
    ];
    // Where to split comes from the data itself, so that a finding can be repeated.
    let sum = data.iter().fold(7_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let at = sum.checked_rem(data.len() + 1).unwrap_or(0);
    let single: Vec<&[u8]> = data.chunks(1 + sum % 5).collect();
    for wire in &wires {
        let whole = read(wire.as_ref(), &[data]);
        assert_eq!(whole, read(wire.as_ref(), &[&data[..at], &data[at..]]), "split at {at}");
        assert_eq!(whole, read(wire.as_ref(), &single), "in small chunks");
        // A whole body of the same bytes must not panic either.
        if let Ok(text) = std::str::from_utf8(data) {
            drop(wire.whole(text, &mut Unwatched));
        }
    }
});
