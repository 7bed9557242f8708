//! The workload, word for word the same for every system.

/// The system prompt.
pub const SYSTEM: &str = "You are a build assistant.";
/// What the user asks.
pub const PROMPT: &str = "Read notes.txt, then write out.txt and run the build.";
/// What Read answers. Read is free.
pub const READ_OUT: &str = "contents of notes.txt";
/// What Write would answer. Write is gated, and always declined.
pub const WRITE_OUT: &str = "written";
/// What Bash answers. Bash is gated, and always approved.
pub const BASH_OUT: &str = "build ok";
/// The model's last word.
pub const FINAL: &str = "done";
/// What the person writes who declines.
pub const DECLINED: &str = "not allowed by policy";

/// One call of the script: the provider's id, the tool, the argument text.
pub type Call = (&'static str, &'static str, &'static str);

/// The turn of W1: nothing needs a person.
pub const FREE_TURN: [Call; 1] = [("c1", "Read", r#"{"path":"notes.txt"}"#)];
/// The turn of W2 to W4: one free call, two that need a person.
pub const GATED_TURN: [Call; 3] = [
    ("c1", "Read", r#"{"path":"notes.txt"}"#),
    ("c2", "Write", r#"{"path":"out.txt","content":"hello"}"#),
    ("c3", "Bash", r#"{"command":"make build"}"#),
];

/// The JSON Schema of a tool whose listed properties are all required strings.
pub fn schema(properties: &[&str]) -> serde_json::Value {
    let mut props = serde_json::Map::new();
    for name in properties {
        props.insert((*name).into(), serde_json::json!({"type": "string"}));
    }
    serde_json::json!({"type": "object", "properties": props, "required": properties})
}
