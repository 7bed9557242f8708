//! Any fragments: no argument byte is lost, doubled or made up; no call without a fragment that opened it; names and
//! ids are ones that were sent.
#![no_main]

use holdpoint_core::arguments::ARGUMENTS_MAX_BYTES;
use holdpoint_models::assemble::{Assembler, Fragment, Habits};
use libfuzzer_sys::fuzz_target;

const IDS: [&str; 4] = ["", "a", "b", "c"];
const NAMES: [&str; 4] = ["", "f", "g", "h"];

fuzz_target!(|data: &[u8]| {
    let mut assembler = Assembler::new(Habits::default());
    let (mut sent, mut opened, mut fragments) = (0, 0, 0);
    // Each fragment: two bytes of shape, one of length, then that many bytes of text.
    let mut rest = data;
    while let [shape, keys, length, tail @ ..] = rest {
        let length = usize::from(*length).min(tail.len());
        let (text, tail) = tail.split_at(length);
        rest = tail;
        let Ok(text) = std::str::from_utf8(text) else { continue };
        let pick = |from: [&'static str; 4], by: u8| from[usize::from(by & 3)];
        let fragment = Fragment {
            index: (shape & 1 == 1).then_some(u64::from(keys >> 4)),
            id: (shape & 2 == 2).then(|| pick(IDS, *keys)),
            name: (shape & 4 == 4).then(|| pick(NAMES, keys >> 2)),
            arguments: (shape & 8 == 8).then_some(text),
            opens: shape & 0xF0 == 0xF0,
            closing: shape & 0xF0 == 0x10,
        };
        fragments += 1;
        match assembler.take(fragment) {
            Ok(placed) => {
                opened += usize::from(placed.is_some_and(|placed| placed.opened));
                if placed.is_some() {
                    sent += fragment.arguments.map_or(0, str::len);
                } else {
                    assert!(fragment.arguments.is_none_or(str::is_empty), "arguments were dropped");
                }
            }
            Err(_) => return,
        }
        if shape & 0x80 == 0x80 {
            assembler.all_whole();
        }
    }
    assert!(opened == assembler.len() && opened <= fragments);
    let kept = assembler.kept_bytes();
    let calls = assembler.finish();
    let keys: usize = calls.iter().map(|call| call.id.len() + call.name.len()).sum();
    if calls.iter().all(|call| call.arguments.len() <= ARGUMENTS_MAX_BYTES) {
        assert_eq!(kept, keys + sent, "argument bytes were lost or made up");
    }
    for call in calls {
        assert!(IDS.contains(&call.id.as_str()) && NAMES.contains(&call.name.as_str()));
    }
});
