//! Reading a streamed call of 20 KB, beside parsing each payload of the same stream once with `serde_json`.
//!
//! `cargo bench -p holdpoint-models --features wire --bench read` prints, for each wire, both times, their ratio (the
//! goal: at most 3), and how long the call is waited for after the last byte (the goal: under 1 ms). With `--check`
//! it fails when a goal is missed. A second table shows that time grows with the length of the call, not faster.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use holdpoint_models::Unwatched;
use holdpoint_models::wire::anthropic::Anthropic;
use holdpoint_models::wire::chat::{Chat, Profile};
use holdpoint_models::wire::responses::Responses;
use holdpoint_models::wire::{StreamReading, Wire, WireOptions};

const RATIO_GOAL: f64 = 3.0;
const AFTER_LAST_BYTE_GOAL: Duration = Duration::from_millis(1);
/// What a network read brings.
const CHUNK_BYTES: usize = 1_400;
/// What one event brings of the arguments: a few tokens.
const PIECE_BYTES: usize = 20;
const ROUNDS: usize = 41;

fn main() -> ExitCode {
    let check = std::env::args().any(|arg| arg == "--check");
    let mut missed = false;
    println!("a call of 20 KB, streamed      read     serde_json   ratio   after the last byte");
    for (name, wire, payloads) in wires(20 * 1024) {
        let row = measure(wire.as_ref(), &payloads);
        let ratio = row.read.as_secs_f64() / row.parse.as_secs_f64();
        println!(
            "{name:<18} {:>5} events {:>9.1?} {:>11.1?} {ratio:>7.2} {:>20.1?}",
            payloads.len(),
            row.read,
            row.parse,
            row.last
        );
        missed |= ratio > RATIO_GOAL || row.last > AFTER_LAST_BYTE_GOAL;
    }
    println!("\ngrowth (Chat Completions)      read   per byte");
    for kilobytes in [20, 80, 240] {
        let Some((_, wire, payloads)) = wires(kilobytes * 1024).into_iter().next() else { continue };
        let read = measure(wire.as_ref(), &payloads).read;
        println!(
            "{kilobytes:>6} KB {:>24.1?} {:>7.2} ns",
            read,
            read.as_nanos() as f64 / (kilobytes * 1024) as f64
        );
    }
    if missed && check {
        eprintln!("a goal was missed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

struct Row {
    read: Duration,
    parse: Duration,
    last: Duration,
}

/// Both in turn, round by round, so that a busy machine disturbs both alike; the median of each.
fn measure(wire: &dyn Wire, payloads: &[String]) -> Row {
    let body: String = payloads.iter().map(|payload| format!("data: {payload}\n\n")).collect();
    let (mut reads, mut parses, mut lasts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let last = read(wire, body.as_bytes());
        reads.push(begun.elapsed());
        lasts.push(last);
        let begun = Instant::now();
        for payload in payloads {
            black_box(serde_json::from_str::<serde_json::Value>(black_box(payload)).ok());
        }
        parses.push(begun.elapsed());
    }
    Row { read: median(reads), parse: median(parses), last: median(lasts) }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Reads a body as it comes from the network; how long the last chunk and the end took.
fn read(wire: &dyn Wire, body: &[u8]) -> Duration {
    let mut reading = StreamReading::new(wire);
    let mut last = Instant::now();
    for chunk in body.chunks(CHUNK_BYTES) {
        last = Instant::now();
        reading.push(chunk, &mut Unwatched);
    }
    let finished = black_box(reading.finish(None, &mut Unwatched));
    let calls = finished.map_or(0, |finished| finished.reply.message.calls().count());
    assert_eq!(calls, 1, "the benchmark reads something else than it should");
    last.elapsed()
}

fn arguments(bytes: usize) -> Vec<String> {
    let line = "fn main() {\n    println!(\"Hälsningar från \\u{1F30D}\");\n}\n";
    let content = line.repeat(bytes / line.len());
    let text = serde_json::json!({ "path": "src/main.rs", "content": content }).to_string();
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(PIECE_BYTES).map(|piece| piece.iter().collect()).collect()
}

type Case = (&'static str, Box<dyn Wire>, Vec<String>);

fn wires(bytes: usize) -> Vec<Case> {
    let options = WireOptions::default();
    let pieces = arguments(bytes);
    let chat = |delta: serde_json::Value, finish: Option<&str>| {
        serde_json::json!({"id": "chatcmpl-9", "object": "chat.completion.chunk", "created": 1_796_000_000, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        .to_string()
    };
    let call = |name: Option<&str>, text: &str| match name {
        Some(name) => serde_json::json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function",
            "function": {"name": name, "arguments": text}}]}),
        None => serde_json::json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
    };
    let mut chat_events = vec![chat(call(Some("write"), ""), None)];
    chat_events.extend(pieces.iter().map(|piece| chat(call(None, piece), None)));
    chat_events.push(chat(serde_json::json!({}), Some("tool_calls")));

    let mut anthropic_events = vec![
        r#"{"type":"message_start","message":{"usage":{"input_tokens":5}}}"#.to_owned(),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"write","input":{}}}"#
            .to_owned(),
    ];
    anthropic_events.extend(pieces.iter().map(|piece| {
        serde_json::json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": piece}})
        .to_string()
    }));
    anthropic_events.push(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#.to_owned());
    anthropic_events.push(r#"{"type":"message_stop"}"#.to_owned());

    let whole: String = pieces.concat();
    let item = |arguments: &str| serde_json::json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "write", "arguments": arguments});
    let mut responses_events = vec![
        serde_json::json!({"type": "response.output_item.added", "output_index": 0, "item": item("")})
            .to_string(),
    ];
    responses_events.extend(pieces.iter().map(|piece| {
        serde_json::json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0,
            "sequence_number": 7, "delta": piece})
        .to_string()
    }));
    responses_events.extend([
        serde_json::json!({"type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 0,
            "arguments": whole}),
        serde_json::json!({"type": "response.output_item.done", "output_index": 0, "item": item(&whole)}),
        serde_json::json!({"type": "response.completed", "response": {"status": "completed", "output": [item(&whole)]}}),
    ]
    .map(|event| event.to_string()));

    vec![
        (
            "Chat Completions",
            Box::new(Chat { options: options.clone(), profile: Profile::STRICT, origin: "host".into() }),
            chat_events,
        ),
        ("Messages", Box::new(Anthropic { options: options.clone() }), anthropic_events),
        ("Responses", Box::new(Responses { options, encrypted_reasoning: false }), responses_events),
    ]
}
