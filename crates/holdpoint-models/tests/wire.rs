//! What the wires read: every quirk of a server that we know is a file of bytes under `tests/wire`, and its reading a
//! snapshot. Every file is also cut at each byte, split at each byte and sent with other line endings: the reading is
//! the same, or nothing stands.
#![allow(clippy::unwrap_used)] // The lint sees no test in a helper of a test.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use holdpoint_core::message::AssistantItem;
use holdpoint_models::assemble::Habits;
use holdpoint_models::wire::anthropic::Anthropic;
use holdpoint_models::wire::chat::{Chat, Profile};
use holdpoint_models::wire::responses::Responses;
use holdpoint_models::wire::{Finished, ITEMS_MAX, REPLY_MAX_BYTES, StreamReading, Wire, WireOptions};
use holdpoint_models::{ModelError, Pieces, Reply, ReplyEnd, Unwatched};

#[derive(Default)]
struct Watched(String, String);

impl Pieces for Watched {
    fn text(&mut self, piece: &str) {
        self.0.push_str(piece);
    }
    fn reasoning(&mut self, piece: &str) {
        self.1.push_str(piece);
    }
}

fn options() -> WireOptions {
    WireOptions { model: "m".into(), ..WireOptions::default() }
}

fn wire(file: &Path) -> Box<dyn Wire> {
    let kind = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let habits = match file.file_stem().unwrap().to_str().unwrap().rsplit_once('.') {
        Some((_, "cumulative")) => Habits { cumulative_arguments: true, ..Habits::default() },
        Some((_, "vllm")) => Profile::VLLM.habits,
        _ => Habits::default(),
    };
    match kind {
        "chat" => Box::new(Chat {
            options: options(),
            profile: Profile { habits, ..Profile::STRICT },
            origin: "host".into(),
        }),
        "anthropic" => Box::new(Anthropic { options: options() }),
        "responses" => Box::new(Responses { options: options(), encrypted_reasoning: true }),
        other => panic!("no wire for {other}"),
    }
}

fn files(extension: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut files: Vec<PathBuf> = ["chat", "anthropic", "responses"]
        .iter()
        .flat_map(|kind| fs::read_dir(root.join(kind)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|own| own == extension))
        .collect();
    files.sort();
    files
}

fn read(wire: &dyn Wire, chunks: &[&[u8]], pieces: &mut dyn Pieces) -> Result<Finished, ModelError> {
    let mut reading = StreamReading::new(wire);
    for chunk in chunks {
        reading.push(chunk, pieces);
    }
    reading.finish(None, pieces)
}

fn describe(result: &Result<Finished, ModelError>) -> String {
    let finished = match result {
        Ok(finished) => finished,
        Err(error) => {
            return format!("error {}, retryable: {}: {}\n", error.code, error.retryable, error.message);
        }
    };
    let Reply { message, end, usage, other_choices, other_choices_had_calls } = &finished.reply;
    let mut out = format!("end: {end:?}{}\n", if finished.paused { ", paused" } else { "" });
    for item in &message.items {
        match item {
            AssistantItem::Text(text) => writeln!(out, "text {text:?}"),
            AssistantItem::Reasoning { text, signature, native } => {
                writeln!(
                    out,
                    "reasoning {text:?}, signature {signature:?}, native {}",
                    native.as_deref().map_or("-", |n| n.get())
                )
            }
            AssistantItem::Call(call) => {
                writeln!(out, "call {:?} {:?}\n  {}", call.id, call.name, call.arguments)
            }
            AssistantItem::Opaque(raw) => writeln!(out, "opaque {}", raw.get()),
        }
        .unwrap();
    }
    writeln!(out, "tokens: {} in, {} out", usage.input_tokens, usage.output_tokens).unwrap();
    if *other_choices > 0 {
        writeln!(out, "other choices: {other_choices}, with calls: {other_choices_had_calls}").unwrap();
    }
    out
}

fn name(file: &Path) -> String {
    let kind = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
    format!("{kind}_{}", file.file_name().unwrap().to_str().unwrap().replace('.', "_"))
}

#[test]
fn every_stream_is_read_as_its_snapshot_says() {
    for file in files("sse") {
        let bytes = fs::read(&file).unwrap();
        let mut watched = Watched::default();
        let result = read(wire(&file).as_ref(), &[&bytes], &mut watched);
        insta::assert_snapshot!(name(&file), describe(&result));
        if let Ok(finished) = result {
            // What was shown on the way is what is kept.
            assert_eq!(watched.0, finished.reply.message.text(), "{file:?}");
            assert_eq!(watched.1, finished.reply.message.reasoning().unwrap_or_default(), "{file:?}");
        }
    }
}

#[test]
fn every_whole_body_is_read_as_its_snapshot_says() {
    for file in files("json") {
        let body = fs::read_to_string(&file).unwrap();
        insta::assert_snapshot!(name(&file), describe(&wire(&file).whole(&body, &mut Unwatched)));
    }
}

/// The items without what a later event only adds to the bill.
fn stands(result: &Result<Finished, ModelError>) -> Option<String> {
    match result {
        Ok(finished) if finished.reply.end == ReplyEnd::Complete => {
            Some(format!("{:?}", finished.reply.message.items))
        }
        Ok(_) | Err(_) => None,
    }
}

#[test]
fn a_stream_cut_at_any_byte_reads_the_same_or_nothing_stands() {
    for file in files("sse") {
        let bytes = fs::read(&file).unwrap();
        let wire = wire(&file);
        let whole = stands(&read(wire.as_ref(), &[&bytes], &mut Unwatched));
        for at in 0..bytes.len() {
            let cut = read(wire.as_ref(), &[&bytes[..at]], &mut Unwatched);
            let calls = cut.as_ref().map_or(0, |finished| finished.reply.message.calls().count());
            match stands(&cut) {
                None => assert_eq!(calls, 0, "{file:?} cut at {at}: a call in a reply that does not stand"),
                stands => assert_eq!(stands, whole, "{file:?} cut at {at}"),
            }
        }
    }
}

#[test]
fn a_stream_split_at_any_byte_reads_the_same() {
    for file in files("sse") {
        let bytes = fs::read(&file).unwrap();
        let wire = wire(&file);
        let whole = describe(&read(wire.as_ref(), &[&bytes], &mut Unwatched));
        for at in 0..bytes.len() {
            let split = read(wire.as_ref(), &[&bytes[..at], &bytes[at..]], &mut Unwatched);
            assert_eq!(describe(&split), whole, "{file:?} split at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(describe(&read(wire.as_ref(), &single, &mut Unwatched)), whole, "{file:?} byte by byte");
    }
}

#[test]
fn line_endings_a_mark_and_spacing_change_nothing() {
    for file in files("sse") {
        let text = fs::read_to_string(&file).unwrap();
        let wire = wire(&file);
        let whole = describe(&read(wire.as_ref(), &[text.as_bytes()], &mut Unwatched));
        for (form, other) in [
            ("CRLF", text.replace('\n', "\r\n")),
            ("CR", text.replace('\n', "\r")),
            ("a byte order mark", format!("\u{FEFF}{text}")),
            ("no space after the colon", text.replace("data: ", "data:")),
            ("no blank line at the end", text.trim_end().to_owned()),
        ] {
            // Each form also byte by byte: a CRLF is then cut in two.
            let single: Vec<&[u8]> = other.as_bytes().chunks(1).collect();
            for chunks in [&[other.as_bytes()][..], &single] {
                assert_eq!(
                    describe(&read(wire.as_ref(), chunks, &mut Unwatched)),
                    whole,
                    "{file:?} with {form}"
                );
            }
        }
    }
}

#[test]
fn what_is_kept_of_a_reply_is_bounded() {
    let wire = Chat { options: options(), profile: Profile::STRICT, origin: "host".into() };
    let text = |bytes: usize| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
            "x".repeat(bytes)
        )
    };
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let piece = text(1024 * 1024);
    for (more, stands) in [(0, true), (1, false)] {
        let mut chunks = vec![piece.as_bytes(); REPLY_MAX_BYTES / (1024 * 1024)];
        let last = text(more);
        chunks.extend([last.as_bytes(), end.as_bytes()]);
        let reply = read(&wire, &chunks, &mut Unwatched).unwrap().reply;
        assert_eq!(reply.end == ReplyEnd::Complete, stands, "{more} over: {:?}", reply.end);
        assert_eq!(reply.message.text().len(), REPLY_MAX_BYTES);
    }
}

#[test]
fn the_items_of_a_reply_are_bounded() {
    let wire = Anthropic { options: options() };
    let block =
        "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    let text =
        "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"x\"}}\n\n";
    let end = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
    for (blocks, stands) in [(ITEMS_MAX, true), (ITEMS_MAX + 1, false)] {
        // Empty blocks cost memory, too.
        let stream = format!("{text}{}{end}", block.repeat(blocks - 1));
        let reply = read(&wire, &[stream.as_bytes()], &mut Unwatched).unwrap().reply;
        assert_eq!(reply.end == ReplyEnd::Complete, stands, "{blocks}: {:?}", reply.end);
    }
}
